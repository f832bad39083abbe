//! Send WQEs that were fetched and not yet completed, so that a completion can name its request.

use std::collections::{HashMap, VecDeque};

use mlx5::diag::text::{Addressing, ReceiveWqe, SendWqe};
use mlx5_model::object::Service;
use mlx5_model::trace::Queue;

/// Bytes of a segment, and of an address vector.
const SEGMENT: usize = 16;
const ADDRESS_VECTOR: usize = 48;
/// Requests that are remembered of each queue: as many as 16-bit counters tell apart.
const MOST: usize = 1 << 16;

/// A request, as a completion names it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub index: u16,
    /// Its opcode's name.
    pub opcode: String,
    /// Bytes of the message, where the WQE says so.
    pub length: Option<u64>,
    /// All of it, in words: one line per segment.
    pub text: Vec<String>,
}

/// The requests of all queues.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    sends: HashMap<(u8, u32), VecDeque<Request>>,
    receives: HashMap<(u8, bool, u32), VecDeque<Request>>,
}

/// What a completion ends: the request it names, and how many were posted before it.
pub(super) struct Completed {
    pub request: Request,
    pub before: usize,
}

impl Request {
    /// A send WQE.
    pub fn of_send(index: u16, service: Service, bytes: &[u8]) -> Request {
        let addressing = match service {
            Service::Rc | Service::Uc => Addressing::Connected,
            Service::Ud | Service::Dc => Addressing::Datagram,
            Service::Xrc => Addressing::Xrc,
            Service::Ethernet => Addressing::Ethernet,
        };
        let text = SendWqe::new(bytes, addressing).to_string();
        let opcode = text.split(" WQE ").next().unwrap_or_default().to_owned();
        let length = length(&opcode, service, bytes);
        Request { index, opcode, length, text: lines(&text) }
    }

    /// A receive WQE.
    pub fn of_receive(index: u16, bytes: &[u8]) -> Request {
        let text = lines(&ReceiveWqe(bytes).to_string());
        Request { index, opcode: "receive".into(), length: list(bytes), text }
    }

    /// In a few words.
    pub fn brief(&self) -> String {
        match self.length {
            Some(length) => format!("{}, {length} bytes", self.opcode),
            None => self.opcode.clone(),
        }
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).collect()
}

impl Outstanding {
    pub fn sent(&mut self, card: u8, qp: u32, request: Request) {
        remember(self.sends.entry((card, qp)).or_default(), request);
    }

    pub fn received(&mut self, card: u8, qp: u32, queue: Queue, request: Request) {
        remember(self.receives.entry(place(card, qp, queue)).or_default(), request);
    }

    /// A completion of a send queue: it ends what was posted before as well.
    pub fn complete_send(&mut self, card: u8, qp: u32, index: u16) -> Option<Completed> {
        let requests = self.sends.get_mut(&(card, qp))?;
        let before = requests.iter().position(|request| request.index == index)?;
        requests.drain(..before);
        requests.pop_front().map(|request| Completed { request, before })
    }

    /// A completion of a receive queue: requests of a shared one end in any order.
    pub fn complete_receive(
        &mut self,
        card: u8,
        qp: u32,
        queue: Queue,
        index: u16,
    ) -> Option<Completed> {
        let requests = self.receives.get_mut(&place(card, qp, queue))?;
        let at = requests.iter().position(|request| request.index == index)?;
        requests.remove(at).map(|request| Completed { request, before: 0 })
    }
}

fn place(card: u8, qp: u32, queue: Queue) -> (u8, bool, u32) {
    match queue {
        Queue::Own => (card, false, qp),
        Queue::Shared(number) => (card, true, number),
    }
}

fn remember(requests: &mut VecDeque<Request>, request: Request) {
    if requests.len() == MOST {
        requests.pop_front();
    }
    requests.push_back(request);
}

/// Bytes that a message carries: of its data segments, behind those that address it. Only of
/// operations that consist of nothing else.
fn length(opcode: &str, service: Service, bytes: &[u8]) -> Option<u64> {
    let addressed = match service {
        Service::Rc | Service::Uc => SEGMENT,
        Service::Ud => SEGMENT + ADDRESS_VECTOR,
        Service::Xrc => 2 * SEGMENT,
        // Their address comes in two lengths, or with a header of any.
        Service::Dc | Service::Ethernet => return None,
    };
    let operation = match opcode {
        "SEND" | "SEND_IMM" | "SEND_INVAL" => 0,
        "RDMA_WRITE" | "RDMA_WRITE_IMM" | "RDMA_READ" => SEGMENT,
        "ATOMIC_CS" | "ATOMIC_FA" => 2 * SEGMENT,
        _ => return None,
    };
    list(bytes.get(addressed + operation..)?)
}

/// Bytes of a list of data segments.
fn list(mut rest: &[u8]) -> Option<u64> {
    const INLINE: u32 = 1 << 31;
    /// The key that ends a list of receives before its WQE does.
    const END: [u8; 4] = 0x100u32.to_be_bytes();
    let mut sum = 0;
    while let Some((segment, after)) = rest.split_first_chunk::<SEGMENT>() {
        let count = u32::from_be_bytes([segment[0], segment[1], segment[2], segment[3]]);
        if count & INLINE != 0 {
            let length = (count & !INLINE) as usize;
            sum += length as u64;
            rest = rest.get((4 + length).next_multiple_of(SEGMENT)..).unwrap_or_default();
            continue;
        }
        if segment[4..8] == END {
            break;
        }
        sum += if count == 0 { 1 << 31 } else { u64::from(count) };
        rest = after;
    }
    Some(sum)
}
