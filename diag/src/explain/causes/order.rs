//! The order of causes.

use super::super::{Knowledge, vendor};
use super::refusal::{REFUSED, SMALL_BUFFERS};
use super::{
    Cause, Evidence, Facts, Grounds, LikelyCause, Operations, Program, Symptom, evidence, parameter,
};

/// Fewest points of signs that are a cause's grounds. Fewer come from words about the kind of fabric or
/// host, which fit other causes as well.
const STRONG: u32 = 8;

/// Points of a thread of the same program, vendor syndrome and operation.
const PROGRAM: u32 = 5;
const VENDOR: u32 = 4;
const OPERATION: u32 = 1;

/// Most points of a cause from its threads: many threads of one cause do not drown another's signs.
const MOST: u32 = 16;

/// Most points of a cause from threads that share neither program nor vendor syndrome: many of
/// them do not drown what is known of a program.
const MOST_UNLIKE: u32 = 2;

/// Returns the causes that the facts allow, the likeliest first.
///
/// Each cause starts with a weight by its place in the list of the symptom. Each thread of
/// [`evidence()`](super::evidence()) with that symptom adds to its cause, the more it is like the
/// facts. So do the signs in the text around the record.
#[must_use]
pub fn rank(facts: &Facts) -> Vec<LikelyCause> {
    let listed = facts.symptom.causes();
    let allowed = |cause: &Cause| {
        cause.operations.intersects(facts.operations)
            && !facts.signs.exclude(cause)
            && (cause.cause != SMALL_BUFFERS.cause || facts.program == Some(Program::Dpdk))
            && (cause.fabric.is_none() || facts.fabric.is_none() || cause.fabric == facts.fabric)
    };
    let mut ranked: Vec<(u32, LikelyCause)> = listed
        .iter()
        .enumerate()
        .filter(|(_, cause)| allowed(cause))
        .map(|(place, cause)| {
            let base = u32::try_from(listed.len() - place).unwrap_or(0);
            let (points, likely) = weigh(facts, cause);
            (base + points, likely)
        })
        .collect();
    // An errno with a single cause tells it. `REFUSED` names none.
    if let [(_, only)] = &mut ranked[..] {
        if only.cause != REFUSED.cause {
            only.grounds = only.grounds.max(Grounds::Code);
        }
    }
    ranked.sort_by_key(|(points, cause)| {
        std::cmp::Reverse((cause.grounds != Grounds::None, *points))
    });
    ranked.into_iter().map(|(_, cause)| cause).collect()
}

/// Returns the points of a cause, and the cause with the thread and the cure that fit best.
fn weigh(facts: &Facts, cause: &Cause) -> (u32, LikelyCause) {
    let alike: Vec<(u32, &Evidence)> = evidence()
        .filter(|row| row.cause.cause == cause.cause)
        .map(|row| (likeness(facts, row), row))
        .filter(|(points, _)| *points > 0)
        .collect();
    let sum =
        |near: fn(&u32) -> bool| alike.iter().map(|(points, _)| *points).filter(near).sum::<u32>();
    let unlike = sum(|points| *points < VENDOR).min(MOST_UNLIKE);
    let points = (sum(|points| *points >= VENDOR) + unlike).min(MOST);
    // The last of equals, as the threads are listed.
    let best = alike.iter().max_by_key(|(points, _)| *points).map(|(_, row)| *row);
    let parameter = parameter::find(facts.program, cause);
    // Another program's parameters do not help.
    let same = best.filter(|row| row.program.is_some() && row.program == facts.program);
    let cures = [same.map(|row| row.cure), parameter.map(|entry| entry.cure)];
    let signs = facts.signs.points(cause);
    let same_code = |row: &Evidence| row.vendor.is_some() && row.vendor == facts.vendor;
    let of_code = has_told_code(facts) && alike.iter().any(|(_, row)| same_code(row));
    let likely = LikelyCause {
        grounds: match signs {
            STRONG.. => Grounds::Text,
            _ if of_code => Grounds::Code,
            _ => Grounds::None,
        },
        cure: cures.into_iter().flatten().next().unwrap_or(cause.cure),
        source: best.map(|row| row.source),
        ..LikelyCause::told(cause.cause, cause.cure)
    };
    let more = parameter.map_or(0, |entry| entry.points);
    (points + more + signs, likely)
}

/// Returns whether the vendor has said what the vendor syndrome means. One that was only met has other
/// causes as well.
fn has_told_code(facts: &Facts) -> bool {
    let (Symptom::Status(status), Some(code)) = (facts.symptom, facts.vendor) else { return false };
    vendor::explain(status, code).is_some_and(|entry| entry.knowledge <= Knowledge::Told)
}

/// Returns how much a thread is like the facts; 0 if it has another symptom or vendor syndrome.
/// Which causes a program has says little of another program, except with a rare vendor syndrome.
fn likeness(facts: &Facts, row: &Evidence) -> u32 {
    if row.symptom != facts.symptom {
        return 0;
    }
    let vendor = match (row.vendor, facts.vendor) {
        (Some(row), Some(facts)) if row == facts => VENDOR,
        (Some(_), Some(_)) => return 0,
        _ => 0,
    };
    let program = match row.program {
        None => 1,
        program if program == facts.program => PROGRAM,
        _ => 0,
    };
    let known = row.operations != Operations::ALL && facts.operations != Operations::ALL;
    if known && !row.operations.intersects(facts.operations) {
        return 0;
    }
    match vendor + program {
        0 => 0,
        points if known => points + OPERATION,
        points => points,
    }
}

#[cfg(test)]
mod tests {
    use super::super::reason;
    use super::super::{Fabric, Program, Signs};
    use super::*;
    use crate::explain::Status;

    fn facts(status: Status) -> Facts {
        Facts::of(Symptom::Status(status))
    }

    #[test]
    fn a_cause_has_grounds_by_a_line_or_a_code_only() {
        let ungrounded = rank(&facts(Status::RetriesExceeded));
        assert!(ungrounded.iter().all(|cause| cause.grounds == Grounds::None), "{ungrounded:#?}");
        // A program has causes of its own, but its name is no evidence.
        let program = Facts { program: Some(Program::Nccl), ..facts(Status::RetriesExceeded) };
        assert_eq!(rank(&program)[0].grounds, Grounds::None);
        let link = Facts { signs: Signs::LINK, ..facts(Status::RetriesExceeded) };
        let ranked = rank(&link);
        assert_eq!((ranked[0].cause, ranked[0].grounds), (reason::BAD_LINK.cause, Grounds::Text));
        // RoCE alone fits every cause of RoCE.
        let roce = Facts { signs: Signs::ETHERNET, ..facts(Status::RetriesExceeded) };
        assert!(rank(&roce).iter().all(|cause| cause.grounds == Grounds::None));
        // A syndrome that the vendor has explained is grounds, and one that was only met is none.
        let of = |status, vendor| rank(&Facts { vendor: Some(vendor), ..facts(status) })[0].grounds;
        assert_eq!(of(Status::LocalLength, 0x68), Grounds::Code);
        assert_eq!(of(Status::RemoteInvalidRequest, 0x8a), Grounds::None);
        let last = ranked.iter().position(|cause| cause.grounds == Grounds::None);
        let last = last.expect("causes without grounds");
        assert!(ranked[last..].iter().all(|cause| cause.grounds == Grounds::None), "{ranked:#?}");
    }

    #[test]
    fn every_row_has_a_thread_and_a_cause_of_its_symptom() {
        let mut seen = std::collections::HashSet::new();
        for row in evidence() {
            assert!(row.source.starts_with("https://"), "{row:?}");
            assert!(!row.cure.is_empty() && !row.cure.contains("  "), "{row:?}");
            let causes = row.symptom.causes();
            assert!(causes.iter().any(|cause| cause.cause == row.cause.cause), "{row:?}");
            assert!(row.cause.operations.intersects(row.operations), "{row:?}");
            let symptom = format!("{:?}", row.symptom);
            assert!(seen.insert((row.source, row.cause.cause, symptom)), "twice: {row:?}");
        }
    }

    #[test]
    fn a_record_like_a_thread_has_its_cause_in_the_first_two_or_for_want_of_a_sign() {
        // Causes that share all of symptom, vendor syndrome, operation and program with two more
        // frequent ones: only the text around a record tells them apart.
        let mut hidden = Vec::new();
        for row in evidence() {
            let facts = Facts {
                vendor: row.vendor,
                operations: row.operations,
                program: row.program,
                ..Facts::of(row.symptom)
            };
            let place =
                |facts: &Facts| rank(facts).iter().position(|cause| cause.cause == row.cause.cause);
            if place(&facts).is_some_and(|place| place < 2) {
                continue;
            }
            let signs = Signs::all().iter().filter(|sign| sign.points(&row.cause) > 0);
            let told = signs.fold(Signs::empty(), |all, sign| all | sign);
            let place = place(&Facts { signs: told, ..facts });
            if place.is_none_or(|place| place >= 2) {
                hidden.push((row.source, row.cause.cause, place));
            }
        }
        assert!(hidden.is_empty(), "{hidden:#?}");
    }

    #[test]
    fn a_request_has_no_cause_of_another_operation() {
        let read = Facts { operations: Operations::READ, ..facts(Status::RemoteInvalidRequest) };
        assert!(rank(&read).iter().all(|cause| !cause.cause.contains("SEND")));
        let roce = rank(&facts(Status::RetriesExceeded)).len();
        let fabric = Some(Fabric::InfiniBand);
        assert!(rank(&Facts { fabric, ..facts(Status::RetriesExceeded) }).len() < roce);
    }

    #[test]
    fn what_a_record_knows_changes_the_order_and_the_cure() {
        let first = |facts: Facts| rank(&facts)[0];
        let plain = facts(Status::LocalProtection);
        let gpu = first(Facts { vendor: Some(0x51), program: Some(Program::Nccl), ..plain });
        assert_eq!(gpu.cause, reason::DEVICE_MEMORY.cause);
        assert!(gpu.cure.contains("ACS") && gpu.source.is_some(), "{gpu:?}");
        let plain = facts(Status::RetriesExceeded);
        let nccl = first(Facts { vendor: Some(0x81), program: Some(Program::Nccl), ..plain });
        assert!(nccl.cure.contains("NCCL_"), "{nccl:?}");
        let ucx = first(Facts { vendor: Some(0x81), program: Some(Program::Ucx), ..plain });
        assert!(!ucx.cure.contains("NCCL_"), "{ucx:?}");
        // Without a thread, the program's documentation names the parameters.
        let program = Some(Program::Mvapich);
        let ranked = rank(&Facts { program, ..plain });
        assert!(ranked.iter().any(|cause| cause.cure.contains("MV2_DEFAULT_TIME_OUT")));
        let program = Some(Program::Gpu);
        let nvshmem = first(Facts { program, ..facts(Status::LocalProtection) });
        assert_eq!(nvshmem.cause, reason::DEVICE_MEMORY.cause);
    }

    #[test]
    fn the_text_around_a_record_changes_the_order() {
        let first =
            |signs: Signs| rank(&Facts { signs, ..facts(Status::RetriesExceeded) })[0].cause;
        assert_eq!(first(Signs::LINK), reason::BAD_LINK.cause);
        assert_eq!(first(Signs::LINK_LOCAL), reason::WRONG_GID.cause);
        assert_eq!(first(Signs::OTHER_NETWORK), reason::WRONG_PATH.cause);
        assert_eq!(first(Signs::CRASH), reason::PEER_GONE.cause);
    }
}
