//! What a command runs on: a card, or the model.

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
    /// As the options say. The model looks at its environment when the first file is opened, so this
    /// has to come before anything else.
    ///
    /// Where `fallback` is not wanted, the model stands in only if it is asked for, by the option or by
    /// its own variable: a missing card is seen to be missing.
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

    /// Has the model, if it comes to that, look at registers by a thread of its own (polled mode), so
    /// that a store to them costs the program what it costs on a card. What the environment says goes
    /// before. As for [`choose`](Self::choose): before anything is opened.
    pub fn watch_registers(&self) {
        const VARIABLE: &str = "MLX5_MODEL_MODE";
        if std::env::var_os(VARIABLE).is_none() {
            // SAFETY: no other thread runs yet: commands call this before they open a device.
            unsafe { std::env::set_var(VARIABLE, "polled") };
        }
    }

    /// Says on standard error that what follows is not a card's doing, if so.
    pub fn say_model(&self) {
        if is_model() {
            say!("on the model, a software ConnectX: its times say nothing of a card");
        }
    }

    /// Opens the device that was asked for, or the first; says so if it is the model's.
    ///
    /// # Errors
    /// As [`Context::open`] and [`Context::open_first`].
    pub fn open(&self) -> Result<Context> {
        self.say_model();
        Ok(match &self.device {
            Some(name) => Context::open(name)?,
            None => Context::open_first()?,
        })
    }

    /// The name that was asked for.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }
}
