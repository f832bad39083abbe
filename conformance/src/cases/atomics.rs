//! Atomics under masks, of each size.

use std::fmt::Debug;

use mlx5::cqe::SendOperation;
use mlx5::devx::Group;
use mlx5::devx::ifc::atomic_caps;
use mlx5::wqe::{Bits, MaskedCompareSwap, MaskedFetchAdd, Number};

use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::Shape;
use crate::verdict::{Verdict, same};

/// The bits of the capability are sizes in bytes.
const SIZES: Need = Need::Capability(Group::Atomic, atomic_caps::ATOMIC_SIZE_QP, 1);

pub(crate) const CASES: &[Case] = &[
    Case::new(
        "atomics.4-bytes",
        "Masked atomics of 4 bytes add and swap under their masks.",
        |bench| {
            let returned = |value: u32| value.to_be_bytes().to_vec();
            masked(bench, 4, |value| value as u32, |value| value.to_le_bytes().to_vec(), returned)
        },
    )
    .needs(&[Need::Atomics, SIZES]),
    Case::new(
        "atomics.8-bytes",
        "Masked atomics of 8 bytes add and swap under their masks.",
        |bench| {
            let host = |value: u64| value.to_le_bytes().to_vec();
            masked(bench, 8, |value| value, host, host)
        },
    )
    .needs(&[Need::Atomics, SIZES]),
    Case::new(
        "atomics.16-bytes",
        "Masked atomics of 16 bytes add and swap in network order.",
        |bench| {
            let network = |value: u128| value.to_be_bytes().to_vec();
            masked(bench, 16, u128::from, network, network)
        },
    )
    .needs(&[Need::Atomics, SIZES]),
    Case::new(
        "atomics.32-bytes",
        "Masked atomics of 32 bytes add and swap in network order.",
        |bench| {
            let bytes = |halves: [u128; 2]| halves.map(u128::to_be_bytes).concat();
            masked(bench, 32, |value| [0, u128::from(value)], bytes, bytes)
        },
    )
    .needs(&[Need::Atomics, SIZES]),
];

/// Each form of both operations on a number: what it returns, and what it leaves.
fn masked<N: Number + Copy + Debug>(
    bench: &mut Bench,
    size: u64,
    value: fn(u64) -> N,
    bytes: fn(N) -> Vec<u8>,
    returned: fn(N) -> Vec<u8>,
) -> Verdict {
    let capabilities = bench.base.context.capabilities();
    let sizes = capabilities.current(Group::Atomic, atomic_caps::ATOMIC_SIZE_QP)?;
    if sizes.unwrap_or(0) & size == 0 {
        return Err(crate::verdict::lacking(format!("the device has no atomics of {size} bytes")));
    }
    let (mut side, door) = bench.rc(&Shape::default())?;
    let (old, at) = (side.word(1024), door.remote(64));
    let size = size as usize;
    let add = MaskedFetchAdd::new(old, at, value(0x1_0001)).fields(value(0x8000));
    let compare = Bits::new(value(0x2_5555), value(0xf_0000));
    let put = Bits::new(value(0xffff_1234), value(0xffff));
    let swap = MaskedCompareSwap::new(old, at, compare, put);
    let other = Bits::new(value(0x3_0000), value(0xf_0000));
    let fails = MaskedCompareSwap::new(old, at, other, Bits::all(value(9)));
    let always = MaskedCompareSwap::new(old, at, Bits::none(), Bits::all(value(7)));
    let mut is = 40;
    bench.peer.write(64, &bytes(value(is)))?;
    for step in 0..5u64 {
        let (operation, after) = match step {
            0 => {
                side.post(step, MaskedFetchAdd::new(old, at, value(0x1_ffd7)).signaled())?;
                (SendOperation::MaskedFetchAdd, 0x1_ffff)
            }
            // 0xffff + 1 stays in the lower 16 bits, which are a field.
            1 => {
                side.post(step, add.signaled())?;
                (SendOperation::MaskedFetchAdd, 0x2_0000)
            }
            2 => {
                side.post(step, swap.signaled())?;
                (SendOperation::MaskedCompareSwap, 0x2_1234)
            }
            3 => {
                side.post(step, fails.signaled())?;
                (SendOperation::MaskedCompareSwap, 0x2_1234)
            }
            _ => {
                side.post(step, always.signaled())?;
                (SendOperation::MaskedCompareSwap, 7)
            }
        };
        let done = side.sent(step, operation)?;
        same("bytes returned", done.byte_len as usize, size)?;
        let met = side.memory.to_vec(1024, size);
        same(format!("step {step}: old value"), met, returned(value(is)))?;
        bench.peer.has(64, &bytes(value(after)))?;
        bench.peer.has(64 + size as u32, &[0; 8])?;
        is = after;
    }
    Ok(())
}
