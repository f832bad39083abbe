//! The frame of a plot: axes, grid and names. Each plot has a form for wide pages and one for
//! phones, both with all data. The page's style shows one of them.

use std::fmt::{self, Display, Formatter};

use super::markup::Markup;
use super::scale::Scale;

/// The form of a plot: its size in units of the drawing, about a pixel each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For wide windows.
    Wide,
    /// For phones.
    Narrow,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 2] = [Form::Wide, Form::Narrow];

    /// Returns the width of the drawing.
    pub fn width(self) -> f64 {
        match self {
            Form::Wide => 760.0,
            Form::Narrow => 350.0,
        }
    }

    /// Returns the number of values along an axis of this length.
    fn ticks(self, length: f64) -> usize {
        let apart = if self == Form::Wide { 70.0 } else { 58.0 };
        ((length / apart) as usize).clamp(3, 10)
    }

    /// Returns an upper bound of a text's width.
    pub fn text_width(self, text: &str) -> f64 {
        let character = if self == Form::Wide { 6.8 } else { 6.3 };
        text.chars().count() as f64 * character
    }

    fn class(self) -> &'static str {
        match self {
            Form::Wide => "wide",
            Form::Narrow => "narrow",
        }
    }
}

/// A coordinate in a drawing, printed to a tenth.
pub struct Px(pub f64);

impl Display for Px {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round() / 10.0;
        // Avoids "-0".
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

/// A position along an axis, with its name.
#[derive(Clone, Debug)]
pub struct Tick {
    /// The position, from 0 to 1.
    pub at: f64,
    /// Its name.
    pub name: String,
}

/// The inner part of a plot, where data are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its form.
    pub form: Form,
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

/// Space below the area, for names of values and of the axis.
const BELOW: f64 = 44.0;
const ABOVE: f64 = 24.0;

impl Area {
    /// Creates the area in a drawing of this form, with space for names at the left.
    pub fn new(form: Form, left: f64, height: f64) -> Area {
        let right = 14.0;
        Area { form, left, top: ABOVE, width: form.width() - left - right, height }
    }

    /// Returns the coordinate of a position on the horizontal axis.
    pub fn x(&self, at: f64) -> f64 {
        self.left + at * self.width
    }

    /// Returns the coordinate of a position on the vertical axis, which goes upwards.
    pub fn y(&self, at: f64) -> f64 {
        self.top + (1.0 - at) * self.height
    }

    /// Returns the coordinate of the lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Returns the round values of a horizontal axis.
    pub fn ticks_x(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Tick> {
        let ticks = scale.ticks(self.form.ticks(self.width)).into_iter();
        ticks.map(|value| Tick { at: scale.at(value), name: name(value) }).collect()
    }

    /// Returns the round values of a vertical axis.
    pub fn ticks_y(&self, scale: &Scale, name: impl Fn(f64) -> String) -> Vec<Tick> {
        let ticks = scale.ticks(self.form.ticks(self.height * 1.4)).into_iter();
        ticks.map(|value| Tick { at: scale.at(value), name: name(value) }).collect()
    }

    /// Draws grid, names and title of the horizontal axis. A name that does not fit is left out.
    pub fn axis_x(&self, out: &mut Markup, ticks: &[Tick], what: &str) {
        let mut free = f64::NEG_INFINITY;
        for tick in ticks {
            let x = self.x(tick.at);
            let half = self.form.text_width(&tick.name) / 2.0;
            let place = x.clamp(half, (self.form.width() - half).max(half));
            out.put(
                "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
                &[&Px(x), &Px(x), &Px(self.top), &Px(self.bottom())],
            );
            if place - half > free {
                out.put(
                    "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    &[&Px(place), &Px(self.bottom() + 16.0), &tick.name],
                );
                free = place + half + 3.0;
            }
        }
        out.put(
            "<text class=\"axis\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            &[&Px(self.x(0.5)), &Px(self.bottom() + 36.0), &what],
        );
    }

    /// Draws grid and names of the vertical axis, with its title above it.
    pub fn axis_y(&self, out: &mut Markup, ticks: &[Tick], what: &str) {
        for tick in ticks {
            let y = self.y(tick.at);
            out.put(
                "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text \
                 class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                &[
                    &Px(self.left),
                    &Px(self.x(1.0)),
                    &Px(y),
                    &Px(y),
                    &Px(self.left - 6.0),
                    &Px(y + 4.0),
                    &tick.name,
                ],
            );
        }
        out.put("<text class=\"axis\" x=\"2\" y=\"12\">{}</text>\n", &[&what]);
    }
}

/// The texts of a plot, for the page and for screen readers.
pub struct Caption<'a> {
    /// Unique within the page: letters and dashes.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Explains the plot and how to read it.
    pub text: &'a str,
    /// The important figures, for readers who cannot see the plot.
    pub told: &'a str,
}

/// An entry of the legend: a colour and a dash with their meaning.
#[derive(Clone, Debug)]
pub struct Key {
    /// The class of its colour.
    pub class: String,
    /// Its name.
    pub name: String,
}

/// Adds a figure: its legend, and the plot in each form. The plot returns its height.
pub fn figure(
    out: &mut Markup,
    caption: &Caption<'_>,
    keys: &[Key],
    draw: impl Fn(&mut Markup, Form) -> f64,
) {
    let Caption { id, title, text, told } = caption;
    out.put("<figure id=\"{}\"><h2>{}</h2>\n", &[id, title]);
    if keys.len() > 1 {
        out.raw("<ul class=\"legend\">");
        for key in keys {
            out.put(
                "<li><svg class=\"key\" viewBox=\"0 0 22 8\" aria-hidden=\"true\"><line \
                 class=\"line {}\" x1=\"0\" x2=\"22\" y1=\"4\" y2=\"4\"/></svg>{}</li>",
                &[&key.class, &key.name],
            );
        }
        out.raw("</ul>\n");
    }
    for form in Form::ALL {
        let mut inside = Markup::new();
        let height = draw(&mut inside, form);
        let class = form.class();
        out.put(
            "<svg class=\"plot {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-{}-t \
             {}-{}-d\"><title id=\"{}-{}-t\">{}</title><desc id=\"{}-{}-d\">{}</desc>\n",
            &[
                &class,
                &Px(form.width()),
                &Px(height),
                id,
                &class,
                id,
                &class,
                id,
                &class,
                title,
                id,
                &class,
                told,
            ],
        );
        out.add(&inside).raw("</svg>\n");
    }
    out.put("<figcaption>{}</figcaption></figure>\n", &[text]);
}

/// Returns the height of a drawing with this area.
pub fn height(area: &Area) -> f64 {
    area.bottom() + BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let area = Area::new(Form::Narrow, 40.0, 100.0);
        let ticks: Vec<Tick> =
            [0.0, 0.01, 1.0].map(|at| Tick { at, name: "100 µs".to_owned() }).into();
        let mut out = Markup::new();
        area.axis_x(&mut out, &ticks, "time");
        let text = out.into_text();
        assert_eq!(text.matches("class=\"tick\"").count(), 2, "{text}");
        assert_eq!(text.matches("class=\"grid\"").count(), 3, "{text}");
    }
}
