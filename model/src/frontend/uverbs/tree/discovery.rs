//! The decision whether the model offers devices, and which: made once, when a program first looks
//! for RDMA devices.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use super::super::process::trap;
use super::config::{self, Config, When};
use super::identity::Device;
use super::sysfs::{self, NODE, Tree};
use crate::card::Identity;
use crate::engine::identities;
use crate::fabric::udp::Interface;
use crate::private::{complain, files};

/// The decision.
#[derive(Debug)]
pub(crate) enum Discovery {
    /// The program sees only the kernel's devices, if any.
    Off,
    /// The model cannot be offered; this reason has been written to stderr.
    Refused(String),
    /// The model is offered.
    On(Box<Offer>),
}

/// The model's devices and configuration.
#[derive(Debug)]
pub(crate) struct Offer {
    pub config: Config,
    /// The interface of each device, if their ports are on interfaces.
    pub interfaces: Vec<Interface>,
    pub devices: Vec<Device>,
    pub tree: Tree,
}

/// Set if another copy of the model, linked into the executable, is used instead.
static YIELDED: AtomicBool = AtomicBool::new(false);

/// Disables a copy of the model that was loaded after the caller's copy.
///
/// A program that has the model linked in may be run with the model preloaded as well. Every call
/// reaches the copy in the executable first. That copy finds the other one through this symbol.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5_model_yield() {
    YIELDED.store(true, Ordering::Release);
}

/// Returns whether this copy has been disabled.
pub(super) fn yielded() -> bool {
    YIELDED.load(Ordering::Acquire)
}

/// Returns whether this copy of the library observes. Its model is off then.
pub(crate) fn observes() -> bool {
    const NO: u8 = 1;
    const YES: u8 = 2;
    static DECIDED: AtomicU8 = AtomicU8::new(0);
    match DECIDED.load(Ordering::Acquire) {
        NO => false,
        YES => true,
        _ => {
            let observes = config::observed().is_some() && trap::AVAILABLE && is_first();
            DECIDED.store(if observes { YES } else { NO }, Ordering::Release);
            observes
        }
    }
}

/// Whether the program's calls reach this copy of the library before any other.
fn is_first() -> bool {
    /// Returns where the file that has an address is loaded.
    fn base(address: *const c_void) -> Option<*mut c_void> {
        // SAFETY: zeros are a value of the structure, which the call fills.
        let (found, info) = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(address, &mut info), info)
        };
        (found != 0).then_some(info.dli_fbase)
    }
    // SAFETY: the call reads the name, a C string.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ioctl".as_ptr()) };
    // A variable of this copy, which no other copy replaces.
    let own = (&raw const YIELDED).cast();
    base(first).is_some_and(|first| base(own) == Some(first))
}

/// Returns the decision, making it at the first call.
pub(crate) fn discovery() -> &'static Discovery {
    // Not a OnceLock: a thread may be deciding while another one forks, and the child must not wait
    // for it. Two threads that decide at once reach the same decision.
    static DECIDED: AtomicPtr<Discovery> = AtomicPtr::new(std::ptr::null_mut());
    if yielded() || observes() {
        return &Discovery::Off;
    }
    // SAFETY: the pointer is null, or it comes from a box that is leaked below.
    if let Some(decided) = unsafe { DECIDED.load(Ordering::Acquire).as_ref() } {
        return decided;
    }
    silence_next();
    let decided = decide().unwrap_or_else(Discovery::Refused);
    let ours = Box::into_raw(Box::new(decided));
    let nothing = std::ptr::null_mut();
    match DECIDED.compare_exchange(nothing, ours, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: the pointer comes from a box that was stored just now and is never freed.
            let ours = unsafe { &*ours };
            if let Discovery::Refused(reason) = ours {
                complain!("no device is offered: {reason}");
            }
            ours
        }
        Err(first) => {
            // SAFETY: `ours` was not stored, so no other thread has seen it. The other thread's box
            // was stored, and is never freed.
            unsafe {
                drop(Box::from_raw(ours));
                &*first
            }
        }
    }
}

fn decide() -> Result<Discovery, String> {
    let config = Config::from_environment()?;
    match config.when {
        When::Never => return Ok(Discovery::Off),
        When::Auto if sysfs::hardware() => return Ok(Discovery::Off),
        When::Auto | When::Always => {}
    }
    let names = &config.network.interfaces;
    let find = |name: &String| Interface::find(name, config.network.carrier);
    let found: Result<Vec<_>, _> = names.iter().map(find).collect();
    let interfaces =
        found.map_err(|error| format!("MLX5_MODEL_NETWORK={}: {error}", config.network))?;
    sysfs::check_node(NODE)?;
    check_processes()?;
    let devices: Vec<Device> = named(&config, &interfaces, 0)
        .enumerate()
        .map(|(index, identity)| Device::new(index, &identity, interfaces.get(index)))
        .collect();
    let tree = Tree::new(&devices, config.node)
        .map_err(|error| format!("the folder that stands for sysfs cannot be made: {error}"))?;
    Ok(Discovery::On(Box::new(Offer { config, interfaces, devices, tree })))
}

/// Processes on the model find each other, and their own files, in `/proc`.
fn check_processes() -> Result<(), String> {
    files::about("/proc/self/fd").map(drop).map_err(|error| {
        format!(
            "/proc, in which processes on the model find each other, is not there ({error}); mount it: \
             `mount -t proc proc /proc`"
        )
    })
}

impl Offer {
    /// Returns the identities of the devices, whose randomness starts from `seed`.
    pub fn identities(&self, seed: u64) -> impl Iterator<Item = Identity> {
        named(&self.config, &self.interfaces, seed)
    }
}

fn named(config: &Config, interfaces: &[Interface], seed: u64) -> impl Iterator<Item = Identity> {
    identities(config.devices, config.link, seed).into_iter().enumerate().map(
        move |(index, identity)| {
            let identity = config.applied_to(identity);
            match interfaces.get(index) {
                Some(interface) => interface.applied_to(identity),
                None => identity,
            }
        },
    )
}

/// Disables the copy that was loaded after this one, if there is one.
fn silence_next() {
    // SAFETY: the call reads the name, a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"mlx5_model_yield".as_ptr()) };
    let own = mlx5_model_yield as extern "C" fn() as *mut c_void;
    if !next.is_null() && next != own {
        // SAFETY: only a copy of the model has a symbol of this name, a function of this type.
        let silence = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(next) };
        silence();
    }
}

/// The place to look a path up.
pub(crate) enum Redirect {
    /// At the path itself.
    No,
    /// At this path in the tree.
    To(CString),
    /// Nowhere: the call fails with this errno.
    Refused(i32),
}

/// Returns the place to look a path up. Costs a comparison of a few bytes for foreign paths.
///
/// # Safety
/// `path` is null or a C string.
pub(crate) unsafe fn redirect(path: *const libc::c_char) -> Redirect {
    if path.is_null() {
        return Redirect::No;
    }
    // SAFETY: `path` is not null, so the caller guarantees a C string.
    let path = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    if !sysfs::concerns(path) {
        return Redirect::No;
    }
    match discovery() {
        Discovery::Off => Redirect::No,
        Discovery::Refused(_) => Redirect::Refused(libc::ENODEV),
        Discovery::On(offer) => match offer.tree.redirect(path) {
            None => Redirect::No,
            Some(path) => match CString::new(path.into_os_string().into_vec()) {
                Ok(path) => Redirect::To(path),
                Err(_) => Redirect::Refused(libc::EINVAL),
            },
        },
    }
}
