//! Network namespaces.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes a command run in a new network namespace, as root of a new user namespace. There it meets
/// no other process on the model.
pub fn isolate(command: &mut Command) {
    let mut probe = Command::new("ip");
    enter(probe.args(["link", "set", "lo", "up"]));
    let probe = probe.status();
    assert!(
        probe.as_ref().is_ok_and(|status| status.success()),
        "this test needs a network namespace, which may not be made here ({probe:?}): install \
         iproute2, and run it as root, or allow user namespaces (`sysctl \
         kernel.unprivileged_userns_clone=1`, `sysctl user.max_user_namespaces=1000`, and in a \
         container a seccomp profile that lets unshare through)"
    );
    enter(command);
}

fn enter(command: &mut Command) {
    // SAFETY: both calls always succeed.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let text = |text: String| CString::new(text).expect("no zero");
    let files = [
        (c"/proc/self/uid_map", text(format!("0 {user} 1"))),
        (c"/proc/self/setgroups", text("deny".into())),
        (c"/proc/self/gid_map", text(format!("0 {group} 1"))),
    ];
    let isolate = move || {
        // SAFETY: only system calls, as has to be between fork and exec; strings are there.
        unsafe {
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
                return Err(io::Error::last_os_error());
            }
            for (name, content) in &files {
                let file = libc::open(name.as_ptr(), libc::O_WRONLY);
                let length = content.as_bytes().len();
                if file < 0 || libc::write(file, content.as_ptr().cast(), length) < 0 {
                    return Err(io::Error::last_os_error());
                }
                libc::close(file);
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only system calls, as required between fork and exec.
    unsafe { command.pre_exec(isolate) };
}
