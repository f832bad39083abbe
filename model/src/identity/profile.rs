//! Generations of ConnectX: what a device calls itself, and which capabilities it lacks.
//!
//! One table has the data. Which generation began to offer a capability is rarely published: each
//! entry names its source, or says that it is assumed.

use crate::cost::{Parameters, devices};
use crate::wire::Link;

/// A capability that not all generations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The enhanced layout of compressed CQEs. "Introduced in ConnectX-6": Linux, commit "net/mlx5e:
    /// Support enhanced CQE compression".
    EnhancedCqes,
    /// Copies of memory by the device (MMO). They are "available from BlueField-2 onwards" and use
    /// modules of the DPU (rdma-core, pull request 1040), which adapters of these generations are not.
    DmaCopy,
    /// Streams of initiators of dynamic connections. Linux has the fields since July 2021, and UCX
    /// (pull request 8445) knows older generations without them. That they began with ConnectX-6 Dx
    /// is assumed.
    DciStreams,
    /// Send queues without a doorbell record. NCCL's issue 2383 has them on adapters with firmware
    /// 40.47, the major number of ConnectX-8, though its reporter writes ConnectX-7. Nothing else
    /// public names an adapter that has them.
    Recordless,
    /// Shared receive queues that match tags. A ConnectX-6 with firmware 20.37 has them, and a
    /// ConnectX-6 Dx with 22.36 has not: `ibv_devinfo` in UCX's issue 10430.
    TagMatching,
    /// Atomics of reliable connections on on-demand memory. A ConnectX-6 with firmware 20.37 has them,
    /// and a ConnectX-5 (a virtual function) and a ConnectX-6 Dx have not: evidence F114.
    OnDemandAtomics,
    /// Times in CQEs as seconds and nanoseconds. Devices are configured for it
    /// (`REAL_TIME_CLOCK_ENABLE`), and a ConnectX-6 Dx without that does not offer it: evidence F147.
    RealTime,
    /// VLAN headers that the device inserts as the WQE says. A ConnectX-6 Dx does not offer that:
    /// evidence F144.
    VlanInsertion,
    /// Send queues that wait for a time. DPDK's guide of its mlx5 driver names ConnectX-7 for "send
    /// scheduling on timestamps" by WAIT.
    WaitOnTime,
}

/// The generation that a device stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A ConnectX-6 by name, with every capability that the model has.
    #[default]
    Complete,
    /// ConnectX-5.
    ConnectX5,
    /// ConnectX-6.
    ConnectX6,
    /// ConnectX-6 Dx.
    ConnectX6Dx,
    /// ConnectX-7.
    ConnectX7,
}

/// A row of the table.
struct Generation {
    /// Its name in settings.
    name: &'static str,
    /// Its name, and where its values are from: *sourced* if a dump of all capabilities of such a device
    /// is public, *sourced in part* if only `ibv_devinfo` of one is, and *assumed* otherwise.
    summary: &'static str,
    /// PCI device (Linux, `mlx5_core_pci_table`).
    device: u16,
    /// Version of the firmware. The major number is that of NVIDIA's firmware for the adapter.
    firmware: [u16; 3],
    /// Links of its ports (DPDK, "NVIDIA MLX5 Ethernet Driver", and NVIDIA's manuals: ConnectX-6 Dx is
    /// an adapter of Ethernet alone).
    links: &'static [Link],
    /// Frequency of the clock: evidence F095. That of ConnectX-7 is assumed to be that of ConnectX-6 Dx.
    clock_khz: u32,
    /// log2 of queue pairs and of protection domains, in dumps of `ibv_devinfo`: evidence F108, F109.
    /// It depends on firmware and configuration too; ConnectX-7 is assumed.
    log_max_qp: u8,
    log_max_pd: u8,
    lacks: &'static [Feature],
    /// The costs of its work in virtual time.
    costs: Parameters,
}

const BOTH: &[Link] = &[Link::InfiniBand, Link::Roce];

/// All generations, in the order of [`Profile::ALL`].
const GENERATIONS: [Generation; 5] = [
    Generation {
        name: "complete",
        summary: "profile complete, assumed",
        device: 0x101b,
        firmware: [20, 35, 1012],
        links: BOTH,
        clock_khz: 1_000_000,
        log_max_qp: 18,
        log_max_pd: 23,
        lacks: &[],
        costs: devices::CHOSEN,
    },
    Generation {
        name: "cx5",
        summary: "profile cx5, sourced in part",
        device: 0x1017,
        firmware: [16, 35, 1012],
        links: BOTH,
        clock_khz: 156_250,
        log_max_qp: 18,
        log_max_pd: 24,
        lacks: &[
            Feature::EnhancedCqes,
            Feature::DmaCopy,
            Feature::DciStreams,
            Feature::Recordless,
            Feature::OnDemandAtomics,
            Feature::RealTime,
            Feature::WaitOnTime,
        ],
        costs: devices::CONNECTX5,
    },
    Generation {
        name: "cx6",
        summary: "profile cx6, sourced in part",
        device: 0x101b,
        firmware: [20, 35, 1012],
        links: BOTH,
        clock_khz: 156_250,
        log_max_qp: 17,
        log_max_pd: 23,
        lacks: &[
            Feature::DmaCopy,
            Feature::DciStreams,
            Feature::Recordless,
            Feature::RealTime,
            Feature::WaitOnTime,
        ],
        costs: devices::CONNECTX6,
    },
    Generation {
        name: "cx6dx",
        summary: "profile cx6dx, sourced",
        device: 0x101d,
        firmware: [22, 35, 1012],
        links: &[Link::Roce],
        clock_khz: 1_000_000,
        log_max_qp: 17,
        log_max_pd: 23,
        lacks: &[
            Feature::DmaCopy,
            Feature::Recordless,
            Feature::TagMatching,
            Feature::OnDemandAtomics,
            Feature::RealTime,
            Feature::VlanInsertion,
            Feature::WaitOnTime,
        ],
        costs: devices::CONNECTX6_DX,
    },
    Generation {
        name: "cx7",
        summary: "profile cx7, assumed",
        device: 0x1021,
        firmware: [28, 35, 1012],
        links: BOTH,
        clock_khz: 1_000_000,
        log_max_qp: 17,
        log_max_pd: 23,
        lacks: &[Feature::DmaCopy, Feature::Recordless, Feature::RealTime],
        costs: devices::CONNECTX7,
    },
];

impl Profile {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Complete, Self::ConnectX5, Self::ConnectX6, Self::ConnectX6Dx, Self::ConnectX7];

    fn generation(self) -> &'static Generation {
        &GENERATIONS[self as usize]
    }

    /// Returns the profile with this name in settings.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Returns its name in settings.
    pub fn name(self) -> &'static str {
        self.generation().name
    }

    /// Returns its name and where its values are from, for reports: `profile cx6dx, sourced`.
    pub fn summary(self) -> &'static str {
        self.generation().summary
    }

    /// Returns the PCI device.
    pub fn device(self) -> u16 {
        self.generation().device
    }

    /// Returns the version of the firmware: major, minor, and the number after it.
    pub fn firmware(self) -> [u16; 3] {
        self.generation().firmware
    }

    /// Returns log2 of the queue pairs that a device can have.
    pub fn log_max_qp(self) -> u8 {
        self.generation().log_max_qp
    }

    /// Returns log2 of the protection domains that a device can have.
    pub fn log_max_pd(self) -> u8 {
        self.generation().log_max_pd
    }

    /// Returns the costs of its work in virtual time.
    pub(crate) fn costs(self) -> Parameters {
        self.generation().costs
    }

    /// Returns the frequency of the device's clock.
    pub fn clock_khz(self) -> u32 {
        self.generation().clock_khz
    }

    /// Returns the count of the device's clock at a time in nanoseconds.
    pub fn ticks(self, nanoseconds: u64) -> u64 {
        (u128::from(nanoseconds) * u128::from(self.clock_khz()) / 1_000_000) as u64
    }

    /// Returns whether its ports are of a link.
    pub fn carries(self, link: Link) -> bool {
        self.generation().links.contains(&link)
    }

    /// Returns whether it has a capability.
    pub fn has(self, feature: Feature) -> bool {
        !self.generation().lacks.contains(&feature)
    }
}

#[cfg(test)]
mod tests;
