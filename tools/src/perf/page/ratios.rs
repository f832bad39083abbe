//! The comparison of both ways: a row per figure and size, with the spread of its ratio.

use super::frame::{self, Area, Caption, Form, Px};
use super::markup::Markup;
use super::scale::{Scale, bytes};
use crate::perf::result::{Comparison, Ratio};

const ROW: f64 = 34.0;

/// Adds the plot of all ratios, if there are any.
pub fn figure(out: &mut Markup, comparison: Option<&Comparison>) {
    let Some(comparison) = comparison.filter(|comparison| !comparison.ratios.is_empty()) else {
        return;
    };
    let told: Vec<String> = comparison
        .ratios
        .iter()
        .map(|ratio| {
            format!(
                "{}: {:.2}, quartiles {:.2} and {:.2}",
                name(ratio),
                ratio.ratio,
                ratio.low,
                ratio.high
            )
        })
        .collect();
    let of = match comparison.block {
        0 => String::new(),
        messages => format!(" of {messages} messages"),
    };
    let text = format!(
        "{} A dot is the median of verbs / direct over pairs of neighbouring blocks{of}; the bar \
         around it holds the middle half of them. To the right of 1, direct takes less.",
        comparison.what
    );
    let caption = Caption {
        id: "comparison",
        title: "libmlx5 against direct",
        text: &text,
        told: &told.join("; "),
    };
    frame::figure(out, &caption, &[], |out, form| draw(out, form, &comparison.ratios));
}

fn name(ratio: &Ratio) -> String {
    format!("{}, {}", ratio.figure, bytes(ratio.size))
}

fn draw(out: &mut Markup, form: Form, ratios: &[Ratio]) -> f64 {
    let mut area = Area::new(form, 14.0, ROW * ratios.len() as f64);
    area.width -= 40.0;
    let ends = ratios.iter().flat_map(|ratio| [ratio.low, ratio.ratio, ratio.high]);
    let scale = Scale::log(ends.chain([1.0]));
    let times = |value: f64| format!("{}×", (value * 100.0).round() / 100.0);
    area.axis_x(out, &area.ticks_x(&scale, times), "verbs / direct, logarithmic");
    let one = area.x(scale.at(1.0));
    out.put(
        "<line class=\"one\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
        &[&Px(one), &Px(one), &Px(area.top), &Px(area.bottom())],
    );
    for (at, ratio) in ratios.iter().enumerate() {
        let y = area.top + ROW * (at as f64 + 0.68);
        let [low, middle, high] =
            [ratio.low, ratio.ratio, ratio.high].map(|value| area.x(scale.at(value)));
        out.put(
            "<text class=\"row\" x=\"{}\" y=\"{}\">{}</text><line class=\"spread direct\" x1=\"{}\" \
             x2=\"{}\" y1=\"{}\" y2=\"{}\"/><circle class=\"dot direct\" cx=\"{}\" cy=\"{}\" r=\"5\" \
             data-ratio=\"{}\"><title>{}: {}</title></circle><text class=\"read strong\" x=\"{}\" \
             y=\"{}\">{}</text>\n",
            &[
                &Px(area.left),
                &Px(y - 10.0),
                &format!("{} ({})", name(ratio), ratio.unit),
                &Px(low),
                &Px(high),
                &Px(y),
                &Px(y),
                &Px(middle),
                &Px(y),
                &ratio.ratio,
                &name(ratio),
                &times(ratio.ratio),
                &Px(high.max(middle) + 9.0),
                &Px(y + 4.0),
                &times(ratio.ratio),
            ],
        );
    }
    frame::height(&area)
}
