//! Statuses written in words.

use crate::explain::Status;
use crate::explain::status::STATUSES;

/// Spellings of statuses by libibverbs (`ibv_wc_status_str`), the kernel (`ib_wc_status_msg`) and
/// others, in lower case.
const WORDS: &[(&str, Status)] = &[
    ("local length error", Status::LocalLength),
    ("local qp operation error", Status::LocalQpOperation),
    ("local protection error", Status::LocalProtection),
    ("work request flushed error", Status::Flushed),
    ("wr flushed", Status::Flushed),
    ("memory management operation error", Status::MemoryWindowBind),
    ("memory bind operation error", Status::MemoryWindowBind),
    ("bad response error", Status::BadResponse),
    ("local access error", Status::LocalAccess),
    ("remote invalid request error", Status::RemoteInvalidRequest),
    ("remote access error", Status::RemoteAccess),
    ("remote operation error", Status::RemoteOperation),
    ("rnr retry counter exceeded", Status::RnrRetriesExceeded),
    ("receive-no-ready retry count exceeded", Status::RnrRetriesExceeded),
    ("transport retry counter exceeded", Status::RetriesExceeded),
    ("transport retry count exceeded", Status::RetriesExceeded),
    ("aborted error", Status::RemoteAborted),
];

/// Returns the status that a line names, by `ibv_wc_status` or in words.
pub(super) fn status(line: &str) -> Option<Status> {
    if line.contains("IBV_WC_") || line.contains("IB_WC_") {
        let by_name = STATUSES.into_iter().find(|status| {
            let kernel = &status.name()["IBV".len()..];
            names(line, status.name()) || names(line, &format!("IB{kernel}"))
        });
        let general = || names(line, "IBV_WC_GENERAL_ERR").then_some(Status::General(0));
        return by_name.or_else(general);
    }
    let lower = line.to_ascii_lowercase();
    WORDS.iter().find(|(words, _)| lower.contains(words)).map(|(_, status)| *status)
}

/// Returns the place of the status that a line names.
pub(super) fn place(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    let in_words = WORDS.iter().filter_map(|(words, _)| lower.find(words)).min();
    line.find("IBV_WC_").or_else(|| line.find("IB_WC_")).or(in_words)
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
        }
    }
}
