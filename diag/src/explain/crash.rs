//! Failures of the kernel itself: panics, oopses, warnings, stalls.
//!
//! The words are those of Linux's `kernel/panic.c`, `lib/bug.c`, `kernel/watchdog.c`,
//! `kernel/hung_task.c`, `kernel/rcu/tree_stall.h` and `net/core/dev.c`.

use super::{ExplainedCode, Knowledge};

/// A kind of failure of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Texts that the first line of the report has, all of them.
    pub tokens: &'static [&'static str],
    /// Whether it also stands inside the report of another failure, which it goes on.
    pub goes_on: bool,
    /// The failure, in a few words.
    pub title: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// What to check first.
    pub check: &'static str,
}

/// Returns the failure that a line begins to report; `None` if it reports none.
#[must_use]
pub fn find(line: &str) -> Option<&'static Crash> {
    CRASHES.iter().find(|crash| crash.tokens.iter().all(|token| line.contains(token)))
}

/// The first check of a defect of kernel code.
const DEFECT: &str = "which module is at the top of the trace, and which called it? One from outside the kernel's tree (taint O, \
     \"(OE)\") may break a rule of the kernel: report to its authors, of MLNX_OFED or DOCA-OFED to their vendor, with the \
     versions of package, firmware and kernel; else compare with the newest stable kernel. The first trace of \
     the log counts: later ones are often its effects";

/// The first check of a thread that waits or turns without end.
const STALL: &str = "look before it for command time-outs, health lines and PCIe errors: a device that does not answer lets \
     threads of the driver wait. The function at the top of the trace tells what for";

macro_rules! crashes {
    ($([$($token:literal),+] $goes_on:literal $title:literal $meaning:literal $check:expr;)*) => {
        const CRASHES: &[Crash] = &[$(Crash {
            tokens: &[$($token),+],
            goes_on: $goes_on,
            title: $title,
            meaning: $meaning,
            check: $check,
        }),*];
    };
}

crashes! {
    [": hw csum failure"] false "the checksum of a received packet is not what the HCA said"
        "The HCA gives the kernel a checksum with each packet. The kernel computed another one. The packet is not harmed by that: the kernel computes the checksum itself then."
        "does something alter packets on their way through the kernel (eBPF, a tunnel, a bridge with VLANs)? `ethtool -K INTERFACE rx off` ends the messages; compare with a newer kernel or driver";
    ["BUG: soft lockup"] false "a processor did not schedule for long"
        "A thread ran in the kernel without a pause."
        STALL;
    ["hard LOCKUP on cpu"] false "a processor did not take interrupts for long"
        "A thread ran in the kernel with its interrupts off."
        STALL;
    ["self-detected stall on CPU"] false "a processor did not pause for long"
        "A thread ran in the kernel without a pause (RCU's detector)."
        STALL;
    ["detected stalls on CPUs"] false "a processor did not pause for long"
        "A thread ran in the kernel without a pause (RCU's detector)."
        STALL;
    ["INFO: task ", "blocked for more than"] false "a task waits for long in the kernel"
        "The task sleeps in the kernel and cannot be killed until what it waits for comes."
        STALL;
    ["Unable to handle kernel "] false "the kernel crashed"
        "Code of the kernel used an address that is not there: a defect of the kernel or of a module, and of no program."
        DEFECT;
    ["BUG: unable to handle"] false "the kernel crashed"
        "Code of the kernel used an address that is not there: a defect of the kernel or of a module, and of no program."
        DEFECT;
    ["BUG: kernel NULL pointer dereference"] false "the kernel crashed"
        "Code of the kernel used a pointer that was not set: a defect of the kernel or of a module, and of no program."
        DEFECT;
    ["general protection fault", "[#"] false "the kernel crashed"
        "Code of the kernel used an address that no pointer has, often memory that was freed: a defect of the kernel or of a module."
        DEFECT;
    ["kernel BUG at "] false "the kernel found a defect and stopped"
        "A check in the kernel's code that must never fail did."
        DEFECT;
    ["BUG: KASAN: "] false "the kernel used memory wrongly"
        "The kernel's address sanitizer found a use after free or beyond the end: a defect of the kernel or of a module."
        DEFECT;
    ["UBSAN: "] false "the kernel computed a value that does not fit"
        "The kernel's sanitizer found a shift, an index or a sum out of range: a defect of the kernel or of a module. It went on."
        DEFECT;
    ["refcount_t: "] false "the kernel counted the users of an object wrongly"
        "A counter of users was taken below zero or used after its end: a defect of the kernel or of a module."
        DEFECT;
    ["list_add corruption"] false "a list of the kernel is damaged"
        "Memory of the kernel was overwritten, or an entry was added twice: a defect of the kernel or of a module."
        DEFECT;
    ["list_del corruption"] false "a list of the kernel is damaged"
        "Memory of the kernel was overwritten, or an entry was removed twice: a defect of the kernel or of a module."
        DEFECT;
    ["divide error: 0000"] false "the kernel crashed"
        "Code of the kernel divided by zero: a defect of the kernel or of a module."
        DEFECT;
    ["BUG: sleeping function called"] false "the kernel slept where it must not"
        "Code of the kernel waited while it held a lock that excludes waiting: a defect of the kernel or of a module."
        DEFECT;
    ["page allocation failure: order"] false "the kernel has no memory of this size"
        "An allocation of several pages in one piece was not served. What asked for it goes without, or fails."
        "raise vm.min_free_kbytes; smaller rings and buffers; which slabs use the memory (the listing behind the trace)?";
    ["suspicious RCU usage"] false "the kernel warns of a list that it reads without protection"
        "The kernel's checker of locks saw a protected pointer used without its lock."
        DEFECT;
    ["detected expedited stalls"] false "a processor did not pause for long"
        "A thread ran in the kernel without a pause (RCU's detector)."
        STALL;
    ["INFO: task ", "is blocked on a mutex"] true "a task waits for long in the kernel"
        "The task waits for a lock that another one holds."
        STALL;
    ["BUG: scheduling while atomic"] false "the kernel slept where it must not"
        "Code of the kernel waited while it held a lock that excludes waiting: a defect of the kernel or of a module."
        DEFECT;
    ["WARNING: possible ", "locking"] false "the kernel warns of locks that may wait for each other"
        "The kernel's checker of locks saw two taken in both orders, or one taken twice."
        DEFECT;
    [" invoked oom-killer"] false "the kernel has no memory left"
        "An allocation could not be served, and the kernel ends a process. RDMA's code was where it was asked for, and need not be what uses the memory."
        "which processes and slabs use the memory (the listing behind the trace)? Registered memory cannot be swapped out";
    ["WARNING: CPU: "] false "the kernel warns"
        "A check in the kernel's code failed, and the kernel went on. What it was doing may be incomplete."
        DEFECT;
    ["WARNING: ", " at ", "+0x"] false "the kernel warns"
        "A check in the kernel's code failed, and the kernel went on. What it was doing may be incomplete."
        DEFECT;
    ["BUG: "] false "the kernel found a defect"
        "A check in the kernel's code failed."
        DEFECT;
    ["Internal error: "] true "the kernel crashed"
        "Code of the kernel used an address that is not there, or the hardware refused an access (an external abort: a device that does not answer)."
        DEFECT;
    ["Kernel panic - not syncing"] true "the kernel stopped"
        "The kernel gave up after a failure. The lines before it, and its trace, tell which."
        DEFECT;
}

/// A trace without its first line, which names the failure.
pub const HEADLESS: Crash = Crash {
    tokens: &["Call Trace:"],
    goes_on: true,
    title: "the kernel printed a trace",
    meaning: "What failed stands in a line before the trace, which is not in the text or has a form that is not known here. Traces \
              are also printed on request, when nothing has failed.",
    check: "find the first line of the report: it stands before the trace",
};

/// Letters of a tainted kernel that concern its modules, with what they stand for.
pub const TAINTS: &[(char, &str)] = &[
    ('P', "a proprietary module"),
    ('O', "a module from outside the kernel's tree"),
    ('E', "a module without signature"),
    ('W', "an earlier warning"),
    ('D', "an earlier crash"),
    ('M', "a machine check of the hardware"),
];

impl ExplainedCode {
    /// Explains a failure of the kernel.
    #[must_use]
    pub fn crash(crash: &Crash) -> ExplainedCode {
        ExplainedCode {
            code: crash.title.to_owned(),
            name: None,
            meaning: crash.meaning.to_owned(),
            knowledge: Knowledge::Named,
            source: None,
            causes: Vec::new(),
            check: Some(crash.check),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_found_by_its_own_token() {
        for crash in CRASHES {
            let found = find(&format!("[1.0] x{} y", crash.tokens.join(" x "))).expect(crash.title);
            assert_eq!(found.title, crash.title);
        }
        for line in [
            "mlx5_core: all is well",
            "traps: ib_write_bw[123] general protection fault ip:7f sp:7f error:0 in libmlx5.so.1",
            "The mlx5 driver is unable to handle more than 64 queues.",
            "net/mlx5: Fix soft lockup in mlx5_eq_poll",
            "Is the hw csum failure message harmless?",
        ] {
            assert_eq!(find(line), None, "{line}");
        }
    }
}
