//! Objects and pages that a driver leaves at the function when it stops the HCA.

use mlx5_model::card::Card;
use mlx5_sys::ifc::opcode;

/// Names what the driver leaves at the function, if a command ends the life of something.
///
/// TEARDOWN_HCA destroys all objects, and DISABLE_HCA forgets all pages. A driver that is whole has
/// destroyed its objects and taken its pages back before.
pub fn left_behind(card: &Card, command: &[u8]) -> Option<String> {
    let code = u16::from_be_bytes([*command.first()?, *command.get(1)?]);
    let counts = match code {
        opcode::TEARDOWN_HCA => objects(card),
        opcode::DISABLE_HCA => vec![("pages", card.pages())],
        _ => return None,
    };
    let left: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let name = opcode::name(code).unwrap_or("unknown");
    (!left.is_empty()).then(|| format!("{name}: left behind: {}", left.join(", ")))
}

/// Counts the objects of each kind.
fn objects(card: &Card) -> Vec<(&'static str, usize)> {
    let objects = &card.objects;
    vec![
        ("queue pairs", objects.qps.len()),
        ("CQs", objects.cqs.len()),
        ("SRQs", objects.srqs.len()),
        ("EQs", objects.eqs.len()),
        ("mkeys", objects.mkeys.len()),
        ("protection domains", objects.pds.len()),
        ("XRC domains", objects.xrcds.len()),
        ("transport domains", objects.transport_domains.len()),
        ("counter sets", objects.counters.len()),
        ("PSVs", objects.psvs.len()),
        ("TIRs", objects.tirs.len()),
        ("TISes", objects.tises.len()),
        ("RQTs", objects.rqts.len()),
        ("flow counters", objects.flow_counters.len()),
        ("UARs", objects.uars.len()),
        ("umems", objects.umems.len()),
        ("user contexts", objects.uctxs.len()),
    ]
}
