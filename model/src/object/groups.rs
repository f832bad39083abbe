//! Multicast groups: the queue pairs attached to each group.

use std::collections::HashMap;

/// The groups that queue pairs of a card are attached to, by multicast GID.
#[derive(Debug, Default)]
pub struct Groups {
    members: HashMap<[u8; 16], Vec<u32>>,
    /// In how many groups each queue pair is.
    attached: HashMap<u32, usize>,
    /// Changes with the set of groups that have members.
    version: u64,
}

impl Groups {
    /// How many groups have a member.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether no queue pair is attached to any group.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A number that changes with the set of groups that have members.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The groups that have members.
    pub fn gids(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.members.keys()
    }

    /// Numbers of a group's queue pairs, in the order in which they were attached.
    pub fn of(&self, gid: &[u8; 16]) -> &[u32] {
        self.members.get(gid).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue pair is attached to any group.
    pub fn has(&self, qp: u32) -> bool {
        self.attached.contains_key(&qp)
    }

    /// Attaches a queue pair, which is not attached to that group yet.
    pub fn attach(&mut self, gid: [u8; 16], qp: u32) {
        let members = self.members.entry(gid).or_default();
        self.version += u64::from(members.is_empty());
        members.push(qp);
        *self.attached.entry(qp).or_default() += 1;
    }

    /// Detaches a queue pair; `false` if it is not attached to that group.
    pub fn detach(&mut self, gid: &[u8; 16], qp: u32) -> bool {
        let Some(members) = self.members.get_mut(gid) else { return false };
        let before = members.len();
        members.retain(|member| *member != qp);
        let found = members.len() != before;
        if let (true, Some(groups)) = (found, self.attached.get_mut(&qp)) {
            *groups -= 1;
            if *groups == 0 {
                self.attached.remove(&qp);
            }
        }
        if members.is_empty() {
            self.version += 1;
            self.members.remove(gid);
        }
        found
    }
}
