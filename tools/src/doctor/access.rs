//! Device nodes: whether they exist, and whether this user may open them.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use super::check::{Check, Group, Question};
use super::situation::Situation;

/// Checks the device's node.
pub fn look(situation: &Situation) -> Vec<Check> {
    let Some(device) = &situation.device else { return Vec::new() };
    let node = device.node.as_ref().map(|node| format!("dev/infiniband/{node}"));
    let mut checks = vec![present(situation, node.as_deref())];
    if let Some(node) = node.filter(|node| is_there(situation, node)) {
        checks.push(permission(situation, &node));
    }
    checks
}

/// Checks the node of the connection manager, which all devices share.
pub fn common(situation: &Situation) -> Vec<Check> {
    vec![connection_manager(situation)]
}

/// Returns whether a node exists, without following it if it is a symbolic link.
fn is_there(situation: &Situation, node: &str) -> bool {
    fs::symlink_metadata(situation.tree.path(node)).is_ok()
}

fn present(situation: &Situation, node: Option<&str>) -> Check {
    let question = Question::new(
        Group::Access,
        "device node",
        "/sys/class/infiniband_verbs/uverbs*/ibdev, /dev/infiniband/uverbs*",
        "programs reach the device by opening its uverbs node",
    );
    let Some(node) = node else {
        return question.broken(
            "the device has no uverbs node: ib_uverbs does not know it",
            "modprobe ib_uverbs; dmesg | grep uverbs",
        );
    };
    if is_there(situation, node) {
        return question.good(format!("/{node}"));
    }
    match situation.container() {
        Some(sign) => question.broken(
            format!("/{node} is missing in this container ({sign}), and sysfs shows the device"),
            "start the container with the nodes: docker run --device=/dev/infiniband --cap-add=IPC_LOCK \
             (Kubernetes: an RDMA device plugin)",
        ),
        None => question.broken(
            format!("/{node} is missing, and sysfs shows the device"),
            "udevadm trigger --subsystem-match=infiniband_verbs    # in a container: \
             docker run --device=/dev/infiniband",
        ),
    }
}

fn permission(situation: &Situation, node: &str) -> Check {
    let question = Question::new(
        Group::Access,
        "permission",
        format!("opening /{node} to read and write"),
        "a user who may not read and write the node cannot use the device",
    );
    let path = situation.tree.path(node);
    let owners = fs::metadata(&path).map_or("its owner cannot be told".to_owned(), |metadata| {
        format!(
            "mode {:04o}, owner {}, group {}",
            metadata.mode() & 0o7777,
            metadata.uid(),
            metadata.gid()
        )
    });
    if !situation.tree.is_own() {
        let open = fs::metadata(&path).is_ok_and(|metadata| metadata.mode() & 0o6 == 0o6);
        return if open {
            question.good(format!("open to every user ({owners})"))
        } else {
            question.warning(
                format!("not open to every user ({owners})"),
                format!("chmod 0666 /{node}    # or the udev rules of the package rdma-core"),
            )
        };
    }
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&path);
    let Err(error) = opened else {
        return question.good(format!("this user may ({owners})"));
    };
    let cure = match error.raw_os_error() {
        // EACCES comes from the file's permissions, EPERM from the device cgroup.
        Some(libc::EPERM) => "the container's device cgroup forbids it: docker run \
                              --device=/dev/infiniband"
            .to_owned(),
        _ => format!(
            "chmod 0666 /{node}    # for good: the udev rules of the package rdma-core, or \
             usermod -aG with the node's group"
        ),
    };
    question.broken(format!("this user may not open /{node}: {error} ({owners})"), cure)
}

fn connection_manager(situation: &Situation) -> Check {
    const NODE: &str = "dev/infiniband/rdma_cm";
    let question = Question::new(
        Group::Access,
        "rdma_cm node",
        format!("/{NODE}"),
        "programs that connect by IP address (librdmacm) open it; others do not",
    );
    if situation.model {
        return question.not_applicable("the model has no connection manager");
    }
    if !is_there(situation, NODE) {
        let cure = match situation.container() {
            Some(_) => "docker run --device=/dev/infiniband",
            None => "modprobe rdma_ucm",
        };
        return question.warning(format!("/{NODE} is missing"), cure);
    }
    question.good(format!("/{NODE}"))
}
