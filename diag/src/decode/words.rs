//! Statuses written in words.

use crate::explain::Status;
use crate::explain::status::STATUSES;

/// Spellings of statuses by libibverbs (`ibv_wc_status_str`), the kernel (`ib_wc_status_msg`), Open
/// MPI and others, in lower case. A longer spelling comes before each that it contains.
const WORDS: &[(&str, Status)] = &[
    ("local length error", Status::LocalLength),
    ("local qp operation error", Status::LocalQpOperation),
    ("local protection error", Status::LocalProtection),
    ("work request flushed error", Status::Flushed),
    ("work request flushed", Status::Flushed),
    ("wr flushed", Status::Flushed),
    ("memory management operation error", Status::MemoryWindowBind),
    ("memory bind operation error", Status::MemoryWindowBind),
    ("memory window bind error", Status::MemoryWindowBind),
    ("bad response error", Status::BadResponse),
    ("local access error", Status::LocalAccess),
    ("remote invalid request error", Status::RemoteInvalidRequest),
    ("remote access error", Status::RemoteAccess),
    ("remote operation error", Status::RemoteOperation),
    ("rnr retry counter exceeded", Status::RnrRetriesExceeded),
    ("rnr retry exceeded error", Status::RnrRetriesExceeded),
    ("receive-no-ready retry count exceeded", Status::RnrRetriesExceeded),
    ("receiver not ready retry exceeded error", Status::RnrRetriesExceeded),
    ("transport retry counter exceeded", Status::RetriesExceeded),
    ("transport retry count exceeded", Status::RetriesExceeded),
    ("retry exceeded error", Status::RetriesExceeded),
    ("aborted error", Status::RemoteAborted),
    ("remote aborted", Status::RemoteAborted),
];

/// Identifiers of statuses in bindings of other languages, in lower case without `_`: the names of
/// `ibv_wc_status` without their prefix, and the names that Rust crates give them.
const IDENTIFIERS: &[(&str, Status)] = &[
    ("loclenerr", Status::LocalLength),
    ("locallengtherror", Status::LocalLength),
    ("locqpoperr", Status::LocalQpOperation),
    ("localqpoperationerror", Status::LocalQpOperation),
    ("localqueuepairoperationerror", Status::LocalQpOperation),
    ("locproterr", Status::LocalProtection),
    ("localprotectionerror", Status::LocalProtection),
    ("wrflusherr", Status::Flushed),
    ("workrequestflushederror", Status::Flushed),
    ("mwbinderr", Status::MemoryWindowBind),
    ("memorywindowbinderror", Status::MemoryWindowBind),
    ("badresperr", Status::BadResponse),
    ("badresponseerror", Status::BadResponse),
    ("locaccesserr", Status::LocalAccess),
    ("localaccesserror", Status::LocalAccess),
    ("reminvreqerr", Status::RemoteInvalidRequest),
    ("remoteinvalidrequesterror", Status::RemoteInvalidRequest),
    ("remaccesserr", Status::RemoteAccess),
    ("remoteaccesserror", Status::RemoteAccess),
    ("remoperr", Status::RemoteOperation),
    ("remoteoperationerror", Status::RemoteOperation),
    ("retryexcerr", Status::RetriesExceeded),
    ("retrycounterexceedederror", Status::RetriesExceeded),
    ("rnrretryexcerr", Status::RnrRetriesExceeded),
    ("respondernotreadyretrycounterexceedederror", Status::RnrRetriesExceeded),
    ("remaborterr", Status::RemoteAborted),
    ("remoteabortederror", Status::RemoteAborted),
];

/// Returns the status that a line names, by `ibv_wc_status`, in words or by an identifier.
pub(super) fn status(line: &str) -> Option<Status> {
    let lower = line.to_ascii_lowercase();
    by_name(line).or_else(|| in_words(&lower).map(|(_, _, status)| status)).or_else(|| {
        let (_, status) = identifier(line)?;
        Some(status)
    })
}

/// Returns the place of the status that a line names.
pub(super) fn place(line: &str) -> Option<usize> {
    let by_name = by_name(line).and_then(|_| line.find("IBV_WC_").or_else(|| line.find("IB_WC_")));
    let lower = line.to_ascii_lowercase();
    let words = WORDS.iter().filter_map(|(words, _)| lower.find(words)).min();
    by_name.or(words).or_else(|| identifier(line).map(|(place, _)| place))
}

/// Returns the text after a status in words, if the status's own number stands beside them: "12
/// (transport retry counter exceeded)", "remote access error (10)", "WR flushed 5". Prose has no
/// such number.
pub(super) fn numbered(lower: &str) -> Option<&str> {
    let (from, to, status) = in_words(lower)?;
    let number = status.wc_status().to_string();
    let (before, behind) = (&lower[..from], &lower[to..]);
    let before = before.trim_end_matches([' ', '(', ':', '[', ',', '=', '-', '"', '\'']);
    let digits = before.len() - before.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
    if before[before.len() - digits..] == number {
        return Some(behind);
    }
    let behind = behind.trim_start_matches([' ', '(', ':', '[', ',', '=', '"', '\'']);
    let rest = behind.strip_prefix(number.as_str())?;
    (!rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '.')).then_some(rest)
}

/// Names of syndromes in `mlx5dv.h` and DPDK's and VPP's headers, without `MLX5_CQE_SYNDROME_`.
const SYNDROMES: [(&str, Status); 13] = [
    ("LOCAL_LENGTH_ERR", Status::LocalLength),
    ("LOCAL_QP_OP_ERR", Status::LocalQpOperation),
    ("LOCAL_PROT_ERR", Status::LocalProtection),
    ("WR_FLUSH_ERR", Status::Flushed),
    ("MW_BIND_ERR", Status::MemoryWindowBind),
    ("BAD_RESP_ERR", Status::BadResponse),
    ("LOCAL_ACCESS_ERR", Status::LocalAccess),
    ("REMOTE_INVAL_REQ_ERR", Status::RemoteInvalidRequest),
    ("REMOTE_ACCESS_ERR", Status::RemoteAccess),
    ("REMOTE_OP_ERR", Status::RemoteOperation),
    ("TRANSPORT_RETRY_EXC_ERR", Status::RetriesExceeded),
    ("RNR_RETRY_EXC_ERR", Status::RnrRetriesExceeded),
    ("REMOTE_ABORTED_ERR", Status::RemoteAborted),
];

/// Returns the status whose syndrome a line names, as `MLX5_CQE_SYNDROME_LOCAL_PROT_ERR`.
pub(super) fn syndrome(line: &str) -> Option<Status> {
    let (_, name) = line.split_once("CQE_SYNDROME_")?;
    let (_, status) = SYNDROMES.iter().find(|(known, _)| name.starts_with(known))?;
    Some(*status)
}

fn by_name(line: &str) -> Option<Status> {
    if let Some(status) = syndrome(line) {
        return Some(status);
    }
    if !line.contains("IBV_WC_") && !line.contains("IB_WC_") {
        return None;
    }
    let by_name = STATUSES.into_iter().find(|status| {
        let kernel = &status.name()["IBV".len()..];
        names(line, status.name()) || names(line, &format!("IB{kernel}"))
    });
    by_name.or_else(|| names(line, "IBV_WC_GENERAL_ERR").then_some(Status::General(0)))
}

/// Returns the first status in words: its place, its end, and the status. The line is in lower case.
fn in_words(lower: &str) -> Option<(usize, usize, Status)> {
    WORDS.iter().find_map(|(words, status)| {
        let from = lower.find(words)?;
        Some((from, from + words.len(), *status))
    })
}

/// Returns the first identifier of a status, with its place.
fn identifier(line: &str) -> Option<(usize, Status)> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    line.split(|letter| !is_part(letter)).find_map(|word| {
        // Shorter words are none of them, and most words are shorter.
        if word.len() < 8 {
            return None;
        }
        let plain: String = word.chars().filter(|letter| *letter != '_').collect();
        let plain = plain.to_ascii_lowercase();
        let (_, status) = IDENTIFIERS.iter().find(|(name, _)| *name == plain)?;
        Some((word.as_ptr() as usize - line.as_ptr() as usize, *status))
    })
}

/// Returns whether `name` occurs, and not as the start of a longer name.
fn names(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let next = line[at + name.len()..].chars().next();
        !next.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_known_by_name_and_in_words() {
        assert_eq!(status("failed: IBV_WC_REM_OP_ERR (11)"), Some(Status::RemoteOperation));
        assert_eq!(status("status IB_WC_WR_FLUSH_ERR"), Some(Status::Flushed));
        assert_eq!(status("IBV_WC_GENERAL_ERR"), Some(Status::General(0)));
        assert_eq!(status("IBV_WC_SUCCESS"), None);
        assert_eq!(status("Transport retry counter exceeded"), Some(Status::RetriesExceeded));
        assert_eq!(status("RNR retry counter exceeded"), Some(Status::RnrRetriesExceeded));
        assert_eq!(status("all is well"), None);
        for known in STATUSES {
            assert_eq!(status(known.name()), Some(known));
            assert!(WORDS.iter().any(|(_, status)| *status == known), "{known}");
            let bare = known.name().strip_prefix("IBV_WC_").expect("a prefix");
            assert_eq!(status(&format!("status {bare}")), Some(known), "{bare}");
        }
        // A check of success that failed, with the status in words.
        assert_eq!(status("== IBV_WC_SUCCESS) remote access error"), Some(Status::RemoteAccess));
        let line = "left: RetryCounterExceededError";
        assert_eq!((status(line), place(line)), (Some(Status::RetriesExceeded), Some(6)));
        assert_eq!(status("a HttpRetryExcErrors"), None);
    }

    #[test]
    fn the_number_of_a_status_beside_its_words_is_found() {
        for (line, rest) in [
            ("status 12 (transport retry counter exceeded) x", ") x"),
            ("12: transport retry counter exceeded", ""),
            ("transport retry counter exceeded 12 139 129", " 139 129"),
            ("status='wr flushed (5)' opcode", ")' opcode"),
        ] {
            assert_eq!(numbered(line), Some(rest), "{line}");
        }
        for line in [
            "transport retry counter exceeded 129",
            "remote access error after 10 s",
            "112 transport retry counter exceeded",
            "remote access error 10.0.0.1",
            "",
        ] {
            assert_eq!(numbered(line), None, "{line}");
        }
    }
}
