//! Why calls of libibverbs and libmlx5 fail: causes by call and errno.

use super::{Explanation, explanation};

/// An errno of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    name: &'static str,
    number: i32,
    words: &'static str,
}

/// Every errno that these calls return in public reports.
const ERRORS: [CallError; 16] = [
    CallError { name: "EPERM", number: 1, words: "Operation not permitted" },
    CallError { name: "ENOENT", number: 2, words: "No such file or directory" },
    CallError { name: "EIO", number: 5, words: "Input/output error" },
    CallError { name: "EAGAIN", number: 11, words: "Resource temporarily unavailable" },
    CallError { name: "ENOMEM", number: 12, words: "Cannot allocate memory" },
    CallError { name: "EACCES", number: 13, words: "Permission denied" },
    CallError { name: "EFAULT", number: 14, words: "Bad address" },
    CallError { name: "EBUSY", number: 16, words: "Device or resource busy" },
    CallError { name: "ENODEV", number: 19, words: "No such device" },
    CallError { name: "EINVAL", number: 22, words: "Invalid argument" },
    CallError { name: "ENODATA", number: 61, words: "No data available" },
    CallError { name: "EOPNOTSUPP", number: 95, words: "Operation not supported" },
    CallError { name: "ENETUNREACH", number: 101, words: "Network is unreachable" },
    CallError { name: "ETIMEDOUT", number: 110, words: "Connection timed out" },
    CallError { name: "ECANCELED", number: 125, words: "Operation canceled" },
    CallError { name: "EREMOTEIO", number: 121, words: "Remote I/O error" },
];

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
}

/// Returns the errno that a line states: in words, by name, or as `errno 12`, `errno: 12`.
#[must_use]
pub fn errno(line: &str) -> Option<CallError> {
    let by_words = ERRORS.iter().find(|error| line.contains(error.words));
    let by_name = || ERRORS.iter().find(|error| line.contains(error.name));
    let number = || {
        let rest = line.split_once("errno").or_else(|| line.split_once("ret="))?.1;
        let rest = rest.trim_start_matches([' ', ':', '=', '-', '(', '[']);
        let end = rest.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(rest.len());
        let number: i32 = rest[..end].parse().ok()?;
        ERRORS.iter().find(|error| error.number == number)
    };
    by_words.or_else(by_name).or_else(number).copied()
}

/// Returns the meaning and the causes of a call that failed with an errno.
#[must_use]
pub fn explain(call: &str, error: CallError) -> Explanation {
    let registers = call.contains("reg_") && call.contains("mr") || call.contains("umem_reg");
    let creates = call.contains("create") || call.contains("alloc");
    let moves = call.contains("modify_qp") || call.contains("qp_modify");
    match error.name {
        "ENOMEM" if registers => explanation! {
            "The memory could not be pinned, or the HCA has no more memory keys.";
            "the limit of locked memory is too small (RLIMIT_MEMLOCK)"
                => "`ulimit -l unlimited`; containers: --ulimit memlock=-1; services: LimitMEMLOCK=infinity";
            "a container or memory cgroup has less memory than is registered"
                => "raise the limit of the cgroup, or register less";
            "too many regions: the HCA's memory keys are used up" => "look at `rdma resource show mr`";
        },
        "ENOMEM" | "EAGAIN" if creates => explanation! {
            "The object's memory could not be had.";
            "the limit of locked memory is too small (RLIMIT_MEMLOCK)"
                => "`ulimit -l unlimited`; containers: --ulimit memlock=-1; services: LimitMEMLOCK=infinity";
            "too many objects of this kind, or too long queues"
                => "look at `rdma resource show`; make queues shorter; close programs that hold many";
        },
        "EFAULT" if registers => explanation! {
            "A page of the memory cannot be pinned.";
            "the memory is a GPU's, and no module makes it reachable"
                => "load nvidia-peermem (or amdgpu with peer memory), or register by dma-buf";
            "the range is not mapped whole, or not writable while local write was asked for"
                => "compare address and length with /proc/PID/maps";
        },
        "EOPNOTSUPP" | "EINVAL" if registers => explanation! {
            "The kernel or the HCA does not take this registration.";
            "dma-buf, on-demand paging or an access flag is not supported here"
                => "look at the capabilities (`ibv_devinfo -v`); kernel 5.12 and newer have dma-buf";
        },
        "ETIMEDOUT" if moves => explanation! {
            "The peer's address could not be resolved when the queue pair was moved to RTR.";
            "RoCE: no answer to ARP or neighbour discovery: the GID is of an interface without a path to the peer"
                => "ping from that interface's address; choose the GID of a reachable network (`show_gids`)";
            "the ports of one host are in different networks, and a wrong pair was connected"
                => "limit the devices that the program uses; use the same rail on both sides";
        },
        "ENODATA" | "ENETUNREACH" if moves => explanation! {
            "There is no route to the peer's GID from this port.";
            "the GID index is of another address family or network, or empty"
                => "choose the index of a RoCE v2 entry with an address (`show_gids`)";
            "a container sees the GID table of the host, but not its network interface"
                => "give it the interface, or use the host's network";
        },
        "EINVAL" if moves => explanation! {
            "The kernel or the HCA does not take the attributes.";
            "the GID index is empty or the GID is of another kind than the peer's"
                => "compare `show_gids` on both sides";
            "path MTU, number of outstanding READs, service level or P_Key are out of range"
                => "compare with `ibv_devinfo -v`; look for a syndrome in the kernel's log";
        },
        "EACCES" | "EPERM" => explanation! {
            "The process may not do that.";
            "no access to /dev/infiniband/uverbs*" => "look at the node's owner and mode, and at the container's device list";
            "CAP_NET_RAW or CAP_IPC_LOCK is missing" => "give the capability to the program or the container";
        },
        "EREMOTEIO" => explanation! {
            "Firmware refused the command.";
            "the reason is a syndrome in the kernel's log" => "`dmesg | mlx5 decode` on this host";
        },
        "ECANCELED" | "ETIMEDOUT" => explanation! {
            "Firmware did not answer, or the driver has stopped the device.";
            "the firmware hangs: a command timed out" => "look for command time-outs and health lines in the kernel's log; update the firmware";
        },
        "ENODEV" | "EIO" => explanation! {
            "The device does not answer or is being reset.";
            "a health problem or a reset of the HCA" => "look for health lines in the kernel's log";
        },
        "EOPNOTSUPP" => explanation! {
            "HCA, firmware or kernel does not have this.";
            "the feature is off or missing" => "look at the capabilities (`mlx5 info`), and at the firmware's configuration";
        },
        _ => explanation! {
            "The call failed.";
            "the kernel or the HCA refused it" => "look for mlx5_core lines in the kernel's log at that time";
        },
    }
}

/// Returns the meaning and the causes of a call whose errno is not known.
#[must_use]
pub fn without_errno(call: &str) -> Explanation {
    if call.contains("reg_") && call.contains("mr") {
        return explanation! {
            "Memory could not be registered; the errno is not printed.";
            "the limit of locked memory is too small (ENOMEM)" => "`ulimit -l unlimited`; containers: --ulimit memlock=-1";
            "the memory is a GPU's, and no module makes it reachable (EFAULT)" => "load nvidia-peermem, or register by dma-buf";
        };
    }
    if call.contains("dealloc") || call.contains("destroy") || call.contains("dereg") {
        return explanation! {
            "The object could not be destroyed; the errno is not printed.";
            "another object still uses it (EBUSY)" => "destroy objects in the reverse order of their creation";
        };
    }
    if call.contains("modify_qp") {
        return explanation! {
            "The queue pair could not be moved to its next state; the errno is not printed.";
            "the GID index is empty, or the peer's address cannot be resolved" => "compare `show_gids` on both sides; ping the peer from that interface";
        };
    }
    explanation! {
        "The call failed; the errno is not printed.";
        "the kernel or the HCA refused it" => "run it under `strace -e ioctl`; look for mlx5_core lines in the kernel's log";
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
        assert_eq!(name("failed"), None);
        for error in ERRORS {
            let words = std::io::Error::from_raw_os_error(error.number).to_string();
            assert!(words.starts_with(error.words), "{words}");
            assert!(!explain("ibv_reg_mr", error).causes.is_empty());
            assert!(!explain("ibv_modify_qp", error).causes.is_empty());
        }
    }
}
