//! Destinations of requests on dynamic connections.

use core::ptr::NonNull;

use mlx5_sys::wqe::{AvSeg, EXTENDED_UD_AV};

use super::Unit;
use super::address::{EncodeAddress, VECTOR};
use super::{Address, Segment, Segments};

/// The destination of a request on dynamic connections: a target, and its access key.
///
/// Created once for each target. Its segments hold everything that a request states about it.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// # use mlx5::connect::LocalPort;
/// # use mlx5::ib::Dci;
/// # use mlx5::ring::{CqReader, SendConfig, SendQueue};
/// # use mlx5::verbs::attr::{DctRtrAttributes, InitAttributes, Mtu, RtsAttributes};
/// # use mlx5::verbs::{AddressHandle, QueuePair, QueuePairBuilder, SharedReceiveQueue};
/// use mlx5::wqe::{DcAddress, Inline, SendMessage};
///
/// const KEY: u64 = 0x1234;
///
/// # let local = LocalPort::new(&context, 1, None)?;
/// # let srq = SharedReceiveQueue::builder(&pd).build()?;
/// # let target = QueuePair::dc_target(&pd, &cq, &srq, KEY).build()?.init(&local.init())?;
/// # let address = local.address(&local.connection_data(&target));
/// # let target = target.rtr(&DctRtrAttributes::new(address))?;
/// // `sends` is the queue of an initiator, which has no peer. `target`, in RTR, has the key.
/// # let qp = QueuePairBuilder::<Dci>::new(&pd, &cq).max_inline_data(64).build()?;
/// # let qp = qp.init(&InitAttributes::new(1))?.rtr(Mtu::Mtu1024)?.rts(&RtsAttributes::default())?;
/// # let mut reader = CqReader::new(&cq)?;
/// # let mut sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
/// let to = DcAddress::new(&AddressHandle::new(&pd, &address)?, target.number(), KEY);
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, SendMessage::new(Inline(b"hello")).signaled().to(&to))? };
/// assert!(!sends.is_idle()); // until a poll finds the completion
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5dv_wr_set_dc_addr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct DcAddress {
    segments: [Segment; VECTOR],
    stream: u16,
}

impl DcAddress {
    /// Creates the address of target `dctn` with the key `access_key`, reached by that path.
    pub(crate) fn of(mut vector: AvSeg, dctn: u32, access_key: u64) -> DcAddress {
        vector.key = access_key.into();
        vector.dqp_dct = (dctn & 0xff_ffff | EXTENDED_UD_AV).into();
        DcAddress { segments: zerocopy::transmute!(vector), stream: 0 }
    }

    /// Returns the same target, by a stream of the initiator. Initiators without streams ignore it.
    #[doc(alias = "mlx5dv_wr_set_dc_addr_stream")]
    #[must_use]
    pub const fn on_stream(mut self, stream: u16) -> DcAddress {
        self.stream = stream;
        self
    }
}

impl Address for DcAddress {}

impl EncodeAddress for DcAddress {
    const DS: u32 = VECTOR as u32;

    #[inline(always)]
    fn stream(&self) -> u16 {
        self.stream
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // Written out: the compiler must see at once where each goes.
        let [first, second, third] = &self.segments;
        // SAFETY: the segments are aligned, as they begin where the address does; these are the
        // `DS` that there is space for.
        unsafe {
            writer.put_unit(Unit::load(NonNull::from(first).cast()));
            writer.put_unit(Unit::load(NonNull::from(second).cast()));
            writer.put_unit(Unit::load(NonNull::from(third).cast()));
        }
    }
}
