//! The width of standard output, and lines that fit into it.

/// The narrowest width that lines are folded to.
const NARROWEST: usize = 40;

/// Returns the columns of standard output: those of `COLUMNS`, else of the terminal. `None` where
/// standard output is no terminal: programs such as grep read whole lines.
#[must_use]
pub fn columns() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let columns = named.filter(|columns| *columns > 0).or_else(of_terminal)?;
    Some(columns.max(NARROWEST))
}

fn of_terminal() -> Option<usize> {
    if !crate::output::is_stdout_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one `winsize`, and `size` is one that lives through the call.
    let answered = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    // A terminal without a size, such as a serial line, tells 0.
    (answered == 0 && size.ws_col > 0).then(|| size.ws_col.into())
}

/// Folds a line at blanks into lines of at most `columns`. All but the first begin with `hang`
/// blanks. A longer word, such as a path, is not broken.
#[must_use]
pub fn fold(line: &str, hang: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| line.chars().count() > *columns) else {
        return line.to_owned();
    };
    let (mut folded, mut column) = (String::with_capacity(line.len() + hang), 0);
    let mut rest = line;
    while !rest.is_empty() {
        let word_at = rest.find(|character| character != ' ').unwrap_or(rest.len());
        let (gap, from_word) = rest.split_at(word_at);
        let (word, after) = from_word.split_at(from_word.find(' ').unwrap_or(from_word.len()));
        let (start, length) = (column + gap.len(), word.chars().count());
        if column > 0 && start > hang && start + length > columns {
            folded.push('\n');
            folded.extend(std::iter::repeat_n(' ', hang));
            column = hang + length;
        } else {
            folded.push_str(gap);
            column = start + length;
        }
        folded.push_str(word);
        rest = after;
    }
    folded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_folded_at_blanks_and_hang_below_their_value() {
        let line = "  ok       name   one two three";
        assert_eq!(fold(line, 18, Some(25)), "  ok       name   one two\n                  three");
        assert_eq!(fold(line, 18, Some(31)), line);
        assert_eq!(fold(line, 18, None), line);
        assert_eq!(fold("abc /a/path/too/long b", 2, Some(8)), "abc\n  /a/path/too/long\n  b");
        // The first word ends where the next line begins.
        assert_eq!(fold("name value", 4, Some(9)), "name\n    value");
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_only_words_that_never_fit_are_too_wide(
            line in "( ?[a-zé]{1,30}){0,9}", hang in 0usize..30, columns in 40usize..90,
        ) {
            let folded = fold(&line, hang, Some(columns));
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(&folded), words(&line));
            for wide in folded.lines().filter(|line| line.chars().count() > columns) {
                // A word that does not fit in any place.
                let words = words(wide);
                let last = words.last().map_or(0, |word| word.chars().count());
                prop_assert!(words.len() <= 1 || hang + last > columns, "{}", wide);
            }
        }
    }
}
