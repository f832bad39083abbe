//! Results and flags of arithmetic on general registers (Intel SDM volume 1, 3.4.3).

use iced_x86::{ConditionCode, Mnemonic};

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
/// The flags of arithmetic.
pub(super) const STATUS: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// Returns the result of an instruction with operands of so many bytes, and the flags behind it.
/// `None` for other instructions. Undefined flags are zero, as on known processors.
pub(super) fn calculate(
    instruction: Mnemonic,
    [left, right]: [u64; 2],
    size: usize,
    flags: u64,
) -> Option<(u64, u64)> {
    use Mnemonic::*;
    if matches!(instruction, Shl | Sal | Shr | Sar) {
        return shift(instruction, left, right, size, flags);
    }
    let top = 8 * size as u32 - 1;
    let mask = u64::MAX >> (63 - top);
    let (left, right) = (left & mask, right & mask);
    let (result, mut changed, kept) = match instruction {
        Add => (left.wrapping_add(right), 0, 0),
        Inc => (left.wrapping_add(1), 0, CARRY),
        Sub | Cmp => (left.wrapping_sub(right), 0, 0),
        Dec => (left.wrapping_sub(1), 0, CARRY),
        Neg => (left.wrapping_neg(), 0, 0),
        And | Test => (left & right, 0, 0),
        Or => (left | right, 0, 0),
        Xor => (left ^ right, 0, 0),
        _ => return None,
    };
    let result = result & mask;
    // Negation subtracts from zero.
    let (left, right) = match instruction {
        Inc | Dec => (left, 1),
        Neg => (0, left),
        _ => (left, right),
    };
    // The bits that carry into the next, and whether the sign is wrong.
    let (carries, wrong) = match instruction {
        Add | Inc => (result < left, (left ^ result) & (right ^ result)),
        Sub | Cmp | Dec | Neg => (left < right, (left ^ right) & (left ^ result)),
        _ => (false, 0),
    };
    if !matches!(instruction, And | Test | Or | Xor) {
        changed |= (left ^ right ^ result) & ADJUST;
    }
    changed |= if carries { CARRY } else { 0 };
    changed |= if wrong >> top & 1 != 0 { OVERFLOW } else { 0 };
    changed |= of_result(result, top);
    Some((result, flags & (!STATUS | kept) | changed & !kept))
}

/// Returns the flags that a result has by itself. Bit `top` is its sign.
fn of_result(result: u64, top: u32) -> u64 {
    let zero = if result == 0 { ZERO } else { 0 };
    let sign = if result >> top & 1 != 0 { SIGN } else { 0 };
    zero | sign | if (result as u8).count_ones() % 2 == 0 { PARITY } else { 0 }
}

/// Returns the result and the flags of a shift of four or eight bytes. `None` for shorter operands,
/// whose last bit shifted out may be undefined.
fn shift(
    instruction: Mnemonic,
    value: u64,
    count: u64,
    size: usize,
    flags: u64,
) -> Option<(u64, u64)> {
    let (top, signed) = match size {
        4 => (31, i64::from(value as i32)),
        8 => (63, value as i64),
        _ => return None,
    };
    let mask = u64::MAX >> (63 - top);
    let (value, count) = (value & mask, count as u32 & top);
    // All bits but the last, then that one, which goes to the carry.
    let Some(before) = count.checked_sub(1) else { return Some((value, flags)) };
    let (result, carry, overflow) = match instruction {
        Mnemonic::Shr => (value >> before >> 1, value >> before & 1, value >> before >> top),
        Mnemonic::Sar => ((signed >> before >> 1) as u64 & mask, (signed >> before) as u64 & 1, 0),
        _ => {
            let part = value << before & mask;
            let (result, carry) = (part << 1 & mask, part >> top);
            (result, carry, carry ^ result >> top)
        }
    };
    let changed = of_result(result, top)
        | if carry & 1 != 0 { CARRY } else { 0 }
        | if overflow & 1 != 0 { OVERFLOW } else { 0 };
    Some((result, flags & !STATUS | changed))
}

/// Whether a condition holds.
pub(super) fn holds(condition: ConditionCode, flags: u64) -> bool {
    let is = |flag| flags & flag != 0;
    let less = is(SIGN) != is(OVERFLOW);
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => is(OVERFLOW),
        ConditionCode::no => !is(OVERFLOW),
        ConditionCode::b => is(CARRY),
        ConditionCode::ae => !is(CARRY),
        ConditionCode::e => is(ZERO),
        ConditionCode::ne => !is(ZERO),
        ConditionCode::be => is(CARRY) || is(ZERO),
        ConditionCode::a => !is(CARRY) && !is(ZERO),
        ConditionCode::s => is(SIGN),
        ConditionCode::ns => !is(SIGN),
        ConditionCode::p => is(PARITY),
        ConditionCode::np => !is(PARITY),
        ConditionCode::l => less,
        ConditionCode::ge => !less,
        ConditionCode::le => less || is(ZERO),
        ConditionCode::g => !less && !is(ZERO),
    }
}
