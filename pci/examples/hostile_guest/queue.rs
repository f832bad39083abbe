//! A command queue of one entry, in pages of this program, and the commands that start the HCA.

use mlx5_model_pci::mailbox::{BLOCK, ENTRY, exclusive_or, sign};
use mlx5_sys::ifc::{Field, manage_pages_in, opcode, query_pages_in, query_pages_out, set_issi_in};

use crate::Result;
use crate::memory::{Bar, PAGE, Pages};

/// Pages by their use: the queue, mailboxes of commands and of replies, and those for the function.
const QUEUE: usize = 0;
const INPUT: usize = 1;
const OUTPUT: usize = 1 + LISTS;
const GIVEN: usize = 1 + 2 * LISTS;
/// Pages of a list, each with four mailboxes.
const LISTS: usize = 4;
const MAILBOX: usize = PAGE / 4;
const GIVEABLE: usize = 64;
/// Pages that commands may name as memory of objects.
pub const SPARE: usize = 64;

/// Most bytes of a message.
pub const LONGEST: usize = 16 + LISTS * 4 * BLOCK;

/// The queue.
pub struct Queue {
    pub bar: Bar,
    pages: Pages,
    token: u8,
}

/// A command without fields.
fn bytes(opcode: u16, length: usize, fields: &[(Field, u64)]) -> Vec<u8> {
    let mut command = vec![0; length];
    command[..2].copy_from_slice(&opcode.to_be_bytes());
    fields.iter().for_each(|(field, value)| field.set(&mut command, *value));
    command
}

impl Queue {
    pub fn new(bar: Bar) -> Result<Self> {
        let pages = Pages::new(GIVEN + GIVEABLE + SPARE)?;
        Ok(Self { bar, pages, token: 0 })
    }

    /// Returns addresses that commands may name.
    pub fn spare(&self) -> &[u64] {
        &self.pages.addresses()[GIVEN + GIVEABLE..]
    }

    /// Tells the function where the queue is.
    pub fn connect(&self) {
        let address = self.pages.addresses()[QUEUE];
        self.bar.set_word(0x10, (address >> 32) as u32);
        self.bar.set_word(0x14, address as u32);
    }

    fn mailbox(&self, first: usize, number: usize) -> (usize, usize, u64) {
        let (page, offset) = (first + number / 4, number % 4 * MAILBOX);
        (page, offset, self.pages.addresses()[page] + offset as u64)
    }

    fn mailboxes(&self, first: usize, message: &[u8]) {
        for (number, part) in message.get(16..).unwrap_or_default().chunks(BLOCK).enumerate() {
            let (page, offset, _) = self.mailbox(first, number);
            let next = self.mailbox(first, (number + 1) % (LISTS * 4)).2;
            let mut mailbox = [0; 0x240];
            mailbox[..part.len()].copy_from_slice(part);
            mailbox[0x230..0x238].copy_from_slice(&next.to_be_bytes());
            mailbox[0x238..0x23c].copy_from_slice(&(number as u32).to_be_bytes());
            mailbox[0x23d] = self.token;
            sign(&mut mailbox);
            self.pages.write(page, offset, &mailbox);
        }
    }

    /// Puts a command into the entry, for a reply of so many bytes. Both are cut at [`LONGEST`].
    pub fn put(&mut self, input: &[u8], output: usize) {
        let (input, output) = (&input[..input.len().min(LONGEST)], output.min(LONGEST));
        self.token = self.token.wrapping_add(1).max(1);
        self.mailboxes(INPUT, input);
        self.mailboxes(OUTPUT, &vec![0; output]);
        let mut entry = [0; ENTRY];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&self.mailbox(INPUT, 0).2.to_be_bytes());
        let head = input.len().min(16);
        entry[16..16 + head].copy_from_slice(&input[..head]);
        entry[0x30..0x38].copy_from_slice(&self.mailbox(OUTPUT, 0).2.to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(output as u32).to_be_bytes());
        entry[0x3c] = self.token;
        entry[0x3f] = 1;
        entry[0x3d] = !exclusive_or(&entry);
        self.pages.write(QUEUE, 0, &entry);
    }

    /// Changes a byte of the entry, or of the command's first mailbox behind it.
    pub fn damage(&mut self, at: usize, byte: u8) {
        match at {
            0..ENTRY => self.pages.write(QUEUE, at, &[byte]),
            at => self.pages.write(INPUT, at - ENTRY, &[byte]),
        }
    }

    /// Rings, and returns the status of the reply once the function has given the entry back.
    ///
    /// # Errors
    /// The entry was not executed: its status, or none if the function has left the entry alone.
    pub fn ring(&self) -> std::result::Result<u8, Option<u8>> {
        self.bar.set_word(0x18, 1);
        // A load returns after the stores before it have arrived, and commands end with the store.
        self.bar.word(0x14);
        let mut entry = [0; ENTRY];
        self.pages.read(QUEUE, 0, &mut entry);
        match entry[0x3f] {
            0 => Ok(entry[0x20]),
            status if status & 1 == 0 => Err(Some(status >> 1)),
            _ => Err(None),
        }
    }

    fn run(&mut self, input: &[u8], output: usize) -> Result<()> {
        self.put(input, output);
        match self.ring() {
            Ok(0) => Ok(()),
            other => Err(format!("command {:02x?} ends with {other:?}", &input[..2])),
        }
    }

    /// Starts the HCA, as a driver does.
    pub fn boot(&mut self) -> Result<()> {
        self.connect();
        self.run(&bytes(opcode::ENABLE_HCA, 0x10, &[]), 0x10)?;
        self.run(&bytes(opcode::SET_ISSI, 0x10, &[(set_issi_in::CURRENT_ISSI, 1)]), 0x10)?;
        let first = self.give_pages(1, 0)?;
        self.give_pages(2, first)?;
        self.run(&bytes(opcode::INIT_HCA, 0x10, &[]), 0x10)
    }

    fn give_pages(&mut self, stage: u64, from: usize) -> Result<usize> {
        let query = bytes(opcode::QUERY_PAGES, 0x10, &[(query_pages_in::OP_MOD, stage)]);
        self.run(&query, 0x10)?;
        let mut reply = [0; 16];
        self.pages.read(QUEUE, 0x20, &mut reply);
        let count = query_pages_out::NUM_PAGES.get(&reply) as usize;
        let pages = self.pages.addresses()[GIVEN..GIVEN + GIVEABLE].get(from..from + count);
        let pages = pages.ok_or_else(|| format!("the function asks for {count} pages"))?;
        let length = manage_pages_in::PAS.bytes().start;
        let entries = (manage_pages_in::INPUT_NUM_ENTRIES, count as u64);
        let mut give =
            bytes(opcode::MANAGE_PAGES, length, &[(manage_pages_in::OP_MOD, 1), entries]);
        pages.iter().for_each(|page| give.extend(page.to_be_bytes()));
        self.run(&give, 0x10)?;
        Ok(count)
    }
}
