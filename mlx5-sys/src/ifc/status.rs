//! Status of a command's reply, from Linux's `device.h` (`MLX5_CMD_STAT_…`): those of
//! 6.1, and one that came later.

macro_rules! statuses {
    ($($name:ident = $value:literal, $words:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($value), "`: ", $words, ".")]
            pub const $name: u8 = $value;
        )*

        /// The name of a status.
        pub const fn name(status: u8) -> Option<&'static str> {
            match status {
                $($value => Some(stringify!($name)),)*
                _ => None,
            }
        }

        /// Returns the meaning of a status.
        pub const fn words(status: u8) -> Option<&'static str> {
            match status {
                $($value => Some($words),)*
                _ => None,
            }
        }

        /// Every status with its name.
        pub const STATUSES: &[(&str, u8)] = &[$((stringify!($name), $value)),*];
    };
}

statuses! {
    OK = 0x0, "done";
    INT_ERR = 0x1, "internal error";
    BAD_OP_ERR = 0x2, "bad operation: the card has no such command, or not in this state";
    BAD_PARAM_ERR = 0x3, "bad parameter";
    BAD_SYS_STATE_ERR = 0x4, "bad system state";
    BAD_RES_ERR = 0x5, "bad resource: an object that the command names does not exist or is another's";
    RES_BUSY = 0x6, "resource busy: another object stands on it";
    NOT_READY = 0x7, "firmware not ready";
    LIM_ERR = 0x8, "limits exceeded";
    BAD_RES_STATE_ERR = 0x9, "bad resource state: the object is not in the state that the command needs";
    IX_ERR = 0xa, "bad index";
    NO_RES_ERR = 0xf, "no resources left";
    BAD_QP_STATE_ERR = 0x10, "bad QP state";
    BAD_PKT_ERR = 0x30, "bad packet";
    BAD_SIZE_OUTS_CQES_ERR = 0x40, "bad size: more CQEs are outstanding";
    BAD_INP_LEN_ERR = 0x50, "bad input length";
    BAD_OUTP_LEN_ERR = 0x51, "bad output length";
}
