//! The first failure of a queue pair, explained.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use mlx5::diag::explain::causes::{
    Check, Fabric, Facts, Grounds, LikelyCause, Operations, Symptom, check, rank,
};
use mlx5::diag::explain::timeout::dead_peer_after;
use mlx5::diag::explain::{ExplainedCode, Status};
use mlx5_monitor::cell::{self, Cell, Request, Side};
use mlx5_monitor::clock::Rate;
use serde_json::{Value, json};

/// Causes that are printed.
const CAUSES: usize = 3;

/// A failure, in the words of the driver.
#[derive(Debug)]
pub(super) struct Failure {
    queue: String,
    status: Status,
    vendor: u32,
    request: String,
    peer: Option<String>,
    causes: Vec<LikelyCause>,
    check: Option<&'static Check>,
    known: Option<String>,
    seen: Option<String>,
    silent: String,
    outstanding: u32,
    notices: Option<String>,
}

/// Names of requests, by `enum ibv_wr_opcode`.
const NAMES: [&str; 12] = [
    "RDMA_WRITE",
    "RDMA_WRITE_IMM",
    "SEND",
    "SEND_IMM",
    "RDMA_READ",
    "ATOMIC_CS",
    "ATOMIC_FA",
    "LOCAL_INVAL",
    "BIND_MW",
    "SEND_INVAL",
    "TSO",
    "DRIVER1",
];

fn name(request: &Request) -> String {
    let opcode = request.opcode;
    let known = usize::try_from(opcode).ok().and_then(|index| NAMES.get(index));
    known.map_or_else(|| format!("operation {opcode}"), |name| (*name).to_owned())
}

impl Failure {
    /// Explains a failure of a cell's queue pair.
    pub fn new(cell: &Cell, of: &cell::Failure, rate: Rate) -> Failure {
        let status = Status::from_wc_status(of.status).unwrap_or(Status::General(0));
        let fabric = if cell.is_ethernet() { Fabric::Roce } else { Fabric::InfiniBand };
        let vendor = u8::try_from(of.vendor).ok().filter(|vendor| *vendor != 0);
        let facts = Facts {
            vendor,
            operations: operations(of),
            fabric: Some(fabric),
            ..Facts::of(Symptom::Status(status))
        };
        Failure {
            queue: format!(
                "queue pair {:#x} of {} (process {}) on {}",
                cell.number(),
                cell.program(),
                cell.process(),
                cell.device()
            ),
            status,
            vendor: of.vendor,
            request: request(cell, of, rate),
            peer: peer(cell, of),
            causes: rank(&facts).into_iter().take(CAUSES).collect(),
            check: check(facts.symptom),
            known: vendor
                .map(|code| ExplainedCode::vendor_syndrome(Some(status), code.into()).meaning),
            seen: seen(cell, of, status, rate),
            silent: silent(of, rate),
            outstanding: of.outstanding,
            notices: notices(cell, fabric),
        }
    }

    /// Returns the failure as JSON.
    pub fn json(&self) -> Value {
        json!({
            "queue": self.queue,
            "status": self.status.name(),
            "vendor_syndrome": self.vendor,
            "request": self.request,
            "peer": self.peer,
            "causes": self.causes.iter().map(cause).collect::<Vec<_>>(),
            "seen": self.seen,
            "check": self.check.map(|check| check.text),
            "last_acknowledge": self.silent,
            "outstanding": self.outstanding,
            "notices_a_dead_peer": self.notices,
        })
    }
}

/// A cause as JSON.
fn cause(of: &LikelyCause) -> Value {
    json!({ "cause": of.cause, "cure": of.cure, "grounds": of.grounds.name() })
}

/// The kinds of request that a failure concerns.
fn operations(of: &cell::Failure) -> Operations {
    match (of.side, &of.request) {
        (Side::Receive, _) => Operations::RECEIVE,
        (Side::Send, Some(request)) => match name(request).as_str() {
            "LOCAL_INVAL" | "BIND_MW" => Operations::KEY,
            name => Operations::named(name),
        },
        _ => Operations::ALL,
    }
}

/// What the record of the queue pair says about the cause.
fn seen(cell: &Cell, of: &cell::Failure, status: Status, rate: Rate) -> Option<String> {
    if status == Status::Flushed {
        return Some(
            "no request of this queue pair failed before, and the program did not move it to ERROR: it \
             failed as responder. Its asynchronous event says why, and so does the peer's completion"
                .to_owned(),
        );
    }
    let request = of.request.filter(|_| of.side == Side::Send)?;
    if operations(of) == Operations::ATOMIC && request.remote % 8 != 0 {
        return Some("the remote address is not a multiple of 8, as atomics need".to_owned());
    }
    match status {
        Status::RemoteAccess => Some(history(cell, of, &request, "rkey", |of| of.rkey, rate)),
        Status::LocalProtection => Some(history(cell, of, &request, "lkey", |of| of.lkey, rate)),
        _ => None,
    }
}

/// What earlier requests of the queue pair say about a key.
fn history(
    cell: &Cell,
    of: &cell::Failure,
    request: &Request,
    name: &str,
    key: fn(&Request) -> u32,
    rate: Rate,
) -> String {
    let mut earlier = cell.sends.last(u64::MAX);
    earlier.retain(|each| each.posted < request.posted && each.completed >= each.posted);
    let same = earlier.iter().rev().find(|each| key(each) == key(request));
    match (same, earlier.last()) {
        (Some(same), _) => {
            let age = span(rate.time(of.at.saturating_sub(same.completed)));
            let also = if same.opcode == request.opcode { " and operation" } else { "" };
            format!(
                "a request with this {name}{also} succeeded {age} before, with {} bytes",
                same.length
            )
        }
        (None, Some(other)) => {
            format!(
                "none with this {name} succeeded before, but one with {name} {:#x} did",
                key(other)
            )
        }
        (None, None) => "no request of this queue pair succeeded before".to_owned(),
    }
}

/// Whether requests of a queue pair carry their destination (`IBV_QPT_UD`).
fn is_datagram(cell: &Cell) -> bool {
    cell.transport() == 4
}

fn request(cell: &Cell, of: &cell::Failure, rate: Rate) -> String {
    let Some(request) = of.request else {
        return format!("wr_id {:#x}, which is of a shared receive queue or not kept", of.wr_id);
    };
    let (address, length, lkey) = (request.address, request.length, request.lkey);
    let mut text = match of.side {
        Side::Receive => format!("receive {:#x}", request.wr_id),
        _ => format!("{} {:#x}", name(&request), request.wr_id),
    };
    text += &match request.pieces {
        0 => " without memory".to_owned(),
        1 => format!(" with {length} bytes at {address:#x}, lkey {lkey:#x}"),
        pieces => format!(
            " with {pieces} pieces of memory, the first with {length} bytes at {address:#x}, lkey {lkey:#x}"
        ),
    };
    let names_remote = of.side == Side::Send && matches!(request.opcode, 0 | 1 | 4 | 5 | 6);
    if names_remote {
        text += &format!(", remote address {:#x}, rkey {:#x}", request.remote, request.rkey);
    }
    if is_datagram(cell) && of.side == Side::Send {
        text += &format!(", Q_Key {:#x}", request.qkey);
    }
    let age = rate.time(of.at.saturating_sub(request.posted));
    text += &format!(", posted {} before", span(age));
    text
}

fn peer(cell: &Cell, of: &cell::Failure) -> Option<String> {
    if is_datagram(cell) {
        let request = of.request.filter(|_| of.side == Side::Send)?;
        return Some(format!("queue pair {:#x}", request.rkey));
    }
    let number = cell.remote_number()?;
    Some(match cell.remote_gid().map(Ipv6Addr::from) {
        Some(gid) if cell.is_ethernet() => match gid.to_ipv4_mapped() {
            Some(address) => format!("queue pair {number:#x} at {address}"),
            None => format!("queue pair {number:#x} at {gid}"),
        },
        Some(gid) => format!("queue pair {number:#x} at LID {}, GID {gid}", cell.remote_lid()),
        None => format!("queue pair {number:#x} at LID {}", cell.remote_lid()),
    })
}

fn silent(of: &cell::Failure, rate: Rate) -> String {
    match of.last_success {
        0 => "no request was acknowledged before".to_owned(),
        last => format!("{} before", span(rate.time(of.at.saturating_sub(last)))),
    }
}

/// When the device notices that the peer of a connection is gone.
fn notices(cell: &Cell, fabric: Fabric) -> Option<String> {
    // IBV_QPT_RC, IBV_QPT_XRC_SEND.
    if !matches!(cell.transport(), 2 | 9) {
        return None;
    }
    let (timeout, retry_cnt) = cell.timeout();
    let settings = format!("timeout {timeout}, retry_cnt {retry_cnt}");
    let receives = match cell.rnr_retry() {
        7 => "never (rnr_retry 7)".to_owned(),
        retries => format!("after the retries of rnr_retry {retries}"),
    };
    let peer = match dead_peer_after(timeout, retry_cnt, fabric) {
        Some(time) => format!("after {}", span(time)),
        None => "never".to_owned(),
    };
    Some(format!("a dead peer {peer} ({settings}), a missing receive {receives}"))
}

/// Returns a time with its unit.
fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds < 1e-3 => format!("{:.1} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, number) = (self.status.name(), self.status.wc_status());
        writeln!(
            f,
            "mlx5: {} failed: {status} ({number}), vendor syndrome {:#x}",
            self.queue, self.vendor
        )?;
        let lines = [
            ("request", Some(self.request.as_str())),
            ("peer", self.peer.as_deref()),
            ("code", self.known.as_deref()),
            ("seen", self.seen.as_deref()),
        ];
        for (label, text) in lines {
            if let Some(text) = text {
                writeln!(f, "  {label}: {text}")?;
            }
        }
        for (at, LikelyCause { cause, cure, grounds, .. }) in self.causes.iter().enumerate() {
            let label = match (at, grounds) {
                (_, Grounds::None) if at == 0 => "likeliest cause",
                (0, _) => "cause",
                _ => "or",
            };
            writeln!(f, "  {label}: {cause}; {cure}")?;
        }
        if let Some(check) = self.check {
            writeln!(f, "  first check: {}", check.text)?;
        }
        writeln!(f, "  last acknowledge: {}", self.silent)?;
        writeln!(f, "  outstanding: {}", self.outstanding)?;
        match &self.notices {
            Some(notices) => writeln!(f, "  the device notices {notices}"),
            None => Ok(()),
        }
    }
}
