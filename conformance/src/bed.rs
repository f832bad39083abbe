//! Description of a device, its port and the machine.

use std::fs;

use mlx5::ib::GidType;
use mlx5::verbs::{Context, Devx};

use crate::report::{Bed, Environment, Front};
use crate::verdict::{Verdict, lacking};

/// The board id of the model, behind either of its front ends.
const MODEL: &str = "MLX5-MODEL";

impl Environment {
    /// Describes a port of an open device, which `front` answers for.
    ///
    /// # Errors
    /// Those of [`Context::attributes`] and [`Context::port`].
    pub fn of(context: &Context, port: u8, front: Front) -> mlx5::Result<Environment> {
        let attributes = context.attributes()?;
        let link = context.port(port)?.link_layer.to_string();
        Ok(Environment {
            bed: bed(front, context.board_id().as_deref()),
            profile: match front {
                Front::Model(profile) => Some(profile.to_owned()),
                Front::Kernel => None,
            },
            product: attributes.product().to_owned(),
            device: attributes.name,
            board_id: attributes.board_id,
            firmware: attributes.firmware,
            port,
            link,
            commands: matches!(context.devx(), Devx::Open),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|line| line.trim().to_owned()),
            rdma_core: rdma_core(&fs::read_to_string("/proc/self/maps").unwrap_or_default()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// Tells the beds apart. The model has its own board id behind either front end. A kernel that tells
/// this board id drives the model as a PCI function.
fn bed(front: Front, board_id: Option<&str>) -> Bed {
    match (front, board_id) {
        (Front::Model(_), _) => Bed::Model,
        (Front::Kernel, Some(MODEL)) => Bed::Guest,
        (Front::Kernel, _) => Bed::Device,
    }
}

/// Returns the version of rdma-core by the loaded library's file: `libmlx5.so.1.24.44.0` is of 44.
fn rdma_core(maps: &str) -> Option<String> {
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let path = path.into_iter().find(|path| path.contains("/libmlx5.so"))?;
    let real = fs::canonicalize(path).ok()?;
    version(&real.to_string_lossy())
}

fn version(file: &str) -> Option<String> {
    let numbers: Vec<&str> = file.rsplit_once(".so.")?.1.split('.').collect();
    match numbers[..] {
        [_, _, major, minor] => Some(format!("{major}.{minor}")),
        _ => None,
    }
}

/// Returns the Ethernet address of a port: the one in its link-local GID (EUI-64).
pub(crate) fn mac(context: &Context, port: u8) -> Verdict<[u8; 6]> {
    let gids = context.gids(port)?;
    let own =
        gids.iter().filter(|entry| entry.kind != GidType::InfiniBand).map(|entry| entry.gid.0);
    let local = own.into_iter().find_map(|gid| match gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some([a ^ 2, b, c, d, e, f])
        }
        _ => None,
    });
    local.ok_or_else(|| lacking("the port has no link-local GID, which contains its MAC address"))
}

#[cfg(test)]
mod tests;
