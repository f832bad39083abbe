use std::sync::Mutex;

use super::*;

/// Memory that begins at bus address zero.
struct Flat(Mutex<Vec<u8>>);

impl Flat {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Fault> {
        let (start, end) = (address as usize, self.0.lock().unwrap().len());
        let fits = start.checked_add(length).is_some_and(|stop| stop <= end);
        if fits { Ok(start..start + length) } else { Err(Fault(address)) }
    }
}

impl Memory for Flat {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        let range = self.range(address, to.len())?;
        to.copy_from_slice(&self.0.lock().unwrap()[range]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let range = self.range(address, from.len())?;
        self.0.lock().unwrap()[range].copy_from_slice(from);
        Ok(())
    }

    fn update(
        &self,
        address: u64,
        _: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        Err(Fault(address))
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.write(address, from)
    }
}

const TOKEN: u8 = 0x77;

/// An entry at 0 of a command of `length` bytes, with input mailboxes from 0x400 on and as many for
/// output from 0x4000 on.
fn queue(length: usize) -> Flat {
    let memory = Flat(Mutex::new(vec![0; 0x8000]));
    for list in [0x400u64, 0x4000] {
        for number in 0..length.saturating_sub(INLINE).div_ceil(BLOCK) as u64 {
            let mut mailbox = [0; MAILBOX];
            mailbox[..BLOCK].fill(number as u8 + 1);
            let next = list + (number + 1) * 0x400;
            mailbox[block::NEXT..block::NEXT + 8].copy_from_slice(&next.to_be_bytes());
            mailbox[block::NUMBER + 3] = number as u8;
            mailbox[block::TOKEN] = TOKEN;
            memory.write(list + number * 0x400, &mailbox).unwrap();
        }
    }
    let length = (length as u32).to_be_bytes();
    put(
        &memory,
        &[
            (entry::TYPE, &[PCI]),
            (entry::INPUT_LENGTH, &length),
            (entry::INPUT_LIST, &0x400u64.to_be_bytes()),
            (entry::INPUT, &[0xee; INLINE]),
            (entry::OUTPUT_LIST, &0x4000u64.to_be_bytes()),
            (entry::OUTPUT_LENGTH, &length),
            (entry::TOKEN, &[TOKEN]),
            (entry::STATUS, &[1]),
        ],
    );
    memory
}

/// Changes fields of the entry and signs it.
fn put(memory: &Flat, fields: &[(usize, &[u8])]) {
    for (at, bytes) in fields {
        memory.write(*at as u64, bytes).unwrap();
    }
    let mut bytes = [0; ENTRY];
    memory.read(0, &mut bytes).unwrap();
    bytes[entry::SIGNATURE] = 0;
    memory.write(entry::SIGNATURE as u64, &[!exclusive_or(&bytes)]).unwrap();
}

fn command(memory: &Flat) -> Result<Vec<u8>, Delivery> {
    Entry::read(memory, 0).unwrap().command(memory)
}

#[test]
fn a_command_is_gathered_from_its_mailboxes() {
    let long = command(&queue(16 + 512 + 100)).unwrap();
    assert_eq!(long[..16], [0xee; 16]);
    assert_eq!(long[16..528], [1; 512]);
    assert_eq!(long[528..], [2; 100]);
    assert_eq!(command(&queue(8)).unwrap(), [0xee; 8]);
}

#[test]
fn a_reply_is_spread_over_mailboxes_and_signed() {
    let memory = queue(16 + 512 + 100);
    let mut entry = Entry::read(&memory, 0).unwrap();
    assert!(entry.is_for_device());
    let reply: Vec<u8> = (0..628).map(|at| at as u8).collect();
    assert_eq!(entry.reply().unwrap().len(), reply.len());
    entry.answer(&memory, &reply).unwrap();
    entry.finish(&memory, Ok(())).unwrap();
    let mut read = [0; ENTRY];
    memory.read(0, &mut read).unwrap();
    assert_eq!(read[entry::OUTPUT..entry::OUTPUT + 16], reply[..16]);
    assert_eq!(read[entry::STATUS], 0, "the driver owns the entry");
    assert_eq!(exclusive_or(&read), 0xff);
    let mut mailbox = [0; MAILBOX];
    memory.read(0x4000, &mut mailbox).unwrap();
    assert_eq!(mailbox[..BLOCK], reply[16..528]);
    assert!(is_signed(&mailbox) && mailbox[block::CONTROL_SIGNATURE] != 0);
    memory.read(0x4400, &mut mailbox).unwrap();
    assert_eq!(mailbox[..100], reply[528..]);
}

#[test]
fn what_is_not_delivered_has_a_reason() {
    let mailbox = |at: u64, byte: u8| {
        let memory = queue(16 + 2 * 512);
        memory.write(at, &[byte]).unwrap();
        command(&memory)
    };
    assert_eq!(mailbox(0x800 + block::TOKEN as u64, 1), Err(Delivery::Token));
    assert_eq!(mailbox(0x800 + block::NUMBER as u64 + 3, 0), Err(Delivery::BlockNumber));
    assert_eq!(mailbox(0x800 + block::SIGNATURE as u64, 1), Err(Delivery::Signature));
    assert_eq!(mailbox(entry::SIGNATURE as u64, 0), Err(Delivery::Signature));
    let changed = |at: usize, bytes: &[u8]| {
        let memory = queue(16 + 2 * 512);
        put(&memory, &[(at, bytes)]);
        command(&memory)
    };
    assert_eq!(changed(entry::TYPE, &[6]), Err(Delivery::Descriptor));
    // Fact F133: 512 bytes are not enough.
    for at in [0x401u64, 0x480, 0x600] {
        assert_eq!(changed(entry::INPUT_LIST, &at.to_be_bytes()), Err(Delivery::InputAlignment));
    }
    assert_eq!(changed(entry::INPUT_LIST, &(1u64 << 40).to_be_bytes()), Err(Delivery::Firmware));
    assert_eq!(changed(entry::INPUT_LENGTH, &[0xff; 4]), Err(Delivery::InputLength));
    let memory = queue(16);
    put(&memory, &[(entry::OUTPUT_LENGTH, &[0xff; 4])]);
    assert_eq!(Entry::read(&memory, 0).unwrap().reply(), Err(Delivery::OutputLength));
    for at in [0x4001u64, 0x4200] {
        let memory = queue(16 + 512);
        put(&memory, &[(entry::OUTPUT_LIST, &at.to_be_bytes())]);
        let answered = Entry::read(&memory, 0).unwrap().answer(&memory, &[0; 17]);
        assert_eq!(answered, Err(Delivery::OutputAlignment));
    }
}

#[test]
fn a_list_that_loops_ends_at_the_second_turn() {
    let memory = queue(16 + 2 * 512);
    memory.write(0x400 + block::NEXT as u64, &0x400u64.to_be_bytes()).unwrap();
    put(&memory, &[(entry::INPUT_LENGTH, &(LONGEST as u32).to_be_bytes())]);
    assert_eq!(command(&memory), Err(Delivery::BlockNumber));
}

#[test]
fn signatures_of_mailboxes_are_checked_where_there_are_any() {
    let memory = queue(16 + 512);
    let mut mailbox = [0; MAILBOX];
    memory.read(0x400, &mut mailbox).unwrap();
    sign(&mut mailbox);
    memory.write(0x400, &mailbox).unwrap();
    command(&memory).unwrap();
    memory.write(0x400, &[0]).unwrap();
    assert_eq!(command(&memory), Err(Delivery::Signature));
}
