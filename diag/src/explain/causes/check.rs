//! First checks: what tells the causes of one symptom apart.

use super::super::call::{CallError, CallKind};
use super::super::{Cause, Status};
use super::Symptom;
use super::reason::*;
use super::refusal::*;

/// A check that tells frequent causes of a symptom apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The steps, with what each outcome means.
    pub text: &'static str,
    /// The causes that the outcomes lead to.
    pub tells: &'static [Cause],
}

const PATH: Check = Check {
    text: "Did the peer's process end? Its log tells. If not, run `ib_write_bw -d DEVICE -x GID_INDEX` between \
           the two ports. It fails: GID index, network, MTU or firewall. It runs: look at both ports' error \
           counters (link) and pause counters (congestion) under load, then raise the timeouts. On RoCE, \
           roce_adp_retrans in hw_counters grows within milliseconds of a loss, and local_ack_timeout_err only \
           after half a second or more. rp_cnp_handled grows with both and is no congestion then. With timeout \
           14 and retry_cnt 7, the request was posted 3.7 s before this on RoCE, and 4.3 s on InfiniBand.",
    tells: &[
        PEER_GONE,
        WRONG_GID,
        WRONG_PATH,
        WRONG_ATTRIBUTES,
        BAD_LINK,
        LOSSY_FABRIC,
        SHORT_TIMEOUT,
    ],
};

const LOCAL_MEMORY: Check = Check {
    text: "Run once with memory of the host instead of a GPU's. It works: the HCA cannot reach the GPU's memory. \
           It fails: compare address, length and lkey of the WQE with the region as it is at that time.",
    tells: &[DEVICE_MEMORY, WRONG_LKEY, DEREGISTERED],
};

const REMOTE_MEMORY: Check = Check {
    text: "Print address, length and rkey of the request, and those of the responder's region at that time. They \
           differ: wrong or deregistered. They are equal: look at the region's rights and domain, and whether it \
           is a GPU's. req_remote_access_errors of the requester's port counts refusals, and the responder's \
           counters stay 0.",
    tells: &[WRONG_RKEY, PEER_DEREGISTERED, REGION_RIGHTS, PEER_DOMAIN, PEER_DEVICE_MEMORY],
};

const FIRST_ERROR: Check = Check {
    text: "Find the first completion with another status, on both sides: it has the cause. There is none: one \
           side closed the connection, and its log tells why.",
    tells: &[EARLIER_FAILURE, CLOSED, PEER_CLOSED],
};

const LENGTHS: Check = Check {
    text: "Compare the length of the message with that of the receive that it took, then active_mtu of both ports \
           (`ibv_devinfo`).",
    tells: &[SHORT_RECEIVE, LONG_SEND, PATH_MTU],
};

const RECEIVES: Check = Check {
    text: "See whether the receiving process still polls and posts receives at that time. It does not: it hangs or \
           is late. It does: raise rnr_retry and min_rnr_timer.",
    tells: &[LATE_RECEIVES, SMALL_RNR_RETRY, SHORT_RNR_TIMER],
};

const REGISTRATION: Check = Check {
    text: "Read `Max locked memory` in /proc/PID/limits of the process itself. It is unlimited: register memory of \
           the host of the same size. That works: it is the GPU's memory (`lsmod | grep peermem`, dma-buf).",
    tells: &[MEMLOCK, NO_PEERMEM, GPU_KIND, CGROUP],
};

const REGISTRATION_KIND: Check = Check {
    text: "Register memory of the host, of the same size, with local write as its only right. It fails: the kernel, \
           a container's rules or the program. It works: the kind of memory (a GPU's, dma-buf), on-demand paging or \
           another right is not taken here.",
    tells: &[REGISTRATION_UNSUPPORTED, GPU_KIND, NO_PEERMEM],
};

const GIDS: Check = Check {
    text: "Look up both GIDs in `show_gids`, each on its own host and in its own container. Then ping from the one's \
           interface to the other's address (`ping -I`).",
    tells: &[EMPTY_GID, NO_ANSWER, RAILS, CONTAINER_GID],
};

const SIZES: Check = Check {
    text: "Read `Max locked memory` in /proc/PID/limits of the process itself, then compare the sizes that it asks \
           for with `ibv_devinfo -v`.",
    tells: &[MEMLOCK, LONG_QUEUES, BEYOND_DEVICE],
};

/// Returns the first check of a symptom; `None` where the list of causes is all that helps.
///
/// Each tells at least two of the symptom's causes apart: a call's causes depend on its errno.
#[must_use]
pub fn check(symptom: Symptom) -> Option<&'static Check> {
    let check = match symptom {
        Symptom::Status(Status::RetriesExceeded) => &PATH,
        Symptom::Status(Status::LocalProtection) => &LOCAL_MEMORY,
        Symptom::Status(Status::RemoteAccess) => &REMOTE_MEMORY,
        Symptom::Status(Status::Flushed) => &FIRST_ERROR,
        Symptom::Status(Status::LocalLength | Status::RemoteInvalidRequest) => &LENGTHS,
        Symptom::Status(Status::RnrRetriesExceeded) => &RECEIVES,
        Symptom::Call(CallKind::Register, Some(error)) if is_kind(error) => &REGISTRATION_KIND,
        Symptom::Call(CallKind::Register, _) => &REGISTRATION,
        Symptom::Call(CallKind::Modify | CallKind::Address, _) => &GIDS,
        Symptom::Call(CallKind::Create, _) => &SIZES,
        _ => return None,
    };
    let causes = symptom.causes();
    (check.tells.iter().filter(|told| causes.contains(told)).count() > 1).then_some(check)
}

/// Returns whether an errno refuses what is registered, and not how much.
fn is_kind(error: CallError) -> bool {
    matches!(error.name(), "EINVAL" | "EOPNOTSUPP" | "ENOTSUPP")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::causes::Fabric;
    use crate::explain::status::STATUSES;
    use crate::explain::timeout::dead_peer_after;

    #[test]
    fn the_check_of_a_silent_peer_says_how_long_it_was_silent() {
        let check = check(Symptom::Status(Status::RetriesExceeded)).expect("a check");
        for (fabric, name) in [(Fabric::Roce, "RoCE"), (Fabric::InfiniBand, "InfiniBand")] {
            let time = dead_peer_after(14, 7, fabric).expect("a time");
            let words = format!("{:.1} s", time.as_secs_f64());
            assert!(check.text.contains(&words) && check.text.contains(name), "{words}");
        }
        // The first sign comes before the last.
        let place = |counter| check.text.find(counter).expect("a counter");
        assert!(place("roce_adp_retrans") < place("local_ack_timeout_err"));
        assert!(check.text.contains("rp_cnp_handled"));
    }

    #[test]
    fn a_check_tells_several_causes_of_its_symptom_apart() {
        let statuses = STATUSES.into_iter().map(Symptom::Status);
        let kinds = [CallKind::Register, CallKind::Modify, CallKind::Create];
        let symptoms = statuses.chain(kinds.map(|kind| Symptom::Call(kind, None)));
        let with = symptoms.filter_map(|symptom| Some((symptom, check(symptom)?)));
        let mut count = 0;
        for (symptom, check) in with {
            count += 1;
            assert!(check.text.ends_with('.') && !check.text.contains("  "), "{symptom:?}");
        }
        assert_eq!(count, 10);
        let denied = crate::explain::call::errno("Permission denied");
        assert_eq!(check(Symptom::Call(CallKind::Create, denied)), None);
    }
}
