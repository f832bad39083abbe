use mlx5_sys::ifc::{Field, eth_2863_cntrs_grp_data_layout, opcode, ppcnt_reg};

use super::super::super::OPCODE;
use super::super::super::test::{Command, Rig};
use super::super::tests::{access, data};
use super::*;
use crate::wire::Frame;

fn user(number: u32, size: usize) -> Command {
    access(number, 1, size).set(OPCODE, opcode::ACCESS_REGISTER_USER)
}

fn read(rig: &mut Rig, number: u32, size: usize, set: &[(Field, u64)]) -> Vec<u8> {
    let ask =
        set.iter().fold(user(number, size), |ask, (field, value)| ask.set(data(*field), *value));
    rig.run(&ask).unwrap()[0x10..].to_vec()
}

#[test]
fn a_port_without_a_link_says_why() {
    let mut rig = Rig::new();
    for (state, code, text, reason, fec) in [
        (PortState::Active, 0, "No issue was observed", 0, 8),
        (PortState::Disabled, 1, "The port is closed by command.", 22, 0),
        (PortState::Polling, 1024, "Cable is unplugged", 23, 0),
    ] {
        rig.card.port_state = state;
        let page = |rig: &mut Rig, page| {
            let register = read(rig, 0x5031, pddr_reg::SIZE, &[(pddr_reg::PAGE_SELECT, page)]);
            register[pddr_reg::PAGE_DATA.bytes()].to_vec()
        };
        let trouble = page(&mut rig, 1);
        assert_eq!(pddr_troubleshooting_page::STATUS_OPCODE.get(&trouble), code);
        let message = &trouble[pddr_troubleshooting_page::STATUS_MESSAGE.bytes()];
        assert!(message.starts_with(format!("{text}\0").as_bytes()), "{state:?}");
        let down = page(&mut rig, 6);
        assert_eq!(pddr_link_down_info_page::LOCAL_REASON_OPCODE.get(&down), reason);
        let correction = read(&mut rig, 0x5023, pplm_reg::SIZE, &[]);
        assert_eq!(pplm_reg::FEC_MODE_ACTIVE.get(&correction), fec, "{state:?}");
    }
    let other = user(0x5031, pddr_reg::SIZE).set(data(pddr_reg::PAGE_SELECT), 2u64);
    assert_eq!(rig.run(&other).err(), Some(Refusal::RegisterValue));
}

#[test]
fn the_clock_is_an_internal_timer_that_users_read_and_nobody_sets() {
    let mut rig = Rig::new();
    rig.card.clock.advance(3_000_000_007);
    let clock = read(&mut rig, 0x9055, mtutc_reg::SIZE, &[(mtutc_reg::TIME_STAMP_MODE, 1)]);
    let of = |field: Field| field.get(&clock);
    assert_eq!(of(mtutc_reg::TIME_STAMP_MODE), 0);
    assert_eq!((of(mtutc_reg::UTC_SEC), of(mtutc_reg::UTC_NSEC)), (3, 7));
    // As DPDK asks: the command's header alone.
    let short = Command(user(0x9055, mtutc_reg::SIZE).0[..0x10].to_vec());
    assert_eq!(rig.run(&short).unwrap()[0x10..0x10 + clock.len()], clock);
    let set = access(0x9055, 0, mtutc_reg::SIZE);
    assert_eq!(rig.run(&set).err(), Some(Refusal::RegisterValue));
}

#[test]
fn the_module_is_read_where_one_is_plugged_in() {
    let mut rig = Rig::new();
    let bytes = |offset: u64, size: u64| {
        [
            (mcia_reg::I2C_DEVICE_ADDRESS, 0x50),
            (mcia_reg::MODULE, 0),
            (mcia_reg::DEVICE_ADDRESS, offset),
            (mcia_reg::DATA_SIZE, size),
        ]
    };
    let vendor = read(&mut rig, 0x9014, mcia_reg::SIZE, &bytes(148, 16));
    assert_eq!(mcia_reg::STATUS.get(&vendor), 0);
    assert!(vendor[mcia_reg::DWORDS.bytes()].starts_with(b"MLX5-MODEL      \0"));
    let beyond = read(&mut rig, 0x9014, mcia_reg::SIZE, &bytes(250, 7));
    assert_eq!(mcia_reg::STATUS.get(&beyond), 9);
    rig.card.set_port(false);
    let empty = read(&mut rig, 0x9014, mcia_reg::SIZE, &bytes(148, 16));
    assert_eq!(mcia_reg::STATUS.get(&empty), 3);
    assert!(empty[mcia_reg::DWORDS.bytes()].iter().all(|byte| *byte == 0));
}

#[test]
fn sensors_and_links_are_told() {
    let mut rig = Rig::new();
    let chip = user(0x900a, mtmp_reg::SIZE).set(data(mtmp_reg::SENSOR_INDEX), 0u64);
    let mut sensor = |index: u64| {
        rig.run(&chip.clone().set(data(mtmp_reg::SENSOR_INDEX), index))
            .map(|reply| mtmp_reg::TEMPERATURE.get(&reply[0x10..]))
    };
    assert_eq!(sensor(0), Ok(360));
    assert_eq!(sensor(64), Ok(248));
    assert_eq!(sensor(5), Err(Refusal::RegisterValue));
    let count = rig.run(&user(0x9009, mtcap_reg::SIZE)).unwrap();
    assert_eq!(mtcap_reg::SENSOR_COUNT.get(&count[0x10..]), 1);
    let none = [(mpein_reg::DEPTH, 0), (mpein_reg::PCIE_INDEX, 0)];
    let link = read(&mut rig, 0x9050, mpein_reg::SIZE, &none);
    assert_eq!(mpein_reg::LINK_WIDTH_ACTIVE.get(&link), 16);
    let lane = read(&mut rig, 0x5028, slrg_reg::SIZE, &[(slrg_reg::LANE, 3)]);
    assert_eq!((slrg_reg::STATUS.get(&lane), slrg_reg::VERSION.get(&lane)), (1, 3));
    let mapping = read(&mut rig, 0x5002, pmlp_reg::SIZE, &[]);
    assert_eq!(pmlp_reg::WIDTH.get(&mapping), 4);
}

#[test]
fn groups_of_counters_tell_of_the_same_traffic() {
    let mut rig = Rig::on(Link::Roce);
    rig.card.count_sent(&Frame::new(vec![2; 60]));
    let group = |rig: &mut Rig, group, priority| {
        let set = [(ppcnt_reg::GRP, group), (ppcnt_reg::PRIO_TC, priority)];
        read(rig, 0x5008, ppcnt_reg::SIZE, &set)[ppcnt_reg::COUNTER_SET.bytes()].to_vec()
    };
    let interface = group(&mut rig, 1, 0);
    assert_eq!(eth_2863_cntrs_grp_data_layout::IF_OUT_OCTETS.get(&interface), 64);
    use mlx5_sys::ifc::eth_per_prio_grp_data_layout::TX_FRAMES;
    let frames = |priority| TX_FRAMES.get(&group(&mut rig, 0x10, priority));
    assert_eq!([0, 3].map(frames), [1, 0]);
    let physical = group(&mut rig, 0x16, 0);
    assert_eq!(phys_layer_statistical_cntrs::RAW_BER_MAGNITUDE.get(&physical), 255);
}
