//! Bytes of twins, as they are compared.

use rig::stores::Store;

/// So many bytes of the WQE at that counter, without the queue pair's number.
pub fn wqe(ring: &[u8], head: u32, bytes: usize) -> Vec<u8> {
    let at = head as usize * 64;
    let mut wqe: Vec<u8> = (0..bytes).map(|byte| ring[(at + byte) % ring.len()]).collect();
    wqe[4..7].fill(0);
    wqe
}

/// All that was stored to a register, without the queue pair's number.
pub fn stored(log: Vec<Store>) -> Vec<u8> {
    let mut bytes: Vec<u8> = log.into_iter().flat_map(|store| store.bytes).collect();
    bytes[4..7].fill(0);
    bytes
}
