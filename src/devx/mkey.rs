//! Memory keys made by command.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, cmd_hca_cap_2, create_mkey_in, create_mkey_out, mkc, opcode, query_mkey_in,
    query_mkey_out,
};

use super::domain::Domain;
use super::umem::Hold;
use super::{Command, Object, Reply, Umem};
use crate::error::{Error, Result};
use crate::ib::Access;
use crate::ib::capability::Group;
use crate::verbs::{Context, check_region_access};
use crate::wqe::{ConfigureKey, LocalInvalidate, Sge};

/// Access modes (`mlx5_ifc.h`, `MLX5_MKC_ACCESS_MODE_*`).
const MTT: u32 = 1;
const KLMS: u32 = 2;
const KSM: u32 = 3;
/// Any queue pair.
const ANY_QP: u32 = 0x00ff_ffff;
/// The list of a key has a multiple of four entries.
const GROUP: usize = 4;
/// The name of the object in errors.
const KEY: &str = "memory key";

/// A memory key made by command (`CREATE_MKEY`).
///
/// It gives access to one of these: memory of a [`Umem`] [itself](DevxMkeyBuilder::direct), a
/// [list](DevxMkeyBuilder::list) of pieces of memory behind other keys, a list of [pieces of equal
/// size](DevxMkeyBuilder::equal), or [nothing yet](DevxMkeyBuilder::free). Use it like any other
/// key: in WQEs as [`lkey`](Self::lkey), at the peer as [`rkey`](Self::rkey).
///
/// Dropping it frees it. Requests that use it fail from then on.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::DevxMkey;
/// use mlx5::ib::Access;
///
/// let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
/// let pieces = [memory.sge(0, 64)?, memory.sge(1024, 64)?];
/// // Two pieces become 128 bytes, from address 0 on, which the peer may read.
/// let builder = DevxMkey::builder(&pd).access(Access::REMOTE_READ).address(0);
/// // SAFETY: the memory stays registered as long as the key, and no code writes it.
/// let key = unsafe { builder.list(&pieces)? };
/// assert_eq!((key.address(), key.length()), (0, 128));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5_CMD_OP_CREATE_MKEY", "MLX5_CMD_OP_DESTROY_MKEY"))]
pub struct DevxMkey {
    object: Object,
    key: u32,
    address: u64,
    length: u64,
    entries: u32,
}

/// Builder for [`DevxMkey`], see [`DevxMkey::builder`].
///
/// See the examples on [`DevxMkey`] and [`Klm`].
#[derive(Clone)]
#[must_use = "nothing is made before it is said what the key leads to"]
pub struct DevxMkeyBuilder<'a> {
    pd: &'a dyn Domain,
    access: Access,
    address: Option<u64>,
    variant: Option<u8>,
    updatable: bool,
    remote_invalidate: bool,
}

/// A piece of memory in a list of pieces of equal size (KSM entry).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::{DevxMkey, Klm};
/// use mlx5::ib::Access;
///
/// let memory = pd.allocate(4 << 12, Access::LOCAL_WRITE)?;
/// let page = |page: u64| Klm { addr: memory.address() + (page << 12), lkey: memory.lkey() };
/// // Pages 3 and 1 of the memory, one behind the other.
/// let builder = DevxMkey::builder(&pd).access(Access::LOCAL_WRITE).address(0);
/// // SAFETY: the memory stays registered as long as the key, and no reference covers it.
/// let key = unsafe { builder.equal(1 << 12, 2 << 12, &[page(3), page(1)])? };
/// assert_eq!(key.length(), 2 << 12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5_wqe_umr_klm_seg")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Klm {
    /// Virtual address of its first byte behind the key.
    pub addr: u64,
    /// The key of the memory: of a region, or of a key over other keys.
    pub lkey: u32,
}

impl DevxMkey {
    /// Creates a builder for a key in `pd` that only grants local reads.
    pub fn builder(pd: &dyn Domain) -> DevxMkeyBuilder<'_> {
        DevxMkeyBuilder {
            pd,
            access: Access::empty(),
            address: None,
            variant: None,
            updatable: false,
            remote_invalidate: false,
        }
    }

    /// Returns the key, for this host's work requests.
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// Returns the key for requests of the peer, which is the `lkey`. The peer needs rights to use
    /// it.
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Returns the address of the first byte behind it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes behind it, as it was made.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of entries in its list; 0 for a direct key, which has no list.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns a builder for the UMR WQE that changes what an
    /// [updatable](DevxMkeyBuilder::updatable) key gives access to.
    pub fn configure(&self) -> ConfigureKey {
        ConfigureKey::new(self.key)
    }

    /// Returns the request that invalidates an [updatable](DevxMkeyBuilder::updatable) key.
    pub fn invalidate(&self) -> LocalInvalidate {
        LocalInvalidate::new(self.key)
    }

    /// Returns the reply of QUERY_MKEY, with the HCA's context of the key (`mkc`) at
    /// [`MEMORY_KEY_MKEY_ENTRY`](mlx5_sys::ifc::query_mkey_out::MEMORY_KEY_MKEY_ENTRY). One call
    /// into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn query(&self) -> Result<Reply> {
        let command = Command::new(opcode::QUERY_MKEY, query_mkey_in::SIZE)
            .set(query_mkey_in::MKEY_INDEX, self.key >> 8)
            .reply(query_mkey_out::SIZE);
        self.object.query(&command)
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

/// The translation of a key.
struct Leads {
    mode: u32,
    free: bool,
    address: u64,
    length: u64,
    /// The size of the translation in units of 16 bytes: one list entry, or two pages.
    octwords: usize,
    /// log2 of the bytes that each page or entry covers; 0 where each entry has its own length.
    log_size: u32,
}

impl<'a> DevxMkeyBuilder<'a> {
    /// Sets the access rights of this host and of peers.
    /// [`RELAXED_ORDERING`](Access::RELAXED_ORDERING) is supported. Rights that concern pages are
    /// not.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the address of the first byte. Default: zero, or for a [direct](Self::direct) key the
    /// address at which this process maps the memory. With any other address, a QP that receives
    /// into the key, or reads into it, must not put payload into CQEs: [`ScatterToCqe::Never`], the
    /// default.
    ///
    /// [`ScatterToCqe::Never`]: crate::verbs::attr::ScatterToCqe::Never
    pub fn address(mut self, address: u64) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets the low byte of the key, which the program may choose. Default: another one each time,
    /// so that a freed key is not mistaken for a new one.
    pub fn variant(mut self, variant: u8) -> Self {
        self.variant = Some(variant);
        self
    }

    /// Lets a send queue change and invalidate the key by UMR.
    pub fn updatable(mut self) -> Self {
        self.updatable = true;
        self
    }

    /// Lets the peer invalidate the key by SEND with invalidate.
    pub fn remote_invalidate(mut self) -> Self {
        self.remote_invalidate = true;
        self
    }

    /// Makes a key over `length` bytes of a umem from `offset` on. It is like a verbs memory
    /// region, but the memory was pinned once for any number of keys. The key keeps the umem. One
    /// call into the kernel.
    ///
    /// The range must not overlap the ring or doorbell record of a queue: a writer there could
    /// forge WQEs and CQEs. As long as the key exists, no queue can be made there either.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: the range ends beyond the umem or overlaps a ring or doorbell
    ///   record.
    /// - [`Error::Attribute`]: the umem lacks some of the rights (atomics need reads and writes),
    ///   or belongs to another opened device.
    /// - [`Error::Attribute`]: the address and the memory have different offsets in their 4 KiB
    ///   pages.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    pub fn direct(self, umem: &Umem, offset: usize, length: usize) -> Result<DevxMkey> {
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
        // SAFETY: the umem stays registered as long as the key. No Rust references to its memory
        // exist: this crate gives out none, and `UmemBuilder::memory` requires that of its caller.
        // No queue lies in the range, and none can be made there while the key holds it.
        unsafe { self.make(&leads, Some((umem, offset, hold)), []) }
    }

    /// Makes a key that gives access to nothing, with `entries` list entries. A send queue
    /// [configures](DevxMkey::configure) it. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for no entries, [`Error::NoCapability`] for more than the HCA allows.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    pub fn free(self, entries: u32) -> Result<DevxMkey> {
        let leads = self.listed(KLMS, entries as usize, 0)?;
        // SAFETY: the key leads to no memory.
        unsafe { self.updatable().make(&Leads { free: true, ..leads }, None, []) }
    }

    /// Makes a key over consecutive pieces of memory behind other keys (KLMs). One call into the
    /// kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for no pieces, empty pieces, pieces of 2 GiB and more, or rights that
    ///   do not go together.
    /// - [`Error::NoCapability`] for more pieces than the HCA allows.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    ///
    /// # Safety
    /// As long as the key lives, for each piece:
    /// - The key of the piece exists, and its memory stays registered.
    /// - No Rust reference covers memory that the rights let requests of this host or peers write,
    ///   and no `&mut` covers any of the pieces' memory. If a region lends its memory as `&[u8]`,
    ///   the key grants no more than the region was registered with.
    /// - No queue has its ring or doorbell record in the memory. A direct key over a umem keeps
    ///   queues out only as long as that key itself lives.
    pub unsafe fn list(self, pieces: &[Sge]) -> Result<DevxMkey> {
        const LONGEST: u32 = i32::MAX as u32;
        if let Some(piece) = pieces.iter().find(|piece| !(1..=LONGEST).contains(&piece.length)) {
            let rule = format!("a piece has 1 byte at least, and {LONGEST} at most");
            return Err(Error::attribute("length of a piece", piece.length, rule));
        }
        let length = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        let leads = self.listed(KLMS, pieces.len(), length)?;
        let entry =
            |piece: &Sge| [u64::from(piece.length) << 32 | u64::from(piece.lkey), piece.addr];
        // SAFETY: the caller upholds the contract of `make`, which is that of this function.
        unsafe { self.make(&leads, None, pieces.iter().flat_map(entry)) }
    }

    /// Makes a key over pieces of `size` bytes each (KSM), of which the first `length` bytes are
    /// accessible. `size` is a power of two from 4 KiB to 2 GiB. The HCA finds the piece of an
    /// address without walking through the list. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for no pieces, another size, more bytes than the pieces have, or
    ///   rights that do not go together.
    /// - [`Error::NoCapability`] if the HCA has no such keys, no pieces so small, or fewer entries.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    ///
    /// # Safety
    /// As long as the key lives, for each piece:
    /// - The key of the piece exists, and its memory stays registered.
    /// - No Rust reference covers memory that the rights let requests of this host or peers write,
    ///   and no `&mut` covers any of the pieces' memory. If a region lends its memory as `&[u8]`,
    ///   the key grants no more than the region was registered with.
    /// - No queue has its ring or doorbell record in the memory. A direct key over a umem keeps
    ///   queues out only as long as that key itself lives.
    pub unsafe fn equal(self, size: u64, length: u64, pieces: &[Klm]) -> Result<DevxMkey> {
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
            let rule = format!("this HCA has pieces of {} bytes at least", 1u64 << least);
            return Err(Error::attribute("size of the pieces", size, rule));
        }
        let leads = Leads { log_size, ..self.listed(KSM, pieces.len(), length)? };
        let entry = |piece: &Klm| [u64::from(piece.lkey), piece.addr];
        // SAFETY: the caller upholds the contract of `make`, which is that of this function.
        unsafe { self.make(&leads, None, pieces.iter().flat_map(entry)) }
    }

    /// Returns the translation of a key over a list of `entries` entries.
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
    ) -> Result<DevxMkey> {
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
            // Null entries fill the list up.
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
        // SAFETY: the object keeps the key's domain and its range of a umem. The caller guarantees
        // the rest.
        let mut object = unsafe { command.create(context)? };
        object.keep(self.pd.keep());
        if let Some((.., hold)) = umem {
            object.keep(hold);
        }
        let index = object.reply().get(create_mkey_out::MKEY_INDEX) as u32;
        Ok(DevxMkey {
            object,
            key: index << 8 | u32::from(variant),
            address: leads.address,
            length: leads.length,
            entries,
        })
    }
}

/// Returns the low byte of the next key.
fn next_variant() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for DevxMkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxMkey")
            .field("key", &format_args!("{:#x}", self.key))
            .field("address", &format_args!("{:#x}", self.address))
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DevxMkeyBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevxMkeyBuilder")
            .field("access", &self.access)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
