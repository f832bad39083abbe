//! Changes of entries to packets, and the contexts that entries name.

use crate::wire::ethernet::fields::{FieldAction, Metadata, change};
use crate::wire::ethernet::{Headers, tunnel};

/// The longest frame that changes may lead to. Frames of ports are shorter by a few headers.
const LONGEST: usize = 1 << 14;

/// A context of changed headers: actions on header fields.
#[derive(Clone, Debug)]
pub struct ModifyHeader {
    /// User context that created it.
    pub uid: u16,
    /// Type of the tables whose entries may name it.
    pub kind: u8,
    /// The actions, in order.
    pub actions: Vec<FieldAction>,
}

/// A context of reformatting: headers that packets get or lose.
#[derive(Clone, Debug)]
pub struct Reformat {
    /// User context that created it.
    pub uid: u16,
    /// The change.
    pub form: Reformatting,
}

/// A change of a packet's headers (`mlx5_ifc.h`, `MLX5_REFORMAT_TYPE_*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reformatting {
    /// These headers are put before the frame.
    Encapsulate(Vec<u8>),
    /// They replace the Ethernet header and its tags.
    EncapsulatePacket(Vec<u8>),
    /// They replace all headers before the IP packet inside of the tunnel.
    Decapsulate(Vec<u8>),
    /// The bytes are put at an offset from the start of the frame.
    Insert(usize, Vec<u8>),
    /// As many bytes are taken off there.
    Remove(usize, usize),
}

impl Reformatting {
    /// Returns whether it takes headers off. Devices do that before all other changes.
    fn takes_off(&self) -> bool {
        matches!(self, Self::Decapsulate(_) | Self::Remove(..))
    }

    fn of(&self, frame: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Encapsulate(outer) => tunnel::encapsulate(outer, &frame),
            Self::EncapsulatePacket(outer) => {
                let (_, at) = Headers::of(&frame)?.network?;
                tunnel::encapsulate(outer, frame.get(at..)?)
            }
            Self::Decapsulate(outer) => {
                let headers = Headers::of(&frame)?;
                Some([outer, tunnel::inner_packet(&frame, &headers)?].concat())
            }
            Self::Insert(at, bytes) => {
                let (before, after) = frame.split_at_checked(*at)?;
                Some([before, bytes, after].concat())
            }
            Self::Remove(at, count) => {
                let after = frame.get(at.checked_add(*count)?..)?;
                Some([&frame[..*at], after].concat())
            }
        }
    }
}

/// A VLAN tag that entries add: its type and control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedTag {
    /// Its type.
    pub kind: u16,
    /// Priority, drop bit and VLAN.
    pub tag: u16,
}

/// The tunnel that an entry takes off by its own action (DECAP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decapsulation {
    /// None.
    #[default]
    Nothing,
    /// The one around the Ethernet frame inside.
    Tunnel,
}

/// The changes that an entry makes, with the numbers of the contexts that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketChanges {
    /// The tunnel that it takes off.
    pub decapsulation: Decapsulation,
    /// VLAN tags that it takes off.
    pub pops: usize,
    /// Its context of changed headers.
    pub modify: Option<u32>,
    /// VLAN tags that it adds, the outermost last.
    pub pushes: Vec<AddedTag>,
    /// Its context of reformatting.
    pub reformat: Option<u32>,
}

impl PacketChanges {
    /// Returns whether there are any.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The changes of an entry with the contexts that it names.
pub struct Edits<'a> {
    /// The changes.
    pub changes: &'a PacketChanges,
    /// Its context of changed headers.
    pub modify: Option<&'a ModifyHeader>,
    /// Its context of reformatting.
    pub reformat: Option<&'a Reformat>,
}

impl Edits<'_> {
    /// Changes a frame. `None` if that cannot be done: it has no such tunnel, or becomes too long.
    ///
    /// Devices have an order, whatever order a program gives (Linux, `dr_action.c`, next_action_state):
    /// tunnels and other headers are taken off, then tags, fields change, tags are added, tunnels and
    /// other headers are added.
    pub fn apply(&self, frame: &[u8], metadata: &mut Metadata) -> Option<Vec<u8>> {
        let reformat = self.reformat.map(|reformat| &reformat.form);
        let mut frame = match self.changes.decapsulation {
            Decapsulation::Nothing => frame.to_vec(),
            Decapsulation::Tunnel => tunnel::inner_frame(frame, &Headers::of(frame)?)?.to_vec(),
        };
        if let Some(form) = reformat.filter(|form| form.takes_off()) {
            frame = form.of(frame)?;
        }
        for _ in 0..self.changes.pops {
            tunnel::pop_tag(&mut frame);
        }
        if let Some(modify) = self.modify {
            let headers = Headers::of(&frame)?;
            change(&mut frame, &headers, metadata, &modify.actions);
        }
        for AddedTag { kind, tag } in &self.changes.pushes {
            tunnel::push_tag(&mut frame, *kind, *tag);
        }
        if let Some(form) = reformat.filter(|form| !form.takes_off()) {
            frame = form.of(frame)?;
        }
        (frame.len() <= LONGEST).then_some(frame)
    }
}
