//! The registry of listeners: processes that receive Ethernet frames and multicast messages.
//!
//! A process that starts to listen binds a name below `all/`. A process that sends to all listeners
//! binds a name below `from/`, its door. Each then looks at the other's names, once: a listener
//! announces itself at every door, and a sender connects to every listener. So the two meet in
//! either order. Later there are no more look-ups: before each frame, a sender accepts the
//! announcements at its door.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How often names are looked at again, at most, where somebody may have been kept from the door.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What a process knows of the others.
#[derive(Default)]
pub(super) struct Hall {
    /// The name that this process listens under, if it does.
    pub listener: Option<String>,
    /// The name of its door, if it sends.
    pub door: Option<String>,
    /// What the door is among the network's sources.
    pub door_token: Option<u64>,
    /// Connections at the door that have not told anything yet, among the network's sources.
    pub callers: Vec<u64>,
    /// Who listens, by the number that it has here.
    members: BTreeMap<u16, String>,
    /// Names that other users have bound.
    strangers: BTreeSet<String>,
    /// Whether names have to be looked at.
    suspect: bool,
    /// When they were looked at.
    looked: Option<Instant>,
}

impl Hall {
    /// Has names looked at again: somebody may have been kept away.
    pub fn suspect(&mut self) {
        self.suspect = true;
    }

    /// Whether names are to be looked at now.
    pub fn is_time_to_look(&self) -> bool {
        self.suspect && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN)
    }

    /// Names have been looked at: these are all that there are.
    pub fn looked(&mut self, names: &BTreeSet<String>) {
        self.strangers.retain(|name| names.contains(name));
        self.looked = Some(Instant::now());
        self.suspect = self.door.is_none();
    }

    /// Numbers of those who listen.
    pub fn numbers(&self) -> Vec<u16> {
        self.members.keys().copied().collect()
    }

    /// The name of one who listens.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.members.get(&number).map(String::as_str)
    }

    /// Whether a name is one of these, this process's own, or that of another user.
    pub fn knows(&self, name: &str) -> bool {
        self.listener.as_deref() == Some(name)
            || self.strangers.contains(name)
            || self.members.values().any(|known| known == name)
    }

    /// Enters one who listens, and gives its number; none if there are too many.
    pub fn enter(&mut self, name: String) -> Option<u16> {
        let number = (0..=u16::MAX).find(|number| !self.members.contains_key(number))?;
        self.members.insert(number, name);
        Some(number)
    }

    /// Remembers a name that another user has bound.
    pub fn refuse(&mut self, name: String) {
        self.strangers.insert(name);
    }

    /// One who listens is gone.
    pub fn leave(&mut self, number: u16) {
        self.members.remove(&number);
    }
}
