//! Targets of dynamic connections (DCTs).

use std::collections::{HashMap, VecDeque};

use mlx5_sys::ifc::dctc;

use crate::transport::rc::Rc;
use crate::wire::Route;

/// State of a target, as DCTC encodes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Drain {
    /// Whoever shows the key is let in.
    #[default]
    Active = 0,
    /// Nobody is let in any more; messages that have begun may end.
    Draining = 1,
    /// And none is on its way any more.
    Drained = 2,
}

/// An initiator as its target knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Where its port is: the LID, or on Ethernet the GID.
    port: [u8; 16],
    /// Number of its queue pair.
    pub number: u32,
}

impl Peer {
    /// The queue pair of this number from which packets come by this way.
    pub fn of(route: &Route, number: u32) -> Self {
        let port = match route {
            Route::InfiniBand { source, .. } => u128::from(*source).to_be_bytes(),
            Route::Ethernet { global, .. } => global.source,
        };
        Self { port, number }
    }
}

/// A connection that an initiator has opened.
#[derive(Debug)]
pub struct Connection {
    /// What the initiator calls it.
    pub id: u32,
    /// Its responder.
    pub rc: Rc,
    /// Whether it is among those that have something to send.
    pub listed: bool,
    /// When its initiator's last packet came, by the card's clock.
    pub used: u64,
}

/// What a queue pair that is a target has beside its context.
#[derive(Debug)]
pub struct Target {
    /// The DCT context as the command has set it.
    pub context: Box<[u8; dctc::SIZE]>,
    /// Whether it lets anybody in.
    pub drain: Drain,
    /// Whether the next violation of the key is to be told by an event.
    pub armed: bool,
    /// Violations of the key so far.
    pub violations: u32,
    /// Connections: an initiator has one at most.
    pub connections: HashMap<Peer, Connection>,
    /// Those that have something to send.
    pub ready: VecDeque<Peer>,
    /// When connections whose initiators are gone were last looked for.
    pub swept: u64,
}

impl Target {
    /// One that nobody has connected to.
    pub fn new(context: Box<[u8; dctc::SIZE]>) -> Self {
        Self {
            context,
            drain: Drain::Active,
            armed: false,
            violations: 0,
            connections: HashMap::new(),
            ready: VecDeque::new(),
            swept: 0,
        }
    }

    /// The key that initiators have to show.
    pub fn key(&self) -> u64 {
        dctc::DC_ACCESS_KEY.get(&self.context[..])
    }

    /// The context with what moves by itself.
    pub fn query(&self) -> [u8; dctc::SIZE] {
        let mut context = *self.context;
        dctc::STATE.set(&mut context, self.drain as u64);
        dctc::DC_ACCESS_KEY_VIOLATION_COUNT.set(&mut context, self.violations.into());
        context
    }
}
