//! Selects the device or the model for a command.

use mlx5::verbs::Context;

use crate::bed::is_model;
use crate::options::Options;
use crate::outcome::Result;
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
    /// If `fallback` is not set, the model is used only on request, by the option or by its own
    /// variable. A missing device then shows as missing.
    #[must_use]
    pub fn choose(options: &Options, fallback: bool) -> Machine {
        let asked = std::env::var_os("MLX5_MODEL").is_some_and(|value| value != "auto");
        let chosen = match (options.model, fallback || asked) {
            (true, _) => Some("always"),
            (false, false) => Some("never"),
            (false, true) => None,
        };
        if let Some(value) = chosen {
            // SAFETY: no other thread runs yet: this is called first by `main`.
            unsafe { std::env::set_var("MLX5_MODEL", value) };
        }
        Machine { device: options.device.clone() }
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
        if is_model() {
            say!("on the model, a software ConnectX: its times say nothing of a device");
        }
    }

    /// Opens the requested device, or the first. Reports on standard error if it is the model's.
    ///
    /// # Errors
    /// Those of [`Context::open`] and [`Context::open_first`].
    pub fn open(&self) -> Result<Context> {
        self.say_model();
        Ok(match &self.device {
            Some(name) => Context::open(name)?,
            None => Context::open_first()?,
        })
    }

    /// Returns the requested name.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }
}
