//! Signs of causes in the text around a record.

use super::super::Cause;
use super::reason::*;
use super::refusal::*;

bitflags::bitflags! {
    /// Subjects of the text around a record.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Signs: u32 {
        /// Memory of a GPU.
        const GPU = 1;
        /// Limits of locked memory.
        const LIMIT = 2;
        /// A port or link that went down.
        const LINK = 4;
        /// A program that was killed or crashed, before the record.
        const CRASH = 8;
        /// The end of a connection.
        const END = 16;
        /// The IOMMU.
        const IOMMU = 32;
        /// A container.
        const CONTAINER = 64;
        /// Different path MTUs.
        const MTU = 128;
        /// RoCE with a link-local address.
        const LINK_LOCAL = 256;
        /// Two ports of different networks or numbers.
        const OTHER_NETWORK = 512;
        /// Another completion with an error, before the record.
        const EARLIER = 1024;
        /// Congestion, pauses or drops.
        const CONGESTION = 2048;
        /// UAR pages.
        const UAR = 4096;
        /// Ports that are bonded.
        const BOND = 8192;
        /// Timeouts or retries that were set.
        const TIMEOUT = 16384;
        /// A version with which it worked, or was changed.
        const VERSION = 32768;
        /// NVIDIA's kernel driver.
        const NVRM = 65536;
        /// An Ethernet port.
        const ETHERNET = 131_072;
        /// GIDs of two kinds: of an IPv4 address, and link-local.
        const GID_KINDS = 262_144;
        /// Protection domains.
        const DOMAIN = 524_288;
        /// Buffers of DPDK.
        const MBUF = 1_048_576;
        /// A registration by dma-buf.
        const DMA_BUF = 2_097_152;
        /// A GPU of AMD.
        const AMD = 4_194_304;
        /// A module for GPU memory that is loaded.
        const PEERMEM = 8_388_608;
        /// A GID that is zero.
        const ZERO_GID = 16_777_216;
    }
}

/// Texts in lower case, and the sign that they are.
const MARKS: &[(&str, Signs)] = &[
    ("cuda", Signs::GPU),
    ("gpu", Signs::GPU),
    ("gdr", Signs::GPU),
    ("nvidia", Signs::GPU),
    ("rocm", Signs::GPU.union(Signs::AMD)),
    ("amdgpu", Signs::GPU.union(Signs::AMD)),
    ("rccl", Signs::GPU.union(Signs::AMD)),
    ("gid: 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00", Signs::ZERO_GID),
    ("vram", Signs::GPU),
    ("dmabuf", Signs::GPU),
    ("dma-buf", Signs::GPU),
    ("using dma-buf", Signs::DMA_BUF),
    ("reg_dmabuf", Signs::DMA_BUF),
    ("memlock", Signs::LIMIT),
    ("ulimit", Signs::LIMIT),
    ("locked memory", Signs::LIMIT),
    ("port error", Signs::LINK),
    ("port_err", Signs::LINK),
    ("link down", Signs::LINK),
    ("link is down", Signs::LINK),
    ("symbol error", Signs::LINK),
    ("cable", Signs::LINK),
    ("flapp", Signs::LINK),
    ("segmentation fault", Signs::CRASH),
    ("sigsegv", Signs::CRASH),
    ("sigkill", Signs::CRASH),
    ("signal 9", Signs::CRASH),
    ("killed process", Signs::CRASH),
    ("out of memory:", Signs::CRASH),
    ("oom-kill", Signs::CRASH),
    ("disconnect", Signs::END),
    ("closing connection", Signs::END),
    ("connection closed", Signs::END),
    ("io_page_fault", Signs::IOMMU),
    ("dmar:", Signs::IOMMU),
    ("iommu", Signs::IOMMU),
    ("docker", Signs::CONTAINER),
    ("kube", Signs::CONTAINER),
    ("container", Signs::CONTAINER),
    ("pod-", Signs::CONTAINER),
    ("mtu mismatch", Signs::MTU),
    ("different mtu", Signs::MTU),
    ("localgid fe80", Signs::LINK_LOCAL),
    ("dgid fe80", Signs::LINK_LOCAL),
    ("lid: 0, gid: (gid_index 0) fe:80", Signs::LINK_LOCAL),
    ("lid: 0, gid: (gid_index 1) fe:80", Signs::LINK_LOCAL),
    ("pfc", Signs::CONGESTION),
    ("ecn", Signs::CONGESTION),
    ("congestion", Signs::CONGESTION),
    ("out_of_sequence", Signs::CONGESTION),
    ("alloc_uar", Signs::UAR),
    ("bond", Signs::BOND),
    ("ib_timeout", Signs::TIMEOUT),
    ("ib_retry", Signs::TIMEOUT),
    ("rc_timeout", Signs::TIMEOUT),
    ("retry_count", Signs::TIMEOUT),
    ("qp_timeout", Signs::TIMEOUT),
    ("nvrm:", Signs::NVRM),
    ("link_layer: ethernet", Signs::ETHERNET),
    ("link layer: ethernet", Signs::ETHERNET),
    ("link type       : ethernet", Signs::ETHERNET),
    ("roce", Signs::ETHERNET),
    ("protection domain", Signs::DOMAIN),
    ("mbuf space", Signs::MBUF),
    ("too many sges", Signs::MBUF),
    ("wrong pd", Signs::DOMAIN),
    ("regression", Signs::VERSION),
    ("bisect", Signs::VERSION),
    ("upgrad", Signs::VERSION),
    ("downgrad", Signs::VERSION),
    ("worked with", Signs::VERSION),
    ("works with", Signs::VERSION),
];

/// How much a sign adds to a cause.
const POINTS: &[(Signs, Cause, u32)] = &[
    (Signs::GPU, DEVICE_MEMORY, 8),
    (Signs::GPU, PEER_DEVICE_MEMORY, 4),
    (Signs::GPU, NO_PEERMEM, 8),
    (Signs::AMD, NO_PEERMEM_AMD, 16),
    (Signs::PEERMEM, GPU_KIND, 4),
    (Signs::ZERO_GID, EMPTY_GID, 14),
    (Signs::ZERO_GID, CONTAINER_GID, 10),
    (Signs::GPU, GPU_KIND, 4),
    (Signs::DMA_BUF, REGISTRATION_UNSUPPORTED, 14),
    (Signs::LIMIT, MEMLOCK, 12),
    (Signs::LINK, BAD_LINK, 14),
    (Signs::CRASH, PEER_GONE, 14),
    (Signs::END, CLOSED, 8),
    (Signs::END, PEER_CLOSED, 7),
    (Signs::IOMMU, IOMMU, 14),
    (Signs::IOMMU, IOMMU_SPACE, 12),
    (Signs::CONTAINER, CONTAINER_GID, 8),
    (Signs::CONTAINER, NO_ACCESS, 3),
    (Signs::CONTAINER, NO_NETDEV, 4),
    (Signs::MTU, PATH_MTU, 14),
    (Signs::LINK_LOCAL, WRONG_GID, 12),
    (Signs::LINK_LOCAL, EMPTY_GID, 6),
    (Signs::OTHER_NETWORK, WRONG_PATH, 10),
    (Signs::OTHER_NETWORK, RAILS, 8),
    (Signs::EARLIER, EARLIER_FAILURE, 20),
    (Signs::CONGESTION, LOSSY_FABRIC, 14),
    (Signs::UAR, UAR_SPACE, 14),
    (Signs::BOND, ROCE_LAG, 8),
    (Signs::TIMEOUT, SHORT_TIMEOUT, 14),
    (Signs::TIMEOUT, SMALL_RNR_RETRY, 4),
    (Signs::NVRM, GPU_SPACE, 14),
    (Signs::ETHERNET, WRONG_GID, 3),
    (Signs::ETHERNET, EMPTY_GID, 3),
    (Signs::ETHERNET, NO_ANSWER, 3),
    (Signs::ETHERNET, NO_GRH, 5),
    (Signs::VERSION, OLD_SOFTWARE, 14),
    (Signs::DOMAIN, OTHER_DOMAIN, 12),
    (Signs::DOMAIN, PEER_DOMAIN, 12),
    (Signs::MBUF, SMALL_BUFFERS, 14),
    (Signs::GID_KINDS, EMPTY_GID, 14),
    (Signs::GID_KINDS, WRONG_GID, 14),
];

impl Signs {
    /// Signs that count only before a record: what follows it may be its effect.
    pub const BEFORE: Signs = Signs::CRASH.union(Signs::EARLIER);

    /// Returns the signs in a line.
    #[must_use]
    pub fn of_line(line: &str) -> Signs {
        let line = line.to_ascii_lowercase();
        let found = MARKS.iter().filter(|(mark, _)| line.contains(mark));
        let many = if has_many_contexts(&line) { Signs::UAR } else { Signs::empty() };
        let peermem = if has_peermem(&line) { Signs::PEERMEM } else { Signs::empty() };
        found.fold(many | peermem, |signs, (_, sign)| signs | *sign)
    }

    /// Returns whether these signs rule a cause out.
    pub(super) fn exclude(self, cause: &Cause) -> bool {
        let is = |other: Cause| cause.cause == other.cause;
        is(NO_PEERMEM) && self.intersects(Signs::DMA_BUF | Signs::PEERMEM | Signs::AMD)
            || is(NO_PEERMEM_AMD) && !self.contains(Signs::AMD)
    }

    /// Returns how much these signs add to a cause.
    pub(super) fn points(self, cause: &Cause) -> u32 {
        let met =
            |entry: &&(Signs, Cause, u32)| self.contains(entry.0) && entry.1.cause == cause.cause;
        POINTS.iter().filter(met).map(|(_, _, points)| points).sum()
    }
}

/// Open contexts of a device from which on its UAR pages may be used up: 256 processes did so in
/// <https://github.com/openucx/ucx/issues/6049>.
pub(crate) const MANY_CONTEXTS: u64 = 256;

/// Returns whether a line says that a module for GPU memory is loaded: "nvidia_peermem 16384 0" of
/// `lsmod`, "nv_peer_mem loaded: yes".
fn has_peermem(lower: &str) -> bool {
    let names = ["nvidia_peermem", "nvidia-peermem", "nv_peer_mem"];
    let Some(name) = names.into_iter().find(|name| lower.contains(name)) else { return false };
    let listed = lower.trim_start().strip_prefix(name).map(str::trim_start);
    let listed = listed.is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    listed || lower.contains("loaded: yes") || lower.contains("peermem is loaded")
}

/// Returns whether a line of `rdma resource` has many contexts: "mlx5_2: pd 8056 cq 4030 … ctx 4027".
fn has_many_contexts(lower: &str) -> bool {
    let of = |rest: &str| rest.split(' ').next().and_then(|number| number.parse().ok());
    lower.contains(": pd ")
        && lower
            .split_once(" ctx ")
            .and_then(|(_, rest)| of(rest))
            .is_some_and(|ctx: u64| ctx >= MANY_CONTEXTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_has_a_mark_or_a_maker_and_adds_to_a_cause() {
        for (mark, sign) in MARKS {
            assert_eq!(*mark, mark.to_ascii_lowercase(), "lines are compared in lower case");
            assert!(Signs::of_line(&mark.to_uppercase()).contains(*sign), "{mark}");
        }
        let marked = MARKS.iter().fold(Signs::empty(), |signs, (_, sign)| signs | *sign);
        let made = Signs::PEERMEM | Signs::OTHER_NETWORK | Signs::EARLIER | Signs::GID_KINDS;
        assert_eq!(marked | made, Signs::all());
        for sign in Signs::all() {
            assert!(POINTS.iter().any(|(entry, _, _)| *entry == sign), "{sign:?}");
        }
        assert_eq!(Signs::GPU.points(&IOMMU), 0);
        for line in ["nvidia_peermem         16384  0", "nv_peer_mem loaded: yes"] {
            assert!(Signs::of_line(line).contains(Signs::PEERMEM), "{line}");
        }
        let missing = "modprobe nvidia_peermem: not found";
        assert!(!Signs::of_line(missing).contains(Signs::PEERMEM));
        assert!(Signs::GPU.exclude(&NO_PEERMEM_AMD) && !Signs::GPU.exclude(&NO_PEERMEM));
        assert!(Signs::AMD.exclude(&NO_PEERMEM) && Signs::PEERMEM.exclude(&NO_PEERMEM));
    }
}
