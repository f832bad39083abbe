//! Asynchronous queries.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mlx5::Error;
use mlx5::devx::ifc::{create_mkey_out, mkc, opcode, query_mkey_in, query_mkey_out};
use mlx5::devx::{AsyncCommands, Command, Object};
use mlx5::verbs::{Context, ProtectionDomain};

use crate::commands::{create, make_key};
use rig::{PATIENCE, waited};

struct Keys {
    context: Context,
    pd: ProtectionDomain,
}

impl Keys {
    fn new() -> Keys {
        let context = Context::open_first().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        Keys { context, pd }
    }

    /// A key over so many entries.
    fn make(&self, entries: u32) -> Object {
        create(&make_key(self.pd.number().unwrap(), entries), &self.context).unwrap()
    }
}

fn query(key: &Object) -> Command {
    Command::new(opcode::QUERY_MKEY, query_mkey_in::SIZE)
        .set(query_mkey_in::MKEY_INDEX, key.reply().get(create_mkey_out::MKEY_INDEX))
        .reply(query_mkey_out::SIZE)
}

#[test]
fn answers_come_with_the_cookies_of_their_queries() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let made: Vec<Object> = (1..=20).map(|entries| keys.make(entries * 4)).collect();
    for (at, key) in made.iter().enumerate() {
        // The program's cookies need not differ, nor be small.
        commands.query(key, &query(key), u64::MAX - at as u64 / 2).unwrap();
    }
    assert_eq!(commands.outstanding(), 20);
    for at in 0..20 {
        let answer = commands.answer(PATIENCE).unwrap().expect("an answer");
        assert_eq!(answer.cookie, u64::MAX - at / 2);
        let entries = mkc::TRANSLATIONS_OCTWORD_SIZE.within(query_mkey_out::MEMORY_KEY_MKEY_ENTRY);
        assert_eq!(answer.reply.unwrap().get(entries), (at + 1) * 4);
    }
    assert_eq!(commands.outstanding(), 0);
    // Nothing is outstanding, so there is nothing to wait for.
    assert!(commands.answer(Duration::MAX).unwrap().is_none());
    assert!(commands.try_answer().unwrap().is_none());
}

#[test]
fn a_refusal_comes_as_the_answer_with_what_was_sent() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let key = keys.make(4);
    commands.query(&key, &query(&key).op_mod(7), 1).unwrap();
    let answer = commands.answer(PATIENCE).unwrap().expect("an answer");
    let error = answer.reply.unwrap_err();
    let Error::Refused(refused) = &error else { panic!("{error}") };
    assert_eq!((answer.cookie, refused.opcode(), refused.op_mod()), (1, opcode::QUERY_MKEY, 7));
    assert!(error.to_string().contains("mkey_index = "), "{error}");
}

#[test]
fn what_is_no_query_of_that_object_is_withheld() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let (key, other) = (keys.make(4), keys.make(4));
    let withheld = |object: &Object, command: &Command, errno: i32| {
        let error = commands.query(object, command, 0).unwrap_err();
        assert!(matches!(&error, Error::Withheld(one) if one.errno().0 == errno), "{error}");
        assert_eq!(commands.outstanding(), 0);
    };
    withheld(&key, &query(&other), libc::EINVAL);
    withheld(&key, &Command::new(opcode::NOP, 16), libc::EINVAL);
    // Of another opened device.
    let elsewhere = Keys::new();
    let stranger = elsewhere.make(4);
    let error = commands.query(&stranger, &query(&stranger), 0).unwrap_err();
    assert!(matches!(error, Error::Attribute { .. }), "{error}");
}

#[test]
fn the_kernel_keeps_so_many_bytes_of_answers_and_no_more() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let key = keys.make(4);
    // 1 MiB (`MAX_ASYNC_BYTES_IN_USE` of Linux's devx.c).
    let large = query(&key).reply(1 << 15);
    for cookie in 0..32 {
        commands.query(&key, &large, cookie).unwrap();
    }
    let error = commands.query(&key, &query(&key), 99).unwrap_err();
    assert!(matches!(&error, Error::Withheld(one) if one.errno().0 == libc::EAGAIN), "{error}");
    assert!(error.to_string().contains("take some first"), "{error}");
    // One is taken, so another fits.
    let answer = commands.answer(PATIENCE).unwrap().expect("an answer");
    assert_eq!(answer.reply.unwrap().as_bytes().len(), 1 << 15);
    commands.query(&key, &query(&key), 99).unwrap();
    let cookies: Vec<u64> = std::iter::from_fn(|| commands.answer(PATIENCE).unwrap())
        .map(|answer| answer.cookie)
        .collect();
    assert_eq!(cookies, (1..32).chain([99]).collect::<Vec<u64>>());
}

#[test]
fn the_descriptor_is_readable_as_long_as_answers_are_there() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let readable = |timeout| {
        let fd = commands.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&mut poll, 1, timeout) == 1 }
    };
    assert!(!readable(0));
    let key = keys.make(4);
    for cookie in 0..2 {
        commands.query(&key, &query(&key), cookie).unwrap();
    }
    for cookie in 0..2 {
        assert!(readable(30_000));
        waited::is_for_waiting_alone(&commands);
        assert_eq!(commands.try_answer().unwrap().expect("an answer").cookie, cookie);
    }
    assert!(!readable(0));
    assert!(commands.try_answer().unwrap().is_none());
}

#[test]
fn an_object_may_go_and_a_channel_be_dropped_with_answers_outstanding() {
    let keys = Keys::new();
    for leave in [0, 3] {
        let commands = AsyncCommands::new(&keys.context).unwrap();
        for cookie in 0..3 {
            let key = keys.make(4);
            commands.query(&key, &query(&key), cookie).unwrap();
            key.destroy().unwrap();
        }
        for cookie in 0..leave {
            assert_eq!(commands.answer(PATIENCE).unwrap().expect("an answer").cookie, cookie);
        }
    }
    // The channel keeps the device open.
    let commands = {
        let keys = Keys::new();
        let commands = AsyncCommands::new(&keys.context).unwrap();
        let key = keys.make(4);
        commands.query(&key, &query(&key), 5).unwrap();
        commands
    };
    assert_eq!(commands.answer(PATIENCE).unwrap().expect("an answer").cookie, 5);
}

#[test]
fn threads_may_ask_and_take_at_once() {
    let keys = Keys::new();
    let commands = AsyncCommands::new(&keys.context).unwrap();
    let (asked, mut taken) = (200u64, 0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (commands, keys) = (&commands, &keys);
            scope.spawn(move || {
                let key = keys.make(4);
                for at in 0..asked / 2 {
                    commands.query(&key, &query(&key), thread * 1000 + at).unwrap();
                }
            });
        }
        let until = Instant::now() + PATIENCE;
        while taken < asked {
            assert!(Instant::now() < until, "{taken} answers");
            if let Some(answer) = commands.answer(Duration::from_millis(10)).unwrap() {
                answer.reply.unwrap();
                taken += 1;
            }
        }
    });
}
