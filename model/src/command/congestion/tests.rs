use mlx5_evidence::{Comparison, Table};
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
    let sides = [ask(1), ask(2)];
    // The reaction point's fields, then the notification point's, by the names of the layouts.
    let layouts = [&reacting::LAYOUT, &notifying::LAYOUT];
    let columns = ["parameter", "devices", "model"];
    let mut comparison = Comparison::new("congestion-defaults", &columns);
    for row in Table::read("congestion-defaults").rows() {
        let name = row.first();
        // Three generations of one parameter, of which the model has the newest.
        let (name, older) = match name.strip_prefix("min_time_between_cnps_us_") {
            Some(generation) => ("min_time_between_cnps", generation != "new"),
            None => {
                (name.strip_suffix("_us").or(name.strip_suffix("_mbps")).unwrap_or(name), false)
            }
        };
        let name = match name {
            "initial_alpha" => "INITIAL_ALPHA_VALUE".to_owned(),
            name => name.to_uppercase(),
        };
        let found = layouts.iter().zip(&sides).find_map(|(layout, side)| {
            let member =
                layout.members.iter().find(|member| member.field.name() == Some(&*name))?;
            Some(member.field.get(side))
        });
        let here = found.unwrap_or_else(|| panic!("{name}"));
        let device: u64 = row.number("device_default").expect("a number");
        assert!(older || here == device, "{name}: {here}, {device} on devices");
        comparison.row(&[&row.first(), &device, &here]);
    }
    comparison.write();
}
