//! Random DevX commands, issued without any library: by two user contexts that each have objects,
//! with traffic between them now and then.
//!
//! Whatever command one context issues, queries of the other's objects must return the same bytes
//! as before. The other's memory and all unregistered memory must stay untouched, and the traffic
//! must continue. `MLX5_RANDOM_COMMANDS` sets the number of commands, `MLX5_RANDOM_SEED` the seed.

mod support;

use std::collections::BTreeMap;
use std::env;

use libc::c_int;
use mlx5_model as _;
use mlx5_sys::ifc::{
    Field, alloc_modify_header_context_in, alloc_modify_header_context_out,
    alloc_packet_reformat_context_in, cmd_in, cmd_out, create_flow_group_in, create_flow_group_out,
    create_flow_table_in, create_flow_table_out, flow_context, opcode, packet_reformat_context_in,
    set_action_in, set_fte_in,
};
use mlx5_sys::verbs::ibv_close_device;
use support::devx::{Answer, Command, PAGES, REPLY, User, create, destroy, on_object, other};
use support::random::Random;
use support::request::PAGE;
use support::role::{Player, play};
use support::verbs::{Device, Station, connect, exchange};

#[test]
fn role() {
    play(&[("mutants", mutants), ("refused", refused), ("contexts", contexts)]);
}

/// The number of commands, unless the environment sets it.
const COMMANDS: u64 = 100_000;
/// Commands of one user between two checks of everything that is not the user's.
const BATCH: usize = 100;
/// Batches between two exchanges of messages.
const TRAFFIC: usize = 50;
/// Most objects of a user besides the initial ones.
const MOST: usize = 100;

fn asked(name: &str, default: u64) -> u64 {
    let Ok(text) = env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number"))
}

/// Address of the users' memory, far from all other memory of the process. Before each user's
/// memory, and after the last, are as many unregistered pages.
const FAR: usize = 0x2000_0000_0000;
/// The content of those pages.
const UNTOUCHED: u8 = 0xa5;

/// Maps the users' memory and the pages around it. Returns the start of each part.
fn arena() -> [usize; 5] {
    let parts = std::array::from_fn(|part| FAR + part * PAGES * PAGE);
    let length = 5 * PAGES * PAGE;
    // SAFETY: a new mapping at an address where there is no other.
    unsafe {
        let at = libc::mmap(
            FAR as *mut _,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(at as usize, FAR);
        for part in [0, 2, 4] {
            std::ptr::write_bytes(parts[part] as *mut u8, UNTOUCHED, PAGES * PAGE);
        }
    }
    parts
}

/// Returns the words of a part of the arena.
fn words(part: usize) -> Vec<u64> {
    let words = 0..PAGES * PAGE / size_of::<u64>();
    // SAFETY: the part is mapped and aligned to a page. The card may write to it, so each read is volatile.
    words.map(|at| unsafe { (part as *const u64).add(at).read_volatile() }).collect()
}

/// Returns a number of the kind that commands contain.
fn value(random: &mut Random, numbers: &[u64]) -> u64 {
    match random.below(16) {
        0..=2 => random.below(8) as u64,
        3..=8 => random.pick(numbers),
        9 => u64::MAX,
        10 => 1 << random.below(64),
        11 => (1 << random.below(64)) - 1,
        12 => random.below(PAGES * PAGE) as u64,
        _ => random.next() >> random.below(64),
    }
}

/// Changes some fields of a command.
fn spoil(random: &mut Random, numbers: &[u64], command: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let dword = random.below(command.len() / 4) * 4;
        // Change the opcode only rarely.
        if dword == 0 && random.below(8) > 0 {
            continue;
        }
        let top = match random.below(4) {
            0 => 31,
            1 => 23,
            2 => 15,
            _ => random.below(32),
        };
        let field = Field::new(dword, top, 1 + random.below(top + 1));
        field.set(command, value(random, numbers) & (u64::MAX >> (64 - field.width())));
    }
    match random.below(100) {
        0 => command.truncate(random.below(command.len())),
        1 => command.resize(command.len() + random.below(64), 0xff),
        _ => {}
    }
}

/// Issues one command. Returns its result, and the object that it created.
fn give(random: &mut Random, user: &User, extra: &[u64], numbers: &[u64]) -> (Answer, Option<u64>) {
    let room = if random.below(20) == 0 { 16 + random.below(REPLY) } else { REPLY };
    let own = |random: &mut Random| match random.below(8) {
        0 => 0xffff_0000 + random.below(100) as u64,
        1 if !extra.is_empty() => random.pick(extra),
        _ => user.objects[random.below(user.objects.len())].0.handle,
    };
    match random.below(10) {
        0..=3 => {
            let mut command = user.creates[random.below(user.creates.len())].0.clone();
            spoil(random, numbers, &mut command);
            let answer = create(user.file, &command, room);
            let made = answer.as_ref().ok().map(|(handle, _)| *handle);
            (answer, made)
        }
        4..=6 => {
            let (at, command) = &user.changes[random.below(user.changes.len())];
            let mut command = command.clone();
            spoil(random, numbers, &mut command);
            let usual = user.objects[*at].0.handle;
            let handle = if random.below(4) == 0 { own(random) } else { usual };
            (on_object(user.file, 0x1002, handle, &command, room), None)
        }
        7..=8 => {
            let (object, query) = &user.objects[random.below(user.objects.len())];
            let Some((code, field)) = query else {
                return (other(user.file, &Command::new(opcode::NOP, 0x10).0, room), None);
            };
            let mut command = Command::new(*code, 0x10).set(*field, object.number).0;
            spoil(random, numbers, &mut command);
            let handle = if random.below(4) == 0 { own(random) } else { object.handle };
            (on_object(user.file, 0x1003, handle, &command, room), None)
        }
        _ => {
            let mut command = user.general[random.below(user.general.len())].clone();
            spoil(random, numbers, &mut command);
            (other(user.file, &command, room), None)
        }
    }
}

/// The allowed results: success, refusal by the device with a status and a syndrome, or by the
/// kernel.
#[track_caller]
fn check(answer: &Answer) -> c_int {
    match answer {
        Ok((_, reply)) => {
            assert_eq!(reply[0], 0);
            0
        }
        Err((libc::EREMOTEIO, reply)) => {
            assert_ne!((reply[0], cmd_out::SYNDROME.get(reply)), (0, 0));
            libc::EREMOTEIO
        }
        Err((errno, _)) => {
            let known = [libc::EINVAL, libc::ENOENT, libc::EBUSY, libc::ENOMEM, libc::EOPNOTSUPP];
            assert!(known.contains(errno), "errno {errno}");
            *errno
        }
    }
}

fn mutants() -> i32 {
    let (seed, count) = (asked("MLX5_RANDOM_SEED", 1), asked("MLX5_RANDOM_COMMANDS", COMMANDS));
    eprintln!("MLX5_RANDOM_SEED={seed} MLX5_RANDOM_COMMANDS={count}");
    let random = &mut Random::new(seed);
    let arena = arena();
    let devices = [Device::open(0), Device::open(0)];
    let stations = devices.map(Station::new);
    connect(&stations[0], &stations[1]);
    let users = [User::new(devices[0], arena[1]), User::new(devices[1], arena[3])];
    let numbers: Vec<u64> = users
        .iter()
        .flat_map(|user| user.objects.iter().map(|(object, _)| object.number))
        .chain(users.iter().map(|user| user.umem))
        .collect();
    let mut extra: [Vec<u64>; 2] = Default::default();
    let mut tally = BTreeMap::new();
    for batch in 0..count as usize / BATCH {
        let (turn, idle) = if random.below(2) == 0 { (0, 1) } else { (1, 0) };
        let before = (users[idle].shown(), words(users[idle].memory));
        for _ in 0..BATCH {
            let (answer, made) = give(random, &users[turn], &extra[turn], &numbers);
            *tally.entry(check(&answer)).or_insert(0usize) += 1;
            extra[turn].extend(made);
            while extra[turn].len() > MOST {
                let at = random.below(extra[turn].len());
                // Objects that other objects use stay.
                if destroy(users[turn].file, extra[turn][at]).is_ok() {
                    extra[turn].swap_remove(at);
                }
            }
        }
        let after = (users[idle].shown(), words(users[idle].memory));
        assert!(before.0 == after.0, "seed {seed}, batch {batch}: objects of the other changed");
        assert!(before.1 == after.1, "seed {seed}, batch {batch}: memory of the other changed");
        if batch % TRAFFIC == 0 {
            exchange(&stations[0], &stations[1]);
            exchange(&stations[1], &stations[0]);
            for part in [0, 2, 4] {
                let untouched = u64::from_ne_bytes([UNTOUCHED; 8]);
                let untouched = words(arena[part]).iter().all(|word| *word == untouched);
                assert!(untouched, "seed {seed}, batch {batch}: memory of nobody changed");
            }
        }
    }
    eprintln!("answers by errno: {tally:?}");
    // Otherwise most commands would end at the first check, or none would.
    for errno in [0, libc::EREMOTEIO, libc::EINVAL] {
        assert!(tally[&errno] > count as usize / 50, "{tally:?}");
    }
    // Every created object can be destroyed, users before the objects they use.
    for (user, extra) in users.iter().zip(&mut extra) {
        let standing = user.objects.iter().map(|(object, _)| object.handle);
        let mut left: Vec<u64> = standing.chain(extra.drain(..)).collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|handle| destroy(user.file, *handle).is_err());
            assert!(left.len() < before, "{} objects cannot be destroyed", left.len());
        }
    }
    exchange(&stations[0], &stations[1]);
    for station in stations {
        station.destroy();
    }
    0
}

#[test]
fn random_commands_touch_nothing_of_others() {
    Player::of("mutants").end_well();
}

/// A refusal by the device comes with its status and syndrome, a refusal by the kernel with its own
/// errno.
fn refused() -> i32 {
    /// `MLX5_CMD_STAT_BAD_PARAM_ERR`, `…_BAD_RES_ERR`
    const BAD_PARAMETER: u8 = 0x03;
    const BAD_RESOURCE: u8 = 0x05;
    let arena = arena();
    let devices = [Device::open(0), Device::open(0)];
    let users = [User::new(devices[0], arena[1]), User::new(devices[1], arena[3])];
    let [one, stranger] = &users;
    let remote = |answer: Answer| match answer {
        Err((libc::EREMOTEIO, reply)) => (reply[0], cmd_out::SYNDROME.get(&reply)),
        other => panic!("not refused by the card: {other:?}"),
    };
    let errno = |answer: Answer| answer.map(|_| ()).map_err(|(errno, _)| errno);
    for (index, (command, _)) in one.creates.iter().enumerate() {
        let code = cmd_in::OPCODE.get(command);
        // An op_mod that none of these commands has.
        let mut spoiled = command.clone();
        cmd_in::OP_MOD.set(&mut spoiled, 0x55);
        let (status, syndrome) = remote(create(one.file, &spoiled, REPLY));
        assert_eq!(status, BAD_PARAMETER, "opcode {code:#x}");
        assert_ne!(syndrome, 0);
        // Another user's commands may not name these objects. Only the command for the PD names
        // none.
        let answer = create(stranger.file, command, REPLY);
        if index == 0 {
            let (handle, _) = answer.expect("a PD");
            destroy(stranger.file, handle).expect("no PD any more");
        } else {
            assert_eq!(remote(answer).0, BAD_RESOURCE, "opcode {code:#x}");
        }
        // The uid in the program's command has no effect either: the kernel writes its own.
        let mut spoiled = command.clone();
        spoiled[2..4].copy_from_slice(&[0xff, 0xff]);
        let (handle, _) = create(one.file, &spoiled, REPLY).expect("an object");
        destroy(one.file, handle).expect("no object any more");
        // A command that creates an object is not a query, and does not change an existing object.
        assert_eq!(errno(other(one.file, command, REPLY)), Err(libc::EINVAL));
        let handle = one.objects[index].0.handle;
        for method in [0x1002, 0x1003] {
            assert_eq!(
                errno(on_object(one.file, method, handle, command, REPLY)),
                Err(libc::EINVAL)
            );
        }
    }
    for (object, query) in &one.objects {
        let Some((code, field)) = query else { continue };
        let command = Command::new(*code, 0x10).set(*field, object.number).0;
        on_object(one.file, 0x1003, object.handle, &command, REPLY).expect("shown");
        // With another object's handle, or about an object that the handle does not stand for.
        let of = &stranger.objects;
        let same = of.iter().find(|(_, other)| other == query).expect("of this kind").0;
        assert_ne!(same.number, object.number);
        let answer = on_object(stranger.file, 0x1003, same.handle, &command, REPLY);
        assert_eq!(errno(answer), Err(libc::EINVAL), "opcode {code:#x}");
        let nobody = on_object(one.file, 0x1003, 0xffff_0000, &command, REPLY);
        assert_eq!(errno(nobody), Err(libc::ENOENT), "opcode {code:#x}");
        assert_eq!(errno(other(one.file, &command, REPLY)), Err(libc::EINVAL));
        let short = on_object(one.file, 0x1003, object.handle, &command, 0x10);
        assert_eq!(remote(short).0, 0x51, "opcode {code:#x}: too little room");
    }
    for (at, command) in &one.changes {
        let handle = stranger.objects[*at].0.handle;
        let answer = on_object(stranger.file, 0x1002, handle, command, REPLY);
        let code = cmd_in::OPCODE.get(command);
        assert_eq!(errno(answer), Err(libc::EINVAL), "opcode {code:#x}");
    }
    // Objects that other objects use stay.
    for (object, _) in &one.objects[..2] {
        assert!(destroy(one.file, object.handle).is_err(), "{object:?}");
    }
    0
}

#[test]
fn what_is_refused_says_who_refused_it() {
    Player::of("refused").end_well();
}

/// Makes as many contexts as the device takes, and an entry that names the first. Returns how many of
/// each kind there were.
fn fill(file: c_int) -> [usize; 2] {
    /// `MLX5_FLOW_CONTEXT_ACTION_DROP` and `_MOD_HDR`
    const ACTIONS: u64 = 2 | 0x40;
    let make = |command: Command, number: Field| {
        let (_, reply) = create(file, &command.0, REPLY).expect("an object");
        number.get(&reply)
    };
    let all = |command: &Command| {
        (0..=1 << 12).take_while(|_| create(file, &command.0, REPLY).is_ok()).count()
    };
    let table = make(
        Command::new(opcode::CREATE_FLOW_TABLE, create_flow_table_in::SIZE),
        create_flow_table_out::TABLE_ID,
    );
    let group = Command::new(opcode::CREATE_FLOW_GROUP, create_flow_group_in::SIZE)
        .set(create_flow_group_in::TABLE_ID, table);
    let group = make(group, create_flow_group_out::GROUP_ID);
    let action =
        |field: Field| field.within(Field::new(alloc_modify_header_context_in::SIZE, 31, 64));
    let size = alloc_modify_header_context_in::SIZE + set_action_in::SIZE;
    let modify = Command::new(opcode::ALLOC_MODIFY_HEADER_CONTEXT, size)
        .set(alloc_modify_header_context_in::NUM_OF_ACTIONS, 1u64)
        .set(action(set_action_in::ACTION_TYPE), 1u64)
        .set(action(set_action_in::FIELD), 1u64);
    let (_, reply) = create(file, &modify.0, REPLY).expect("a context");
    let first = alloc_modify_header_context_out::MODIFY_HEADER_ID.get(&reply);
    let field = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
    let entry = Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE)
        .set(set_fte_in::TABLE_ID, table)
        .set(field(flow_context::GROUP_ID), group)
        .set(field(flow_context::ACTION), ACTIONS)
        .set(field(flow_context::MODIFY_HEADER_ID), first);
    create(file, &entry.0, REPLY).expect("an entry");
    let field =
        |field: Field| field.within(alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT);
    let size = alloc_packet_reformat_context_in::SIZE;
    // Four bytes at the start are taken off.
    let reformat = Command::new(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, size)
        .set(field(packet_reformat_context_in::REFORMAT_TYPE), 0x10u64)
        .set(field(packet_reformat_context_in::REFORMAT_PARAM_0), 1u64)
        .set(field(packet_reformat_context_in::REFORMAT_DATA_SIZE), 4u64);
    [all(&modify) + 1, all(&reformat)]
}

/// A program that leaves contexts and entries behind leaves none in the device.
fn contexts() -> i32 {
    for _ in 0..3 {
        let device = Device::open(0);
        // SAFETY: the context is open.
        let file = unsafe { (*device.context).cmd_fd };
        assert_eq!(fill(file), [1 << 12; 2]);
        // SAFETY: nothing uses the context any more.
        assert_eq!(unsafe { ibv_close_device(device.context) }, 0);
    }
    0
}

#[test]
fn contexts_of_header_changes_go_with_their_program() {
    let mut player = Player::command("contexts");
    player.env("MLX5_MODEL_LINK", "roce");
    Player::start(player).end_well();
}
