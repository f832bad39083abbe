//! Starts programs on the model, or observed on the devices of this machine.
//!
//! The model's library, which also observes, is part of this command. `library` writes it into a `folder` that lives as
//! long as the program, and the loader of the program's processes preloads it from there.

mod folder;
mod library;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

pub(crate) use folder::Folder;

use crate::bed::Bed;
use crate::outcome::{Error, Outcome, Result};
use crate::output::stderr_of_programs;

/// The program to run.
pub(crate) struct Program<'a> {
    /// Its name and arguments.
    pub words: &'a [OsString],
    /// The model's library, if not this command's own.
    pub library: Option<&'a Path>,
    /// The device or the model that it runs on.
    pub bed: Bed,
    /// Where its standard output goes.
    pub stdout: Stdout,
}

/// Where a program's standard output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdout {
    /// To this command's.
    Own,
    /// To standard error, because standard output is the command's.
    Aside,
}

impl Program<'_> {
    /// Starts the program, with further variables. From now on, a signal that would end
    /// this process ends the program instead. [`wait`] has to be called.
    ///
    /// # Errors
    /// Fails if the program cannot be started, or the model's library cannot be used.
    pub(crate) fn start(&self, folder: &Folder, variables: &[(&str, &OsStr)]) -> Result<Child> {
        let preload = library::preload(self.library, folder.path())?;
        self.launch(preload.into_os_string(), variables)
    }

    /// Starts the program with the monitor's library, and on the model with the model's behind it.
    /// [`wait`] has to be called.
    ///
    /// # Errors
    /// Fails if the program cannot be started, or a library cannot be used.
    pub(crate) fn start_monitored(
        &self,
        folder: &Folder,
        variables: &[(&str, &OsStr)],
    ) -> Result<Child> {
        let mut preload = library::preload_monitor(folder.path())?.into_os_string();
        if self.bed == Bed::Model {
            preload.push(":");
            preload.push(library::preload(self.library, folder.path())?);
        }
        self.launch(preload, variables)
    }

    fn launch(&self, mut preload: OsString, variables: &[(&str, &OsStr)]) -> Result<Child> {
        let (program, arguments) = self.words.split_first().ok_or_else(|| {
            Error::Told("no program: it stands behind --, with its arguments".into())
        })?;
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        install_signals();
        let mut command = Command::new(program);
        if self.stdout == Stdout::Aside {
            command.stdout(stderr_of_programs());
        }
        let child = command
            .args(arguments)
            .env("LD_PRELOAD", preload)
            .env("MLX5_MODEL", if self.bed == Bed::Model { "always" } else { "never" })
            .envs(variables.iter().copied())
            .spawn()
            .map_err(|error| Error::File {
                what: format!("cannot run {}", program.to_string_lossy()),
                error,
            })?;
        CHILD.store(child.id() as i32, Ordering::Release);
        Ok(child)
    }
}

/// Waits for the program. Signals are sent to its process id only until it is reaped.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    // SAFETY: zeros are a valid value, and the call fills it. The child is left unreaped.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        while libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOWAIT) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    CHILD.store(0, Ordering::Release);
    child.wait().expect("it is this process' child")
}

/// Returns the exit status of a command that ends as its program did.
pub(crate) fn outcome(status: ExitStatus) -> Outcome {
    Outcome::Program(match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        // The convention of shells.
        (None, signal) => 128 + signal.unwrap_or_default() as u8,
    })
}

/// The process id of the running program; 0 if there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Passes a signal that ends this command to the program first. A terminal sends its signals to
/// both.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Acquire);
    if child == 0 {
        // Only processes that the program left behind still run. SAFETY: the call ends the process
        // at once, as the signal would have.
        unsafe { libc::_exit(128 + signal) };
    }
    // SAFETY: the kernel passes this structure to a handler installed with SA_SIGINFO.
    let by_terminal = unsafe { (*info).si_code } > 0;
    if !by_terminal {
        // SAFETY: the call takes no memory.
        unsafe { libc::kill(child, signal) };
    }
}

fn install_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a zeroed sigaction is valid. The handler calls only async-signal-safe functions,
        // and has the signature that SA_SIGINFO requires.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_IGN {
                // nohup ignores this signal.
                continue;
            }
            action = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
