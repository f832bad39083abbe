//! Multicast groups: the queue pairs attached to each group.

use std::collections::HashMap;

/// The groups that queue pairs of a card are attached to, by multicast GID.
#[derive(Debug, Default)]
pub struct Groups {
    members: HashMap<[u8; 16], Vec<u32>>,
    /// In how many groups each queue pair is.
    attached: HashMap<u32, usize>,
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
        self.members.entry(gid).or_default().push(qp);
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
            self.members.remove(gid);
        }
        found
    }
}
