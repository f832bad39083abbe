//! Objects that a command made.

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use mlx5_sys::dv::{
    mlx5dv_devx_obj, mlx5dv_devx_obj_create, mlx5dv_devx_obj_destroy, mlx5dv_devx_obj_modify,
    mlx5dv_devx_obj_query,
};

use super::command::{Command, Name, Reply};
use super::error::withheld;
use crate::verbs::{Context, Errno, Error, Result};

/// An object that a command made: it goes when it is dropped.
///
/// The kernel knows it by a handle, checks that a command on it names it, and destroys it with the
/// opened device at the latest: one that is never dropped does no harm. It keeps its context open,
/// and whatever it was given to [`keep`](Self::keep).
pub struct Object {
    object: NonNull<mlx5dv_devx_obj>,
    opcode: u16,
    reply: Reply,
    /// What it stands on, which goes after it.
    kept: Vec<Box<dyn Any + Send + Sync>>,
    context: Context,
}

// SAFETY: libmlx5 allows calls on one object from several threads: each is one ioctl with the
// object's handle, which does not change.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Command {
    /// Has the card execute it, as a command that makes an object. One call into the kernel.
    ///
    /// The kernel itself says in it that buffers and doorbell records lie in umems, and whose it
    /// is.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn create(&self, context: &Context) -> Result<Object> {
        const CALL: &str = "mlx5dv_devx_obj_create";
        let mut made = None;
        let reply = self.run(context, CALL, |command, reply| {
            // SAFETY: the context is open, and both buffers live through the call and are as long
            // as they are said to be.
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
    /// What the card answered when it was made: its number, which the layout of that reply says
    /// where.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The opcode of the command that made it.
    pub fn made_by(&self) -> u16 {
        self.opcode
    }

    /// Keeps something alive as long as the object, and drops it after it: what it stands on.
    pub fn keep(&mut self, what: impl Any + Send + Sync) {
        self.kept.push(Box::new(what));
    }

    /// Asks about it by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// As [`Command::execute`]; [`Error::Withheld`] with EINVAL also if the command names another.
    pub fn query(&self, command: &Command) -> Result<Reply> {
        command.run(&self.context, "mlx5dv_devx_obj_query", |command, reply| {
            // SAFETY: the object is alive, and both buffers live through the call and are as long
            // as they are said to be.
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

    /// Changes it by a command that names it. One call into the kernel.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn modify(&self, command: &Command) -> Result<Reply> {
        command.run(&self.context, "mlx5dv_devx_obj_modify", |command, reply| {
            // SAFETY: as above.
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

    /// Destroys it, where dropping it could not say that it failed. One call into the kernel.
    ///
    /// # Errors
    /// With the object, unchanged: [`Error::Call`], with EBUSY or EINVAL while another object stands
    /// on it, with EREMOTEIO where the card refuses otherwise.
    pub fn destroy(self) -> Result<(), Box<DestroyError>> {
        // SAFETY: the object is alive; if the call succeeds, it is not touched again.
        let result = unsafe { mlx5dv_devx_obj_destroy(self.object.as_ptr()) };
        if let Err(error) = crate::verbs::check("mlx5dv_devx_obj_destroy", result) {
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

    /// The device it belongs to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The object, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<mlx5dv_devx_obj> {
        self.object
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: made by this crate, destroyed once: here, or by `destroy`, which forgets it. What
        // it stands on is dropped after. A failure can be neither reported nor mended here; the
        // kernel destroys the object with the opened device then.
        unsafe { mlx5dv_devx_obj_destroy(self.object.as_ptr()) };
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

/// An object that could not be destroyed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DestroyError {
    /// The object, which is still there.
    pub object: Object,
    /// Why.
    #[source]
    pub error: Error,
}
