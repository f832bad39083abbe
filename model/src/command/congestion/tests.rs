use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn a_port_of_ethernet_tells_how_it_answers_congestion() {
    let mut rig = Rig::on(Link::Roce);
    let status = Command::new(opcode::QUERY_CONG_STATUS, query_cong_status_in::SIZE);
    let parameters = Command::new(opcode::QUERY_CONG_PARAMS, query_cong_params_in::SIZE);
    let mut ask = |protocol: u64| {
        let status = status.clone().set(query_cong_status_in::CONG_PROTOCOL, protocol);
        let reply = rig.run(&status).unwrap();
        assert_eq!(query_cong_status_out::ENABLE.get(&reply), 1);
        let parameters = parameters.clone().set(query_cong_params_in::CONG_PROTOCOL, protocol);
        let reply = rig.run(&parameters).unwrap();
        reply[query_cong_params_out::CONGESTION_PARAMETERS.bytes()].to_vec()
    };
    let shown = ask(2);
    assert_eq!(notifying::MIN_TIME_BETWEEN_CNPS.get(&shown), 50);
    assert_eq!(notifying::CNP_DSCP.get(&shown), 48);
    let shown = ask(1);
    for (field, value) in [
        (reacting::RPG_TIME_RESET, 55),
        (reacting::RPG_THRESHOLD, 5),
        (reacting::RPG_MAX_RATE, 100_000),
        (reacting::RPG_AI_RATE, 40),
        (reacting::RPG_MIN_RATE, 10),
    ] {
        assert_eq!(field.get(&shown), value, "{field:?}");
    }
}
