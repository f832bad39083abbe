use super::source::{distribution, numbers};
use super::*;

fn evidence() -> Evidence {
    let device = Device {
        bed: Bed::Device,
        product: "ConnectX-6 Dx".to_owned(),
        part: Some(0x101d),
        firmware: "22.41.1000".to_owned(),
        link: "Ethernet".to_owned(),
    };
    let system = System {
        distribution: Some("debian 13".to_owned()),
        kernel: None,
        rdma_core: Some("56.1".to_owned()),
        version: "1.2.3".to_owned(),
    };
    let bytes = Seen::Bytes(vec![vec![0x93, 0, 0x52, 4, 0xd2], vec![0; 2]]);
    let answers = vec![
        Answer { question: "cqe.local-key", fact: "E036", seen: bytes },
        Answer {
            question: "time.dead-peer",
            fact: "E072",
            seen: Seen::Numbers(vec![3_661_800], Unit::Microseconds),
        },
    ];
    let unanswered = vec![("doorbell.late", Unanswered::NotApplicable)];
    Evidence { peer: None, device, system, answers, unanswered }
}

#[test]
fn the_file_has_what_was_seen_in_each_trial() {
    let text = evidence().to_string();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = "format = 1\n\n[device]\nbed = \"device\"\nproduct = \"ConnectX-6 Dx\"\n\
        part = 4125\nfirmware = \"22.41.1000\"\nlink = \"Ethernet\"\n\n[system]\n\
        distribution = \"debian 13\"\nrdma-core = \"56.1\"\nmlx5 = \"1.2.3\"\n\n\
        [[answer]]\nquestion = \"cqe.local-key\"\nfact = \"E036\"\nunit = \"bytes\"\n\
        seen = [\"93005204d2\", \"0000\"]\n\n\
        [[answer]]\nquestion = \"time.dead-peer\"\nfact = \"E072\"\nunit = \"us\"\n\
        seen = [3661800]\n\n[[unanswered]]\nquestion = \"doorbell.late\"\nwhy = \"not applicable\"";
    assert_eq!(lines, expected.lines().collect::<Vec<_>>());
}

#[test]
fn texts_of_a_system_cannot_end_their_line_or_be_long() {
    let mut evidence = evidence();
    evidence.device.firmware = "1\"\nformat = 2\\\u{1b}".to_owned();
    evidence.system.distribution = Some("x".repeat(1000));
    let text = evidence.to_string();
    assert!(text.contains("firmware = \"1format  2\"\n"), "{text}");
    assert!(text.lines().all(|line| line.len() < 100), "{text}");
}

#[test]
fn names_that_a_site_chose_are_left_out_of_versions() {
    assert_eq!(numbers("6.8.0-45-generic"), "6.8.0-45");
    assert_eq!(numbers("5.14.0-362.8.1.el9_3.x86_64"), "5.14.0-362.8.1");
    assert_eq!(numbers("6.1.0-node17.example.org"), "6.1.0");
    let release = "NAME=\"A site's own\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nHOME_URL=\"x\"\n";
    assert_eq!(distribution(release).as_deref(), Some("ubuntu 24.04"));
    assert_eq!(distribution("ID=arch\n").as_deref(), Some("arch"));
    assert_eq!(distribution("NAME=x\nHYBRID=y\n"), None);
}

#[test]
fn a_fault_takes_time_for_its_first_question_alone() {
    let link = LinkLayer::Ethernet;
    let about =
        |name: &str| questions().find(|question| question.name == name).expect("a question");
    let [time, code] = ["time.dead-peer", "cqe.dead-peer"].map(about);
    let takes = time.takes(link);
    assert!(takes > Duration::from_secs(4) && takes < Duration::from_secs(8), "{takes:?}");
    let mut interview = Interview::new(takes + Duration::from_secs(1));
    assert!(interview.has_time(code, link));
    // Nothing has caused it yet, and a second time is too long.
    assert!(!interview.has_time(time, link));
    let fault = time.fault().expect("a fault");
    interview.caused.push((fault, Vec::new()));
    assert!(interview.has_time(time, link));
    assert!(interview.has_time(about("capability.log_max_qp"), link));
}

#[test]
fn without_time_no_time_is_asked_for() {
    let link = LinkLayer::Ethernet;
    let mut interview = Interview::new(Duration::ZERO);
    // This fault takes no noticeable time, and another question has caused it.
    let about = |name: &str| questions().find(|question| question.name == name);
    let code = about("cqe.no-receive").expect("a question");
    assert!(interview.has_time(code, link));
    interview.caused.push((code.fault().expect("a fault"), Vec::new()));
    assert!(interview.has_time(code, link));
    for question in questions().filter(|question| question.name.starts_with("time.")) {
        assert!(!interview.has_time(question, link), "{}", question.name);
    }
}

#[test]
fn all_questions_together_fit_into_the_time_that_they_get() {
    for link in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        let mut interview = Interview::new(BUDGET);
        for question in questions().filter(|question| question.fact(link).is_some()) {
            assert!(interview.has_time(question, link), "{}", question.name);
            if let Some(fault) = question.fault() {
                interview.caused.push((fault, Vec::new()));
            }
        }
    }
}

#[test]
fn names_of_questions_and_ids_of_facts_fit_into_the_file() {
    let mut names: Vec<&str> = questions().map(|question| question.name).collect();
    assert!(names.iter().all(|name| name.len() <= 64 && name.contains('.')));
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}
