//! A line of a trace, as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::filter::Kind;

/// The style of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub json: bool,
    pub verbose: bool,
}

/// An event, ready to print.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The number of the HCA in its process.
    pub card: u8,
    /// Nanoseconds since the stream began.
    pub time: u64,
    pub kind: Kind,
    /// Queue pairs and CQs that it concerns.
    pub qps: Vec<u32>,
    pub cqs: Vec<u32>,
    /// Whether it reports an error.
    pub is_error: bool,
    /// The text. The lines below it have details: always for errors, otherwise on request.
    pub text: String,
    pub more: Vec<String>,
    /// The members for programs, without the members that every line has.
    pub members: Map<String, Value>,
}

/// The process of a line, and the start of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The process, where the text must name it.
    pub process: u32,
    pub is_one_of_several: bool,
    /// Nanoseconds from the start of the trace to the start of the stream.
    pub begins: u64,
}

impl Line {
    /// Creates a line with a kind and no content.
    pub fn new(card: u8, time: u64, kind: Kind) -> Line {
        Line {
            card,
            time,
            kind,
            qps: Vec::new(),
            cqs: Vec::new(),
            is_error: false,
            text: String::new(),
            more: Vec::new(),
            members: Map::new(),
        }
    }

    /// Adds a member for programs.
    pub fn with(&mut self, name: &str, value: impl Into<Value>) -> &mut Line {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Returns the printed line, without a line end.
    pub fn render(&self, place: Place, style: Style) -> String {
        if style.json { self.json(place) } else { self.words(place, style.verbose) }
    }

    fn json(&self, place: Place) -> String {
        let mut object = Map::new();
        let nanoseconds = self.time.saturating_add(place.begins);
        object.insert("time_ns".into(), nanoseconds.into());
        object.insert("process".into(), place.process.into());
        object.insert("device".into(), self.card.into());
        object.insert("kind".into(), self.kind.name().into());
        if self.is_error {
            object.insert("error".into(), true.into());
        }
        object.extend(self.members.clone());
        Value::Object(object).to_string()
    }

    fn words(&self, place: Place, verbose: bool) -> String {
        let seconds = self.time.saturating_add(place.begins) as f64 / 1e9;
        let mut line = format!("{seconds:12.6} ");
        if place.is_one_of_several {
            let _ = write!(line, "[{}] ", place.process);
        }
        if self.card > 0 {
            let _ = write!(line, "mlx5_{} ", self.card);
        }
        let mark = if self.is_error { '!' } else { ' ' };
        let _ = write!(line, "{mark}{:<9} {}", self.kind.name(), self.text);
        if verbose || self.is_error {
            for more in &self.more {
                let _ = write!(line, "\n{:25}{more}", "");
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_damaged_stream_are_shown_and_not_added_beyond_their_range() {
        let place = Place { process: 1, is_one_of_several: false, begins: u64::MAX };
        let line = Line::new(0, 1, Kind::Port);
        for json in [false, true] {
            let text = line.render(place, Style { json, verbose: false });
            assert!(text.contains("18446744073"), "{text}");
        }
    }
}
