//! Placement of threads on CPUs, and of their memory.

use std::fs;
use std::mem;

use mlx5::verbs::HugePageSize;

use crate::outcome::{Error, Result};

/// Parses CPUs from text such as `0,2-3`.
///
/// # Errors
/// Returns in words what is wrong.
pub fn cpus(text: &str) -> std::result::Result<Vec<usize>, String> {
    let wrong = || format!("{text:?} is no list of CPUs such as 0,2-3");
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|&cpu| cpu < CPUS);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first > last {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// The number of CPUs in a set of the C library.
const CPUS: usize = 1024;

/// Returns the CPUs of a NUMA node.
///
/// # Errors
/// Fails if there is no such node.
pub fn cpus_of_node(node: u32) -> Result<Vec<usize>> {
    let file = format!("/sys/devices/system/node/node{node}/cpulist");
    let list = fs::read_to_string(&file).map_err(|error| {
        Error::Told(format!("--numa {node}: there is no such NUMA node ({file}: {error})"))
    })?;
    cpus(list.trim()).map_err(Error::Told)
}

/// Restricts this thread to those CPUs.
///
/// # Errors
/// Fails if it may not run on any of them.
pub fn pin(cpus: &[usize]) -> Result<()> {
    // SAFETY: the set is a bit array, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: `cpus` accepts only numbers below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set has the given size, and the call affects this thread only.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Error::Told(format!(
        "--cpu: this thread may not run on CPUs {cpus:?}: {error}; `taskset -p $$` says on which it \
         may, and a container may have fewer than the machine"
    )))
}

/// Parses a size of huge pages, as on the command line.
///
/// # Errors
/// Returns the accepted values.
pub fn huge(text: &str) -> std::result::Result<HugePageSize, String> {
    match text {
        "2M" | "2m" => Ok(HugePageSize::Mib2),
        "1G" | "1g" => Ok(HugePageSize::Gib1),
        _ => Err("it is 2M or 1G".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpus("0,2-4,7").unwrap(), [0, 2, 3, 4, 7]);
        for wrong in ["", "a", "3-1", "-1", "5000", "1,,2"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        let allowed = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cpus(list.unwrap().trim()).unwrap()
        };
        let last = *allowed().last().unwrap();
        std::thread::spawn(move || {
            pin(&[last]).unwrap();
            assert_eq!(allowed(), [last]);
        })
        .join()
        .unwrap();
        assert!(pin(&[1023]).unwrap_err().to_string().contains("may not run"));
    }
}
