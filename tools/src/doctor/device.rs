//! The opened device.

use mlx5::verbs::Devx;

use super::check::{Check, Group, Question};
use super::situation::{Live, Situation};

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![opens(situation), devx(situation), fork(situation)]
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
                "mlxconfig -d DEVICE set UCTX_EN=1, then mlxfwreset    # and setcap cap_net_raw+ep PROGRAM",
            )
        }
    }
}

fn fork(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Device,
        "fork",
        "/proc/sys/kernel/osrelease, RDMAV_FORK_SAFE, IBV_FORK_SAFE",
        "where pages of registered memory are shared with a forked child until one side writes, the \
         parent may be left with a copy that the device does not reach",
    );
    let release = situation.tree.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return question.unknown("the kernel's version is not told", None);
    };
    // Since then, the kernel copies pinned pages for the child at the fork, and reports so
    // (RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, which ibv_is_fork_initialized queries).
    if (major, minor) >= (5, 12) {
        return question.good(format!("Linux {release} copies pinned pages at a fork"));
    }
    let set =
        ["RDMAV_FORK_SAFE", "IBV_FORK_SAFE"].iter().find(|name| std::env::var_os(name).is_some());
    match set {
        Some(name) if situation.tree.is_own() => question.good(format!("{name} is set")),
        _ => question.warning(
            format!("Linux {release} shares pinned pages with forked children"),
            "export RDMAV_FORK_SAFE=1    # or ibv_fork_init() in the program, if it forks",
        ),
    }
}
