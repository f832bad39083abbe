//! Obstacles to opening a device: the checks on the way from the PCI bus to DevX.

use serde::Serialize;

use super::check::{Check, Verdict};
use super::situation::Situation;
use super::text::Text;
use super::{Arguments, Family, access, device, grouped, kernel, libraries, pci};
use crate::machine::Machine;
use crate::output::Page;

/// The findings on a machine without a usable device.
#[derive(Clone, Debug, Serialize)]
pub struct Obstacles {
    verdict: String,
    /// In the order in which a device comes up.
    checks: Vec<Check>,
}

impl Obstacles {
    /// Examines the way to the requested device, or to each device.
    pub fn find(machine: &Machine) -> Obstacles {
        const DEVICE: [Family; 3] = [pci::presence, access::look, device::look];
        const MACHINE: [Family; 2] = [kernel::modules, libraries::look];
        let arguments = Arguments::default();
        let situations = Situation::find(machine, &arguments);
        let of_device = |situation: &Situation| {
            let name = situation.device.as_ref().map(|device| device.name.clone());
            let checks = grouped(&DEVICE, situation).into_iter();
            checks.map(move |check| Check { device: name.clone(), ..check })
        };
        let mut checks: Vec<Check> = situations.iter().flat_map(of_device).collect();
        // The machine is the same in all situations.
        checks.extend(situations.first().map(|first| grouped(&MACHINE, first)).unwrap_or_default());
        Obstacles { verdict: verdict(&checks), checks }
    }

    /// Returns the text.
    pub fn page(&self) -> Page {
        let mut text = Text::new(false);
        text.verdict(&self.verdict, Verdict::Broken);
        text.details(&self.checks);
        text.into_page()
    }
}

/// Names the first obstacle, since the others may follow from it.
fn verdict(checks: &[Check]) -> String {
    match checks.iter().find(|check| check.verdict == Verdict::Broken) {
        Some(check) => format!("no device can be used: {}", check.found),
        None => "no device can be used, and no check found why".to_owned(),
    }
}
