//! Address handles: destinations of datagrams.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_sys::dv;
use mlx5_sys::verbs::{ibv_ah, ibv_create_ah, ibv_destroy_ah};
use mlx5_sys::wqe::AvSeg;

use super::{AddressVector, ProtectionDomain};
use crate::error::{Cause, Errno, Error, Result, non_null};
use crate::wqe::{DcAddress, UdAddress};

/// A destination of datagrams, as requests of an addressed transport encode it before their
/// payload.
///
/// Creating one is a system call on RoCE, where the kernel looks up the MAC address of the GID. On
/// InfiniBand it takes no system call. Requests hold a copy of the HCA's part, so the handle may be
/// dropped once the addresses are made from it. On RoCEv2, for a flow label of 0, libmlx5 chooses a
/// random UDP source port. For another flow label, the port follows from the label.
///
/// Clones are cheap and name the same handle. It is destroyed after its last clone is dropped.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::verbs::AddressHandle;
/// use mlx5::wqe::UdAddress;
///
/// # let peer = LocalPort::new(&context, 1, None)?.connection_data_of(0x123);
/// let local = LocalPort::new(&context, 1, None)?;
/// // `peer` came from the other side, as its `ConnectionData`.
/// let handle = AddressHandle::new(&pd, &local.address(&peer))?;
/// assert_eq!(handle.address().port, 1);
/// let to = UdAddress::new(&handle, peer.qpn, 0x1234);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("ibv_ah", "ibv_destroy_ah"))]
#[derive(Clone)]
pub struct AddressHandle {
    inner: Arc<HandleInner>,
}

/// An address handle of libibverbs.
struct HandleInner {
    ah: NonNull<ibv_ah>,
    vector: AvSeg,
    address: AddressVector,
    /// Freed after the handle.
    pd: ProtectionDomain,
}

// SAFETY: libibverbs allows calls on one AH from several threads; this crate only destroys it.
unsafe impl Send for HandleInner {}
// SAFETY: a shared reference only gives out numbers and the raw pointer, which do not change.
unsafe impl Sync for HandleInner {}

impl Drop for HandleInner {
    fn drop(&mut self) {
        // SAFETY: this crate created the AH and destroys it once, here, while its PD is alive.
        unsafe { ibv_destroy_ah(self.ah.as_ptr()) };
    }
}

impl AddressHandle {
    /// Creates a handle for `address`: a port, or a multicast group.
    ///
    /// # Errors
    /// [`Error::PortNotActive`], [`Error::GidRequired`], [`Error::GidEmpty`], [`Error::GidKind`],
    /// [`Error::Attribute`]; [`Error::Call`], on RoCE also if the MAC address of the GID is not
    /// known.
    #[doc(alias = "ibv_create_ah")]
    pub fn new(pd: &ProtectionDomain, address: &AddressVector) -> Result<AddressHandle> {
        address.check_datagram(pd.context())?;
        let mut raw = address.to_raw();
        // SAFETY: the PD is alive, and the attributes live through the call.
        let ah = unsafe { ibv_create_ah(pd.as_raw().as_ptr(), &mut raw) };
        let ah = non_null("ibv_create_ah", ah).map_err(|error| {
            let unresolved = error.errno() == Some(Errno(libc::ETIMEDOUT));
            error.because(unresolved.then_some(Cause::Known(
                "nobody answered to the destination GID's IP address on the network device of the \
                 source GID",
            )))
        })?;
        // Dropping `inner` destroys the AH if a later step fails.
        let mut inner = HandleInner {
            ah,
            vector: zerocopy::FromZeros::new_zeroed(),
            address: *address,
            pd: pd.clone(),
        };
        // SAFETY: the handle was just made.
        inner.vector = unsafe { vector(ah)? };
        Ok(AddressHandle { inner: Arc::new(inner) })
    }

    /// Returns its destination.
    pub fn address(&self) -> &AddressVector {
        &self.inner.address
    }

    /// Returns its protection domain.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// Returns the handle, for calls that this crate does not wrap. It lives as long as `self`.
    pub fn as_raw(&self) -> NonNull<ibv_ah> {
        self.inner.ah
    }

    /// Returns the address vector of requests, without the queue pair's number and key.
    pub(crate) fn vector(&self) -> &AvSeg {
        &self.inner.vector
    }
}

impl UdAddress {
    /// Returns the address of queue pair `qpn` (24 bits) at an address handle that this crate did not
    /// make, with its Q_Key as in [`new`](Self::new). The handle may be destroyed afterwards.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// # let local = mlx5::connect::LocalPort::new(&context, 1, None)?;
    /// # let peer = local.connection_data_of(0x123);
    /// use mlx5::verbs::AddressHandle;
    /// use mlx5::wqe::UdAddress;
    ///
    /// let handle = AddressHandle::new(&pd, &local.address(&peer))?;
    /// // SAFETY: `handle` keeps the `ibv_ah` alive.
    /// let to = unsafe { UdAddress::from_raw(handle.as_raw(), peer.qpn, 0x1234)? };
    /// assert_eq!(to, UdAddress::new(&handle, peer.qpn, 0x1234));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): the handle is not of libmlx5.
    ///
    /// # Safety
    /// `ah` is alive.
    #[doc(alias("mlx5dv_ah", "mlx5dv_init_obj", "MLX5DV_OBJ_AH"))]
    pub unsafe fn from_raw(ah: NonNull<ibv_ah>, qpn: u32, qkey: u32) -> Result<UdAddress> {
        // SAFETY: the caller keeps the handle alive.
        let vector = unsafe { vector(ah)? };
        Ok(UdAddress::of(vector, qpn, qkey))
    }

    /// Returns the address of queue pair `qpn` (24 bits) at `handle`, with its Q_Key. With bit 31
    /// of `qkey`, the HCA sends the sender's own Q_Key instead. A multicast group has the queue
    /// pair number [`MULTICAST`](Self::MULTICAST).
    #[doc(alias("mlx5dv_ah", "mlx5dv_init_obj"))]
    pub fn new(handle: &AddressHandle, qpn: u32, qkey: u32) -> UdAddress {
        UdAddress::of(*handle.vector(), qpn, qkey)
    }

    /// Returns the address of the multicast group at `handle`, with the Q_Key of its members.
    pub fn multicast(handle: &AddressHandle, qkey: u32) -> UdAddress {
        UdAddress::new(handle, Self::MULTICAST, qkey)
    }
}

impl DcAddress {
    /// Returns the address of target `dctn` (24 bits) at a handle of libibverbs, with its access key.
    /// The address is a copy: the handle may be destroyed afterwards.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call): the handle is not of libmlx5.
    ///
    /// # Safety
    /// `ah` is alive.
    #[doc(alias("mlx5dv_ah", "mlx5dv_init_obj", "MLX5DV_OBJ_AH"))]
    pub unsafe fn from_raw(ah: NonNull<ibv_ah>, dctn: u32, access_key: u64) -> Result<DcAddress> {
        // SAFETY: the caller keeps the handle alive.
        let vector = unsafe { vector(ah)? };
        Ok(DcAddress::of(vector, dctn, access_key))
    }

    /// Returns the address of target `dctn` (24 bits) at `handle`, with its access key.
    pub fn new(handle: &AddressHandle, dctn: u32, access_key: u64) -> DcAddress {
        DcAddress::of(*handle.vector(), dctn, access_key)
    }
}

/// Returns the address vector that libmlx5 writes into requests to that destination.
///
/// # Safety
/// `ah` is alive.
unsafe fn vector(ah: NonNull<ibv_ah>) -> Result<AvSeg> {
    let mut out = MaybeUninit::<dv::mlx5dv_ah>::zeroed();
    let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
    // SAFETY: all-zero is a value of these plain C structures; the library sets the pointer to the
    // vector, which lives as long as the handle and has the size that the layout is checked for.
    unsafe {
        let object = object.assume_init_mut();
        object.ah.in_ = ah.as_ptr();
        object.ah.out = out.as_mut_ptr();
        let status = dv::mlx5dv_init_obj(object, u64::from(dv::MLX5DV_OBJ_AH));
        let av = out.assume_init().av;
        if status != 0 || av.is_null() {
            return Err(Error::from_errno("mlx5dv_init_obj", Errno(status.abs())));
        }
        Ok(av.cast::<AvSeg>().read_unaligned())
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("address", &self.inner.address)
            .finish_non_exhaustive()
    }
}
