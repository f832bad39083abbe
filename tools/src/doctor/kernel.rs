//! Kernel modules, and which network namespaces the kernel shows RDMA devices to.

use super::check::{Check, Group, Question};
use super::situation::Situation;

/// Each module, its purpose, and whether traffic requires it.
const MODULES: [(&str, &str, bool); 5] = [
    ("mlx5_core", "the device's own driver", true),
    ("mlx5_ib", "RDMA devices of ConnectX ports", true),
    ("ib_uverbs", "programs that use RDMA devices, by /dev/infiniband/uverbs*", true),
    ("rdma_cm", "connections by IP address (librdmacm, perftest -R)", false),
    ("rdma_ucm", "programs that use rdma_cm, by /dev/infiniband/rdma_cm", false),
];

pub fn look(situation: &Situation) -> Vec<Check> {
    let mut checks = modules(situation);
    checks.push(namespaces(situation));
    checks.push(fork(situation));
    checks
}

/// Checks whether the modules are there.
pub fn modules(situation: &Situation) -> Vec<Check> {
    MODULES.iter().map(|(name, what, needed)| module(situation, name, what, *needed)).collect()
}

/// Checks the device's limits in the process's cgroup.
pub fn of_device(situation: &Situation) -> Vec<Check> {
    vec![limits(situation)]
}

fn module(situation: &Situation, name: &'static str, what: &'static str, needed: bool) -> Check {
    let question = Question::new(
        Group::Kernel,
        name,
        format!("/sys/module/{name}, /lib/modules/*/modules.builtin"),
        what,
    );
    if situation.model {
        return question.not_applicable("the model stands in for the kernel's modules");
    }
    let tree = &situation.tree;
    if tree.exists(&format!("sys/module/{name}")) {
        let version = tree.read(&format!("sys/module/{name}/version"));
        return question.good(match version {
            Some(version) => format!("loaded, version {version}"),
            None => "loaded".to_owned(),
        });
    }
    let release = tree.read("proc/sys/kernel/osrelease").unwrap_or_default();
    let builtin = tree.read(&format!("lib/modules/{release}/modules.builtin")).unwrap_or_default();
    if builtin.lines().any(|line| line.ends_with(&format!("/{name}.ko"))) {
        return question.good("part of the kernel");
    }
    if !tree.exists("sys/module") {
        return question.unknown("there is no /sys/module", None);
    }
    let cure = format!("modprobe {name}");
    if needed {
        question.broken("not loaded", cure)
    } else {
        question.warning(format!("not loaded, for {what}"), cure)
    }
}

fn namespaces(situation: &Situation) -> Check {
    const MODE: &str = "sys/module/ib_core/parameters/netns_mode";
    let question = Question::new(
        Group::Kernel,
        "network namespaces",
        format!("/{MODE} (as `rdma system show`)"),
        "in exclusive mode a device is in one network namespace, and containers with their own do \
         not see it",
    );
    if situation.model {
        return question.not_applicable("the model's devices are in every namespace");
    }
    match situation.tree.read(MODE).as_deref() {
        Some("Y" | "1") => question.good("shared: devices are in every network namespace"),
        Some(_) => question.warning(
            "exclusive: a device is in one network namespace",
            "rdma system set netns shared    # or move it: rdma dev set DEVICE netns NAME",
        ),
        None => question.unknown("ib_core is not loaded, or older than its modes", None),
    }
}

fn fork(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Kernel,
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

/// Checks `rdma.max` of the process's cgroup, which limits handles and objects.
fn limits(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Kernel,
        "rdma cgroup",
        "/proc/self/cgroup, /sys/fs/cgroup/*/rdma.max",
        "a cgroup may limit how often a device is opened (hca_handle), and the objects made",
    );
    let Some(device) = &situation.device else {
        return question.not_applicable("there is no RDMA device");
    };
    if situation.model {
        return question.not_applicable("no cgroup counts the model's objects");
    }
    let groups = situation.tree.read("proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let path = format!("sys/fs/cgroup/{own}/rdma.max").replace("//", "/");
    let Some(text) = situation.tree.read(&path) else {
        return question.good("no limit: the process's cgroup has no rdma controller");
    };
    let limits = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", device.name)));
    let of = |name: &str| {
        let value = limits?.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        value.strip_prefix('=').filter(|value| *value != "max").map(str::to_owned)
    };
    let cure = || format!("echo '{} hca_handle=max hca_object=max' > /{path}", device.name);
    match (of("hca_handle"), of("hca_object")) {
        (None, None) => question.good("no limit"),
        (Some(handles), _) if handles == "0" => {
            question.broken("hca_handle=0: the device may not be opened", cure())
        }
        (handles, objects) => question.warning(
            format!(
                "hca_handle={}, hca_object={}",
                handles.as_deref().unwrap_or("max"),
                objects.as_deref().unwrap_or("max")
            ),
            cure(),
        ),
    }
}
