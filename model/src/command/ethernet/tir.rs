//! Commands on TIRs, which direct packets to receive queues.

use mlx5_sys::ifc::{
    Field, create_tir_in, create_tir_out, destroy_tir_in, modify_tir_bitmask, modify_tir_in,
    query_tir_in, query_tir_out, rx_hash_field_select, tirc,
};

use super::super::{Refusal, context, get, owned, uid};
use super::modify;
use super::queue::{QueueKind, find_queue};
use crate::card::Card;
use crate::object::{DIRECT, INDIRECT, Tir};

/// `MLX5_RX_HASH_FN_*`: by XOR (which is not public), by Toeplitz.
const NO_HASH: u32 = 0;
const XOR: u32 = 1;
const TOEPLITZ: u32 = 2;

/// The number in place of a transport domain in a TIR of none. Devices accept it: DPDK's mlx5 driver
/// (`mlx5_devx.c`, with `tdn` not yet set) and rdma-core's tests (`test_mlx5_flow.py`) send it.
const NO_DOMAIN: u32 = 0;

/// Which fields of a packet are hashed.
const SELECTED: Field =
    rx_hash_field_select::SELECTED_FIELDS.within(tirc::RX_HASH_FIELD_SELECTOR_OUTER);

/// Checks where a TIR's context leads to, and how.
fn leads(card: &Card, input: &[u8], tirc: &[u8]) -> Result<(), Refusal> {
    let field = |field: Field| get(tirc, field);
    // What is inside a tunnel is not looked at.
    if field(tirc::RX_HASH_FIELD_SELECTOR_INNER) != 0 {
        return Err(Refusal::WorkQueueFeature);
    }
    match (field(tirc::DISP_TYPE), field(tirc::RX_HASH_FN)) {
        (DIRECT, NO_HASH | TOEPLITZ) => {
            find_queue(card, field(tirc::INLINE_RQN), QueueKind::Receive, input)?;
        }
        // By XOR of no fields, as Linux's driver makes it for tables of one queue.
        (INDIRECT, XOR) if field(SELECTED) != 0 => return Err(Refusal::TirType),
        (INDIRECT, TOEPLITZ | XOR) => {
            let rqt = card.objects.rqts.get(field(tirc::INDIRECT_TABLE)).ok_or(Refusal::NoRqt)?;
            owned(rqt.uid, uid(input))?;
        }
        _ => return Err(Refusal::TirType),
    }
    Ok(())
}

/// The TIR that a command names, if its user context may.
fn find<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Tir, Refusal> {
    let tir = card.objects.tirs.get(number).ok_or(Refusal::NoTir)?;
    owned(tir.uid, uid(input))?;
    Ok(tir)
}

pub fn create_tir(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let tirc: Box<[u8; tirc::SIZE]> = context(input, create_tir_in::CTX)?;
    let field = |field: Field| get(&tirc[..], field);
    let user = uid(input);
    if field(tirc::TLS_EN) == 1
        || field(tirc::PACKET_MERGE_MASK) != 0
        || field(tirc::TUNNELED_OFFLOAD_EN) == 1
    {
        return Err(Refusal::WorkQueueFeature);
    }
    let domain = field(tirc::TRANSPORT_DOMAIN);
    if domain != NO_DOMAIN {
        let domain = card.objects.transport_domains.get(domain);
        owned(domain.ok_or(Refusal::NoTransportDomain)?.uid, user)?;
    }
    leads(card, input, &tirc[..])?;
    let tir = Tir { uid: user, context: tirc, checks_loopback: false };
    let number = card.objects.tirs.add(tir).ok_or(Refusal::Exhausted)?;
    create_tir_out::TIRN.set(output, number.into());
    Ok(())
}

pub fn query_tir(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let tir = find(card, get(input, query_tir_in::TIRN), input)?;
    output[query_tir_out::TIR_CONTEXT.bytes()].copy_from_slice(&tir.context[..]);
    Ok(())
}

pub fn modify_tir(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// `rx_hash_toeplitz_key`: 40 bytes, of which the layout names the first word.
    const KEY: [Field; 5] = {
        let mut key = [Field::new(0x28, 31, 64); 5];
        let mut at = 1;
        while at < key.len() {
            key[at] = Field::new(0x28 + 8 * at, 31, 64);
            at += 1;
        }
        key
    };
    use modify_tir_bitmask::{HASH, INDIRECT_TABLE, SELF_LB_EN};
    /// The bits of the bitmask, each with a field that it selects.
    const CHANGES: [(Field, Field); 11] = [
        (SELF_LB_EN, tirc::SELF_LB_BLOCK),
        (INDIRECT_TABLE, tirc::INDIRECT_TABLE),
        (HASH, tirc::RX_HASH_SYMMETRIC),
        (HASH, tirc::RX_HASH_FN),
        (HASH, KEY[0]),
        (HASH, KEY[1]),
        (HASH, KEY[2]),
        (HASH, KEY[3]),
        (HASH, KEY[4]),
        (HASH, tirc::RX_HASH_FIELD_SELECTOR_OUTER),
        (HASH, tirc::RX_HASH_FIELD_SELECTOR_INNER),
    ];
    let number = get(input, modify_tir_in::TIRN);
    let mut tir = find(card, number, input)?.clone();
    modify(input, modify_tir_in::BITMASK, modify_tir_in::CTX, &CHANGES, &mut tir.context[..])?;
    tir.checks_loopback |= get(input, SELF_LB_EN.within(modify_tir_in::BITMASK)) == 1;
    leads(card, input, &tir.context[..])?;
    if let Some(place) = card.objects.tirs.get_mut(number) {
        *place = tir;
    }
    Ok(())
}

pub fn destroy_tir(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_tir_in::TIRN);
    find(card, number, input)?;
    if card.objects.steering.uses_tir(number) {
        return Err(Refusal::TirBusy);
    }
    card.objects.tirs.remove(number);
    Ok(())
}
