//! `struct mlx5_address`: destinations of requests that carry one, on UD, DC and XRC.

use core::ptr::NonNull;

use mlx5::wqe::{DcAddress, UdAddress, XrcAddress};
use mlx5_sys::verbs::ibv_ah;

use crate::error::{Failed, Result, caught, finish};
use crate::status::Status;

/// `struct mlx5_address`: the destination of a request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Address {
    words: [u64; WORDS],
    kind: u32,
    reserved: u32,
}

/// Words of an address vector.
const WORDS: usize = 6;

// Kinds of an address. Cleared memory is none.
const DATAGRAM: u32 = 1;
const DYNAMIC: u32 = 2;
const XRC: u32 = 3;

const _: () = assert!(size_of::<UdAddress>() == 8 * WORDS);
// Its vector, its stream, and padding.
const _: () = assert!(size_of::<DcAddress>() == 8 * WORDS + 16);

impl Address {
    const fn new(words: [u64; WORDS], kind: u32) -> Self {
        Self { words, kind, reserved: 0 }
    }

    /// Returns the address if it is of this kind.
    ///
    /// # Safety
    /// `address` is null or readable.
    #[inline(always)]
    unsafe fn of_kind<'a>(address: *const Self, kind: u32, what: &'static str) -> Result<&'a Self> {
        // SAFETY: this function's contract.
        match unsafe { address.as_ref() } {
            Some(address) if address.kind == kind => Ok(address),
            _ => Err(Failed::argument(what)),
        }
    }

    /// # Safety
    /// `address` is null or readable.
    #[inline(always)]
    pub(crate) unsafe fn datagram(address: *const Self) -> Result<UdAddress> {
        const WHAT: &str = "address is null or not one of UD: make it by mlx5_address_init";
        // SAFETY: this function's contract.
        let address = unsafe { Self::of_kind(address, DATAGRAM, WHAT)? };
        // SAFETY: the address consists of integers of the size of the words, for which all bytes are
        // values.
        Ok(unsafe { core::mem::transmute::<[u64; WORDS], UdAddress>(address.words) })
    }

    /// # Safety
    /// `address` is null or readable.
    #[inline(always)]
    pub(crate) unsafe fn dynamic(address: *const Self) -> Result<DcAddress> {
        const WHAT: &str = "address is null or not one of DC: make it by mlx5_address_init_dc";
        // SAFETY: this function's contract.
        let [a, b, c, d, e, f] = unsafe { Self::of_kind(address, DYNAMIC, WHAT)? }.words;
        // SAFETY: the address consists of integers and padding of the size of the words, for which all
        // bytes are values. The stream, which is last, is 0.
        Ok(unsafe { core::mem::transmute::<[u64; WORDS + 2], DcAddress>([a, b, c, d, e, f, 0, 0]) })
    }

    /// # Safety
    /// `address` is null or readable.
    #[inline(always)]
    pub(crate) unsafe fn xrc(address: *const Self) -> Result<XrcAddress> {
        const WHAT: &str = "address is null or not one of XRC: make it by mlx5_address_init_xrc";
        // SAFETY: this function's contract.
        let address = unsafe { Self::of_kind(address, XRC, WHAT)? };
        Ok(XrcAddress::new(address.words[0] as u32))
    }
}

/// Makes an address by `of`, which is given the handle of libibverbs.
///
/// # Safety
/// `ah` is null or alive, and `address` null or writable.
unsafe fn make(
    address: *mut Address,
    ah: *mut ibv_ah,
    number: (&'static str, u32),
    of: impl FnOnce(NonNull<ibv_ah>) -> Result<Address>,
) -> Status {
    finish(caught(|| {
        let (Some(address), Some(ah)) = (NonNull::new(address), NonNull::new(ah)) else {
            return Err(Failed::argument("address or ah is null"));
        };
        if number.1 > 0xff_ffff {
            return Err(Failed::argument(number.0));
        }
        crate::objects::libraries()?;
        let made = of(ah)?;
        // SAFETY: writable, by this function's contract.
        unsafe { address.write(made) };
        Ok(())
    }))
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
    const QPN: &str = "qpn has more than 24 bits";
    let of = |ah| {
        // SAFETY: the handle is alive, by this function's contract.
        let to = unsafe { UdAddress::from_raw(ah, qpn, qkey)? };
        // SAFETY: the address consists of integers, without padding.
        let words = unsafe { core::mem::transmute::<UdAddress, [u64; WORDS]>(to) };
        Ok(Address::new(words, DATAGRAM))
    };
    // SAFETY: this function's contract.
    unsafe { make(address, ah, (QPN, qpn), of) }
}

/// Makes the address of a target of dynamic connections. See `mlx5.h`.
///
/// # Safety
/// `ah` is null or alive, and `address` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_address_init_dc(
    address: *mut Address,
    ah: *mut ibv_ah,
    dctn: u32,
    access_key: u64,
) -> Status {
    const DCTN: &str = "dctn has more than 24 bits";
    let of = |ah| {
        // SAFETY: the handle is alive, by this function's contract.
        let to = unsafe { DcAddress::from_raw(ah, dctn, access_key)? };
        // SAFETY: its first bytes are the vector, which has no padding.
        let words = unsafe { (&raw const to).cast::<[u64; WORDS]>().read() };
        Ok(Address::new(words, DYNAMIC))
    };
    // SAFETY: this function's contract.
    unsafe { make(address, ah, (DCTN, dctn), of) }
}

/// Makes the address of a shared receive queue of an XRC domain. See `mlx5.h`.
///
/// # Safety
/// `address` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlx5_address_init_xrc(address: *mut Address, srqn: u32) -> Status {
    finish(caught(|| {
        let Some(address) = NonNull::new(address) else {
            return Err(Failed::argument("address is null"));
        };
        if srqn > 0xff_ffff {
            return Err(Failed::argument("srqn has more than 24 bits"));
        }
        // SAFETY: writable, by this function's contract.
        unsafe { address.write(Address::new([srqn.into(), 0, 0, 0, 0, 0], XRC)) };
        Ok(())
    }))
}
