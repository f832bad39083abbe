//! The inline functions of `mlx5dv.h` that call the library. Those that only write segments are
//! not here: see [`wqe`](crate::wqe) and [`cqe`](crate::cqe).

use libc::{c_int, c_void};

use super::generated::*;
use crate::verbs::{ibv_ah, ibv_context, ibv_sge};

macro_rules! calls_member {
    ($($name:ident = $member:ident ($($arg:ident: $arg_type:ty),*);)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of `mlx5dv.h`.")]
        ///
        /// # Safety
        /// The QP was created with this operation enabled, and the arguments are as `mlx5dv.h`
        /// wants them.
        #[inline]
        pub unsafe fn $name(mqp: *mut mlx5dv_qp_ex $(, $arg: $arg_type)*) {
            // SAFETY: the caller keeps the QP alive; libmlx5 set the members that the QP was
            // created with, and one it did not set stops here.
            unsafe { (*mqp).$member.expect(stringify!($member))(mqp $(, $arg)*) }
        }
    )* };
}

calls_member! {
    mlx5dv_wr_set_dc_addr = wr_set_dc_addr(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64);
    mlx5dv_wr_set_dc_addr_stream = wr_set_dc_addr_stream(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64, stream_id: u16);
    mlx5dv_wr_mr_interleaved = wr_mr_interleaved(mkey: *mut mlx5dv_mkey, access_flags: u32, repeat_count: u32, num_interleaved: u16, data: *mut mlx5dv_mr_interleaved);
    mlx5dv_wr_mr_list = wr_mr_list(mkey: *mut mlx5dv_mkey, access_flags: u32, num_sges: u16, sge: *mut ibv_sge);
    mlx5dv_wr_mkey_configure = wr_mkey_configure(mkey: *mut mlx5dv_mkey, num_setters: u8, attr: *mut mlx5dv_mkey_conf_attr);
    mlx5dv_wr_set_mkey_access_flags = wr_set_mkey_access_flags(access_flags: u32);
    mlx5dv_wr_set_mkey_layout_list = wr_set_mkey_layout_list(num_sges: u16, sge: *const ibv_sge);
    mlx5dv_wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved(repeat_count: u32, num_interleaved: u16, data: *const mlx5dv_mr_interleaved);
    mlx5dv_wr_set_mkey_sig_block = wr_set_mkey_sig_block(attr: *const mlx5dv_sig_block_attr);
    mlx5dv_wr_set_mkey_crypto = wr_set_mkey_crypto(attr: *const mlx5dv_crypto_attr);
    mlx5dv_wr_memcpy = wr_memcpy(dest_lkey: u32, dest_addr: u64, src_lkey: u32, src_addr: u64, length: usize);
    mlx5dv_wr_raw_wqe = wr_raw_wqe(wqe: *const c_void);
}

/// Reads what error a key with signatures has met, and clears it. Returns 0 or an `errno`.
///
/// # Safety
/// `mkey` is alive, `err_info` is writable.
#[inline]
pub unsafe fn mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err) -> c_int {
    // SAFETY: the caller keeps the function's contract; the size is that of the type.
    unsafe { _mlx5dv_mkey_check(mkey, err_info, size_of::<mlx5dv_mkey_err>()) }
}

/// Asks for a port's place in the HCA's switch. Returns 0 or an `errno`.
///
/// # Safety
/// `context` is open, `info` is writable and its `flags` say what is asked for.
#[inline]
pub unsafe fn mlx5dv_query_port(
    context: *mut ibv_context,
    port_num: u32,
    info: *mut mlx5_ib_uapi_query_port,
) -> c_int {
    // SAFETY: the caller keeps the function's contract; the size is that of the type.
    unsafe { _mlx5dv_query_port(context, port_num, info, size_of::<mlx5_ib_uapi_query_port>()) }
}

/// Nanoseconds of the system's clock for a CQE's timestamp, by a reading of the HCA's clock that
/// is at most half a round of its counter away.
#[inline]
pub fn mlx5dv_ts_to_ns(clock_info: &mlx5dv_clock_info, device_timestamp: u64) -> u64 {
    let scaled = |cycles: u64| cycles.wrapping_mul(clock_info.mult.into());
    let after = device_timestamp.wrapping_sub(clock_info.last_cycles) & clock_info.mask;
    if after > clock_info.mask / 2 {
        let before = clock_info.last_cycles.wrapping_sub(device_timestamp) & clock_info.mask;
        let nsec = scaled(before).wrapping_sub(clock_info.frac) >> clock_info.shift;
        clock_info.nsec.wrapping_sub(nsec)
    } else {
        let nsec = scaled(after).wrapping_add(clock_info.frac) >> clock_info.shift;
        clock_info.nsec.wrapping_add(nsec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_count_both_ways_from_the_reading() {
        let clock = mlx5dv_clock_info {
            nsec: 1_000_000,
            last_cycles: 100,
            frac: 0,
            mult: 8 << 4,
            shift: 4,
            mask: 0xffff,
        };
        assert_eq!(mlx5dv_ts_to_ns(&clock, 100), 1_000_000);
        assert_eq!(mlx5dv_ts_to_ns(&clock, 110), 1_000_080);
        assert_eq!(mlx5dv_ts_to_ns(&clock, 90), 999_920);
        // The counter has 16 bits: 0xffff is 101 cycles before 100.
        assert_eq!(mlx5dv_ts_to_ns(&clock, 0xffff), 1_000_000 - 101 * 8);
    }
}

/// Creates a flow: `mlx5dv_create_flow`, which is a macro since rdma-core 65, as the actions have grown
/// there. The library learns by their size which ones it gets.
///
/// # Safety
/// As of the C function: the matcher lives, `match_value` and `num_actions` actions are valid during
/// the call, and the objects that actions name live as long as the flow.
#[cfg(sized_flow_actions)]
pub unsafe fn mlx5dv_create_flow(
    matcher: *mut super::mlx5dv_flow_matcher,
    match_value: *mut super::mlx5dv_flow_match_parameters,
    num_actions: usize,
    actions_attr: *mut super::mlx5dv_flow_action_attr,
) -> *mut crate::verbs::ibv_flow {
    let size = size_of::<super::mlx5dv_flow_action_attr>();
    // SAFETY: the caller's promise; `size` is that of the actions.
    unsafe { super::__mlx5dv_create_flow(matcher, match_value, num_actions, actions_attr, size) }
}
