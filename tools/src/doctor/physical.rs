//! Judges the firmware's registers: temperatures, and the link and the module of each port.

use super::check::{Check, Group, Question};
use super::situation::Situation;
use crate::register::link::{BitErrors, Diagnosis};
use crate::register::module::Module;
use crate::register::sensor::Sensor;
use crate::register::{Registers, Told};

/// Checks the device's temperatures.
pub fn heat(situation: &Situation) -> Vec<Check> {
    let question = Question::new(
        Group::Device,
        "temperature",
        "registers MTCAP, MTMP",
        "a device that is too hot slows down, and switches itself off",
    );
    let Some(context) = situation.context() else {
        return vec![question.not_applicable(situation.why_not_open())];
    };
    vec![told(question, &Registers::new(context).temperatures(), |question, sensors| {
        temperature(question, sensors)
    })]
}

/// Checks the link and the module of each port.
pub fn look(situation: &Situation) -> Vec<Check> {
    situation.ports().into_iter().flat_map(|port| of_port(situation, port)).collect()
}

fn of_port(situation: &Situation, port: u8) -> [Check; 3] {
    let question = |what: &str, register: &'static str, why| {
        Question::new(Group::Ports, format!("port {port} {what}"), register, why)
    };
    let diagnosis =
        question("diagnosis", "register PDDR", "the firmware knows why there is no link");
    let errors = question(
        "symbol errors",
        "register PPCNT, group 0x16",
        "errors that FEC does not correct lose packets, which are sent again",
    );
    let module = question("module", "register MCIA", "a weak or hot module loses the link");
    let Some(context) = situation.context() else {
        let why = situation.why_not_open();
        return [diagnosis, errors, module].map(|question| question.not_applicable(why));
    };
    let registers = Registers::new(context);
    let link = registers.link(port);
    [
        told(diagnosis, &link.diagnosis, trouble),
        told(errors, &link.bit_errors, bit_errors),
        told(module, &registers.module(port), light),
    ]
}

/// Judges a value, or reports the refusal.
fn told<T>(question: Question, value: &Told<T>, judge: fn(Question, &T) -> Check) -> Check {
    match value {
        Told::Known(value) => judge(question, value),
        Told::Refused { refused } => question.not_applicable(refused),
    }
}

fn temperature(question: Question, sensors: &[Sensor]) -> Check {
    let words = |sensor: &Sensor| format!("{} {:.1} °C", sensor.name, sensor.celsius);
    let found = sensors.iter().map(words).collect::<Vec<_>>().join(", ");
    let is_hot = |sensor: &Sensor| sensor.limit.is_some_and(|limit| sensor.celsius >= limit);
    match sensors.iter().any(is_hot) {
        true => question.warning(found, "look at the fans and the airflow through the device"),
        false => question.good(found),
    }
}

fn trouble(question: Question, diagnosis: &Diagnosis) -> Check {
    let found = format!("{} (code {})", diagnosis.text, diagnosis.code);
    match diagnosis.cure {
        _ if diagnosis.code == 0 => question.good(found),
        Some(cure) => question.warning(found, cure),
        None => question.unknown(found, None),
    }
}

fn bit_errors(question: Question, errors: &BitErrors) -> Check {
    match errors.symbol_errors {
        0 => question.good("none counted"),
        count => question.warning(
            format!("{count} counted"),
            "if it grows: clean and reseat the cable, then replace it",
        ),
    }
}

fn light(question: Question, module: &Module) -> Check {
    let Module { form, vendor, part, .. } = module;
    let mut found = format!("{form}, {vendor} {part}");
    let Some(monitors) = &module.monitors else { return question.good(found) };
    found += &format!(", {:.1} °C", monitors.celsius);
    let dark = monitors.lanes.iter().position(|lane| lane.received_milliwatts <= 0.0);
    match dark {
        // Active copper has no light in any lane.
        Some(lane) if monitors.lanes.iter().any(|lane| lane.received_milliwatts > 0.0) => question
            .warning(
                format!("{found}; no light arrives on lane {lane}"),
                "clean the connectors, and look at the fiber",
            ),
        _ => question.good(found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;
    use crate::register::module::{Lane, Monitors};

    fn question() -> Question {
        Question::new(Group::Device, "check", "register", "why")
    }

    #[test]
    fn a_device_at_its_limit_is_too_hot() {
        let sensor = |celsius, limit| {
            let sensor = Sensor { name: "asic".to_owned(), celsius, highest: None, limit };
            temperature(question(), &[sensor]).verdict
        };
        assert_eq!(sensor(104.9, Some(105.0)), Verdict::Good);
        assert_eq!(sensor(105.0, Some(105.0)), Verdict::Warning);
        assert_eq!(sensor(105.0, None), Verdict::Good);
    }

    #[test]
    fn a_dark_lane_among_others_is_warned_of() {
        let module = |powers: [f64; 2]| {
            let lanes = powers.map(|power| Lane {
                received_milliwatts: power,
                sent_milliwatts: 1.0,
                bias_milliamperes: 6.0,
            });
            let monitors = Monitors { celsius: 30.0, volts: 3.3, lanes: lanes.to_vec() };
            light(
                question(),
                &Module {
                    form: "QSFP28",
                    standard: "SFF-8636",
                    vendor: String::new(),
                    part: String::new(),
                    revision: String::new(),
                    serial: String::new(),
                    technology: None,
                    metres: None,
                    monitors: Some(monitors),
                },
            )
        };
        assert_eq!(module([0.5, 0.4]).verdict, Verdict::Good);
        assert_eq!(module([0.0, 0.0]).verdict, Verdict::Good, "active copper");
        let dark = module([0.5, 0.0]);
        assert!(dark.verdict == Verdict::Warning && dark.found.contains("lane 1"));
    }

    #[test]
    fn symbol_errors_and_codes_of_trouble_are_warned_of() {
        let errors = |symbol_errors| BitErrors {
            milliseconds: 0,
            received_bits: 0,
            corrected_bits: 0,
            symbol_errors,
            raw: 0.0,
            effective: 0.0,
        };
        assert_eq!(bit_errors(question(), &errors(0)).verdict, Verdict::Good);
        assert_eq!(bit_errors(question(), &errors(1)).verdict, Verdict::Warning);
        let code = |code, cure| {
            trouble(question(), &Diagnosis { code, text: String::new(), cure }).verdict
        };
        assert_eq!(code(0, None), Verdict::Good);
        assert_eq!(code(1024, Some("plug it in")), Verdict::Warning);
        assert_eq!(code(999, None), Verdict::Unknown);
    }
}
