//! Firmware commands by the kernel's fwctl interface (Linux 6.15 and later, module `mlx5_fwctl`).
//!
//! The layout of the call is that of `include/uapi/fwctl/fwctl.h`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

/// `FWCTL_RPC`: type 0x9a, number 1, no size.
const FWCTL_RPC: libc::c_ulong = 0x9a01;
/// `FWCTL_RPC_DEBUG_READ_ONLY`.
const READ_ONLY: u32 = 1;

/// `struct fwctl_rpc`.
#[repr(C)]
struct Rpc {
    size: u32,
    scope: u32,
    in_len: u32,
    out_len: u32,
    input: u64,
    output: u64,
}

/// The opened fwctl device of a function.
pub struct Fwctl {
    file: File,
    node: String,
}

impl Fwctl {
    /// Opens the fwctl device of an RDMA device, whose folder this is.
    ///
    /// # Errors
    /// Why there is none, or none may be opened.
    pub fn find(device: &Path) -> Result<Fwctl, String> {
        let folder = device.join("device/fwctl");
        let entry = fs::read_dir(folder).ok().and_then(|mut entries| entries.next()?.ok());
        let Some(entry) = entry else {
            return Err(
                "no fwctl: it takes Linux 6.15 or later and `modprobe mlx5_fwctl`".to_owned()
            );
        };
        let node = format!("/dev/fwctl/{}", entry.file_name().to_string_lossy());
        match File::options().read(true).write(true).open(&node) {
            Ok(file) => Ok(Fwctl { file, node }),
            Err(error) => Err(format!("{node}: {error}")),
        }
    }

    /// Executes a command that reads, and returns the reply.
    ///
    /// # Errors
    /// The kernel's errno, or the status of the firmware.
    pub fn execute(&self, command: &[u8], reply: usize) -> Result<Vec<u8>, String> {
        let mut output = vec![0u8; reply];
        let mut rpc = Rpc {
            size: size_of::<Rpc>() as u32,
            scope: READ_ONLY,
            in_len: command.len() as u32,
            out_len: reply as u32,
            input: command.as_ptr() as u64,
            output: output.as_mut_ptr() as u64,
        };
        // SAFETY: the kernel reads `in_len` bytes of `command`, writes at most `out_len` bytes to
        // `output`, and both live through the call.
        if unsafe { libc::ioctl(self.file.as_raw_fd(), FWCTL_RPC, &mut rpc) } != 0 {
            return Err(format!("{}: {}", self.node, io::Error::last_os_error()));
        }
        // The kernel returns 0 for what the firmware refused, too.
        match output.first() {
            Some(0) => Ok(output),
            status => Err(format!("{}: the firmware's status is {status:?}", self.node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_fwctl_is_told_what_it_takes() {
        let error = Fwctl::find(Path::new("/nonexistent")).err().unwrap();
        assert!(error.contains("Linux 6.15") && error.contains("mlx5_fwctl"), "{error}");
    }

    #[test]
    fn a_call_that_the_kernel_refuses_names_node_and_cause() {
        assert_eq!(size_of::<Rpc>(), 32);
        let null = Fwctl { file: File::open("/dev/null").unwrap(), node: "/dev/null".to_owned() };
        let error = null.execute(&[0; 16], 16).unwrap_err();
        assert!(error.starts_with("/dev/null: Inappropriate ioctl"), "{error}");
    }
}
