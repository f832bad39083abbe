//! Meanings of the values of enumerated fields, from `mlx5_ifc.h` and `qp.h` in Linux 6.1.

use mlx5_sys::ifc::Layout;

type Words = &'static [(u64, &'static str)];

const QP_STATE: Words = &[
    (0, "RESET"),
    (1, "INIT"),
    (2, "RTR"),
    (3, "RTS"),
    (4, "SQ error"),
    (5, "SQ drained"),
    (6, "error"),
    (7, "SQ draining"),
    (9, "suspended"),
];
const SERVICE: Words = &[
    (0, "RC"),
    (1, "UC"),
    (2, "UD"),
    (3, "XRC"),
    (4, "MLX"),
    (5, "DCI"),
    (6, "DCT"),
    (7, "QP0"),
    (8, "QP1"),
    (9, "raw datagram"),
    (0xc, "REG_UMR"),
    (0xd, "PTP"),
    (0xe, "SYNC_UMR"),
];
const MIGRATION: Words = &[(0, "armed"), (1, "rearm"), (3, "migrated")];
const MTU: Words = &[
    (1, "256 bytes"),
    (2, "512 bytes"),
    (3, "1024 bytes"),
    (4, "2048 bytes"),
    (5, "4096 bytes"),
    (7, "raw Ethernet"),
];
const ATOMIC_MODE: Words = &[
    (0, "none"),
    (1, "as InfiniBand specifies"),
    (2, "8 bytes only"),
    (3, "up to 8 bytes"),
    (4, "up to 16 bytes"),
    (5, "up to 32 bytes"),
    (6, "up to 64 bytes"),
    (7, "up to 128 bytes"),
    (8, "up to 256 bytes"),
];
const CS_REQ: Words = &[(0, "no data in CQEs"), (0x11, "up to 32 bytes"), (0x22, "up to 64 bytes")];
const CS_RES: Words = &[(0, "no data in CQEs"), (1, "up to 32 bytes"), (2, "up to 64 bytes")];
const RQ_TYPE: Words = &[(0, "its own"), (1, "shared"), (2, "collapsed"), (3, "none")];
const TS_FORMAT: Words = &[(0, "free running"), (1, "default"), (2, "real time")];
const PADDING: Words = &[(0, "none"), (1, "to the cache line")];
const QUEUE_STATE: Words = &[(0, "reset"), (1, "ready"), (3, "error")];
const CQ_STATUS: Words = &[(0, "OK"), (9, "overflow"), (0xa, "write failed")];
const CQ_STATE: Words = &[(6, "armed for solicited"), (9, "armed"), (0xa, "fired")];
const CQE_SIZE: Words = &[(0, "64 bytes"), (1, "128 bytes")];
const PERIOD: Words = &[(0, "from the EQE on"), (1, "from the CQE on")];
const WQ_TYPE: Words =
    &[(0, "linked list"), (1, "cyclic"), (2, "linked list, striding"), (3, "cyclic, striding")];
const DISPATCH: Words = &[(0, "direct"), (1, "indirect")];
const HASH: Words = &[(0, "none"), (1, "inverted XOR"), (2, "Toeplitz")];
const L3: Words = &[(0, "IPv4"), (1, "IPv6")];
const L4: Words = &[(0, "TCP"), (1, "UDP")];

/// Structure, field, and what its values mean.
const FIELDS: &[(&str, &str, Words)] = &[
    ("qpc", "STATE", QP_STATE),
    ("qpc", "ST", SERVICE),
    ("qpc", "PM_STATE", MIGRATION),
    ("qpc", "OFFLOAD_TYPE", &[(0, "none"), (1, "rendezvous")]),
    ("qpc", "END_PADDING_MODE", PADDING),
    ("qpc", "MTU", MTU),
    ("qpc", "ATOMIC_MODE", ATOMIC_MODE),
    ("qpc", "CS_REQ", CS_REQ),
    ("qpc", "CS_RES", CS_RES),
    ("qpc", "RQ_TYPE", RQ_TYPE),
    ("qpc", "TS_FORMAT", TS_FORMAT),
    ("cqc", "STATUS", CQ_STATUS),
    ("cqc", "ST", CQ_STATE),
    ("cqc", "CQE_SZ", CQE_SIZE),
    ("cqc", "CQ_PERIOD_MODE", PERIOD),
    ("eqc", "STATUS", &[(0, "OK"), (0xa, "write failed")]),
    ("eqc", "ST", &[(9, "armed"), (0xa, "fired")]),
    ("rmpc", "STATE", QUEUE_STATE),
    ("xrc_srqc", "STATE", &[(0, "good"), (1, "error")]),
    ("srqc", "STATE", &[(0, "good"), (0xf, "error")]),
    ("dctc", "STATE", &[(0, "active"), (1, "draining"), (2, "drained")]),
    ("dctc", "MTU", MTU),
    ("dctc", "ATOMIC_MODE", ATOMIC_MODE),
    ("dctc", "CS_RES", CS_RES),
    ("sqc", "STATE", QUEUE_STATE),
    ("sqc", "TS_FORMAT", TS_FORMAT),
    ("rqc", "STATE", QUEUE_STATE),
    ("rqc", "MEM_RQ_TYPE", &[(0, "inline"), (1, "RMP")]),
    ("rqc", "TS_FORMAT", TS_FORMAT),
    ("wq", "WQ_TYPE", WQ_TYPE),
    ("wq", "END_PADDING_MODE", PADDING),
    ("tirc", "DISP_TYPE", DISPATCH),
    ("tirc", "RX_HASH_FN", HASH),
    ("rx_hash_field_select", "L3_PROT_TYPE", L3),
    ("rx_hash_field_select", "L4_PROT_TYPE", L4),
];

/// Returns the meaning of a field's value, if its values are enumerated and this one is known.
pub(super) fn of(layout: &Layout, field: &str, value: u64) -> Option<&'static str> {
    let (_, _, words) = FIELDS.iter().find(|(of, name, _)| *of == layout.name && *name == field)?;
    words.iter().find(|(number, _)| *number == value).map(|(_, word)| *word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enumerated_field_is_one_of_a_layout() {
        for (of, name, words) in FIELDS {
            let field = Layout::named(of).and_then(|layout| layout.field(name));
            let field = field.unwrap_or_else(|| panic!("no {of}.{name}"));
            for (value, _) in *words {
                assert_eq!(value >> field.width(), 0, "{of}.{name} = {value}");
            }
        }
    }
}
