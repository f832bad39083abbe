//! Shows a recording by `mlx5 trace`, `mlx5 lint` and `mlx5 replay`. The fuzz target and the test
//! that replays its corpus share it.

use mlx5_model::replay::replay;
use mlx5_model::trace::{ReadError, Reader};

/// Shows a recording by each command.
pub fn shown(stream: &[u8]) {
    let mut lines = [0_usize; 2];
    for json in [false, true] {
        let read = mlx5_tools::trace::lines(stream, json, |line| {
            lines[usize::from(json)] += 1;
            if json {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON");
            }
        });
        read.err().iter().for_each(told);
    }
    assert_eq!(lines[0], lines[1], "lines of text and of JSON");
    for strict in [false, true] {
        match mlx5_tools::lint::recorded(stream, strict) {
            Ok((report, error)) => {
                assert!(!report.to_string().is_empty());
                serde_json::to_string(&report).expect("JSON");
                error.iter().for_each(told);
            }
            Err(error) => told(&error),
        }
    }
    let verdict = Reader::new(stream).and_then(|mut reader| replay(&mut reader));
    match (verdict, mlx5_tools::replay::replayed(stream)) {
        (Ok(_), Ok(report)) => {
            assert!(!report.to_string().is_empty());
            serde_json::to_string(&report).expect("JSON");
        }
        (Err(error), Err(_)) => told(&error),
        (verdict, report) => panic!("{verdict:?}, {:?}", report.err()),
    }
}

/// An error has words.
fn told(error: &ReadError) {
    assert!(!error.to_string().is_empty());
}
