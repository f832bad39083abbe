//! Selects the device or the model for a command.

use mlx5::verbs::{self, Context, Device};

use crate::bed;
use crate::options::{Options, Subject};
use crate::outcome::{Error, Result};
use crate::output::say;

/// The devices that a command may open.
#[derive(Clone, Debug)]
pub struct Machine {
    device: Option<String>,
}

impl Machine {
    /// Selects devices by the options. The model reads its environment when the first file is
    /// opened, so this must be called before anything else.
    ///
    /// Commands on [`Subject::Device`] use the model only on request, by the option or by
    /// `MLX5_MODEL=always`. A missing device then shows as missing.
    #[must_use]
    pub fn choose(options: &Options, subject: Subject) -> Machine {
        let asked = std::env::var_os("MLX5_MODEL").is_some_and(|value| value != "auto");
        let chosen = match (options.model, subject) {
            (true, _) => Some("always"),
            (false, Subject::Device) if !asked => Some("never"),
            (false, _) => None,
        };
        if let Some(value) = chosen {
            // SAFETY: no other thread runs yet: this is called first by `main`.
            unsafe { std::env::set_var("MLX5_MODEL", value) };
        }
        Machine { device: options.device.clone() }
    }

    /// Returns the same choice, of the device of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Machine {
        Machine { device: Some(name.to_owned()) }
    }

    /// If the model is used, makes it watch registers from a thread of its own (polled mode), so
    /// that a store to a register costs the program the same as on a real device. The environment
    /// takes precedence. Like [`choose`](Self::choose), this must be called before anything is
    /// opened.
    pub fn watch_registers(&self) {
        const VARIABLE: &str = "MLX5_MODEL_MODE";
        if std::env::var_os(VARIABLE).is_none() {
            // SAFETY: no other thread runs yet: commands call this before they open a device.
            unsafe { std::env::set_var(VARIABLE, "polled") };
        }
    }

    /// Reports on standard error if the results come from the model.
    pub fn say_model(&self) {
        if let Some(model) = bed::model() {
            say!("on {model}: its times say nothing of a device");
        }
    }

    /// Opens the requested device, or the first.
    ///
    /// # Errors
    /// Those of [`Context::open`] and [`Context::open_first`]. If the machine has no device, the
    /// error says how to run on the model.
    pub fn open(&self) -> Result<Context> {
        let opened = match &self.device {
            Some(name) => Context::open(name),
            None => Context::open_first(),
        };
        opened.map_err(or_the_model)
    }

    /// Lists all RDMA devices, of any vendor.
    ///
    /// # Errors
    /// Those of [`verbs::devices`], and [`Error::NoDevice`] if the list is empty.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let listed = verbs::devices().map_err(or_the_model)?;
        if listed.is_empty() {
            return Err(bed::missing(
                "no RDMA device found: `lspci -d 15b3:` lists this machine's ConnectX functions, \
                 and their driver is mlx5_ib"
                    .to_owned(),
            ));
        }
        Ok(listed)
    }

    /// Returns the requested name.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }
}

/// Marks the errors that a missing device causes: without one, only the model is left.
fn or_the_model(error: mlx5::Error) -> Error {
    let absent = match &error {
        mlx5::Error::NoDevices { .. } => true,
        mlx5::Error::DeviceNotFound { present, .. } => present.is_empty(),
        _ => false,
    };
    if absent { bed::missing(error.to_string()) } else { error.into() }
}
