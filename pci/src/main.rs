//! `mlx5-model-pci`: serves functions until it is killed.

use std::process::ExitCode;

use mlx5_model_pci::options::{Options, USAGE};
use mlx5_model_pci::server::Server;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprint!("mlx5-model-pci: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match Server::start(&options) {
        Ok(server) => {
            server.wait();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mlx5-model-pci: {error}");
            ExitCode::FAILURE
        }
    }
}
