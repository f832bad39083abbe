//! Memory regions.

use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_sys::ifc::{
    create_mkey_in, create_mkey_out, destroy_mkey_in, destroy_mkey_out, mkc, opcode,
};

use super::super::driver::command::Command;
use super::super::driver::umem::{PAGE, Umem};
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{RegMr, RegMrReply, ReregMr, ReregMrReply};
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::dm::Dm;
use super::dmabuf::DmaBuf;
use super::file::{CommandFile, Object, Turn};
use super::keys::Kind;
use super::pd::Pd;

/// A memory region.
pub(crate) struct Mr {
    /// Handle of its protection domain.
    pub pd: u32,
    key: u32,
    start: u64,
    length: u64,
    iova: u64,
    access: u32,
    /// Handle of its device memory, if it has one.
    pub dm: Option<u32>,
    /// User context that owns its key.
    uid: u16,
    held: Held,
}

/// The reason why a region's memory stays in place.
enum Held {
    /// The memory is pinned.
    Pinned(Umem),
    /// ODP: it does not stay. The device accesses what the process has there at the moment.
    OnDemand,
    /// The memory is behind a descriptor.
    DmaBuf { _memory: DmaBuf },
    /// The memory is the device's own.
    Device,
}

/// `ib_uverbs_access_flags`.
pub(crate) mod access {
    pub const LOCAL_WRITE: u32 = 1 << 0;
    pub const REMOTE_WRITE: u32 = 1 << 1;
    pub const REMOTE_READ: u32 = 1 << 2;
    pub const REMOTE_ATOMIC: u32 = 1 << 3;
    pub const MW_BIND: u32 = 1 << 4;
    pub const ZERO_BASED: u32 = 1 << 5;
    pub const ON_DEMAND: u32 = 1 << 6;
    pub const RELAXED_ORDERING: u32 = 1 << 20;
    /// Flags that a device knows, and flags that it may ignore.
    pub const KNOWN: u32 = 0xff | 0x3ff << 20;
}

/// Most entries of a page list before larger pages are used.
const ENTRIES: u64 = 1 << 16;

/// The parameters of a new region.
#[derive(Clone, Copy)]
struct Asked {
    pd: u32,
    pdn: u32,
    start: u64,
    length: u64,
    iova: u64,
    access: u32,
    /// The key to use; `None` for a new one.
    key: Option<u32>,
}

impl Asked {
    /// Whether it is an implicit ODP region, over all of the process's memory.
    fn is_implicit(&self) -> bool {
        self.start == 0 && self.length == u64::MAX && self.access & access::ON_DEMAND != 0
    }

    /// Which keys of the cache it may get. `None` for ODP, which gets new keys.
    fn kind(&self) -> Option<Kind> {
        if self.access & access::ON_DEMAND != 0 {
            return None;
        }
        let pages = self.length.checked_add(self.start % PAGE)?.div_ceil(PAGE);
        let relaxed = self.access & access::RELAXED_ORDERING != 0;
        Some(Kind { pages: pages.checked_next_power_of_two()?, relaxed })
    }
}

/// `REG_MR`.
pub(crate) fn register(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: RegMr = user::whole(&request.core)?;
    if asked.start % PAGE != asked.hca_va % PAGE {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_reg_mr_iova refused: address {:#x} and iova {:#x} differ in their place in a page",
            asked.start, asked.hca_va
        )));
    }
    check(asked.access_flags)?;
    let mut state = file.state();
    let uid = state.context()?.uid;
    let mut asked = Asked {
        pd: asked.pd_handle,
        pdn: state.get::<Pd>(asked.pd_handle)?.number,
        start: asked.start,
        length: asked.length,
        iova: asked.hca_va,
        access: asked.access_flags,
        key: None,
    };
    asked.key = asked.kind().and_then(|kind| state.keys.take(kind));
    let mut mr = create(file, uid, asked);
    if mr.is_err() && asked.key.is_some() {
        // Another object may have got the number meanwhile.
        mr = create(file, uid, Asked { key: None, ..asked });
    }
    let mr = mr?;
    let key = mr.key;
    let mr_handle = state.enter(mr);
    request.reply(&user::bytes(&RegMrReply { mr_handle, lkey: key, rkey: key }))
}

/// Checks the access rights: all must be known, and remote writes and atomics need local write
/// access.
fn check(flags: u32) -> Result<()> {
    let remote = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    let unknown = flags & !access::KNOWN;
    if unknown != 0 {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_reg_mr refused: access has bits that are no rights of a region, {unknown:#x}"
        )));
    }
    if remote && flags & access::LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_reg_mr refused: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE in access as well"
        )));
    }
    Ok(())
}

/// Returns the low byte of a new key.
pub(super) fn variant() -> u8 {
    static VARIANT: AtomicU8 = AtomicU8::new(0);
    VARIANT.fetch_add(1, Ordering::Relaxed)
}

fn create(file: &CommandFile, uid: u16, asked: Asked) -> Result<Mr> {
    let writing =
        access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_ATOMIC | access::MW_BIND;
    let held = if asked.access & access::ON_DEMAND != 0 {
        Held::OnDemand
    } else {
        let writable = asked.access & writing != 0;
        Held::Pinned(Umem::pin(&file.running.pinned, asked.start, asked.length, writable)?)
    };
    if asked.is_implicit() {
        return whole(file, asked);
    }
    build(file, uid, asked, held)
}

/// Creates a region over all of the process's memory: bus addresses are its addresses. Only the
/// driver itself may create such a key.
fn whole(file: &CommandFile, asked: Asked) -> Result<Mr> {
    let (mut command, variant) = mkey(&asked, 0);
    let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
        command.set(field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value);
    };
    // MLX5_MKC_ACCESS_MODE_PA
    context(mkc::ACCESS_MODE_1_0, 0);
    context(mkc::LENGTH64, 1);
    finish(file, 0, asked, (command, variant), Held::OnDemand)
}

/// Creates a region over device memory. Its addresses start at zero.
fn over_device(file: &CommandFile, uid: u16, asked: Asked) -> Result<Mr> {
    let (mut command, variant) = mkey(&asked, uid);
    let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
        command.set(field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value);
    };
    // MLX5_MKC_ACCESS_MODE_MEMIC is 5.
    context(mkc::ACCESS_MODE_1_0, 1);
    context(mkc::ACCESS_MODE_4_2, 1);
    context(mkc::START_ADDR, asked.start);
    context(mkc::LEN, asked.length);
    finish(file, uid, asked, (command, variant), Held::Device)
}

/// Creates the region over memory behind a descriptor, which it keeps.
pub(super) fn over_dmabuf(
    file: &CommandFile,
    (memory, start): (DmaBuf, u64),
    (pd, pdn, uid): (u32, u32, u16),
    (length, iova): (u64, u64),
    access: u32,
) -> Result<Mr> {
    check(access)?;
    if access & access::ON_DEMAND != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let asked = Asked { pd, pdn, start, length, iova, access, key: None };
    build(file, uid, asked, Held::DmaBuf { _memory: memory })
}

/// Creates a region over pages at addresses of the process.
fn build(file: &CommandFile, uid: u16, asked: Asked, held: Held) -> Result<Mr> {
    /// Readable and writable, in an entry of a translation table.
    const PRESENT: u64 = 3;

    let end = asked.start.checked_add(asked.length).ok_or(Errno::EINVAL)?;
    if asked.length == 0 {
        return Err(Errno::EINVAL);
    }
    // Addresses of a process are contiguous, so pages may be as large as start and first address
    // agree; they are no larger than the list needs.
    let mut shift = PAGE.ilog2();
    let count = |shift: u32| ((end - 1) >> shift) - (asked.start >> shift) + 1;
    while count(shift) > ENTRIES && shift < 31 && (asked.start ^ asked.iova) >> shift & 1 == 0 {
        shift += 1;
    }
    let entries = count(shift);
    // An ODP region may have any length, but a page list may not.
    if entries > 1 << 22 {
        return Err(Errno::ENOMEM);
    }
    let octowords = entries.div_ceil(2);

    let (mut command, variant) = mkey(&asked, uid);
    command.set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, octowords);
    let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
        command.set(field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value);
    };
    // MLX5_MKC_ACCESS_MODE_MTT
    context(mkc::ACCESS_MODE_1_0, 1);
    context(mkc::START_ADDR, asked.iova);
    context(mkc::LEN, asked.length);
    context(mkc::TRANSLATIONS_OCTWORD_SIZE, octowords);
    context(mkc::LOG_PAGE_SIZE, u64::from(shift));
    let first = asked.start >> shift;
    let bus = |address: u64| match &held {
        Held::Pinned(umem) => umem.bus(address),
        Held::OnDemand | Held::DmaBuf { .. } | Held::Device => address,
    };
    command.pages((0..entries).map(|page| bus((first + page) << shift) | PRESENT));
    command.pages(std::iter::repeat_n(0, (octowords * 2 - entries) as usize));
    finish(file, uid, asked, (command, variant), held)
}

/// Builds the command that creates a region's key, without the memory and the key's low byte.
fn mkey(asked: &Asked, uid: u16) -> (Command, u8) {
    let variant = asked.key.map_or_else(variant, |key| key as u8);
    let mut command =
        Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE, create_mkey_out::SIZE);
    command.set(create_mkey_in::UID, uid);
    command.set(create_mkey_in::INPUT_MKEY_INDEX, asked.key.unwrap_or(0) >> 8);
    command.set(create_mkey_in::PG_ACCESS, 0u32);
    let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
        command.set(field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value);
    };
    let has = |flag: u32| u64::from(asked.access & flag != 0);
    context(mkc::A, has(access::REMOTE_ATOMIC));
    context(mkc::RW, has(access::REMOTE_WRITE));
    context(mkc::RR, has(access::REMOTE_READ));
    context(mkc::LW, has(access::LOCAL_WRITE));
    context(mkc::LR, 1);
    context(mkc::RELAXED_ORDERING_WRITE, has(access::RELAXED_ORDERING));
    context(mkc::RELAXED_ORDERING_READ, has(access::RELAXED_ORDERING));
    context(mkc::UMR_EN, 1);
    context(mkc::QPN, 0xff_ffff);
    context(mkc::MKEY_7_0, u64::from(variant));
    context(mkc::PD, u64::from(asked.pdn));
    (command, variant)
}

fn finish(
    file: &CommandFile,
    uid: u16,
    asked: Asked,
    (command, variant): (Command, u8),
    held: Held,
) -> Result<Mr> {
    let reply = file.function().run(command)?;
    let index = create_mkey_out::MKEY_INDEX.get(&reply) as u32;
    Ok(Mr {
        pd: asked.pd,
        key: index << 8 | u32::from(variant),
        start: asked.start,
        length: asked.length,
        iova: asked.iova,
        access: asked.access,
        dm: None,
        uid,
        held,
    })
}

/// `REREG_MR`: the region is made anew. Rights and protection domain change under the same key, as
/// with the UMR request that the kernel posts; another place in memory gives another key.
pub(crate) fn reregister(file: &CommandFile, request: &Request) -> Result<()> {
    const TRANSLATION: u32 = 1;
    const DOMAIN: u32 = 2;
    const ACCESS: u32 = 4;
    let asked: ReregMr = user::whole(&request.core)?;
    if asked.flags == 0 || asked.flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_rereg_mr refused: flags is {:#x}, and IBV_REREG_MR_CHANGE_* are 1 to 7",
            asked.flags
        )));
    }
    if asked.flags & TRANSLATION != 0 && asked.start % PAGE != asked.hca_va % PAGE {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_rereg_mr refused: address {:#x} and iova {:#x} differ in their place in a page",
            asked.start, asked.hca_va
        )));
    }
    if asked.flags & ACCESS != 0 {
        check(asked.access_flags)?;
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let old = state.get::<Mr>(asked.mr_handle)?;
    // Only a region over the process's memory by address can be registered again.
    if !matches!(old.held, Held::Pinned(_) | Held::OnDemand) {
        return Err(Errno::EOPNOTSUPP.because(format_args!(
            "ibv_rereg_mr refused: only regions of memory by address are registered again"
        )));
    }
    let before = Asked {
        pd: old.pd,
        pdn: state.get::<Pd>(old.pd)?.number,
        start: old.start,
        length: old.length,
        iova: old.iova,
        access: old.access,
        key: Some(old.key),
    };
    let mut after = before;
    if asked.flags & DOMAIN != 0 {
        after.pd = asked.pd_handle;
        after.pdn = state.get::<Pd>(asked.pd_handle)?.number;
    }
    if asked.flags & ACCESS != 0 {
        after.access = asked.access_flags;
    }
    let mr = state.get_mut::<Mr>(asked.mr_handle)?;
    if asked.flags & TRANSLATION != 0 {
        (after.start, after.length, after.iova) = (asked.start, asked.length, asked.hca_va);
        after.key = None;
        let new = create(file, uid, after)?;
        if let Err(error) = mr.destroy(file, uid) {
            new.destroy(file, uid)?;
            return Err(error);
        }
        *mr = new;
    } else {
        mr.destroy(file, uid)?;
        match create(file, uid, after) {
            Ok(new) => *mr = new,
            Err(error) => {
                *mr = create(file, uid, before)?;
                return Err(error);
            }
        }
    }
    let (lkey, rkey) = (mr.key, mr.key);
    state.use_instead(before.pd, after.pd);
    request.reply(&user::bytes(&ReregMrReply { lkey, rkey }))
}

/// `DM_MR_REG`.
pub(crate) fn register_device(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    const ALLOWED: u32 = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::ZERO_BASED;
    let (offset, length) = (attributes.number(1)?, attributes.number(2)?);
    let (pd, dm) = (attributes.handle(3)?, attributes.handle(5)?);
    let access = attributes.number(4)? as u32;
    check(access)?;
    // Optional attributes may be missing.
    if access & !(ALLOWED | 0x3ff << 20) != 0 || access & access::ZERO_BASED == 0 {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let pdn = state.get::<Pd>(pd)?.number;
    let memory = state.get::<Dm>(dm)?;
    if offset > memory.length || length > memory.length - offset {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_reg_dm_mr refused: {length} bytes from {offset} on, and the device memory has {}",
            memory.length
        )));
    }
    let start = memory.start + offset;
    let asked = Asked { pd, pdn, start, length, iova: 0, access, key: None };
    let mr = Mr { dm: Some(dm), ..over_device(file, uid, asked)? };
    let key = mr.key;
    attributes.put(6, &key.to_ne_bytes())?;
    attributes.put(7, &key.to_ne_bytes())?;
    let handle = state.enter(mr);
    attributes.put_handle(0, u64::from(handle))
}

/// An ODP region behind a local key.
pub(crate) struct OnDemand {
    /// Its addresses.
    pub reach: std::ops::RangeInclusive<u64>,
    /// Whether the device may write there.
    pub writable: bool,
}

impl Mr {
    /// Returns the ODP region behind a local key of the protection domain.
    pub fn on_demand(&self, pd: u32, key: u32) -> Option<OnDemand> {
        let asked = self.pd == pd && self.key == key && self.access & access::ON_DEMAND != 0;
        asked.then(|| OnDemand {
            reach: self.start..=self.start.saturating_add(self.length - 1),
            writable: self.access & access::LOCAL_WRITE != 0,
        })
    }

    /// Returns its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns its key.
    pub fn key(&self) -> u32 {
        self.key
    }
}

impl Mr {
    /// Returns which regions may get its key after it. Only keys over pinned memory of the process
    /// come from the cache.
    fn kind(&self) -> Option<Kind> {
        let Self { pd, start, length, iova, access, .. } = *self;
        match self.held {
            Held::Pinned(_) => Asked { pd, pdn: 0, start, length, iova, access, key: None }.kind(),
            Held::OnDemand | Held::DmaBuf { .. } | Held::Device => None,
        }
    }
}

/// `MR_DESTROY`.
pub(crate) fn deregister(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    remove(file, attributes.handle(0)?)
}

/// `DEREG_MR`, legacy.
pub(crate) fn deregister_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    remove(file, request.word(0)?)
}

fn remove(file: &CommandFile, handle: u32) -> Result<()> {
    let mut state = file.state();
    let mr = state.get::<Mr>(handle)?;
    let cached = mr.kind().map(|kind| (kind, mr.key));
    state.remove::<Mr>(handle, file, 0)?;
    if let Some((kind, key)) = cached {
        state.keys.add(kind, key);
    }
    Ok(())
}

/// `QUERY_MR`.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let state = file.state();
    let mr = state.get::<Mr>(attributes.handle(0)?)?;
    attributes.put(1, &mr.key.to_ne_bytes())?;
    attributes.put(2, &mr.key.to_ne_bytes())?;
    attributes.put(3, &mr.length.to_ne_bytes())?;
    attributes.put(4, &mr.iova.to_ne_bytes())
}

impl Object for Mr {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        [Some(self.pd), self.dm].into_iter().flatten().for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        let mut command =
            Command::new(opcode::DESTROY_MKEY, destroy_mkey_in::SIZE, destroy_mkey_out::SIZE);
        command.set(destroy_mkey_in::UID, self.uid);
        command.set(destroy_mkey_in::MKEY_INDEX, self.key >> 8);
        file.function().run(command).map(|_| Vec::new())
    }
}
