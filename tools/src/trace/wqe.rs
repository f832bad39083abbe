//! Send WQEs that were fetched and not yet completed, so that a completion can name its request.

use std::collections::{HashMap, VecDeque};

use mlx5::diag::text::{Addressing, ReceiveWqe, SendWqe};
use mlx5_model::object::Service;
use mlx5_model::trace::Queue;

/// Bytes of a segment, and of an address vector.
const SEGMENT: usize = 16;
const ADDRESS_VECTOR: usize = 48;
/// Most requests remembered per queue: the range of 16-bit counters.
const MOST: usize = 1 << 16;

/// A request, with the data that a completion's line shows.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub index: u16,
    /// Its opcode's name.
    pub opcode: String,
    /// Bytes of the message, where the WQE states them.
    pub length: Option<u64>,
    /// The full text: one line per segment.
    pub text: Vec<String>,
}

/// The requests of all queues.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    sends: HashMap<(u8, u32), VecDeque<Request>>,
    receives: HashMap<(u8, bool, u32), VecDeque<Request>>,
}

/// The effect of a completion: the request it names, and the number of requests completed before
/// it.
pub(super) struct Completed {
    pub request: Request,
    pub before: usize,
}

impl Request {
    /// Creates the request of a send WQE.
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

    /// Creates the request of a receive WQE.
    pub fn of_receive(index: u16, bytes: &[u8]) -> Request {
        let text = lines(&ReceiveWqe(bytes).to_string());
        Request { index, opcode: "receive".into(), length: list(bytes), text }
    }

    /// Returns a short text.
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

    /// Completes a request of a send queue, and all requests posted before it.
    pub fn complete_send(&mut self, card: u8, qp: u32, index: u16) -> Option<Completed> {
        let requests = self.sends.get_mut(&(card, qp))?;
        let before = requests.iter().position(|request| request.index == index)?;
        requests.drain(..before);
        requests.pop_front().map(|request| Completed { request, before })
    }

    /// Completes a request of a receive queue. Requests of a shared queue complete in any order.
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

/// Returns the payload bytes of a message: those of its data segments, after the address segments.
/// `None` for operations with other segments.
fn length(opcode: &str, service: Service, bytes: &[u8]) -> Option<u64> {
    let addressed = match service {
        Service::Rc | Service::Uc => SEGMENT,
        Service::Ud => SEGMENT + ADDRESS_VECTOR,
        Service::Xrc => 2 * SEGMENT,
        // Their address segment has two lengths, or is followed by a header of any length.
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

/// Returns the bytes of a list of data segments.
fn list(mut rest: &[u8]) -> Option<u64> {
    const INLINE: u32 = 1 << 31;
    /// The key that ends a receive's list before the end of its WQE.
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
