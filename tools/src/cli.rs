//! The command line.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::machine::Machine;
use crate::options::{Options, Subject};
use crate::outcome::{Error, Outcome};
use crate::output::{Form, Output, failed_in_json, plain, stderr, stdout};
use crate::{
    conform, decode, doctor, dump, generate, info, lint, mesh, monitor, perf, replay, run, trace,
};

/// Brings up, measures and explains NVIDIA ConnectX devices.
///
/// Commands about devices run on this machine's devices. With --model they run on the model, a software
/// ConnectX inside the process, and say so: all is as on a device but the times. Only perf takes the
/// model by itself where no device is found. run and replay always take it.
#[derive(Debug, Parser)]
#[command(name = "mlx5", version, max_term_width = 100, after_help = ENDINGS)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

const ENDINGS: &str = "\
Exit status:
  0  done, and nothing is wrong
  1  done, and something is wrong that the command looks for (doctor: no traffic is possible;
     conform: a case failed, or none passed; lint: a defect; perf: wrong data;
     mesh: a link or a rank is bad, or a limit was missed;
     replay: another completion; decode: nothing was found)
  2  the command line is wrong
  3  it could not be done: no device, no permission, no such file
run, monitor and trace end as the program does that they run.";

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Arguments),
    Doctor(doctor::Arguments),
    Conform(Box<conform::Arguments>),
    Perf(Box<perf::Arguments>),
    Mesh(Box<mesh::Arguments>),
    Decode(decode::Arguments),
    Lint(Box<lint::Arguments>),
    Run(run::Arguments),
    Monitor(monitor::Arguments),
    Trace(trace::Arguments),
    Replay(replay::Arguments),
    Dump(dump::Arguments),
    Completions(generate::Completions),
    Man(generate::Man),
}

impl Command {
    /// What the command runs on.
    fn subject(&self) -> Subject {
        match self {
            Command::Info(_) | Command::Doctor(_) | Command::Dump(_) => Subject::Device,
            Command::Conform(_) | Command::Mesh(_) => Subject::Device,
            Command::Perf(_) => Subject::DeviceOrModel,
            Command::Run(_) | Command::Replay(_) => Subject::Model,
            Command::Monitor(_) => Subject::Device,
            Command::Trace(arguments) => arguments.subject(),
            Command::Lint(arguments) => arguments.subject(),
            Command::Decode(_) => Subject::Texts,
            Command::Completions(_) | Command::Man(_) => Subject::Texts,
        }
    }
}

/// Has a write at the limit of files' sizes (`RLIMIT_FSIZE`) fail, instead of the signal that would end
/// this process. Programs that it runs begin with the signal as it was.
fn outlive_file_limits() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a zeroed sigaction is a valid one, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action);
        if action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        }
    }
}

impl Cli {
    /// Prints help, the version, or what is wrong with the command line.
    #[must_use]
    pub fn answer(answer: &clap::Error) -> ExitCode {
        if answer.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            failed_in_json(&answer.to_string());
        }
        let given = std::env::args_os().chain(std::env::var_os("MLX5_MODEL_LIBRARY"));
        let mut texts = given.map(|text| text.into_string());
        if texts.all(|text| text.is_ok_and(|text| plain(&text, Form::Text) == text)) {
            // In colours, which are clap's own then.
            answer.exit();
        }
        let text = answer.render().to_string();
        // Nobody is left to tell if it cannot be printed.
        let _ = match answer.use_stderr() {
            true => stderr(Form::Text).write_all(text.as_bytes()),
            false => stdout(Form::Text).write_all(text.as_bytes()),
        };
        ExitCode::from(answer.exit_code() as u8)
    }

    /// Does what the command line says.
    #[must_use]
    pub fn run(mut self) -> ExitCode {
        outlive_file_limits();
        let subject = self.command.subject();
        self.options.model |= subject == Subject::Model;
        let machine = Machine::choose(&self.options, subject);
        let output = Output::new(&self.options, subject);
        let ended = match self.command {
            Command::Info(arguments) => arguments.run(&machine, &output),
            Command::Doctor(arguments) => arguments.run(&machine, &output),
            Command::Conform(arguments) => arguments.run(&machine, &output),
            Command::Perf(arguments) => arguments.run(&machine, &output),
            Command::Mesh(arguments) => arguments.run(&machine, &output),
            Command::Decode(arguments) => arguments.run(&output),
            Command::Lint(arguments) => arguments.run(&output),
            Command::Run(arguments) => arguments.run(),
            Command::Monitor(arguments) => arguments.run(&output),
            Command::Trace(arguments) => arguments.run(&output),
            Command::Replay(arguments) => arguments.run(&output),
            Command::Dump(arguments) => arguments.run(&machine, &output),
            Command::Completions(arguments) => arguments.run(&mut Cli::command()),
            Command::Man(arguments) => arguments.run(Cli::command()),
        };
        match ended {
            Ok(outcome) => outcome.into(),
            // The reader has seen enough (`mlx5 info | head`).
            Err(Error::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                Outcome::Good.into()
            }
            Err(error) => {
                output.failed(&error);
                ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 3 })
            }
        }
    }
}
