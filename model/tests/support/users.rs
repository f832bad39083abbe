//! Other users of the machine, as children of a process that may change to any user.

use std::fs;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::Command;

use super::role::Player;

/// User ids that own no files otherwise. In a user namespace of a usual size they exist.
pub const ATTACKER: u32 = 22_222;
pub const VICTIM: u32 = 22_223;

/// Plays a role that can become any user.
pub fn as_root(role: &str) {
    // SAFETY: always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    let through = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--map-auto"]);
        command
    };
    let player = if root {
        Player::of(role)
    } else {
        let probe = through().arg("true").status();
        assert!(
            probe.as_ref().is_ok_and(|status| status.success()),
            "this test needs a second user, who may not be had here ({probe:?}): run it as root, \
             or install uidmap and give this user a range of 65536 in /etc/subuid and /etc/subgid"
        );
        let executable = std::env::current_exe().expect("the test knows its executable");
        let mut command = through();
        command.arg(executable);
        Player::start(Player::through(command, role))
    };
    player.end_well();
}

/// Does work as a user, in a child, once it is told to.
pub struct As {
    pub child: libc::pid_t,
    go: fs::File,
}

impl As {
    /// A child that becomes the user and waits.
    pub fn user(user: u32, work: impl FnOnce()) -> Self {
        let mut ends = [0; 2];
        // SAFETY: the array holds the two descriptors, which have no other owner.
        let (mut wait, go) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (fs::File::from_raw_fd(ends[0]), fs::File::from_raw_fd(ends[1]))
        };
        // SAFETY: the C library keeps its own state whole, and the model its own.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            drop(go);
            let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                // SAFETY: the list of groups is empty; nothing else passes memory.
                unsafe {
                    assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                    assert_eq!(libc::setresgid(user, user, user), 0);
                    assert_eq!(libc::setresuid(user, user, user), 0);
                }
                // Ends when the parent closes its end.
                assert_eq!(wait.read(&mut [0; 1]).expect("a pipe"), 0);
                work();
            }));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(worked.is_err().into()) };
        }
        Self { child, go }
    }

    /// Lets it go on, and waits for its good end.
    #[track_caller]
    pub fn runs(self) {
        drop(self.go);
        let mut status = 1;
        // SAFETY: the status is there.
        assert_eq!(unsafe { libc::waitpid(self.child, &mut status, 0) }, self.child);
        assert_eq!(status, 0, "the child failed");
    }
}
