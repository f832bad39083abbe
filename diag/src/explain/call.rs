//! Why calls of libibverbs, libmlx5 and librdmacm fail: causes by kind of call and errno.

use super::Explanation;
use super::causes::{reason, refusal};

/// An errno of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    name: &'static str,
    number: i32,
    words: &'static str,
}

macro_rules! errors {
    ($($name:ident $number:literal $words:literal;)*) => {
        /// Every errno that these calls return in public reports, by name.
        pub(super) mod errno {
            use super::CallError;

            $(pub(crate) const $name: CallError =
                CallError { name: stringify!($name), number: $number, words: $words };)*
        }

        const ERRORS: &[CallError] = &[$(errno::$name),*];
    };
}

errors! {
    EPERM 1 "Operation not permitted";
    ENOENT 2 "No such file or directory";
    ESRCH 3 "No such process";
    EIO 5 "Input/output error";
    ENXIO 6 "No such device or address";
    EBADF 9 "Bad file descriptor";
    EAGAIN 11 "Resource temporarily unavailable";
    ENOMEM 12 "Cannot allocate memory";
    EACCES 13 "Permission denied";
    EFAULT 14 "Bad address";
    EBUSY 16 "Device or resource busy";
    EEXIST 17 "File exists";
    ENODEV 19 "No such device";
    EINVAL 22 "Invalid argument";
    EMFILE 24 "Too many open files";
    ENOSPC 28 "No space left on device";
    ENAMETOOLONG 36 "File name too long";
    ENOSYS 38 "Function not implemented";
    ENODATA 61 "No data available";
    EMSGSIZE 90 "Message too long";
    EPROTONOSUPPORT 93 "Protocol not supported";
    EOPNOTSUPP 95 "Operation not supported";
    EADDRINUSE 98 "Address already in use";
    EADDRNOTAVAIL 99 "Cannot assign requested address";
    ENETUNREACH 101 "Network is unreachable";
    ECONNRESET 104 "Connection reset by peer";
    ENOBUFS 105 "No buffer space available";
    ENOTCONN 107 "Transport endpoint is not connected";
    ETIMEDOUT 110 "Connection timed out";
    ECONNREFUSED 111 "Connection refused";
    EHOSTUNREACH 113 "No route to host";
    EREMOTEIO 121 "Remote I/O error";
    ECANCELED 125 "Operation canceled";
    ENOTSUPP 524 "Unknown error 524";
}

impl CallError {
    /// Returns its name in `errno.h`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns its text in the C locale.
    #[must_use]
    pub const fn words(self) -> &'static str {
        self.words
    }

    /// Returns the errno with this number, if it is one of the known.
    #[must_use]
    pub fn of_number(number: u64) -> Option<CallError> {
        ERRORS.iter().find(|error| u64::from(error.number.unsigned_abs()) == number).copied()
    }
}

/// Words before the number of an errno.
const BEFORE_NUMBER: [&str; 19] = [
    "errno",
    "error=",
    "error =",
    "ret=",
    "ret =",
    "rc=",
    "rc =",
    "err=",
    "err =",
    "failed with ",
    "error code",
    "error: ",
    "error ",
    "err: ",
    "failed: ",
    "failed (",
    "failed -",
    "returned ",
    "return value ",
];

/// The largest number that a program's own step may have instead of an errno.
const LARGEST_STEP: u64 = 4;

/// Returns the errno that a line states: in words, by name, or as `errno 12`, `error=14`.
#[must_use]
pub fn errno(line: &str) -> Option<CallError> {
    let by_words = ERRORS.iter().find(|error| line.contains(error.words)).copied();
    let by_name = || ERRORS.iter().find(|error| line.contains(error.name)).copied();
    let number = || {
        BEFORE_NUMBER.iter().find_map(|token| {
            let rest = line.split_once(token)?.1;
            let rest = rest.trim_start_matches([' ', ':', '=', '-', '(', '[']);
            let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..end].parse().ok()?;
            // Programs return -1 for any failure, and small numbers for their own steps.
            (token.starts_with("errno") || number > LARGEST_STEP).then_some(())?;
            CallError::of_number(number)
        })
    };
    by_words.or_else(by_name).or_else(number)
}

/// Kinds of calls that fail for the same causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallKind {
    /// Registrations of memory.
    Register,
    /// Creations of queues and other objects.
    Create,
    /// Opening a device, and what a process needs once for it.
    Open,
    /// Moves of queue pairs.
    Modify,
    /// Moves of queue pairs from RESET to INIT.
    Init,
    /// Address handles, and addresses that librdmacm resolves.
    Address,
    /// Destructions and deregistrations.
    Destroy,
    /// Posts of requests and receives.
    Post,
    /// A device that a user-space driver could not take into use.
    Probe,
    /// First calls of librdmacm, which need devices.
    Devices,
    /// Connections by librdmacm that were not made.
    Connect,
    /// Connections of a program that ended with requests outstanding.
    Ended,
    /// Rules for packets (`ibv_create_flow`).
    Flow,
    /// Any other call.
    Other,
}

impl CallKind {
    /// Returns the kind of a call by its name.
    #[must_use]
    pub fn of(call: &str) -> CallKind {
        let has = |word: &str| call.contains(word);
        match call {
            _ if has("dereg") || has("destroy") || has("dealloc") || has("free") => {
                CallKind::Destroy
            }
            _ if has("create_flow") => CallKind::Flow,
            _ if has("reg_") && has("mr") || has("umem_reg") => CallKind::Register,
            _ if has("open_device") || has("alloc_uar") || has("devx_uar") => CallKind::Open,
            _ if has("modify_qp") || has("qp_modify") => CallKind::Modify,
            _ if has("create_ah") || has("resolve_") => CallKind::Address,
            _ if has("rdma_create_event_channel") || has("rdma_getaddrinfo") => CallKind::Devices,
            _ if has("rdma_connect") || has("rdma_accept") || has("RDMA_CM_EVENT") => {
                CallKind::Connect
            }
            _ if has("post_") => CallKind::Post,
            _ if has("probe") => CallKind::Probe,
            _ if has("create") || has("alloc") => CallKind::Create,
            _ => CallKind::Other,
        }
    }
}

macro_rules! because {
    ($meaning:literal: $($cause:expr),+ $(,)?) => {
        Explanation { meaning: $meaning, causes: &[$($cause),+] }
    };
}

/// Returns the meaning and the causes of a kind of call that failed with an errno, or with one that
/// is not printed.
#[must_use]
pub fn explain(kind: CallKind, error: Option<CallError>) -> Explanation {
    let name = error.map_or("", CallError::name);
    let of_kind = match kind {
        CallKind::Register => register(name),
        CallKind::Create => create(name),
        CallKind::Open => open(name),
        CallKind::Modify => modify(name),
        CallKind::Init => init(name),
        CallKind::Address => address(name),
        CallKind::Destroy => destroy(name),
        CallKind::Post => post(name),
        CallKind::Probe => probe(name),
        CallKind::Devices => devices(name),
        CallKind::Connect => connect(name),
        CallKind::Ended => ended(name),
        CallKind::Flow => flow(name),
        CallKind::Other => None,
    };
    of_kind.unwrap_or_else(|| by_error(name))
}

fn register(error: &str) -> Option<Explanation> {
    Some(match error {
        "EAGAIN" => because! {
            "The HCA has no more memory keys, or the memory could not be pinned.":
            refusal::KEYS_USED_UP, refusal::MEMLOCK, refusal::CGROUP, reason::OLD_SOFTWARE,
        },
        "ENOMEM" => because! {
            "The memory could not be pinned, or the HCA has no more memory keys.":
            refusal::MEMLOCK, refusal::CGROUP, refusal::IOMMU_SPACE, refusal::KEYS_USED_UP,
            refusal::GPU_SPACE, reason::OLD_SOFTWARE,
        },
        "EFAULT" => because! {
            "A page of the memory cannot be pinned.":
            refusal::NO_PEERMEM, refusal::NO_PEERMEM_AMD, refusal::UNMAPPED, refusal::GPU_KIND,
            reason::OLD_SOFTWARE,
        },
        "EOPNOTSUPP" | "EINVAL" | "ENOTSUPP" => because! {
            "The kernel, a driver or the HCA does not take this registration.":
            refusal::REGISTRATION_UNSUPPORTED, refusal::GPU_KIND, refusal::NO_PEERMEM,
            refusal::NO_PEERMEM_AMD,
            reason::OLD_SOFTWARE,
        },
        "EPROTONOSUPPORT" => because! {
            "The kernel does not know this kind of registration.":
            refusal::KERNEL_LACKS, refusal::REGISTRATION_UNSUPPORTED,
        },
        "" => because! {
            "Memory could not be registered; the errno is not printed.":
            refusal::MEMLOCK, refusal::NO_PEERMEM, refusal::NO_PEERMEM_AMD, refusal::UNMAPPED,
        },
        _ => return None,
    })
}

fn create(error: &str) -> Option<Explanation> {
    Some(match error {
        "ENOMEM" | "EAGAIN" => because! {
            "The object's memory could not be had.":
            refusal::MEMLOCK, refusal::LONG_QUEUES, refusal::MANY_OBJECTS, refusal::UAR_SPACE,
            refusal::SMALL_BUFFERS,
        },
        "EBUSY" | "ENOSPC" => because! {
            "The device has no room for another object.":
            refusal::MANY_OBJECTS, refusal::LONG_QUEUES,
        },
        "EINVAL" => because! {
            "The kernel or the HCA does not take the attributes.":
            refusal::BEYOND_DEVICE, reason::OLD_SOFTWARE, refusal::REFUSED,
        },
        "" => because! {
            "The object could not be made; the errno is not printed.":
            refusal::BEYOND_DEVICE, refusal::MEMLOCK, refusal::NO_CAPABILITY, refusal::REFUSED,
            refusal::SMALL_BUFFERS,
        },
        _ => return None,
    })
}

fn flow(error: &str) -> Option<Explanation> {
    Some(match error {
        "EEXIST" => because! {
            "A rule for the same packets is there already, with another flow tag or action.":
            refusal::FLOW_TWICE,
        },
        "EPERM" | "EACCES" => because! {
            "The process may not make rules for packets.": refusal::NO_CAPABILITY,
        },
        "EINVAL" | "EOPNOTSUPP" | "ENOTSUPP" => because! {
            "The kernel or the HCA does not take the rule.":
            refusal::FLOW_KIND, reason::OLD_SOFTWARE, refusal::REFUSED,
        },
        "ENOMEM" | "ENOSPC" | "EAGAIN" => because! {
            "The device has no room for another rule.": refusal::MANY_OBJECTS, refusal::REFUSED,
        },
        "" => because! {
            "The rule was not taken; the errno is not printed.":
            refusal::NO_CAPABILITY, refusal::FLOW_TWICE, refusal::FLOW_KIND,
        },
        _ => return None,
    })
}

fn open(error: &str) -> Option<Explanation> {
    Some(match error {
        "ENOMEM" | "EAGAIN" => because! {
            "The process could not get its part of the HCA.":
            refusal::UAR_SPACE, refusal::MEMLOCK,
        },
        "EACCES" | "EPERM" | "ENOENT" | "" => because! {
            "The process cannot use the device.":
            refusal::NO_ACCESS, refusal::NO_CAPABILITY, refusal::NO_MODULES,
        },
        _ => return None,
    })
}

fn modify(error: &str) -> Option<Explanation> {
    Some(match error {
        "ETIMEDOUT" | "EHOSTUNREACH" => because! {
            "The peer's address could not be resolved when the queue pair was moved to RTR.":
            refusal::NO_ANSWER, refusal::RAILS, refusal::EMPTY_GID,
        },
        "ENETUNREACH" => because! {
            "There is no route to the peer's GID from this port.":
            refusal::EMPTY_GID, refusal::NO_GRH, refusal::CONTAINER_GID, refusal::RAILS,
        },
        "ENODATA" | "ENODEV" => because! {
            "There is no route to the peer's GID from this port.":
            refusal::EMPTY_GID, refusal::CONTAINER_GID, refusal::RAILS,
        },
        "EINVAL" => because! {
            "The kernel or the HCA does not take the attributes.":
            refusal::EMPTY_GID, refusal::BAD_ATTRIBUTE, refusal::RAILS, refusal::NO_GRH,
            reason::OLD_SOFTWARE,
        },
        "" => because! {
            "The queue pair could not be moved to its next state; the errno is not printed.":
            refusal::EMPTY_GID, refusal::NO_GRH, refusal::BAD_ATTRIBUTE, refusal::NO_ANSWER,
            refusal::CONTAINER_GID,
        },
        _ => return None,
    })
}

/// Causes of a move from RESET to INIT, which takes no address of a peer.
fn init(error: &str) -> Option<Explanation> {
    Some(match error {
        "EINVAL" | "" => because! {
            "The kernel or the HCA does not take the attributes of the move to INIT.":
            refusal::INIT_ATTRIBUTE, reason::OLD_SOFTWARE, refusal::REFUSED,
        },
        _ => return None,
    })
}

fn address(error: &str) -> Option<Explanation> {
    Some(match error {
        "ECONNRESET" => return connect(error),
        "ETIMEDOUT" | "EHOSTUNREACH" => because! {
            "The peer's address could not be resolved.":
            refusal::NO_ANSWER, refusal::EMPTY_GID, refusal::RAILS,
        },
        "ENODATA" | "ENETUNREACH" | "ENODEV" => because! {
            "There is no route to the peer's address from this port.":
            refusal::EMPTY_GID, refusal::CONTAINER_GID, refusal::RAILS,
        },
        "EINVAL" => because! {
            "The kernel or the HCA does not take the address.":
            refusal::EMPTY_GID, refusal::NO_GRH, reason::OLD_SOFTWARE,
        },
        "" => because! {
            "The address was not taken or not resolved; the errno is not printed.":
            refusal::EMPTY_GID, refusal::NO_ANSWER, refusal::NO_GRH, reason::OLD_SOFTWARE,
        },
        _ => return None,
    })
}

fn destroy(error: &str) -> Option<Explanation> {
    Some(match error {
        "EBUSY" => because! { "Another object stands on it.": refusal::IN_USE },
        "" => because! {
            "The object could not be destroyed; the errno is not printed.":
            refusal::IN_USE, refusal::RESETTING,
        },
        _ => return None,
    })
}

fn post(error: &str) -> Option<Explanation> {
    Some(match error {
        "ENOMEM" | "EAGAIN" | "ENAMETOOLONG" | "ENOSPC" => because! {
            "The queue does not take another request.":
            refusal::QUEUE_FULL, refusal::QP_IN_ERROR,
        },
        "EINVAL" => because! {
            "The request does not fit the queue pair.":
            refusal::QUEUE_FULL, reason::NO_OPERATION, refusal::QP_IN_ERROR,
        },
        "" => because! {
            "The request was not taken; the errno is not printed.":
            refusal::QUEUE_FULL, refusal::QP_IN_ERROR, reason::NO_OPERATION,
        },
        _ => return None,
    })
}

fn probe(error: &str) -> Option<Explanation> {
    Some(match error {
        "ENOENT" | "ENODEV" => because! {
            "The driver did not find the device's verbs device or network interface.":
            refusal::NO_NETDEV, refusal::NO_MODULES, refusal::NO_ACCESS,
        },
        "EPERM" | "EACCES" => because! {
            "The process may not use the device.":
            refusal::NO_CAPABILITY, refusal::NO_ACCESS, reason::OLD_SOFTWARE,
        },
        "EOPNOTSUPP" | "ENOSYS" => because! {
            "The kernel's driver, rdma-core or the firmware lacks what this driver needs.":
            reason::OLD_SOFTWARE, refusal::NO_MODULES, refusal::FEATURE_OFF, refusal::ROCE_LAG,
        },
        "ENOMEM" => because! {
            "There was no memory for the device's objects.":
            refusal::MEMLOCK, refusal::HUGE_PAGES, refusal::UAR_SPACE,
        },
        "EBUSY" => because! { "The device is in use.": refusal::IN_USE, refusal::ROCE_LAG },
        "" => because! {
            "The driver could not take the device into use; the errno is not printed.":
            refusal::NO_MODULES, refusal::ROCE_LAG, refusal::NO_NETDEV, refusal::NO_CAPABILITY,
        },
        _ => because! {
            "The driver could not take the device into use.":
            reason::OLD_SOFTWARE, refusal::REFUSED, refusal::NO_CAPABILITY,
        },
    })
}

fn devices(error: &str) -> Option<Explanation> {
    matches!(error, "" | "ENODEV" | "ENOENT" | "ENOSYS").then(|| {
        because! {
            "librdmacm found no device that it can use.":
            refusal::NO_MODULES, refusal::NO_PROVIDER, refusal::NO_ACCESS, refusal::NO_NETDEV,
        }
    })
}

fn connect(error: &str) -> Option<Explanation> {
    Some(match error {
        "ECONNRESET" => because! {
            "The connection was not made. Linux's storage drivers give this number for every failed event of it.":
            refusal::NO_WAY, refusal::NO_LISTENER, refusal::NO_RDMA_ADDRESS, refusal::NO_ANSWER,
            refusal::REFUSED_BY_PROGRAM,
        },
        "ECONNREFUSED" => because! {
            "The peer refused the connection.":
            refusal::NO_LISTENER, refusal::REFUSED_BY_PROGRAM, refusal::STALE_CONNECTION,
        },
        "ETIMEDOUT" | "EHOSTUNREACH" | "" => because! {
            "The peer did not answer the request to connect.":
            refusal::NO_ANSWER, refusal::NO_LISTENER, reason::PEER_GONE,
        },
        "ENODEV" | "ENETUNREACH" | "EADDRNOTAVAIL" => because! {
            "No RDMA device of this host has a path to the peer's address.":
            refusal::NO_RDMA_ADDRESS, refusal::NO_NETDEV, refusal::NO_MODULES,
        },
        _ => return None,
    })
}

fn ended(error: &str) -> Option<Explanation> {
    matches!(error, "" | "ENXIO" | "EIO").then(|| {
        because! {
            "The connection ended, and its outstanding requests were given back.":
            reason::PEER_CLOSED, reason::EARLIER_FAILURE, reason::PEER_GONE, reason::CLOSED,
        }
    })
}

/// Returns what an errno means after any call.
fn by_error(error: &str) -> Explanation {
    match error {
        "EACCES" | "EPERM" => because! {
            "The process may not do that.": refusal::NO_ACCESS, refusal::NO_CAPABILITY,
        },
        "EREMOTEIO" => because! { "Firmware refused the command.": refusal::SYNDROME_IN_LOG },
        "ECANCELED" | "ETIMEDOUT" => because! {
            "Firmware did not answer, or the driver has stopped the device.":
            refusal::FIRMWARE_HANGS,
        },
        "ENODEV" | "EIO" => because! {
            "The device does not answer or is being reset.": refusal::RESETTING,
        },
        "EPROTONOSUPPORT" => because! {
            "The kernel does not know this call: ib_uverbs answers so to a method or an attribute that it does not have.":
            refusal::KERNEL_LACKS,
        },
        "EOPNOTSUPP" | "ENOTSUPP" | "ENOSYS" => because! {
            "HCA, firmware or kernel does not have this.": refusal::FEATURE_OFF,
        },
        "" => because! { "The call failed; the errno is not printed.": refusal::REFUSED },
        _ => because! { "The call failed.": refusal::REFUSED },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_in_words_by_name_and_as_numbers() {
        let name = |line| errno(line).map(CallError::name);
        assert_eq!(name("failed: Cannot allocate memory"), Some("ENOMEM"));
        assert_eq!(name("failed with error ENODATA"), Some("ENODATA"));
        assert_eq!(name("failed, errno: 110"), Some("ETIMEDOUT"));
        assert_eq!(name("Couldn't allocate MR with error=14"), Some("EFAULT"));
        assert_eq!(name("ib_post_send() failed -12"), Some("ENOMEM"));
        assert_eq!(name("failed with rc=-22"), Some("EINVAL"));
        assert_eq!(name("returned error 12"), Some("ENOMEM"));
        assert_eq!(name("failed: 110"), Some("ETIMEDOUT"));
        assert_eq!(name("failed (95)"), Some("EOPNOTSUPP"));
        assert_eq!((name("failed"), name("failed: 0"), name("error 0x16")), (None, None, None));
        for error in ERRORS {
            let words = std::io::Error::from_raw_os_error(error.number).to_string();
            assert!(words.starts_with(error.words), "{words}");
            let kinds = [CallKind::Register, CallKind::Modify, CallKind::Address, CallKind::Probe];
            let more = [
                CallKind::Devices,
                CallKind::Create,
                CallKind::Connect,
                CallKind::Ended,
                CallKind::Other,
            ];
            for kind in kinds.into_iter().chain(more) {
                assert!(!explain(kind, Some(*error)).causes.is_empty());
                assert!(explain(kind, Some(*error)).meaning.ends_with('.'));
            }
        }
    }

    #[test]
    fn calls_are_sorted_by_their_names() {
        for (call, kind) in [
            ("ibv_reg_mr_iova2", CallKind::Register),
            ("ibv_dereg_mr", CallKind::Destroy),
            ("ibv_reg_dmabuf_mr", CallKind::Register),
            ("mlx5dv_devx_umem_reg_ex", CallKind::Register),
            ("ibv_create_cq", CallKind::Create),
            ("ibv_dealloc_pd", CallKind::Destroy),
            ("rdma_create_qp", CallKind::Create),
            ("ibv_create_ah", CallKind::Address),
            ("rdma_resolve_addr", CallKind::Address),
            ("mlx5dv_devx_qp_modify", CallKind::Modify),
            ("mlx5dv_devx_alloc_uar", CallKind::Open),
            ("ibv_post_recv", CallKind::Post),
            ("rdma_connect", CallKind::Connect),
            ("RDMA_CM_EVENT_REJECTED", CallKind::Connect),
            ("ibv_query_gid", CallKind::Other),
        ] {
            assert_eq!(CallKind::of(call), kind, "{call}");
        }
    }
}
