//! Whether a plan can be done at all.

use super::{
    Amount, Carrier, Connecting, Direction, Kind, LONGEST_MESSAGE, Layout, MOST_GROUPS,
    MOST_QUEUE_PAIRS, MOST_THREADS, Operation, Plan, ReceiveSource, Retransmission, Schedule,
    Stall, Via, Waiting,
};

/// The longest UDP packet in a frame of 1514 bytes.
const LONGEST_PACKET: u64 = 1514 - Layout::FRAME as u64;

impl Plan {
    /// Checks whether such a measurement is possible on any device.
    ///
    /// # Errors
    /// Returns what is impossible, and what to choose instead.
    pub fn check(&self) -> Result<(), String> {
        self.check_operation()?;
        self.check_queues()?;
        if self.kind == Kind::Lat {
            self.check_lat()?;
        }
        self.check_amounts()?;
        self.check_faults()?;
        self.check_both_ways()?;
        self.check_events()?;
        self.check_connecting()?;
        if self.mtu.is_some_and(|mtu| ![256, 512, 1024, 2048, 4096].contains(&mtu)) {
            return Err("--mtu is 256, 512, 1024, 2048 or 4096".into());
        }
        range("sl", u64::from(self.service_level), 0, 15)?;
        self.retransmission.check(self.carrier)?;
        self.layout().map(drop)
    }

    fn check_operation(&self) -> Result<(), String> {
        let Plan { operation, carrier, size, .. } = self;
        match carrier {
            Carrier::Ud if *operation != Operation::Send => {
                return Err(format!("ud has SEND alone, not {operation}: choose --transport rc"));
            }
            Carrier::Raw if *operation != Operation::Send => {
                return Err(format!("raw has SEND alone, not {operation}: choose --transport rc"));
            }
            Carrier::Uc | Carrier::Raw if self.receives_from == ReceiveSource::Shared => {
                return Err(format!(
                    "{carrier} takes no receives from a shared queue: leave --srq out"
                ));
            }
            Carrier::Dc if self.via == Via::Verbs => {
                return Err("libmlx5's ibv_post_send has no dynamic connections: leave --via and \
                            --compare out"
                    .into());
            }
            Carrier::Uc if operation.fetches() => {
                return Err(format!("uc has no {operation}: choose --transport rc"));
            }
            _ => {}
        }
        range("size", *size, 1, LONGEST_MESSAGE)?;
        self.check_packets()?;
        if operation.is_atomic() && *size != 8 {
            return Err(format!("{operation} works on 8 bytes, not {size}: leave --size out"));
        }
        if self.inline && operation.fetches() {
            return Err(format!("{operation} has no payload to be inline: leave --inline out"));
        }
        Ok(())
    }

    /// Checks what Ethernet packets alone have, and what they lack.
    fn check_packets(&self) -> Result<(), String> {
        if self.carrier != Carrier::Raw {
            return match self.group {
                None => Ok(()),
                Some(_) => Err(format!("{} has no groups: give --transport raw", self.carrier)),
            };
        }
        range("size", self.size, 1, LONGEST_PACKET)?;
        range("groups", u64::from(self.groups), 1, u64::from(MOST_GROUPS))?;
        if self.group_addresses().any(|group| !group.is_multicast()) {
            return Err("--group is an address from 224.0.0.0 to 239.255.255.255, and so is each \
                        that --groups adds"
                .into());
        }
        if self.via == Via::Verbs {
            return Err("raw is measured on the direct way: leave --via and --compare out".into());
        }
        if self.mtu.is_some() {
            return Err("the MTU of Ethernet is the interface's: leave --mtu out".into());
        }
        if (self.service_level, self.pkey_index) != (0, 0) {
            return Err("an Ethernet packet without a VLAN has neither priority nor P_Key: leave \
                        --sl and --pkey-index out"
                .into());
        }
        Ok(())
    }

    fn check_queues(&self) -> Result<(), String> {
        let Plan { batch, signal_every, depth, .. } = self;
        range("depth", u64::from(*depth), 1, 1 << 15)?;
        range("batch", u64::from(*batch), 1, u64::from(*depth))?;
        range("signal-every", u64::from(*signal_every), 1, u64::from(*depth))?;
        if batch + signal_every > depth + 1 {
            return Err(format!(
                "--batch {batch} and --signal-every {signal_every} do not go with --depth {depth}: \
                 a queue that is full of requests without a completion would never be seen to have \
                 room; take a depth of at least {}",
                batch + signal_every - 1
            ));
        }
        range("threads", u64::from(self.threads), 1, u64::from(MOST_THREADS))?;
        range("qps", u64::from(self.queue_pairs), 1, u64::from(MOST_QUEUE_PAIRS))?;
        if self.queue_pairs % self.threads != 0 {
            return Err(format!(
                "--qps {} cannot be shared among --threads {}: take a multiple",
                self.queue_pairs, self.threads
            ));
        }
        Ok(())
    }

    fn check_lat(&self) -> Result<(), String> {
        if self.queue_pairs != self.threads {
            return Err(
                "lat has one message under way per thread: --qps has to be --threads".into()
            );
        }
        if self.batch != 1 {
            return Err("lat sends one message at a time: leave --batch out, or measure bw".into());
        }
        if self.operation.fetches() && self.signal_every != 1 {
            return Err(format!(
                "the latency of {} is that of its completion: leave --signal-every out",
                self.operation
            ));
        }
        Ok(())
    }

    fn check_amounts(&self) -> Result<(), String> {
        match self.amount {
            Amount::Messages(count) => range("iterations", count, 1, 1 << 40)?,
            Amount::Nanoseconds(time) => range("duration in ns", time, 1_000_000, 1 << 46)?,
        }
        range("warm-up", self.warm_up, 0, 1 << 40)?;
        if let Some(Schedule { per_second, .. }) = self.schedule {
            if !(per_second.is_finite() && (0.001..=1e9).contains(&per_second)) {
                return Err(format!("--rate {per_second}: it is 0.001 to 1e9 messages a second"));
            }
            if self.batch != 1 {
                return Err(
                    "an open loop sends each message when it is due: leave --batch out".into()
                );
            }
        }
        Ok(())
    }

    fn check_faults(&self) -> Result<(), String> {
        if let Some(Stall { at, nanoseconds }) = self.stall {
            range("stall-at", at, 0, 1 << 40)?;
            range("stall-for in ns", nanoseconds, 0, 60_000_000_000)?;
        }
        if let Some(at) = self.corrupt_at {
            range("corrupt-at", at, 0, 1 << 40)?;
            if self.polls_memory() && self.size < 2 {
                return Err(
                    "--corrupt-at: of one byte, by which its arrival is seen, none is left \
                            to be wrong; take --size 2"
                        .into(),
                );
            }
        }
        if self.corrupt_at.is_some() && !self.validate {
            return Err("--corrupt-at is noticed with --validate only".into());
        }
        Ok(())
    }

    fn check_both_ways(&self) -> Result<(), String> {
        if self.direction == Direction::OneWay {
            return Ok(());
        }
        if self.kind == Kind::Lat {
            return Err("lat sends messages both ways already: leave --bidirectional out, or \
                        measure bw or rate"
                .into());
        }
        if self.stall.is_some() {
            return Err("--stall-at pauses one side: leave --bidirectional out".into());
        }
        Ok(())
    }

    fn check_connecting(&self) -> Result<(), String> {
        if self.connecting == Connecting::Told {
            return Ok(());
        }
        if self.carrier != Carrier::Rc {
            return Err(format!(
                "rdma_cm connects queue pairs of rc alone, not {}: leave --cm (-R) out, or choose \
                 --transport rc",
                self.carrier
            ));
        }
        if self.pkey_index != 0 {
            return Err(
                "rdma_cm takes the P_Key of the network interface: leave --pkey-index out, \
                        and give a HOST that is reached by an interface of that partition"
                    .into(),
            );
        }
        Ok(())
    }

    fn check_events(&self) -> Result<(), String> {
        if self.waiting == Waiting::Polling {
            return Ok(());
        }
        if self.polls_memory() {
            return Err("the arrival of a WRITE completes nothing, so that no event tells it: \
                        leave --events out, or take --operation write-imm"
                .into());
        }
        if self.schedule.is_some() {
            return Err(
                "a schedule is kept by looking at the clock: leave --events or --rate out".into()
            );
        }
        Ok(())
    }
}

impl Retransmission {
    fn check(&self, carrier: Carrier) -> Result<(), String> {
        let options = [
            ("ack-timeout", self.ack_timeout, 31),
            ("retries", self.retries, 7),
            ("rnr-retries", self.rnr_retries, 7),
        ];
        for (name, value, most) in options {
            let Some(value) = value else { continue };
            if !carrier.is_reliable() {
                return Err(format!("{carrier} sends nothing again: leave --{name} out"));
            }
            range(name, u64::from(value), 0, most)?;
        }
        Ok(())
    }
}

fn range(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("--{name} {value}: it is {least} to {most}"))
}
