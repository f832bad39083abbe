//! What peer-to-peer access of the device to other devices' memory needs: access control of the
//! bridges (ACS), and the modules that give GPUs' memory to RDMA.

use super::check::{Check, Group, Question};
use super::situation::Situation;

/// Modules of GPUs' drivers.
const GPU: [&str; 3] = ["nvidia", "amdgpu", "xe"];
/// Modules that register GPUs' memory with `ib_core` of NVIDIA's driver packages.
const PEER_MEMORY: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

/// Checks the bridges above the device.
pub fn look(situation: &Situation) -> Vec<Check> {
    vec![access_control(situation)]
}

/// Checks the modules, which all devices share.
pub fn common(situation: &Situation) -> Vec<Check> {
    vec![modules(situation)]
}

fn gpu(situation: &Situation) -> Option<&'static str> {
    GPU.into_iter().find(|name| situation.tree.exists(&format!("sys/module/{name}")))
}

/// Returns ACS Control of the extended capability (PCI Express Base Specification, 7.7.8.3).
fn control(config: &[u8]) -> Option<u16> {
    const EXTENDED: usize = 0x100;
    const ACS: u16 = 0xd;
    let mut at = EXTENDED;
    // 960 capabilities of four bytes fill the space, so a longer list is a loop.
    for _ in 0..960 {
        let header = u32::from_le_bytes(*config.get(at..)?.first_chunk()?);
        if header as u16 == ACS && header != 0 {
            return Some(u16::from_le_bytes(*config.get(at + 6..)?.first_chunk()?));
        }
        at = (header >> 20) as usize & !3;
        if at < EXTENDED {
            return None;
        }
    }
    None
}

fn access_control(situation: &Situation) -> Check {
    /// P2P Request Redirect, Completion Redirect, and Upstream Forwarding.
    const REDIRECTS: u16 = 1 << 2 | 1 << 3 | 1 << 4;
    let question = Question::new(
        Group::Pci,
        "ACS",
        "/sys/bus/pci/devices/*/config of the bridges above, extended capability 0x0d",
        "bridges that redirect send peer-to-peer traffic, as of GPUs, through the root complex",
    );
    let Some(function) = situation.function().filter(|_| !situation.model) else {
        return question.not_applicable("there is no bridge");
    };
    let tree = &situation.tree;
    let (mut redirecting, mut seen, mut hidden) = (Vec::new(), 0, 0);
    let mut above = tree.parent(&function.folder);
    // Root port, and the bridges of some switches.
    for _ in 0..16 {
        let Some(folder) = above.filter(|folder| tree.exists(&format!("{folder}/vendor"))) else {
            break;
        };
        let config = tree.bytes(&format!("{folder}/config")).unwrap_or_default();
        match control(&config) {
            Some(control) if control & REDIRECTS != 0 => {
                let address = folder.rsplit('/').next().unwrap_or_default();
                redirecting.push(address.to_owned());
            }
            // What only root may read.
            None if config.len() <= 256 => hidden += 1,
            _ => {}
        }
        seen += 1;
        above = tree.parent(&folder);
    }
    if redirecting.is_empty() && hidden > 0 {
        return question.unknown(
            "the bridges' extended configuration space can be read by root alone",
            Some("sudo mlx5 doctor    # or sudo lspci -vvv | grep ACSCtl".to_owned()),
        );
    }
    match (redirecting.first(), gpu(situation)) {
        (None, _) if seen == 0 => question.not_applicable("there is no bridge above the function"),
        (None, _) => question.good("no bridge above redirects"),
        (Some(first), Some(gpu)) => question.warning(
            format!("redirected by {}, and {gpu} is loaded", redirecting.join(", ")),
            format!(
                "setpci -s {first} ECAP_ACS+6.w=0000    # for each; or off in the firmware's setup, \
                 where no virtual machine is given devices"
            ),
        ),
        (Some(_), None) => question
            .good(format!("redirected by {}; no driver of a GPU is loaded", redirecting.join(", "))),
    }
}

fn modules(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Kernel,
        "GPU memory",
        "/sys/module/{nvidia,amdgpu,xe,nvidia_peermem,nv_peer_mem}",
        "memory of a GPU is registered by a peer memory module, or by dma-buf",
    );
    let Some(gpu) = gpu(situation).filter(|_| !situation.model) else {
        return question.not_applicable("no driver of a GPU is loaded");
    };
    let has = |name: &&str| situation.tree.exists(&format!("sys/module/{name}"));
    match PEER_MEMORY.into_iter().find(has) {
        Some(module) => question.good(format!("{gpu}, by {module}")),
        None if gpu != "nvidia" => question.good(format!("{gpu}, by dma-buf")),
        None => question.warning(
            "nvidia is loaded, and nvidia_peermem is not: only programs with dma-buf reach its memory",
            "modprobe nvidia_peermem    # dma-buf: Linux 5.12 and NVIDIA's open kernel modules",
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Configuration space with an ACS capability behind another.
    fn config(acs: u16) -> Vec<u8> {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&0x1401_0001_u32.to_le_bytes());
        config[0x140..0x144].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
        config[0x146..0x148].copy_from_slice(&acs.to_le_bytes());
        config
    }

    #[test]
    fn access_control_is_found_behind_other_capabilities() {
        assert_eq!(control(&config(0x1d)), Some(0x1d));
        assert_eq!(control(&config(0x1d)[..256]), None);
        assert_eq!(control(&[0; 4096]), None);
        // A list that leads back to its beginning.
        let mut looped = vec![0; 4096];
        looped[0x100..0x104].copy_from_slice(&0x1001_0001_u32.to_le_bytes());
        assert_eq!(control(&looped), None);
    }

    proptest! {
        #[test]
        fn no_configuration_space_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = control(&bytes);
        }
    }
}
