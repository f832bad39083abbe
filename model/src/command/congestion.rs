//! Queries about what an Ethernet port does about congestion.

use mlx5_sys::ifc::{
    cong_control_r_roce_ecn_np as notifying, cong_control_r_roce_ecn_rp as reacting,
    query_cong_params_in, query_cong_params_out, query_cong_statistics_in,
    query_cong_statistics_out, query_cong_status_in, query_cong_status_out,
};

use super::{Refusal, get};
use crate::card::{Card, CongestionCounts, Link, parameter as p};

/// The sides of a connection (`cong.c` of Linux, `MLX5_IB_RROCE_ECN_*`): the one that is told of
/// congestion and slows down, and the one that tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Reacting,
    Notifying,
}

/// Returns the side that a query names, on an Ethernet port.
fn side(card: &Card, number: u32) -> Result<Side, Refusal> {
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    match number {
        1 => Ok(Side::Reacting),
        2 => Ok(Side::Notifying),
        _ => Err(Refusal::CongestionProtocol),
    }
}

/// QUERY_CONG_STATUS: both sides are always on, for all priorities.
pub fn query_status(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_cong_status_in as q;
    side(card, get(input, q::CONG_PROTOCOL))?;
    if get(input, q::PRIORITY) > 7 {
        return Err(Refusal::CongestionProtocol);
    }
    query_cong_status_out::ENABLE.set(output, 1);
    Ok(())
}

/// QUERY_CONG_PARAMS: times are in microseconds, rates in Mb/s.
pub fn query_parameters(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let side = side(card, get(input, query_cong_params_in::CONG_PROTOCOL))?;
    let parameters = &mut output[query_cong_params_out::CONGESTION_PARAMETERS.bytes()];
    let values = match side {
        Side::Notifying => vec![
            (notifying::MIN_TIME_BETWEEN_CNPS, p::MIN_TIME_BETWEEN_CNPS),
            (notifying::CNP_DSCP, p::CNP_DSCP),
            (notifying::CNP_802P_PRIO, p::CNP_802P_PRIO),
        ],
        Side::Reacting => vec![
            (reacting::CLAMP_TGT_RATE_AFTER_TIME_INC, p::CLAMP_TGT_RATE_AFTER_TIME_INC),
            (reacting::RPG_TIME_RESET, p::RPG_TIME_RESET),
            (reacting::RPG_BYTE_RESET, p::RPG_BYTE_RESET),
            (reacting::RPG_THRESHOLD, p::RPG_THRESHOLD),
            (reacting::RPG_AI_RATE, p::RPG_AI_RATE),
            (reacting::RPG_HAI_RATE, p::RPG_HAI_RATE),
            (reacting::RPG_GD, p::RPG_GD),
            (reacting::RPG_MIN_DEC_FAC, p::RPG_MIN_DEC_FAC),
            (reacting::RPG_MIN_RATE, p::RPG_MIN_RATE),
            (reacting::DCE_TCP_G, p::DCE_TCP_G),
            (reacting::DCE_TCP_RTT, p::DCE_TCP_RTT),
            (reacting::RATE_REDUCE_MONITOR_PERIOD, p::RATE_REDUCE_MONITOR_PERIOD),
            (reacting::INITIAL_ALPHA_VALUE, p::INITIAL_ALPHA_VALUE),
        ],
    };
    for (field, value) in values {
        field.set(parameters, value);
    }
    Ok(())
}

/// QUERY_CONG_STATISTICS: what the port did about congestion.
pub fn query_statistics(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_cong_statistics_out as c;
    let CongestionCounts { marked, sent, handled, ignored } = card.congestion;
    for (high, low, count) in [
        (c::NP_ECN_MARKED_ROCE_PACKETS_HIGH, c::NP_ECN_MARKED_ROCE_PACKETS_LOW, marked),
        (c::NP_CNP_SENT_HIGH, c::NP_CNP_SENT_LOW, sent),
        (c::RP_CNP_HANDLED_HIGH, c::RP_CNP_HANDLED_LOW, handled),
        (c::RP_CNP_IGNORED_HIGH, c::RP_CNP_IGNORED_LOW, ignored),
    ] {
        high.set(output, count >> 32);
        low.set(output, count & 0xffff_ffff);
    }
    if get(input, query_cong_statistics_in::CLEAR) == 1 {
        card.congestion = CongestionCounts::default();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
