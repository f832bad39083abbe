//! Congestion control of RoCE (ECN): for which priorities it is on, and its parameters.
//!
//! The firmware tells both by command (DevX). The driver has the parameters in debugfs as well.

use mlx5::devx::Command;
use mlx5::devx::ifc::{
    Field, cong_control_r_roce_ecn_np as np, cong_control_r_roce_ecn_rp as rp, opcode,
    query_cong_params_in, query_cong_params_out, query_cong_status_in, query_cong_status_out,
};
use mlx5::verbs::{Context, Devx};

use super::check::{Check, Group, Question};
use super::debugfs::{self, Absent};
use super::situation::Situation;
use crate::register::refusal;

/// A side of a connection, with its number in commands and its parameters by the kernel's names
/// (`cong.c` of Linux's mlx5_ib).
struct Side {
    name: &'static str,
    number: u8,
    prefix: &'static str,
    parameters: &'static [(&'static str, Field)],
}

/// The receiver, which reports marked packets by congestion notification packets (CNPs).
const NOTIFICATION: Side = Side {
    name: "notification point",
    number: 2,
    prefix: "np_",
    parameters: &[
        ("min_time_between_cnps", np::MIN_TIME_BETWEEN_CNPS),
        ("cnp_dscp", np::CNP_DSCP),
        ("cnp_prio_mode", np::CNP_PRIO_MODE),
        ("cnp_prio", np::CNP_802P_PRIO),
    ],
};

/// The sender, which slows down.
const REACTION: Side = Side {
    name: "reaction point",
    number: 1,
    prefix: "rp_",
    parameters: &[
        ("clamp_tgt_rate", rp::CLAMP_TGT_RATE),
        ("clamp_tgt_rate_ati", rp::CLAMP_TGT_RATE_AFTER_TIME_INC),
        ("time_reset", rp::RPG_TIME_RESET),
        ("byte_reset", rp::RPG_BYTE_RESET),
        ("threshold", rp::RPG_THRESHOLD),
        ("ai_rate", rp::RPG_AI_RATE),
        ("max_rate", rp::RPG_MAX_RATE),
        ("hai_rate", rp::RPG_HAI_RATE),
        ("min_dec_fac", rp::RPG_MIN_DEC_FAC),
        ("min_rate", rp::RPG_MIN_RATE),
        ("rate_to_set_on_first_cnp", rp::RATE_TO_SET_ON_FIRST_CNP),
        ("dce_tcp_g", rp::DCE_TCP_G),
        ("dce_tcp_rtt", rp::DCE_TCP_RTT),
        ("rate_reduce_monitor_period", rp::RATE_REDUCE_MONITOR_PERIOD),
        ("initial_alpha_value", rp::INITIAL_ALPHA_VALUE),
        ("gd", rp::RPG_GD),
    ],
};

/// The state by the firmware.
#[derive(Clone, Debug)]
pub struct State {
    /// Priorities for which marked packets are reported, and for which senders slow down.
    pub notifies: Vec<u8>,
    pub reacts: Vec<u8>,
    parameters: String,
}

/// Asks the firmware.
///
/// # Errors
/// Why it does not tell, in words.
pub fn ask(situation: &Situation) -> Result<State, String> {
    let context = situation.context().ok_or_else(|| situation.why_not_open().to_owned())?;
    if context.devx() != Devx::Open {
        return Err(context.devx().to_string());
    }
    let parameters = [&NOTIFICATION, &REACTION].map(|side| parameters(context, side));
    let [notification, reaction] = parameters;
    Ok(State {
        notifies: priorities(context, &NOTIFICATION)?,
        reacts: priorities(context, &REACTION)?,
        parameters: format!("{}; {}", notification?, reaction?),
    })
}

fn query(context: &Context, command: Command) -> Result<Vec<u8>, String> {
    // SAFETY: a query changes nothing, and gives the HCA access to no memory.
    let executed = unsafe { command.execute(context) };
    executed.map(|reply| reply.into_bytes()).map_err(|error| refusal(&error))
}

/// Returns the priorities for which a side is on.
fn priorities(context: &Context, side: &Side) -> Result<Vec<u8>, String> {
    let mut on = Vec::new();
    for priority in 0..8u8 {
        let command = Command::new(opcode::QUERY_CONG_STATUS, query_cong_status_in::SIZE)
            .set(query_cong_status_in::PRIORITY, priority)
            .set(query_cong_status_in::CONG_PROTOCOL, side.number)
            .reply(query_cong_status_out::SIZE);
        let reply = query(context, command)?;
        if query_cong_status_out::ENABLE.get(&reply) == 1 {
            on.push(priority);
        }
    }
    Ok(on)
}

fn parameters(context: &Context, side: &Side) -> Result<String, String> {
    let command = Command::new(opcode::QUERY_CONG_PARAMS, query_cong_params_in::SIZE)
        .set(query_cong_params_in::CONG_PROTOCOL, side.number)
        .reply(query_cong_params_out::SIZE);
    let reply = query(context, command)?;
    let values = reply.get(query_cong_params_out::CONGESTION_PARAMETERS.bytes());
    let values = values.ok_or_else(|| "the reply is too short".to_owned())?;
    let words = side.parameters.iter().map(|(name, field)| format!("{name} {}", field.get(values)));
    Ok(format!("{}: {}", side.name, words.collect::<Vec<_>>().join(", ")))
}

/// Reads the parameters from debugfs.
fn by_files(situation: &Situation) -> Result<String, Absent> {
    let folder = debugfs::folder(situation, "cc_params")?;
    let values = debugfs::values(situation, &folder);
    let sides = [&NOTIFICATION, &REACTION].into_iter().filter_map(|side| {
        let own = values.iter().filter_map(|(name, value)| {
            Some(format!("{} {value}", name.strip_prefix(side.prefix)?))
        });
        let own = own.collect::<Vec<_>>().join(", ");
        (!own.is_empty()).then(|| format!("{}: {own}", side.name))
    });
    let sides: Vec<String> = sides.collect();
    match sides.is_empty() {
        true => Err(Absent::Hidden {
            why: format!("no file of /{folder} can be read"),
            cure: "sudo mlx5 doctor",
        }),
        false => Ok(sides.join("; ")),
    }
}

/// Names priorities.
pub fn shown(priorities: &[u8]) -> String {
    let list = priorities.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    match priorities.len() {
        0 => "no priority".to_owned(),
        1 => format!("priority {list}"),
        8 => "all priorities".to_owned(),
        _ => format!("priorities {list}"),
    }
}

/// Checks what is known of congestion control. Whether it should be on is not judged here.
pub fn look(situation: &Situation, port: u8, state: &Result<State, String>) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} ECN"),
        "QUERY_CONG_STATUS, QUERY_CONG_PARAMS; /sys/kernel/debug/mlx5/*/cc_params",
        "switches mark packets of full queues, receivers report them, and senders slow down; times \
         are in microseconds, rates in Mbit/s",
    );
    if !situation.is_ethernet(port) {
        return question.not_applicable("it is of RoCE");
    }
    let refused = match state {
        Ok(State { notifies, reacts, parameters }) => {
            let (notifies, reacts) = (shown(notifies), shown(reacts));
            return question
                .good(format!("reports for {notifies}, slows down for {reacts}; {parameters}"));
        }
        Err(refused) => refused,
    };
    match by_files(situation) {
        Ok(parameters) => {
            question.good(format!("{parameters}; whether it is on is not told: {refused}"))
        }
        Err(Absent::Hidden { why, cure }) => {
            question.unknown(format!("{refused}; {why}"), Some(cure.to_owned()))
        }
        Err(absent) => absent.answer(question),
    }
}
