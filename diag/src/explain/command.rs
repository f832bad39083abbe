//! Reasons why firmware refuses commands.

use mlx5_sys::ifc::{opcode, status};

use super::{Explanation, Knowledge, explanation};

/// Returns the meaning and the causes of a status; `None` if it is not known.
///
/// Meanings are those of Linux's `cmd_status_str` (`mlx5/core/cmd.c`).
#[must_use]
pub const fn explain(code: u8) -> Option<Explanation> {
    Some(match code {
        status::OK => explanation! { "The command was done."; },
        status::INT_ERR => explanation! {
            "Something in the firmware failed.";
            "an error of the firmware" => "look into the kernel's log for a health report; update the firmware";
        },
        status::BAD_OP_ERR => explanation! {
            "The HCA has no such command, or not in this state.";
            "the firmware or the HCA does not have the feature"
                => "look at the capabilities (`mlx5 info`); update the firmware";
            "the object is in a state in which the command is not allowed"
                => "query the object's state first";
        },
        status::BAD_PARAM_ERR => explanation! {
            "A field of the command has a value that the HCA does not take.";
            "a field is out of the range that the capabilities give"
                => "decode the command and compare its fields with the capabilities";
            "a reserved field is not zero, or two fields contradict each other"
                => "clear the command before its fields are set";
            "the driver is newer than the firmware" => "update the firmware";
        },
        status::BAD_SYS_STATE_ERR => explanation! {
            "The HCA or the function is in a state in which the command is not allowed.";
            "the function is being reset, or was not initialized"
                => "look into the kernel's log; load the driver anew";
        },
        status::BAD_RES_ERR => explanation! {
            "An object that the command names does not exist, or belongs to somebody else.";
            "the object was destroyed already, or never made" => "keep objects until their users are gone";
            "the object belongs to another user context (uid)" => "name objects of the same context only";
            "the function may not touch it, as a register of another function"
                => "ask from the function that owns it";
        },
        status::RES_BUSY => explanation! {
            "Another object stands on it.";
            "objects are destroyed in the wrong order" => "destroy what stands on it first";
        },
        status::LIM_ERR => explanation! {
            "A limit of the HCA is reached.";
            "too many objects of that kind, perhaps leaked ones" => "look at `rdma resource show`";
        },
        status::BAD_RES_STATE_ERR => explanation! {
            "The object is not in the state that the command needs.";
            "something still uses the object" => "take it out of use before it is changed or freed";
            "a step before this one failed" => "look for the first command that failed";
        },
        status::IX_ERR => explanation! {
            "An index is out of range.";
            "a number that is not the HCA's, as of a GID table's entry" => "query the size of the table";
        },
        status::NO_RES_ERR => explanation! {
            "The HCA has no resources left.";
            "memory of the HCA (ICM) or objects of that kind are used up"
                => "look at `rdma resource show`; close programs that hold many";
        },
        status::BAD_QP_STATE_ERR => explanation! {
            "The queue pair is not in the state that the command needs.";
            "a move from a state in which it is not, or it failed meanwhile"
                => "query the queue pair, and take it through RESET again";
        },
        status::BAD_PKT_ERR => explanation! {
            "A packet that came with the command was wrong, and was discarded.";
            "a malformed MAD" => "look at what is sent to the port's management agent";
        },
        status::BAD_SIZE_OUTS_CQES_ERR => explanation! {
            "More CQEs are outstanding than the new size takes.";
            "a CQ is made smaller than what is in it" => "poll it first";
        },
        status::BAD_INP_LEN_ERR => explanation! {
            "The command is too short or too long.";
            "a list is shorter than a field says, or layout and firmware are of different versions"
                => "compare the length with the layout, and list lengths with their counts";
        },
        status::BAD_OUTP_LEN_ERR => explanation! {
            "There is too little room for the reply.";
            "the buffer is shorter than the layout" => "give it the whole layout's size";
        },
        _ => return None,
    })
}

/// The errno that Linux turns a status into (`cmd_status_to_err`), by name.
#[must_use]
pub const fn errno(code: u8) -> Option<&'static str> {
    Some(match code {
        status::OK => return None,
        status::INT_ERR
        | status::BAD_SYS_STATE_ERR
        | status::BAD_INP_LEN_ERR
        | status::BAD_OUTP_LEN_ERR => "EIO",
        status::BAD_OP_ERR
        | status::BAD_PARAM_ERR
        | status::BAD_RES_ERR
        | status::BAD_RES_STATE_ERR
        | status::IX_ERR
        | status::BAD_QP_STATE_ERR
        | status::BAD_PKT_ERR
        | status::BAD_SIZE_OUTS_CQES_ERR => "EINVAL",
        status::RES_BUSY => "EBUSY",
        status::LIM_ERR => "ENOMEM",
        status::NO_RES_ERR => "EAGAIN",
        _ => return None,
    })
}

/// A command's syndrome of which something is publicly known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSyndrome {
    /// The syndrome. Firmware versions may number them differently.
    pub syndrome: u32,
    /// Opcode of the command that it was met with.
    pub opcode: u16,
    /// How much is known of it.
    pub knowledge: Knowledge,
    /// The meaning, or the circumstances in which it was seen.
    pub what: &'static str,
    /// The source.
    pub source: &'static str,
}

macro_rules! syndromes {
    ($($syndrome:literal $opcode:ident $knowledge:ident $what:literal $source:literal;)*) => {
        /// Every syndrome of commands of which something public is known, in the order of numbers.
        pub const SYNDROMES: &[CommandSyndrome] = &[$(CommandSyndrome {
            syndrome: $syndrome,
            opcode: opcode::$opcode,
            knowledge: Knowledge::$knowledge,
            what: $what,
            source: $source,
        }),*];
    };
}

syndromes! {
    0x05fa1c CREATE_GENERAL_OBJECT Told
        "the memory of a virtio queue was not mapped any more when the queue was made again"
        "https://lore.kernel.org/r/1676424640-11673-1-git-send-email-si-wei.liu@oracle.com";
    0x179e84 DEALLOC_PACKET_REFORMAT_CONTEXT Told
        "a rule still uses the header that is freed"
        "https://git.kernel.org/torvalds/c/6b5926eb1c034affff3fb44a98cb8c67153847d8";
    0x1ab444 DEALLOC_MODIFY_HEADER_CONTEXT Told
        "a rule still uses the actions that are freed"
        "https://git.kernel.org/torvalds/c/6b5926eb1c034affff3fb44a98cb8c67153847d8";
    0x2c4154 CREATE_QP Met
        "a parallel program made queue pairs by command; newer firmware, or queue pairs by verbs, were advised"
        "https://github.com/openucx/ucx/issues/10451";
    0x35e6ec CREATE_MKEY Met
        "NVMe over RDMA asked for keys with signatures; NVIDIA's known issue 3735400 was named as the same"
        "https://github.com/openucx/ucx/issues/9488";
    0x38a711 CREATE_MKEY Told
        "the page size of the key is larger than the capabilities allow"
        "https://lore.kernel.org/r/eab4eeb4785105a4bb5eb362dc0b3662cd840412.1751979184.git.leon@kernel.org";
    0x4bb88f RTR2RTS_QP Met
        "queue pairs could not be moved to RTS on new machines; no cause was found"
        "https://github.com/charmplusplus/charm/issues/2532";
    0x65b500 CREATE_QP Met
        "a program made queue pairs until the HCA gave no more, at half of max_qp or nearly all of it"
        "https://lore.kernel.org/linux-rdma/CY5PR11MB65342B7EDE1F12E1012ACC09DDB99@CY5PR11MB6534.namprd11.prod.outlook.com/";
    0x7d49cb CREATE_LAG Told
        "the bond was made before SR-IOV was switched on, and the driver made it a second time"
        "https://lore.kernel.org/r/20221124081040.171790-4-saeed@kernel.org";
    0x823f8d INIT2RTR_QP Told
        "a field of the context that the program had not set: UCX did not clear it when it made a queue pair for commands"
        "https://github.com/openucx/ucx/pull/10478";
    0xd61c0b CREATE_SQ Told
        "the queue's format of time stamps is not that of the HCA's clock"
        "https://lore.kernel.org/r/20221024115357.37278-7-saeed@kernel.org";
    0xf6db90 CREATE_GENERAL_OBJECT Told
        "the buffers of a virtio queue are smaller than the HCA wants them since its mode was changed"
        "https://git.kernel.org/torvalds/c/abb0dcf9938c93f765abf8cb45567cadef0af6b2";
}

/// Returns what is known of a syndrome. For others, searches of public threads, mails and commits
/// found nothing so far.
#[must_use]
pub fn syndrome(number: u32) -> Option<&'static CommandSyndrome> {
    SYNDROMES.iter().find(|entry| entry.syndrome == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_explained_and_has_an_errno() {
        for (name, code) in status::STATUSES {
            let explanation = explain(*code).unwrap_or_else(|| panic!("{name}"));
            let good = *code == status::OK;
            assert_eq!(
                (explanation.causes.is_empty(), errno(*code).is_none()),
                (good, good),
                "{name}"
            );
        }
        assert_eq!((explain(0x99), errno(0x99)), (None, None));
    }

    #[test]
    fn every_syndrome_names_its_source_and_stands_once() {
        for pair in SYNDROMES.windows(2) {
            assert!(pair[0].syndrome < pair[1].syndrome, "{pair:?}");
        }
        for entry in SYNDROMES {
            assert!(entry.source.starts_with("https://"), "{entry:?}");
            assert!(!entry.what.is_empty() && !entry.what.contains("  "), "{entry:?}");
            assert_eq!(syndrome(entry.syndrome), Some(entry));
        }
        assert_eq!(syndrome(1), None);
    }
}
