//! What the environment says. Every variable the model reads is read here; the crate's
//! documentation lists them.

use crate::card::Link;

/// When the model stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Where the kernel offers no mlx5 device.
    Auto,
    /// Whatever the kernel offers.
    Always,
    /// Not at all.
    Never,
}

/// How the card notices stores to its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every store traps: it is seen in order, and what it starts is executed inside it.
    Trapped,
    /// The registers are plain memory at which a thread looks: stores that follow one another
    /// quickly may be seen as one, as behind a write-combining buffer.
    Polled,
    /// The registers are plain memory, and nothing happens until [`crate::run`] is called.
    Manual,
}

/// Everything the environment says.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub when: When,
    pub link: Link,
    pub mode: Mode,
    pub devices: usize,
    /// Whether firmware lets programs give commands.
    pub user_contexts: bool,
    /// Where all that the cards do is written, and whether so that it can be replayed.
    pub trace: Option<(String, bool)>,
}

/// Most devices offered at once.
const DEVICES: usize = 16;

impl Config {
    /// Reads the environment. The error names the variable, what it holds and what it may hold.
    pub fn from_environment() -> Result<Self, String> {
        Self::from(&|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(format!("{name}: {error}")),
        })
    }

    fn from(get: &dyn Fn(&str) -> Result<Option<String>, String>) -> Result<Self, String> {
        let when = choose(
            get,
            "MLX5_MODEL",
            &[("auto", When::Auto), ("always", When::Always), ("never", When::Never)],
        )?;
        let link = choose(
            get,
            "MLX5_MODEL_LINK",
            &[("infiniband", Link::InfiniBand), ("roce", Link::Roce)],
        )?;
        let default = if super::trap::AVAILABLE { Mode::Trapped } else { Mode::Polled };
        let mode = choose(
            get,
            "MLX5_MODEL_MODE",
            &[("trapped", Mode::Trapped), ("polled", Mode::Polled), ("manual", Mode::Manual)],
        )?;
        if mode == Some(Mode::Trapped) && !super::trap::AVAILABLE {
            return Err("MLX5_MODEL_MODE=trapped is made for x86-64 alone; use polled".into());
        }
        let devices = match get("MLX5_MODEL_DEVICES")? {
            None => 1,
            Some(text) => {
                text.parse().ok().filter(|n| (1..=DEVICES).contains(n)).ok_or_else(|| {
                    format!("MLX5_MODEL_DEVICES is {text:?}, not a number from 1 to {DEVICES}")
                })?
            }
        };
        let devx = choose(get, "MLX5_MODEL_DEVX", &[("allowed", true), ("refused", false)])?;
        let detail = choose(get, "MLX5_MODEL_TRACE_DETAIL", &[("replay", true), ("story", false)])?;
        let trace = match get("MLX5_MODEL_TRACE")? {
            Some(name) if name.is_empty() => return Err("MLX5_MODEL_TRACE names no file".into()),
            name => name.map(|name| (name, detail.unwrap_or(true))),
        };
        Ok(Self {
            when: when.unwrap_or(When::Auto),
            link: link.unwrap_or(Link::InfiniBand),
            mode: mode.unwrap_or(default),
            devices,
            user_contexts: devx.unwrap_or(true),
            trace,
        })
    }
}

fn choose<T: Copy>(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    name: &str,
    values: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(text) = get(name)? else { return Ok(None) };
    match values.iter().find(|(value, _)| *value == text) {
        Some((_, meaning)) => Ok(Some(*meaning)),
        None => {
            let known: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
            Err(format!("{name} is {text:?}, not one of {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
        Config::from(&|name| {
            Ok(pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let config = read(&[]).unwrap();
        assert_eq!(config.when, When::Auto);
        assert_eq!(config.link, Link::InfiniBand);
        assert_eq!(config.devices, 1);
        assert!(config.user_contexts && config.trace.is_none());
    }

    #[test]
    fn a_value_that_is_not_known_is_refused_by_name() {
        for (name, value) in [
            ("MLX5_MODEL", "yes"),
            ("MLX5_MODEL_LINK", "ib"),
            ("MLX5_MODEL_MODE", ""),
            ("MLX5_MODEL_DEVICES", "0"),
            ("MLX5_MODEL_DEVICES", "17"),
            ("MLX5_MODEL_DEVICES", "two"),
            ("MLX5_MODEL_DEVX", "no"),
            ("MLX5_MODEL_TRACE_DETAIL", "all"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
