//! `struct mlx5_address`: destinations of requests that carry one.

use core::ptr::NonNull;

use mlx5::wqe::UdAddress;
use mlx5_sys::verbs::ibv_ah;

use crate::error::{Failed, caught, finish};
use crate::status::Status;

/// `struct mlx5_address`: the destination of a datagram.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Address {
    words: [u64; 6],
    kind: u32,
    reserved: u32,
}

/// The kind of an address of UD.
const DATAGRAM: u32 = 1;

impl Address {
    #[inline(always)]
    pub(crate) fn is_datagram(&self) -> bool {
        self.kind == DATAGRAM
    }

    #[inline(always)]
    pub(crate) fn to_datagram(self) -> UdAddress {
        // SAFETY: the address consists of integers of the size of the words, for which all bytes are
        // values.
        unsafe { core::mem::transmute::<[u64; 6], UdAddress>(self.words) }
    }
}

/// Makes the address of a queue pair for datagrams.
///
/// # Safety
/// `ah` is null or alive, and `address` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_address_init(
    address: *mut Address,
    ah: *mut ibv_ah,
    qpn: u32,
    qkey: u32,
) -> Status {
    finish(caught(|| {
        let (Some(address), Some(ah)) = (NonNull::new(address), NonNull::new(ah)) else {
            return Err(Failed::argument("address or ah is null"));
        };
        if qpn > 0xff_ffff {
            return Err(Failed::argument("qpn has more than 24 bits"));
        }
        crate::objects::libraries()?;
        // SAFETY: the handle is alive, by this function's contract.
        let to = unsafe { UdAddress::from_raw(ah, qpn, qkey)? };
        // SAFETY: the address consists of integers, without padding.
        let words = unsafe { core::mem::transmute::<UdAddress, [u64; 6]>(to) };
        // SAFETY: writable, by this function's contract.
        unsafe { address.write(Address { words, kind: DATAGRAM, reserved: 0 }) };
        Ok(())
    }))
}
