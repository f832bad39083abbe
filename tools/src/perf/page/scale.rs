//! Scales: positions of values on an axis, and the values to label.

/// An axis, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// Creates a logarithmic scale from the smallest to the largest value, with a margin. Values
    /// that are not numbers or not above 0 are left out.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = span(values.into_iter().filter(|value| *value > 0.0));
        let room = ((high / low).ln() * 0.06).clamp(0.03, 2.0).exp();
        Scale { from: low / room, to: high * room, log: true }
    }

    /// Creates a linear scale with these ends.
    pub fn linear(from: f64, to: f64) -> Scale {
        let to = if to > from { to } else { from + 1.0 };
        Scale { from, to, log: false }
    }

    /// Returns the position of a value, from 0 (start) to 1 (end). Values outside are clamped.
    pub fn at(&self, value: f64) -> f64 {
        let at = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if at.is_nan() { 0.0 } else { at.clamp(0.0, 1.0) }
    }

    /// Returns the value at a position from 0 to 1.
    pub fn value(&self, at: f64) -> f64 {
        if self.log {
            self.from * (self.to / self.from).powf(at)
        } else {
            self.from + (self.to - self.from) * at
        }
    }

    /// Returns round values along the axis, `most` of them or a few less.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.log {
            let decades = (self.from.log10().floor() as i32)..=(self.to.log10().ceil() as i32);
            let each = |digits: &[f64], step: usize| -> Vec<f64> {
                decades
                    .clone()
                    .step_by(step)
                    .flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)))
                    .filter(|tick| (self.from..=self.to).contains(tick))
                    .collect()
            };
            let mut choices = vec![each(&[1.0, 2.0, 5.0], 1), each(&[1.0, 3.0], 1)];
            choices.extend([1, 2, 3, 4, 6].map(|step| each(&[1.0], step)));
            if let Some(ticks) =
                choices.into_iter().find(|ticks| (3..=most.max(3)).contains(&ticks.len()))
            {
                return ticks;
            }
        }
        let most = most.max(2);
        let rough = (self.to - self.from) / most as f64;
        let power = 10f64.powf(rough.log10().floor());
        let every = |step: f64| -> Vec<f64> {
            let first = (self.from / step).ceil();
            let ticks = (0..=most + 1).map(|at| (first + at as f64) * step);
            ticks.take_while(|tick| *tick <= self.to).collect()
        };
        // Takes the finest steps that give at most `most + 1` values. Each step is at most two and
        // a half times the next finer one, so at least one fits.
        let steps = [0.5, 1.0, 2.0, 5.0, 10.0].map(|digit| every(digit * power));
        steps.into_iter().find(|ticks| (1..=most + 1).contains(&ticks.len())).unwrap_or_default()
    }
}

/// Returns the smallest and the largest value; 1 and 1 if there are none.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let span = values
        .filter(|value| value.is_finite() && *value < 1e30 && *value > 1e-30)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    if span.0 <= span.1 { span } else { (1.0, 1.0) }
}

/// Formats a time with its unit, to three digits.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Formats a number with a letter for its power of a thousand.
pub fn amount(value: f64) -> String {
    match value {
        value if value < 999.5 => digits(value),
        value if value < 999.5e3 => format!("{} k", digits(value / 1e3)),
        value if value < 999.5e6 => format!("{} M", digits(value / 1e6)),
        value if value < 1e15 => format!("{} G", digits(value / 1e9)),
        value => format!("{value:.2e}"),
    }
}

/// Formats a message size in bytes.
pub fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        _ if size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        _ if size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

/// Formats three significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        value if value >= 0.000_5 => 3,
        _ => return "0".to_owned(),
    };
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let times = [0.0, 812.0, 999.6, 1500.0, 99_949.0, 1e6, 2.5e9].map(time);
        assert_eq!(times, ["0 ns", "812 ns", "1 µs", "1.5 µs", "99.9 µs", "1 ms", "2.5 s"]);
        assert_eq!([999.0, 1000.0, 4_321_000.0].map(amount), ["999", "1 k", "4.32 M"]);
        assert_eq!([64, 1500, 65536, 1 << 20].map(bytes), ["64 B", "1500 B", "64 KiB", "1 MiB"]);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::linear(0.0, 10.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::log([677.0]).ticks(2), [660.0, 680.0]);
        assert_eq!(Scale::log([10.0, 1e5]).ticks(6), [10.0, 100.0, 1000.0, 1e4, 1e5]);
    }

    proptest! {
        #[test]
        fn any_values_have_an_axis(values in prop::collection::vec(any::<f64>(), 0..5), most in 2usize..9) {
            let scale = Scale::log(values.iter().copied());
            let ticks = scale.ticks(most);
            prop_assert!(!ticks.is_empty() && ticks.len() <= most + 1, "{ticks:?}");
            for value in values.into_iter().chain(ticks) {
                prop_assert!((0.0..=1.0).contains(&scale.at(value)));
            }
            for at in [0.1, 0.9] {
                prop_assert!((scale.at(scale.value(at)) - at).abs() < 1e-6);
            }
        }
    }
}
