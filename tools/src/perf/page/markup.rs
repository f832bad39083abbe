//! Markup that no outside text can extend: templates are string literals of the program, and every
//! value is escaped.

use std::fmt::{Display, Write as _};

/// A piece of a page.
#[derive(Clone, Debug, Default)]
pub struct Markup(String);

impl Markup {
    /// Creates an empty piece.
    pub fn new() -> Markup {
        Markup::default()
    }

    /// Adds a template of the program, with each `{}` replaced by the next value, escaped.
    ///
    /// # Panics
    /// If the number of values differs from the number of `{}`, which is a mistake of the caller.
    pub fn put(&mut self, template: &'static str, values: &[&dyn Display]) -> &mut Markup {
        let mut values = values.iter();
        for (at, piece) in template.split("{}").enumerate() {
            if at > 0 {
                escape(&mut self.0, *values.next().expect("a value per place"));
            }
            self.0 += piece;
        }
        assert!(values.next().is_none(), "a place per value in {template}");
        self
    }

    /// Adds markup of the program, unchanged.
    pub fn raw(&mut self, markup: &'static str) -> &mut Markup {
        self.0 += markup;
        self
    }

    /// Adds another piece.
    pub fn add(&mut self, other: &Markup) -> &mut Markup {
        self.0 += &other.0;
        self
    }

    /// Returns the text.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Adds a value as text, which is also valid in a quoted attribute. Control characters (of
/// terminals or of writing direction) are replaced, since they could hide the text after them.
fn escape(text: &mut String, value: &dyn Display) {
    let mut plain = String::new();
    write!(plain, "{value}").expect("a string takes all");
    for character in plain.chars() {
        match character {
            '&' => *text += "&amp;",
            '<' => *text += "&lt;",
            '>' => *text += "&gt;",
            '"' => *text += "&quot;",
            '\'' => *text += "&#39;",
            '\n' => text.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => text.push('\u{fffd}'),
            character if character.is_control() => text.push('\u{fffd}'),
            character => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_become_text() {
        let mut markup = Markup::new();
        markup.put("<b title=\"{}\">{}</b>", &[&"a\"b'c", &"<script>&\u{202e}\u{1b}[2J"]);
        assert_eq!(
            markup.into_text(),
            "<b title=\"a&quot;b&#39;c\">&lt;script&gt;&amp;\u{fffd}\u{fffd}[2J</b>"
        );
    }

    proptest! {
        #[test]
        fn no_value_opens_or_closes_anything(value in "\\PC*|[<>&\"'{}]*") {
            let mut markup = Markup::new();
            markup.put("{}", &[&value]);
            prop_assert!(!markup.into_text().contains(['<', '>', '"', '\'']));
        }
    }
}
