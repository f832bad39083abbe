//! The interpreter against the processor: both execute the same instruction on the same registers.

mod processor;
mod samples;

use std::collections::BTreeMap;

use libc::ucontext_t;
use processor::{Outcome, Processor, State};
use samples::{Random, listed};

use super::super::{Trapped, counter};
use super::Follower;
use crate::frontend::uverbs::process::instruction::trapping;

/// States that each instruction is executed in.
const STATES: usize = 100;

#[test]
fn listed_instructions_have_the_effects_that_they_have_on_the_processor() {
    let (mut random, mut processor) = (Random::new(1), Processor::new());
    for instruction in listed() {
        for _ in 0..STATES {
            let state = State::random(&mut random);
            let outcome = processor.compare(&instruction, &state, Jumps::Followed);
            assert_eq!(outcome, Outcome::Same, "{instruction:02x?}");
        }
    }
}

/// Whether instructions that jump are executed on the processor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jumps {
    Followed,
    LeftOut,
}

#[test]
fn other_bytes_are_refused_or_have_the_effects_that_they_have_on_the_processor() {
    const SAMPLES: usize = 50_000;
    let (mut random, mut processor) = (Random::new(2), Processor::new());
    let listed: Vec<_> = listed().collect();
    let mut counts = BTreeMap::new();
    for _ in 0..SAMPLES {
        let code = random.changed(&listed);
        let state = State::random(&mut random);
        let outcome = processor.compare(&code, &state, Jumps::LeftOut);
        assert!(!matches!(outcome, Outcome::Different(_)), "{code:02x?}: {outcome:?}");
        *counts.entry(outcome == Outcome::Same).or_insert(0) += 1;
    }
    assert!(counts.values().all(|&count| count > SAMPLES / 100) && counts.len() == 2, "{counts:?}");
}

/// Follows `code` with these registers. Returns the store that it comes to, and how far it came.
fn follow(code: &[u8], registers: &[(libc::c_int, u64)]) -> (Option<Trapped>, u64) {
    let _one = trapping::one();
    let mut mapped = [0xcc; 64];
    mapped[..code.len()].copy_from_slice(code);
    // SAFETY: integers and pointers, for which zeros are values.
    let mut context: ucontext_t = unsafe { std::mem::zeroed() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = mapped.as_ptr() as libc::greg_t;
    for (register, value) in registers {
        context.uc_mcontext.gregs[*register as usize] = *value as libc::greg_t;
    }
    // SAFETY: there is no floating-point state. `one` has installed a handler that recovers.
    let store = unsafe { Follower::new(&mut context) }.next_store();
    (store, counter(&context) - mapped.as_ptr() as u64)
}

/// `mov rax, [rsi]`, `add rsi, 8`, `mov [rdi], rax`
const COPY: [u8; 10] = [0x48, 0x8b, 0x06, 0x48, 0x83, 0xc6, 0x08, 0x48, 0x89, 0x07];

#[test]
fn following_ends_at_a_store() {
    let word = 0x0102_0304_0506_0708_u64;
    let registers = [(libc::REG_RSI, &raw const word as u64), (libc::REG_RDI, 0x1800)];
    let (store, at) = follow(&COPY, &registers);
    let store = store.unwrap();
    assert_eq!((store.address, &store.bytes[..], at), (0x1800, &word.to_le_bytes()[..], 7));
}

#[test]
fn following_ends_before_an_instruction_whose_source_cannot_be_read() {
    for address in [0, 0x1000, 1 << 63, u64::MAX - 3] {
        assert_eq!(follow(&COPY, &[(libc::REG_RSI, address)]), (None, 0), "{address:#x}");
    }
    // Nor is code at the target of `jmp`.
    assert_eq!(follow(&[0x90, 0xe9, 0, 0, 0, 0x40], &[]).1, 6 + 0x4000_0000);
}

#[test]
fn following_ends_before_a_misaligned_store() {
    // `movdir64b rdi, [rsi]`
    let code = [0x66, 0x0f, 0x38, 0xf8, 0x3e];
    let block = [0x5a_u8; 64];
    let registers = |to| [(libc::REG_RSI, block.as_ptr() as u64), (libc::REG_RDI, to)];
    assert_eq!(follow(&code, &registers(0x1800)).0.unwrap().bytes[..], block);
    assert_eq!(follow(&code, &registers(0x1808)), (None, 0));
}

#[test]
fn following_ends_before_other_instructions() {
    // `sfence`, `int3`, `call`, `xchg [rdi], rax`, `add [rdi], rax`, `add rsp, 8`
    let codes: [&[u8]; 6] = [
        &[0x0f, 0xae, 0xf8],
        &[0xcc],
        &[0xe8, 0, 0, 0, 0],
        &[0x48, 0x87, 0x07],
        &[0x48, 0x01, 0x07],
        &[0x48, 0x83, 0xc4, 0x08],
    ];
    let word = 0_u64;
    for code in codes {
        let registers = [(libc::REG_RDI, &raw const word as u64)];
        assert_eq!(follow(code, &registers), (None, 0), "{code:02x?}");
    }
}

#[test]
fn following_ends_in_a_loop_without_stores_and_where_a_debugger_steps() {
    // `jmp .`
    assert_eq!(follow(&[0xeb, 0xfe], &[]), (None, 0));
    // `nop` under the trap flag.
    assert_eq!(follow(&[0x90], &[(libc::REG_EFL, 1 << 8)]), (None, 0));
}
