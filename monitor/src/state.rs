//! What a process knows of its own queue pairs, beside their cells.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use mlx5_sys::verbs::{ibv_cq_ex, ibv_qp};

use crate::board::{self, View};
use crate::cell::{Cell, Slot};
use crate::table::Table;

/// Functions of an extended queue pair that are replaced.
pub(crate) const FUNCTIONS: usize = 17;

/// A queue pair of this process. It is never freed, and serves another queue pair later.
pub(crate) struct Local {
    pub(crate) cell: AtomicPtr<Cell>,
    /// The request that an extended queue pair is building.
    pub(crate) current: AtomicPtr<Slot>,
    /// The functions that were replaced, of an extended queue pair.
    pub(crate) real: [AtomicPtr<c_void>; FUNCTIONS],
    /// The queue pair; null if there is none at the moment.
    pub(crate) qp: AtomicPtr<ibv_qp>,
    /// Its number.
    pub(crate) number: AtomicU32,
    /// The number of its context.
    pub(crate) context: AtomicUsize,
    /// The number of its cell.
    pub(crate) index: AtomicUsize,
    next: AtomicPtr<Local>,
}

/// An extended CQ of this process, whose functions are replaced. Never freed.
pub(crate) struct LocalCq {
    pub(crate) start_poll: AtomicPtr<c_void>,
    pub(crate) next_poll: AtomicPtr<c_void>,
    /// The only queue pair that completes on it; null if there are several.
    pub(crate) only: AtomicPtr<Cell>,
    /// 1 if receive queues complete on it too.
    pub(crate) has_receives: AtomicU32,
    /// The number of its context.
    pub(crate) context: AtomicUsize,
    cq: AtomicPtr<ibv_cq_ex>,
    next: AtomicPtr<LocalCq>,
}

static QUEUES: AtomicPtr<Table<Local>> = AtomicPtr::new(ptr::null_mut());
static CQS: AtomicPtr<Table<LocalCq>> = AtomicPtr::new(ptr::null_mut());
static LOCALS: AtomicPtr<Local> = AtomicPtr::new(ptr::null_mut());
static LOCAL_CQS: AtomicPtr<LocalCq> = AtomicPtr::new(ptr::null_mut());
static VIEW: AtomicPtr<View> = AtomicPtr::new(ptr::null_mut());

/// Returns queue pairs by their addresses. Only functions that were put in place of libmlx5's call it.
#[inline(always)]
pub(crate) fn queues() -> &'static Table<Local> {
    // SAFETY: `attach` sets the pointer, for ever, before functions are replaced.
    unsafe { &*QUEUES.load(Ordering::Relaxed) }
}

/// Returns extended CQs by their addresses. Only functions that were put in place of libmlx5's call it.
#[inline(always)]
pub(crate) fn cqs() -> &'static Table<LocalCq> {
    // SAFETY: `attach` sets the pointer, for ever, before functions are replaced.
    unsafe { &*CQS.load(Ordering::Relaxed) }
}

/// Returns the key and the place of an address.
#[inline(always)]
pub(crate) fn by_address<T>(object: *const T) -> (u64, usize) {
    let address = object.addr() as u64;
    (address, ((address >> 6) & 0xffff) as usize)
}

/// Returns a queue pair by its address.
#[inline(never)]
pub(crate) fn local(qp: *const ibv_qp) -> Option<&'static Local> {
    let (key, place) = by_address(qp);
    // SAFETY: values of the table are never freed.
    unsafe { queues().find(key, place).as_ref() }
}

/// Returns a queue pair that was made before a fork.
#[cold]
pub(crate) fn inherited(qp: *const ibv_qp) -> Option<&'static Local> {
    all(&LOCALS, |local| &local.next)
        .find(|local| local.qp.load(Ordering::Relaxed).cast_const() == qp)
}

/// Returns an extended CQ that was made before a fork.
#[cold]
pub(crate) fn inherited_cq(cq: *const ibv_cq_ex) -> Option<&'static LocalCq> {
    all(&LOCAL_CQS, |local| &local.next)
        .find(|local| local.cq.load(Ordering::Relaxed).cast_const() == cq)
}

fn all<T: 'static>(
    first: &AtomicPtr<T>,
    next: impl Fn(&T) -> &AtomicPtr<T>,
) -> impl Iterator<Item = &'static T> {
    // SAFETY: the items of the list are never freed.
    let first = unsafe { first.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, move |item| unsafe { next(item).load(Ordering::Acquire).as_ref() })
}

fn push<T>(first: &AtomicPtr<T>, item: T, next: impl Fn(&T) -> &AtomicPtr<T>) -> &'static T {
    let item = Box::leak(Box::new(item));
    next(item).store(first.load(Ordering::Relaxed), Ordering::Relaxed);
    first.store(item, Ordering::Release);
    item
}

const fn null<T>() -> AtomicPtr<T> {
    AtomicPtr::new(ptr::null_mut())
}

/// Changes what the process knows. One thread does at a time.
pub(crate) struct Control {
    pub(crate) view: &'static View,
}

/// The process whose thread holds the lock; 0 if none does.
static HOLDER: AtomicI32 = AtomicI32::new(0);

impl Control {
    /// Waits for the other threads. `None` if the process does not report to a command.
    pub(crate) fn take() -> Option<Control> {
        // SAFETY: the call has no preconditions.
        let process = unsafe { libc::getpid() };
        loop {
            let holder = HOLDER.load(Ordering::Relaxed);
            // A holder that is not this process held it when this one was forked, and is not here.
            if holder != process
                && HOLDER
                    .compare_exchange(holder, process, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                break;
            }
            std::thread::yield_now();
        }
        let view = attach();
        if view.is_none() {
            HOLDER.store(0, Ordering::Release);
        }
        view.map(|view| Control { view })
    }

    /// Returns a queue pair that none is using.
    pub(crate) fn unused(&self) -> &'static Local {
        let free = all(&LOCALS, |local| &local.next)
            .find(|local| local.qp.load(Ordering::Relaxed).is_null());
        free.unwrap_or_else(|| {
            let local = Local {
                cell: null(),
                current: null(),
                real: [const { null() }; FUNCTIONS],
                qp: null(),
                number: AtomicU32::new(0),
                context: AtomicUsize::new(0),
                index: AtomicUsize::new(0),
                next: null(),
            };
            push(&LOCALS, local, |local| &local.next)
        })
    }

    /// Returns the notes of an extended CQ, new ones if there are none.
    pub(crate) fn cq(&self, cq: *mut ibv_cq_ex) -> &'static LocalCq {
        let free = all(&LOCAL_CQS, |local| &local.next)
            .find(|local| local.cq.load(Ordering::Relaxed).is_null());
        let local = free.unwrap_or_else(|| {
            let local = LocalCq {
                start_poll: null(),
                next_poll: null(),
                only: null(),
                has_receives: AtomicU32::new(0),
                context: AtomicUsize::new(0),
                cq: null(),
                next: null(),
            };
            push(&LOCAL_CQS, local, |local| &local.next)
        });
        local.only.store(ptr::null_mut(), Ordering::Relaxed);
        local.has_receives.store(0, Ordering::Relaxed);
        local.cq.store(cq, Ordering::Release);
        local
    }

    /// Forgets an extended CQ.
    pub(crate) fn forget_cq(&self, cq: *mut ibv_cq_ex) {
        let (key, place) = by_address(cq);
        let local = cqs().find(key, place);
        cqs().remove(key, place, local);
        // SAFETY: values of the table are never freed.
        if let Some(local) = unsafe { local.as_ref() } {
            local.cq.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Notes something of this process, and wakes the command the first time.
    pub(crate) fn note(&self, what: u32) {
        // SAFETY: the call has no preconditions.
        let process = unsafe { libc::getpid() } as u32;
        for note in &self.view.header.notes {
            let claim =
                note.process.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
            if claim.is_ok() {
                crate::cell::store(&note.program, program());
            }
            if claim.is_ok() || claim == Err(process) {
                if note.notes.fetch_or(what, Ordering::Release) & what == 0 {
                    self.view.header.wake();
                }
                return;
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Release);
    }
}

/// Returns the view of the board, made at the first call. The caller holds the lock.
fn attach() -> Option<&'static View> {
    static IS_REFUSED: AtomicU32 = AtomicU32::new(0);
    // SAFETY: the pointer is that of a leaked view.
    if let Some(view) = unsafe { VIEW.load(Ordering::Relaxed).as_ref() } {
        return Some(view);
    }
    if IS_REFUSED.swap(1, Ordering::Relaxed) != 0 {
        return None;
    }
    let path = std::env::var_os(board::VARIABLE)?;
    let view = View::open(&CString::new(path.into_encoded_bytes()).ok()?)?;
    let (queues, cqs) = (Table::map()?, Table::map()?);
    QUEUES.store(ptr::from_ref(queues).cast_mut(), Ordering::Release);
    CQS.store(ptr::from_ref(cqs).cast_mut(), Ordering::Release);
    let view = Box::leak(Box::new(view));
    VIEW.store(view, Ordering::Release);
    Some(view)
}

/// Returns whether a command was reported to; without it nothing has been replaced.
pub(crate) fn is_attached() -> bool {
    !VIEW.load(Ordering::Acquire).is_null()
}

/// Wakes the command.
pub(crate) fn wake() {
    // SAFETY: the pointer is that of a leaked view.
    if let Some(view) = unsafe { VIEW.load(Ordering::Acquire).as_ref() } {
        view.header.wake();
    }
}

/// Returns the name of this program.
pub(crate) fn program() -> &'static [u8] {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: glibc sets it before the program begins, to a text that stays.
    unsafe {
        let name = program_invocation_short_name;
        if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() }
    }
}
