//! Recordings of the model: read by record, by call and by event, and replayed. The fuzz target and the
//! test that replays its corpus share it.

use mlx5_model::card::{Link, PortState};
use mlx5_model::engine::identities;
use mlx5_model::replay::replay;
use mlx5_model::trace::{Detail, Header, ReadError, Reader};

/// Records of one input that is made of parts.
const RECORDS: usize = 256;

/// The kind of a part of a record's content.
#[derive(Clone, Copy)]
enum Part {
    /// So many bytes of the input.
    Bytes(usize),
    /// A byte of the input, below this.
    Below(u8),
    /// As many bytes as the input says.
    Some,
}

use Part::{Below, Bytes, Some as Rest};

/// The code of the call that ends with a reply, of a reply, and of the end of any other call.
const COMMAND: u8 = 1;
const REPLY: u8 = 30;
const END: u8 = 31;
/// Codes of the other records, and what their contents are. Calls come first, without card and time.
const KINDS: [(u8, &[Part]); 30] = [
    (COMMAND, &[Rest]),
    (2, &[Bytes(6), Rest]),
    (3, &[Bytes(4)]),
    (4, &[Rest]),
    (5, &[]),
    (6, &[]),
    (7, &[]),
    (8, &[]),
    (9, &[]),
    (10, &[]),
    (11, &[Bytes(2)]),
    (12, &[Bytes(8)]),
    (13, &[Below(2)]),
    (14, &[Bytes(1), Below(2)]),
    (15, &[Below(2), Bytes(14), Below(2)]),
    (16, &[Below(2), Bytes(14), Below(2)]),
    (40, &[Bytes(8), Rest]),
    (41, &[Bytes(20)]),
    (42, &[Bytes(8), Rest]),
    (43, &[Bytes(16), Rest]),
    (44, &[Bytes(24)]),
    (45, &[Bytes(16)]),
    (46, &[Bytes(4)]),
    (60, &[Bytes(6), Below(6), Rest]),
    (61, &[Bytes(4), Below(2), Bytes(6), Rest]),
    (62, &[Bytes(8), Below(2), Rest]),
    (63, &[Bytes(8), Rest]),
    (64, &[Rest]),
    (65, &[Bytes(4)]),
    (66, &[Below(6), Bytes(8)]),
];
const CALLS: usize = 16;
/// A clock's reading, whose four bytes of the input are nanoseconds since the one before.
const TIME: u8 = 46;

/// Returns a recording, and reads it in every way. The first byte of the input chooses whether the others
/// are its bytes, or parts that records are made of, so that lengths and the header's checksum are right.
pub fn recording(input: &[u8]) -> Vec<u8> {
    let Some((first, rest)) = input.split_first() else { return Vec::new() };
    let stream = match first & 1 {
        0 => rest.to_vec(),
        _ => made(*first, rest),
    };
    read(&stream);
    stream
}

/// Makes a recording of parts.
fn made(first: u8, mut rest: &[u8]) -> Vec<u8> {
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at(length.min(rest.len()));
        let more = !left.is_empty();
        rest = left;
        let mut taken = taken.to_vec();
        taken.resize(length, 0);
        (taken, more)
    };
    let link = if first & 2 == 0 { Link::InfiniBand } else { Link::Roce };
    let cards = 1 + (first >> 2 & 1);
    let mut header = Header {
        build: "mlx5-model build".into(),
        detail: if first & 8 == 0 { Detail::Replay } else { Detail::Story },
        process: 1,
        program: "program".into(),
        began: 0,
        monotonic: 0,
        cards: identities(cards.into(), link, 1),
    };
    for card in &mut header.cards {
        card.user_contexts = first & 16 == 0;
        card.port = PortState::ALL[usize::from(first >> 5) % PortState::ALL.len()];
    }
    let mut stream = header.bytes();
    let mut put = |kind: u8, content: &[u8]| {
        stream.push(kind);
        stream.extend((content.len() as u32).to_le_bytes());
        stream.extend(content);
    };
    let (mut time, mut open) = (0_u64, None);
    let close = |open: Option<u8>, reply: &[u8]| match open {
        None => None,
        Some(COMMAND) => Some((REPLY, reply.to_vec())),
        Some(_) => Some((END, Vec::new())),
    };
    for _ in 0..RECORDS {
        let (which, more) = take(1);
        if !more {
            break;
        }
        let at = usize::from(which[0]) % (KINDS.len() + 1);
        let Some((kind, parts)) = KINDS.get(at) else {
            // The end of the call, with a reply of the input.
            let length = usize::from(u16::from_le_bytes([take(1).0[0], take(1).0[0]]));
            let reply = if open == Some(COMMAND) { take(length).0 } else { Vec::new() };
            if let Some((kind, content)) = close(open.take(), &reply) {
                put(kind, &content);
            }
            continue;
        };
        let mut content = Vec::new();
        if at < CALLS {
            if let Some((kind, content)) = close(open.take(), &[0; 16]) {
                put(kind, &content);
            }
            open = Some(*kind);
            let (begins, _) = take(3);
            time += u64::from(u16::from_le_bytes([begins[1], begins[2]])) << 10;
            content.push(begins[0] % cards);
            content.extend(time.to_le_bytes());
        } else if open.is_none() {
            open = Some(KINDS[5].0);
            put(KINDS[5].0, &[&[0][..], &time.to_le_bytes()].concat());
        }
        for part in *parts {
            match part {
                Bytes(length) => content.extend(take(*length).0),
                Below(limit) => content.push(take(1).0[0] % limit),
                Rest => {
                    let length = u16::from_le_bytes([take(1).0[0], take(1).0[0]]);
                    content.extend(take(length.into()).0);
                }
            }
        }
        if *kind == TIME {
            let passed = u32::from_le_bytes(content[..4].try_into().expect("four bytes"));
            time += u64::from(passed);
            content = time.to_le_bytes().to_vec();
        }
        put(*kind, &content);
    }
    if let Some((kind, content)) = close(open, &[0; 16]) {
        put(kind, &content);
    }
    stream
}

/// Reads records, calls and events, and replays.
fn read(stream: &[u8]) {
    let mut records = match Reader::new(stream) {
        Ok(reader) => reader,
        Err(error) => return told(&error),
    };
    let mut count = 0_usize;
    loop {
        match records.next_record() {
            Ok(Some(_)) => count += 1,
            Ok(None) => break,
            Err(error) => break told(&error),
        }
    }
    // A record has a kind and a length.
    assert!(count * 5 <= stream.len());

    let mut happened = 0_usize;
    for event in Reader::new(stream).expect("a header").events() {
        match event {
            Ok(_) => happened += 1,
            Err(error) => told(&error),
        }
    }
    assert!(happened <= count);
    match Reader::new(stream).and_then(|mut reader| replay(&mut reader)) {
        Ok(verdict) => {
            assert!(verdict.calls as usize <= count && verdict.commands <= verdict.calls);
            assert!(verdict.differences.len() as u64 <= verdict.different);
        }
        Err(error) => told(&error),
    }
}

/// An error has words.
fn told(error: &ReadError) {
    assert!(!error.to_string().is_empty());
}
