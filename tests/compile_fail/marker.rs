//! Markers of expected errors, and how errors differ from them.

use crate::compiler::Error;

/// An error that a line has to have.
#[derive(Debug, PartialEq, Eq)]
pub struct Marker {
    line: usize,
    code: String,
    words: Vec<String>,
}

/// The markers of a file.
pub fn markers(source: &str) -> Vec<Marker> {
    let mut markers = Vec::new();
    for (index, text) in source.lines().enumerate() {
        let Some(text) = text.trim_start().strip_prefix("//~") else { continue };
        let rest = text.trim_start_matches('^');
        let up = text.len() - rest.len();
        assert!(up > 0 && up <= index, "line {}: marker without a line above", index + 1);
        let (code, message) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
        assert!(code.starts_with('E'), "line {}: marker without a code", index + 1);
        let words = words(message);
        assert!(!words.is_empty(), "line {}: marker without words", index + 1);
        markers.push(Marker { line: index + 1 - up, code: code.to_owned(), words });
    }
    markers
}

/// Returns missing and unexpected errors, as text that begins with the line number.
pub fn differences(markers: &[Marker], errors: &[Error]) -> Vec<String> {
    let unmarked = errors.iter().filter(|error| !markers.iter().any(|marker| marker.fits(error)));
    let missing = markers.iter().filter(|marker| !errors.iter().any(|error| marker.fits(error)));
    let mut differences: Vec<String> =
        unmarked
            .map(|it| format!("{}: error without a marker: {} {}", it.line, it.code, it.message))
            .chain(missing.map(|it| {
                format!("{}: no such error: {} {}", it.line, it.code, it.words.join(" "))
            }))
            .collect();
    differences.sort();
    differences
}

impl Marker {
    /// Whether `error` is on the line, with the code and with the words in this order.
    fn fits(&self, error: &Error) -> bool {
        let message = words(&error.message);
        let mut rest = message.iter();
        self.line == error.line
            && self.code == error.code
            && self.words.iter().all(|word| {
                let last = format!("::{word}");
                rest.any(|it| it == word || it.ends_with(&last))
            })
    }
}

/// The words of a message without paths, lifetimes, back quotes and punctuation behind them.
fn words(message: &str) -> Vec<String> {
    let plain = message.replace('`', "").replace("<'_>", "").replace("'_, ", "");
    let mut text = String::new();
    let mut rest = plain.as_str();
    while let Some(at) = rest.find("::") {
        let name = rest[..at].trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        text.push_str(name);
        if name.len() == at {
            // What is before is no name, such as the type in `<T>::post`.
            text.push_str("::");
        }
        rest = &rest[at + 2..];
    }
    text.push_str(rest);
    let words = text.split_whitespace().map(|word| word.trim_end_matches([',', ':', ';']));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "one();\n//~^ E0382 use of moved value: qp\n//~^^ E0277 Sge: Payload\n";

    fn error(line: usize, code: &str, message: &str) -> Error {
        Error { line, code: code.to_owned(), message: message.to_owned() }
    }

    fn expected() -> Vec<Error> {
        vec![
            error(1, "E0382", "use of moved value: `qp`: value used here after move"),
            error(1, "E0277", "the trait bound `mlx5::wqe::Sge: a::Payload` is not satisfied"),
        ]
    }

    fn differ(errors: &[Error]) -> Vec<String> {
        differences(&markers(SOURCE), errors)
    }

    #[test]
    fn marked_errors_make_no_difference() {
        assert_eq!(differ(&expected()), [""; 0]);
    }

    #[test]
    fn a_missing_error_is_told() {
        assert_eq!(differ(&expected()[..1]), ["1: no such error: E0277 Sge Payload"]);
    }

    #[test]
    fn an_error_without_a_marker_is_told() {
        let mut errors = expected();
        errors.push(error(3, "E0432", "unresolved import `mlx5::gone`"));
        assert_eq!(
            differ(&errors),
            ["3: error without a marker: E0432 unresolved import `mlx5::gone`"]
        );
    }

    #[test]
    fn another_line_code_or_name_is_another_error() {
        for wrong in [
            error(2, "E0382", "use of moved value: `qp`"),
            error(1, "E0381", "use of moved value: `qp`"),
            error(1, "E0382", "use of moved value: `cq`"),
            error(1, "E0382", "use of moved value: `qp2`"),
        ] {
            let mut errors = expected();
            errors[0] = wrong;
            assert_eq!(differ(&errors).len(), 2, "{:?}", errors[0]);
        }
    }

    #[test]
    fn paths_and_lifetimes_do_not_matter() {
        assert_eq!(
            words("`mlx5::wqe::EthTso<'_, mlx5::wqe::Sge>` of `ring::SendQueue::<T>::post`: no"),
            ["EthTso<Sge>", "of", "<T>::post", "no"]
        );
    }

    #[test]
    #[should_panic(expected = "line 2: marker without words")]
    fn a_marker_without_words_is_refused() {
        markers("one();\n//~^ E0382\n");
    }
}
