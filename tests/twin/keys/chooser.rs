//! The requests posted to both twins.

use mlx5::ib::Access;
use mlx5::verbs::MemoryRegion;
use mlx5::wqe::{Sge, Strided};

use super::{Layout, MEMORY, Request, WINDOWS, What};
use rig::random::Random;

/// Chooses requests that succeed, one after another.
pub(super) struct Chooser<'a> {
    pub random: &'a mut Random,
    pub region: &'a MemoryRegion,
    pub more: bool,
    pub next: u64,
    pub unsignaled: u32,
    /// Which windows of type 1 the region's first bytes may be written by, and which of type 2 are
    /// bound.
    pub writable: [bool; WINDOWS],
    pub bound: [bool; WINDOWS],
    pub configured: [bool; WINDOWS],
    /// Windows of type 2 that are left alone for the rest of this call: it takes a while until one is
    /// invalidated from afar, and `ibv_post_send` looks at a window when it is called.
    pub used: [bool; WINDOWS],
}

impl Chooser<'_> {
    fn access(&mut self) -> Access {
        let mut access = Access::empty();
        for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            if self.random.one_in(2) {
                access |= right;
            }
        }
        access
    }

    fn part(&mut self) -> (u32, u32) {
        let offset = self.random.below(MEMORY as u32 / 2);
        (offset, 1 + self.random.below(MEMORY as u32 / 2))
    }

    fn layout(&mut self, at: usize) -> Layout {
        let (start, lkey) = (self.region.address(), self.region.lkey());
        match self.random.below(5) {
            0 if self.configured[at] => Layout::Same,
            0..3 => {
                let entries = if self.random.one_in(2) { 4 } else { 1 + self.random.below(30) };
                let mut piece = |_| {
                    Sge::new(
                        start + u64::from(self.random.below(1000)),
                        1 + self.random.below(1000),
                        lkey,
                    )
                };
                Layout::List((0..entries).map(&mut piece).collect())
            }
            _ => {
                let entries = 1 + self.random.below(12);
                let mut piece = |_| Strided {
                    addr: start + u64::from(self.random.below(1000)),
                    lkey,
                    length: 1 + self.random.below(60) as u16,
                    skip: self.random.below(60) as u16,
                };
                let pieces = (0..entries).map(&mut piece).collect();
                Layout::Interleaved(1 + self.random.below(9), pieces)
            }
        }
    }

    /// `lists`: what `ibv_post_send` takes several of.
    pub(super) fn request(&mut self, alone: bool, builders: bool) -> Request {
        let what = loop {
            let at = self.random.below(WINDOWS as u32) as usize;
            let free = !self.used[at];
            match self.random.below(8) {
                0 => {
                    let by = (0..WINDOWS).find(|at| self.writable[*at]);
                    break What::Write(by.filter(|_| self.random.one_in(2)));
                }
                1 => break What::Send,
                2 if self.more && self.bound[at] && free => {
                    self.bound[at] = false;
                    break What::SendInvalidate(at);
                }
                3 if alone && !builders => {
                    if self.random.one_in(4) {
                        self.writable[at] = false;
                        break What::Bind1(at, 0, 0, Access::empty());
                    }
                    let ((offset, length), access) = (self.part(), self.access());
                    let offset = if self.random.one_in(2) { 0 } else { offset };
                    let writes = access.contains(Access::REMOTE_WRITE);
                    self.writable[at] = writes && offset == 0 && length >= 16;
                    break What::Bind1(at, offset, length, access);
                }
                4 | 5 if !self.bound[at] && free => {
                    self.bound[at] = true;
                    let ((offset, length), access) = (self.part(), self.access());
                    let (tag, zero) = (self.random.next() as u8, self.random.one_in(3));
                    break What::Bind2(at, tag, offset, length, access, zero);
                }
                6 if self.bound[at] && free => {
                    self.bound[at] = false;
                    break What::Invalidate(at);
                }
                7 if self.more && builders => {
                    let (mut access, layout) = (self.access(), self.layout(at));
                    if self.random.one_in(2) {
                        access |= Access::LOCAL_WRITE;
                    }
                    let given = !self.configured[at] || self.random.one_in(2);
                    self.configured[at] = true;
                    break What::Configure(at, given.then_some(access), layout);
                }
                _ => {}
            }
        };
        match what {
            What::SendInvalidate(at) => self.used[at] = true,
            What::Bind2(at, ..) | What::Invalidate(at) => self.used[at] |= !builders,
            _ => {}
        }
        self.next += 1;
        self.unsignaled += 1;
        let signaled = self.unsignaled > 4 || self.random.one_in(3);
        if signaled {
            self.unsignaled = 0;
        }
        Request { id: self.next, what, signaled, fenced: self.random.one_in(6) }
    }
}
