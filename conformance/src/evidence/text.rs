//! The file: TOML.

use std::fmt::{self, Display, Formatter};

use super::{Answer, Device, Evidence, FORMAT, Seen, System, Unanswered, Unit};
use crate::report::Bed;

/// The most characters of a text.
const LONGEST: usize = 64;

impl Unit {
    /// Returns its name in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Microseconds => "us",
            Self::Kilohertz => "kHz",
        }
    }
}

impl Unanswered {
    /// Returns its name in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Budget => "no time",
            Self::Failed => "failed",
        }
    }
}

/// A line with a text, of which only characters that need no escape are left.
struct Text<'a>(&'a str, &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_plain = |character: &char| {
            character.is_ascii_alphanumeric() || " .,_+-()/".contains(*character)
        };
        let plain: String = self.1.chars().filter(is_plain).take(LONGEST).collect();
        writeln!(f, "{} = \"{plain}\"", self.0)
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bed = match self.bed {
            Bed::Model => "model",
            Bed::Guest => "guest",
            Bed::Device => "device",
        };
        write!(f, "{}{}", Text("bed", bed), Text("product", &self.product))?;
        if let Some(part) = self.part {
            writeln!(f, "part = {part}")?;
        }
        write!(f, "{}{}", Text("firmware", &self.firmware), Text("link", &self.link))
    }
}

impl Display for System {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let texts = [
            ("distribution", &self.distribution),
            ("kernel", &self.kernel),
            ("rdma-core", &self.rdma_core),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                write!(f, "{}", Text(name, text))?;
            }
        }
        write!(f, "{}", Text("mlx5", &self.version))
    }
}

impl Display for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = match self {
            Self::Bytes(values) => {
                writeln!(f, "unit = \"bytes\"")?;
                let hex = |bytes: &Vec<u8>| -> String {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
                };
                values.iter().map(|bytes| format!("\"{}\"", hex(bytes))).collect()
            }
            Self::Numbers(values, unit) => {
                writeln!(f, "unit = \"{}\"", unit.name())?;
                // Numbers of TOML have a sign.
                values.iter().map(|value| (*value).min(i64::MAX as u64).to_string()).collect()
            }
        };
        writeln!(f, "seen = [{}]", values.join(", "))
    }
}

impl Display for Evidence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# What a device answered to `mlx5 conform --evidence`: one value for each trial.\n\
             # There are no names of hosts or devices, addresses, GUIDs, LIDs or serial numbers in it.\n",
        )?;
        writeln!(f, "format = {FORMAT}\n\n[device]\n{}", self.device)?;
        if let Some(peer) = &self.peer {
            writeln!(f, "[peer]\n{peer}")?;
        }
        write!(f, "[system]\n{}", self.system)?;
        for Answer { question, fact, seen } in &self.answers {
            write!(f, "\n[[answer]]\n{}{}{seen}", Text("question", question), Text("fact", fact))?;
        }
        for (question, why) in &self.unanswered {
            let (question, why) = (Text("question", question), Text("why", why.name()));
            write!(f, "\n[[unanswered]]\n{question}{why}")?;
        }
        Ok(())
    }
}
