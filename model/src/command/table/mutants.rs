//! Commands of the table with fields changed at random, given by two user contexts on one device.
//!
//! The device must survive every command of a user. Objects of the other user and of the driver
//! must stay the same to the byte, and a refused command must change nothing.
//!
//! `MLX5_RANDOM_COMMANDS` sets the number of commands, `MLX5_RANDOM_SEED` the seed.

use std::env;

use mlx5_sys::ifc::Field;

use super::census::{Census, census};
use super::{Command, OPCODE, Rig, UID, table};
use crate::card::Link;
use crate::clock::Random;

/// How many commands are given, unless the environment says otherwise.
const COMMANDS: u64 = 100_000;
/// After so many, users have destroyed much of what they had: they start anew.
const LIFE: u64 = 2_000;
/// Every so many commands, one is looked at closely: if it is refused, nothing has changed.
const CLOSELY: u64 = 256;
/// Commands of one user between two looks at what is not theirs.
const BATCH: u64 = 125;

fn asked(name: &str, default: u64) -> u64 {
    let Ok(text) = env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number"))
}

/// A user context, and commands that the card accepts from it.
struct User {
    uid: u16,
    commands: Vec<(Command, Vec<Field>)>,
}

/// A card of two users, with the objects of every row of the table.
fn users(link: Link) -> (Rig, [User; 2]) {
    let mut rig = Rig::on(link);
    rig.stranger = rig.uctx();
    let users = [0; 2].map(|_| {
        rig.become_user();
        let uid = rig.user;
        let rows = table().filter(|row| row.givers.contains(&true) && row.link == link);
        let commands = rows.map(|row| {
            let case = (row.case)(&mut rig);
            let fields = case.fields.iter().map(|(field, ..)| *field);
            let fields = fields.chain(case.foreign.iter().map(|(field, _)| *field));
            (case.accepted.clone(), fields.chain(case.kinds.iter().copied()).collect())
        });
        let commands = commands.collect();
        rig.user = 0;
        User { uid, commands }
    });
    (rig, users)
}

/// A number such as commands have: small, of an object, at the end of a range, anything.
fn value(random: &mut Random, census: &Census) -> u64 {
    let any = random.draw();
    match any >> 60 {
        0..=2 => (any >> 8) % 8,
        3..=9 => {
            let at = (any >> 8) as usize % census.len();
            census.keys().nth(at).map_or(0, |(_, number)| u64::from(*number))
        }
        10 => u64::MAX,
        11 => 1 << (any % 64),
        12 => (1 << (any % 64)) - 1,
        13 => any % 0x1_0000,
        _ => any,
    }
}

/// A command with some of it changed.
fn mutant(random: &mut Random, census: &Census, given: &(Command, Vec<Field>)) -> Command {
    let (command, fields) = given;
    let mut command = command.clone();
    for _ in 0..random.draw() % 4 {
        let value = value(random, census);
        let field = match random.draw() % 8 {
            // One that is checked.
            0..=4 if !fields.is_empty() => fields[random.draw() as usize % fields.len()],
            // Any other, of any width.
            _ => {
                let dword = random.draw() as usize % (command.0.len() / 4) * 4;
                let top = random.draw() as usize % 32;
                Field::new(dword, top, 1 + random.draw() as usize % (top + 1))
            }
        };
        if field.bit_offset() + field.width() <= command.0.len() * 8 && field.width() <= 64 {
            field.set(&mut command.0, value & (u64::MAX >> (64 - field.width())));
        }
    }
    match random.draw() % 64 {
        0 => command.0.truncate(random.draw() as usize % (command.0.len() + 1)),
        1 => command.0.resize(command.0.len() + random.draw() as usize % 64, 0xff),
        _ => {}
    }
    command
}

/// The objects of a device that are not the user's.
fn others(census: &Census, user: u16) -> Census {
    let others = census.iter().filter(|(name, (uid, _))| {
        // The root table and the members of groups belong to all users.
        *uid != user && name.0 != "the card"
    });
    others.map(|(name, object)| (*name, object.clone())).collect()
}

/// Compares, and names what differs, rather than show it all.
#[track_caller]
fn assert_same(before: &Census, after: &Census, what: &str) {
    let names = before.keys().chain(after.keys());
    let differ: Vec<_> = names.filter(|name| before.get(name) != after.get(name)).collect();
    assert!(differ.is_empty(), "{what}: changed {differ:?}");
}

/// Gives so many commands to a card of that link; how many were accepted.
fn give(link: Link, seed: u64, count: u64) -> u64 {
    let random = &mut Random::seeded(seed);
    let (mut given, mut accepted) = (0, 0);
    while given < count {
        let (mut rig, users) = users(link);
        let mut now = census(&rig.card);
        for _ in 0..LIFE / BATCH {
            let user = &users[random.draw() as usize % 2];
            let before = others(&now, user.uid);
            for _ in 0..BATCH {
                let whose = &users[random.draw() as usize % 2].commands;
                let given_as = &whose[random.draw() as usize % whose.len()];
                let mut command = mutant(random, &now, given_as);
                // The kernel says whose it is, whatever the user wrote there.
                if command.0.len() >= 4 {
                    UID.set(&mut command.0, user.uid.into());
                }
                let closely = given % CLOSELY == 0;
                let exactly = closely.then(|| census(&rig.card));
                let mut reply = vec![0; random.draw() as usize % 0x400];
                rig.card.execute(&command.0, &mut reply);
                let refused = reply.first().is_none_or(|status| *status != 0);
                given += 1;
                accepted += u64::from(!refused);
                if let Some(exactly) = exactly.filter(|_| refused && !reply.is_empty()) {
                    let code = command.0.first_chunk().map_or(0, |code| u16::from_be_bytes(*code));
                    let what = format!("seed {seed}, command {given}, opcode {code:#x}, refused");
                    let mut after = census(&rig.card);
                    // A CQ on memory that nothing answers at fails as soon as it is written to.
                    after.retain(|_, (_, object)| !object.contains("failed: true"));
                    let before = exactly.into_iter().filter(|(name, _)| after.contains_key(name));
                    assert_same(&before.collect(), &after, &what);
                }
            }
            now = census(&rig.card);
            let what = format!("seed {seed}, up to command {given}, of user {}", user.uid);
            assert_same(&before, &others(&now, user.uid), &what);
        }
    }
    accepted
}

#[test]
fn mutants_of_commands_touch_nothing_of_others() {
    let (seed, count) = (asked("MLX5_RANDOM_SEED", 1), asked("MLX5_RANDOM_COMMANDS", COMMANDS));
    println!("MLX5_RANDOM_SEED={seed} MLX5_RANDOM_COMMANDS={count}");
    for (link, seed) in [(Link::InfiniBand, seed), (Link::Roce, seed + 1)] {
        let accepted = give(link, seed, count / 2);
        // Else most of them end at the first check.
        assert!(accepted > count / 20, "only {accepted} of {} on {link:?}", count / 2);
        assert!(accepted < count / 2 - count / 20, "{accepted} of {} on {link:?}", count / 2);
    }
}

#[test]
fn the_commands_that_are_changed_are_many() {
    let (_, [one, other]) = users(Link::InfiniBand);
    assert_ne!(one.uid, other.uid);
    let codes = |user: &User| {
        let codes = user.commands.iter().map(|(command, _)| OPCODE.get(&command.0));
        codes.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(codes(&one).len() > 50, "{:?}", codes(&one));
    assert_eq!(codes(&one), codes(&other));
}
