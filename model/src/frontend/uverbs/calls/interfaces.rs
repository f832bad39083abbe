//! Interposed functions on network interfaces: programs ask for the interface of a RoCE port by its name or
//! number. Answers about views come from here, all others from the C library.

use libc::{c_char, c_uint, c_ulong};

use super::super::driver::running::Running;
use super::super::process::errno::{Errno, Result, set_errno};
use super::super::process::{real, user};
use super::super::tree::discovery::{Discovery, discovery};
use super::super::tree::netdev::{NAME, Netdev, may_be_view, may_be_view_number};
use super::super::tree::table::GidTable;
use crate::wire::gid;

/// Bytes of `struct ifreq` behind the name that a short answer fills.
const VALUE: usize = size_of::<libc::sockaddr>();
/// Requests that are answered for a view.
const ASKED: std::ops::RangeInclusive<c_ulong> = libc::SIOCGIFNAME..=libc::SIOCGIFINDEX;

/// Returns the view that `fits`, also one of a VLAN, as it is now.
fn view(fits: impl Fn(&Netdev) -> bool) -> Option<Netdev> {
    let Discovery::On(offer) = discovery() else { return None };
    let ports = offer.devices.iter().enumerate();
    let mut views = ports.flat_map(|(number, device)| {
        let own = device.netdev.as_ref().filter(|own| own.is_view);
        own.map_or_else(Vec::new, |own| views_of(number, own))
    });
    views.find(fits)
}

/// Returns the view of a port, and those of VLANs on top of it.
fn views_of(number: usize, own: &Netdev) -> Vec<Netdev> {
    let function = Running::current().and_then(|running| running.functions.get(number));
    let Some(function) = function else { return vec![own.clone()] };
    let GidTable { entries, vlans } = function.gids();
    let untagged = entries.iter().filter(|entry| entry.vlan.is_none()).map(|entry| &entry.gid);
    let now = Netdev { ipv4: gid::first_ipv4(untagged), ..own.clone() };
    let of_vlans = vlans.iter().map(|vlan| own.of_vlan(vlan));
    std::iter::once(now).chain(of_vlans).collect()
}

fn view_named(name: &[u8]) -> Option<Netdev> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if may_be_view(name) { view(|netdev| netdev.name.as_bytes() == name) } else { None }
}

fn view_numbered(index: u32) -> Option<Netdev> {
    if may_be_view_number(index) { view(|netdev| netdev.index == index) } else { None }
}

/// Answers a request of `ioctl` about a view (`netdevice(7)`). `None` if it is about anything else.
pub(super) fn asked(request: c_ulong, argument: u64) -> Option<Result<()>> {
    if !ASKED.contains(&request) {
        return None;
    }
    let name = user::read(argument, NAME + VALUE).ok()?;
    let (name, value) = name.split_at(NAME);
    let at = argument + NAME as u64;
    if request == libc::SIOCGIFNAME {
        let found = view_numbered(u32::from_ne_bytes(*value.first_chunk()?))?;
        return Some(user::write(argument, &padded(&found.name)));
    }
    let found = view_named(name)?;
    let Some(answer) = answer(&found, request) else { return Some(Err(Errno(libc::EOPNOTSUPP))) };
    Some(answer.and_then(|answer| user::write(at, &answer)))
}

fn padded(name: &str) -> [u8; NAME] {
    let mut padded = [0; NAME];
    let room = padded.iter_mut().zip(name.bytes().take(NAME - 1));
    room.for_each(|(to, from)| *to = from);
    padded
}

/// Returns what a request writes behind the name. `None` for requests that a view does not know.
fn answer(of: &Netdev, request: c_ulong) -> Option<Result<Vec<u8>>> {
    let address = |ip: [u8; 4]| {
        let mut address = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        address.extend([0, 0]);
        address.extend(ip);
        address.resize(VALUE, 0);
        address
    };
    let own = of.ipv4.ok_or(Errno(libc::EADDRNOTAVAIL));
    Some(match request {
        libc::SIOCGIFINDEX => Ok(of.index.to_ne_bytes().to_vec()),
        libc::SIOCGIFMTU => Ok(of.mtu.to_ne_bytes().to_vec()),
        libc::SIOCGIFFLAGS => Ok((of.flags() as u16).to_ne_bytes().to_vec()),
        libc::SIOCGIFHWADDR => {
            let mut address = libc::ARPHRD_ETHER.to_ne_bytes().to_vec();
            address.extend(of.mac);
            address.resize(VALUE, 0);
            Ok(address)
        }
        libc::SIOCGIFADDR => own.map(|ip| address(ip.octets())),
        // Ports are in one network of 256 addresses.
        libc::SIOCGIFNETMASK => own.map(|_| address([255, 255, 255, 0])),
        _ => return None,
    })
}

/// `if_nametoindex`, which the model looks at first.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the caller guarantees a C string.
    let text = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
    match view_named(text) {
        Some(found) => found.index,
        // SAFETY: the caller guarantees a C string.
        None => unsafe { real::if_nametoindex(name) },
    }
}

/// `if_indextoname`, which the model looks at first.
///
/// # Safety
/// `to` has room for a name, `IFNAMSIZ` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn if_indextoname(index: c_uint, to: *mut c_char) -> *mut c_char {
    let Some(found) = view_numbered(index) else {
        // SAFETY: the caller guarantees the room.
        return unsafe { real::if_indextoname(index, to) };
    };
    match user::write(to as u64, &padded(&found.name)) {
        Ok(()) => to,
        Err(error) => {
            set_errno(error.0);
            std::ptr::null_mut()
        }
    }
}
