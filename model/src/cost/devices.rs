//! The costs by generation.
//!
//! A value is *measured* if a fact of `evidence/` is that value, *fitted* if it was chosen so that a sum
//! of steps comes near the facts named, and *assumed* if no fact says anything.
//! `cargo run --example cost_model -- residuals` prints how near each fact is.

use mlx5_sys::ifc::opcode;

use super::parameters::{Command, Parameters};

/// Picoseconds of a nanosecond.
const NS: u64 = 1_000;
/// Picoseconds of a microsecond.
const US: u64 = 1_000 * NS;

/// No generation's: chosen near published measurements of machines with a link of 100 Gb/s.
/// `docs/model.md` ("Virtual time") has the sources.
pub const CHOSEN: Parameters = Parameters {
    doorbell: 20 * NS,
    blueflame: 95 * NS,
    posted: 140 * NS,
    read: 520 * NS,
    receive: 520 * NS,
    memory: 240 * NS,
    bus_byte: 63,
    request: 10 * NS,
    queue: 0,
    nop: 0,
    wire_byte: 80,
    flight: 380 * NS,
    // Measured on ConnectX-6 (E022, E016, E017).
    protection: 225 * US,
    first_flush: 59_500 * NS,
    flush: 9_350 * NS,
    // Measured on ConnectX-5 and -6 Dx (E118). The repetition took 2 to 6 µs.
    nak: 2 * US,
    repetition: 4 * US,
    // Measured on ConnectX-5 (E122).
    jump: 20 * US,
    answer: 0,
    atomic: 0,
    place: 0,
    commands: &[],
};

/// ConnectX-5 on PCIe 3.0 with 16 lanes, with a link of 100 Gb/s.
pub const CONNECTX5: Parameters = Parameters {
    // Fitted: the first NOP of a doorbell (E162). A read of 64 bytes took 520 ns elsewhere (E187).
    read: 555 * NS,
    // Fitted: half a round trip of raw packets (F157) and of SENDs (F159) leaves no time for a fetch.
    receive: 0,
    // Measured: 63 million WRITEs a second through a port (E166, E167).
    request: 15_873,
    // Fitted: three times `request`, for 20 million packets a second of one queue (E173, E174).
    queue: 3 * 15_873,
    // Measured: each further NOP behind a doorbell (E162).
    nop: 170 * NS,
    // Fitted: half a round trip of raw packets over a cable (F157), and of SENDs of 32 bytes (F159).
    flight: 135 * NS,
    // Fitted: WRITE and READ until they complete (E160, E161).
    answer: 470 * NS,
    // Measured: 8.4 million atomics a second through a port (E167).
    atomic: 119_048,
    // Measured on Connect-IB: 2.24 million a second at one address (E169). Assumed here.
    place: 446_429,
    commands: COMMANDS,
    ..CHOSEN
};

/// ConnectX-6 on PCIe 4.0 with 16 lanes, with a link of 200 Gb/s. What nobody has measured is assumed to
/// be that of ConnectX-5.
pub const CONNECTX6: Parameters = Parameters {
    bus_byte: 32,
    // Measured: 112 million requests a second through a port (E166).
    request: 8_929,
    // Fitted: six times `request`, for 20 million packets a second of one queue (E174).
    queue: 6 * 8_929,
    wire_byte: 40,
    ..CONNECTX5
};

/// ConnectX-6 Dx with a link of 100 Gb/s. Its rates are assumed to be those of ConnectX-6.
pub const CONNECTX6_DX: Parameters = Parameters { wire_byte: 80, ..CONNECTX6 };

/// ConnectX-7 on PCIe 5.0 with 16 lanes, with a link of 400 Gb/s (F165). Its rates are assumed to be
/// those of ConnectX-6.
pub const CONNECTX7: Parameters = Parameters { bus_byte: 16, wire_byte: 20, ..CONNECTX6 };

/// Measured as verbs on ConnectX-5 and ConnectX-6, and assumed for the other generations.
const COMMANDS: &[Command] = &[
    each(opcode::QP_2RST, 1_695),
    each(opcode::RST2INIT_QP, 431),
    each(opcode::INIT2RTR_QP, 371),
    each(opcode::RTR2RTS_QP, 222),
    each(opcode::QP_2ERR, 217),
    // From 57.8 to 83.5 µs (E138).
    each(opcode::QUERY_QP, 70),
    // By verbs 550 to 600 µs, by command 430 to 480 µs (E140).
    each(opcode::DESTROY_QP, 510),
    // Fitted: with the others, 1.8 ms for a queue pair that is made anew (E142).
    each(opcode::CREATE_QP, 276),
    // 98 ms and 23.5 ms for a gigabyte (F172), and 54.5 µs for both of 8 KiB (F173).
    Command { opcode: opcode::CREATE_MKEY, each: 30 * US, byte: 98 },
    Command { opcode: opcode::DESTROY_MKEY, each: 24 * US, byte: 23 },
];

/// Returns the cost of a command that takes so many microseconds: E133 to E138, E140.
const fn each(opcode: u16, microseconds: u64) -> Command {
    Command { opcode, each: microseconds * US, byte: 0 }
}
