//! A driver starts the HCA through the BAR and the command queue.

mod support;

use std::os::unix::fs::FileExt;

use mlx5_model::card::{Feature, Link, Profile};
use mlx5_model::object::Memic;
use mlx5_model_pci::bar::SIZE;
use mlx5_model_pci::protocol::command;
use mlx5_sys::ifc::{
    access_register_in, alloc_memic_in, alloc_memic_out, cmd_hca_cap, destroy_eq_in, opcode,
    paos_reg, query_issi_out, query_vport_state_out,
};
use support::driver::{self, Driver, QUEUE, bytes};
use support::{BAR, CONFIG, Client, connect_last, serve, serve_as, signals};

fn driver(link: Link) -> Driver {
    Driver::new(connect_last(&serve(1, link)[0]))
}

#[test]
fn a_driver_starts_the_hca_and_its_events() {
    for (link, port) in [(Link::InfiniBand, 0), (Link::Roce, 1)] {
        let mut driver = driver(link);
        let capabilities = bytes(opcode::QUERY_ADAPTER, 0x10, &[]);
        assert_eq!(driver.run(&capabilities, 0x110).err(), Some(9), "the HCA is disabled");
        driver.boot();
        let general = driver.capabilities(0).unwrap();
        assert_eq!(cmd_hca_cap::PORT_TYPE.get(&general), port);
        assert_eq!(cmd_hca_cap::PG.get(&general), 0, "the guest's pages do not come when asked");
        assert!(driver.capabilities(2).is_err(), "on-demand paging");
        let uar = driver.uar();
        assert!(uar >= 0x10, "the pages before are the initialization segment and MSI-X");
        let mut event = driver.client.listen(5);
        let eq = driver.create_command_eq(uar, 5);
        assert_eq!(signals(&mut event), 0, "no EQ listened when the command was given");
        driver.run(&bytes(opcode::NOP, 0x10, &[]), 0x10).unwrap();
        assert_eq!(signals(&mut event), 1);
        let eqe = driver.client.peek(driver::EQ, 64);
        assert_eq!((eqe[1], &eqe[0x20..0x24]), (0x0a, &1u32.to_be_bytes()[..]));
        // No second interrupt before the EQ is armed again.
        driver.run(&bytes(opcode::NOP, 0x10, &[]), 0x10).unwrap();
        assert_eq!(signals(&mut event), 0);
        driver.arm(uar, eq, 2);
        let destroy = bytes(opcode::DESTROY_EQ, 0x10, &[(destroy_eq_in::EQ_NUMBER, eq)]);
        driver.run(&destroy, 0x10).unwrap();
        assert_eq!(signals(&mut event), 0, "the EQ that was to hear of it is gone");
    }
}

/// Fact F136.
#[test]
fn the_initialization_segment_and_the_interface_are_those_of_a_device() {
    let mut driver = driver(Link::Roce);
    assert_eq!(driver.client.word(0x04) >> 16, 5, "cmdif_rev");
    let queue = driver.client.word(0x14);
    assert_eq!((queue >> 4 & 0xf, queue & 0xf), (5, 6), "log2 of the slots, and of their bytes");
    driver.run(&bytes(opcode::ENABLE_HCA, 0x10, &[]), 0x10).unwrap();
    let reply = driver.run(&bytes(opcode::QUERY_ISSI, 0x10, &[]), query_issi_out::SIZE).unwrap();
    assert_eq!(query_issi_out::SUPPORTED_ISSI_DW0.get(&reply), 2);
}

#[test]
fn every_profile_starts_and_tells_what_it_is() {
    for (profile, device, major) in [
        (Profile::Complete, 0x101b, 20),
        (Profile::ConnectX5, 0x1017, 16),
        (Profile::ConnectX6, 0x101b, 20),
        (Profile::ConnectX6Dx, 0x101d, 22),
        (Profile::ConnectX7, 0x1021, 28),
    ] {
        let mut driver = Driver::new(connect_last(&serve_as(1, Link::Roce, profile)[0]));
        let id = driver.client.read(CONFIG, 0, 4).unwrap();
        assert_eq!(id, [0xb3, 0x15, device as u8, (device >> 8) as u8], "{profile:?}");
        driver.boot();
        assert_eq!(driver.client.word(0) & 0xffff, major, "{profile:?}");
        assert_eq!(driver.client.word(4) & 0xffff, 1012, "{profile:?}");
        let general = driver.capabilities(0).unwrap();
        let copies = cmd_hca_cap::DMA_MMO_SQ.get(&general) == 1;
        assert_eq!(copies, profile.has(Feature::DmaCopy), "{profile:?}");
    }
}

#[test]
fn all_slots_are_executed_by_one_doorbell() {
    let mut driver = driver(Link::InfiniBand);
    driver.boot();
    for slot in 0..32 {
        driver.put(slot, &bytes(opcode::ALLOC_UAR, 0x10, &[]), 0x10);
    }
    driver.client.set_word(0x18, u32::MAX);
    let mut uars: Vec<u32> = (0..32)
        .map(|slot| {
            let reply = driver.take(slot, 0x10).unwrap();
            assert_eq!(reply[0], 0);
            u32::from_be_bytes(reply[8..12].try_into().unwrap())
        })
        .collect();
    uars.sort_unstable();
    uars.dedup();
    assert_eq!(uars.len(), 32);
    // A doorbell without a command does nothing.
    driver.client.set_word(0x18, 1);
    assert_eq!(driver.uar(), u64::from(uars[31]) + 1);
}

#[test]
fn a_command_that_is_not_delivered_has_a_status() {
    let mut driver = driver(Link::InfiniBand);
    driver.put(3, &bytes(opcode::ENABLE_HCA, 0x10, &[]), 0x10);
    let token = QUEUE + 3 * 64 + 0x3c;
    driver.client.poke(token, &[0x55]);
    driver.client.set_word(0x18, 1 << 3);
    assert_eq!(driver.take(3, 0x10), Err(1), "the signature is wrong");
    driver.run(&bytes(opcode::ENABLE_HCA, 0x10, &[]), 0x10).unwrap();
}

#[test]
fn timer_and_health_counter_advance() {
    let mut client = connect_last(&serve(1, Link::InfiniBand)[0]);
    client.start();
    let time =
        |client: &mut Client| u64::from(client.word(0x1000)) << 32 | u64::from(client.word(0x1004));
    let (first, health) = (time(&mut client), client.word(0x1010));
    while client.word(0x1010) == health {}
    assert!(time(&mut client) > first);
}

#[test]
fn the_real_time_clock_advances_by_nanoseconds_within_seconds() {
    let mut client = connect_last(&serve(1, Link::Roce)[0]);
    client.start();
    let mut last = (0, 0);
    while last.0 == 0 {
        let (seconds, nanoseconds) = (client.word(0x1040), client.word(0x1044));
        if client.word(0x1040) == seconds {
            assert!(nanoseconds < 1_000_000_000);
            assert!((seconds, nanoseconds) > last, "{seconds} {nanoseconds} after {last:?}");
            last = (seconds, nanoseconds);
        }
    }
}

#[test]
fn a_reset_stops_the_hca() {
    let mut driver = driver(Link::InfiniBand);
    type Reset = fn(&mut Client);
    let resets: [(&str, Reset); 2] = [
        ("message", |client| {
            client.ask(command::DEVICE_RESET, &[]).unwrap();
        }),
        ("function-level reset", |client| {
            client.write(CONFIG, 0x68, &0x8000u16.to_le_bytes()).unwrap();
        }),
    ];
    for (name, reset) in resets {
        driver.boot();
        driver.uar();
        driver.client.write(CONFIG, 0x04, &[0x06, 0x04]).unwrap();
        reset(&mut driver.client);
        assert_eq!(driver.client.read(CONFIG, 0x04, 2).unwrap(), [0, 0], "{name}");
        assert_eq!(driver.client.word(0x14) & !0xfff, 0, "{name}: the command queue is forgotten");
        assert_eq!(
            driver.client.word(0x14) >> 8 & 3,
            1,
            "{name}: the driver sees a disabled function"
        );
        driver.client.set_word(0x14, QUEUE as u32);
        let alloc = bytes(opcode::ALLOC_UAR, 0x10, &[]);
        assert_eq!(driver.run(&alloc, 0x10).err(), Some(9), "{name}: the HCA does not run");
    }
}

#[test]
fn memory_that_is_unmapped_or_read_only_is_not_touched() {
    let mut driver = driver(Link::InfiniBand);
    driver.boot();
    driver.client.unmap(0, support::MEMORY).unwrap();
    driver.put(0, &bytes(opcode::NOP, 0x10, &[]), 0x10);
    let before = driver.client.peek(QUEUE, 64);
    driver.client.set_word(0x18, 1);
    assert_eq!(driver.client.peek(QUEUE, 64), before);
    driver.client.map(0, 0, support::MEMORY, 1).unwrap();
    driver.client.set_word(0x18, 1);
    assert_eq!(driver.client.peek(QUEUE, 64), before, "read-only");
    driver.client.unmap(0, support::MEMORY).unwrap();
    driver.client.map(0, 0, support::MEMORY, 3).unwrap();
    driver.client.set_word(0x18, 1);
    assert_eq!(driver.take(0, 0x10).unwrap()[0], 0);
}

#[test]
fn a_client_that_leaves_takes_nothing_from_the_next() {
    let socket = &serve(1, Link::InfiniBand)[0];
    for round in 0..3 {
        let mut driver = Driver::new(Client::connect(socket));
        driver.boot();
        assert_eq!(driver.uar(), 0x10, "round {round}: the function starts afresh");
        // The memory of the one before is not mapped any more.
        driver.client.memory.write_all_at(&[round; 16], 0).unwrap();
    }
    std::fs::remove_file(socket).unwrap();
}

#[test]
fn device_memory_of_a_client_is_cleared_for_the_next() {
    let socket = &serve(1, Link::InfiniBand)[0];
    let last = Memic::WINDOW + (Memic::PAGES << 12) - 8;
    let places = [Memic::WINDOW, Memic::WINDOW + 0x5000, last];
    for round in 0..2 {
        let mut client = Client::connect(socket);
        client.start();
        for at in places {
            assert_eq!(client.read(BAR, at, 8).unwrap(), [0; 8], "client {round}, {at:#x}");
            client.write(BAR, at, b"a secret").unwrap();
        }
        client.unmap(0, support::MEMORY).unwrap();
        client.ask(command::DEVICE_RESET, &[]).unwrap();
        assert_eq!(client.read(BAR, last, 8).unwrap(), b"a secret", "a reset leaves it");
    }
    std::fs::remove_file(socket).unwrap();
}

/// Switches a port on (1) or off (2).
fn switch_port(driver: &mut Driver, status: u64) {
    const PAOS: u64 = 0x5006;
    let mut register = [0; paos_reg::SIZE];
    paos_reg::LOCAL_PORT.set(&mut register, 1);
    paos_reg::ASE.set(&mut register, 1);
    paos_reg::ADMIN_STATUS.set(&mut register, status);
    let mut write = bytes(opcode::ACCESS_REG, 0x10, &[(access_register_in::REGISTER_ID, PAOS)]);
    write.extend(register);
    driver.run(&write, 0x10 + paos_reg::SIZE).unwrap();
}

/// Returns whether a port is up.
fn port_is_up(driver: &mut Driver) -> bool {
    let query = bytes(opcode::QUERY_VPORT_STATE, 0x10, &[]);
    let reply = driver.run(&query, query_vport_state_out::SIZE).unwrap();
    query_vport_state_out::STATE.get(&reply) == 1
}

#[test]
fn a_port_that_a_client_switched_off_is_on_for_the_next() {
    const OFF: u64 = 2;
    for link in [Link::InfiniBand, Link::Roce] {
        let socket = &serve(1, link)[0];
        for round in 0..2 {
            let mut driver = Driver::new(Client::connect(socket));
            driver.boot();
            assert!(port_is_up(&mut driver), "{link:?}, client {round}");
            switch_port(&mut driver, OFF);
            assert!(!port_is_up(&mut driver), "{link:?}");
            driver.client.ask(command::DEVICE_RESET, &[]).unwrap();
            driver.client.unmap(0, support::MEMORY).unwrap();
            let mut driver = Driver::new(driver.client);
            driver.boot();
            assert!(!port_is_up(&mut driver), "{link:?}: a reset leaves the port off");
        }
        std::fs::remove_file(socket).unwrap();
    }
}

#[test]
fn functions_of_a_server_are_different_ports() {
    let sockets = serve(2, Link::Roce);
    let mut addresses = Vec::new();
    for socket in &sockets {
        let mut driver = Driver::new(connect_last(socket));
        driver.boot();
        let query = bytes(opcode::QUERY_NIC_VPORT_CONTEXT, 0x10, &[]);
        let reply = driver.run(&query, 0x110).unwrap();
        addresses.push(reply[0x10 + 0xf0..0x10 + 0x100].to_vec());
        assert_eq!(driver.client.read(BAR, SIZE - 4, 4).unwrap(), [0; 4]);
    }
    assert_ne!(addresses[0], addresses[1]);
}

#[test]
fn device_memory_is_in_a_window_of_the_bar() {
    let mut driver = Driver::new(connect_last(&serve(1, Link::InfiniBand)[0]));
    driver.boot();
    let window = Memic::WINDOW;
    let all = Memic::PAGES << 12;
    let fields = [
        (alloc_memic_in::RANGE_START_ADDR, window),
        (alloc_memic_in::RANGE_SIZE, all),
        (alloc_memic_in::MEMIC_SIZE, 0x80),
    ];
    let reply = driver.run(&bytes(opcode::ALLOC_MEMIC, 0x20, &fields), 0x10).unwrap();
    let start = alloc_memic_out::MEMIC_START_ADDR.get(&reply);
    assert!((window..window + all).contains(&start), "{start:#x}");
    let client = &mut driver.client;
    client.write(BAR, start + 8, b"own memory").unwrap();
    assert_eq!(client.read(BAR, start + 8, 10).unwrap(), b"own memory");
    client.write(BAR, window + all - 4, b"last").unwrap();
    assert_eq!(client.read(BAR, window + all - 4, 4).unwrap(), b"last");
    // A range that the window does not hold wholly is no memory.
    client.write(BAR, window + all - 4, b"over the end").unwrap();
    assert_eq!(client.read(BAR, window + all - 4, 8).unwrap(), [0; 8]);
    assert_eq!(client.read(BAR, window + all - 4, 4).unwrap(), b"last");
    assert_eq!(client.map(0, 1 << 63, 0x1000, 3), Err(22), "that address is the device's own");
}
