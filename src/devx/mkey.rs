//! Memory keys made by command.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, cmd_hca_cap_2, create_mkey_in, create_mkey_out, mkc, opcode, query_mkey_in,
    query_mkey_out,
};

use super::domain::Domain;
use super::umem::Hold;
use super::{Command, Group, Object, Reply, Umem};
use crate::ib::Access;
use crate::verbs::{Context, Error, Result, check_region_access};
use crate::wqe::{ConfigureKey, LocalInvalidate, Sge};

/// Access modes (`mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`).
const MTT: u32 = 1;
const KLMS: u32 = 2;
const KSM: u32 = 3;
/// Stands for any queue pair.
const ANY_QP: u32 = 0x00ff_ffff;
/// Entries of a key's list come in fours.
const GROUP: usize = 4;
/// What errors call it.
const KEY: &str = "memory key";

/// A memory key made by command (`CREATE_MKEY`).
///
/// What it leads to is said when it is made: memory of a [`Umem`] [itself](MkeyBuilder::direct), a
/// [list](MkeyBuilder::list) of pieces of memory behind other keys, such
/// [pieces of equal size](MkeyBuilder::equal), or [nothing yet](MkeyBuilder::free).
/// It goes wherever a key goes: in WQEs as [`lkey`](Self::lkey), at the peer as
/// [`rkey`](Self::rkey).
///
/// Dropping it frees it; requests that use it fail from then on.
pub struct Mkey {
    object: Object,
    key: u32,
    address: u64,
    length: u64,
    entries: u32,
}

/// What a key is to be like, see [`Mkey::builder`].
#[derive(Clone)]
#[must_use = "nothing is made before it is said what the key leads to"]
pub struct MkeyBuilder<'a> {
    pd: &'a dyn Domain,
    access: Access,
    address: Option<u64>,
    variant: Option<u8>,
    updatable: bool,
    remote_invalidate: bool,
}

/// A piece of memory in a list of pieces of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Piece {
    /// Virtual address of its first byte behind the key.
    pub addr: u64,
    /// The key: of a region, or of a key over others.
    pub lkey: u32,
}

impl Mkey {
    /// A key of a protection domain that grants nothing but this host's reads.
    pub fn builder(pd: &dyn Domain) -> MkeyBuilder<'_> {
        MkeyBuilder {
            pd,
            access: Access::empty(),
            address: None,
            variant: None,
            updatable: false,
            remote_invalidate: false,
        }
    }

    /// The key, for this host's work requests.
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// The key that lets the peer in, if it has rights: the same.
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// The address of the first byte behind it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes behind it, as it was made.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Entries that its list has room for; 0 of a direct one, which has none.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The request that has it lead elsewhere, to be told where; of an
    /// [updatable](MkeyBuilder::updatable) one.
    pub fn configure(&self) -> ConfigureKey {
        ConfigureKey::new(self.key)
    }

    /// The request that takes it out of use; of an [updatable](MkeyBuilder::updatable) one.
    pub fn invalidate(&self) -> LocalInvalidate {
        LocalInvalidate::new(self.key)
    }

    /// The HCA's context of it (`mkc`), at
    /// [`MEMORY_KEY_MKEY_ENTRY`](mlx5_sys::ifc::query_mkey_out::MEMORY_KEY_MKEY_ENTRY) of the reply.
    /// One call into the kernel.
    ///
    /// # Errors
    /// Those of [`Object::query`].
    pub fn query(&self) -> Result<Reply> {
        let command = Command::new(opcode::QUERY_MKEY, query_mkey_in::SIZE)
            .set(query_mkey_in::MKEY_INDEX, self.key >> 8)
            .reply(query_mkey_out::SIZE);
        self.object.query(&command)
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// The object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

/// What a key leads to.
struct Leads {
    mode: u32,
    free: bool,
    address: u64,
    length: u64,
    /// Room for the translation, in units of 16 bytes: an entry of a list, or two pages.
    octwords: usize,
    /// log2 of the bytes that each page or entry stands for; 0 where each says so itself.
    log_size: u32,
}

impl<'a> MkeyBuilder<'a> {
    /// What may be done to the memory, by whom. [`RELAXED_ORDERING`](Access::RELAXED_ORDERING) is
    /// understood; rights that concern pages are not.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// The address of the first byte. Default: zero, or of a [direct](Self::direct) key where the
    /// memory is mapped in this process. With any other address, a QP that receives into the key, or
    /// reads into it, must not put payload into CQEs: [`ScatterToCqe::Never`], the default.
    ///
    /// [`ScatterToCqe::Never`]: crate::verbs::ScatterToCqe::Never
    pub fn address(mut self, address: u64) -> Self {
        self.address = Some(address);
        self
    }

    /// The low byte of the key, which is the program's to choose. Default: another one each time, so
    /// that a key that is gone is not taken for one that is new.
    pub fn variant(mut self, variant: u8) -> Self {
        self.variant = Some(variant);
        self
    }

    /// Lets a send queue change where it leads, and take it out of use, by UMR.
    pub fn updatable(mut self) -> Self {
        self.updatable = true;
        self
    }

    /// Lets the peer end what the key grants, by SEND with invalidate.
    pub fn remote_invalidate(mut self) -> Self {
        self.remote_invalidate = true;
        self
    }

    /// A key over `length` bytes of a umem from `offset` on: what a memory region is to verbs, of
    /// memory that was pinned once for any number of keys. It keeps the umem. One call into the
    /// kernel.
    ///
    /// The range must not overlap the ring or doorbell record of a queue: who can write there can
    /// forge WQEs and CQEs. As long as the key lives, no queue can be made there either.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: beyond the umem, overlapping a ring or doorbell record, with rights
    ///   that the umem was not registered with (of atomics, those of reads and writes), of another
    ///   opened device, or at an address that is not as far into a page of 4 KiB as the memory is.
    /// - Those of [`Command::create`].
    pub fn direct(self, umem: &Umem, offset: usize, length: usize) -> Result<Mkey> {
        const PAGE: u64 = 4096;
        if umem.context().as_raw() != self.pd.context().as_raw() {
            let name = umem.context().name();
            let rule = "it belongs to another opened device than the protection domain";
            return Err(Error::attribute("umem", format_args!("of {name}"), rule));
        }
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > umem.len()) {
            let rule = format!("1 byte at least, within the umem's {}", umem.len());
            let range = format!("{length} bytes at {offset:#x}");
            return Err(Error::attribute("range", range, rule));
        }
        let mut needed = self.access - (Access::REMOTE_ATOMIC | Access::RELAXED_ORDERING);
        if self.access.contains(Access::REMOTE_ATOMIC) {
            needed |= Access::REMOTE_READ | Access::REMOTE_WRITE;
        }
        if !umem.access().contains(needed) {
            let rule = format!("the umem was registered with {:?}", umem.access());
            return Err(Error::attribute("access", format_args!("{:?}", self.access), rule));
        }
        let mapped = umem.start().map(|start| start.addr().get() as u64 + offset as u64);
        let address = self.address.or(mapped).unwrap_or(offset as u64);
        if mapped.is_some_and(|mapped| (mapped ^ address) % PAGE != 0) {
            let rule = format!("it is as far into a page of {PAGE} bytes as the memory is");
            return Err(Error::attribute("address", format_args!("{address:#x}"), rule));
        }
        let length = length as u64;
        // Each page has 8 bytes of translation.
        let octwords = (address % PAGE + length).div_ceil(PAGE).div_ceil(2) as usize;
        let log_size = PAGE.ilog2();
        let leads = Leads { mode: MTT, free: false, address, length, octwords, log_size };
        let hold = umem.lend(offset, length as usize)?;
        // SAFETY: the umem stays registered as long as the key. Nobody gets references to its memory:
        // this crate gives none, and who registered memory of his own has promised so. No queue lies
        // in the range, nor will while the key holds it.
        unsafe { self.make(&leads, Some((umem, offset, hold)), []) }
    }

    /// A key that leads nowhere, with room for so many entries: a send queue
    /// [configures](Mkey::configure) it. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Attribute`] for no entries, [`Error::NoCapability`] for more than the HCA has room
    /// for, those of [`Command::create`].
    pub fn free(self, entries: u32) -> Result<Mkey> {
        let leads = self.listed(KLMS, entries as usize, 0)?;
        // SAFETY: the key leads to no memory.
        unsafe { self.updatable().make(&Leads { free: true, ..leads }, None, []) }
    }

    /// A key over pieces of memory behind other keys, one after the other (KLMs). One call into the
    /// kernel.
    ///
    /// # Errors
    /// [`Error::Attribute`] for no pieces, pieces of nothing or of 2 GiB and more, and rights that do
    /// not go together; [`Error::NoCapability`] for more pieces than the HCA has room for; those of
    /// [`Command::create`].
    ///
    /// # Safety
    /// As long as the key lives, for each piece:
    /// - The key of the piece exists, and its memory stays registered.
    /// - No Rust reference covers memory that the rights let requests of this host or peers write, and
    ///   no `&mut` covers any of the pieces' memory. Of a region that lends its memory as `&[u8]`, no
    ///   more is granted than it was registered with.
    /// - No queue has its ring or doorbell record in the memory. A direct key over a umem keeps queues
    ///   out only as long as that key itself lives.
    pub unsafe fn list(self, pieces: &[Sge]) -> Result<Mkey> {
        const LONGEST: u32 = i32::MAX as u32;
        if let Some(piece) = pieces.iter().find(|piece| !(1..=LONGEST).contains(&piece.length)) {
            let rule = format!("a piece has 1 byte at least, and {LONGEST} at most");
            return Err(Error::attribute("length of a piece", piece.length, rule));
        }
        let length = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let leads = self.listed(KLMS, pieces.len(), length)?;
        let entry =
            |piece: &Sge| [u64::from(piece.length) << 32 | u64::from(piece.lkey), piece.addr];
        // SAFETY: passed on; the contract of `make` is the same.
        unsafe { self.make(&leads, None, pieces.iter().flat_map(entry)) }
    }

    /// A key over pieces of `size` bytes each, a power of two from 4 KiB to 2 GiB, of which the first
    /// `length` bytes are behind it (KSM). The HCA finds the piece of an address without a walk
    /// through the list. One call into the kernel.
    ///
    /// # Errors
    /// As [`list`](Self::list); [`Error::Attribute`] for another size, or more bytes than there are;
    /// [`Error::NoCapability`] where the HCA has no such keys, or none of pieces so small.
    ///
    /// # Safety
    /// As long as the key lives, for each piece:
    /// - The key of the piece exists, and its memory stays registered.
    /// - No Rust reference covers memory that the rights let requests of this host or peers write, and
    ///   no `&mut` covers any of the pieces' memory. Of a region that lends its memory as `&[u8]`, no
    ///   more is granted than it was registered with.
    /// - No queue has its ring or doorbell record in the memory. A direct key over a umem keeps queues
    ///   out only as long as that key itself lives.
    pub unsafe fn equal(self, size: u64, length: u64, pieces: &[Piece]) -> Result<Mkey> {
        if !size.is_power_of_two() || !(12..=31).contains(&size.ilog2()) {
            let rule = "a power of two from 4 KiB to 2 GiB";
            return Err(Error::attribute("size of the pieces", size, rule));
        }
        let room = (pieces.len() as u64).saturating_mul(size);
        if !(1..=room).contains(&length) {
            let rule = format!("1 byte at least, and the pieces' {room} at most");
            return Err(Error::attribute("length", length, rule));
        }
        let capabilities = self.pd.context().capabilities();
        capabilities.require(Group::General, cmd_hca_cap::FIXED_BUFFER_SIZE, KEY)?;
        let log_size = size.ilog2();
        let least = capabilities
            .current(Group::General2, cmd_hca_cap_2::LOG_MIN_MKEY_ENTITY_SIZE)?
            .unwrap_or_default();
        if u64::from(log_size) < least {
            let rule = format!("this card has pieces of {} bytes at least", 1u64 << least);
            return Err(Error::attribute("size of the pieces", size, rule));
        }
        let leads = Leads { log_size, ..self.listed(KSM, pieces.len(), length)? };
        let entry = |piece: &Piece| [u64::from(piece.lkey), piece.addr];
        // SAFETY: passed on; the contract of `make` is the same.
        unsafe { self.make(&leads, None, pieces.iter().flat_map(entry)) }
    }

    /// A key over a list with room for so many entries.
    fn listed(&self, mode: u32, entries: usize, length: u64) -> Result<Leads> {
        if entries == 0 {
            return Err(Error::attribute("entries", 0, "a key has room for 1 at least"));
        }
        let octwords = entries.next_multiple_of(GROUP);
        self.pd.context().capabilities().require_at_least(
            Group::General,
            cmd_hca_cap::LOG_MAX_KLM_LIST_SIZE,
            octwords.next_power_of_two().ilog2().into(),
            "a list of so many pieces",
        )?;
        let address = self.address.unwrap_or(0);
        Ok(Leads { mode, free: false, address, length, octwords, log_size: 0 })
    }

    /// Makes a key over a range of a umem, or over `list`.
    ///
    /// # Safety
    /// As long as the key lives, the memory that it leads to stays registered. No Rust reference
    /// covers what its rights let the HCA write, and no `&mut` covers any of it. No queue has its
    /// ring or doorbell record there.
    unsafe fn make(
        self,
        leads: &Leads,
        umem: Option<(&Umem, usize, Hold)>,
        list: impl IntoIterator<Item = u64>,
    ) -> Result<Mkey> {
        let context = self.pd.context();
        let rights = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC
            | Access::RELAXED_ORDERING;
        check_region_access(self.access)?;
        if !rights.contains(self.access) {
            let rule = format!("a key made by command has no rights but {rights:?}");
            return Err(Error::attribute("access", format_args!("{:?}", self.access), rule));
        }
        if leads.address.checked_add(leads.length).is_none() {
            let rule = "the key's last address is below 2^64";
            return Err(Error::attribute("address", format_args!("{:#x}", leads.address), rule));
        }
        let variant = self.variant.unwrap_or_else(next_variant);
        let right = |right: Access| u64::from(self.access.contains(right));
        let mut words: Vec<u64> = list.into_iter().collect();
        let given = if leads.free { 0 } else { leads.octwords };
        if umem.is_none() {
            // Entries of nothing fill it up.
            words.resize(given * 2, 0);
        }
        let fields: [(Field, u64); 18] = [
            (mkc::ACCESS_MODE_1_0, leads.mode.into()),
            (mkc::FREE, leads.free.into()),
            (mkc::UMR_EN, self.updatable.into()),
            (mkc::EN_RINVAL, self.remote_invalidate.into()),
            (mkc::LR, 1),
            (mkc::LW, right(Access::LOCAL_WRITE)),
            (mkc::RR, right(Access::REMOTE_READ)),
            (mkc::RW, right(Access::REMOTE_WRITE)),
            (mkc::A, right(Access::REMOTE_ATOMIC)),
            (mkc::RELAXED_ORDERING_WRITE, right(Access::RELAXED_ORDERING)),
            (mkc::RELAXED_ORDERING_READ, right(Access::RELAXED_ORDERING)),
            (mkc::QPN, ANY_QP.into()),
            (mkc::MKEY_7_0, variant.into()),
            (mkc::PD, self.pd.number()?.into()),
            (mkc::START_ADDR, leads.address),
            (mkc::LEN, leads.length),
            (mkc::TRANSLATIONS_OCTWORD_SIZE, leads.octwords as u64),
            (mkc::LOG_PAGE_SIZE, leads.log_size.into()),
        ];
        let mut command = Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE)
            .fields(
                create_mkey_in::MEMORY_KEY_MKEY_ENTRY,
                fields.into_iter().filter(|(_, value)| *value != 0),
            )
            .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, given as u64)
            .tail(words);
        let entries = if umem.is_some() { 0 } else { leads.octwords as u32 };
        if let Some((umem, offset, _)) = &umem {
            command = command
                .set(create_mkey_in::MKEY_UMEM_VALID, true)
                .set(create_mkey_in::MKEY_UMEM_ID, umem.number())
                .set(create_mkey_in::MKEY_UMEM_OFFSET, *offset as u64);
        }
        // SAFETY: the object keeps its domain and the range of a umem that it leads to. The rest is
        // what the caller guarantees.
        let mut object = unsafe { command.create(context)? };
        object.keep(self.pd.keep());
        if let Some((.., hold)) = umem {
            object.keep(hold);
        }
        let index = object.reply().get(create_mkey_out::MKEY_INDEX) as u32;
        Ok(Mkey {
            object,
            key: index << 8 | u32::from(variant),
            address: leads.address,
            length: leads.length,
            entries,
        })
    }
}

/// The low byte of the next key.
fn next_variant() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Mkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mkey")
            .field("key", &format_args!("{:#x}", self.key))
            .field("address", &format_args!("{:#x}", self.address))
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MkeyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MkeyBuilder")
            .field("access", &self.access)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
