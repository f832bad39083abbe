//! The registry of listeners: processes that receive Ethernet frames and multicast messages.
//!
//! A process that starts to listen binds a name below `all/`. A process that sends to all listeners
//! binds a name below `from/`, its door. Each then looks at the other's names, once: a listener
//! announces itself at every door, and a sender connects to every listener. So the two meet in
//! either order. Later there are no more look-ups: before each frame, a sender accepts the
//! announcements at its door.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Shortest time between searches for listeners, while another user may have blocked the door.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A process's knowledge of the listeners.
#[derive(Default)]
pub(super) struct Hall {
    /// The name that this process listens under, if it listens.
    pub listener: Option<String>,
    /// The name of its door, if it sends.
    pub door: Option<String>,
    /// The door's token among the network's sources.
    pub door_token: Option<u64>,
    /// Tokens of connections at the door that have not announced anything yet.
    pub callers: Vec<u64>,
    /// Names of the listeners, by the number that this process has assigned.
    members: BTreeMap<u16, String>,
    /// Names that other users have bound.
    strangers: BTreeSet<String>,
    /// Whether a new search is needed.
    suspect: bool,
    /// Time of the last search.
    looked: Option<Instant>,
}

impl Hall {
    /// Requests a new search: a listener may have been kept from the door.
    pub fn suspect(&mut self) {
        self.suspect = true;
    }

    /// Returns whether to search now.
    pub fn is_time_to_look(&self) -> bool {
        self.suspect && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN)
    }

    /// Records the result of a search: all names that are bound.
    pub fn looked(&mut self, names: &BTreeSet<String>) {
        self.strangers.retain(|name| names.contains(name));
        self.looked = Some(Instant::now());
        self.suspect = self.door.is_none();
    }

    /// Returns the numbers of the listeners.
    pub fn numbers(&self) -> Vec<u16> {
        self.members.keys().copied().collect()
    }

    /// Returns a listener's name.
    pub fn name(&self, number: u16) -> Option<&str> {
        self.members.get(&number).map(String::as_str)
    }

    /// Returns whether a name is a known listener's, this process's own, or another user's.
    pub fn knows(&self, name: &str) -> bool {
        self.listener.as_deref() == Some(name)
            || self.strangers.contains(name)
            || self.members.values().any(|known| known == name)
    }

    /// Adds a listener, and returns its number; `None` if there are too many.
    pub fn enter(&mut self, name: String) -> Option<u16> {
        let number = (0..=u16::MAX).find(|number| !self.members.contains_key(number))?;
        self.members.insert(number, name);
        Some(number)
    }

    /// Remembers a name that another user has bound.
    pub fn refuse(&mut self, name: String) {
        self.strangers.insert(name);
    }

    /// Removes a listener that is gone.
    pub fn leave(&mut self, number: u16) {
        self.members.remove(&number);
    }
}
