//! The device that answers, and the software around it.

use std::fs;

use mlx5::verbs::Context;

use crate::report::{Bed, Environment};

/// A device, without anything that tells it from others of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What is behind libibverbs.
    pub bed: Bed,
    /// The product, by its PCI number.
    pub product: String,
    /// The PCI number, where it is known.
    pub part: Option<u32>,
    /// The version of the firmware.
    pub firmware: String,
    /// `InfiniBand` or `Ethernet`.
    pub link: String,
}

impl Device {
    /// Describes the device of a side.
    pub(crate) fn of(environment: &Environment) -> Self {
        let Environment { bed, product, firmware, link, .. } = environment;
        Self {
            bed: *bed,
            product: product.clone(),
            part: None,
            firmware: firmware.clone(),
            link: link.clone(),
        }
    }

    /// Describes the device of this side, which is open.
    ///
    /// # Errors
    /// Those of [`Context::attributes`].
    pub(crate) fn of_open(environment: &Environment, context: &Context) -> mlx5::Result<Self> {
        let part = context.attributes()?.vendor_part_id;
        Ok(Self { part: Some(part), ..Self::of(environment) })
    }
}

/// The software of a machine: versions, and no name that a person chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// The distribution and its version (`ID` and `VERSION_ID` of os-release).
    pub distribution: Option<String>,
    /// Linux's version: the numbers at the beginning of its release.
    pub kernel: Option<String>,
    /// The version of rdma-core.
    pub rdma_core: Option<String>,
    /// The version of the suite, which is that of the driver.
    pub version: String,
}

impl System {
    /// Describes the machine of a side.
    pub(crate) fn of(environment: &Environment) -> Self {
        let release = fs::read_to_string("/etc/os-release").ok();
        Self {
            distribution: release.as_deref().and_then(distribution),
            kernel: environment.kernel.as_deref().map(numbers),
            rdma_core: environment.rdma_core.clone(),
            version: environment.version.clone(),
        }
    }
}

/// Returns the distribution that an os-release file names, such as `debian 13`. The other lines of the
/// file may have names of sites.
pub(super) fn distribution(release: &str) -> Option<String> {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches(['"', '\'']).to_owned())
    };
    let id = value("ID")?;
    let version = value("VERSION_ID");
    Some(version.map_or_else(|| id.clone(), |version| format!("{id} {version}")))
}

/// Returns the numbers at the beginning of a release. What follows, somebody may have chosen.
pub(super) fn numbers(release: &str) -> String {
    let is_number = |character: char| character.is_ascii_digit() || ".-".contains(character);
    let end = release.find(|character| !is_number(character)).unwrap_or(release.len());
    release[..end].trim_end_matches(['.', '-']).to_owned()
}
