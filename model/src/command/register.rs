//! ACCESS_REG: registers of the port, its module and the host, answered from the device's state.
//! ACCESS_REGISTER_USER lets user contexts read them.

use mlx5_sys::ifc::{
    Field, access_register_in, access_register_out, eth_802_3_cntrs_grp_data_layout,
    eth_2819_cntrs_grp_data_layout, eth_2863_cntrs_grp_data_layout, eth_per_prio_grp_data_layout,
    ib_port_cntrs_grp_data_layout, mcia_reg, mnvda_reg, mpein_reg, mtcap_reg, mtmp_reg, mtutc_reg,
    paos_reg, pddr_reg, pfcc_reg, pmlp_reg, pmtu_reg, ppcnt_reg, pplm_reg, ptys_reg, pvlc_reg,
    register_host_endianness, slrg_reg,
};

use super::{OP_MOD, Refusal, get};
use crate::card::{Card, Count, Counts, Link, PortState, Sort, Traffic};
use crate::function::{LONGEST_FRAME, NODE_DESCRIPTION};

/// What the driver does to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

/// A register: its number (`driver.h`, `MLX5_REG_*`), its bytes, and what answers for it. The
/// content comes in as the driver gives it, and goes out as it is afterwards.
struct Register {
    number: u32,
    size: usize,
    answer: fn(&mut Card, Access, &mut [u8]) -> Result<(), Refusal>,
}

const REGISTERS: &[Register] = &[
    Register { number: 0x5002, size: pmlp_reg::SIZE, answer: physical::lane_mapping },
    Register { number: 0x5003, size: pmtu_reg::SIZE, answer: mtu },
    Register { number: 0x5004, size: ptys_reg::SIZE, answer: speed },
    Register { number: 0x5006, size: paos_reg::SIZE, answer: state },
    Register { number: 0x5007, size: pfcc_reg::SIZE, answer: pause::flow_control },
    Register { number: 0x5008, size: ppcnt_reg::SIZE, answer: counters },
    Register { number: 0x500f, size: pvlc_reg::SIZE, answer: lanes },
    Register { number: 0x5023, size: pplm_reg::SIZE, answer: physical::correction },
    Register { number: 0x5028, size: slrg_reg::SIZE, answer: physical::grade },
    Register { number: 0x5031, size: pddr_reg::SIZE, answer: physical::diagnosis },
    Register { number: 0x6001, size: NODE_DESCRIPTION, answer: description },
    Register { number: 0x7004, size: register_host_endianness::SIZE, answer: byte_order },
    Register { number: 0x9009, size: mtcap_reg::SIZE, answer: physical::sensors },
    Register { number: 0x900a, size: mtmp_reg::SIZE, answer: physical::temperature },
    Register { number: 0x9014, size: mcia_reg::SIZE, answer: physical::module_memory },
    Register { number: 0x9024, size: mnvda_reg::SIZE, answer: settings::read },
    Register { number: 0x9055, size: mtutc_reg::SIZE, answer: physical::clock },
    Register { number: 0x9050, size: mpein_reg::SIZE, answer: physical::pci_link },
];

/// ACCESS_REG, the driver's.
pub fn access(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    super::by_driver(input)?;
    perform(card, input, output)
}

/// ACCESS_REGISTER_USER. User contexts only read.
pub fn access_by_user(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    if get(input, OP_MOD) == 0 {
        super::by_driver(input)?;
    }
    perform(card, input, output)
}

fn perform(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let access = match get(input, OP_MOD) {
        0 => Access::Write,
        1 => Access::Read,
        _ => return Err(Refusal::OpModifier),
    };
    let number = get(input, access_register_in::REGISTER_ID);
    let register = REGISTERS.iter().find(|register| register.number == number);
    let register = register.ok_or(Refusal::NoRegister)?;
    let from = access_register_in::REGISTER_DATA.bytes().start;
    let to = access_register_out::REGISTER_DATA.bytes().start;
    let reply = output.get_mut(to..to + register.size).ok_or(Refusal::OutputLength)?;
    let given = input.get(from..).unwrap_or_default();
    let given = &given[..given.len().min(register.size)];
    // DPDK reads a register that has no selecting fields by the command's header alone.
    if access == Access::Write && given.len() < register.size {
        return Err(Refusal::InputLength);
    }
    reply.fill(0);
    reply[..given.len()].copy_from_slice(given);
    (register.answer)(card, access, reply)
}

/// Refuses to write a register that only shows.
fn read_only(access: Access) -> Result<(), Refusal> {
    if access == Access::Read { Ok(()) } else { Err(Refusal::RegisterValue) }
}

/// Checks the port that a register is of.
fn port(data: &[u8], field: Field) -> Result<(), Refusal> {
    if field.get(data) == 1 { Ok(()) } else { Err(Refusal::Port) }
}

/// A register that shows what the driver cannot change. Writing what is there is accepted.
fn fixed(
    access: Access,
    data: &mut [u8],
    changeable: &[Field],
    values: &[(Field, u64)],
) -> Result<(), Refusal> {
    let value = |field: &Field| values.iter().find(|(of, _)| of == field).map(|(_, value)| *value);
    let differs = |field: &Field| value(field).is_some_and(|value| field.get(data) != value);
    if access == Access::Write && changeable.iter().any(differs) {
        return Err(Refusal::RegisterValue);
    }
    for (field, value) in values {
        field.set(data, *value);
    }
    Ok(())
}

/// PMTU. An InfiniBand port counts the payload of a packet, an Ethernet port the longest frame with
/// VLAN tag and checksum. The driver sets that of an Ethernet port.
fn mtu(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    /// The longest payload on InfiniBand.
    const GREATEST: u64 = 4096;
    port(data, pmtu_reg::LOCAL_PORT)?;
    let (greatest, current) = match card.identity.link {
        Link::InfiniBand => (GREATEST, 1 << card.log_mtu()),
        Link::Roce => {
            let asked = pmtu_reg::ADMIN_MTU.get(data);
            if access == Access::Write && !card.function.limit.set(asked) {
                return Err(Refusal::RegisterValue);
            }
            (LONGEST_FRAME.into(), card.function.limit.frame().into())
        }
    };
    let values = [
        (pmtu_reg::MAX_MTU, greatest),
        (pmtu_reg::ADMIN_MTU, current),
        (pmtu_reg::OPER_MTU, current),
    ];
    fixed(access, data, &[pmtu_reg::ADMIN_MTU], &values)
}

/// PTYS: four lanes of HDR on InfiniBand, 200 Gb/s on Ethernet. Without a link nothing is in
/// operation.
fn speed(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use ptys_reg as r;
    /// Kinds of protocols, as bits of the mask (`driver.h`, `MLX5_PTYS_*`).
    const INFINIBAND: u64 = 1 << 0;
    const ETHERNET: u64 = 1 << 2;
    /// Bits of widths and speeds (`port.h`).
    const FOUR_LANES: u64 = 1 << 2;
    const HDR: u64 = 1 << 6;
    const GAUI_4_200: u64 = 1 << 12;
    port(data, r::LOCAL_PORT)?;
    let (mask, values) = match card.identity.link {
        Link::InfiniBand => (
            INFINIBAND,
            [
                (r::IB_LINK_WIDTH_CAPABILITY, FOUR_LANES),
                (r::IB_PROTO_CAPABILITY, HDR),
                (r::IB_LINK_WIDTH_ADMIN, FOUR_LANES),
                (r::IB_PROTO_ADMIN, HDR),
                (r::IB_LINK_WIDTH_OPER, FOUR_LANES),
                (r::IB_PROTO_OPER, HDR),
            ]
            .to_vec(),
        ),
        Link::Roce => (
            ETHERNET,
            [
                (r::EXT_ETH_PROTO_CAPABILITY, GAUI_4_200),
                (r::EXT_ETH_PROTO_ADMIN, GAUI_4_200),
                (r::EXT_ETH_PROTO_OPER, GAUI_4_200),
            ]
            .to_vec(),
        ),
    };
    if r::PROTO_MASK.get(data) != mask {
        return Err(Refusal::RegisterValue);
    }
    let linked = card.port_state.physical() == PortState::Active.physical();
    let in_operation = [r::IB_LINK_WIDTH_OPER, r::IB_PROTO_OPER, r::EXT_ETH_PROTO_OPER];
    let shown = |(field, value): (Field, u64)| {
        let value = if linked || !in_operation.contains(&field) { value } else { 0 };
        (field, value)
    };
    let values: Vec<_> = values.into_iter().map(shown).collect();
    let changeable = [r::IB_LINK_WIDTH_ADMIN, r::IB_PROTO_ADMIN, r::EXT_ETH_PROTO_ADMIN];
    fixed(access, data, &changeable, &values)
}

/// PAOS: the driver switches the port on and off.
fn state(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use paos_reg as r;
    /// States (`port.h`, `MLX5_PORT_*`).
    const UP: u64 = 1;
    const DOWN: u64 = 2;
    port(data, r::LOCAL_PORT)?;
    if access == Access::Write && r::ASE.get(data) == 1 {
        match r::ADMIN_STATUS.get(data) {
            UP => card.switch_port(true),
            DOWN => card.switch_port(false),
            _ => return Err(Refusal::RegisterValue),
        }
    }
    let on = card.port_state != PortState::Disabled;
    let linked = card.port_state.physical() == PortState::Active.physical();
    r::ADMIN_STATUS.set(data, if on { UP } else { DOWN });
    r::OPER_STATUS.set(data, if linked { UP } else { DOWN });
    Ok(())
}

/// PPCNT: the counters of an InfiniBand port, of IEEE 802.3, of RFC 2863 and 2819, of a priority, and
/// of the physical layer. Packets with wrong headers or a wrong ICRC are errors of reception. No other
/// error happens, so the counters of the physical layer's errors are 0. All traffic has priority 0.
fn counters(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use ppcnt_reg as r;
    /// Groups of counters (`device.h`, `MLX5_*_COUNTERS_GROUP`).
    const IEEE_802_3: u64 = 0;
    const RFC_2863: u64 = 1;
    const RFC_2819: u64 = 2;
    const PRIORITY: u64 = 0x10;
    const PHYSICAL_ERRORS: u64 = 0x12;
    const PHYSICAL: u64 = 0x16;
    const INFINIBAND: u64 = 0x20;
    port(data, r::LOCAL_PORT)?;
    let group = r::GRP.get(data);
    let groups = [IEEE_802_3, RFC_2863, RFC_2819, PRIORITY, PHYSICAL_ERRORS, PHYSICAL, INFINIBAND];
    if access == Access::Write || !groups.contains(&group) {
        return Err(Refusal::RegisterValue);
    }
    let priority = r::PRIO_TC.get(data);
    let Traffic { received, sent, wrong } = card.traffic;
    let (clear, counters) = (r::CLR.get(data) == 1, &mut data[r::COUNTER_SET.bytes()]);
    counters.fill(0);
    if group == INFINIBAND {
        let errors = ib_port_cntrs_grp_data_layout::PORT_RCV_ERRORS;
        errors.set(counters, wrong.packets.min((1 << errors.width()) - 1));
        if clear {
            card.traffic.wrong = Count::default();
        }
        return Ok(());
    }
    let totals = [&received, &sent].map(|counts| on_the_wire(card.identity.link, counts));
    match group {
        PHYSICAL => physical::bit_errors(totals[0].0, counters),
        RFC_2863 => interface(totals, wrong.packets, counters),
        RFC_2819 => monitoring(totals, wrong.packets, counters),
        PRIORITY if priority == 0 => of_priority(totals, counters),
        PRIORITY | PHYSICAL_ERRORS => {}
        _ => ieee_802_3(totals, wrong.packets, counters),
    }
    if clear {
        card.traffic = Traffic::default();
    }
    Ok(())
}

/// Octets and packets: received, and sent.
type Totals = [(u64, u64); 2];

/// Returns octets and packets of a direction. Frames of Ethernet count from their header, which a
/// [`Count`] of transport packets leaves out, to their check sequence: a ConnectX-5 counts 64 octets for a
/// frame of 60 (evidence F082).
fn on_the_wire(link: Link, counts: &Counts) -> (u64, u64) {
    const CHECK_SEQUENCE: u64 = 4;
    let sum = |of: fn(&Count) -> u64| counts.iter().map(of).sum::<u64>();
    let (octets, packets) = (sum(|count| count.octets), sum(|count| count.packets));
    if link == Link::InfiniBand {
        return (octets, packets);
    }
    let transport = [Sort::Unicast, Sort::Multicast].map(|sort| counts[sort as usize].packets);
    let headers = link.header() as u64 * transport.iter().sum::<u64>();
    (octets + headers + CHECK_SEQUENCE * packets, packets)
}

/// The counters of IEEE 802.3, of which 32 bits each are in a field.
fn ieee_802_3(totals: Totals, wrong: u64, counters: &mut [u8]) {
    use eth_802_3_cntrs_grp_data_layout as e;
    let [(octets_in, packets_in), (octets_out, packets_out)] = totals;
    let halves = [
        (e::A_FRAMES_TRANSMITTED_OK_HIGH, e::A_FRAMES_TRANSMITTED_OK_LOW, packets_out),
        (e::A_FRAMES_RECEIVED_OK_HIGH, e::A_FRAMES_RECEIVED_OK_LOW, packets_in),
        (e::A_FRAME_CHECK_SEQUENCE_ERRORS_HIGH, e::A_FRAME_CHECK_SEQUENCE_ERRORS_LOW, wrong),
        (e::A_OCTETS_TRANSMITTED_OK_HIGH, e::A_OCTETS_TRANSMITTED_OK_LOW, octets_out),
        (e::A_OCTETS_RECEIVED_OK_HIGH, e::A_OCTETS_RECEIVED_OK_LOW, octets_in),
    ];
    set_halves(&halves, counters);
}

/// The counters of RFC 2819, which are of what was received. Sizes of packets are not counted.
fn monitoring([(octets_in, packets_in), _]: Totals, wrong: u64, counters: &mut [u8]) {
    use eth_2819_cntrs_grp_data_layout as e;
    let halves = [
        (e::ETHER_STATS_OCTETS_HIGH, e::ETHER_STATS_OCTETS_LOW, octets_in),
        (e::ETHER_STATS_PKTS_HIGH, e::ETHER_STATS_PKTS_LOW, packets_in),
        (e::ETHER_STATS_CRC_ALIGN_ERRORS_HIGH, e::ETHER_STATS_CRC_ALIGN_ERRORS_LOW, wrong),
    ];
    set_halves(&halves, counters);
}

/// Sets counters that have a field for the upper and one for the lower 32 bits.
fn set_halves(halves: &[(Field, Field, u64)], counters: &mut [u8]) {
    for (high, low, count) in halves {
        high.set(counters, count >> 32);
        low.set(counters, count & 0xffff_ffff);
    }
}

/// The counters of RFC 2863. Which packets are multicast is not counted.
fn interface(totals: Totals, wrong: u64, counters: &mut [u8]) {
    use eth_2863_cntrs_grp_data_layout as e;
    let [(octets_in, packets_in), (octets_out, packets_out)] = totals;
    for (field, count) in [
        (e::IF_IN_OCTETS, octets_in),
        (e::IF_IN_UCAST_PKTS, packets_in),
        (e::IF_IN_ERRORS, wrong),
        (e::IF_OUT_OCTETS, octets_out),
        (e::IF_OUT_UCAST_PKTS, packets_out),
    ] {
        field.set(counters, count);
    }
}

/// The counters of a priority. There are no pauses.
fn of_priority(totals: Totals, counters: &mut [u8]) {
    use eth_per_prio_grp_data_layout as e;
    let [(octets_in, packets_in), (octets_out, packets_out)] = totals;
    for (field, count) in [
        (e::RX_OCTETS, octets_in),
        (e::RX_FRAMES, packets_in),
        (e::TX_OCTETS, octets_out),
        (e::TX_FRAMES, packets_out),
    ] {
        field.set(counters, count);
    }
}

/// PVLC: four data lanes, as the port information says.
fn lanes(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    use pvlc_reg as r;
    /// Of 1, 2, 4, 8 and 15 lanes.
    const LANES: u64 = 4;
    port(data, r::LOCAL_PORT)?;
    let values = [(r::VL_HW_CAP, LANES), (r::VL_ADMIN, LANES), (r::VL_OPERATIONAL, LANES)];
    fixed(access, data, &[r::VL_ADMIN], &values)
}

/// The text by which the node is known.
fn description(card: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    match access {
        Access::Write => card.function.description.copy_from_slice(data),
        Access::Read => data.copy_from_slice(&card.function.description),
    }
    Ok(())
}

/// The byte order of the host: least significant byte first.
fn byte_order(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    let order = register_host_endianness::HE;
    fixed(access, data, &[order], &[(order, 0)])
}

mod pause;
mod physical;
mod settings;
#[cfg(test)]
pub mod tests;
