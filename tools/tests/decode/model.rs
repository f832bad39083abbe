//! The model's errors, as libmlx5 reports them. The CQE's text by libmlx5 is decoded, and must
//! agree with the result of its own `ibv_poll_cq`.
//!
//! libmlx5 writes to the file that `MLX5_DEBUG_FILE` names when a device is opened. So each error
//! is provoked in a process of its own: this program, started again.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Instant;

use mlx5::diag::decode::{self, DecodedRecord, Options, RecordKind};
use mlx5::diag::text::Addressing;
use mlx5::ib::{Access, Rc, Transport, Uc};
use mlx5::verbs::attr::RtsAttributes;
use mlx5::verbs::{CompletionQueue, QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::{ibv_wc, ibv_wc_status, ibv_wr_opcode};

use ::rig::verbs::{QpMemory, Request, poll, post_receive, post_send};
use ::rig::{PATIENCE, Rig, all_rights};

/// Says to the process that it is the one to provoke an error, and which.
const CHILD: &str = "MLX5_DECODE_PROVOKES";

/// Errors of requests that libmlx5 dumps, by name, with the status that each side sees: of the requester,
/// and of the responder's receive.
const ERRORS: &[(&str, ibv_wc_status::Type, Option<ibv_wc_status::Type>)] = &[
    ("wrong lkey of a send", ibv_wc_status::IBV_WC_LOC_PROT_ERR, None),
    ("local memory beyond its region", ibv_wc_status::IBV_WC_LOC_PROT_ERR, None),
    ("wrong rkey of a write", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, None),
    ("wrong rkey of a read", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, None),
    ("wrong rkey of an atomic", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, None),
    ("remote memory beyond its region", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, None),
    ("region without remote write", ibv_wc_status::IBV_WC_REM_ACCESS_ERR, None),
    (
        "receive shorter than the message",
        ibv_wc_status::IBV_WC_REM_INV_REQ_ERR,
        Some(ibv_wc_status::IBV_WC_LOC_LEN_ERR),
    ),
    (
        "wrong lkey of a receive",
        ibv_wc_status::IBV_WC_REM_OP_ERR,
        Some(ibv_wc_status::IBV_WC_LOC_PROT_ERR),
    ),
    ("message longer than the transport carries", ibv_wc_status::IBV_WC_LOC_LEN_ERR, None),
    ("no receive", ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR, None),
    ("invalidation of a key that there is not", ibv_wc_status::IBV_WC_MW_BIND_ERR, None),
    ("operation that the transport does not have", ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, None),
];

#[test]
fn what_libmlx5_prints_of_every_error_is_what_it_says_of_it() {
    if let Ok(name) = std::env::var(CHILD) {
        provoke(&name);
        return;
    }
    let file = std::env::temp_dir().join(format!("mlx5-decode-dump-{}", std::process::id()));
    for (name, requester, responder) in ERRORS {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "model::what_libmlx5_prints_of_every_error_is_what_it_says_of_it",
                "--nocapture",
            ])
            .env(CHILD, name)
            .env("MLX5_MODEL", "always")
            .env("MLX5_DEBUG_FILE", &file)
            .output()
            .expect("it starts");
        let out = String::from_utf8_lossy(&child.stdout);
        let log = fs::read_to_string(&file).unwrap_or_default();
        fs::remove_file(&file).ok();
        let log = log + &String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{name}\n{out}\n{log}");
        let said: Vec<Wc> = out.lines().filter_map(Wc::parse).collect();
        let expected: Vec<_> = [Some(*requester), *responder].into_iter().flatten().collect();
        let statuses: Vec<_> = said.iter().map(|wc| wc.status).collect();
        assert_eq!(statuses, expected, "{name}\n{out}");

        let options = Options { addressing: Some(Addressing::Connected), ..Options::default() };
        let records = decode::text(&log, options);
        let dumped: Vec<&DecodedRecord> = records
            .iter()
            .filter(|record| record.kind == RecordKind::Cqe && record.format == "libmlx5")
            .collect();
        assert_eq!(dumped.len(), said.len(), "{name}: {:?}", records);
        for (record, wc) in dumped.iter().zip(&said) {
            assert_eq!(record.value("QP"), Some(&*format!("{:#x}", wc.qpn)), "{name}");
            assert_eq!(
                record.value("vendor code"),
                Some(&*format!("{:#04x}", wc.vendor)),
                "{name}"
            );
            let status = mlx5::cqe::Status::from_wc_status(wc.status).expect("an error");
            assert_eq!(record.value("status"), Some(status.name()), "{name}");
            assert!(!record.findings[0].causes.is_empty(), "{name}");
        }
        // The ring's memory is behind it, as DPDK prints one: the WQE that failed is found there.
        let failed = dumped[0].wqe.unwrap_or_else(|| panic!("{name}: no WQE in {:?}", records));
        let wqe = &records[failed - 1];
        assert_eq!((wqe.kind, wqe.value("QP")), (RecordKind::Wqe, dumped[0].value("QP")), "{name}");
        let operation = dumped[0].value("operation").expect("an operation");
        assert!(wqe.title.starts_with(operation), "{name}: {} of {operation}", wqe.title);
        for part in out.lines().filter_map(|line| line.strip_prefix("segment ")) {
            assert!(wqe.text.iter().any(|line| line == part), "{name}: {part} in {:?}", wqe.text);
        }
    }
}

/// The result of `ibv_poll_cq`.
struct Wc {
    status: ibv_wc_status::Type,
    vendor: u32,
    qpn: u32,
}

impl Wc {
    fn parse(line: &str) -> Option<Wc> {
        let numbers: Vec<u32> = line
            .strip_prefix("wc ")?
            .split(' ')
            .map(|number| number.parse().expect("a number"))
            .collect();
        Some(Wc { status: numbers[0], vendor: numbers[1], qpn: numbers[2] })
    }
}

fn say(wc: &ibv_wc) {
    println!("wc {} {} {}", wc.status, wc.vendor_err, wc.qp_num);
}

/// Polls until there is a completion.
fn next(cq: &CompletionQueue) -> ibv_wc {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // SAFETY: no other code polls it.
        if let Some(wc) = unsafe { poll(cq.as_raw()) }.expect("it can be polled") {
            return wc;
        }
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

/// Provokes an error by libmlx5's own data path; prints what verbs say of it, and the ring.
fn provoke(name: &str) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let memory = rig.memory(4096);
    // Some requests name more than the region has.
    let sge = |length| Sge { length, ..memory.sge(0, 64).unwrap() };
    let remote = (memory.address() + 2048, memory.rkey());
    if name == "operation that the transport does not have" {
        let cqs = [rig.cq(64), rig.cq(64)];
        let [one, other] =
            [&cqs[0], &cqs[1]].map(|cq| rig.init(QueuePairBuilder::<Uc>::new(&rig.pd, cq)));
        let (one, _other) = rig.connect(one, other);
        // Where other READs say what is read libmlx5 writes the memory to read to.
        let read = Request::signaled(1, ibv_wr_opcode::IBV_WR_RDMA_READ, &[sge(64)]);
        return fails(&one, &cqs, read, false);
    }
    let rts = RtsAttributes { rnr_retry: 1, max_rd_atomic: 4, ..RtsAttributes::default() };
    let cqs = [rig.cq(64), rig.cq(64)];
    let [one, other] = [&cqs[0], &cqs[1]]
        .map(|cq| rig.init(QueuePair::<Rc, _>::builder(&rig.pd, cq).max_send_sge(3)));
    let (one, other) = rig.connect_with(one, other, rts);
    let receive = |sge: Sge| {
        // SAFETY: the queue pair is alive, and the memory stays so.
        unsafe { post_receive(other.as_raw(), 9, &[sge]) }.expect("room for one");
    };
    let mut bad_key = sge(64);
    bad_key.lkey ^= 0x5500;
    let request =
        |opcode, list: &[Sge], remote| Request { remote, ..Request::signaled(1, opcode, list) };
    let mut both = false;
    use ibv_wr_opcode as op;
    let request = match name {
        "wrong lkey of a send" => request(op::IBV_WR_SEND, &[bad_key], remote),
        "local memory beyond its region" => request(op::IBV_WR_RDMA_WRITE, &[sge(1 << 20)], remote),
        "wrong rkey of a write" => {
            request(op::IBV_WR_RDMA_WRITE, &[sge(64)], (remote.0, remote.1 ^ 0x5500))
        }
        "wrong rkey of a read" => {
            request(op::IBV_WR_RDMA_READ, &[sge(64)], (remote.0, remote.1 ^ 0x5500))
        }
        "wrong rkey of an atomic" => {
            request(op::IBV_WR_ATOMIC_FETCH_AND_ADD, &[sge(8)], (remote.0, remote.1 ^ 0x5500))
        }
        "remote memory beyond its region" => {
            request(op::IBV_WR_RDMA_WRITE, &[sge(64)], (remote.0 + (1 << 20), remote.1))
        }
        "region without remote write" => {
            let only = rig.pd.allocate(4096, all_rights() - Access::REMOTE_WRITE).expect("memory");
            let request = request(op::IBV_WR_RDMA_WRITE, &[sge(64)], (only.address(), only.rkey()));
            return fails(&one, &cqs, request, false);
        }
        "receive shorter than the message" => {
            receive(sge(63));
            both = true;
            request(op::IBV_WR_SEND, &[sge(64)], remote)
        }
        "wrong lkey of a receive" => {
            receive(bad_key);
            both = true;
            request(op::IBV_WR_SEND, &[sge(64)], remote)
        }
        "message longer than the transport carries" => {
            receive(sge(64));
            request(op::IBV_WR_SEND, &[sge(1 << 30); 3], remote)
        }
        "no receive" => request(op::IBV_WR_SEND, &[sge(64)], remote),
        "invalidation of a key that there is not" => {
            let key = (memory.rkey() ^ 0x5500).swap_bytes();
            Request { imm: key, ..request(op::IBV_WR_LOCAL_INV, &[], remote) }
        }
        other => panic!("{other} is no error"),
    };
    for sge in &request.list {
        println!("segment data: {:#x}, {} bytes, lkey {:#x}", sge.addr, sge.length, sge.lkey);
    }
    fails(&one, &cqs, request, both);
}

/// Posts what will fail, and tells of it.
fn fails<T: Transport>(
    qp: &QueuePair<T, Rts>,
    cqs: &[CompletionQueue; 2],
    request: Request,
    both: bool,
) {
    // SAFETY: the queue pair is alive, as long as the memory is looked at.
    let memory = unsafe { QpMemory::new(qp.as_raw()) };
    // SAFETY: the queue pair and the memory it names live as long as the process.
    unsafe { post_send(qp.as_raw(), std::slice::from_ref(&request)) }.expect("room for one");
    say(&next(&cqs[0]));
    if both {
        say(&next(&cqs[1]));
    }
    let length = (memory.dv.sq.wqe_cnt * memory.dv.sq.stride) as usize;
    // SAFETY: the ring is as long, and no code writes it: the request has failed.
    let ring = unsafe { std::slice::from_raw_parts(memory.dv.sq.buf.cast::<u8>(), length) };
    let mut dump = format!("MLX5 Error SQ: at [0x1], len={}\n", ring.len());
    for (row, bytes) in ring.chunks(16).enumerate() {
        write!(dump, "{:08X}:", row * 16).expect("memory");
        for byte in bytes {
            write!(dump, " {byte:02X}").expect("memory");
        }
        dump.push_str(" | ................\n");
    }
    eprint!("{dump}");
}
