//! Requests that the kernel refuses: faults of the program, and probes.

use std::io;

use super::line::Line;

/// Returns why a refused request is a probe: libraries send it to learn what the kernel has, and do
/// without it.
fn probe(request: &str, errno: i32) -> Option<&'static str> {
    match (request, errno) {
        // `cmd_fallback.c` of libibverbs.
        (_, libc::ENOTTY | libc::EPROTONOSUPPORT) => {
            Some("this kernel does not have the request, and libibverbs sends an older form")
        }
        // `mlx5_ib` gives no write-combining page where the processor does not combine. libmlx5 takes
        // a non-cached one then.
        ("UAR_OBJ_ALLOC", libc::EOPNOTSUPP) => {
            Some("this kernel does not give pages of this kind, and libraries take another kind")
        }
        _ => None,
    }
}

/// A sentence of a recording, which may be damaged: on one line.
pub(crate) fn sentence(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, " ")
}

/// Returns whether a refusal has its reason: those of the model do.
pub(crate) fn is_sentence(request: &str) -> bool {
    request.contains(" refused: ")
}

/// Fills a line with a refused request.
pub(super) fn tell(line: &mut Line, request: &str, errno: i32) {
    let reason = io::Error::from_raw_os_error(errno);
    let probe = probe(request, errno);
    line.text = match is_sentence(request) {
        true => format!("{request} ({reason})"),
        false => format!("{request} refused by the kernel: {reason}"),
    };
    if let Some(probe) = probe {
        line.text += &format!("; a probe: {probe}");
    }
    line.with("command", request).with("errno", errno).with("probe", probe.is_some());
    line.is_error = probe.is_none();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::filter::Kind;

    fn told(request: &str, errno: i32) -> (bool, String) {
        let mut line = Line::new(0, 0, Kind::Command);
        tell(&mut line, request, errno);
        (line.is_error, line.text)
    }

    #[test]
    fn a_refusal_of_the_model_has_its_reason() {
        let (is_error, text) = told("ibv_create_cq refused: cqe is 0", libc::EINVAL);
        assert!(is_error && text.starts_with("ibv_create_cq refused: cqe is 0 (Invalid"), "{text}");
    }

    #[test]
    fn a_refusal_that_libraries_expect_is_a_probe_and_no_error() {
        let (is_error, text) = told("UAR_OBJ_ALLOC", libc::EOPNOTSUPP);
        assert!(!is_error && text.contains("UAR_OBJ_ALLOC refused"), "{text}");
        assert!(text.contains("a probe: this kernel does not give pages"), "{text}");
        let (is_error, text) = told("CREATE_CQ", libc::EPROTONOSUPPORT);
        assert!(!is_error && text.contains("an older form"), "{text}");
        for (request, errno) in [
            ("UAR_OBJ_ALLOC", libc::ENOMEM),
            ("REG_MR", libc::EOPNOTSUPP),
            ("CREATE_QP", libc::EINVAL),
        ] {
            let (is_error, text) = told(request, errno);
            assert!(is_error && !text.contains("probe"), "{text}");
        }
    }
}
