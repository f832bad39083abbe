//! Checks of a plan against perftest's servers, before anything is sent.

use crate::perf::plan::{Carrier, Connecting, Direction, Operation, Plan};
use crate::perf::result::Kind;

/// The smallest buffer to ask a server for: a page.
const SMALLEST: u64 = 4096;
/// The largest: the size is a positive `int` and a power of two.
const LARGEST: u64 = 1 << 30;

/// Returns the program of perftest whose server the plan can be measured with.
///
/// # Errors
/// Returns why there is none, and what to choose instead.
pub fn program(plan: &Plan) -> Result<&'static str, String> {
    match (plan.kind, plan.operation) {
        (Kind::Bw | Kind::Rate, Operation::Write) => Ok("ib_write_bw"),
        (Kind::Bw | Kind::Rate, Operation::Read) => Ok("ib_read_bw"),
        (Kind::Bw | Kind::Rate, Operation::Cas | Operation::Fadd) => Ok("ib_atomic_bw"),
        (Kind::Lat, Operation::Read) => Ok("ib_read_lat"),
        (Kind::Lat, Operation::Cas | Operation::Fadd) => Ok("ib_atomic_lat"),
        (kind, operation) => Err(format!(
            "perftest's server takes part in each message of {kind} --operation {operation}, and \
             cannot tell what arrived: choose --operation {}, or run `mlx5 perf server` there and \
             leave --peer out",
            match kind {
                Kind::Lat => "read",
                Kind::Bw | Kind::Rate => "write",
            }
        )),
    }
}

/// Returns the bytes to ask for, for each queue pair: all slots of the plan.
///
/// # Errors
/// Returns which size is too large.
pub fn buffer(plan: &Plan) -> Result<u32, String> {
    let needed = plan.layout()?.target_bytes() as u64;
    // perftest aligns its memory to it, which takes a power of two.
    match needed.max(SMALLEST).checked_next_power_of_two() {
        Some(bytes @ ..=LARGEST) => Ok(bytes as u32),
        _ => Err(format!(
            "--size {}: perftest's server has at most {LARGEST} bytes for a queue pair, with headers: \
             choose a smaller --size",
            plan.size
        )),
    }
}

/// Checks whether all points can be measured with a server of perftest.
///
/// # Errors
/// Returns what cannot be measured, and what to choose instead.
pub fn check(plans: &[Plan]) -> Result<(), String> {
    let [plan] = plans else {
        return Err("perftest's server ends after one measurement: give one --size, and run both \
                    sides again for the next"
            .to_owned());
    };
    if plan.carrier != Carrier::Rc {
        return Err(format!(
            "--peer perftest measures rc alone, not {}: leave --transport out",
            plan.carrier
        ));
    }
    program(plan)?;
    let refused = [
        (plan.connecting == Connecting::RdmaCm, "--cm", "the addresses of perftest go over TCP"),
        (plan.direction == Direction::BothWays, "--bidirectional", "the server only answers"),
        (plan.validate, "--validate", "the server does not know what messages should contain"),
    ];
    if let Some((_, option, why)) = refused.into_iter().find(|(given, ..)| *given) {
        return Err(format!("--peer perftest: {why}: leave {option} out"));
    }
    if plan.kind == Kind::Lat && plan.queue_pairs != 1 {
        return Err("perftest's latency tests have one queue pair: leave --threads out".to_owned());
    }
    buffer(plan).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::ReceiveSource;
    use crate::perf::plan::tests::plan;

    fn bw() -> Plan {
        let plan = Plan { kind: Kind::Bw, operation: Operation::Write, ..plan() };
        Plan {
            queue_pairs: 1,
            threads: 1,
            inline: false,
            validate: false,
            corrupt_at: None,
            ..plan
        }
    }

    #[test]
    fn each_passive_server_has_a_plan() {
        let of = |kind, operation| program(&Plan { kind, operation, ..bw() });
        assert_eq!(of(Kind::Bw, Operation::Write), Ok("ib_write_bw"));
        assert_eq!(of(Kind::Rate, Operation::Write), Ok("ib_write_bw"));
        assert_eq!(of(Kind::Bw, Operation::Read), Ok("ib_read_bw"));
        assert_eq!(of(Kind::Bw, Operation::Cas), Ok("ib_atomic_bw"));
        assert_eq!(of(Kind::Lat, Operation::Read), Ok("ib_read_lat"));
        assert_eq!(of(Kind::Lat, Operation::Fadd), Ok("ib_atomic_lat"));
        for (kind, operation, cure) in [
            (Kind::Lat, Operation::Write, "--operation read"),
            (Kind::Lat, Operation::Send, "--operation read"),
            (Kind::Bw, Operation::Send, "--operation write"),
            (Kind::Bw, Operation::WriteImm, "--operation write"),
        ] {
            assert!(of(kind, operation).unwrap_err().contains(cure));
        }
    }

    #[test]
    fn what_needs_the_server_is_refused_with_the_option_to_leave_out() {
        assert_eq!(check(&[bw()]), Ok(()));
        let cases = [
            (Plan { carrier: Carrier::Uc, ..bw() }, "--transport"),
            (Plan { connecting: Connecting::RdmaCm, ..bw() }, "--cm"),
            (Plan { direction: Direction::BothWays, ..bw() }, "--bidirectional"),
            (Plan { validate: true, ..bw() }, "--validate"),
            (Plan { operation: Operation::Send, ..bw() }, "--operation"),
            (Plan { size: 1 << 30, depth: 1, ..bw() }, "--size"),
        ];
        for (plan, option) in cases {
            let error = check(&[plan]).unwrap_err();
            assert!(error.contains(option), "{error}");
        }
        assert!(check(&[bw(), bw()]).unwrap_err().contains("one --size"));
        let two = Plan { kind: Kind::Lat, operation: Operation::Read, threads: 2, ..bw() };
        assert!(check(&[Plan { queue_pairs: 2, ..two }]).unwrap_err().contains("--threads"));
    }

    #[test]
    fn the_buffer_is_a_power_of_two_with_all_slots() {
        for size in [1, 8, 4096, 65536, 8 << 20] {
            let plan = Plan { size, receives_from: ReceiveSource::Own, ..bw() };
            let bytes = buffer(&plan).unwrap();
            assert!(bytes.is_power_of_two() && bytes >= 4096);
            assert!(u64::from(bytes) >= plan.layout().unwrap().target_bytes() as u64);
        }
    }
}
