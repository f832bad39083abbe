//! Judges what both ends tell of themselves.

use mlx5::verbs::attr::Mtu;

use super::super::check::{Check, Group, Question};
use super::super::port::compare_mtus;
use super::super::vlan::Vlan;
use super::facts::Facts;

/// A peer whose facts are of no use.
pub fn stranger(why: &str) -> Check {
    question("peer", "both ends run the same steps").broken(why, "use the same mlx5 on both hosts")
}

fn question(check: &str, why: &'static str) -> Question {
    Question::new(Group::Peer, check, "what the peer tells of itself, by TCP", why)
}

/// Compares all facts.
pub fn all(mine: &Facts, theirs: &Facts) -> Vec<Check> {
    vec![
        peer(theirs),
        state(mine, theirs),
        layer(mine, theirs),
        mtu(mine, theirs),
        address(mine, theirs),
        vlan(mine, theirs),
        partition(mine, theirs),
        versions(mine, theirs),
    ]
}

fn peer(theirs: &Facts) -> Check {
    let address = match theirs.gid {
        Some(gid) => match gid.to_ipv4_mapped() {
            Some(gid) => format!("GID {} ({gid})", theirs.gid_index),
            None => format!("GID {} ({gid})", theirs.gid_index),
        },
        None => format!("LID {}", theirs.lid),
    };
    question("peer", "the port that answers must be the one that programs use").good(format!(
        "{}, {}, {address}",
        theirs.host,
        theirs.name()
    ))
}

fn state(mine: &Facts, theirs: &Facts) -> Check {
    let question = question("port state", "messages pass only between active ports");
    let word = |facts: &Facts| {
        let text = facts.state.as_str();
        text.split_once(": ").map_or(text, |(_, name)| name).to_owned()
    };
    let found = format!("{} here, {} there", word(mine), word(theirs));
    match (mine.is_active, theirs.is_active) {
        (true, true) => question.good(found),
        (false, _) => question.broken(found, "mlx5 doctor    # here: it says why the port is down"),
        (true, false) => question.broken(found, "mlx5 doctor    # on the peer's host"),
    }
}

fn layer(mine: &Facts, theirs: &Facts) -> Check {
    let question = question("link layer", "an InfiniBand port and an Ethernet port share no wire");
    let word = |facts: &Facts| if facts.is_ethernet { "Ethernet" } else { "InfiniBand" };
    match mine.is_ethernet == theirs.is_ethernet {
        true => question.good(format!("{} on both sides", word(mine))),
        false => question.broken(
            format!("{} here, {} there", word(mine), word(theirs)),
            "choose the ports with --device and --port; or mlxconfig's LINK_TYPE_P1",
        ),
    }
}

fn mtu(mine: &Facts, theirs: &Facts) -> Check {
    let question = question(
        "MTU",
        "with a path MTU above that of the other side, short messages arrive and long ones do not",
    );
    let read = |facts: &Facts| Mtu::from_bytes(facts.mtu.into());
    match (read(mine), read(theirs)) {
        (Ok(mine), Ok(theirs)) => compare_mtus(question, mine, theirs),
        _ => question.unknown("an MTU that no port has", None),
    }
}

fn address(mine: &Facts, theirs: &Facts) -> Check {
    let question = question("GID type", "a RoCE version is not heard by ports of the other");
    match (mine.roce, theirs.roce) {
        (Some(here), Some(there)) if here == there => {
            question.good(format!("RoCE v{here} on both sides"))
        }
        (Some(here), Some(there)) => question.broken(
            format!("RoCE v{here} here, RoCE v{there} there"),
            "choose GIDs of one version on both sides: --gid-index; show them: mlx5 info",
        ),
        _ if !mine.is_ethernet && !theirs.is_ethernet => subnet(question, mine, theirs),
        _ => question.unknown("a side has no GID of RoCE", Some("mlx5 info".to_owned())),
    }
}

fn vlan(mine: &Facts, theirs: &Facts) -> Check {
    let question = question("VLAN", "packets with the tag of a VLAN reach only ports of this VLAN");
    let word = |facts: &Facts| facts.vlan.map_or("no VLAN".to_owned(), |vlan| vlan.to_string());
    let (here, there) = (word(mine), word(theirs));
    match (mine.vlan, theirs.vlan) {
        _ if !mine.is_ethernet => question.not_applicable("InfiniBand has no VLANs"),
        (Some(Vlan(None)), _) | (_, Some(Vlan(None))) => question.unknown(
            format!("{here} here, {there} there; the number is not shown to this user"),
            Some("ip -d link    # on both hosts".to_owned()),
        ),
        (here, there) if here == there => question.good(format!("{} on both sides", word(mine))),
        _ => question.warning(
            format!("{here} here, {there} there: the GIDs are of different VLANs"),
            "use GIDs whose interfaces are of one VLAN: --gid-index; or has the switch untagged packets of \
             a port in that VLAN?",
        ),
    }
}

/// On InfiniBand, GIDs have the prefix of the subnet.
fn subnet(question: Question, mine: &Facts, theirs: &Facts) -> Check {
    let prefix = |facts: &Facts| facts.gid.map(|gid| gid.segments()[..4].to_vec());
    match (prefix(mine), prefix(theirs)) {
        (Some(here), Some(there)) if here != there => question.warning(
            "the subnet prefixes differ: only a router connects these ports",
            "ibaddr    # on both hosts; is it the same fabric?",
        ),
        (Some(_), Some(_)) => question.good("the same subnet"),
        _ => question.not_applicable("ports of InfiniBand are addressed by LID"),
    }
}

fn partition(mine: &Facts, theirs: &Facts) -> Check {
    let question = question(
        "P_Key",
        "packets of another partition are dropped, as those between two limited members",
    );
    let fits = |here: u16, there: u16| {
        here & 0x7fff != 0 && here & 0x7fff == there & 0x7fff && (here | there) & 0x8000 != 0
    };
    let (here, there) = (mine.first_pkey, theirs.first_pkey);
    let found = format!("{here:#06x} here, {there:#06x} there, at index 0");
    if fits(here, there) {
        return question.good(found);
    }
    let common =
        mine.pkeys.iter().find(|here| theirs.pkeys.iter().any(|there| fits(**here, *there)));
    match common {
        Some(key) => question.warning(
            format!("{found}; partition {:#06x} is common, at other indices", key & 0x7fff),
            "name the index to the program: perftest --pkey_index, UCX_IB_PKEY, NCCL_IB_PKEY",
        ),
        None => question.broken(
            format!("{found}: no partition in common with a full member"),
            "the subnet manager's partitions.conf: both ports in a partition, one of them =full",
        ),
    }
}

fn versions(mine: &Facts, theirs: &Facts) -> Check {
    let word = |facts: &Facts| {
        let core =
            facts.rdma_core.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        format!("rdma-core {core}, firmware {}, Linux {}", facts.firmware, facts.kernel)
    };
    let question = question(
        "versions",
        "they need not be the same; where one host of many fails, look at what differs",
    );
    let (here, there) = (word(mine), word(theirs));
    match here == there {
        true => question.good(format!("{here} on both sides")),
        false => question.good(format!("{here} here; {there} there")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Verdict;
    use super::*;

    fn side(first_pkey: u16, pkeys: &[u16]) -> Facts {
        Facts { first_pkey, pkeys: pkeys.to_vec(), is_active: true, mtu: 4096, ..Facts::default() }
    }

    #[test]
    fn partitions_fit_where_one_side_is_a_full_member() {
        let judge = |mine: &Facts, theirs: &Facts| partition(mine, theirs).verdict;
        let (full, limited) = (side(0xffff, &[0xffff]), side(0x7fff, &[0x7fff]));
        assert_eq!(judge(&full, &full), Verdict::Good);
        assert_eq!(judge(&full, &limited), Verdict::Good);
        assert_eq!(judge(&limited, &limited), Verdict::Broken);
        let other = side(0x8001, &[0x8001, 0xffff]);
        assert_eq!(judge(&full, &other), Verdict::Warning);
        assert_eq!(judge(&full, &side(0x8002, &[0x8002])), Verdict::Broken);
        assert_eq!(judge(&side(0, &[]), &side(0, &[])), Verdict::Broken);
    }

    #[test]
    fn different_vlans_are_named() {
        let end = |vlan| Facts { is_ethernet: true, vlan, ..side(0xffff, &[]) };
        let judge = |mine, theirs| vlan(&end(mine), &end(theirs));
        let [none, five, six, unknown] = [None, Some(Some(5)), Some(Some(6)), Some(None)];
        let [none, five, six, unknown] = [none, five, six, unknown].map(|it| it.map(Vlan));
        assert_eq!(judge(none, none).verdict, Verdict::Good);
        assert_eq!(judge(five, five).found, "VLAN 5 on both sides");
        let different = judge(five, none);
        assert_eq!(different.verdict, Verdict::Warning);
        assert!(different.found.contains("VLAN 5 here, no VLAN there"), "{}", different.found);
        assert_eq!(judge(five, six).verdict, Verdict::Warning);
        assert_eq!(judge(unknown, five).verdict, Verdict::Unknown);
    }

    #[test]
    fn what_differs_is_named() {
        let mut mine = side(0xffff, &[]);
        let mut theirs = Facts { is_ethernet: true, is_active: false, ..mine.clone() };
        let broken = |mine: &Facts, theirs: &Facts| {
            let checks = all(mine, theirs).into_iter();
            let of = checks.filter(|check| check.verdict == Verdict::Broken);
            of.map(|check| check.check).collect::<Vec<_>>()
        };
        assert_eq!(broken(&mine, &theirs), ["port state", "link layer"]);
        (mine.is_ethernet, theirs.is_active) = (true, true);
        (mine.roce, theirs.roce) = (Some(2), Some(1));
        theirs.mtu = 1024;
        assert_eq!(broken(&mine, &theirs), ["GID type"]);
        let mtu = mtu(&mine, &theirs);
        assert_eq!(mtu.verdict, Verdict::Warning);
        assert!(mtu.found.contains("the path MTU must be 1024"), "{}", mtu.found);
    }
}
