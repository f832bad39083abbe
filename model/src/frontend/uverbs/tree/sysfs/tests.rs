//! Unit tests.

use std::fs;

use super::*;
use crate::card::GidEntry;

#[test]
fn the_tree_names_a_device_as_the_kernel_does() {
    let devices: Vec<Device> = crate::engine::identities(2, Link::InfiniBand, 0)
        .iter()
        .enumerate()
        .map(|(index, identity)| Device::new(index, identity, None))
        .collect();
    let tree = Tree::new(&devices, Node::Open).unwrap();
    let read = |path: &str| {
        fs::read_to_string(tree.redirect(path.as_bytes()).unwrap()).unwrap().trim().to_string()
    };
    assert_eq!(read("/sys/class/infiniband/mlx5_1/ports/1/lid"), "0x2");
    assert_eq!(read("/sys/class/infiniband/mlx5_0/device/vendor"), "0x15b3");
    let node = format!("/dev/infiniband/uverbs{}", tree.first + 1);
    assert_eq!(tree.device(node.as_bytes()), Some(1));
    assert_eq!(tree.device(b"/dev/infiniband/rdma_cm"), None);
    let name = tree.redirect(b"/sys/class/infiniband/mlx5_0").unwrap();
    // Not `canonicalize`: this process shows paths of trees by their names in sysfs.
    let opened = fs::File::open(name).unwrap();
    let real = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
    let shown = tree.restore(real.as_os_str().as_bytes()).unwrap();
    assert_eq!(shown, b"/sys/devices/pci6d35:00/6d35:00:00.0/infiniband/mlx5_0");
    assert!(tree.redirect(b"/sys/class/net").is_none());
    assert!(tree.redirect(b"/sys/class/net/eth0").is_none());
}

#[test]
fn another_gid_table_is_another_tree() {
    let identity = crate::engine::identities(1, Link::Roce, 0).remove(0);
    let devices = [Device::new(0, &identity, None)];
    let tree = Tree::new(&devices, Node::Open).unwrap();
    let path = |name: &str| {
        let path = format!("/sys/class/infiniband/mlx5_0/ports/1/{name}");
        tree.redirect(path.as_bytes()).unwrap()
    };
    let before = path("gid_attrs/types/3");
    assert_eq!(fs::read_to_string(&before).unwrap(), "RoCE v2\n");
    let mut gids = devices[0].table.clone();
    gids.entries[3] = GidEntry::default();
    tree.renew(&devices, &[&gids], Node::Open).unwrap();
    assert!(fs::metadata(path("gid_attrs/types/3")).is_err());
    let zero = fs::read_to_string(path("gids/3")).unwrap();
    assert_eq!(zero, "0000:0000:0000:0000:0000:0000:0000:0000\n");
    assert_eq!(fs::read_to_string(path("gid_attrs/types/2")).unwrap(), "IB/RoCE v1\n");
    tree.reset();
    assert_eq!(path("gid_attrs/types/3"), before);
    // A file of before has the same name in sysfs.
    let shown = b"/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3";
    assert_eq!(tree.restore(before.as_os_str().as_bytes()).unwrap(), shown);
}

#[test]
fn a_missing_stand_in_for_nodes_is_reported_with_the_cure() {
    check_node(NODE).unwrap();
    let error = check_node("/dev/mlx5-model-none").unwrap_err();
    assert!(error.contains("/dev/mlx5-model-none") && error.contains("No such file"), "{error}");
    assert!(error.contains("mknod -m 666"), "{error}");
    let error = check_node("/dev/null").unwrap_err();
    assert!(error.contains("/dev/null") && error.contains("another file"), "{error}");
}
