//! Searches for numbers in text.

/// Returns the text after the first occurrence of `token`.
pub(super) fn after<'a>(text: &'a str, token: &str) -> Option<&'a str> {
    text.split_once(token).map(|(_, rest)| rest)
}

/// Returns the number at the start, and the text after it: decimal, or hexadecimal after `0x`.
/// Blanks and `= : ( [ #` before the number are skipped.
pub(super) fn number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start_matches([' ', '\t', '=', ':', '(', '[', '#']);
    // Web pages turn the letter into a multiplication sign.
    match ["0x", "0X", "0×"].iter().find_map(|prefix| text.strip_prefix(prefix)) {
        Some(digits) => of_radix(digits, 16),
        None => of_radix(text, 10),
    }
}

/// Returns the number at the start as [`number`] does, but hexadecimal with or without `0x`.
pub(super) fn hexadecimal(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start_matches([' ', '\t', '=', ':', '(', '[', '#']);
    let digits = ["0x", "0X", "0×"].iter().find_map(|prefix| text.strip_prefix(prefix));
    of_radix(digits.unwrap_or(text), 16)
}

/// Returns the number that stands alone after the first occurrence of `token`: decimal, or
/// hexadecimal after `0x` or with one of the digits `a` to `f`. Some programs print without `0x`.
pub(super) fn identifier_after(text: &str, token: &str) -> Option<u64> {
    let rest = after(text, token)?.trim_start_matches([' ', '\t', '=', ':', '(', '[', '#']);
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let word = &rest[..end];
    if word.starts_with(|first: char| first.is_ascii_digit())
        && word.bytes().any(|digit| digit.is_ascii_alphabetic())
        && word.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return u64::from_str_radix(word, 16).ok();
    }
    number(rest).map(|(number, _)| number)
}

/// Returns the identifier after the first occurrence of `token` in the base in which the program
/// printed it: with `0x` if it is hexadecimal for certain, and its digits alone if they may be of
/// either base.
pub(super) fn printed_after(text: &str, token: &str) -> Option<String> {
    let rest = after(text, token)?.trim_start_matches([' ', '\t', '=', ':', '(', '[', '#']);
    let digits = ["0x", "0X", "0×"].iter().find_map(|prefix| rest.strip_prefix(prefix));
    let word = digits.unwrap_or(rest);
    let end = word.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(word.len());
    let word = &word[..end];
    if word.is_empty() || word.len() > LONGEST_NUMBER {
        return None;
    }
    let either = digits.is_none() && word.bytes().all(|digit| digit.is_ascii_digit());
    Some(if either { word.to_owned() } else { format!("0x{}", word.to_ascii_lowercase()) })
}

/// Digits of the largest number of 64 bits in decimal.
const LONGEST_NUMBER: usize = 20;

fn of_radix(text: &str, radix: u32) -> Option<(u64, &str)> {
    let end = text.find(|digit: char| !digit.is_digit(radix)).unwrap_or(text.len());
    Some((u64::from_str_radix(&text[..end], radix).ok()?, &text[end..]))
}

/// Returns the number after the first occurrence of `token`.
pub(super) fn number_after(text: &str, token: &str) -> Option<u64> {
    number(after(text, token)?).map(|(number, _)| number)
}

/// Returns the hexadecimal number after the first occurrence of `token`.
pub(super) fn hexadecimal_after(text: &str, token: &str) -> Option<u64> {
    hexadecimal(after(text, token)?).map(|(number, _)| number)
}

/// Returns the text between two tokens, without surrounding blanks.
pub(super) fn between<'a>(text: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let (inside, _) = after(text, before)?.split_once(behind)?;
    Some(inside.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_both_notations() {
        assert_eq!(number(" = 0x1f, next"), Some((31, ", next")));
        assert_eq!(number("(0×9)"), Some((9, ")")));
        assert_eq!(number("12(words)"), Some((12, "(words)")));
        assert_eq!((number("x"), number("0xg"), number("")), (None, None, None));
        assert_eq!(number("0x1ffffffffffffffff"), None);
        assert_eq!(hexadecimal("1f 2"), Some((31, " 2")));
        assert_eq!(number_after("syndrome 0x5, vendor", "syndrome"), Some(5));
        assert_eq!(hexadecimal_after("cqn ff", "cqn"), Some(255));
        assert_eq!(identifier_after("wr_id 25e14b8 opcode", "wr_id"), Some(0x25e14b8));
        let printed = |text| printed_after(text, "wr_id");
        assert_eq!(printed("wr_id=12887842422 status=12").as_deref(), Some("12887842422"));
        assert_eq!(printed("wr_id 18446744073709551615,").as_deref(), Some("18446744073709551615"));
        assert_eq!(printed("wr_id: 0X25, wr").as_deref(), Some("0x25"));
        assert_eq!(printed("for wr_id 25e14b8 opcode").as_deref(), Some("0x25e14b8"));
        assert_eq!((printed("wr_id none"), printed("no")), (None, None));
        assert_eq!(identifier_after("wr_id: 25, x", "wr_id"), Some(25));
        assert_eq!(identifier_after("wrid 0x149vendor_err", "wrid"), Some(0x149));
        assert_eq!(identifier_after("in 25ms", "in"), Some(25));
        assert_eq!(between("error on mlx5_0:1/IB (synd", " on ", "(synd"), Some("mlx5_0:1/IB"));
    }
}
