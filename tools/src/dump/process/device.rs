//! A device that another process has open.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use mlx5::Result;
use mlx5::devx::ifc::{cmd_out, opcode};
use mlx5::devx::{Command, ObjectContext, QueuePairFailure};
use mlx5::ib::Guid;
use mlx5::verbs::Errno;

use super::list::OpenDevice;
use super::request::Request;
use super::{failed, gone, last};

/// A copy of another process's descriptor of an opened device, for queries.
#[derive(Debug)]
pub(in crate::dump) struct ProcessDevice {
    fd: OwnedFd,
    from: OpenDevice,
    guid: Guid,
}

/// The kernel's report about a memory region: its keys, length and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dump) struct RegionKeys {
    /// The local key; its upper 24 bits are the number of the HCA's key.
    pub lkey: u32,
    /// Key for peers.
    pub rkey: u32,
    /// Bytes.
    pub length: u64,
    /// Address that requests use.
    pub address: u64,
}

/// The answer to a query of an object.
pub(super) enum Answer {
    /// Its context.
    Context(ObjectContext),
    /// The HCA refused the query.
    Refused,
    /// The kernel did not pass the query to the HCA: ENOENT or EINVAL if the handle belongs to
    /// another object, or to none.
    Withheld(Errno),
}

/// Objects of the verbs interface (`enum uverbs_default_objects`), and of mlx5's.
mod object {
    pub const DEVICE: u16 = 0;
    pub const PD: u16 = 1;
    pub const MR: u16 = 7;
    pub const DEVX: u16 = 0x1000;
    pub const DEVX_OBJ: u16 = 0x1001;
}

/// Returns why this process may not access another one.
pub(super) fn why(errno: i32) -> Option<&'static str> {
    Some(match errno {
        libc::EPERM | libc::EACCES => {
            "this user may not trace the process: be its user or root; \
             /proc/sys/kernel/yama/ptrace_scope 1 or more takes CAP_SYS_PTRACE besides"
        }
        libc::ESRCH | libc::ENOENT => "there is no such process",
        libc::EBADF => "the process has closed the descriptor meanwhile",
        libc::ENOTTY | libc::EINVAL => "the descriptor is no RDMA device of mlx5",
        libc::ENOSYS => "this kernel cannot copy descriptors of processes (Linux 5.6 can)",
        _ => return None,
    })
}

impl OpenDevice {
    /// Copies the descriptor, to query the device.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call), with the cause if this user may not access the process. ENOTTY: the
    /// descriptor is not an RDMA device. EINVAL: the device has another driver
    /// (`ib_uverbs_cmd_verbs` in `drivers/infiniband/core/uverbs_ioctl.c` compares the driver's
    /// number).
    pub fn copy(&self) -> Result<ProcessDevice> {
        let refused = |call| failed(call, last(), why(last().0));
        let own = |result: libc::c_long| {
            let fd = libc::c_int::try_from(result).ok().filter(|fd| *fd >= 0)?;
            // SAFETY: the system call has just made the descriptor, so nothing else owns it.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        // SAFETY: `pidfd_open` passes no memory.
        let process = own(unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) })
            .ok_or_else(|| refused("pidfd_open"))?;
        // SAFETY: `pidfd_getfd` passes no memory.
        let fd = own(unsafe {
            libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), self.descriptor, 0)
        })
        .ok_or_else(|| refused("pidfd_getfd"))?;
        let mut device = ProcessDevice { fd, from: *self, guid: Guid(0) };
        device.guid = device
            .node_guid()
            .map_err(|errno| failed("ioctl(RDMA_VERBS_IOCTL)", errno, why(errno.0)))?;
        Ok(device)
    }
}

impl ProcessDevice {
    /// Returns the process and the descriptor from which the copy was made.
    pub fn origin(&self) -> OpenDevice {
        self.from
    }

    /// Returns the device's GUID, which finds it among [`devices`](mlx5::verbs::devices).
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Queries the HCA for the context of the object with a handle and a number, for example a
    /// queue pair or a CQ. `made_by` is the opcode that makes such objects
    /// ([`opcode::CREATE_QP`]).
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub(super) fn object_context(&self, handle: u32, made_by: u16, number: u32) -> Result<Answer> {
        let Some(command) = ObjectContext::command(made_by, number) else {
            return Ok(Answer::Withheld(Errno(libc::EOPNOTSUPP)));
        };
        let (made, reply) = self.query(handle, &command)?;
        // The kernel may turn a refusal into an errno, so the reply is checked first.
        if cmd_out::STATUS.get(&reply) != 0 {
            return Ok(Answer::Refused);
        }
        Ok(match made {
            Ok(()) => {
                ObjectContext::from_reply(made_by, &reply).map_or(Answer::Refused, Answer::Context)
            }
            Err(errno) => Answer::Withheld(errno),
        })
    }

    /// Returns why the queue pair with a handle and a number failed. `None` if it did not, or the HCA
    /// does not tell.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub(super) fn failure(&self, handle: u32, number: u32) -> Result<Option<QueuePairFailure>> {
        let (made, reply) = self.query(handle, &QueuePairFailure::command(number))?;
        let told = made.is_ok() && cmd_out::STATUS.get(&reply) == 0;
        Ok(QueuePairFailure::from_reply(&reply).filter(|_| told))
    }

    /// Executes a command that queries the object with a handle. Returns what the kernel said, and the
    /// HCA's reply.
    fn query(
        &self,
        handle: u32,
        command: &Command,
    ) -> Result<(std::result::Result<(), Errno>, Vec<u8>)> {
        let mut reply = vec![0; command.reply_size()];
        let made = Request::new(object::DEVX_OBJ, 0x1003)
            .handle(0x1000, handle)
            .input(0x1001, command.as_bytes())
            .output(0x1002, &mut reply)
            .make(self.fd.as_fd());
        match made {
            Err(errno) if gone(errno).is_some() => {
                Err(failed("ioctl(DEVX_OBJ_QUERY)", errno, gone(errno)))
            }
            made => Ok((made, reply)),
        }
    }

    /// Returns whether commands reach the HCA at all: whether the process opened the device with
    /// DevX. If it did not, the kernel refuses each command with EINVAL before it looks at its
    /// object (`devx_get_uid` in `drivers/infiniband/hw/mlx5/devx.c`). It answers commands that
    /// name another object in the same way. So the check executes NOP, which names no object.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn takes_commands(&self) -> Result<bool> {
        /// Length of NOP, and of its reply.
        const BYTES: usize = 16;
        let command = Command::new(opcode::NOP, BYTES);
        let mut reply = [0; BYTES];
        let made = Request::new(object::DEVX, 0x1000)
            .input(0x1000, command.as_bytes())
            .output(0x1001, &mut reply)
            .make(self.fd.as_fd());
        match made {
            // The HCA itself refused the command, so the command reached it.
            Err(Errno(libc::EREMOTEIO)) => Ok(true),
            made => there(made),
        }
    }

    /// Returns whether a handle belongs to any object, by a query with a wrong number. The kernel
    /// answers ENOENT if there is no object, EINVAL if there is one (`devx_is_valid_obj_id`). The
    /// result is valid only where [`takes_commands`](Self::takes_commands) is true.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn is_object(&self, handle: u32) -> Result<bool> {
        /// No object has this number: numbers have 24 bits.
        const NOBODY: u32 = 0xff_ffff;
        Ok(match self.object_context(handle, opcode::CREATE_CQ, NOBODY)? {
            Answer::Context(_) | Answer::Refused => true,
            Answer::Withheld(errno) => errno == Errno(libc::EINVAL),
        })
    }

    /// Returns the keys of the memory region of a handle; `None` if it is not a region.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn region(&self, handle: u32) -> Result<Option<RegionKeys>> {
        let (mut lkey, mut rkey) = ([0; 4], [0; 4]);
        let (mut length, mut address) = ([0; 8], [0; 8]);
        let made = Request::new(object::MR, 3)
            .handle(0, handle)
            .output(1, &mut lkey)
            .output(2, &mut rkey)
            .output(3, &mut length)
            .output(4, &mut address)
            .make(self.fd.as_fd());
        if !there(made)? {
            return Ok(None);
        }
        Ok(Some(RegionKeys {
            lkey: u32::from_ne_bytes(lkey),
            rkey: u32::from_ne_bytes(rkey),
            length: u64::from_ne_bytes(length),
            address: u64::from_ne_bytes(address),
        }))
    }

    /// Returns the number of the protection domain of a handle; `None` if it is not a domain.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn protection_domain(&self, handle: u32) -> Result<Option<u32>> {
        let mut number = [0; 4];
        let made = Request::new(object::PD, 0x1000)
            .handle(0x1000, handle)
            .output(0x1001, &mut number)
            .make(self.fd.as_fd());
        Ok(there(made)?.then(|| u32::from_ne_bytes(number)))
    }

    /// Returns whether a handle belongs to a queue pair that verbs made. The kernel does not tell
    /// for targets of dynamic connections: it refuses queries of all their attributes
    /// (`mlx5_ib_dct_query_qp`).
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn is_queue_pair(&self, handle: u32) -> Result<bool> {
        /// `IB_USER_VERBS_CMD_QUERY_QP`
        const QUERY_QP: u64 = 25;
        /// `struct ib_uverbs_query_qp_resp`, without driver data.
        const REPLY: usize = 128;
        // The request: the response's address (unused: `invoke` passes the reply), the handle, and
        // the mask of all attributes.
        let mut query = [0; 16];
        query[8..12].copy_from_slice(&handle.to_ne_bytes());
        query[12..].copy_from_slice(&0x1f_ffffu32.to_ne_bytes());
        let mut reply = [0; REPLY];
        there(self.invoke(QUERY_QP, &query, &mut reply))
    }

    /// Returns whether a handle belongs to a shared receive queue that verbs made.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) where the device is gone.
    pub fn is_shared_receive_queue(&self, handle: u32) -> Result<bool> {
        /// `IB_USER_VERBS_CMD_QUERY_SRQ`
        const QUERY_SRQ: u64 = 34;
        // The request: the response's address (unused: `invoke` passes the reply), the handle, and
        // reserved bytes.
        let mut query = [0; 16];
        query[8..12].copy_from_slice(&handle.to_ne_bytes());
        // `struct ib_uverbs_query_srq_resp`
        let mut reply = [0; 16];
        there(self.invoke(QUERY_SRQ, &query, &mut reply))
    }

    fn node_guid(&self) -> std::result::Result<Guid, Errno> {
        /// `IB_USER_VERBS_CMD_QUERY_DEVICE`, and its reply: version of the firmware, GUID.
        const QUERY_DEVICE: u64 = 1;
        const REPLY: usize = 176;
        let mut reply = [0; REPLY];
        self.invoke(QUERY_DEVICE, &[0; 8], &mut reply)?;
        let mut guid = [0; 8];
        guid.copy_from_slice(&reply[8..16]);
        Ok(Guid(u64::from_be_bytes(guid)))
    }

    /// Executes a command of the older interface (`UVERBS_METHOD_INVOKE_WRITE`).
    fn invoke(
        &self,
        number: u64,
        input: &[u8],
        reply: &mut [u8],
    ) -> std::result::Result<(), Errno> {
        Request::new(object::DEVICE, 0)
            .input(0, input)
            .output(1, reply)
            .input(2, &number.to_ne_bytes())
            .make(self.fd.as_fd())
    }
}

/// Returns whether the queried object exists; an error if the device does not.
fn there(made: std::result::Result<(), Errno>) -> Result<bool> {
    match made {
        Ok(()) => Ok(true),
        Err(errno) if gone(errno).is_some() => {
            Err(failed("ioctl(RDMA_VERBS_IOCTL)", errno, gone(errno)))
        }
        Err(_) => Ok(false),
    }
}

/// The commands that create shared receive queues. They tell the kinds apart.
pub(super) const SHARED_RECEIVES: [u16; 4] =
    [opcode::CREATE_RMP, opcode::CREATE_XRC_SRQ, opcode::CREATE_XRQ, opcode::CREATE_SRQ];
