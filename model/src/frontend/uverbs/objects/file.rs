//! An open device: its context and its objects by handle.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use libc::pid_t;

use super::super::driver::event::EventQueue;
use super::super::driver::function::Function;
use super::super::driver::running::Running;
use super::super::process::descriptors::OpenFile;
use super::super::process::errno::{Errno, Result};
use super::super::process::{lock, trap};
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::super::tree::config::Mode;
use super::context::Context;
use super::keys::KeyCache;
use crate::private::system;

/// A command file.
pub(crate) struct CommandFile {
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
pub(crate) struct State {
    context: Option<Context>,
    objects: BTreeMap<u32, Box<dyn Object>>,
    /// Number of objects that use an object, by its handle. An unused object has no entry.
    users: BTreeMap<u32, u32>,
    /// Lower bound of the free handles.
    lowest: u32,
    /// Keys of regions that were deregistered.
    pub keys: KeyCache,
    /// Files that were opened through this file, and are told when it is closed.
    followers: Vec<Weak<dyn OpenFile>>,
}

/// A kind of object.
pub(crate) trait Object: Value {
    /// Calls `each` with the handle of every object that this one uses, once per use.
    fn each_used(&self, _each: &mut dyn FnMut(u32)) {}

    /// Returns its turn to be destroyed with its file.
    fn turn(&self) -> Turn;

    /// Destroys it, for a program that is `uid` to the device. Returns what the request that asks for it
    /// replies: how many of its events the program has read, if it has events.
    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>>;

    /// Destroys it with its file.
    fn close(&mut self, file: &CommandFile, uid: u16) -> Result<()> {
        self.destroy(file, uid).map(drop)
    }
}

/// Turns in which the objects of a closed file are destroyed: users before the objects that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Flows, which lead to queue pairs, and what flows are made of.
    Flows,
    QueuePairs,
    /// Regions, shared receive queues and what else uses queues and domains.
    Users,
    /// Queues that queue pairs and tables are made of.
    Queues,
    CompletionQueues,
    Domains,
    /// Memory that all others may name: register pages and registered memory.
    Pages,
}

impl Turn {
    const ALL: [Self; 7] = [
        Self::Flows,
        Self::QueuePairs,
        Self::Users,
        Self::Queues,
        Self::CompletionQueues,
        Self::Domains,
        Self::Pages,
    ];
}

/// A value whose type may be asked for.
pub(crate) trait Value: Any + Send {
    /// Returns the value as one of any type.
    fn any(&self) -> &dyn Any;
    /// Returns the value as one of any type, for changes.
    fn any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Send> Value for T {
    fn any(&self) -> &dyn Any {
        self
    }

    fn any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Serves the method that destroys an object, whose handle is in the attribute `HANDLE`.
pub(crate) fn destroy<T: Object, const HANDLE: u16>(
    file: &CommandFile,
    attributes: &mut Attributes,
) -> Result<()> {
    /// The attribute of the reply.
    const REPLY: u16 = 1;
    match remove::<T>(file, attributes.handle(HANDLE)?)? {
        reply if reply.is_empty() => Ok(()),
        reply => attributes.put(REPLY, &reply),
    }
}

/// Serves the legacy command that destroys an object, whose handle is at the offset `HANDLE`.
pub(crate) fn destroy_legacy<T: Object, const HANDLE: usize>(
    file: &CommandFile,
    request: &Request,
) -> Result<()> {
    request.reply(&remove::<T>(file, request.word(HANDLE)?)?)
}

fn remove<T: Object>(file: &CommandFile, handle: u32) -> Result<Vec<u8>> {
    let mut state = file.state();
    let uid = state.context()?.uid;
    state.remove::<T>(handle, file, uid)
}

impl CommandFile {
    /// Creates a file of a device, without a context yet.
    pub fn new(running: &'static Running, device: usize, mode: Mode) -> Self {
        trap::unblock();
        // SAFETY: the call has no arguments.
        let opener = system::thread();
        Self {
            running,
            mode,
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
        let uid = state.context.as_ref().map_or(0, |context| context.uid);
        for turn in Turn::ALL {
            // From the highest handle on: an object may use older ones of its kind.
            let handles: Vec<u32> = state
                .objects
                .iter()
                .rev()
                .filter(|(_, object)| object.turn() == turn)
                .map(|(handle, _)| *handle)
                .collect();
            for handle in handles {
                let Some(mut object) = state.objects.remove(&handle) else { continue };
                if let Err(error) = object.close(self, uid) {
                    tracing::warn!(handle, errno = error.0, "an object of a closed file stays");
                }
            }
        }
        for follower in state.followers.drain(..).filter_map(|file| file.upgrade()) {
            follower.hang_up();
        }
        if let Some(context) = state.context.take() {
            context.destroy(self.function());
        }
    }
}

impl State {
    /// Returns the context.
    pub fn context(&self) -> Result<&Context> {
        self.context.as_ref().ok_or(Errno::EINVAL)
    }

    /// Gives the file its context; it has at most one.
    pub fn set_context(&mut self, context: Context) -> Result<()> {
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
    pub fn enter(&mut self, object: impl Object) -> u32 {
        let mut handle = self.lowest;
        for (taken, _) in self.objects.range(handle..) {
            if *taken != handle {
                break;
            }
            handle += 1;
        }
        self.lowest = handle + 1;
        object.each_used(&mut |used| *self.users.entry(used).or_default() += 1);
        self.objects.insert(handle, Box::new(object));
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

    /// Has a file that was opened through this one told when this one is closed.
    pub fn follow(&mut self, file: &Arc<impl OpenFile>) {
        self.followers.retain(|file| file.strong_count() > 0);
        let file = Arc::downgrade(file);
        self.followers.push(file);
    }

    /// Returns an object by handle.
    pub fn get<T: Object>(&self, handle: u32) -> Result<&T> {
        self.objects
            .get(&handle)
            .and_then(|object| (**object).any().downcast_ref())
            .ok_or(Errno::ENOENT)
    }

    /// Returns whether an object is used by others.
    pub fn is_used(&self, handle: u32) -> bool {
        self.users.contains_key(&handle)
    }

    /// Returns whether a handle is in use.
    pub fn has(&self, handle: u32) -> bool {
        self.objects.contains_key(&handle)
    }

    /// Returns an object by handle, for changes.
    pub fn get_mut<T: Object>(&mut self, handle: u32) -> Result<&mut T> {
        let object = self.objects.get_mut(&handle);
        object.and_then(|object| (**object).any_mut().downcast_mut()).ok_or(Errno::ENOENT)
    }

    /// Destroys an object, and returns what the request replies. If that succeeds, the handle is free.
    ///
    /// # Errors
    /// `ENOENT` if the handle has no object of this kind; `EBUSY` if another object uses it; the error
    /// of [`Object::destroy`].
    pub fn remove<T: Object>(
        &mut self,
        handle: u32,
        file: &CommandFile,
        uid: u16,
    ) -> Result<Vec<u8>> {
        let object = self.get::<T>(handle)?;
        if let Some(users) = self.users.get(&handle) {
            let name = type_name::<T>().rsplit("::").next().unwrap_or_default().to_uppercase();
            return Err(Errno::EBUSY.because(format_args!(
                "destroying {name} with handle {handle} refused: objects made with it still exist, {users} of them"
            )));
        }
        let reply = object.destroy(file, uid)?;
        if let Some(object) = self.objects.remove(&handle) {
            object.each_used(&mut |used| self.unuse(used));
        }
        self.lowest = self.lowest.min(handle);
        Ok(reply)
    }

    /// Returns whether any object of a kind satisfies the question.
    pub fn any<T: Object>(&self, question: impl Fn(&T) -> bool) -> bool {
        self.objects.values().filter_map(|object| (**object).any().downcast_ref()).any(question)
    }

    /// Returns all objects of a kind, by handle.
    pub fn list<T: Object>(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.objects.iter();
        all.filter_map(|(handle, object)| Some((*handle, (**object).any().downcast_ref()?)))
    }

    /// Returns how many objects use one.
    pub fn users(&self, handle: u32) -> u32 {
        self.users.get(&handle).copied().unwrap_or(0)
    }

    /// Returns the first answer of any object of a kind.
    pub fn find<T: Object, R>(&self, question: impl Fn(&T) -> Option<R>) -> Option<R> {
        self.objects
            .values()
            .filter_map(|object| (**object).any().downcast_ref())
            .find_map(question)
    }
}
