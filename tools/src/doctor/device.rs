//! The opened device.

use mlx5::verbs::Devx;

use super::check::{Check, Group, Question};
use super::situation::{Live, Situation};

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![opens(situation), devx(situation)]
}

fn opens(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Device,
        "open",
        "ibv_open_device",
        "everything else stands on the opened device",
    );
    match &situation.live {
        Live::Copied => question.not_applicable(situation.why_not_open()),
        Live::Absent(why) if situation.functions.is_empty() => question.not_applicable(why),
        Live::Absent(why) => question
            .broken(why, "look at what is broken above; then ibv_devices has to list the device"),
        Live::Closed(error) => {
            question.broken(error.to_string(), "look at the device node and its permission above")
        }
        Live::Open(context) => match context.attributes() {
            Ok(attributes) => {
                question.good(format!("{}, ports: {}", attributes.name, attributes.ports))
            }
            Err(error) => question
                .broken(error.to_string(), "dmesg | grep mlx5    # a fatal error of the device?"),
        },
    }
}

fn devx(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Device,
        "DevX",
        "mlx5dv_open_device with the DEVX flag",
        "without firmware commands there are verbs only: no queues by command, no contexts to dump, \
         no capability groups",
    );
    let Some(context) = situation.context() else {
        return question.not_applicable(situation.why_not_open());
    };
    match context.devx() {
        Devx::Open => question.good("firmware commands are accepted"),
        refused @ Devx::Refused(_) => {
            let raw = match situation.has_capability(13) {
                Some(true) => "; this process has CAP_NET_RAW",
                Some(false) => "; this process lacks CAP_NET_RAW",
                None => "",
            };
            question.warning(
                format!("{refused}{raw}"),
                devx_cure(situation.function().map(|function| function.address.as_str())),
            )
        }
    }
}

/// Returns what opens firmware commands to programs, for the function at this PCI address.
pub fn devx_cure(address: Option<&str>) -> String {
    let device = address.unwrap_or("PCI-ADDRESS");
    format!(
        "setcap cap_net_raw+ep PROGRAM    # still refused? mlxconfig -d {device} set UCTX_EN=1, then \
         mlxfwreset -d {device} reset"
    )
}
