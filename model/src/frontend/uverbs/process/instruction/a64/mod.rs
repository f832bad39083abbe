//! arm64: the source operand is one or more registers of one kind, which the signal frame has.
//!
//! [`Access::decode`] reads the 32 bits of an instruction and [`Access`] reads a register file.
//! Neither depends on the machine, so both are tested on every architecture. Encodings are those of
//! the Arm Architecture Reference Manual (DDI 0487), "Loads and Stores".

#[cfg(target_arch = "aarch64")]
pub mod frame;
#[cfg(test)]
mod test;

use super::Bytes;

/// Values of the registers that an access uses.
pub struct Registers<'a> {
    /// X0 to X30.
    pub general: &'a [u64; 31],
    pub stack_pointer: u64,
    /// V0 to V31, 16 bytes each, least significant byte first. Empty if the frame has none.
    pub vectors: &'a [u8],
}

/// A load or store: the registers it uses and how it forms its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub kind: Kind,
    /// The register with the address; 31 is the stack pointer.
    base: u8,
    place: Place,
    file: File,
    /// The first `count` of these are stored to ascending addresses, or loaded from them.
    registers: [u8; 4],
    count: usize,
    /// Bytes of each register.
    size: usize,
    /// The first of these bytes within a vector register.
    lane: usize,
    /// Bytes taken from one register before the next one has its turn: fewer than `size` where the
    /// instruction interleaves registers (ST2, ST3, ST4).
    turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Store,
    /// A load that extends with zeros.
    Load,
    /// A load that extends the sign to this many bytes.
    SignedLoad(usize),
}

/// What is added to the base, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the access; the base stays.
    Offset(i64),
    /// Before the access; the base changes.
    Before(i64),
    /// After the access: the base changes.
    After(i64),
    /// A general register, after the access.
    AfterRegister(u8),
    /// An index register, extended and shifted; the base stays.
    Index { register: u8, extension: Extension, shift: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    Word,
    Long,
    SignedWord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    General,
    Vector,
}

/// The reason why an instruction is not an [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecoded {
    /// ST64B and its relatives.
    SixtyFourBytes,
    /// LDADD, SWP, CAS and exclusive accesses.
    Atomic,
    /// DC ZVA and its relatives.
    ZeroBlock,
    Other,
}

/// The stack pointer as a base, and the register of zeros as a source.
const LAST: u8 = 31;

/// The bits of `word` from `low` to `high`.
const fn bits(word: u32, high: u32, low: u32) -> u32 {
    word << (31 - high) >> (31 - high + low)
}

/// The same as a number with a sign.
const fn signed(word: u32, high: u32, low: u32) -> i64 {
    ((word << (31 - high)) as i32 >> (31 - high + low)) as i64
}

/// The number of a register, in five bits from `low` on.
const fn register(word: u32, low: u32) -> u8 {
    bits(word, low + 4, low) as u8
}

impl Access {
    /// Decodes the 32 bits of an instruction.
    pub fn decode(word: u32) -> Result<Self, Undecoded> {
        match (bits(word, 29, 27), bits(word, 25, 24)) {
            (0b111, 0b01) => Self::single(word, Self::scaled(word)).ok_or(Undecoded::Other),
            (0b111, 0b00) => Self::register_forms(word),
            (0b101, _) => Self::pair(word).ok_or(Undecoded::Other),
            (0b001, 0b00) if bits(word, 26, 26) == 0 => Self::ordered(word),
            (0b001, _) if bits(word, 31, 31) == 0 && bits(word, 26, 26) == 1 => {
                Self::structure(word).ok_or(Undecoded::Other)
            }
            // DC with CRm 4: ZVA, GVA and GZVA.
            _ if word & 0xffff_ff00 == 0xd50b_7400 => Err(Undecoded::ZeroBlock),
            _ => Err(Undecoded::Other),
        }
    }

    /// An unsigned offset in units of the access.
    fn scaled(word: u32) -> Place {
        let (scale, _) = Self::width(word);
        Place::Offset(i64::from(bits(word, 21, 10)) << scale)
    }

    /// The logarithm of the bytes of a single register, and the bits that say what is done with it.
    fn width(word: u32) -> (u32, u32) {
        let (size, opcode) = (bits(word, 31, 30), bits(word, 23, 22));
        // The upper bit of the opcode makes a vector register of one byte a whole one.
        let whole = bits(word, 26, 26) == 1 && opcode & 0b10 != 0;
        if whole && size == 0 { (4, opcode & 1) } else { (size, opcode) }
    }

    /// LDR and STR of one register, of either file.
    fn single(word: u32, place: Place) -> Option<Self> {
        let vector = bits(word, 26, 26) == 1;
        let (scale, opcode) = Self::width(word);
        let kind = match (vector, opcode, scale) {
            (_, 0b00, _) => Kind::Store,
            (_, 0b01, _) => Kind::Load,
            (false, 0b10, 0..=2) => Kind::SignedLoad(8),
            (false, 0b11, 0..=1) => Kind::SignedLoad(4),
            _ => return None,
        };
        let file = if vector { File::Vector } else { File::General };
        Some(Self::of(word, kind, place, file, &[register(word, 0)], 1 << scale))
    }

    fn of(word: u32, kind: Kind, place: Place, file: File, names: &[u8], size: usize) -> Self {
        let mut registers = [0; 4];
        registers[..names.len()].copy_from_slice(names);
        let count = names.len();
        let base = register(word, 5);
        Self { kind, base, place, file, registers, count, size, lane: 0, turn: size }
    }

    /// Unscaled offsets, changes of the base, register offsets; beside them stand the atomics.
    fn register_forms(word: u32) -> Result<Self, Undecoded> {
        let near = signed(word, 20, 12);
        let place = match (bits(word, 21, 21), bits(word, 11, 10)) {
            // 0b10 is the unprivileged form: the same for a program.
            (0, 0b00 | 0b10) => Place::Offset(near),
            (0, 0b01) => Place::After(near),
            (0, _) => Place::Before(near),
            (_, 0b10) => Self::index(word).ok_or(Undecoded::Other)?,
            (_, 0b00) if bits(word, 26, 26) == 0 => {
                // Opcodes of LD64B, ST64B, ST64BV and ST64BV0.
                let wide = matches!(bits(word, 15, 12), 0b1001 | 0b1010 | 0b1011 | 0b1101);
                let whole = word & 0xffe0_0000 == 0xf820_0000;
                let wide = wide && whole;
                return Err(if wide { Undecoded::SixtyFourBytes } else { Undecoded::Atomic });
            }
            _ => return Err(Undecoded::Other),
        };
        Self::single(word, place).ok_or(Undecoded::Other)
    }

    fn index(word: u32) -> Option<Place> {
        let extension = match bits(word, 15, 13) {
            0b010 => Extension::Word,
            0b011 | 0b111 => Extension::Long,
            0b110 => Extension::SignedWord,
            _ => return None,
        };
        let (scale, _) = Self::width(word);
        let shift = if bits(word, 12, 12) == 1 { scale } else { 0 };
        Some(Place::Index { register: register(word, 16), extension, shift })
    }

    /// LDP, STP and their non-temporal forms.
    fn pair(word: u32) -> Option<Self> {
        let (vector, load) = (bits(word, 26, 26) == 1, bits(word, 22, 22) == 1);
        let (size, kind) = match (bits(word, 31, 30), vector, load) {
            (0b00, _, false) => (4, Kind::Store),
            (0b00, _, true) => (4, Kind::Load),
            (0b01, true, false) => (8, Kind::Store),
            (0b01, true, true) => (8, Kind::Load),
            // LDPSW, which has no non-temporal form. With the same bits, STGP stores a tag as well.
            (0b01, false, true) if bits(word, 24, 23) != 0 => (4, Kind::SignedLoad(8)),
            (0b10, false, false) => (8, Kind::Store),
            (0b10, false, true) => (8, Kind::Load),
            (0b10, true, false) => (16, Kind::Store),
            (0b10, true, true) => (16, Kind::Load),
            _ => return None,
        };
        let offset = signed(word, 21, 15) * size;
        let place = match bits(word, 25, 23) {
            0b000 | 0b010 => Place::Offset(offset),
            0b001 => Place::After(offset),
            0b011 => Place::Before(offset),
            _ => return None,
        };
        let file = if vector { File::Vector } else { File::General };
        let names = [register(word, 0), register(word, 10)];
        Some(Self::of(word, kind, place, file, &names, size as usize))
    }

    /// STLR, STLLR, LDAR and LDLAR; beside them stand the exclusive accesses and CAS.
    fn ordered(word: u32) -> Result<Self, Undecoded> {
        if bits(word, 23, 23) == 0 || bits(word, 21, 21) == 1 {
            return Err(Undecoded::Atomic);
        }
        let kind = if bits(word, 22, 22) == 1 { Kind::Load } else { Kind::Store };
        let size = 1 << bits(word, 31, 30);
        Ok(Self::of(word, kind, Place::Offset(0), File::General, &[register(word, 0)], size))
    }

    /// ST1 to ST4 of whole registers, ST1 of one lane, and their loads.
    fn structure(word: u32) -> Option<Self> {
        let whole = bits(word, 30, 30) as usize;
        let first = register(word, 0);
        let mut lane = 0;
        let (count, size, turn) = if bits(word, 24, 24) == 0 {
            let size = 8 << whole;
            let element = 1 << bits(word, 11, 10);
            let (count, turn) = match bits(word, 15, 12) {
                0b0111 => (1, size),
                0b1010 => (2, size),
                0b0110 => (3, size),
                0b0010 => (4, size),
                0b1000 => (2, element),
                0b0100 => (3, element),
                0b0000 => (4, element),
                _ => return None,
            };
            if bits(word, 21, 21) == 1 {
                return None;
            }
            (count, size, turn)
        } else {
            // Q, S and size make the number of the lane; the larger lanes leave bits of it zero.
            let number = whole << 3 | bits(word, 12, 10) as usize;
            let scale = match (bits(word, 15, 13), bits(word, 12, 10), bits(word, 21, 21)) {
                (0b000, _, 0) => 0,
                (0b010, low, 0) if low & 1 == 0 => 1,
                (0b100, low, 0) if low & 0b11 == 0 => 2,
                (0b100, 0b001, 0) => 3,
                _ => return None,
            };
            lane = (number >> scale) << scale;
            (1, 1 << scale, 1 << scale)
        };
        let kind = if bits(word, 22, 22) == 1 { Kind::Load } else { Kind::Store };
        let place = match (bits(word, 23, 23), register(word, 16)) {
            (0, 0) => Place::Offset(0),
            (0, _) => return None,
            (_, LAST) => Place::After((count * size) as i64),
            (_, by) => Place::AfterRegister(by),
        };
        let next = |number: u8| (first + number) % 32;
        let names = [next(0), next(1), next(2), next(3)];
        let mut access = Self::of(word, kind, place, File::Vector, &names[..count], size);
        (access.lane, access.turn) = (lane, turn);
        Some(access)
    }

    /// The bytes that are accessed.
    pub fn length(&self) -> usize {
        self.count * self.size
    }

    /// The first address that is accessed. A program's pointers have eight bits of its own at the
    /// top, which accesses ignore.
    pub fn address(&self, registers: &Registers<'_>) -> u64 {
        let base = registers.base(self.base);
        let address = match self.place {
            Place::Offset(offset) | Place::Before(offset) => base.wrapping_add_signed(offset),
            Place::After(_) | Place::AfterRegister(_) => base,
            Place::Index { register, extension, shift } => {
                let value = registers.general(register);
                let index = match extension {
                    Extension::Word => value & u64::from(u32::MAX),
                    Extension::Long => value,
                    Extension::SignedWord => value as i32 as u64,
                };
                base.wrapping_add(index << shift)
            }
        };
        address << 8 >> 8
    }

    /// The base register and its value after the access, if the access changes it.
    pub fn base_after(&self, registers: &Registers<'_>) -> Option<(u8, u64)> {
        let base = registers.base(self.base);
        let after = match self.place {
            Place::Before(offset) | Place::After(offset) => base.wrapping_add_signed(offset),
            Place::AfterRegister(by) => base.wrapping_add(registers.general(by)),
            Place::Offset(_) | Place::Index { .. } => return None,
        };
        Some((self.base, after))
    }

    /// The bytes that a store stores. `None` for a load, or if the frame has no vector registers.
    pub fn stored(&self, registers: &Registers<'_>) -> Option<Bytes> {
        if self.kind != Kind::Store {
            return None;
        }
        let mut bytes = [0; 64];
        for (index, register) in self.names().iter().enumerate() {
            let value = self.value(*register, registers)?;
            // Turn by turn: the turns of the other registers lie between two of this one.
            for (turn, part) in value.get(..self.size)?.chunks_exact(self.turn).enumerate() {
                let at = (turn * self.count + index) * self.turn;
                bytes.get_mut(at..at + self.turn)?.copy_from_slice(part);
            }
        }
        Some(Bytes::of(&bytes[..self.length()]))
    }

    /// The general registers that a load of at most eight bytes changes, with their values. `value`
    /// has the loaded bytes, the first of them lowest. `None` for others.
    pub fn loaded(&self, value: u64) -> Option<impl Iterator<Item = (u8, u64)> + '_> {
        if self.kind == Kind::Store || self.file == File::Vector || self.length() > 8 {
            return None;
        }
        let width = 8 * self.size as u32;
        Some(self.names().iter().enumerate().map(move |(index, register)| {
            // The part at the top, then moved down with or without its sign.
            let part = value >> (width * index as u32) << (64 - width);
            let value = match self.kind {
                Kind::SignedLoad(size) => {
                    let extended = ((part as i64) >> (64 - width)) as u64;
                    if size == 4 { extended & u64::from(u32::MAX) } else { extended }
                }
                _ => part >> (64 - width),
            };
            (*register, value)
        }))
    }

    /// The bytes of a register, from the lane on.
    fn value(&self, register: u8, registers: &Registers<'_>) -> Option<[u8; 16]> {
        let mut value = [0; 16];
        match self.file {
            File::General => {
                value[..8].copy_from_slice(&registers.general(register).to_le_bytes());
            }
            File::Vector => {
                let start = 16 * usize::from(register);
                let whole = registers.vectors.get(start..start + 16)?;
                value[..16 - self.lane].copy_from_slice(&whole[self.lane..]);
            }
        }
        Some(value)
    }

    fn names(&self) -> &[u8] {
        &self.registers[..self.count]
    }
}

impl Registers<'_> {
    /// Register 31 is zero.
    fn general(&self, number: u8) -> u64 {
        self.general.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Register 31 is the stack pointer.
    fn base(&self, number: u8) -> u64 {
        self.general.get(usize::from(number)).copied().unwrap_or(self.stack_pointer)
    }
}

/// The vector registers in the part of a signal frame that has records of extensions: each begins
/// with a magic number and its size, and the last one is zero (`asm/sigcontext.h` of Linux).
/// `None` if there is no such record.
pub fn vectors(mut records: &[u8]) -> Option<&[u8]> {
    /// `FPSIMD_MAGIC`.
    const MAGIC: u32 = 0x4650_8001;
    /// Magic and size, then FPSR and FPCR.
    const BEFORE: usize = 16;
    loop {
        let word = |at| Some(u32::from_le_bytes(records.get(at..at + 4)?.try_into().ok()?));
        let (magic, size) = (word(0)?, word(4)? as usize);
        if magic == MAGIC {
            return records.get(BEFORE..BEFORE + 16 * 32);
        }
        // A size of less than its own head would never end.
        if magic == 0 || size < 8 {
            return None;
        }
        records = records.get(size..)?;
    }
}
