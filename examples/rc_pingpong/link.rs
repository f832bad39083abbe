//! Memory, queues, and the steps of a round.

use std::thread;
use std::time::{Duration, Instant};

use mlx5::connect::{Connection, LocalPort};
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair};
use mlx5::wqe::{Inline, Payload, RdmaRead, RdmaWrite, Remote, SendMessage, Sge};

use crate::Result;
use crate::options::{Mode, Options, Task};

/// How long the other side may take for one step.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Receives that are posted ahead, each with a slot of its own.
const RECEIVES: u64 = 2;

/// One side of the connection, with everything that a round needs.
///
/// Its memory: slots for receives, then slots for sends, each of the message's size rounded up to
/// cache lines. A slot for sends is written again only after its request is complete.
pub struct Link {
    pub task: Task,
    sends: SendQueue<Rc>,
    receives: ReceiveQueue,
    completions: CqReader,
    /// Freed after the queues that use it.
    region: MemoryRegion,
    remote: Remote,
    inline: bool,
    signal_every: u64,
    /// Slots for sends: requests that may be outstanding.
    depth: u64,
    /// Requests posted, and known to be complete.
    posted: u64,
    retired: u64,
    /// Messages that arrived.
    received: u64,
}

impl Link {
    /// Makes memory, queues and connection.
    pub fn new(
        context: &Context,
        local: &LocalPort,
        task: Task,
        options: &Options,
        connection: &mut Connection,
    ) -> Result<Link> {
        let depth = 2 * options.signal_every;
        let requests = u32::try_from(depth)?;
        let pd = ProtectionDomain::new(context)?;
        let slots = usize::try_from(RECEIVES + depth)?;
        let length =
            task.stride().checked_mul(slots).ok_or("message size times slots is too much")?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = pd.allocate(length, access)?;
        let cq = CompletionQueue::new(context, requests + RECEIVES as u32)?;
        let inline = if options.inline { u32::try_from(task.size)? } else { 0 };
        let qp = QueuePair::builder(&pd, &cq)
            .max_send_wr(requests)
            .max_recv_wr(RECEIVES as u32)
            .max_inline_data(inline)
            .build()?;

        let mut mine = local.connection_data(&qp);
        mine.region = Some((&region).into());
        let theirs = connection.exchange(&mine)?;
        let offered = theirs.region.ok_or("the peer offers no memory")?;
        let qp = qp.init(&local.init())?;
        let mut completions = CqReader::new(&cq)?;
        let mut receives = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
        if task.mode == Mode::Send {
            for receive in 0..RECEIVES {
                let slot = region.sge(receive as usize * task.stride(), task.size)?;
                // SAFETY: each receive has a slot of its own in a region that outlives the queue,
                // and the slot is read after its completion only.
                unsafe { receives.post(receive, slot)? };
            }
        }
        let qp = qp.rtr(&local.rtr(&mine, &theirs))?;
        let qp = qp.rts(&local.rts(&mine, &theirs))?;
        let sends = SendQueue::new(&qp, &mut completions, SendConfig::default())?;

        // A READ fetches the first slot for sends; a WRITE goes to the first for receives.
        let first = if task.mode == Mode::Read { RECEIVES } else { 0 };
        let remote =
            Remote::new(offered.address, offered.rkey).offset(first * task.stride() as u64);
        let mut link = Link {
            task,
            region,
            remote,
            completions,
            sends,
            receives,
            inline: options.inline,
            signal_every: options.signal_every,
            depth,
            posted: 0,
            retired: 0,
            received: 0,
        };
        let body: Vec<u8> = (0..task.size).map(body_byte).collect();
        // Slots for receives stay empty, so that nothing in them is right before it arrives.
        for slot in RECEIVES as usize..slots {
            link.region.write(slot * task.stride(), &body);
        }
        link.stamp(RECEIVES, 0);
        // Neither side sends, writes or reads before both have reached this point.
        connection.barrier(1)?;
        Ok(link)
    }

    /// Sends the message of `round`, or writes it into the peer's memory.
    pub fn send(&mut self, round: u64) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let mut wait = Wait::new(deadline);
        while self.posted - self.retired >= self.depth {
            self.poll()?;
            wait.once("completion of an earlier request")?;
        }
        let slot = RECEIVES + round % self.depth;
        self.stamp(slot, round);
        if self.inline {
            let bytes = self.region.to_vec(self.offset(slot), self.task.size);
            self.post(round, Inline(&bytes))
        } else {
            self.post(round, self.sge(slot)?)
        }
    }

    fn post(&mut self, round: u64, payload: impl Payload) -> Result<()> {
        let signaled = (round + 1) % self.signal_every == 0 || round + 1 == self.task.iterations;
        // SAFETY: the slot lies in a region that outlives the queue, and is not written before a
        // completion has retired the request: `send` counts.
        let result = unsafe {
            match self.task.mode {
                Mode::Send => {
                    self.sends.post(round, SendMessage::new(payload).signaled_if(signaled))
                }
                _ => {
                    let write = RdmaWrite::new(payload, self.remote).signaled_if(signaled);
                    self.sends.post(round, write)
                }
            }
        };
        result.map_err(|error: PostError| format!("round {round}: {error}"))?;
        self.posted += 1;
        Ok(())
    }

    /// Waits for the peer's message of `round` and checks it.
    pub fn receive(&mut self, round: u64) -> Result<()> {
        let mut wait = Wait::new(Instant::now() + TIMEOUT);
        if self.task.mode == Mode::Send {
            while self.received <= round {
                self.poll()?;
                wait.once("message")?;
            }
            let slot = round % RECEIVES;
            self.check(slot, round)?;
            // SAFETY: the slot lies in a region that outlives the queue. Its message was checked
            // above, and it is read again only after the new receive has completed.
            unsafe { self.receives.post(round + RECEIVES, self.sge(slot)?)? };
        } else {
            // A WRITE makes no completion here, and its bytes may become visible in any order. So this
            // waits for both stamps. They say nothing about the bytes between, which are the same in
            // every round: a program that reads such bytes uses WRITE with immediate.
            let last = self.task.size - 1;
            while self.region.poll_byte(last) != marker(round) || self.check(0, round).is_err() {
                // An error would come as a completion.
                self.poll()?;
                wait.once("peer's WRITE")?;
            }
        }
        Ok(())
    }

    /// Fetches the peer's memory and checks it. It always holds the message of round 0.
    pub fn read(&mut self, round: u64) -> Result<()> {
        let last = self.task.size - 1;
        self.region.write(last, &[0]);
        let into = self.sge(0)?;
        // SAFETY: the slot lies in a region that outlives the queue, and is not touched before the
        // completion, which is waited for below.
        unsafe { self.sends.post(round, RdmaRead::new(into, self.remote).signaled())? };
        self.posted += 1;
        let mut wait = Wait::new(Instant::now() + TIMEOUT);
        while self.retired < self.posted {
            self.poll()?;
            wait.once("completion of the READ")?;
        }
        self.check(0, 0)
    }

    /// Waits until every request is complete, and checks the last message byte for byte.
    pub fn finish(&mut self) -> Result<()> {
        let mut wait = Wait::new(Instant::now() + TIMEOUT);
        while self.retired < self.posted {
            self.poll()?;
            wait.once("completion of the last request")?;
        }
        let slot = match self.task.mode {
            Mode::Send => (self.task.iterations - 1) % RECEIVES,
            _ => 0,
        };
        let mut bytes = vec![0; self.task.size];
        let stamped = bytes.len().min(8);
        let body = stamped..bytes.len().saturating_sub(1).max(stamped);
        let mut wait = Wait::new(Instant::now() + TIMEOUT);
        loop {
            self.region.read(self.offset(slot), &mut bytes);
            match body.clone().find(|&at| bytes[at] != body_byte(at)) {
                None => return Ok(()),
                // Bytes of a WRITE may come after its stamps.
                Some(_) if self.task.mode == Mode::Write => {
                    wait.once("WRITE with all bytes of the last message")?;
                }
                Some(at) => return Err(format!("byte {at} of the last message is wrong").into()),
            }
        }
    }

    /// Takes a completion, if one is there.
    fn poll(&mut self) -> Result<()> {
        match self.completions.poll(&mut (&mut self.sends, &mut self.receives))? {
            None => Ok(()),
            // It retires the unsignaled requests before it as well.
            Some(Completion::Send(done)) => {
                self.retired = done.id + 1;
                Ok(())
            }
            Some(Completion::Receive(done)) if done.byte_len as usize == self.task.size => {
                self.received += 1;
                Ok(())
            }
            Some(Completion::Failed(failure)) => Err(failure.into()),
            Some(other) => Err(format!("unexpected completion: {other:?}").into()),
        }
    }

    fn offset(&self, slot: u64) -> usize {
        slot as usize * self.task.stride()
    }

    fn sge(&self, slot: u64) -> mlx5::Result<Sge> {
        self.region.sge(self.offset(slot), self.task.size)
    }

    /// Makes a slot's message that of `round`: its first bytes count, its last one tells two
    /// neighbours apart.
    fn stamp(&mut self, slot: u64, round: u64) {
        let count = round.to_le_bytes();
        let at = self.offset(slot);
        self.region.write(at, &count[..self.task.size.min(8)]);
        self.region.write(at + self.task.size - 1, &[marker(round)]);
    }

    /// Whether a slot holds the message of `round`.
    fn check(&self, slot: u64, round: u64) -> Result<()> {
        let mut wanted = round.to_le_bytes();
        let stamped = self.task.size.min(8);
        if self.task.size <= 8 {
            wanted[stamped - 1] = marker(round);
        }
        let mut got = [0; 8];
        self.region.read(self.offset(slot), &mut got[..stamped]);
        let last = self.region.poll_byte(self.offset(slot) + self.task.size - 1);
        if got[..stamped] != wanted[..stamped] || last != marker(round) {
            return Err(format!(
                "round {round}: the message begins {:02x?}, not {:02x?}, and ends {last:#04x}",
                &got[..stamped],
                &wanted[..stamped]
            )
            .into());
        }
        Ok(())
    }
}

/// The last byte of a round's message: never 0, never that of the round before.
fn marker(round: u64) -> u8 {
    (round % 255) as u8 + 1
}

/// The bytes between.
fn body_byte(at: usize) -> u8 {
    (at * 7 + at / 256) as u8
}

/// Busy waiting with an end.
struct Wait {
    deadline: Instant,
    turns: u32,
}

impl Wait {
    fn new(deadline: Instant) -> Wait {
        Wait { deadline, turns: 0 }
    }

    fn once(&mut self, what: &str) -> Result<()> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns % 1024 != 0 {
            std::hint::spin_loop();
            return Ok(());
        }
        if Instant::now() > self.deadline {
            return Err(format!("no {what} within {TIMEOUT:?}").into());
        }
        // Where cores are few, the peer may be waiting for this one.
        thread::yield_now();
        Ok(())
    }
}
