//! An open device: its context and its objects by handle.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use libc::pid_t;

use super::super::driver::event::{EventQueue, Source};
use super::super::driver::function::Function;
use super::super::driver::running::Running;
use super::super::process::errno::{Errno, Result};
use super::super::process::{lock, trap};
use super::super::settings;
use super::super::tree::config::Mode;
use super::devx::answer::AnswerFile;
use super::devx::event::EventFile;
use super::keys::KeyCache;
use super::{
    ah, cq, device, devx, dm, flow, flow_matcher, mr, multicast, mw, pd, qp, srq, uar, wq, xrcd,
};
use crate::private::system;

/// A command file.
pub(in super::super) struct CommandFile {
    /// The process's devices.
    pub running: &'static Running,
    /// How the model notices stores to its register pages.
    pub mode: Mode,
    /// The thread that opened it, by the kernel's number.
    pub opener: pid_t,
    device: usize,
    /// What keeps the device open: one for its descriptors together, and one for each mapping.
    holds: AtomicUsize,
    /// Whether it is never freed.
    leaked: AtomicBool,
    state: Mutex<State>,
}

/// The content of a file.
#[derive(Default)]
pub(in super::super) struct State {
    context: Option<device::Context>,
    objects: BTreeMap<u32, Object>,
    /// Number of objects that use an object, by its handle. An unused object has no entry.
    users: BTreeMap<u32, u32>,
    /// Lower bound of the free handles.
    lowest: u32,
    /// Keys of regions that were deregistered.
    pub keys: KeyCache,
    /// Event files opened through this file.
    pub event_files: Vec<Weak<EventFile>>,
    /// Answer files opened through this file.
    pub answer_files: Vec<Weak<AnswerFile>>,
}

/// An object of a file.
pub(in super::super) enum Object {
    Pd(pd::Pd),
    Mr(mr::Mr),
    Mw(mw::Mw),
    Devx(devx::object::Devx),
    DevxUmem(devx::umem::DevxUmem),
    Dm(dm::Dm),
    Cq(cq::Cq),
    Qp(qp::Qp),
    Srq(srq::Srq),
    Ah(ah::Ah),
    Uar(uar::Uar),
    Xrcd(xrcd::Xrcd),
    Wq(wq::Wq),
    IndirectionTable(wq::IndirectionTable),
    Flow(flow::Flow),
    Matcher(flow_matcher::Matcher),
}

impl Object {
    /// Calls `each` with the handle of every object that this one uses, once per use.
    fn each_used(&self, mut each: impl FnMut(u32)) {
        match self {
            Object::Mr(mr) => [Some(mr.pd), mr.dm].into_iter().flatten().for_each(each),
            Object::Mw(mw) => each(mw.pd),
            Object::Ah(ah) => each(ah.pd),
            Object::Qp(qp) => {
                let used = [qp.pd, qp.send_cq, qp.recv_cq, qp.srq, qp.xrcd, qp.table];
                used.into_iter().flatten().for_each(each);
            }
            Object::Srq(srq) => {
                [Some(srq.pd), srq.xrcd, srq.cq].into_iter().flatten().for_each(each);
            }
            Object::Wq(wq) => [wq.pd, wq.cq].into_iter().for_each(each),
            Object::IndirectionTable(table) => table.queues.iter().copied().for_each(each),
            Object::Flow(flow) => [flow.target, flow.matcher].into_iter().flatten().for_each(each),
            Object::Pd(_)
            | Object::Devx(_)
            | Object::DevxUmem(_)
            | Object::Dm(_)
            | Object::Cq(_)
            | Object::Uar(_)
            | Object::Xrcd(_)
            | Object::Matcher(_) => {}
        }
    }
}

/// A kind of object: how to find it in the table.
pub(in super::super) trait Kind: Sized {
    /// Returns the object, if it is of this kind.
    fn of(object: &Object) -> Option<&Self>;
    /// Returns the object for changes, if it is of this kind.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
}

macro_rules! kinds {
    ($($variant:ident $kind:ty;)*) => {$(
        impl Kind for $kind {
            fn of(object: &Object) -> Option<&Self> {
                match object { Object::$variant(kind) => Some(kind), _ => None }
            }
            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                match object { Object::$variant(kind) => Some(kind), _ => None }
            }
        }
    )*};
}

kinds! {
    Pd pd::Pd;
    Mr mr::Mr;
    Mw mw::Mw;
    Devx devx::object::Devx;
    DevxUmem devx::umem::DevxUmem;
    Dm dm::Dm;
    Cq cq::Cq;
    Qp qp::Qp;
    Srq srq::Srq;
    Ah ah::Ah;
    Uar uar::Uar;
    Xrcd xrcd::Xrcd;
    Wq wq::Wq;
    IndirectionTable wq::IndirectionTable;
    Flow flow::Flow;
    Matcher flow_matcher::Matcher;
}

impl CommandFile {
    /// Creates a file of a device, without a context yet.
    pub fn new(running: &'static Running, device: usize) -> Self {
        trap::unblock();
        // SAFETY: the call has no arguments.
        let opener = system::thread();
        Self {
            running,
            mode: settings::mode(),
            opener,
            device,
            holds: AtomicUsize::new(1),
            leaked: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Returns the number of its device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Returns a number that distinguishes it from the other open files.
    pub fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the device.
    pub fn function(&self) -> &'static Function {
        &self.running.functions[self.device]
    }

    /// Locks its context and objects, for as long as a request is served.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns a reference that is valid for ever, since threads read the table of mappings without a
    /// lock. The first call leaks the value, which has no objects once it is released.
    pub fn forever(this: &Arc<Self>) -> &'static Self {
        if !this.leaked.swap(true, Ordering::AcqRel) {
            std::mem::forget(Arc::clone(this));
        }
        // SAFETY: a share was leaked, so the value is never freed.
        unsafe { &*Arc::as_ptr(this) }
    }

    /// Has a mapping keep the device open. Returns whether it was.
    pub fn hold(&self) -> bool {
        let more = |holds: usize| (holds != 0).then_some(holds + 1);
        self.holds.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// The last descriptor, or a mapping, is gone. Closes the device if nothing else keeps it open.
    pub fn let_go(&self) {
        if self.holds.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.release();
        }
    }

    /// Destroys everything, users before the objects they use.
    fn release(&self) {
        let mut state = self.state();
        let rank = |object: &Object| match object {
            Object::Flow(_) | Object::Matcher(_) => 0,
            Object::Qp(_) => 1,
            Object::Devx(object) => object.turn(),
            Object::Mr(_) | Object::Mw(_) | Object::Ah(_) | Object::Srq(_) => 2,
            Object::IndirectionTable(_) => 2,
            Object::Wq(_) => 3,
            Object::Cq(_) => 4,
            Object::Xrcd(_) | Object::Pd(_) | Object::Dm(_) => 5,
            Object::Uar(_) | Object::DevxUmem(_) => 6,
        };
        for turn in 0..=6 {
            // From the highest handle on: an object may use older ones of its kind.
            let handles: Vec<u32> = state
                .objects
                .iter()
                .rev()
                .filter(|(_, object)| rank(object) == turn)
                .map(|(handle, _)| *handle)
                .collect();
            for handle in handles {
                let uid = state.context.as_ref().map_or(0, |context| context.uid);
                let Some(object) = state.objects.remove(&handle) else { continue };
                let gone = match &object {
                    Object::Qp(qp) => {
                        multicast::leave(self, qp);
                        qp::destroy(self, qp).map(|_| ())
                    }
                    Object::Srq(srq) => srq::destroy(self, uid, srq).map(|_| ()),
                    Object::Mw(mw) => mw::destroy(self, uid, mw),
                    Object::Devx(object) => devx::object::destroy(self, uid, object),
                    Object::DevxUmem(umem) => devx::umem::destroy(self, uid, umem),
                    Object::Mr(mr) => mr::destroy(self, mr),
                    Object::Dm(dm) => dm::destroy(self, uid, dm),
                    Object::Ah(_) => Ok(()),
                    Object::Flow(flow) => flow::destroy(self, flow),
                    Object::Matcher(_) => Ok(()),
                    Object::IndirectionTable(table) => wq::destroy_table(self, table),
                    Object::Wq(wq) => wq::destroy(self, wq),
                    Object::Cq(cq) => cq::destroy(self, uid, cq).map(|_| ()),
                    Object::Xrcd(xrcd) => xrcd::destroy(self, xrcd),
                    Object::Pd(pd) => pd::destroy(self, uid, pd),
                    Object::Uar(uar) => uar::destroy(self, uid, uar),
                };
                if let Err(error) = gone {
                    tracing::warn!(handle, errno = error.0, "an object of a closed file stays");
                }
            }
        }
        for events in state.event_files.drain(..).filter_map(|file| file.upgrade()) {
            events.hang_up();
        }
        for answers in state.answer_files.drain(..).filter_map(|file| file.upgrade()) {
            answers.hang_up();
        }
        if let Some(context) = state.context.take() {
            device::destroy(self, &context);
        }
    }
}

impl State {
    /// Returns the context.
    pub fn context(&self) -> Result<&device::Context> {
        self.context.as_ref().ok_or(Errno::EINVAL)
    }

    /// Gives the file its context; it has at most one.
    pub fn set_context(&mut self, context: device::Context) -> Result<()> {
        if self.context.is_some() {
            return Err(Errno::EINVAL);
        }
        self.context = Some(context);
        Ok(())
    }

    /// Sets the default destination of asynchronous events.
    pub fn set_events(&mut self, queue: &Arc<EventQueue>) -> Result<()> {
        let context = self.context.as_mut().ok_or(Errno::EINVAL)?;
        context.events.get_or_insert_with(|| queue.clone());
        Ok(())
    }

    /// Adds an object under the lowest free handle, and returns the handle.
    pub fn enter(&mut self, object: Object) -> u32 {
        let mut handle = self.lowest;
        for (taken, _) in self.objects.range(handle..) {
            if *taken != handle {
                break;
            }
            handle += 1;
        }
        self.lowest = handle + 1;
        object.each_used(|used| *self.users.entry(used).or_default() += 1);
        self.objects.insert(handle, object);
        handle
    }

    /// Records that an object uses another one instead of `before`.
    pub fn use_instead(&mut self, before: u32, after: u32) {
        *self.users.entry(after).or_default() += 1;
        self.unuse(before);
    }

    fn unuse(&mut self, handle: u32) {
        if let Entry::Occupied(mut users) = self.users.entry(handle) {
            *users.get_mut() -= 1;
            if *users.get() == 0 {
                users.remove();
            }
        }
    }

    /// Returns an object by handle.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T> {
        self.objects.get(&handle).and_then(T::of).ok_or(Errno::ENOENT)
    }

    /// Returns whether a handle is in use.
    pub fn has(&self, handle: u32) -> bool {
        self.objects.contains_key(&handle)
    }

    /// Returns an object by handle, for changes.
    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T> {
        self.objects.get_mut(&handle).and_then(T::of_mut).ok_or(Errno::ENOENT)
    }

    /// Destroys an object: if `destroy` succeeds, the handle is free.
    ///
    /// # Errors
    /// `ENOENT` if the handle has no object of this kind; `EBUSY` if another object uses it; the error
    /// of `destroy`.
    pub fn remove<T: Kind, R>(
        &mut self,
        handle: u32,
        destroy: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        let object = self.get::<T>(handle)?;
        if self.users.contains_key(&handle) {
            return Err(Errno::EBUSY);
        }
        let result = destroy(object)?;
        if let Some(object) = self.objects.remove(&handle) {
            object.each_used(|used| self.unuse(used));
        }
        self.lowest = self.lowest.min(handle);
        Ok(result)
    }

    /// Returns whether any object of a kind satisfies the question.
    pub fn any<T: Kind>(&self, question: impl Fn(&T) -> bool) -> bool {
        self.objects.values().filter_map(T::of).any(question)
    }

    /// Returns the answers of all objects of a kind.
    pub fn collect<T: Kind, R>(&self, question: impl Fn(&T) -> R) -> Vec<R> {
        self.objects.values().filter_map(T::of).map(question).collect()
    }

    /// Returns the first answer of any object of a kind.
    pub fn find<T: Kind, R>(&self, question: impl Fn(&T) -> Option<R>) -> Option<R> {
        self.objects.values().filter_map(T::of).find_map(question)
    }

    /// Returns the register page at an offset of `mmap`, if it is one of this file's.
    pub fn page(&self, index: u64) -> Option<&'static uar::Page> {
        self.objects
            .values()
            .filter_map(uar::Uar::of)
            .find(|uar| uar.page.index == index)
            .map(|uar| uar.page)
    }

    /// Returns the register page behind a UAR number, if it is one of this file's.
    pub fn page_of(&self, number: u32) -> Option<&'static uar::Page> {
        self.objects
            .values()
            .filter_map(uar::Uar::of)
            .find(|uar| uar.number == number)
            .map(|uar| uar.page)
    }
}

/// Creates an object's identity in event queues: the program's handle, and a number that no other
/// object of the process ever has.
pub(super) fn source(user_handle: u64) -> Source {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Source { user_handle, id: NEXT.fetch_add(1, Ordering::Relaxed) }
}
