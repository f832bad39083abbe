//! Asynchronous queries.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx5_sys::dv::{
    mlx5dv_devx_cmd_comp, mlx5dv_devx_create_cmd_comp, mlx5dv_devx_destroy_cmd_comp,
    mlx5dv_devx_get_async_cmd_comp, mlx5dv_devx_obj_query_async,
};

use super::command::{Command, Reply};
use super::judge::{judge, withheld};
use super::object::Object;
use crate::error::{Devx, Errno, Error, Result, non_null};
use crate::ring::deadline;
use crate::verbs::{Context, Readiness, wait_readable};

/// The name of the call in errors.
const CALL: &str = "mlx5dv_devx_obj_query_async";

/// A channel for asynchronous queries of objects.
///
/// Any number may be outstanding, as long as their replies together fit the kernel's limit for a
/// channel, 1 MiB. Each query has a cookie of the program. Answers come in the order in which the
/// HCA executed the commands. Dropping the channel waits for outstanding queries and discards their
/// answers.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use std::time::Duration;
/// use mlx5::devx::{AsyncCommands, Command, DevxMkey};
/// use mlx5::devx::ifc::{mkc, opcode, query_mkey_in, query_mkey_out};
///
/// // A key that gives access to nothing yet.
/// let key = DevxMkey::builder(&pd).free(4)?;
/// let query = Command::new(opcode::QUERY_MKEY, query_mkey_in::SIZE)
///     .set(query_mkey_in::MKEY_INDEX, key.lkey() >> 8)
///     .reply(query_mkey_out::SIZE);
/// let commands = AsyncCommands::new(&context)?;
/// commands.query(key.object(), &query, 7)?;
/// // Until the answer comes, the program does other work.
/// let answer = commands.answer(Duration::from_secs(10))?.ok_or("no answer")?;
/// assert_eq!(answer.cookie, 7);
/// let is_free = mkc::FREE.within(query_mkey_out::MEMORY_KEY_MKEY_ENTRY);
/// assert_eq!(answer.reply?.get(is_free), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("mlx5dv_devx_cmd_comp", "mlx5dv_devx_destroy_cmd_comp"))]
pub struct AsyncCommands {
    /// The descriptor that programs wait on.
    readiness: Readiness,
    channel: RawChannel,
    /// The queries without an answer. The kernel only has their keys.
    outstanding: Mutex<Outstanding>,
    context: Context,
}

/// A channel of libmlx5. Destroyed when it is dropped.
struct RawChannel(NonNull<mlx5dv_devx_cmd_comp>);

impl RawChannel {
    /// Returns the descriptor that answers are read from.
    fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive, and the field does not change.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

#[derive(Default)]
struct Outstanding {
    next: u64,
    commands: HashMap<u64, (u64, Command)>,
}

/// The answer to a query.
///
/// See the example on [`AsyncCommands`].
#[derive(Debug)]
pub struct Answer {
    /// The cookie of the query.
    pub cookie: u64,
    /// The HCA's reply: [`Error::Refused`] if it refused.
    pub reply: Result<Reply>,
}

// SAFETY: libmlx5 allows calls on one channel from several threads: each is one system call on its
// descriptor, which does not change.
unsafe impl Send for AsyncCommands {}
// SAFETY: libmlx5 allows calls on one channel from several threads at once: each is one system call
// on its descriptor, which does not change. A lock guards the outstanding queries.
unsafe impl Sync for AsyncCommands {}

impl AsyncCommands {
    /// Creates a channel. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`]; [`Error::NoDevx`] if the context cannot execute commands.
    #[doc(alias = "mlx5dv_devx_create_cmd_comp")]
    pub fn new(context: &Context) -> Result<AsyncCommands> {
        if let why @ Devx::Refused(_) = context.devx() {
            return Err(Error::NoDevx { device: context.name(), why });
        }
        // SAFETY: the context is open.
        let channel = unsafe { mlx5dv_devx_create_cmd_comp(context.as_raw().as_ptr()) };
        let channel = non_null("mlx5dv_devx_create_cmd_comp", channel)?;
        let channel = RawChannel(channel);
        let readiness = Readiness::of_events(channel.fd())?;
        let (outstanding, context) = (Mutex::default(), context.clone());
        Ok(AsyncCommands { readiness, channel, outstanding, context })
    }

    /// Queries an object by a command that names it. One call into the kernel, which does not wait
    /// for the HCA. The object may be destroyed before the answer comes.
    ///
    /// # Errors
    /// - [`Error::Withheld`], with EAGAIN while too many bytes of replies are outstanding or
    ///   unread.
    /// - [`Error::Attribute`] if the opcode is not a query
    ///   ([`is_query`](mlx5_sys::ifc::opcode::is_query)) or lets the HCA write memory (flow counters
    ///   with `dump_to_memory`), if the command cannot be sent, or if the
    ///   object belongs to another device.
    #[doc(alias = "mlx5dv_devx_obj_query_async")]
    pub fn query(&self, object: &Object, command: &Command, cookie: u64) -> Result<()> {
        command.check_query()?;
        command.check(&self.context)?;
        if object.context().as_raw() != self.context.as_raw() {
            let rule = "it belongs to another opened device than the channel";
            return Err(Error::attribute("object", format_args!("{object:?}"), rule));
        }
        let key = self.remember(command, cookie);
        let bytes = command.as_bytes();
        // SAFETY: object and channel are alive, and the command has the length that is passed. The
        // kernel copies it before it returns. The command only asks, as was checked above.
        let result = unsafe {
            mlx5dv_devx_obj_query_async(
                object.as_raw().as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                command.reply_size(),
                key,
                self.channel.0.as_ptr(),
            )
        };
        if result != 0 {
            let errno = if result > 0 { Errno(result) } else { Errno::last() };
            self.lock().commands.remove(&key);
            return Err(withheld(command, CALL, errno));
        }
        Ok(())
    }

    /// Returns the next answer, if there is one. One system call.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "mlx5dv_devx_get_async_cmd_comp")]
    pub fn try_answer(&self) -> Result<Option<Answer>> {
        // Locked while reading, so that the largest outstanding reply is known.
        let mut outstanding = self.lock();
        let largest = outstanding.commands.values().map(|(_, command)| command.reply_size()).max();
        let Some(largest) = largest else { return Ok(None) };
        // An array of words, since the header is one word.
        let mut buffer = vec![0u64; 1 + largest.div_ceil(8)];
        loop {
            // SAFETY: the channel is alive, and the buffer has the length that is passed.
            let result = unsafe {
                mlx5dv_devx_get_async_cmd_comp(
                    self.channel.0.as_ptr(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len() * size_of::<u64>(),
                )
            };
            match result {
                0 => break,
                libc::EAGAIN => return Ok(None),
                libc::EINTR => {}
                errno => {
                    let errno = Errno(errno);
                    return Err(Error::from_errno("mlx5dv_devx_get_async_cmd_comp", errno));
                }
            }
        }
        let Some((cookie, command)) = outstanding.commands.remove(&buffer[0]) else {
            // Other code sent this query through the raw channel.
            return Ok(Some(Answer {
                cookie: buffer[0],
                reply: Ok(Reply::new(to_bytes(&buffer))),
            }));
        };
        drop(outstanding);
        let mut bytes = to_bytes(&buffer);
        bytes.truncate(command.reply_size());
        let reply = judge(&command, CALL, 0, &bytes).map(|()| Reply::new(bytes));
        Ok(Some(Answer { cookie, reply }))
    }

    /// Waits for the next answer; `None` if none comes within the timeout, or no query is
    /// outstanding.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "mlx5dv_devx_get_async_cmd_comp")]
    pub fn answer(&self, timeout: Duration) -> Result<Option<Answer>> {
        let until: Instant = deadline(timeout);
        loop {
            if let Some(answer) = self.try_answer()? {
                return Ok(Some(answer));
            }
            if self.outstanding() == 0 || !wait_readable(self.channel.fd(), until)? {
                return Ok(None);
            }
        }
    }

    /// Returns the number of queries whose answers have not been taken yet.
    pub fn outstanding(&self) -> usize {
        self.lock().commands.len()
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the channel, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<mlx5dv_devx_cmd_comp> {
        self.channel.0
    }

    fn remember(&self, command: &Command, cookie: u64) -> u64 {
        let mut outstanding = self.lock();
        let key = outstanding.next;
        outstanding.next = key.wrapping_add(1);
        outstanding.commands.insert(key, (cookie, command.clone()));
        key
    }

    fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bytes behind the header.
fn to_bytes(buffer: &[u64]) -> Vec<u8> {
    buffer[1..].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The descriptor is readable when an answer is there. It can only be waited on.
impl AsFd for AsyncCommands {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl AsRawFd for AsyncCommands {
    fn as_raw_fd(&self) -> RawFd {
        self.readiness.as_raw_fd()
    }
}

impl Drop for RawChannel {
    fn drop(&mut self) {
        // SAFETY: this crate made the channel and destroys it once, here. The kernel handles
        // outstanding queries.
        unsafe { mlx5dv_devx_destroy_cmd_comp(self.0.as_ptr()) };
    }
}

impl fmt::Debug for AsyncCommands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCommands")
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}
