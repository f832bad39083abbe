//! `cargo xtask guest`: an unmodified Debian kernel in QEMU, with the model as a PCI function.
//!
//! QEMU, kernels and the guest's programs are Debian packages, unpacked below `target/guest`. A
//! scenario is a shell script of `xtask/guest`. It fails if it says so, or if the kernel's log has a
//! line that no list explains.

mod cpio;
mod initramfs;
mod kept;
mod kernel;
mod log;
mod machine;
mod options;
mod packages;
mod requests;
mod scenario;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::setup::{self, For};
use initramfs::Content;
use kernel::Kernel;
use machine::{Machine, NetworkEnd, Server};
use options::{Kernel as Version, Link, Options, Packages, Task};
use packages::Root;
use scenario::{Device, Needs, Scenario, Tests};

/// How long a shell may stay open.
const LIMIT_OF_SHELL: Duration = Duration::from_secs(8 * 3600);

/// Lines of a log that are shown after a failure.
const SHOWN: usize = 25;

/// `cargo xtask guest`.
pub fn command(arguments: &[String]) -> Result {
    let options = Options::parse(arguments)?;
    match &options.task {
        Task::List => list(),
        Task::Shell => run(&options, None),
        Task::Scenario(name) => run(&options, Some(&Scenario::load(name)?)),
    }
}

/// Linux's own driver on both links: this project's examples with Debian 13's kernel, and the
/// conformance suite with the newest one of its backports. Then the port's values, and VLANs, which
/// Debian's kernel has: under that driver, and as interfaces below the model in a process.
///
/// # Errors
/// A scenario fails, or the mirror cannot be reached.
pub fn check() -> Result {
    for (name, kernel, packages) in [
        ("examples", Version::V6_12, Packages::Cached),
        ("conform", Version::Backports, Packages::Newest),
        ("port", Version::V6_12, Packages::Cached),
        ("vlan", Version::V6_12, Packages::Cached),
        ("vlan_interfaces", Version::V6_12, Packages::Cached),
    ] {
        let scenario = Scenario::load(name)?;
        let links = [Link::InfiniBand, Link::Roce];
        let runs_on = |link: &Link| scenario.needs.link.is_none_or(|needed| needed == *link);
        for link in links.into_iter().filter(runs_on) {
            let task = Task::Scenario(scenario.name.clone());
            let kernel = kernel.clone();
            let options = Options { link: Some(link), kernel, packages, ..Options::of(task) };
            run(&options, Some(&scenario))?;
        }
    }
    Ok(())
}

fn list() -> Result {
    for name in scenario::names()? {
        let scenario = Scenario::load(&name)?;
        println!("{name:<10} {}", scenario.summary);
    }
    Ok(())
}

/// A run: what it is called, and the values that options and scenario have decided.
struct Run<'a> {
    options: &'a Options,
    scenario: Option<&'a Scenario>,
    needs: Needs,
    link: Link,
    guests: usize,
    limit: Duration,
    folder: PathBuf,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, scenario: Option<&'a Scenario>) -> Result<Self> {
        let (name, needs) = match scenario {
            Some(Scenario { name, needs, .. }) => (name.as_str(), needs.clone()),
            None => ("shell", Needs { limit: LIMIT_OF_SHELL, ..Needs::default() }),
        };
        let (link, guests) = choose(name, &needs, options)?;
        let run = format!("{name}-{}-{}-{guests}", link.name(), options.kernel.name());
        Ok(Self {
            options,
            scenario,
            link,
            guests,
            limit: options.limit.unwrap_or(needs.limit),
            needs,
            folder: packages::folder()?.join("runs").join(run),
        })
    }

    /// The variables of a guest's shell.
    fn environment(&self, guest: usize) -> String {
        let (link, kernel) = (self.link.name(), self.options.kernel.name());
        let guests = self.guests;
        // Programs of this workspace are not to fall back to the model inside the process.
        format!("GUEST={guest} GUESTS={guests} LINK={link} KERNEL={kernel} MLX5_MODEL=never\n")
    }
}

/// The link and the number of guests.
fn choose(name: &str, needs: &Needs, options: &Options) -> Result<(Link, usize)> {
    let link = match (needs.link, options.link) {
        (Some(needed), Some(link)) if needed != link => {
            let (needed, link) = (needed.name(), link.name());
            return Err(format!("the scenario `{name}` runs on {needed}, not on {link}"));
        }
        (Some(link), _) | (None, Some(link)) => link,
        (None, None) => Link::InfiniBand,
    };
    let guests = options.guests.unwrap_or(needs.guests[0]);
    if !needs.guests.contains(&guests) {
        return Err(format!("the scenario `{name}` does not run in {guests} guests"));
    }
    Ok((link, guests))
}

fn run(options: &Options, scenario: Option<&Scenario>) -> Result {
    if !cfg!(target_arch = "x86_64") {
        return Err("`guest` starts x86-64 programs: run it on an x86-64 machine".to_owned());
    }
    setup::ready(For::Building)?;
    let started = Instant::now();
    let run = Run::new(options, scenario)?;
    let explained = scenario.map(Scenario::explained).transpose()?.unwrap_or_default();
    initramfs::fresh(&run.folder)?;
    let server = (run.needs.device == Device::Function).then_some(machine::SERVER);
    let mut built = initramfs::build_programs(server, &run.needs.programs)?.into_iter();
    let server = server.and_then(|_| built.next());
    let qemu = packages::qemu(options.packages)?;
    let package = packages::kernel(&options.kernel, options.packages)?;
    let kernel = Kernel::ready(&package, &qemu)?;
    let userland = packages::userland(run.needs.tests, options.packages)?;
    let mut content = Content::new(userland, &kernel)?;
    if run.needs.tests == Tests::Pyverbs {
        content.add_pyverbs()?;
    }
    for program in built {
        content.add_built(&program, &run.folder)?;
    }
    let mut images = Vec::new();
    for guest in 1..=run.guests {
        let image = run.folder.join(format!("initramfs{guest}"));
        let script = scenario.map(|scenario| scenario.script.as_str());
        content.write(&image, script, &run.environment(guest))?;
        images.push(image);
    }
    let ready = started.elapsed();
    let server = server
        .map(|program| Server::start(&program, &run.folder, run.link, run.guests, run.needs.memory))
        .transpose()?;
    let outcome = boot(&run, &qemu, &kernel, &images, server);
    let logs = scenario.map_or(Ok(()), |_| check_logs(&run, &explained));
    let outcome = match (outcome, logs) {
        (Err(first), Err(second)) => Err(format!("{first}; {second}")),
        (first, second) => first.and(second),
    };
    for image in images {
        // An image can be made again, and is large.
        let _ = fs::remove_file(image);
    }
    let elapsed = (started.elapsed() - ready).as_secs_f64();
    let name = scenario.map_or("shell", |scenario| scenario.name.as_str());
    let link = run.link.name();
    match &outcome {
        Ok(()) => println!("{name} on {link}, Linux {}: passed in {elapsed:.1} s", kernel.release),
        Err(_) => show_logs(&run),
    }
    outcome
}

/// Runs the guests to their end.
fn boot(
    run: &Run,
    qemu: &Root,
    kernel: &Kernel,
    images: &[PathBuf],
    mut server: Option<Server>,
) -> Result {
    let link = run.folder.join("link.sock");
    let end = |number| match number {
        1 => NetworkEnd::Listens,
        _ => NetworkEnd::Connects,
    };
    let sockets = server.as_ref().map(|server| server.sockets.clone()).unwrap_or_default();
    let machines: Vec<Machine> = images
        .iter()
        .enumerate()
        .map(|(index, image)| Machine {
            qemu,
            accelerator: run.options.accelerator,
            kernel: &kernel.vmlinux,
            initramfs: image,
            function: sockets.get(index).map(PathBuf::as_path),
            network: (run.guests > 1).then(|| (end(index + 1), link.as_path())),
            memory: run.needs.memory,
            number: index + 1,
            folder: &run.folder,
        })
        .collect();
    match run.scenario {
        Some(_) => machine::run(&machines, server.as_mut(), run.limit),
        None => machines[0].terminal(run.limit),
    }
}

/// Reports lines of the logs of kernels and server: explained ones, and ones that fail the run.
fn check_logs(run: &Run, explained: &[log::Explained]) -> Result {
    let mut logs: Vec<(String, String)> = (1..=run.guests)
        .map(|guest| (format!("kernel of guest {guest}"), format!("kernel{guest}.log")))
        .collect();
    if run.needs.device == Device::Function {
        logs.push(("server".to_owned(), "server.log".to_owned()));
    }
    let mut failures = Vec::new();
    for (source, name) in &logs {
        let file = run.folder.join(name);
        let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        for note in explained.iter().filter_map(|known| known.note(&text)) {
            println!("log of the {source}, explained: {note}");
        }
        for line in log::unexplained(&text, explained) {
            failures.push(format!("  {source}: {line}"));
        }
    }
    match failures.len() {
        0 => Ok(()),
        count => Err(format!(
            "{count} lines of the logs are not explained. Mend their cause, or add each with \
             its reason to xtask/guest/all.explained or SCENARIO.explained:\n{}",
            failures.join("\n")
        )),
    }
}

/// Prints the ends of a failed run's logs.
fn show_logs(run: &Run) {
    let mut files: Vec<PathBuf> = (1..=run.guests)
        .flat_map(|guest| [format!("kernel{guest}.log"), format!("qemu{guest}.log")])
        .map(|name| run.folder.join(name))
        .collect();
    files.push(run.folder.join("server.log"));
    for file in files.iter().filter(|file| is_filled(file)) {
        eprintln!("== {}\n{}", file.display(), machine::tail(file, SHOWN));
    }
}

fn is_filled(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_not_contradict_the_scenario() {
        let mut options = Options::of(Task::Scenario("x".to_owned()));
        let mut needs = Needs::default();
        assert_eq!(choose("x", &needs, &options).unwrap(), (Link::InfiniBand, 1));
        needs.link = Some(Link::Roce);
        needs.guests = vec![2];
        assert_eq!(choose("x", &needs, &options).unwrap(), (Link::Roce, 2));
        options.guests = Some(1);
        assert!(choose("x", &needs, &options).unwrap_err().contains("1 guests"));
        options.guests = None;
        options.link = Some(Link::InfiniBand);
        assert!(choose("x", &needs, &options).unwrap_err().contains("roce, not on infiniband"));
    }
}
