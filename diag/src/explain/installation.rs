//! Modules of the kernel, shared libraries and tools that do not fit what else is installed.
//!
//! The words are those of Linux's `kernel/module`, of kmod's programs, of glibc's loader and of
//! libibverbs' `init.c` and `dynamic_driver.c`, mstflint and Kubernetes' RDMA plugins.

use super::event::KernelEvent;
use super::events;

/// Returns what a line about a module says; `None` if it says nothing of these.
#[must_use]
pub fn module(line: &str) -> Option<&'static KernelEvent> {
    // EINVAL of a symbol follows a line with the first words of the table.
    if line.contains("Unknown symbol") && line.contains("(err -22)") {
        return MODULES.first();
    }
    MODULES.iter().find(|event| event.tokens.iter().all(|token| line.contains(token)))
}

/// Returns what a line about a library says; `None` if it says nothing of these.
#[must_use]
pub fn library(line: &str) -> Option<&'static KernelEvent> {
    LIBRARIES.iter().find(|event| event.tokens.iter().all(|token| line.contains(token)))
}

/// Returns what a line of a tool says; `None` if it says nothing of these.
#[must_use]
pub fn tool(line: &str) -> Option<&'static KernelEvent> {
    TOOLS.iter().find(|event| event.tokens.iter().all(|token| line.contains(token)))
}

events! {
    /// Lines about modules of the kernel, more specific ones before others.
    MODULES:
    ["disagrees about version of symbol"] "a kernel module is of another build than the one that it needs" {
        "The checksum of a symbol differs between the two modules, so the kernel does not load the second one.";
        "modules of two packages or builds are mixed: the kernel's own, and those of MLNX_OFED, DOCA-OFED or DKMS"
            => "`modinfo -n MODULE` of both shows where they come from; unload all and load those of one package (`/etc/init.d/openibd restart`); then make the initramfs anew, which may load the old ones at boot";
    }
    ["could not insert", "nknown symbol"] "a kernel module needs symbols that do not fit" {
        "The kernel's log names the symbols, and whether they are missing or of another build.";
        "the modules that it needs are of another package or build, or are not loaded"
            => "`dmesg | mlx5 decode`; `modinfo -n MODULE` shows where a module comes from";
    }
    ["can't insert", "nknown symbol"] "a kernel module needs symbols that do not fit" {
        "The kernel's log names the symbols, and whether they are missing or of another build.";
        "the modules that it needs are of another package or build, or are not loaded"
            => "`dmesg | mlx5 decode`; load a module by modprobe, which loads what it needs first";
    }
    ["Unknown symbol ib_", "peer_memory_client"] "the RDMA core has no interface for GPU memory" {
        "ib_register_peer_memory_client is a symbol of the RDMA core of MLNX_OFED and DOCA-OFED, and of no kernel's own.";
        "ib_core is the kernel's own"
            => "install MLNX_OFED or DOCA-OFED, then build this module anew; or register GPU memory by dma-buf, which needs no such module";
    }
    ["Unknown symbol nvidia_p2p", "(err"] "NVIDIA's driver is not there for a module that needs it" {
        "The symbol is one of the module nvidia.";
        "the module nvidia is not loaded, or its licence or version does not give the symbol to this module"
            => "`modprobe nvidia`; use nvidia-peermem, which comes with the driver, in place of nv_peer_mem";
    }
    ["Unknown symbol", "(err"] "a kernel module needs a symbol that nobody has" {
        "The module that has the symbol is not loaded, or has it no more.";
        "a module that it needs is not loaded, or is of another package"
            => "load it by modprobe, which loads what it needs, and not by insmod; `modinfo -F depends MODULE`; run `depmod -a` after an installation";
    }
    ["version magic", "should be"] "a kernel module was built for another kernel" {
        "The line has both versions: that of the module, then that of the running kernel.";
        "the module was built for another kernel than the one that runs"
            => "build or install it for `uname -r` (DKMS, kmod packages, `mlnxofedinstall --add-kernel-support`)";
    }
    ["could not insert", "nvidia", "peermem", "Invalid"] "nvidia-peermem does not load" {
        "The module was built without the interface of the RDMA core that it needs, and refuses to start.";
        "NVIDIA's driver was built when MLNX_OFED or DOCA-OFED was not installed, or the kernel's own RDMA core runs"
            => "install MLNX_OFED or DOCA-OFED first, then NVIDIA's driver anew; or register by dma-buf, which needs no such module";
    }
    ["could not insert", "File exists"] "a kernel module is loaded already" {
        "Nothing is wrong, unless another version of it was meant.";
        "the module, or another of the same name, is loaded" => "`lsmod`, `modinfo -n MODULE`; unload it first to load another one";
    }
    ["could not insert", "Operation not permitted"] "the process may not load kernel modules" {
        "The kernel refused the process, and did not look at the module.";
        "the process is not root, runs in a container, or the kernel is locked down" => "run it as root on the host; `dmesg | grep -i lockdown`";
    }
    ["could not insert", "Required key not available"] "a kernel module is not signed" {
        "Secure Boot is on, and the kernel loads modules only with a signature that it knows.";
        "the module has no signature, or its key is not enrolled"
            => "enrol the key of the package (`mokutil --import`), or switch Secure Boot off";
    }
    ["could not insert", "Key was rejected by service"] "a kernel module is signed by a key that is not known" {
        "Secure Boot is on, and the kernel loads modules only with a signature that it knows.";
        "the key of the module is not enrolled"
            => "enrol the key of the package (`mokutil --import`), or switch Secure Boot off";
    }
    ["could not insert", "Exec format error"] "a kernel module was built for another kernel or processor" {
        "The kernel's log has a line with the reason.";
        "the module was built for another kernel than the one that runs"
            => "`dmesg | tail`; build or install it for `uname -r`";
    }
    ["could not insert", "Invalid module format"] "a kernel module was built for another kernel or processor" {
        "The kernel's log has a line with the reason.";
        "the module was built for another kernel than the one that runs"
            => "`dmesg | tail`; build or install it for `uname -r`";
    }
    ["needs unknown symbol"] "a kernel module needs a symbol that nobody has" {
        "depmod found no installed module with the symbol.";
        "a module that it needs is not installed for that kernel, or is of another package"
            => "install both from one package, for the kernel in the path";
    }
    ["no symbol version for"] "a kernel module is of another build than the one that it needs" {
        "The module that has the symbol was built without versions, or is of another build.";
        "modules of two packages or builds are mixed: the kernel's own, and those of MLNX_OFED, DOCA-OFED or DKMS"
            => "`modinfo -n MODULE` of both shows where they come from; build or install both from one package";
    }
    ["could not insert"] "a kernel module was not loaded" {
        "The kernel refused the module, or the module refused to start.";
        "an earlier line of the kernel's log has the reason" => "`dmesg | mlx5 decode`";
    }
    ["FATAL: Module", "not found"] "a kernel module is not installed" {
        "There is no such module for the running kernel.";
        "the package with the module is not installed for the kernel that runs"
            => "compare `uname -r` with the folder in the line; install linux-modules-extra (Ubuntu), kernel-modules-extra (Fedora), or MLNX_OFED or DOCA-OFED for this kernel";
    }
    ["ERROR: Module", "is in use"] "a kernel module is in use" {
        "Another module or a program holds it, so that a newer one cannot take its place.";
        "other modules stand on it, or a program has its device open"
            => "the line and `lsmod` name the modules; unload those first (`/etc/init.d/openibd stop` unloads a package's), or restart the host";
    }
    ["FATAL: Module", "is in use"] "a kernel module is in use" {
        "Another module or a program holds it.";
        "other modules stand on it" => "`lsmod` names them; unload those first (`/etc/init.d/openibd stop` unloads a package's)";
    }
}

events! {
    /// Lines about shared libraries, more specific ones before others.
    LIBRARIES:
    ["ibv_exp_"] "the program was built with MLNX_OFED's old libraries" {
        "Functions named ibv_exp_ were in MLNX_OFED's own libibverbs until 4.9, and are in no other.";
        "the program or the provider was built for MLNX_OFED of before 5.0"
            => "take program, libibverbs and provider of one package; a newer version of the program uses rdma-core's functions";
    }
    ["does not support the kernel ABI"] "library and kernel do not fit each other" {
        "The line has the kernel's version of the interface, and the versions that the library takes.";
        "the library in use is older or newer than the kernel's modules: two packages are mixed"
            => "install libibverbs and providers of the package that the modules are of, also in a container";
    }
    ["no userspace device-specific driver found"] "libibverbs has no driver for a device" {
        "The kernel has the device, and no library of a provider takes it.";
        "the device's user-space driver is not installed, or libibverbs does not find it"
            => "install ibverbs-providers (or rdma-core) of the package that libibverbs is of, also in the container; look in /etc/libibverbs.d";
    }
    ["couldn't load driver"] "libibverbs did not load a provider" {
        "A file in libibverbs.d names a provider whose library is missing or does not fit. Other providers are not concerned.";
        "the library is not installed, or is of another build than libibverbs"
            => "does the machine have a device of this provider? Then install ibverbs-providers of the package that libibverbs is of, also in the container. If not, nothing is wrong: remove its file from /etc/libibverbs.d";
    }
    ["couldn't open config directory"] "libibverbs finds no list of providers" {
        "libibverbs reads the names of its providers from this directory.";
        "no provider is installed, or libibverbs was built for another directory"
            => "install ibverbs-providers; in a container, from the package that libibverbs is of";
    }
    ["version `MLX5_OFED"] "the program was built with MLNX_OFED's old libraries" {
        "MLNX_OFED had a libmlx5 of its own until 5.4, with functions that rdma-core's does not have.";
        "the program, or a library that came with it, was built for MLNX_OFED of before 5.5"
            => "build it with rdma-core's libraries, or take the library that was built for this host";
    }
    ["missing run-time dependency on rdma-core"] "DPDK did not load its library for libmlx5" {
        "The line before it says which library was not found.";
        "the glue library is not where DPDK looks, or is of another version, or libibverbs and libmlx5 are not installed"
            => "install rdma-core's libraries; set MLX5_GLUE_PATH to the folder of the glue library of the same DPDK";
    }
    ["libibverbs: Warning: RLIMIT_MEMLOCK is"] "the limit of locked memory is small" {
        "libibverbs warns: each registration and each queue locks memory, and the limit of this process is a few pages.";
        "the limit of locked memory is too small (RLIMIT_MEMLOCK)"
            => "`ulimit -l unlimited`; containers: --ulimit memlock=-1; services: LimitMEMLOCK=infinity";
    }
    ["glue library"] "DPDK did not load its library for libmlx5" {
        "DPDK was built to load libibverbs and libmlx5 when it runs, by a library of its own that stands between.";
        "the glue library is not where DPDK looks, or is of another version, or libibverbs and libmlx5 are not installed"
            => "install rdma-core's libraries; set MLX5_GLUE_PATH to the folder of librte_common_mlx5_glue.so of the same DPDK";
    }
    ["version `", "_PRIVATE_"] "libibverbs and a provider are of different builds" {
        "A provider works with the libibverbs of its own build alone.";
        "libraries of two packages are mixed: the distribution's, conda's, a container's, MLNX_OFED's"
            => "`ldd` of both shows where they come from; take all of one package; look at LD_LIBRARY_PATH";
    }
    ["version `", "' not found"] "a library is older than the program needs" {
        "The program was linked with a newer library than the one that is loaded.";
        "another library is loaded than the one of the build: an older package, or LD_LIBRARY_PATH"
            => "`ldd PROGRAM` names the file; install the rdma-core of the build or a newer one";
    }
    ["undefined symbol"] "a library is older than the program needs" {
        "The loaded library does not have the function.";
        "another library is loaded than the one of the build: an older package, or LD_LIBRARY_PATH"
            => "`ldd PROGRAM` names the file; install the rdma-core of the build or a newer one";
    }
    ["cannot open shared object file"] "a library is not there" {
        "The loader found no file of this name.";
        "the library is not installed, or not where the loader looks"
            => "install rdma-core's libraries (libibverbs1, librdmacm1, ibverbs-providers), also in the container; `ldconfig -p | grep -e ibverbs -e mlx5`";
    }
    ["Failed to open libibverbs"] "libibverbs is not there" {
        "The program loads libibverbs when it runs, found none, and goes on without RDMA.";
        "libibverbs is not installed, or not where the loader looks"
            => "install rdma-core (libibverbs1, ibverbs-providers), also in the container";
    }
    ["cannot find -l"] "the linker does not find a library" {
        "The program cannot be built.";
        "the package with the headers and libraries for building is not installed"
            => "install libibverbs-dev and librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)";
    }
    ["undefined reference to"] "the linker does not find a function" {
        "The program cannot be built.";
        "the library is missing on the linker's command line, stands before the objects that use it, or is too old"
            => "put -libverbs, -lmlx5 or -lrdmacm behind the objects; `nm -D` of the library lists its functions";
    }
    [".h: No such file or directory"] "a header is not there" {
        "The program cannot be built.";
        "the package with the headers is not installed, or is older than the program needs"
            => "install libibverbs-dev and librdmacm-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)";
    }
}

events! {
    /// Lines of tools, more specific ones before others.
    TOOLS:
    ["lockdown", "direct PCI access"] "the kernel's lockdown refuses direct access to the card" {
        "Secure Boot is on, and programs may not reach registers of PCI devices from user space.";
        "the kernel is locked down" => "use the tool with its signed kernel module (mst), `devlink dev flash`, or switch Secure Boot off";
    }
    ["write counter to semaphore: Permission denied"] "the firmware's tool may not write to the card" {
        "The tool takes a semaphore in the card's configuration space, and was refused.";
        "the kernel is locked down (Secure Boot), or the process lacks CAP_SYS_ADMIN"
            => "`dmesg | grep -i lockdown`; run it as root, also in the container; use the signed module of mst";
    }
    ["-E-", "PSID"] "the firmware image is for another card" {
        "The image's PSID is not the card's. A card of another vendor (Dell, HPE, Lenovo) has firmware of its own.";
        "the image is for another board" => "take the image of the PSID that `mlxfwmanager` or `flint -d DEVICE q` shows";
    }
    ["-E-", "MFE_"] "the firmware's tool does not reach the card" {
        "The tool's access to the card's registers failed. The word with MFE_ says how.";
        "the card does not answer, the address is wrong, or access is not allowed"
            => "`lspci -d 15b3:` shows the address; run it as root; `mst start`; look for health and PCIe lines in the kernel's log";
    }
    ["-E- Failed to open the device"] "the firmware's tool does not reach the card" {
        "The lines around it say why.";
        "the address is wrong, or access is not allowed"
            => "`lspci -d 15b3:` shows the address; run it as root; look for lockdown in the kernel's log";
    }
    ["-E- Cannot open"] "the firmware's tool does not reach the card" {
        "The rest of the line says why.";
        "the device's name is wrong, or mst's modules are not loaded"
            => "`mst start`, then `mst status`; or give the PCI address of `lspci -d 15b3:`";
    }
    ["-E- Failed to identify"] "the firmware's tool does not know the card" {
        "The card's identity could not be read.";
        "the card hangs, is in recovery mode, or is newer than the tool"
            => "`lspci -vv -d 15b3:`; a newer mstflint or MFT; a power cycle";
    }
    ["-E- There are no available MST devices"] "mst found no card" {
        "mst lists cards of NVIDIA by their PCI addresses.";
        "the card is not seen on PCIe, or is given to a virtual machine" => "`lspci -d 15b3:`; another slot";
    }
    ["does not have drivers available for this kernel"] "OFED's installer has no modules for the running kernel" {
        "The package has modules that were built for the distribution's first kernels.";
        "the running kernel is newer than the package" => "run the installer with --add-kernel-support, or take a newer package, or use the kernel's own driver";
    }
    ["Bad return status for module build"] "a kernel module was not built by DKMS" {
        "DKMS compiles modules for each kernel, and the compiler failed.";
        "the package is older than the kernel, or the kernel's headers are missing"
            => "the log that the line names has the compiler's error; install the headers of `uname -r`; take a newer package";
    }
    ["incorrect RDMA subsystem network namespace"] "the plugin wants RDMA's namespaces in another mode" {
        "RDMA devices are shared by all network namespaces, or each belongs to one (exclusive).";
        "the plugin shares devices, and the host's mode is exclusive"
            => "`rdma system set netns shared` while no other namespace holds a device; or rdma-cni with SR-IOV, which takes exclusive mode";
    }
    ["missing RDMA device spec"] "the plugin chose a PCI function that is no RDMA device" {
        "A device that the plugin shares needs the nodes uverbs, umad, issm and rdma_cm. The line names the one that is missing.";
        "the selectors of the plugin's configuration are too wide, or ib_umad, rdma_ucm or ib_uverbs is not loaded"
            => "narrow the selectors (vendors, deviceIDs, ifNames); `ls -l /sys/class/infiniband*/*/device` shows which functions have nodes; load the modules on the host";
    }
    ["Failed to write to /dev/nvme-fabrics: Invalid argument"] "the kernel's NVMe has no such transport" {
        "The kernel refused the options: it has no transport rdma, or an option of the command line is not one of its own.";
        "nvme-rdma is not loaded, or is an empty one of MLNX_OFED"
            => "`modprobe nvme-rdma`, then `modinfo -n nvme-rdma`; MLNX_OFED replaces it unless it was installed with --with-nvmf; the kernel's log has the option that it does not take";
    }
    ["Open MPI 4.0 and later, infiniband ports on a device"] "Open MPI's old transport openib leaves the port to UCX" {
        "Nothing has failed: the BTL openib does not use InfiniBand by default, because UCX does.";
        "Open MPI was built without UCX, or the BTL openib looks at the device as well"
            => "`ompi_info | grep ucx`; with UCX: `--mca pml ucx --mca btl ^openib` ends the message; without: build Open MPI with it";
    }
    ["WARNING: There was an error initializing an OpenFabrics device"] "Open MPI's old transport openib does not use the device" {
        "The BTL openib gave the device up. UCX, which Open MPI prefers, is not concerned.";
        "the device is newer than the BTL openib knows, or its port is left to UCX"
            => "`--mca pml ucx --mca btl ^openib`; lines before it may have the reason, as the limit of locked memory";
    }
    ["umad", "bad status 110"] "a node of the fabric did not answer the subnet tools" {
        "A packet of the subnet management went to the node that the path or LID names, and no answer came.";
        "that node is switched off, restarts, or its link went down"
            => "the numbers of \"DR path\" are ports, hop by hop, from this host: `ibtracert`, `iblinkinfo -D PATH` show the last that answers";
    }
    ["n_gids_found=0"] "no port has a GID" {
        "A RoCE port has a GID for each address of its network interface that is in this namespace.";
        "the network interface is not in this container, is down, or has no address"
            => "`ip -br addr`, `rdma link`: give the container the interface of the function (SR-IOV, macvlan), or use the host's network; `ip link set INTERFACE up`";
    }
    ["mlnx", "installation failed!"] "OFED's installer failed at a package" {
        "The log that the line names has the compiler's or the package manager's error.";
        "the package is older than the running kernel, or the kernel's headers are missing"
            => "read that log; compare `uname -r` with the release notes; take a newer package, or use the kernel's own driver";
    }
    ["Failed to install", "mlnx"] "OFED's installer failed at a package" {
        "The log that the line names has the compiler's or the package manager's error.";
        "the package is older than the running kernel, or the kernel's headers are missing"
            => "read that log; compare `uname -r` with the release notes; take a newer package, or use the kernel's own driver";
    }
    ["Insufficient rdma/"] "no host has a free device of that resource" {
        "Kubernetes gives pods RDMA devices by a resource that a device plugin announces.";
        "the plugin announces none on these hosts, or all are taken"
            => "`kubectl describe node` shows capacity and use; the plugin's log shows whether its selectors meet a device";
    }
    ["Failed to get IB devices list"] "the program got no list of RDMA devices" {
        "libibverbs reads the list from /sys/class/infiniband_verbs.";
        "ib_uverbs is not loaded" => "`modprobe ib_uverbs mlx5_ib`; in a container it is the host's to load";
        "the kernel of the host has no RDMA" => "install its modules (linux-modules-extra, rdma-core)";
    }
    ["No IB devices found"] "no RDMA device was found" {
        "libibverbs has no device that it can use. Its warnings before say so of each device that the kernel has.";
        "the device's module is not loaded" => "`lspci -d 15b3:`, `modprobe mlx5_ib`, `rdma link`";
        "the user-space driver is not installed" => "install ibverbs-providers, also in the container";
        "a container has no access to /dev/infiniband" => "give it the device (--device /dev/infiniband, a device plugin)";
    }
    ["No RDMA devices found"] "no RDMA device was found" {
        "libibverbs has no device that it can use. Its warnings before say so of each device that the kernel has.";
        "the device's module is not loaded" => "`lspci -d 15b3:`, `modprobe mlx5_ib`, `rdma link`";
        "the user-space driver is not installed" => "install ibverbs-providers, also in the container";
        "a container has no access to /dev/infiniband" => "give it the device (--device /dev/infiniband, a device plugin)";
    }
    ["Unable to find the Infiniband/RoCE device"] "no RDMA device was found" {
        "perftest found no device, or none of the name that -d gives.";
        "the name or the port is wrong" => "`ibv_devices` lists the names";
        "the device's module is not loaded, or its user-space driver is not installed" => "`rdma link`, `ibv_devinfo`; install ibverbs-providers, also in the container";
    }
    ["ibpanic:", "stat of IB device"] "a tool took an Ethernet device for one of InfiniBand" {
        "The infiniband-diags use /dev/infiniband/umad*, which a RoCE port may not have. The tool ends at the first such device.";
        "the first device is one of Ethernet" => "name the device (`ibstat DEVICE`), or use `ibstatus` or `rdma link`";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found_by_its_own_tokens() {
        for event in MODULES {
            assert_eq!(module(&event.tokens.join(" x ")), Some(event));
            assert!(!event.explanation.causes.is_empty());
        }
        for event in LIBRARIES {
            assert_eq!(library(&event.tokens.join(" x ")), Some(event));
            assert!(!event.explanation.causes.is_empty());
        }
        for event in TOOLS {
            assert_eq!(tool(&event.tokens.join(" x ")), Some(event));
            assert!(!event.explanation.causes.is_empty());
        }
        let other_build = module("mlx5_ib: Unknown symbol mlx5_cmd_exec (err -22)");
        assert_eq!(other_build, module("mlx5_ib: disagrees about version of symbol mlx5_cmd_exec"));
        assert_ne!(other_build, module("mlx5_ib: Unknown symbol mlx5_cmd_exec (err -2)"));
        assert_eq!((module("mlx5_core: loaded"), library("libmlx5.so.1 => found")), (None, None));
    }
}
