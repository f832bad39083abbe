//! Firmware commands as text.

use mlx5::devx::ifc::{Field, Layout, opcode, status};
use mlx5::diag::text::Structure;
use mlx5_model::command::Refusal;
use serde_json::{Map, Value};

use super::line::Line;
use crate::output::hex;

/// Fields that identify a command: shown in one line, where they are not zero.
const TELLING: &[&str] = &[
    "access_key",
    "alt_rlid",
    "c_eqn",
    "c_eqn_or_apu_element",
    "counter_set_id",
    "cqn",
    "cqn_rcv",
    "cqn_snd",
    "dctn",
    "eq_number",
    "eth_prio",
    "free",
    "group_id",
    "hop_limit",
    "int_msix",
    "intr",
    "len",
    "length",
    "lkey",
    "log_cq_size",
    "log_eq_size",
    "log_page_size",
    "log_rq_size",
    "log_rqm",
    "log_sq_size",
    "log_sra_max",
    "log_rra_max",
    "lr",
    "lw",
    "min_rnr_nak",
    "mkey_index",
    "mtu",
    "next_rcv_psn",
    "next_send_psn",
    "obj_id",
    "op_mod",
    "other_vport",
    "pd",
    "pkey_index",
    "port",
    "q_key",
    "qpn",
    "r_key",
    "rae",
    "remote_qpn",
    "retry_count",
    "rlid",
    "rnr_retry",
    "rq_type",
    "rqn",
    "rqtn",
    "rmpn",
    "rr",
    "rre",
    "rw",
    "rwe",
    "sl",
    "sqn",
    "src_addr_index",
    "srqn",
    "srqn_rmpn_xrqn",
    "st",
    "start_addr",
    "state",
    "table_id",
    "table_type",
    "tirn",
    "tisn",
    "translations_octword_size",
    "transport_domain",
    "uar",
    "uar_page",
    "uid",
    "umem_id",
    "user_index",
    "vhca_port_num",
    "vport_number",
    "wq_type",
    "xrcd",
    "xrc_srqn",
    "xrqn",
];
/// The fields among them that have the same meaning for every object; lines are selected by them.
const QPS: [&str; 2] = ["qpn", "dctn"];
const CQS: [&str; 3] = ["cqn", "cqn_snd", "cqn_rcv"];

/// Fills a line with a command and its reply.
pub(super) fn tell(line: &mut Line, input: &[u8], output: &[u8]) {
    let code = input.get(..2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
    let name = opcode::name(code).map_or_else(|| format!("command {code:#x}"), str::to_owned);
    let status = output.first().copied().unwrap_or_default();
    line.is_error = status != 0;
    line.with("command", name.clone()).with("opcode", code);
    line.with("status", status::name(status).map_or_else(|| status.to_string(), str::to_owned));
    line.text = name.clone();

    let asked = layout(&name, "in");
    let about = telling(line, asked, input);
    line.text += &about;
    line.with("input", fields(asked, input));
    line.more = whole(asked, input);
    if status == 0 {
        let answered = layout(&name, "out");
        let answer = telling(line, answered, output);
        if !answer.is_empty() {
            line.text += " ->";
            line.text += &answer;
        }
        // Long output is shown only where everything is shown.
        line.with("output", fields(answered, output));
        line.more.extend(whole(answered, output));
        return;
    }
    let syndrome =
        output.get(4..8).map_or(0, |word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let words = status::words(status).unwrap_or("not publicly documented");
    let name = status::name(status).map_or_else(|| format!("status {status:#x}"), str::to_owned);
    line.text += &format!(" refused: {name}, {words}");
    line.with("syndrome", syndrome);
    if let Some(refusal) = Refusal::from_syndrome(syndrome) {
        line.with("reason", refusal.to_string());
        line.more.insert(0, format!("the model's syndrome {syndrome:#x}: {refusal}"));
    }
}

/// Returns the layout of a command or of its reply.
fn layout(command: &str, way: &str) -> Option<&'static Layout> {
    Layout::named(&format!("{}_{way}", command.to_lowercase()))
}

/// Returns the identifying fields in one line, and adds the queues that they name to `line`.
fn telling(line: &mut Line, layout: Option<&'static Layout>, bytes: &[u8]) -> String {
    let Some(layout) = layout else { return String::new() };
    let is_reply = layout.name.ends_with("_out");
    let mut text = String::new();
    for field in whole(Some(layout), bytes).iter().skip(1) {
        let Some((path, value)) = field.trim_start().split_once(" = ") else { continue };
        let name = path.rsplit('.').next().unwrap_or(path);
        // Zero has a meaning only for a service, and for a state that was queried: commands that
        // move a queue pair leave the state zero.
        let is_zero = value == "0" || value.starts_with("0 ");
        let says = !is_zero || value != "0" && (name == "st" || name == "state" && is_reply);
        // In a key's context, this number stands for all queue pairs.
        let is_any = name == "qpn" && value == "0xffffff";
        if !TELLING.contains(&name) || !says || is_any {
            continue;
        }
        // A value with a meaning is shown by its meaning.
        let (number, meaning) = match value.split_once(" (") {
            Some((number, meaning)) => (number, meaning.trim_end_matches(')')),
            None => (value, value),
        };
        text += &format!(" {name} {meaning}");
        let number = match number.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        if let Ok(number) = number {
            if QPS.contains(&name) {
                line.qps.push(number);
            }
            if CQS.contains(&name) {
                line.cqs.push(number);
            }
        }
    }
    text
}

/// Returns all fields that are not zero, or the bytes if no public header has the layout.
fn whole(layout: Option<&'static Layout>, bytes: &[u8]) -> Vec<String> {
    match layout {
        Some(layout) => {
            let text = Structure { layout, bytes }.to_string();
            text.lines().map(str::to_owned).collect()
        }
        None => vec![hex(bytes)],
    }
}

/// Returns the same content for programs.
fn fields(layout: Option<&'static Layout>, bytes: &[u8]) -> Value {
    let Some(layout) = layout else { return hex(bytes).into() };
    let inside = |field: &Field| field.bit_offset() + field.width() <= bytes.len() * 8;
    let mut all = Map::new();
    for field in layout.leaves().into_iter().filter(inside) {
        if field.width() <= 64 {
            match field.get(bytes) {
                0 => {}
                value => drop(all.insert(field.path().to_string(), value.into())),
            }
        } else if field.bit_offset() % 8 == 0 && field.width() % 8 == 0 {
            let value = &bytes[field.bytes()];
            if value.iter().any(|byte| *byte != 0) {
                all.insert(field.path().to_string(), hex(value).into());
            }
        }
    }
    all.into()
}
