//! Clients and guests that send anything: the server answers or closes, and serves on.

mod support;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use mlx5_model::card::Link;
use mlx5_model::clock::Random;
use mlx5_model_pci::protocol::{Access, HEADER, Header, MAX_MESSAGE, command, words};
use mlx5_sys::ifc::opcode;
use support::driver::{Driver, QUEUE, bytes};
use support::{BAR, CONFIG, Client, MEMORY, serve, signals};

/// Shows that the function is served, and starts.
fn works(socket: &PathBuf) {
    let mut driver = Driver::new(Client::connect(socket));
    driver.boot();
    driver.uar();
}

/// Returns a number below `end`.
fn below(random: &mut Random, end: u64) -> u64 {
    random.draw() % end
}

fn noise(random: &mut Random, bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = random.draw() as u8);
}

#[test]
fn messages_of_wrong_lengths_end_the_connection_alone() {
    let socket = &serve(1, Link::InfiniBand)[0];
    for size in [0, 1, HEADER as u32 - 1, MAX_MESSAGE as u32 + 1, u32::MAX] {
        let mut client = Client::connect(socket);
        let header = Header { id: 1, command: command::VERSION, size, flags: 0, error: 0 };
        client.stream.write_all(&header.bytes()).unwrap();
        assert!(client.receive().is_err(), "size {size}");
    }
    let mut client = Client::connect(socket);
    client.stream.write_all(&[1, 2, 3]).unwrap();
    drop(client);
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn too_many_descriptors_end_the_connection_alone() {
    let socket = &serve(1, Link::InfiniBand)[0];
    let mut client = Client::connect(socket);
    let memory = client.memory.as_raw_fd();
    client.send(command::VERSION, 0, &words(&[0]), &[memory; 17]);
    assert!(client.receive().is_err());
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn payloads_of_every_length_are_answered() {
    let socket = &serve(1, Link::InfiniBand)[0];
    let mut client = Client::connect(socket);
    let mut random = Random::seeded(1);
    for command in 0..=20 {
        for length in 0..48 {
            for fill in [0, 0xff, 1] {
                let mut payload = vec![fill; length];
                if fill == 1 {
                    noise(&mut random, &mut payload);
                }
                let _ = client.ask(command, &payload);
            }
        }
    }
    drop(client);
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn random_accesses_of_regions_are_answered() {
    let socket = &serve(1, Link::Roce)[0];
    for seed in 0..4 {
        let mut driver = Driver::new(Client::connect(socket));
        driver.boot();
        let mut random = Random::seeded(seed);
        let mut data = [0; 80];
        for _ in 0..3000 {
            let region = if below(&mut random, 4) == 0 { CONFIG } else { BAR };
            let offset = match below(&mut random, 4) {
                0 => below(&mut random, 0x40),
                1 => below(&mut random, 0x4000),
                2 => 0xf000 + below(&mut random, 0x3000),
                _ => random.draw() >> below(&mut random, 64),
            };
            let count = below(&mut random, 80) as usize;
            noise(&mut random, &mut data[..count]);
            if below(&mut random, 2) == 0 {
                let _ = driver.client.write(region, offset, &data[..count]);
            } else {
                let _ = driver.client.read(region, offset, count as u32);
            }
        }
        let huge = Access { offset: 0, region: BAR, count: u32::MAX };
        assert!(driver.client.ask(command::REGION_READ, &huge.bytes()).is_err());
    }
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn random_command_queues_are_executed_or_refused() {
    let socket = &serve(1, Link::Roce)[0];
    let mut random = Random::seeded(7);
    let opcodes: Vec<u16> = (0x100..0xb00).filter(|code| opcode::name(*code).is_some()).collect();
    for _ in 0..4 {
        let mut driver = Driver::new(Client::connect(socket));
        driver.boot();
        for _ in 0..1500 {
            let mut input = vec![0; 16 + below(&mut random, 600) as usize];
            if below(&mut random, 2) == 0 {
                noise(&mut random, &mut input);
            }
            let code = opcodes[below(&mut random, opcodes.len() as u64) as usize];
            input[..2].copy_from_slice(&code.to_be_bytes());
            input[2..8].fill(0);
            driver.put(0, &input, 16 + below(&mut random, 600) as usize);
            // A third of the entries and lists is damaged.
            match below(&mut random, 6) {
                0 => {
                    let at = QUEUE + below(&mut random, 64);
                    driver.client.poke(at, &[random.draw() as u8]);
                }
                1 => {
                    let at = 0x10_0000 + below(&mut random, 0x240);
                    driver.client.poke(at, &[random.draw() as u8]);
                }
                _ => {}
            }
            driver.client.set_word(0x18, 1);
        }
    }
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn a_queue_in_memory_that_shrinks_is_no_harm() {
    let socket = &serve(1, Link::InfiniBand)[0];
    let mut driver = Driver::new(Client::connect(socket));
    driver.boot();
    driver.put(0, &bytes(opcode::NOP, 0x10, &[]), 0x10);
    driver.client.memory.set_len(0).unwrap();
    driver.client.set_word(0x18, 1);
    driver.client.memory.set_len(MEMORY).unwrap();
    assert!(driver.client.map(0, MEMORY, MEMORY * 2, 3).is_err(), "the file is shorter");
    driver.run(&bytes(opcode::NOP, 0x10, &[]), 0x10).unwrap();
    drop(driver);
    works(socket);
    std::fs::remove_file(socket).unwrap();
}

/// Makes the next write to an eventfd block.
fn fill(mut event: &File) {
    // SAFETY: the call passes integers.
    assert_eq!(unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    event.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
}

#[test]
fn a_full_eventfd_blocks_nobody() {
    const VECTOR: u32 = 5;
    let sockets = serve(2, Link::InfiniBand);
    let connect = |socket| {
        let client = Client::connect(socket);
        client.stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut driver = Driver::new(client);
        driver.boot();
        driver
    };
    let nop = bytes(opcode::NOP, 0x10, &[]);
    let (mut hostile, mut other) = (connect(&sockets[0]), connect(&sockets[1]));
    let uar = hostile.uar();
    let mut event = hostile.client.listen(VECTOR);
    hostile.create_command_eq(uar, VECTOR.into());
    fill(&event);
    hostile.run(&nop, 0x10).expect("the device raises the vector");
    assert_eq!(signals(&mut event), u64::MAX, "the signal has arrived");
    fill(&event);
    let trigger = words(&[20, 1 | 32, 2, VECTOR, 1]);
    for _ in 0..3 {
        hostile.client.ask(command::DEVICE_SET_IRQS, &trigger).unwrap();
    }
    other.run(&nop, 0x10).expect("the other function works");
    drop(hostile);
    connect(&sockets[0]).run(&nop, 0x10).expect("the next client is served");
    sockets.iter().for_each(|socket| std::fs::remove_file(socket).unwrap());
}

#[test]
fn requests_without_reply_get_none() {
    const NO_REPLY: u32 = 0x10;
    let socket = &serve(1, Link::InfiniBand)[0];
    let mut client = Client::connect(socket);
    client.start();
    client.send(command::REGION_READ, NO_REPLY, &[0; 3], &[]);
    let mut access = Access { offset: 0x10, region: BAR, count: 4 }.bytes().to_vec();
    access.extend(0x1234_5678u32.to_be_bytes());
    client.send(command::REGION_WRITE, NO_REPLY, &access, &[]);
    assert_eq!(client.word(0x10), 0x1234_5678, "the next reply is that of the read");
    std::fs::remove_file(socket).unwrap();
}
