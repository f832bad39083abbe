//! The active side of a case.

use mlx5::ib::Rc;
use mlx5::ring::SendConfig;

use crate::message::{Door, Kind, Shape};
use crate::peer::Peer;
use crate::side::{Base, Side};
use crate::verdict::Verdict;

/// The tools of a case: this side's port and domain, and the other side.
#[derive(Debug)]
pub(crate) struct Bench<'p> {
    pub base: Base,
    pub peer: &'p mut Peer,
}

impl Bench<'_> {
    /// Connects two queue pairs of reliable connections, of the same shape.
    pub fn rc(&mut self, shape: &Shape) -> Verdict<(Side<Rc>, Door)> {
        self.rc_with(shape, shape)
    }

    /// Connects two queue pairs of reliable connections: this side's shape, and the peer's.
    pub fn rc_with(&mut self, mine: &Shape, theirs: &Shape) -> Verdict<(Side<Rc>, Door)> {
        self.rc_configured(mine, theirs, SendConfig::default())
    }

    pub fn rc_configured(
        &mut self,
        mine: &Shape,
        theirs: &Shape,
        config: SendConfig,
    ) -> Verdict<(Side<Rc>, Door)> {
        let mut side = Side::new(&self.base, mine)?;
        let door = self.peer.open(Kind::Rc, theirs)?;
        self.peer.connect(Door::new(side.mine()))?;
        side.connect_with(&self.base, &door.data()?, config)?;
        Ok((side, door))
    }

    /// Moves both queue pairs through RESET to RTS.
    pub fn renew(&mut self, side: &mut Side<Rc>) -> Verdict<Door> {
        let door = self.peer.renew()?;
        side.renew(&self.base)?;
        self.peer.connect(Door::new(side.mine()))?;
        side.connect(&self.base, &door.data()?)?;
        Ok(door)
    }
}
