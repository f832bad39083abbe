//! Queue pairs as they are made, connected, reset and destroyed.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use mlx5_sys::verbs::{ibv_cq_ex, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};

use crate::board::{OTHER_PROVIDER, TOO_MANY, state as states};
use crate::cell::{self, Cell, SIGNALED};
use crate::state::{self, Control, Local};
use crate::{contexts, extended, extended_cq, function, real};

/// A change of a queue pair's attributes.
pub(crate) struct Change {
    qp: *mut ibv_qp,
    attr: *const ibv_qp_attr,
    mask: u32,
}

impl Change {
    /// Notes what is about to be asked for. Completions may come before the call returns.
    ///
    /// # Safety
    /// The queue pair exists, and the attributes can be read until [`Change::end`].
    pub(crate) unsafe fn begin(qp: *mut ibv_qp, attr: *const ibv_qp_attr, mask: c_int) -> Change {
        let change = Change { qp, attr, mask: mask as u32 };
        if change.state() == Some(ibv_qp_state::IBV_QPS_ERR) {
            change.close(1);
        }
        change
    }

    /// Returns the state that is asked for.
    fn state(&self) -> Option<ibv_qp_state::Type> {
        // SAFETY: `begin`'s caller vouches for the attributes.
        self.has(ibv_qp_attr_mask::IBV_QP_STATE).then(|| unsafe { (*self.attr).qp_state })
    }

    fn has(&self, attribute: ibv_qp_attr_mask) -> bool {
        self.mask & attribute.0 != 0
    }

    /// The cell of the queue pair, if it is observed.
    fn cell(&self) -> Option<&'static Cell> {
        if !state::is_attached() {
            return None;
        }
        cell_of(state::local(self.qp)?)
    }

    fn close(&self, value: u32) {
        if let Some(cell) = self.cell() {
            cell.is_closing.store(value, Ordering::Release);
        }
    }

    /// Notes what has changed.
    pub(crate) fn end(self, result: c_int) {
        if result != 0 {
            if self.state() == Some(ibv_qp_state::IBV_QPS_ERR) {
                self.close(0);
            }
            return;
        }
        if self.state() == Some(ibv_qp_state::IBV_QPS_INIT) {
            // SAFETY: the queue pair exists, as for `begin`.
            unsafe { register(self.qp) };
        }
        let Some(cell) = self.cell() else { return };
        // SAFETY: `begin`'s caller vouches for the attributes.
        note(cell, self.mask, unsafe { &*self.attr });
        match self.state() {
            Some(ibv_qp_state::IBV_QPS_INIT) if self.has(ibv_qp_attr_mask::IBV_QP_PORT) => {
                // SAFETY: the queue pair and so its context exist.
                let layer =
                    unsafe { contexts::link_layer((*self.qp).context, (*self.attr).port_num) };
                cell.link_layer.store(layer, Ordering::Relaxed);
            }
            Some(ibv_qp_state::IBV_QPS_RESET) => reset(cell),
            _ => {}
        }
    }
}

fn cell_of(local: &Local) -> Option<&'static Cell> {
    // SAFETY: cells stay mapped.
    unsafe { local.cell.load(Ordering::Acquire).as_ref() }
}

/// Keeps the attributes that an explanation needs.
fn note(cell: &Cell, mask: u32, attr: &ibv_qp_attr) {
    let of = &cell.attributes;
    let has = |attribute: ibv_qp_attr_mask| mask & attribute.0 != 0;
    if has(ibv_qp_attr_mask::IBV_QP_STATE) {
        of.state.store(attr.qp_state, Ordering::Relaxed);
    }
    let fields = [
        (ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS, &of.access, attr.qp_access_flags),
        (ibv_qp_attr_mask::IBV_QP_DEST_QPN, &of.remote_number, attr.dest_qp_num),
        (ibv_qp_attr_mask::IBV_QP_PATH_MTU, &of.path_mtu, attr.path_mtu),
        (ibv_qp_attr_mask::IBV_QP_TIMEOUT, &of.timeout, attr.timeout.into()),
        (ibv_qp_attr_mask::IBV_QP_RETRY_CNT, &of.retry_cnt, attr.retry_cnt.into()),
        (ibv_qp_attr_mask::IBV_QP_RNR_RETRY, &of.rnr_retry, attr.rnr_retry.into()),
        (ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC, &of.max_rd_atomic, attr.max_rd_atomic.into()),
        (ibv_qp_attr_mask::IBV_QP_AV, &of.is_global, attr.ah_attr.is_global.into()),
        (ibv_qp_attr_mask::IBV_QP_AV, &of.lid, attr.ah_attr.dlid.into()),
    ];
    for (attribute, field, value) in fields {
        if has(attribute) {
            field.store(value, Ordering::Relaxed);
        }
    }
    if has(ibv_qp_attr_mask::IBV_QP_AV) {
        // SAFETY: any bytes are a valid GID.
        let gid = unsafe { attr.ah_attr.grh.dgid.raw };
        cell::store(&of.gid, &gid);
    }
}

fn reset(cell: &Cell) {
    cell.sends.reset();
    let dropped = cell.receives.reset();
    cell.unreceived.fetch_add(dropped, Ordering::Relaxed);
    cell.is_closing.store(0, Ordering::Relaxed);
    cell.incident.claim.store(0, Ordering::Release);
}

/// Begins to observe a queue pair.
///
/// # Safety
/// The queue pair exists.
unsafe fn register(qp: *mut ibv_qp) {
    let Some(control) = Control::take() else { return };
    // SAFETY: the queue pair and so its context exist.
    let (context, number) = unsafe { ((*qp).context, (*qp).qp_num) };
    if state::local(qp).and_then(cell_of).is_some_and(|cell| cell.number() == number) {
        return;
    }
    // SAFETY: as above.
    let Ok(place) = (unsafe { contexts::replace(context) }) else {
        control.note(OTHER_PROVIDER);
        return;
    };
    let Some((index, cell)) = claim(&control) else {
        control.note(TOO_MANY);
        return;
    };
    // SAFETY: as above.
    unsafe { fill(cell, qp) };
    let local = control.unused();
    local.cell.store(ptr::from_ref(cell).cast_mut(), Ordering::Release);
    local.number.store(number, Ordering::Relaxed);
    local.context.store(place, Ordering::Relaxed);
    local.index.store(index, Ordering::Relaxed);
    local.qp.store(qp, Ordering::Release);
    contexts::count(place, 1);
    let (address, at) = state::by_address(qp);
    let (key, by_number) = real::by_number(number);
    let is_kept = state::queues().put(address, at, ptr::from_ref(local).cast_mut())
        && real::numbers(place).put(key, by_number, ptr::from_ref(cell).cast_mut());
    control.view.header.set(index, states::LIVE);
    if !is_kept {
        control.note(TOO_MANY);
    }
    // SAFETY: as above; both CQs exist as long as the queue pair.
    unsafe {
        extended::replace(local, cell, function::extended(qp));
        let (send, recv) = ((*qp).send_cq.cast::<ibv_cq_ex>(), (*qp).recv_cq.cast::<ibv_cq_ex>());
        extended_cq::replace(&control, send, cell, place, 0);
        extended_cq::replace(&control, recv, cell, place, 1);
    }
}

/// Takes a cell of the board for this process.
fn claim(control: &Control) -> Option<(usize, &'static Cell)> {
    let index = control.view.header.claim()?;
    let cell = control.view.cell(index);
    if cell.is_none() {
        control.view.header.set(index, states::FREE);
    }
    Some((index, cell?))
}

/// Begins a cell anew.
///
/// # Safety
/// The queue pair exists.
unsafe fn fill(cell: &Cell, qp: *mut ibv_qp) {
    // SAFETY: the queue pair exists, and so do its context and device, whose name ends with a zero.
    let (init, number, kind, is_shared, device) = unsafe {
        let device = CStr::from_ptr((&raw const (*(*(*qp).context).device).name).cast());
        (function::query(qp), (*qp).qp_num, (*qp).qp_type, !(*qp).srq.is_null(), device)
    };
    let all = init.map_or(0, |init| init.sq_sig_all);
    let zero = [&cell.unmatched, &cell.unreceived, &cell.received_bytes];
    for word in zero.into_iter().chain(&cell.statuses).chain(&cell.latencies) {
        word.store(0, Ordering::Relaxed);
    }
    cell.sends.clear();
    cell.receives.clear();
    cell.always.store(if all != 0 { SIGNALED } else { 0 }, Ordering::Relaxed);
    cell.incident.claim.store(0, Ordering::Relaxed);
    cell.incident.serial.store(0, Ordering::Relaxed);
    cell.is_closing.store(0, Ordering::Relaxed);
    cell.attributes.remote_number.store(0, Ordering::Relaxed);
    cell.number.store(number, Ordering::Relaxed);
    cell.is_shared.store(is_shared.into(), Ordering::Relaxed);
    cell.transport.store(kind, Ordering::Relaxed);
    // SAFETY: the call has no preconditions.
    cell.process.store(unsafe { libc::getpid() } as u32, Ordering::Relaxed);
    cell::store(&cell.program, state::program());
    cell::store(&cell.device, device.to_bytes());
}

/// Stops observing a queue pair, which no longer exists.
pub(crate) fn retire(qp: *mut ibv_qp) {
    let Some(control) = Control::take() else { return };
    let Some(local) = state::local(qp) else { return };
    let (address, place) = state::by_address(qp);
    let context = local.context.load(Ordering::Relaxed);
    let (key, by_number) = real::by_number(local.number.load(Ordering::Relaxed));
    state::queues().remove(address, place, ptr::from_ref(local).cast_mut());
    real::numbers(context).remove(key, by_number, local.cell.load(Ordering::Relaxed));
    contexts::count(context, -1);
    local.qp.store(ptr::null_mut(), Ordering::Release);
    control.view.header.set(local.index.load(Ordering::Relaxed), states::ENDED);
}
