//! A driver: starts the HCA as Linux's does, and issues commands through the command queue.

use mlx5_model_pci::mailbox::{BLOCK, ENTRY, exclusive_or, sign};
use mlx5_sys::ifc::{
    Field, alloc_uar_out, create_eq_in, create_eq_out, eqc, manage_pages_in, opcode,
    query_hca_cap_out, query_issi_out, query_pages_in, query_pages_out, set_hca_cap_in,
    set_issi_in,
};

use super::Client;

/// Bus addresses.
pub const QUEUE: u64 = 0x1000;
const INPUT: u64 = 0x10_0000;
const OUTPUT: u64 = 0x18_0000;
const PAGES: u64 = 0x20_0000;
pub const EQ: u64 = 0x30_0000;
/// Type of events of completed commands.
const COMMANDS: u8 = 0x0a;

/// A driver of a function.
pub struct Driver {
    pub client: Client,
    token: u8,
}

/// A command as bytes.
pub fn bytes(opcode: u16, length: usize, fields: &[(Field, u64)]) -> Vec<u8> {
    let mut command = vec![0; length];
    command[..2].copy_from_slice(&opcode.to_be_bytes());
    fields.iter().for_each(|(field, value)| field.set(&mut command, *value));
    command
}

impl Driver {
    /// Connects the command queue.
    pub fn new(mut client: Client) -> Self {
        client.start();
        assert_eq!(client.word(0x1fc) >> 31, 0, "the firmware has started");
        assert_eq!(client.word(0x4) >> 16, 5, "the revision of the command interface");
        let size = client.word(0x14);
        assert_eq!((size >> 4 & 0xf, size & 0xf), (5, 6));
        client.set_word(0x10, (QUEUE >> 32) as u32);
        client.set_word(0x14, QUEUE as u32);
        assert_eq!(client.word(0x14) & !0xfff, QUEUE as u32);
        Self { client, token: 0 }
    }

    /// Writes a list of mailboxes for a message of so many bytes.
    fn mailboxes(&self, at: u64, message: &[u8]) {
        let blocks = message.get(16..).unwrap_or_default().chunks(BLOCK);
        for (number, part) in blocks.enumerate() {
            let here = at + number as u64 * 0x400;
            let mut mailbox = [0; 0x240];
            mailbox[..part.len()].copy_from_slice(part);
            mailbox[0x230..0x238].copy_from_slice(&(here + 0x400).to_be_bytes());
            mailbox[0x238..0x23c].copy_from_slice(&(number as u32).to_be_bytes());
            mailbox[0x23d] = self.token;
            sign(&mut mailbox);
            self.client.poke(here, &mailbox);
        }
    }

    /// Puts a command into a slot, without ringing.
    pub fn put(&mut self, slot: u32, input: &[u8], output: usize) {
        self.token = self.token.wrapping_add(1).max(1);
        let lists = u64::from(slot) << 14;
        self.mailboxes(INPUT + lists, input);
        self.mailboxes(OUTPUT + lists, &vec![0; output]);
        let mut entry = [0; ENTRY];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&(INPUT + lists).to_be_bytes());
        let head = input.len().min(16);
        entry[16..16 + head].copy_from_slice(&input[..head]);
        entry[0x30..0x38].copy_from_slice(&(OUTPUT + lists).to_be_bytes());
        entry[0x38..0x3c].copy_from_slice(&(output as u32).to_be_bytes());
        entry[0x3c] = self.token;
        entry[0x3f] = 1;
        entry[0x3d] = !exclusive_or(&entry);
        self.client.poke(QUEUE + u64::from(slot) * ENTRY as u64, &entry);
    }

    /// Returns the reply in a slot, or the status of its delivery.
    pub fn take(&self, slot: u32, output: usize) -> Result<Vec<u8>, u8> {
        let entry = self.client.peek(QUEUE + u64::from(slot) * ENTRY as u64, ENTRY);
        assert_eq!(entry[0x3f] & 1, 0, "the device has given the entry back");
        assert_eq!(exclusive_or(&entry), 0xff, "the entry is signed");
        if entry[0x3f] != 0 {
            return Err(entry[0x3f] >> 1);
        }
        let mut reply = entry[0x20..0x30].to_vec();
        let lists = OUTPUT + (u64::from(slot) << 14);
        for number in 0..output.saturating_sub(16).div_ceil(BLOCK) as u64 {
            reply.extend(self.client.peek(lists + number * 0x400, BLOCK));
        }
        reply.truncate(output);
        Ok(reply)
    }

    /// Executes a command, and returns its reply or its status.
    pub fn run(&mut self, input: &[u8], output: usize) -> Result<Vec<u8>, u8> {
        self.put(0, input, output);
        self.client.set_word(0x18, 1);
        let reply = self.take(0, output).expect("the command is delivered");
        if reply[0] == 0 { Ok(reply) } else { Err(reply[0]) }
    }

    /// Starts the HCA.
    pub fn boot(&mut self) {
        self.run(&bytes(opcode::ENABLE_HCA, 0x10, &[]), 0x10).unwrap();
        let issi = self.run(&bytes(opcode::QUERY_ISSI, 0x10, &[]), query_issi_out::SIZE).unwrap();
        assert_eq!(query_issi_out::SUPPORTED_ISSI_DW0.get(&issi) & 2, 2);
        let set = bytes(opcode::SET_ISSI, 0x10, &[(set_issi_in::CURRENT_ISSI, 1)]);
        self.run(&set, 0x10).unwrap();
        let first = self.give_pages(1, PAGES);
        self.set_capabilities();
        self.give_pages(2, PAGES + first * 0x1000);
        self.run(&bytes(opcode::INIT_HCA, 0x10, &[]), 0x10).unwrap();
    }

    /// Gives the pages that the function asks for. Returns how many.
    fn give_pages(&mut self, stage: u64, at: u64) -> u64 {
        let query = bytes(opcode::QUERY_PAGES, 0x10, &[(query_pages_in::OP_MOD, stage)]);
        let count = query_pages_out::NUM_PAGES.get(&self.run(&query, 0x10).unwrap());
        let length = manage_pages_in::PAS.bytes().start + count as usize * 8;
        let fields = [(manage_pages_in::OP_MOD, 1), (manage_pages_in::INPUT_NUM_ENTRIES, count)];
        let mut give = bytes(opcode::MANAGE_PAGES, length, &fields);
        let list = &mut give[manage_pages_in::PAS.bytes().start..];
        for (page, entry) in list.chunks_exact_mut(8).enumerate() {
            entry.copy_from_slice(&(at + page as u64 * 0x1000).to_be_bytes());
        }
        self.run(&give, 0x10).unwrap();
        count
    }

    /// Reads a group of capabilities: general ones are group zero.
    pub fn capabilities(&mut self, group: u64) -> Result<Vec<u8>, u8> {
        let query = bytes(opcode::QUERY_HCA_CAP, 0x10, &[(Field::new(4, 15, 16), group << 1 | 1)]);
        let reply = self.run(&query, query_hca_cap_out::SIZE)?;
        Ok(reply[query_hca_cap_out::CAPABILITY.bytes()].to_vec())
    }

    fn set_capabilities(&mut self) {
        let current = self.capabilities(0).unwrap();
        let mut set = bytes(opcode::SET_HCA_CAP, set_hca_cap_in::SIZE, &[]);
        set[set_hca_cap_in::CAPABILITY.bytes()].copy_from_slice(&current);
        self.run(&set, 0x10).unwrap();
    }

    /// Creates a UAR page. Returns its number.
    pub fn uar(&mut self) -> u64 {
        alloc_uar_out::UAR.get(&self.run(&bytes(opcode::ALLOC_UAR, 0x10, &[]), 0x10).unwrap())
    }

    /// Returns the command that creates an EQ of 32 entries on a vector, for completed commands.
    pub fn command_eq(uar: u64, vector: u64) -> Vec<u8> {
        let context = |field: Field| field.within(create_eq_in::EQ_CONTEXT_ENTRY);
        let mask = 1u64 << COMMANDS;
        let mut create = bytes(
            opcode::CREATE_EQ,
            0x118,
            &[
                (context(eqc::LOG_EQ_SIZE), 5),
                (context(eqc::UAR_PAGE), uar),
                (context(eqc::INTR), vector),
                (context(eqc::ST), 0x9),
            ],
        );
        create[0x58..0x60].copy_from_slice(&mask.to_be_bytes());
        create[0x110..0x118].copy_from_slice(&EQ.to_be_bytes());
        create
    }

    /// Creates that EQ. Returns its number.
    pub fn create_command_eq(&mut self, uar: u64, vector: u64) -> u64 {
        let reply = self.run(&Self::command_eq(uar, vector), 0x10).unwrap();
        create_eq_out::EQ_NUMBER.get(&reply)
    }

    /// Takes events up to a counter, and arms the EQ.
    pub fn arm(&mut self, uar: u64, eq: u64, consumer: u32) {
        let word = (eq as u32) << 24 | consumer;
        self.client.write(super::BAR, (uar << 12) + 0x40, &word.to_be_bytes()).unwrap();
    }
}
