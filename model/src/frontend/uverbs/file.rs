//! An open device: its context and its objects by handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::config::Mode;
use super::devx::answer::AnswerFile;
use super::devx::event::EventFile;
use super::errno::{Errno, Result};
use super::event::{EventQueue, Source};
use super::function::Function;
use super::running::Running;
use super::{
    ah, cq, device, devx, dm, flow, flow_matcher, lock, mr, multicast, mw, pd, qp, settings, srq,
    trap, uar, wq, xrcd,
};

/// A command file.
pub(super) struct CommandFile {
    /// The process's cards.
    pub running: &'static Running,
    /// How stores to its register pages are noticed.
    pub mode: Mode,
    device: usize,
    state: Mutex<State>,
}

/// What a file holds.
#[derive(Default)]
pub(super) struct State {
    context: Option<device::Context>,
    objects: BTreeMap<u32, Object>,
    /// No handle below it is free.
    lowest: u32,
    /// Files of events that were opened by this one.
    pub event_files: Vec<Weak<EventFile>>,
    /// Files of answers that were.
    pub answer_files: Vec<Weak<AnswerFile>>,
}

/// An object of a file.
pub(super) enum Object {
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

/// A kind of object: how to find it in the table.
pub(super) trait Kind: Sized {
    /// The object, if it is of this kind.
    fn of(object: &Object) -> Option<&Self>;
    /// The object, to be changed, if it is of this kind.
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
    /// A file of a device, without a context yet.
    pub fn new(running: &'static Running, device: usize) -> Self {
        trap::unblock();
        Self { running, mode: settings::mode(), device, state: Mutex::default() }
    }

    /// Number of its device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// What tells it from the others that are open.
    pub fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The card.
    pub fn function(&self) -> &'static Function {
        &self.running.functions[self.device]
    }

    /// Its context and objects. Held while a request is served.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The last descriptor is closed: everything goes, users before what they use.
    pub fn release(&self) {
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
            let handles: Vec<u32> = state
                .objects
                .iter()
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
    /// The context.
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

    /// Where asynchronous events go unless an object says otherwise.
    pub fn set_events(&mut self, queue: &Arc<EventQueue>) -> Result<()> {
        let context = self.context.as_mut().ok_or(Errno::EINVAL)?;
        context.events.get_or_insert_with(|| queue.clone());
        Ok(())
    }

    /// Enters an object under the lowest free handle.
    pub fn enter(&mut self, object: Object) -> u32 {
        let mut handle = self.lowest;
        for (taken, _) in self.objects.range(handle..) {
            if *taken != handle {
                break;
            }
            handle += 1;
        }
        self.lowest = handle + 1;
        self.objects.insert(handle, object);
        handle
    }

    /// An object by handle.
    pub fn get<T: Kind>(&self, handle: u32) -> Result<&T> {
        self.objects.get(&handle).and_then(T::of).ok_or(Errno::ENOENT)
    }

    /// Whether a handle is of any object.
    pub fn has(&self, handle: u32) -> bool {
        self.objects.contains_key(&handle)
    }

    /// An object by handle, to be changed.
    pub fn get_mut<T: Kind>(&mut self, handle: u32) -> Result<&mut T> {
        self.objects.get_mut(&handle).and_then(T::of_mut).ok_or(Errno::ENOENT)
    }

    /// Destroys an object: if `destroy` succeeds, the handle is gone.
    pub fn remove<T: Kind, R>(
        &mut self,
        handle: u32,
        destroy: impl FnOnce(&T) -> Result<R>,
    ) -> Result<R> {
        let result = destroy(self.get::<T>(handle)?)?;
        self.objects.remove(&handle);
        self.lowest = self.lowest.min(handle);
        Ok(result)
    }

    /// Whether any object satisfies the question: for objects that are used by others.
    pub fn any<T: Kind>(&self, question: impl Fn(&T) -> bool) -> bool {
        self.objects.values().filter_map(T::of).any(question)
    }

    /// What is asked of each object of a kind.
    pub fn collect<T: Kind, R>(&self, question: impl Fn(&T) -> R) -> Vec<R> {
        self.objects.values().filter_map(T::of).map(question).collect()
    }

    /// The first answer that an object has to the question.
    pub fn find<T: Kind, R>(&self, question: impl Fn(&T) -> Option<R>) -> Option<R> {
        self.objects.values().filter_map(T::of).find_map(question)
    }

    /// The register page of an offset of `mmap`, if it is one of this file's.
    pub fn page(&self, index: u64) -> Option<&'static uar::Page> {
        self.objects
            .values()
            .filter_map(uar::Uar::of)
            .find(|uar| uar.page.index == index)
            .map(|uar| uar.page)
    }

    /// The register page behind a UAR number, if it is one of this file's.
    pub fn page_of(&self, number: u32) -> Option<&'static uar::Page> {
        self.objects
            .values()
            .filter_map(uar::Uar::of)
            .find(|uar| uar.number == number)
            .map(|uar| uar.page)
    }
}

/// What an object is called in event queues: what the program calls it, and a number that no other
/// object of the process ever has.
pub(super) fn source(user_handle: u64) -> Source {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Source { user_handle, id: NEXT.fetch_add(1, Ordering::Relaxed) }
}
