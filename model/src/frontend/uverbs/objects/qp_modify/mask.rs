//! Bits of `attr_mask` (`enum ibv_qp_attr_mask`), and their names.

macro_rules! attributes {
    ($($name:ident = $bit:literal)*) => {
        $(pub const $name: u32 = 1 << $bit;)*
        const NAMES: &[(u32, &str)] = &[$(($name, stringify!($name))),*];
    };
}

attributes! {
    STATE = 0
    CUR_STATE = 1
    EN_SQD_ASYNC_NOTIFY = 2
    ACCESS_FLAGS = 3
    PKEY_INDEX = 4
    PORT = 5
    QKEY = 6
    AV = 7
    PATH_MTU = 8
    TIMEOUT = 9
    RETRY_CNT = 10
    RNR_RETRY = 11
    RQ_PSN = 12
    MAX_QP_RD_ATOMIC = 13
    ALT_PATH = 14
    MIN_RNR_TIMER = 15
    SQ_PSN = 16
    MAX_DEST_RD_ATOMIC = 17
    PATH_MIG_STATE = 18
    CAP = 19
    DEST_QPN = 20
    RATE_LIMIT = 25
}

/// Everything the legacy command knows.
pub const LEGACY: u32 = (1 << 21) - 1;
/// Everything the extended command knows.
pub const EXTENDED: u32 = LEGACY | RATE_LIMIT;

/// The names of bits, as verbs have them.
pub fn names(bits: u32) -> String {
    let named =
        NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| format!("IBV_QP_{name}"));
    let unknown = bits & !NAMES.iter().fold(0, |all, (bit, _)| all | bit);
    let unknown = (unknown != 0).then(|| format!("{unknown:#x}"));
    named.chain(unknown).collect::<Vec<String>>().join(", ")
}
