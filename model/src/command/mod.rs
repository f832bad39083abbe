//! Firmware commands: the only way objects come to be.

use crate::card::Card;

impl Card {
    /// Executes a firmware command: `input` is the command, big-endian, as `mlx5_ifc.h` lays it
    /// out; the reply fills `output` (status byte 0, syndrome at 4). What does not fit the
    /// command, the object it names or the state it is in is refused with a status and syndrome.
    pub fn execute(&mut self, input: &[u8], output: &mut [u8]) {
        todo!()
    }
}
