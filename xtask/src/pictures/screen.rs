//! Draws what a program prints on a terminal as an SVG picture.

use std::fmt::Write as _;

/// Size of a character cell, and the space around the text, in pixels.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;

/// The picture has a dark ground of its own, so that it is legible on light and dark pages.
const STYLE: &str = "\
text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #e6ebf1; white-space: pre; }
.prompt { fill: #9aa7b5; } .bold { font-weight: 700; } .dim { fill: #9aa7b5; }
.red { fill: #ff8a80; } .green { fill: #5fd38d; } .yellow { fill: #f2c14e; } .cyan { fill: #5fd0dc; }
";

/// Text of one colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Classes of [`STYLE`], separated by blanks.
    class: String,
    text: String,
}

/// Reads the lines of a terminal: text, and the SGR sequences by which the command colours it.
///
/// # Errors
/// Another escape sequence or parameter, which the picture would not show.
pub fn read(output: &str) -> Result<Vec<Vec<Run>>, String> {
    let mut lines = Vec::new();
    let mut class = String::new();
    for line in output.lines() {
        let mut runs: Vec<Run> = Vec::new();
        let mut put = |class: &str, text: &str| {
            if !text.is_empty() {
                runs.push(Run { class: class.to_owned(), text: text.replace('\r', "") });
            }
        };
        let mut pieces = line.split("\x1b[");
        put(&class, pieces.next().unwrap_or_default());
        for piece in pieces {
            let (parameters, text) = piece
                .split_once('m')
                .ok_or_else(|| format!("an escape sequence that is no colour: {piece:?}"))?;
            class = classes(parameters)?;
            put(&class, text);
        }
        lines.push(runs);
    }
    Ok(lines)
}

/// Returns the classes of the parameters of an SGR sequence.
fn classes(parameters: &str) -> Result<String, String> {
    let mut classes = Vec::new();
    for parameter in parameters.split(';') {
        classes.push(match parameter {
            "0" | "" => continue,
            "1" => "bold",
            "2" => "dim",
            "31" => "red",
            "32" => "green",
            "33" => "yellow",
            "36" => "cyan",
            other => return Err(format!("no colour of the picture is SGR {other}")),
        });
    }
    Ok(classes.join(" "))
}

/// Draws a command line and the lines that it printed.
pub fn draw(command: &str, title: &str, lines: &[Vec<Run>], columns: usize) -> String {
    let prompt = vec![
        Run { class: "prompt".to_owned(), text: "$ ".to_owned() },
        Run { class: "bold".to_owned(), text: command.to_owned() },
    ];
    let all: Vec<&Vec<Run>> = std::iter::once(&prompt).chain(lines).collect();
    let width = columns as f64 * CELL.0 + 2.0 * MARGIN;
    let height = all.len() as f64 * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#171e26\" stroke=\"#5b6675\"/>\n",
        escaped(title)
    );
    for (row, runs) in all.into_iter().enumerate() {
        let mut column = 0;
        for run in runs {
            let width = run.text.chars().count();
            if !run.text.trim().is_empty() {
                draw_run(&mut svg, run, (column, row), width);
            }
            column += width;
        }
    }
    svg + "</svg>\n"
}

/// Draws text at a column and row. Its length is stated, so that columns align in every font.
fn draw_run(svg: &mut String, run: &Run, (column, row): (usize, usize), width: usize) {
    let class = match run.class.as_str() {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<text{class} x=\"{:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" xml:space=\"preserve\">{}</text>",
        MARGIN + column as f64 * CELL.0,
        MARGIN + (row as f64 + 0.75) * CELL.1,
        width as f64 * CELL.0,
        escaped(&run.text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(class: &str, text: &str) -> Run {
        Run { class: class.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn colours_become_classes_until_they_are_reset() {
        let lines = read("a \x1b[31;1mBROKEN\x1b[0m b\r\n\x1b[32mok\r\nstill\x1b[0m\n").unwrap();
        assert_eq!(lines[0], [run("", "a "), run("red bold", "BROKEN"), run("", " b")]);
        assert_eq!(lines[1], [run("green", "ok")]);
        assert_eq!(lines[2], [run("green", "still")]);
    }

    #[test]
    fn what_the_picture_would_not_show_is_an_error() {
        assert!(read("\x1b[2J").is_err());
        assert!(read("\x1b[44m").is_err());
    }

    #[test]
    fn text_is_placed_by_columns_and_cannot_be_markup() {
        let svg = draw("x <y>", "a & b", &[vec![run("", "  "), run("cyan", "a<b")]], 20);
        assert!(svg.contains("<title>a &amp; b</title>"));
        assert!(svg.contains("x &lt;y&gt;</text>"));
        let place = MARGIN + 2.0 * CELL.0;
        assert!(svg.contains(&format!("<text class=\"cyan\" x=\"{place:.1}\"")), "{svg}");
        assert!(svg.contains("textLength=\"25.2\" xml:space=\"preserve\">a&lt;b</text>"), "{svg}");
    }
}
