//! Bits of `opt_param_mask` in the commands that move queue pairs: the context's fields of a bit are
//! taken if it is set. Names and values as `MLX5_QP_OPTPAR_*` of Linux `mlx5/qp.h`.

/// The alternate path.
pub const ALT_ADDR_PATH: u32 = 1 << 0;
/// Remote reads are allowed.
pub const RRE: u32 = 1 << 1;
/// Remote atomics are allowed.
pub const RAE: u32 = 1 << 2;
/// Remote writes are allowed.
pub const RWE: u32 = 1 << 3;
/// The index of the P_Key.
pub const PKEY_INDEX: u32 = 1 << 4;
/// The Q_Key.
pub const Q_KEY: u32 = 1 << 5;
/// The time that RNR NAKs name.
pub const RNR_TIMEOUT: u32 = 1 << 6;
/// The primary path.
pub const PRIMARY_ADDR_PATH: u32 = 1 << 7;
/// READs and atomics under way, as requester.
pub const SRA_MAX: u32 = 1 << 8;
/// READs and atomics under way, as responder.
pub const RRA_MAX: u32 = 1 << 9;
/// The state of path migration.
pub const PM_STATE: u32 = 1 << 10;
/// Retries after time-outs.
pub const RETRY_COUNT: u32 = 1 << 12;
/// Retries after RNR NAKs.
pub const RNR_RETRY: u32 = 1 << 13;
/// The time-out of acknowledgements.
pub const ACK_TIMEOUT: u32 = 1 << 14;
/// The port of a bond.
pub const LAG_TX_AFF: u32 = 1 << 15;
/// The port of the primary path.
pub const PRI_PORT: u32 = 1 << 16;
/// The set of counters.
pub const COUNTER_SET_ID: u32 = 1 << 25;
