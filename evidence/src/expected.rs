//! What the ledger expects as an answer to each question: `tables/questions.csv`.

use crate::seen::{Link, Unit, Values};
use crate::table::Table;

/// The expectations of all questions.
#[derive(Debug)]
pub struct Expectations(Vec<Expected>);

/// What the ledger expects of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The question.
    pub question: String,
    /// The link, if the question asks about another fact on the other.
    pub link: Option<Link>,
    /// The fact.
    pub fact: String,
    /// The unit of an answer.
    pub unit: Unit,
    /// Values that agree with the fact, with `/` between them. Bytes are hexadecimal digits, `..` for any.
    /// Numbers are single ones, or the first and last of a range with `-` between them.
    pub values: String,
}

/// What an answer says of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// More than half of the trials agree with it.
    Agrees,
    /// They do not.
    Contradicts,
}

impl Judgement {
    /// Returns its words in the page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Contradicts => "**contradicts**",
        }
    }
}

impl Expectations {
    /// Reads the table.
    ///
    /// # Panics
    /// The table is not there, or has a link or a unit that no answer has.
    pub fn read() -> Self {
        let table = Table::read("questions");
        let rows = table.rows().map(|row| Expected {
            question: row.text("question").to_owned(),
            link: match row.text("link") {
                "" => None,
                "Ethernet" => Some(Link::Ethernet),
                "InfiniBand" => Some(Link::InfiniBand),
                other => panic!("questions: what is the link {other}?"),
            },
            fact: row.text("fact").to_owned(),
            unit: Unit::named(row.text("unit"))
                .unwrap_or_else(|| panic!("questions: what is the unit {}?", row.text("unit"))),
            values: row.text("expected").to_owned(),
        });
        Self(rows.collect())
    }

    /// Returns all of them.
    pub fn all(&self) -> &[Expected] {
        &self.0
    }

    /// Returns whether there is such a question.
    pub fn knows(&self, question: &str) -> bool {
        self.0.iter().any(|expected| expected.question == question)
    }

    /// Returns what is expected of a question on a link; `None` if it is not asked there.
    pub fn of(&self, question: &str, link: Link) -> Option<&Expected> {
        let fits = |expected: &&Expected| {
            expected.question == question && expected.link.is_none_or(|own| own == link)
        };
        self.0.iter().find(fits)
    }
}

impl Expected {
    /// Compares an answer with it.
    pub fn judge(&self, seen: &Values) -> Judgement {
        let agreeing = match seen {
            Values::Numbers(values) => values.iter().filter(|value| self.has(**value)).count(),
            Values::Bytes(values) => values.iter().filter(|value| self.has_bytes(value)).count(),
        };
        match agreeing * 2 > seen.trials() {
            true => Judgement::Agrees,
            false => Judgement::Contradicts,
        }
    }

    fn has(&self, value: u64) -> bool {
        self.values.split('/').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse(), last.parse()) {
                (Ok(first), Ok(last)) => (first..=last).contains(&value),
                _ => false,
            }
        })
    }

    fn has_bytes(&self, value: &str) -> bool {
        let is_like = |pattern: &str| {
            pattern.len() == value.len()
                && pattern.chars().zip(value.chars()).all(|(a, b)| a == '.' || a == b)
        };
        self.values.split('/').any(is_like)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(values: &str) -> Expected {
        let [question, fact] = ["a.b", "E001"].map(str::to_owned);
        Expected { question, link: None, fact, unit: Unit::Count, values: values.to_owned() }
    }

    #[test]
    fn numbers_agree_by_value_or_range_in_most_trials() {
        let judge =
            |text: &str, values: &[u64]| expected(text).judge(&Values::Numbers(values.to_vec()));
        assert_eq!(judge("17/18", &[18]), Judgement::Agrees);
        assert_eq!(judge("17/18", &[19]), Judgement::Contradicts);
        assert_eq!(judge("5-7/20", &[5, 7, 20]), Judgement::Agrees);
        assert_eq!(judge("5-7/20", &[4, 6]), Judgement::Contradicts);
        assert_eq!(judge("5-7/20", &[4, 6, 6]), Judgement::Agrees);
        assert_eq!(judge("", &[0]), Judgement::Contradicts);
    }

    #[test]
    fn bytes_agree_where_the_pattern_has_digits() {
        let judge =
            |text: &str, value: &str| expected(text).judge(&Values::Bytes(vec![value.to_owned()]));
        assert_eq!(judge("..0052", "930052"), Judgement::Agrees);
        assert_eq!(judge("..0052", "930053"), Judgement::Contradicts);
        assert_eq!(judge("..0052", "93005200"), Judgement::Contradicts);
        assert_eq!(judge("00/ff", "ff"), Judgement::Agrees);
    }
}
