//! Counters that speak of faults: of the RDMA transport (sysfs), and of the network interface
//! (`ethtool -S`). Their meanings are those of [`mlx5::diag::explain::counter`], which `decode` has too.

use mlx5::diag::explain::counter::{self, Place};

use super::check::{Check, Group, Question};
use super::ethtool;
use super::situation::Situation;
use super::tree::number;

pub fn look(situation: &Situation) -> Vec<Check> {
    let ports = situation.ports().into_iter();
    ports
        .flat_map(|port| {
            [
                Some(transport(situation, port)),
                notifications(situation, port),
                Some(interface(situation, port)),
            ]
        })
        .flatten()
        .collect()
}

/// Judges the counters of a place, of which `read` returns the values.
fn judge(question: Question, place: Place, read: impl Fn(&str) -> Option<u64>) -> Check {
    let (mut known, mut wrong, mut cure) = (0, Vec::new(), None);
    for counter in counter::judged(place) {
        let (name, counts) = (counter.name, counter.counts);
        let Some(value) = read(name) else { continue };
        known += 1;
        if value != 0 {
            wrong.push(format!("{name} {value} ({counts})"));
            cure.get_or_insert_with(|| format!("{name}: {}", counter.check));
        }
    }
    match (cure, known) {
        (Some(cure), _) => question
            .warning(wrong.join(", "), format!("look again under load: what grows counts. {cure}")),
        (None, 0) => question.not_applicable("the kernel shows no counters of it"),
        (None, 1) => question.good("1 counter, and it is zero"),
        (None, count) => question.good(format!("{count} counters, and all are zero")),
    }
}

fn transport(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} transport"),
        format!("/sys/class/infiniband/*/ports/{port}/hw_counters"),
        "retransmission hides losses from programs; only their latency and these counters tell. A device \
         that refuses a request counts nothing: look at the requester's. Queue pairs made by command \
         (DevX) count in none of them",
    );
    judge(question, Place::Transport, |name| count(situation, port, name))
}

/// Returns a counter of the transport.
fn count(situation: &Situation, port: u8, name: &str) -> Option<u64> {
    let text = situation.port_file(port, &format!("hw_counters/{name}"))?;
    u64::try_from(number(&text)?).ok()
}

/// Tells notifications of congestion from those that a sender counts for its own repetitions: a
/// ConnectX-6 adds one for each, but for the last time-out of a request that it gives up (evidence E056,
/// E070).
fn notifications(situation: &Situation, port: u8) -> Option<Check> {
    let count = |name| count(situation, port, name);
    let handled = count("rp_cnp_handled").filter(|handled| *handled > 0)?;
    let question = Question::new(
        Group::Ports,
        format!("port {port} congestion"),
        format!("/sys/class/infiniband/*/ports/{port}/hw_counters"),
        "a peer that does not answer raises rp_cnp_handled as congestion does; the peer's np_cnp_sent \
         tells how many notifications it has sent",
    );
    let of = |name| count(name).unwrap_or(0);
    let (adaptive, regular) = (of("roce_adp_retrans"), of("local_ack_timeout_err"));
    let repetitions =
        (adaptive + regular).saturating_sub(of("req_transport_retries_exceeded")).min(handled);
    let own = format!(
        "rp_cnp_handled {handled}: {repetitions} for repetitions of this port (roce_adp_retrans \
         {adaptive}, local_ack_timeout_err {regular})"
    );
    Some(match handled - repetitions {
        0 => question
            .good(format!("{own}, so no congestion; peers did not answer, or packets were lost")),
        congestion => question
            .good(format!("{own}, and {congestion} for congestion, at which senders slow down")),
    })
}

fn interface(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} interface"),
        "ethtool -S, by the ioctl of ETHTOOL_GSTATS; of a sosreport, its file",
        "drops and pauses of the Ethernet port hit RDMA as well",
    );
    let name = situation.interface(port).filter(|_| situation.is_ethernet(port));
    let Some(name) = name else {
        return question.not_applicable("the port has no network interface");
    };
    if situation.model {
        return question.not_applicable("the model's interface has no statistics");
    }
    let statistics = match situation.tree.is_own() {
        true => ethtool::statistics(&name),
        false => situation
            .tree
            .text(&format!("sos_commands/networking/ethtool_-S_{name}"))
            .map(|text| ethtool::printed(&text)),
    };
    match statistics {
        Ok(statistics) => judge(question, Place::Interface, |name| {
            statistics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
        }),
        Err(_) if !situation.tree.is_own() => {
            question.not_applicable("the copy has no output of ethtool -S")
        }
        Err(error) => question.unknown(
            format!("{name}: {error}"),
            Some(format!("ethtool -S {name}    # in the network namespace of the interface")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn counters_that_grew_are_named_with_their_meaning() {
        let question = || Question::new(Group::Ports, "check", "place", "why");
        let only = |wanted: &'static str, value| {
            judge(question(), Place::Transport, move |name| (name == wanted).then_some(value))
        };
        assert_eq!(only("out_of_sequence", 0).verdict, Verdict::Good);
        assert_eq!(only("none", 0).verdict, Verdict::NotApplicable);
        let wrong = only("rnr_nak_retry_err", 7);
        assert_eq!(wrong.verdict, Verdict::Warning);
        assert_eq!(wrong.found, "rnr_nak_retry_err 7 (RNR NAKs: the peer had no receive)");
        assert!(wrong.cure.unwrap().contains("too few receives"));
        // Losses that heal show there alone, and first (evidence E069, F056).
        let healed = only("roce_adp_retrans", 9);
        assert_eq!(healed.verdict, Verdict::Warning);
        assert!(healed.found.contains("roce_adp_retrans 9"), "{}", healed.found);
        let both = judge(question(), Place::Transport, |_| Some(1));
        let place = |name| both.found.find(name).expect("a counter");
        assert!(place("roce_adp_retrans") < place("local_ack_timeout_err"), "{}", both.found);
    }
}
