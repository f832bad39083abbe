//! Requirements of building and testing on the machine, and how to detect them.
//!
//! A requirement is detected by the file that the build or test will look for (a command, a file, a
//! pkg-config module), not by a package database. That works on any distribution, and for libraries
//! that were installed without packages.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// One Debian package, and what shows that its content is on the machine.
pub struct Need {
    /// Debian's and Ubuntu's name.
    pub package: &'static str,
    /// All of these must be there.
    evidence: &'static [Evidence],
}

enum Evidence {
    /// An executable in PATH.
    Program(&'static str),
    /// A file or folder.
    Path(&'static str),
    /// A library that pkg-config knows, or whose file for pkg-config is in a usual folder.
    Library(&'static str),
    /// This file, in any folder of these or in its `build` or `source`.
    Under(&'static [&'static str], &'static str),
}

/// The kernel's headers: Debian's name for this kind of machine.
pub const KERNEL_HEADERS: &str =
    if cfg!(target_arch = "aarch64") { "linux-headers-arm64" } else { "linux-headers-amd64" };
/// Ubuntu's.
pub const KERNEL_HEADERS_OF_UBUNTU: &str = "linux-headers-generic";

/// The requirements of building all packages and of running programs on the model.
pub const BUILD: &[Need] = &[
    Need { package: "gcc", evidence: &[Evidence::Program("cc")] },
    Need { package: "libc6-dev", evidence: &[Evidence::Path("/usr/include/stdio.h")] },
    Need {
        package: "libibverbs-dev",
        evidence: &[Evidence::Library("libibverbs"), Evidence::Library("libmlx5")],
    },
];

/// The further requirements of the tests, besides libclang (see [`crate::libclang`]): programs that run on the model, what the features `cm`
/// and `rdma-sys` are built with, and what the crate sideway is.
pub const TEST: &[Need] = &[
    Need { package: "pkg-config", evidence: &[Evidence::Program("pkg-config")] },
    Need { package: "librdmacm-dev", evidence: &[Evidence::Library("librdmacm")] },
    Need { package: "g++", evidence: &[Evidence::Program("c++")] },
    Need { package: "clang", evidence: &[Evidence::Program("clang++")] },
    Need { package: "cmake", evidence: &[Evidence::Program("cmake")] },
    Need {
        package: "ibverbs-utils",
        evidence: &[Evidence::Program("ibv_rc_pingpong"), Evidence::Program("ibv_devinfo")],
    },
    Need { package: "rdmacm-utils", evidence: &[Evidence::Program("ucmatose")] },
    Need { package: "infiniband-diags", evidence: &[Evidence::Path("/usr/sbin/ibstat")] },
    Need {
        package: "perftest",
        evidence: &[Evidence::Program("ib_write_lat"), Evidence::Program("ib_atomic_bw")],
    },
    Need {
        package: "rdmacm-utils",
        evidence: &[Evidence::Program("rping"), Evidence::Program("mckey")],
    },
    Need { package: "libfabric-bin", evidence: &[Evidence::Program("fi_pingpong")] },
    Need {
        package: "python3-pyverbs",
        evidence: &[
            Evidence::Path("/usr/lib/python3/dist-packages/pyverbs"),
            // rdma-core's tests come as documentation, which container images like to leave out.
            Evidence::Path("/usr/share/doc/rdma-core/tests/run_tests.py"),
        ],
    },
    Need {
        package: "python3-scapy",
        evidence: &[Evidence::Path("/usr/lib/python3/dist-packages/scapy")],
    },
    Need {
        package: "ucx-utils",
        evidence: &[Evidence::Program("ucx_info"), Evidence::Program("ucx_perftest")],
    },
    Need {
        package: KERNEL_HEADERS,
        evidence: &[Evidence::Under(
            &["/usr/src", "/usr/src/kernels", "/lib/modules"],
            "include/linux/mlx5/mlx5_ifc.h",
        )],
    },
    Need {
        package: "util-linux",
        evidence: &[
            Evidence::Program("prlimit"),
            Evidence::Program("setpriv"),
            Evidence::Program("nsenter"),
            Evidence::Program("unshare"),
        ],
    },
    Need {
        package: "iproute2",
        evidence: &[
            Evidence::Program("ip"),
            Evidence::Program("rdma"),
            Evidence::Path("/usr/sbin/tc"),
        ],
    },
    Need { package: "openmpi-bin", evidence: &[Evidence::Program("mpirun.openmpi")] },
    Need { package: "mpich", evidence: &[Evidence::Program("mpiexec.mpich")] },
    Need { package: "slurm-client", evidence: &[Evidence::Program("srun")] },
    Need { package: "slurmctld", evidence: &[Evidence::Path("/usr/sbin/slurmctld")] },
    Need { package: "slurmd", evidence: &[Evidence::Path("/usr/sbin/slurmd")] },
    Need { package: "bsdutils", evidence: &[Evidence::Program("script")] },
    Need { package: "valgrind", evidence: &[Evidence::Program("valgrind")] },
    Need { package: "tshark", evidence: &[Evidence::Program("tshark")] },
    Need {
        package: "libjemalloc2",
        evidence: &[Evidence::Under(&["/usr", "/usr/lib"], "libjemalloc.so.2")],
    },
    // With the drivers of all devices.
    Need { package: "dpdk-dev", evidence: &[Evidence::Program("dpdk-testpmd")] },
    Need { package: "jq", evidence: &[Evidence::Program("jq")] },
    Need { package: "binutils", evidence: &[Evidence::Program("objdump")] },
    // Pages that tools write are opened in it.
    Need { package: "chromium", evidence: &[Evidence::Program("chromium")] },
];

/// The further requirements of `cargo xtask arm64`.
pub const ARM64: &[Need] = &[
    Need { package: "mmdebstrap", evidence: &[Evidence::Program("mmdebstrap")] },
    Need { package: "qemu-user-static", evidence: &[Evidence::Program("qemu-aarch64-static")] },
    Need {
        package: "gcc-aarch64-linux-gnu",
        evidence: &[Evidence::Program("aarch64-linux-gnu-gcc")],
    },
    Need {
        package: "binutils-aarch64-linux-gnu",
        evidence: &[
            Evidence::Program("aarch64-linux-gnu-as"),
            Evidence::Program("aarch64-linux-gnu-objdump"),
        ],
    },
];

impl Need {
    /// Whether everything this need stands for is on the machine.
    pub fn is_met(&self) -> bool {
        self.evidence.iter().all(Evidence::is_there)
    }
}

impl Evidence {
    fn is_there(&self) -> bool {
        match self {
            Self::Program(name) => program_exists(name),
            Self::Path(path) => Path::new(path).exists(),
            Self::Under(folders, file) => folders
                .iter()
                .filter_map(|folder| fs::read_dir(folder).ok())
                .flat_map(|entries| entries.flatten())
                .any(|entry| {
                    let inside = |part: &str| entry.path().join(part).join(file).exists();
                    inside("") || inside("build") || inside("source")
                }),
            Self::Library(module) => {
                let known = Command::new("pkg-config")
                    .args(["--exists", module])
                    .stdin(Stdio::null())
                    .status()
                    .is_ok_and(|status| status.success());
                let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
                known
                    || ["/usr/lib64", &multiarch, "/usr/lib"].iter().any(|folder| {
                        Path::new(folder).join(format!("pkgconfig/{module}.pc")).exists()
                    })
            }
        }
    }
}

/// Whether `name` is a file in one of PATH's folders.
pub fn program_exists(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
