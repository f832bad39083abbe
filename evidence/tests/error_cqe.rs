//! Error CQEs on the model: the codes of each cause, their order, and the bytes that other people's
//! devices have written.

use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mlx5::cqe::{Completion, Failure, QueueKind, Status};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveQueue, SendQueue};
use mlx5::verbs::attr::{AckTimeout, RnrTimer, RtsAttributes};
use mlx5::verbs::{CompletionQueue, Failed, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{PostOn, RdmaRead, RdmaWrite, Remote, SendMessage, Sge};
use mlx5_evidence::{Comparison, Row, Table};
use rig::verbs::CqMemory;
use rig::{Rig, Side, all_rights, wait};

const LENGTH: usize = 8192;

/// What is different in a pair of queue pairs.
struct Setup {
    /// The rights of the responder's queue pair and region.
    rights: Access,
    rts: RtsAttributes,
}

impl Default for Setup {
    fn default() -> Self {
        let rts = RtsAttributes { max_rd_atomic: 4, ..RtsAttributes::default() };
        Self { rights: all_rights(), rts }
    }
}

/// A queue pair with queues, memory and a CQ of its own.
struct End {
    memory: MemoryRegion,
    sends: SendQueue<Rc>,
    receives: ReceiveQueue,
    completions: CqReader,
    cqes: CqMemory,
    /// CQEs polled.
    polled: usize,
    qp: Option<QueuePair<Rc, Rts>>,
    _cq: CompletionQueue,
}

/// A requester and a responder that are connected to each other.
fn pair(rig: &Rig, setup: &Setup) -> [End; 2] {
    let pair = rig.pair::<Rc>().entries(127).memory(LENGTH).rights([all_rights(), setup.rights]);
    let pair = pair.qp(|builder| builder.max_send_wr(32).max_recv_wr(8));
    let pair = pair.attributes(|_, rtr, rts| {
        rtr.min_rnr_timer = RnrTimer::at_least(Duration::from_micros(10));
        *rts = RtsAttributes { sq_psn: rts.sq_psn, ..setup.rts };
    });
    pair.sides().map(|side| {
        let Side { memory, send, receive, completions, qp, cq } = side;
        // SAFETY: the CQ is a later field of the same structure, so it lives longer.
        let cqes = unsafe { CqMemory::new(cq.as_raw()) };
        let (sends, receives, qp) = (send, receive, Some(qp));
        End { memory, sends, receives, completions, cqes, polled: 0, qp, _cq: cq }
    })
}

impl End {
    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }

    fn remote(&self, offset: usize) -> Remote {
        // Also of memory that gives peers no right, which the device is to refuse.
        Remote::new(self.memory.remote_address() + offset as u64, self.memory.rkey())
    }

    fn post(&mut self, operation: impl PostOn<Rc>) {
        // SAFETY: the memory is a region's that outlives the queue pair, or such that the device is to
        // refuse it.
        unsafe { self.sends.post(0, operation) }.unwrap();
    }

    /// Takes a completion. Returns it with the bytes of its CQE.
    fn next(&mut self) -> (Completion, [u8; 64]) {
        let done = wait(&mut self.completions, &mut (&mut self.sends, &mut self.receives));
        let entry = self.cqes.entry(self.polled % self.cqes.dv.cqe_cnt as usize);
        self.polled += 1;
        (done, entry.try_into().expect("CQEs of 64 bytes"))
    }

    /// Takes a completion, which is a failure.
    fn failure(&mut self) -> (Failure, [u8; 64]) {
        match self.next() {
            (Completion::Failed(failure), bytes) => (failure, bytes),
            other => panic!("{other:02x?}"),
        }
    }

    /// Moves the queue pair to Error, as a program does.
    fn fail(&mut self) -> QueuePair<Rc, Failed> {
        self.qp.take().unwrap().to_error().map_err(|failed| failed.error).unwrap()
    }

    fn polls_nothing(&mut self) -> bool {
        let queues = &mut (&mut self.sends, &mut self.receives);
        self.completions.poll(queues).unwrap().is_none()
    }
}

/// A page of memory that a device can be kept from, as by an IOMMU.
struct Page(NonNull<u8>);

impl Page {
    const SIZE: usize = 4096;

    fn new() -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(null_mut(), Self::SIZE, rights, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(NonNull::new(page.cast()).unwrap())
    }

    fn take_away(&self) {
        // SAFETY: no reference leads to the page, which stays mapped.
        let result = unsafe { libc::mprotect(self.0.as_ptr().cast(), Self::SIZE, libc::PROT_NONE) };
        assert_eq!(result, 0);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::SIZE) };
    }
}

/// Causes a failure by its name in the table. Returns the CQE that reports it.
fn caused(rig: &Rig, case: &str) -> (Failure, [u8; 64]) {
    let mut setup = Setup::default();
    match case {
        "no_remote_write" => setup.rights = Access::LOCAL_WRITE,
        "rnr" => setup.rts.rnr_retry = 1,
        "silence" => {
            setup.rts.timeout = AckTimeout::at_least(Duration::from_micros(8));
            setup.rts.retry_cnt = 0;
        }
        _ => {}
    }
    let [mut a, mut b] = pair(rig, &setup);
    let (whole, remote) = (a.sge(0, 64), b.remote(0));
    match case {
        "sge_length" => {
            a.post(SendMessage::new(Sge { length: 64, ..a.sge(LENGTH - 63, 63) }).signaled())
        }
        "lkey" => {
            let sge = Sge { lkey: whole.lkey ^ 0x5500, ..whole };
            a.post(SendMessage::new(sge).signaled());
        }
        "no_local_write_read" => {
            let only = rig.pd.allocate(4096, Access::REMOTE_READ).unwrap();
            let sge = only.source(0, 64).unwrap();
            a.post(RdmaRead::new(sge, remote).signaled());
            return a.failure();
        }
        "read_length" => {
            a.post(RdmaRead::new(Sge { length: 64, ..a.sge(LENGTH - 63, 63) }, remote).signaled())
        }
        "own_2err" | "flush_behind" => {
            // Without a receive, the peer asks to wait for ever.
            for _ in 0..4 {
                a.post(SendMessage::new(whole));
            }
            let _qp = a.fail();
            let first = a.failure();
            return if case == "own_2err" { first } else { a.failure() };
        }
        "no_remote_write" => a.post(RdmaWrite::new(whole, remote).signaled()),
        "rkey" | "rkey_read" => {
            let wrong = Remote { rkey: remote.rkey ^ 0x5500, ..remote };
            match case {
                "rkey" => a.post(RdmaWrite::new(whole, wrong).signaled()),
                _ => a.post(RdmaRead::new(whole, wrong).signaled()),
            }
        }
        "bounds" => a.post(RdmaWrite::new(whole, b.remote(LENGTH - 63)).signaled()),
        "rnr" => a.post(SendMessage::new(whole).signaled()),
        "silence" => {
            let _qp = b.fail();
            a.post(RdmaWrite::new(whole, remote).signaled());
            return a.failure();
        }
        "receive_lkey" | "receive_no_local_write" => {
            let only = rig.pd.allocate(4096, Access::REMOTE_READ).unwrap();
            let sge = match case {
                "receive_lkey" => Sge { lkey: whole.lkey ^ 0x5500, ..whole },
                _ => only.source(0, 64).unwrap(),
            };
            // SAFETY: the device refuses the memory.
            unsafe { b.receives.post(0, sge) }.unwrap();
            a.post(SendMessage::new(whole).signaled());
            assert_eq!(a.failure().0.status, Status::RemoteOperation);
            return b.failure();
        }
        "send_unreachable" | "receive_unreachable" => {
            let page = Page::new();
            // SAFETY: the page lives longer than the region, and only devices access it.
            let region = unsafe { rig.pd.register_raw(page.0, Page::SIZE, all_rights()) }.unwrap();
            let sge = region.sge(0, 64).unwrap();
            page.take_away();
            if case == "send_unreachable" {
                a.post(SendMessage::new(sge).signaled());
                return a.failure();
            }
            // SAFETY: the region lives until the receive has failed.
            unsafe { b.receives.post(0, sge) }.unwrap();
            a.post(SendMessage::new(whole).signaled());
            return b.failure();
        }
        "receive_failed" => {
            let sge = Sge { lkey: whole.lkey ^ 0x5500, ..whole };
            // SAFETY: the device refuses the memory.
            unsafe { b.receives.post(0, sge) }.unwrap();
            a.post(SendMessage::new(whole).signaled());
        }
        case => panic!("an unknown case: {case}"),
    }
    a.failure()
}

#[test]
fn each_cause_has_the_codes_of_the_table() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut comparison = Comparison::new(
        "vendor-syndromes",
        &["cause", "syndrome, device", "vendor, device", "syndrome, model", "vendor, model"],
    );
    for row in Table::read("vendor-syndromes").rows() {
        let case = row.text("case");
        let (failure, cqe) = caused(&rig, case);
        let [syndrome, vendor] = ["cqe_syndrome_hex", "vendor_hex"].map(|name| row.hex(name));
        let [syndrome, vendor] = [syndrome, vendor].map(|code| code.unwrap() as u8);
        let hex = |code: u8| format!("{code:#04x}");
        comparison.row(&[&case, &hex(syndrome), &hex(vendor), &hex(cqe[55]), &hex(cqe[54])]);
        assert_eq!((cqe[55], cqe[54]), (syndrome, vendor), "{case}: {failure}");
        // The driver says the same, as ibv_wc_status does.
        assert_eq!(row.number("wc_status"), Some(failure.status.wc_status()), "{case}");
        assert_eq!(failure.vendor_error, vendor, "{case}");
    }
    comparison.write();
}

#[test]
fn hardware_syndromes_tell_keys_from_bounds() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (case, codes) in [
        ("lkey", [0x93, 0, 0x52, 0x04]),
        ("sge_length", [0x9d, 0, 0x53, 0x04]),
        ("read_length", [0x9d, 0, 0x33, 0x04]),
        ("receive_lkey", [0x93, 0, 0x32, 0x04]),
        ("receive_failed", [0, 0, 0x89, 0x14]),
        ("rkey", [0, 0, 0x88, 0x13]),
        ("rnr", [0, 0, 0x87, 0x16]),
        ("silence", [0, 0, 0x81, 0x15]),
        ("no_remote_write", [0, 0, 0x8a, 0x12]),
    ] {
        let (failure, cqe) = caused(&rig, case);
        assert_eq!(cqe[52..56], codes, "{case}: {failure}");
    }
    let (_, cqe) = caused(&rig, "receive_no_local_write");
    assert_eq!(cqe[54..56], [0x33, 0x04]);
}

#[test]
fn after_a_failure_come_its_cause_and_a_flush_for_each_later_request() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for later in [0, 7] {
        let [mut a, b] = pair(&rig, &Setup::default());
        let (sge, right) = (a.sge(0, 64), b.remote(0));
        let wrong = Remote { rkey: right.rkey ^ 0x5500, ..right };
        let all = [right; 8].into_iter().chain([wrong]).chain(vec![right; later]);
        let mut batch = a.sends.batch();
        for (id, remote) in all.enumerate() {
            batch.append(id as u64, RdmaWrite::new(sge, remote)).unwrap();
        }
        // SAFETY: the memory lives to the end.
        unsafe { batch.ring() };
        // None is signaled: those that succeed have no CQE, all others have one, in their order.
        let (cause, _) = a.failure();
        assert_eq!((cause.id, cause.status), (8, Status::RemoteAccess));
        for id in 9..9 + later as u64 {
            let (flushed, _) = a.failure();
            assert_eq!((flushed.id, flushed.status), (id, Status::Flushed));
            assert_eq!(flushed.vendor_error, 0xf9, "not the program's own doing");
        }
        assert!(a.polls_nothing());
    }
}

#[test]
fn only_the_first_flush_of_a_programs_own_error_is_marked() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, _b] = pair(&rig, &Setup::default());
    let sge = a.sge(0, 64);
    for _ in 0..4 {
        a.post(SendMessage::new(sge));
    }
    // SAFETY: the memory lives to the end.
    unsafe { a.receives.post(0, sge) }.unwrap();
    let qp = a.fail();
    let flushes: Vec<_> = (0..5).map(|_| a.failure().0).collect();
    assert!(flushes.iter().all(|flushed| flushed.status == Status::Flushed));
    let codes: Vec<_> =
        flushes.iter().map(|flushed| (flushed.queue, flushed.vendor_error)).collect();
    use QueueKind::{Receive, Send};
    assert_eq!(codes, [(Send, 0xf5), (Send, 0xf9), (Send, 0xf9), (Send, 0xf9), (Receive, 0xf9)]);
    drop(qp);
    // After another failure, nothing that the program does then marks a flush.
    let [mut a, b] = pair(&rig, &Setup::default());
    let wrong = Remote { rkey: 0x55, ..b.remote(0) };
    a.post(RdmaWrite::new(sge, wrong));
    a.post(RdmaWrite::new(sge, wrong));
    assert_eq!(a.failure().0.status, Status::RemoteAccess);
    let _qp = a.fail();
    assert_eq!(a.failure().0.vendor_error, 0xf9);
}

/// The bytes 52 to 63 of a CQE, where those of a failed WQE's queue pair, counter and ring are left
/// out, and of the signature only whether it is 0.
fn masked(bytes: &[u8]) -> [u8; 12] {
    let mut bytes: [u8; 12] = bytes.try_into().expect("12 bytes");
    bytes[5..10].fill(0);
    bytes[10] = u8::from(bytes[10] != 0);
    bytes[11] &= !1;
    bytes
}

/// The bytes 52 to 63 of a dump in the table.
fn dumped(row: Row<'_>) -> [u8; 12] {
    let byte = |column| row.hex(column).unwrap() as u8;
    let mut bytes = [0; 12];
    bytes[0] = byte("b52_hw_syndrome");
    bytes[1] = byte("b53_hw_type");
    bytes[2] = byte("b54_vendor");
    bytes[3] = byte("b55_syndrome");
    bytes[4] = byte("b56_wqe_opcode");
    bytes[10] = byte("b62_signature");
    bytes[11] = byte("b63_opcode_format_owner");
    bytes
}

/// The last words of a dump, bytes 52 to 63.
fn words(row: Row<'_>) -> [u8; 12] {
    let words: Vec<u8> = row
        .text("last_words_hex")
        .split(' ')
        .flat_map(|word| u32::from_str_radix(word, 16).unwrap().to_be_bytes())
        .collect();
    words.try_into().unwrap()
}

/// Rules are a device's, and tests run side by side.
static RULES: Mutex<()> = Mutex::new(());

/// Lets a request of this opcode fail by a rule that takes these codes.
fn by_rule(rig: &Rig, codes: [u8; 4], opcode: u8) -> (Failure, [u8; 64]) {
    let _rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    let [mut a, b] = pair(rig, &Setup::default());
    let codes: String = codes.iter().map(|byte| format!("{byte:02x}")).collect();
    let qp = a.qp.as_ref().unwrap().number();
    assert!(mlx5_model::set_faults(0, &format!("qp {qp} wqe 2 error {codes}")).unwrap());
    let (sge, remote) = (a.sge(0, 64), b.remote(0));
    a.post(RdmaWrite::new(sge, remote).signaled());
    let (done, before) = a.next();
    assert!(matches!(done, Completion::Send(_)), "the rule is of the second request");
    match opcode {
        0x08 => a.post(RdmaWrite::new(sge, remote)),
        0x10 => a.post(RdmaRead::new(sge, remote)),
        _ => a.post(SendMessage::new(sge)),
    }
    let (failure, cqe) = a.failure();
    assert!(mlx5_model::set_faults(0, "").unwrap());
    assert_eq!(cqe[32..36], before[32..36], "the user index, as in every CQE");
    assert_eq!(failure.opcode, cqe[56], "the driver knows which operation failed");
    (failure, cqe)
}

#[test]
fn the_bytes_of_each_dump_come_from_the_model() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut comparison = Comparison::new(
        "error-cqe-bytes",
        &["dump", "bytes 52 to 56 and 63, device", "bytes 52 to 56 and 63, model", "by"],
    );
    let (bytes, more) = (Table::read("error-cqe-bytes"), Table::read("error-cqe-words"));
    let all = bytes.rows().map(|row| (row.text("dump"), dumped(row)));
    let all = all.chain(more.rows().map(|row| (row.text("device"), words(row))));
    for (name, dump) in all {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut compare = |by: &str, failure: &Failure, cqe: &[u8; 64]| {
            let kind = failure.queue;
            // Between them are numbers of this run, and a signature.
            let shown = |bytes: &[u8]| format!("{} {}", hex(&bytes[..5]), hex(&bytes[11..]));
            comparison.row(&[&name, &shown(&dump), &shown(&cqe[52..]), &by]);
            let (mut mine, mut theirs) = (masked(&cqe[52..]), masked(&dump));
            if dump[4] == 0x25 || kind == QueueKind::Receive {
                // A request of the driver's own queue pair; of receives, dumps have 0.
                (mine[4], theirs[4]) = (0, 0);
            }
            assert_eq!(mine, theirs, "{name}, by {by}: {failure}");
            assert_ne!((cqe[62], dump[10]), (0, 0), "{name}: the signature");
            // Elsewhere there is only the queue pair's user index.
            assert_eq!((&cqe[..32], &cqe[36..52]), (&[0; 32][..], &[0; 16][..]), "{name}");
            let told = [failure.vendor_error, failure.status.syndrome()];
            assert_eq!(told, dump[2..4], "{name}: the driver's words: {failure}");
            let counter = u16::from_be_bytes([cqe[60], cqe[61]]);
            let number = u32::from_be_bytes([0, cqe[57], cqe[58], cqe[59]]);
            assert_eq!((failure.wqe_index, failure.qpn), (counter, number), "{name}");
        };
        // By its cause, where that is known and a program can have it.
        let cause = match (&dump[..4], dump[4]) {
            ([0x9d, 0, 0x53, 0x04], _) => Some("sge_length"),
            ([0x93, 0, 0x52, 0x04], _) => Some("lkey"),
            ([0, 0, 0x88, 0x13], 0x08) => Some("rkey"),
            ([0, 0, 0x88, 0x13], 0x10) => Some("rkey_read"),
            ([0x04, 0, 0x51, 0x04], _) => Some("send_unreachable"),
            ([0xa9, 0, 0x56, 0x04], _) => Some("receive_unreachable"),
            _ => None,
        };
        if let Some(cause) = cause {
            let (failure, cqe) = caused(&rig, cause);
            compare(cause, &failure, &cqe);
        }
        // Rules are for send WQEs. Ethernet queues are tested beside the model.
        if dump[11] >> 4 == 0xd {
            let codes = [dump[0], dump[1], dump[2], dump[3]];
            let (failure, cqe) = by_rule(&rig, codes, dump[4]);
            compare("rule", &failure, &cqe);
        }
    }
    comparison.write();
}

#[test]
fn codes_that_others_met_come_by_rule() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut tried = 0;
    for row in Table::read("vendor-syndromes-more").rows() {
        let columns = ["hw_synd(byte52)", "hw_type", "vendor", "cqe_syndrome"];
        if row.text("where") != "requester" || columns.iter().any(|name| row.text(name).is_empty())
        {
            continue;
        }
        let [hardware, kind, vendor, syndrome] = columns.map(|name| row.hex(name).unwrap() as u8);
        let (failure, cqe) = by_rule(&rig, [hardware, kind << 4, vendor, syndrome], 0x0a);
        assert_eq!(cqe[52..56], [hardware, kind << 4, vendor, syndrome], "{}", row.text("cause"));
        assert_eq!((failure.vendor_error, failure.status.syndrome()), (vendor, syndrome));
        tried += 1;
    }
    assert!(tried >= 5, "{tried} rows");
}
