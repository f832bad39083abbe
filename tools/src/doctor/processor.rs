//! The processor: its counter, its frequency, its idle states, and other load on it.

use super::check::{Check, Group, Question};
use super::situation::Situation;

const CPUS: &str = "sys/devices/system/cpu";
/// Longest tolerable wake-up, in microseconds; deeper idle states show in latencies.
const WAKE_UP: i64 = 10;

pub fn look(situation: &Situation) -> Vec<Check> {
    vec![
        counter(situation),
        clock_source(situation),
        governor(situation),
        idle(situation),
        isolated(situation),
        siblings(situation),
    ]
}

fn counter(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Processor,
        "counter",
        "/proc/cpuinfo: constant_tsc, nonstop_tsc",
        "latencies are counted in its ticks, which have to be equally long in every state",
    );
    let Some(text) = situation.tree.read("proc/cpuinfo") else {
        return question.unknown("there is no /proc/cpuinfo", None);
    };
    let Some(flags) = text.lines().find_map(|line| line.strip_prefix("flags")) else {
        return if text.contains("CPU implementer") {
            question.good("arm64's generic timer, which is constant")
        } else {
            question.unknown("/proc/cpuinfo names no flags", None)
        };
    };
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    match (has("constant_tsc"), has("nonstop_tsc")) {
        (true, true) => question.good("the TSC is constant and never stops"),
        (true, false) => question.warning(
            "the TSC is constant, and not promised to go on in deep idle states (no nonstop_tsc)",
            "in a virtual machine: expose invtsc (QEMU: -cpu host,+invtsc); else keep to shallow idle states",
        ),
        (false, _) => question.warning(
            "the TSC's rate changes (no constant_tsc): nanoseconds made of its ticks are wrong",
            "in a virtual machine: expose invtsc (QEMU: -cpu host,+invtsc); else fix the frequency",
        ),
    }
}

fn clock_source(situation: &Situation) -> Check {
    const FILE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let question = Question::new(
        Group::Processor,
        "clock source",
        format!("/{FILE}"),
        "from another source, reading the time takes a system call or more",
    );
    match situation.tree.read(FILE).as_deref() {
        None => question.unknown("the kernel does not tell", None),
        Some(source @ ("tsc" | "arch_sys_counter")) => question.good(source),
        Some(other) => question.warning(
            other,
            format!("echo tsc > /{FILE}    # dmesg | grep -i tsc says why it was given up"),
        ),
    }
}

/// Iterates over the CPUs that have a folder.
fn cpus(situation: &Situation) -> impl Iterator<Item = String> {
    let names = situation.tree.list(CPUS).into_iter();
    names.filter(|name| {
        name.strip_prefix("cpu").is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

fn governor(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Processor,
        "frequency",
        format!("/{CPUS}/cpu*/cpufreq/scaling_governor"),
        "other governors than performance lower the frequency, and raise it when it is late",
    );
    let governors: Vec<(String, String)> = cpus(situation)
        .filter_map(|cpu| {
            let path = format!("{CPUS}/{cpu}/cpufreq/scaling_governor");
            Some((situation.tree.read(&path)?, cpu))
        })
        .collect();
    if governors.is_empty() {
        return question
            .not_applicable("this system does not govern it: firmware or a hypervisor does");
    }
    let slow: Vec<&(String, String)> =
        governors.iter().filter(|(governor, _)| governor != "performance").collect();
    match slow.first() {
        None => question.good(format!("performance on all {} CPUs", governors.len())),
        Some((governor, cpu)) => question.warning(
            format!("{governor} on {} of {} CPUs, {cpu} the first", slow.len(), governors.len()),
            "cpupower frequency-set -g performance    # or tuned-adm profile network-latency",
        ),
    }
}

fn idle(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Processor,
        "idle states",
        format!("/{CPUS}/cpuidle/current_driver, /{CPUS}/cpu0/cpuidle/state*/{{latency,disable}}"),
        "a core that sleeps deeply wakes up late: events come tens of microseconds later",
    );
    let tree = &situation.tree;
    let driver = tree.read(&format!("{CPUS}/cpuidle/current_driver"));
    let folder = format!("{CPUS}/cpu0/cpuidle");
    let deepest = tree
        .list(&folder)
        .iter()
        .filter_map(|state| {
            let number = |file: &str| tree.number(&format!("{folder}/{state}/{file}"));
            let name = tree.read(&format!("{folder}/{state}/name"))?;
            (number("disable").unwrap_or(0) == 0).then_some((number("latency")?, name))
        })
        .max();
    match (driver, deepest) {
        (None, None) => question.not_applicable("this system knows of none: a hypervisor does"),
        (driver, None) => question.good(format!(
            "driver {}, which lists no states",
            driver.as_deref().unwrap_or("unknown")
        )),
        (_, Some((latency, name))) if latency <= WAKE_UP => {
            question.good(format!("{name} is the deepest, {latency} µs to wake up"))
        }
        (_, Some((latency, name))) => question.warning(
            format!("{name} is allowed, {latency} µs to wake up"),
            format!(
                "cpupower idle-set -D {WAKE_UP}    # or intel_idle.max_cstate=1 on the kernel's command \
                 line; or a process that keeps /dev/cpu_dma_latency open with 0"
            ),
        ),
    }
}

fn isolated(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Processor,
        "isolated CPUs",
        format!("/{CPUS}/{{isolated,nohz_full}}"),
        "a thread that polls is interrupted where the scheduler may put others, and by its tick",
    );
    let list = |name: &str| {
        let text = situation.tree.read(&format!("{CPUS}/{name}")).unwrap_or_default();
        let text = text.trim_matches(|c: char| c.is_whitespace()).to_owned();
        if text.is_empty() || text == "(null)" { None } else { Some(text) }
    };
    match (list("isolated"), list("nohz_full")) {
        (None, None) if !situation.tree.exists(CPUS) => {
            question.unknown("there is no folder of CPUs", None)
        }
        (None, _) => question.warning(
            "none",
            "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 on the kernel's command line, \
             for latency that is counted in single microseconds",
        ),
        (Some(isolated), None) => question.good(format!("{isolated}, with the tick (no nohz_full)")),
        (Some(isolated), Some(quiet)) => question.good(format!("{isolated}; without a tick: {quiet}")),
    }
}

fn siblings(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Processor,
        "hyper-threads",
        format!("/{CPUS}/smt/active, /{CPUS}/cpu0/topology/thread_siblings_list"),
        "two threads of a core share its units: a busy sibling of the polling thread slows it down",
    );
    match situation.tree.number(&format!("{CPUS}/smt/active")) {
        Some(0) => question.good("off"),
        Some(_) => {
            let path = format!("{CPUS}/cpu0/topology/thread_siblings_list");
            let list = situation.tree.read(&path).unwrap_or_default();
            question.good(format!(
                "on: CPU 0's core has {list}; leave the sibling of a polling thread idle"
            ))
        }
        None => question.unknown("the kernel does not tell", None),
    }
}
