//! Memory: how much of it may be locked for the HCA, and on which pages.

use mlx5::ib::Access;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};

use super::check::{Check, Group, Question};
use super::situation::Situation;

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![locked(situation)]
}

/// Checks the machine's memory, which all devices share.
pub fn common(situation: &Situation) -> Vec<Check> {
    let mut checks = vec![huge(situation), transparent(situation)];
    checks.extend(balancing(situation));
    checks
}

/// Sizes tried. No program needs less than the first; few need more than the last.
const TRIED: [usize; 4] = [64 << 10, 1 << 20, 16 << 20, 64 << 20];
/// `CAP_IPC_LOCK`.
const IPC_LOCK: u32 = 14;

const CURE: &str = "ulimit -l unlimited    # for good: '* - memlock unlimited' in \
                    /etc/security/limits.conf, LimitMEMLOCK=infinity of a systemd unit, docker run \
                    --ulimit memlock=-1";

fn locked(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Memory,
        "locked memory",
        "getrlimit(RLIMIT_MEMLOCK), CAP_IPC_LOCK, registering 64 KiB to 64 MiB beside a queue pair",
        "regions and queues are pinned, which counts against the limit of locked memory",
    );
    if !situation.tree.is_own() {
        return question.not_applicable("the limit is a process's");
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } != 0 {
        return question.unknown("the limit cannot be asked for", None);
    }
    // The kernel checks the capability in the initial user namespace, whatever another one calls
    // it.
    let first = situation
        .tree
        .read("proc/self/uid_map")
        .is_some_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    let free = first && situation.has_capability(IPC_LOCK) == Some(true);
    let unlimited = limit.rlim_cur == libc::RLIM_INFINITY;
    let allowed = match (unlimited, free) {
        (true, _) => "no limit".to_owned(),
        (false, true) => format!("{}; CAP_IPC_LOCK passes over it", size(limit.rlim_cur)),
        (false, false) => format!("{}, without CAP_IPC_LOCK", size(limit.rlim_cur)),
    };
    let Some(context) = situation.context() else {
        return if unlimited || free {
            question.good(allowed)
        } else if limit.rlim_cur < TRIED[1] as u64 {
            question.broken(allowed, CURE)
        } else {
            question.warning(allowed, CURE)
        };
    };
    match register(context) {
        (None, _) if unlimited || free => question.good(allowed),
        (None, _) => question.warning(format!("{allowed}; 64 MiB could be registered"), CURE),
        (Some(error), 0) => question.broken(
            format!("{allowed}; not even a queue pair and 64 KiB: {}", brief(&error)),
            CURE,
        ),
        (Some(error), most) => question.warning(
            format!("{allowed}; {} is the most: {}", size(most as u64), brief(&error)),
            CURE,
        ),
    }
}

/// Returns an error's text without the cure, which the check has.
fn brief(error: &mlx5::Error) -> String {
    error.to_string().split("; raise it").next().unwrap_or_default().to_owned()
}

/// Creates the objects of a small program and registers growing regions. Returns the first error,
/// and the size that could be registered before it.
fn register(context: &Context) -> (Option<mlx5::Error>, usize) {
    let mut most = 0;
    let tried = (|| {
        let pd = ProtectionDomain::new(context)?;
        let cq = CompletionQueue::new(context, 256)?;
        let _queue_pair = QueuePair::builder(&pd, &cq).max_send_wr(128).max_recv_wr(128).build()?;
        for length in TRIED {
            drop(pd.allocate(length, Access::LOCAL_WRITE)?);
            most = length;
        }
        Ok(())
    })();
    (tried.err(), most)
}

/// Formats a size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".to_owned(),
        bytes if bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        1 => "1 byte".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

fn huge(situation: &Situation) -> Check {
    const FOLDER: &str = "sys/kernel/mm/hugepages";
    let tree = &situation.tree;
    let question = Question::new(
        Group::Memory,
        "huge pages",
        format!("/{FOLDER}/*/{{nr,free}}_hugepages, /proc/mounts"),
        "on huge pages queues and buffers need fewer translations, by the processor and by the device",
    );
    let mut sizes = Vec::new();
    let mut any_free = false;
    for name in tree.list(FOLDER) {
        let kib = name.trim_start_matches("hugepages-").trim_end_matches("kB").parse::<u64>();
        let count = |file: &str| tree.number(&format!("{FOLDER}/{name}/{file}_hugepages"));
        let (Ok(kib), Some(all), Some(free)) = (kib, count("nr"), count("free")) else { continue };
        any_free |= free > 0;
        sizes.push(format!("{free} of {all} pages of {} free", size(kib << 10)));
    }
    if sizes.is_empty() {
        return question.unknown("the kernel tells of no huge pages", None);
    }
    let mounts = tree.read("proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "hugetlbfs").then(|| at.to_owned())
    });
    let mounted = match mounted {
        Some(at) => format!("; mounted at {at}"),
        None => "; not mounted, which DPDK wants".to_owned(),
    };
    let found = sizes.join(", ") + &mounted;
    if any_free {
        question.good(found)
    } else {
        question.warning(
            found,
            "sysctl -w vm.nr_hugepages=1024    # 2 GiB in pages of 2 MiB; for good: /etc/sysctl.d",
        )
    }
}

fn transparent(situation: &Situation) -> Check {
    const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";
    let question = Question::new(
        Group::Memory,
        "transparent huge pages",
        format!("/{FILE}"),
        "set to always, the kernel moves pages of every program together, which may hold it up",
    );
    let Some(text) = situation.tree.read(FILE) else {
        return question.unknown("the kernel does not tell", None);
    };
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("always") => question.warning("always", format!("echo madvise > /{FILE}")),
        Some(other) => question.good(other),
        None => question.unknown(format!("{text:?} is no choice"), None),
    }
}

/// Checks NUMA balancing where there is more than one node.
fn balancing(situation: &Situation) -> Option<Check> {
    const FILE: &str = "proc/sys/kernel/numa_balancing";
    let on = situation.tree.number(FILE)?;
    let question = Question::new(
        Group::Memory,
        "NUMA balancing",
        format!("/{FILE}"),
        "the kernel unmaps pages to see who uses them: faults in the middle of a polling loop",
    );
    Some(if on == 0 {
        question.good("off")
    } else {
        question.warning("on", "sysctl -w kernel.numa_balancing=0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers() {
        assert_eq!(size(64 << 10), "64 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size(2 << 20), "2 MiB");
        assert_eq!(size(1), "1 byte");
        assert_eq!(size(0), "0 bytes");
    }
}
