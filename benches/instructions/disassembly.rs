//! Checks the disassembly of hot loops: no waiting, no locked instruction, and calls only of
//! functions known to be rare.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;

/// Functions that a hot loop may call, by the ends of their names: necessary, but rarely called.
const RARE: &[&str] = &[
    // Room, looked for anew; the first receive of a lap.
    "::refill",
    // The second CQ of a shared receive queue, and others.
    "::also_completes_on",
    // What is armed, looked at anew.
    "::aim",
    // Changes of keys: room for a run of them, looked for anew.
    "::begin_run",
    "::fire_otherwise",
    // Everything that is not the plain case.
    "_any",
    "::post_rest",
    "::ring_otherwise",
    "::ring_by_size",
    // Registers that BlueFlame is not used on, or in another way than word by word.
    "::commit_other",
    "::ring_copied",
    "::take_other",
    // A message in the CQE.
    "::deliver",
    // The last CQE of a lap, and a request that is not the oldest.
    "::seek",
    "::retire_later",
    "::retire",
    // A batch that is dropped, unrung.
    "::clear_from",
    "::forget_unposted",
    // Failed expectations of the loop itself.
    "core::result::unwrap_failed",
    "core::option::expect_failed",
    "core::option::unwrap_failed",
    "_Unwind_Resume",
    "_Unwind_Resume@plt",
];

/// And everything in these: a panic, and memory given back after one.
const RARE_FOLDERS: &[&str] = &["core::panicking::", "core::ptr::drop_in_place"];

/// All functions of an executable.
pub struct Disassembly {
    functions: HashMap<String, Vec<String>>,
    /// Names by address.
    names: HashMap<u64, String>,
    /// Targets of slots that are filled at program start and called through.
    slots: HashMap<u64, String>,
}

impl Disassembly {
    /// By `objdump`.
    ///
    /// # Errors
    /// A sentence, if it cannot be run.
    pub fn of(executable: &Path) -> Result<Self, String> {
        let mut all =
            Self { functions: HashMap::new(), names: HashMap::new(), slots: HashMap::new() };
        let code = objdump(&["-d", "-C", "--no-show-raw-insn", "-M", "intel"], executable)?;
        let mut function = String::new();
        for line in code.lines() {
            if let Some((address, name)) = heading(line) {
                all.names.insert(address, name.to_owned());
                function = name.to_owned();
            } else if let Some((_, instruction)) = line.split_once(":\t") {
                let instructions = all.functions.entry(function.clone()).or_default();
                instructions.push(instruction.trim().to_owned());
            }
        }
        // `OFFSET TYPE *ABS*+0xADDRESS`, or `OFFSET TYPE NAME`.
        for line in objdump(&["-R"], executable)?.lines() {
            let mut words = line.split_whitespace();
            let (Some(slot), Some(_), Some(value)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(slot) = u64::from_str_radix(slot, 16) else { continue };
            let name = match value.strip_prefix("*ABS*+0x") {
                Some(address) => {
                    let address = u64::from_str_radix(address, 16).ok();
                    let Some(name) = address.and_then(|at| all.names.get(&at)) else { continue };
                    name.clone()
                }
                None => value.split('@').next().unwrap_or(value).to_owned(),
            };
            all.slots.insert(slot, name);
        }
        Ok(all)
    }

    /// Sentences on what a hot loop must not have in it, wherever in it that is. No function of
    /// that name is one, too.
    pub fn offences(&self, function: &str) -> Vec<String> {
        let Some(instructions) = self.functions.get(function) else {
            return vec![format!("there is no function {function} in the executable")];
        };
        let mut offences: Vec<_> = instructions
            .iter()
            .filter(|instruction| waits(instruction))
            .map(|instruction| format!("{function} has `{instruction}`"))
            .collect();
        for callee in self.callees(instructions) {
            let rare = RARE.iter().any(|end| is_called(&callee, end))
                || RARE_FOLDERS.iter().any(|folder| callee.starts_with(folder));
            if !rare {
                offences.push(format!("{function} calls {callee}"));
            }
        }
        offences.dedup();
        offences
    }

    /// How many store fences a function has in its text.
    pub fn store_fences(&self, function: &str) -> usize {
        let fences = |all: &Vec<String>| all.iter().filter(|it| it.starts_with("sfence")).count();
        self.functions.get(function).map_or(0, fences)
    }

    /// Names of what is called.
    fn callees(&self, instructions: &[String]) -> BTreeSet<String> {
        let slot = |text: &str| {
            // `call QWORD PTR [rip+0x13cc80]        # 1eef90 <_DYNAMIC+0x4d8>`
            let (_, comment) = text.split_once(" # ")?;
            let address = comment.split_whitespace().next()?;
            self.slots.get(&u64::from_str_radix(address, 16).ok()?).cloned()
        };
        let mut callees = BTreeSet::new();
        for text in instructions {
            let Some(target) = text.strip_prefix("call").map(str::trim) else { continue };
            let direct = target.split_once(" <").and_then(|(_, name)| name.strip_suffix('>'));
            let through_register = || {
                // What was loaded into it from a slot, somewhere in the function.
                let load = format!("mov    {target},QWORD PTR [rip");
                let loads: BTreeSet<_> = instructions
                    .iter()
                    .filter(|it| it.starts_with(&load))
                    .map(|it| slot(it))
                    .collect();
                let mut loads = loads.into_iter();
                loads.next().flatten().filter(|_| loads.next().is_none())
            };
            let name = match direct {
                Some(name) if !target.contains(" # ") => Some(name.to_owned()),
                _ => slot(target).or_else(through_register),
            };
            callees.insert(name.unwrap_or_else(|| format!("something unknown by `{text}`")));
        }
        callees
    }
}

/// Returns whether the name of a function, without its generic arguments, ends so. Newer compilers
/// write the arguments.
pub fn is_called(mut name: &str, end: &str) -> bool {
    while let Some(generic) = name.strip_suffix('>') {
        let mut open = 1;
        let start = generic.rfind(|character| {
            open += match character {
                '>' => 1,
                '<' => -1,
                _ => 0,
            };
            open == 0
        });
        let Some(before) = start.and_then(|start| name[..start].strip_suffix("::")) else { break };
        name = before;
    }
    name.ends_with(end)
}

/// Whether an instruction waits for others, locks the bus, or leaves to the kernel.
fn waits(instruction: &str) -> bool {
    let first = instruction.split_whitespace().next().unwrap_or_default();
    let word = ["lock", "lfence", "mfence", "cpuid", "syscall", "sysenter", "int", "rdtscp"];
    // An exchange with memory locks without saying so.
    word.contains(&first) || (first == "xchg" && instruction.contains('['))
}

/// `00000000000b2b60 <name>:`
fn heading(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

fn objdump(arguments: &[&str], executable: &Path) -> Result<String, String> {
    let output = Command::new("objdump").args(arguments).arg(executable).output();
    let output = output.map_err(|error| {
        format!("cannot run objdump: {error}; `cargo xtask setup` installs it with binutils")
    })?;
    if !output.status.success() {
        return Err(format!("objdump: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
