//! Random input: no input panics, and none takes long.

use std::time::Duration;

use mlx5_diag::decode::{self, BytesKind, DecodedRecord, Options, WordOrder};

use crate::dumps;
use crate::rng::Random;

/// Most processor time for one input.
const LONGEST: Duration = Duration::from_secs(5);

/// Processor time of this thread, which other programs on the machine do not lengthen.
struct Spent(Duration);

impl Spent {
    fn now() -> Spent {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is valid for writes.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        assert_eq!(result, 0);
        Spent(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn elapsed(&self) -> Duration {
        Spent::now().0 - self.0
    }
}

/// Checks that records name lines of the input in order, and other records that exist.
fn check(records: &[DecodedRecord], lines: Option<usize>) {
    let mut after = 0;
    for record in records {
        assert!(!record.title.is_empty() && record.times > 0, "{record:?}");
        assert!(record.wqe.is_none_or(|wqe| (1..=records.len()).contains(&wqe)), "{record:?}");
        assert_eq!(record.lines.is_some(), lines.is_some(), "{record:?}");
        let Some(((first, last), lines)) = record.lines.zip(lines) else { continue };
        assert!(after <= first && first <= last && last <= lines, "{record:?} of {lines} lines");
        after = first;
    }
}

fn decode(input: &[u8], options: Options) {
    let start = Spent::now();
    let text = String::from_utf8_lossy(input);
    check(&decode::text(&text, options), Some(text.lines().count()));
    assert!(start.elapsed() < LONGEST, "{:?} for {} bytes", start.elapsed(), input.len());
}

/// The number of cases: `all`, or in proportion as `MLX5_SEEDS` is below or above 1,000.
fn cases(all: u32) -> u32 {
    let seeds = std::env::var("MLX5_SEEDS").map_or(1_000, |seeds| seeds.parse().expect("a number"));
    (u64::from(all) * seeds / 1_000) as u32
}

/// Pieces that formats look for.
const PIECES: &[&str] = &[
    "got completion with error:",
    "dump error cqe",
    "WC error: ",
    "cqe_dump: ",
    "Error cqe on cqn 0x",
    ", ci 0x",
    "qn 0x",
    "syndrome 0x",
    "vendor syndrome 0x",
    "WQE DUMP: WQ size ",
    ", len: ",
    "WQE index ",
    "CREATE_QP(0x500) op_mod(0x0) failed, status ",
    "(0x3), syndrome (0x",
    "), err(-22)",
    "op_mod(",
    "dump command data CREATE_QP(0x500) INPUT",
    "OUTPUT",
    "assert_var[0] 0x",
    "synd 0x",
    "print_health_info",
    "MLX5 Error CQ: at [0x1], len=",
    "MLX5 Error SQ: at [0x1], len=",
    "Unexpected CQE error syndrome 0x",
    "SQN = ",
    "(synd 0x4 vend 0x51 hw_synd 0/",
    "RC QP 0x1 wqe[",
    "]: SEND s-- [va 0x",
    " len ",
    "lkey 0x",
    "Failed status ",
    " syndrom 0x",
    "Got completion from peer ",
    " with status=",
    " vendor err ",
    "\n",
    " ",
    "00000000 00008813 10012abe 0dd0c1d3",
    "00000030: ",
    "00 ",
    "ff ",
    "00000000: ",
    "deadbeef ",
    "0x",
    ":",
    "IBV_WC_RETRY_EXC_ERR",
    "vendor_err ",
    "mlx5dv_devx_obj_create(QP) failed, syndrome ",
    "18446744073709551615",
    "ffffffffffffffff",
    "error cqe on cqn ",
    "mlx5_core 0000:03:00.0: wait_func:1104:(pid 42): ",
    "infiniband mlx5_0: ",
    "mlx5_core 0000:03:00.0 eth2: ",
    "failed to create EQ ",
    "timed out while waiting for a slot",
    ", err=-22",
    "(pid ",
    "link mlx5_0/1 out_of_sequence 3 ",
    "ports/1/hw_counters/out_of_buffer:",
    "rx_prio3_pause: 5\n",
    "State : Polling\nPhysical state : x\n",
    "reporter fw\nstate error error 1 ",
    "0: mlx5_0: pd 2 cq 3 qp 1 ctx 4027",
    "RRoCE AETH Syndrome: 98, Negative Acknowledge",
    "err 5 prov_errno 10",
    "DevX create failed errno=",
    "> ",
    "\u{1b}[31m",
    "\u{d7}",
    "é",
];

#[test]
fn random_inputs_are_read_without_a_panic() {
    let mut random = Random::new();
    for round in 0..cases(100_000) {
        let mut input = Vec::new();
        for _ in 0..random.below(24) {
            match random.below(4) {
                0 => input.extend((0..random.below(16)).map(|_| random.next() as u8)),
                1 => input.extend(format!("{:08x} ", random.next() as u32).bytes()),
                _ => {
                    let piece = PIECES[random.below(PIECES.len() as u32) as usize];
                    input.extend(piece.bytes());
                }
            }
        }
        let words = if round % 8 == 0 { WordOrder::LittleEndian } else { WordOrder::BigEndian };
        let options = Options { words, ..Options::default() };
        decode(&input, options);
    }
}

#[test]
fn real_dumps_with_damage_are_read_without_a_panic() {
    let mut random = Random::new();
    let dumps: Vec<String> = dumps::names().iter().map(|name| dumps::dump(name)).collect();
    for _ in 0..cases(4_000) {
        let dump = &dumps[random.below(dumps.len() as u32) as usize];
        decode(&dumps::damaged(dump, |limit| random.below(limit)), Options::default());
    }
}

#[test]
fn random_bytes_of_every_kind_are_shown_without_a_panic() {
    let mut random = Random::new();
    let kinds = [
        "wqe",
        "recv-wqe",
        "cqe",
        "eqe",
        "qp-dbr",
        "cq-dbr",
        "command",
        "reply",
        "reply:0x500",
        "qpc",
        "cqc",
        "mkc",
        "srqc",
        "create_qp_in",
        "query_hca_cap_out",
    ];
    for _ in 0..cases(2_000) {
        for name in kinds {
            let kind: BytesKind = name.parse().expect(name);
            let mut bytes: Vec<u8> =
                (0..random.below(5) * 64 + random.below(3)).map(|_| random.next() as u8).collect();
            // Half of the commands have opcodes that there are.
            if name == "command" && bytes.len() > 2 && random.below(2) == 0 {
                bytes[0] = 5;
                bytes[1] %= 0x20;
            }
            if let Ok(records) = decode::bytes(&bytes, kind, Options::default()) {
                check(&records, None);
            }
        }
    }
}

/// Bytes of a long input. What takes time by its square takes minutes for it.
const LONG: usize = 400_000;

/// Input that would take quadratic time if a format read further than it consumes.
#[test]
fn long_inputs_take_time_by_their_length() {
    for line in [
        "00000000 00008813 10012abe 0dd0c1d4\n",
        "00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n",
        "mlx5: got completion with error:\n",
        "Error cqe on cqn 0x1, syndrome 0x4, vendor syndrome 0x32\n",
        "print_health_info: assert_var[0] 0x1\n",
        "MLX5 Error SQ: at [0x1], len=4194304\n",
        "Failed status 5: wr_id 0 syndrom 0xf9\n",
        "op_mod(0x0) failed, status\n",
        "dump command A(0x500) INPUT\n00000000: 00 01 02\n",
        "dump command A(0x500) neither\n00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n",
        "mlx5_ib: Unknown symbol a (err -2)\n",
        "Call Trace:\n",
        "Call Trace:\n a+0x1/0x2\n",
        "RIP: 0010:a+0x1/0x2\n",
        "WARNING: CPU: 1 Comm: a\n",
        "hca_id: mlx5_0\n",
        "state: Down\nhca_id: a\n",
        "Port 1:\nlink_layer: InfiniBand\n",
        "mlx5_0 port 1 ==> x (Down)\n",
        "GUID 1 port 1: [LinkDownedCounter == 25]\n",
        "x\n",
    ] {
        let input = line.repeat(LONG / line.len());
        let start = Spent::now();
        let records = decode::text(&input, Options::default());
        assert!(start.elapsed() < LONGEST, "{:?} for {line}", start.elapsed());
        check(&records, Some(LONG / line.len() * line.lines().count()));
    }
    // Completions and WQEs that are all different.
    let mut input = String::new();
    for at in 0..3_000 {
        input += &format!(
            "a on mlx5_0:1/IB (synd 0x13 vend 0x88 hw_synd 0/0)\nRC QP {at:#x} wqe[{at}]: SEND s--\n"
        );
    }
    let start = Spent::now();
    let records = decode::text(&input, Options::default());
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
    assert_eq!(records.len(), 6_000);
    for at in (0..6_000).step_by(2) {
        assert_eq!(records[at].wqe, Some(at + 2));
    }
}
