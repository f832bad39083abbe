//! Event queues and interrupts of a program's own.

use std::ptr::NonNull;

use mlx5_sys::dv::{
    mlx5dv_devx_alloc_msi_vector, mlx5dv_devx_create_eq, mlx5dv_devx_destroy_eq, mlx5dv_devx_eq,
    mlx5dv_devx_free_msi_vector, mlx5dv_devx_msi_vector,
};

use crate::devx::{Command, Reply};
use crate::error::{Cause, Errno, Error, Result};
use crate::verbs::Context;

/// Adds to an error why a program cannot have its own vectors and event queues.
fn only_vfio(error: Error) -> Error {
    let cause = "the kernel's driver has all interrupts of the device; libmlx5 offers this on a \
                 device that a program drives by VFIO alone";
    let known = error.errno() == Some(Errno(libc::EOPNOTSUPP));
    error.because(known.then_some(Cause::Known(cause)))
}

/// An interrupt of the device, as an eventfd.
///
/// libmlx5 offers them on devices that a program drives by VFIO, without the kernel's driver. On
/// other devices, completions and events come to a program by an
/// [`EventChannel`](crate::devx::EventChannel).
///
/// ```no_run
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::devx::unproven::MsiVector;
///
/// // The program drives the device by VFIO.
/// let vector = MsiVector::new(&context)?;
/// println!("interrupt {} counts in {:?}", vector.number(), vector.fd());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_devx_msi_vector", "mlx5dv_devx_free_msi_vector"))]
#[derive(Debug)]
pub struct MsiVector {
    vector: NonNull<mlx5dv_devx_msi_vector>,
    _context: Context,
}

// SAFETY: the vector consists of a number and a descriptor, which do not change.
unsafe impl Send for MsiVector {}
// SAFETY: number and descriptor do not change.
unsafe impl Sync for MsiVector {}

impl MsiVector {
    /// Allocates an interrupt vector.
    ///
    /// # Errors
    /// [`Error::Call`], with EOPNOTSUPP where the kernel drives the device.
    #[doc(alias = "mlx5dv_devx_alloc_msi_vector")]
    pub fn new(context: &Context) -> Result<MsiVector> {
        // SAFETY: the context is open.
        let vector = unsafe { mlx5dv_devx_alloc_msi_vector(context.as_raw().as_ptr()) };
        let vector = crate::error::non_null("mlx5dv_devx_alloc_msi_vector", vector);
        Ok(MsiVector { vector: vector.map_err(only_vfio)?, _context: context.clone() })
    }

    /// Returns its number, as CREATE_EQ takes it (`eqc.intr`).
    pub fn number(&self) -> i32 {
        // SAFETY: the vector is alive, and the field does not change.
        unsafe { self.vector.as_ref() }.vector
    }

    /// Returns the eventfd that counts interrupts.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: the descriptor stays open as long as the vector.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(self.vector.as_ref().fd) }
    }
}

impl Drop for MsiVector {
    fn drop(&mut self) {
        // SAFETY: this crate allocated the vector and frees it once, here.
        unsafe { mlx5dv_devx_free_msi_vector(self.vector.as_ptr()) };
    }
}

/// An event queue of the program. The program reads its ring itself.
///
/// It needs a device that a program drives by VFIO, like [`MsiVector`].
///
/// ```no_run
/// # use mlx5::{devx::Command, verbs::Context};
/// # fn example(context: &Context, create_eq: &Command) -> mlx5::Result<()> {
/// use mlx5::devx::unproven::{EventQueue, MsiVector};
///
/// // `create_eq` names the interrupt. The program drives the device by VFIO.
/// let vector = MsiVector::new(context)?;
/// // SAFETY: the command is a CREATE_EQ that names no other object and no memory.
/// let queue = unsafe { EventQueue::create(context, create_eq, Some(vector)) }?;
/// # Ok(())
/// # }
/// ```
#[doc(alias("mlx5dv_devx_eq", "mlx5dv_devx_destroy_eq"))]
#[derive(Debug)]
pub struct EventQueue {
    queue: NonNull<mlx5dv_devx_eq>,
    reply: Reply,
    _vector: Option<MsiVector>,
}

// SAFETY: the queue is an address, which does not change.
unsafe impl Send for EventQueue {}
// SAFETY: the address does not change, and accesses to the memory there are `unsafe`.
unsafe impl Sync for EventQueue {}

impl EventQueue {
    /// Creates it by CREATE_EQ. It keeps `vector`, if that is the interrupt that the command names.
    ///
    /// # Errors
    /// - [`Error::Call`] with EOPNOTSUPP if the kernel drives the device.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] if the command cannot be sent.
    ///
    /// # Safety
    /// The command is a CREATE_EQ. libmlx5 fills in its memory and its UAR. The rules of
    /// [`Command::create`] hold for the rest of it.
    #[doc(alias = "mlx5dv_devx_create_eq")]
    pub unsafe fn create(
        context: &Context,
        command: &Command,
        vector: Option<MsiVector>,
    ) -> Result<EventQueue> {
        const CALL: &str = "mlx5dv_devx_create_eq";
        let mut made = None;
        let reply = command.run(context, CALL, |command, reply| {
            // SAFETY: the context is open, and both buffers live through the call and are as long
            // as they are said to be.
            let queue = unsafe {
                mlx5dv_devx_create_eq(
                    context.as_raw().as_ptr(),
                    command.as_ptr().cast(),
                    command.len(),
                    reply.as_mut_ptr().cast(),
                    reply.len(),
                )
            };
            made = NonNull::new(queue);
            // Read before another call can change it.
            if made.is_some() { 0 } else { Errno::last().0.max(1) }
        });
        let reply = reply.map_err(|error| match error {
            Error::Withheld(command) => only_vfio(Error::from_errno(CALL, command.errno())),
            other => other,
        })?;
        let queue = made.ok_or_else(|| Error::last(CALL))?;
        Ok(EventQueue { queue, reply, _vector: vector })
    }

    /// Returns the HCA's reply, with the queue's number.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Returns the ring of 64-byte entries, which the HCA writes to. It lives as long as `self`.
    pub fn ring(&self) -> *mut u8 {
        // SAFETY: the queue is alive, and the field does not change.
        unsafe { self.queue.as_ref() }.vaddr.cast()
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        // SAFETY: this crate made the queue and destroys it once, here, before its vector.
        unsafe { mlx5dv_devx_destroy_eq(self.queue.as_ptr()) };
    }
}
