//! Causes of calls that failed.

use super::super::Cause;
use super::Operations;
use super::reason::reasons;

const ANY: Operations = Operations::ALL;

reasons! {
    MEMLOCK ANY "the limit of locked memory is too small (RLIMIT_MEMLOCK)"
        => "`ulimit -l unlimited`; containers: --ulimit memlock=-1; services: LimitMEMLOCK=infinity";
    CGROUP ANY "a container or memory cgroup has less memory than is registered"
        => "raise the limit of the cgroup, or register less";
    KEYS_USED_UP ANY "too many regions: the HCA's memory keys are used up"
        => "look at `rdma resource show mr`";
    IOMMU_SPACE ANY "the IOMMU has no addresses left for so much GPU memory"
        => "iommu=pt on the kernel's command line; register smaller parts, and each once";
    GPU_SPACE ANY "the GPU has no room left to map its memory for devices"
        => "register each buffer once for each NIC; look for NVRM lines in the kernel's log";
    NO_PEERMEM ANY "the memory is a GPU's, and no module makes it reachable"
        => "load nvidia-peermem, or register by dma-buf";
    NO_PEERMEM_AMD ANY "the memory is an AMD GPU's, and nothing makes it reachable"
        => "register by dma-buf (kernel 5.12 and newer, CONFIG_DMABUF_MOVE_NOTIFY, CONFIG_PCI_P2PDMA); amdgpu's peer memory wants the ib_core of MLNX_OFED or DOCA-OFED";
    GPU_KIND ANY "the GPU, its driver or the kind of its memory has no GPUDirect RDMA or dma-buf"
        => "test with perftest (--use_cuda, --use_cuda_dmabuf); use memory of cudaMalloc and a driver with open kernel modules";
    UNMAPPED ANY "the range is not mapped whole, or not writable while local write was asked for"
        => "compare address and length with /proc/PID/maps";
    REGISTRATION_UNSUPPORTED ANY "dma-buf, on-demand paging or an access flag is not supported here"
        => "look at the capabilities (`ibv_devinfo -v`); kernel 5.12 and newer have dma-buf";

    MANY_OBJECTS ANY "too many objects of this kind"
        => "look at `rdma resource show`; close programs that hold many";
    LONG_QUEUES ANY "the queues are too long for the memory that there is"
        => "make queues shorter (max_send_wr, max_recv_wr, cqe)";
    BEYOND_DEVICE ANY "inline data, SGEs or lengths of queues beyond what the device takes"
        => "compare them with `ibv_devinfo -v`; ask for less inline data";
    UAR_SPACE ANY "the HCA's UAR pages are used up: too many processes have opened it"
        => "a larger PF_LOG_BAR_SIZE (mlxconfig), then a reboot; fewer processes";

    RAILS ANY "the ports of one host are in different networks, and a wrong pair was connected"
        => "limit the devices that the program uses; use the same rail on both sides";
    NO_ANSWER ANY "RoCE: no answer to ARP or neighbour discovery: the GID is of an interface without a path to the peer"
        => "ping from that interface's address; choose the GID of a reachable network (`show_gids`)";
    EMPTY_GID ANY "the GID index is empty, or of another address family, network or kind than the peer's"
        => "choose the index of a RoCE v2 entry with an address (`show_gids` on both sides)";
    CONTAINER_GID ANY "a container sees the device, but its GIDs are those of other network interfaces"
        => "give it the interface and take its GID index (`show_gids` inside), or use the host's network";
    NO_GRH ANY "RoCE: the address has no global route (is_global, GID of the peer, sgid_index)"
        => "set these: a LID alone is of InfiniBand";
    BAD_ATTRIBUTE ANY "path MTU, retries, number of outstanding READs, service level or P_Key are out of range"
        => "compare with `ibv_devinfo -v`; look for a syndrome in the kernel's log";

    INIT_ATTRIBUTE ANY "port number, P_Key index or access flags are not those that the device takes"
        => "compare with `ibv_devinfo -v`; look for a syndrome in the kernel's log (`dmesg | mlx5 decode`)";

    IN_USE ANY "another object still uses it"
        => "destroy objects in the reverse order of their creation";
    QUEUE_FULL ANY "the queue is full: completions are polled too late, or inline data or SGEs exceed its limits"
        => "poll before the next post; compare the request with the queue pair's capabilities";
    QP_IN_ERROR ANY "the queue pair is in the error state"
        => "look for the first completion with an error, and connect anew";

    FLOW_TWICE ANY "another rule has the same match, and another flow tag or action"
        => "look for a second process or socket with the same addresses and ports; make one rule for each match";
    FLOW_KIND ANY "the match or the action is not offered on this port, or the steering mode does not take it"
        => "compare with `ibv_devinfo -v`; try without vendor extensions of the rule";

    NO_ACCESS ANY "no access to /dev/infiniband/uverbs*"
        => "look at the node's owner and mode, and at the container's device list";
    NO_CAPABILITY ANY "CAP_NET_RAW, CAP_NET_ADMIN or CAP_IPC_LOCK is missing"
        => "give the capability to the program or the container";
    NO_NETDEV ANY "the device's network interface is not in this network namespace"
        => "give the container the interface of the function as well (`rdma link`)";
    NO_MODULES ANY "a kernel module is not loaded"
        => "load ib_uverbs, mlx5_ib and rdma_ucm";
    ROCE_LAG ANY "the ports are bonded: one device serves both (RoCE LAG)"
        => "use the first port's device; `ip link` and `rdma link` show the bond";
    HUGE_PAGES ANY "there are not enough huge pages, or not where the program looks"
        => "look at /proc/meminfo and at the program's memory options";

    NO_PROVIDER ANY "the device's user-space driver is not installed, or libibverbs does not find it"
        => "`ibv_devinfo` lists what it finds; install ibverbs-providers, and look in /etc/libibverbs.d";
    SMALL_BUFFERS ANY "mbufs are too small for the longest packet, and scatter is off"
        => "a pool with larger mbufs, a smaller MTU, or RTE_ETH_RX_OFFLOAD_SCATTER";
    NO_LISTENER ANY "no program listens at the peer on that address, port and transport"
        => "look at `rdma resource show cm_id` at the peer; a listener on TCP alone does not count";
    NO_WAY ANY "the event before it: refused, not reachable, or no address"
        => "a refusal has a line \"Connect rejected\" before it; else try `ping` and `rping` to that address, and `rdma link` for its interface";
    REFUSED_BY_PROGRAM ANY "the peer's program refused the connection"
        => "look at its log at that time: it decides by private data, limits and access rights";
    STALE_CONNECTION ANY "the peer still has a connection with these numbers, from before a restart"
        => "connect again; the peer drops the old one";
    NO_RDMA_ADDRESS ANY "the address is not one of an RDMA port's network interface, or has no route through one"
        => "use an address of the interface that `rdma link` shows; `ip route get ADDRESS`";

    REFUSED ANY "the kernel or the HCA refused it"
        => "look for mlx5_core lines in the kernel's log at that time";
    SYNDROME_IN_LOG ANY "the reason is a syndrome in the kernel's log"
        => "`dmesg | mlx5 decode` on this host";
    FIRMWARE_HANGS ANY "the firmware hangs: a command timed out"
        => "look for command time-outs and health lines in the kernel's log; update the firmware";
    RESETTING ANY "a health problem or a reset of the HCA"
        => "look for health lines in the kernel's log";
    KERNEL_LACKS ANY "the kernel's modules of RDMA do not know this call: they are older than the library, or of another package"
        => "`modinfo -n ib_uverbs` shows where they come from; take a newer kernel or package, or libraries as old as the modules";
    FEATURE_OFF ANY "the feature is off or missing"
        => "look at the capabilities (`mlx5 info`), and at the firmware's configuration";
}
