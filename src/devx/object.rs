//! Objects that a command made.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use mlx5_sys::dv::{
    mlx5dv_devx_obj, mlx5dv_devx_obj_create, mlx5dv_devx_obj_destroy, mlx5dv_devx_obj_modify,
    mlx5dv_devx_obj_query,
};

use super::command::{Command, Reply};
use super::judge::withheld;
use crate::error::{Errno, Error, Name, Result};
use crate::ib::debug_as_display;
use crate::verbs::Context;

/// An object that a command created. Dropping it destroys it.
///
/// The kernel identifies it by a handle, and checks that a command on it names it. The kernel
/// destroys it with the opened device at the latest, so an object that is never dropped does no
/// harm. It keeps its context open, and keeps all that was passed to [`keep`](Self::keep).
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::Command;
/// use mlx5::devx::ifc::{alloc_pd_in, alloc_pd_out, opcode};
///
/// let command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE).reply(alloc_pd_out::SIZE);
/// // SAFETY: a protection domain names no other object and no memory.
/// let object = unsafe { command.create(&context)? };
/// assert_eq!(object.made_by(), opcode::ALLOC_PD);
/// // Dropping it destroys it, too. This tells whether the HCA did.
/// object.destroy()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_devx_obj")]
pub struct Object {
    object: NonNull<mlx5dv_devx_obj>,
    opcode: u16,
    reply: Reply,
    /// The objects it depends on, dropped after it.
    kept: Vec<Box<dyn Any + Send + Sync>>,
    context: Context,
}

// SAFETY: libmlx5 allows calls on one object from any thread: each is one ioctl with the object's
// handle, which does not change. What is kept is `Send`.
unsafe impl Send for Object {}
// SAFETY: libmlx5 allows calls on one object from several threads at once: each is one ioctl with
// the object's handle, which does not change. What is kept is `Sync`.
unsafe impl Sync for Object {}

impl Command {
    /// Executes a command that creates an object. One call into the kernel.
    ///
    /// The kernel itself marks in the command that buffers and doorbell records lie in umems, and
    /// sets the number of the user context. [`DevxMkey`](super::DevxMkey),
    /// [`DevxPd`](super::DevxPd) and the other types of this module create their objects without
    /// `unsafe`.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the command cannot be sent.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    ///
    /// # Safety
    /// As long as the object exists:
    /// - Each object that the command names by number (protection domain, umem, CQ, queue, key,
    ///   UAR) exists, too.
    /// - The memory that a memory key leads to, directly or through other keys, stays registered.
    ///   No Rust reference covers what the key lets the HCA write, and no `&mut` covers what it
    ///   lets the HCA read. No queue of this crate has its ring or doorbell record there.
    /// - A queue's ring and doorbell record lie in parts of umems that no other queue has, that no
    ///   key leads to, and that no Rust reference covers.
    /// - WQEs that the caller writes to a queue's ring fulfill the contract of
    ///   [`SendQueue::post`](crate::ring::SendQueue::post).
    #[doc(alias = "mlx5dv_devx_obj_create")]
    pub unsafe fn create(&self, context: &Context) -> Result<Object> {
        const CALL: &str = "mlx5dv_devx_obj_create";
        let mut made = None;
        let reply = self.run(context, CALL, |command, reply| {
            // SAFETY: the context is open, and both buffers live through the call and have the
            // lengths that are passed.
            let object = unsafe {
                mlx5dv_devx_obj_create(
                    context.as_raw().as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    reply.as_mut_ptr().cast(),
                    reply.len(),
                )
            };
            made = NonNull::new(object);
            // Read before anything else can change it.
            if made.is_some() { 0 } else { Errno::last().0.max(1) }
        })?;
        let object = made.ok_or_else(|| withheld(self, CALL, Errno::last()))?;
        let (opcode, context) = (self.opcode(), context.clone());
        Ok(Object { object, opcode, reply, kept: Vec::new(), context })
    }
}

impl Object {
    /// Returns the HCA's reply to the command that created it. It holds the object's number, at the
    /// place that the reply's layout gives.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Returns the opcode of the command that created it.
    pub fn made_by(&self) -> u16 {
        self.opcode
    }

    /// Keeps `what`, on which the object depends, as long as the object. Drops it after the object.
    pub fn keep(&mut self, what: impl Any + Send + Sync) {
        self.kept.push(Box::new(what));
    }

    /// Queries the object by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the opcode is none that only asks
    ///   ([`is_query`](mlx5_sys::ifc::opcode::is_query)), or lets the HCA write memory (flow
    ///   counters with `dump_to_memory`), or the command cannot be sent.
    /// - [`Error::Refused`] by the HCA.
    /// - [`Error::Withheld`] by the kernel, with EINVAL if the command names another object.
    #[doc(alias = "mlx5dv_devx_obj_query")]
    pub fn query(&self, command: &Command) -> Result<Reply> {
        command.check_query()?;
        command.run(&self.context, "mlx5dv_devx_obj_query", |command, reply| {
            // SAFETY: the object is alive, and both buffers live through the call and have the
            // lengths that are passed. The command only asks, as was checked above.
            unsafe {
                mlx5dv_devx_obj_query(
                    self.object.as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    reply.as_mut_ptr().cast(),
                    reply.len(),
                )
            }
        })
    }

    /// Changes the object by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] if the command cannot be sent.
    /// - [`Error::Refused`] by the HCA.
    /// - [`Error::Withheld`] by the kernel, with EINVAL if the command names another object.
    ///
    /// # Safety
    /// - The command does not take a queue that this crate posts to or polls to RESET, and changes
    ///   neither its ring, its doorbell record, its counters nor its CQ. A queue that goes to RESET
    ///   and back executes the WQEs in its ring again, after their memory was given back.
    /// - Memory that the change lets the HCA read or write fulfills what [`Command::create`] asks
    ///   of a new object: it stays registered, no Rust reference covers it, and it holds no ring or
    ///   doorbell record.
    /// - Each object that the command names exists as long as this one, or until another change
    ///   takes it out.
    #[doc(alias = "mlx5dv_devx_obj_modify")]
    pub unsafe fn modify(&self, command: &Command) -> Result<Reply> {
        command.run(&self.context, "mlx5dv_devx_obj_modify", |command, reply| {
            // SAFETY: the object is alive, and both buffers live through the call and have the
            // lengths that are passed. The caller answers for what the command changes.
            unsafe {
                mlx5dv_devx_obj_modify(
                    self.object.as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    reply.as_mut_ptr().cast(),
                    reply.len(),
                )
            }
        })
    }

    /// Destroys it, and reports an error that dropping it could not report. One call into the
    /// kernel.
    ///
    /// # Errors
    /// The object, unchanged, with [`Error::Call`]: EBUSY or EINVAL while another object depends on
    /// it, EREMOTEIO if the HCA refuses for another reason.
    #[doc(alias = "mlx5dv_devx_obj_destroy")]
    pub fn destroy(self) -> Result<(), Box<DestroyError>> {
        // SAFETY: the object is alive; if the call succeeds, it is not touched again.
        let result = unsafe { mlx5dv_devx_obj_destroy(self.object.as_ptr()) };
        if let Err(error) = crate::error::check("mlx5dv_devx_obj_destroy", result) {
            return Err(Box::new(DestroyError { object: self, error }));
        }
        let mut gone = ManuallyDrop::new(self);
        // SAFETY: each field is moved out or dropped once, and `gone` is never dropped.
        unsafe {
            std::ptr::drop_in_place(&mut gone.kept);
            std::ptr::drop_in_place(&mut gone.reply);
            std::ptr::drop_in_place(&mut gone.context);
        }
        Ok(())
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the object, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<mlx5dv_devx_obj> {
        self.object
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: this crate created the object. It is destroyed once: here, or by `destroy`, which
        // forgets `self`.
        let result = unsafe { mlx5dv_devx_obj_destroy(self.object.as_ptr()) };
        if result != 0 {
            // The HCA may go on using what the object depends on. The kernel destroys the object
            // with the opened device.
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("made_by", &format_args!("{}", Name(self.opcode)))
            .field("reply", &self.reply)
            .finish_non_exhaustive()
    }
}

/// An object that could not be destroyed, with the reason.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::Object;
///
/// /// Destroys an object; if the HCA refuses, returns it to the caller.
/// fn destroy(object: Object) -> Option<Object> {
///     object.destroy().err().map(|failed| failed.object)
/// }
/// # use mlx5::devx::{Command, ifc::{alloc_pd_in, alloc_pd_out, opcode}};
/// # let command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE).reply(alloc_pd_out::SIZE);
/// # // SAFETY: a protection domain names no other object and no memory.
/// # assert!(destroy(unsafe { command.create(&context)? }).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DestroyError {
    /// The object, which still exists.
    pub object: Object,
    /// The reason.
    pub error: Error,
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, .. } = self;
        write!(f, "{error}")
    }
}

impl std::error::Error for DestroyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

debug_as_display!(DestroyError);

impl From<Box<DestroyError>> for Error {
    /// Drops the object.
    fn from(failed: Box<DestroyError>) -> Error {
        let DestroyError { object, error } = *failed;
        drop(object);
        error
    }
}
