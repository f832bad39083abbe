//! `mlx5 dump` of other processes, compared with the attributes that these processes report.

mod rig;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use mlx5::connect::LocalPort;
use mlx5::devx::{self, CommandTarget as _};
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionQueue, Pages, ProtectionDomain, QueuePair, QueuePairBuilder, Reset};
use mlx5::wqe::{Inline, RdmaWrite, Remote, SendMessage};
use mlx5_model as _;
use rig::looked_into::{Killed, PROGRAM, Program, numbered, objects, open, wait_for};
use rig::{finish, json_has_shape, mlx5, on_the_model, run, text_has_shape};
use serde_json::{Value, json};

/// The program: a queue pair that is connected to itself, one in INIT, one in RTR, and one that was
/// made by command. Says what they are; then sends as many messages as each line of its input says. For
/// 0, writes by a key that does not exist, which ends the connection.
#[test]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 128).unwrap();
    let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    let port = LocalPort::new(&context, 1, None).unwrap();
    let made = || -> QueuePair<Rc, Reset> {
        QueuePair::builder(&pd, &cq).max_send_wr(16).max_inline_data(64).build().unwrap()
    };
    let (qp, in_init, in_rtr) = (made(), made(), made());
    let endpoint = port.connection_data(&qp);
    let other = port.connection_data(&in_rtr);
    let in_init = in_init.init(&port.init()).unwrap();
    let in_rtr = in_rtr.init(&port.init()).unwrap();
    let in_rtr = in_rtr.rtr(&port.rtr(&other, &endpoint)).unwrap();

    let umem = devx::Umem::new(&context, Pages::new(1 << 16).unwrap()).unwrap();
    let uar = devx::Uar::first_of(&context, &devx::UarKind::ALL).unwrap().uar;
    let by_command = CompletionQueue::by_command(&context, 64).uar(&uar).record(&umem, 0);
    let by_command = by_command.ring(&umem, 1 << 12).build().unwrap();
    let commanded = QueuePairBuilder::<Rc, _>::by_command(&pd, &by_command)
        .max_send_wr(16)
        .uar(&uar)
        .record(&umem, 64);
    let commanded = commanded.ring(&umem, 1 << 15).build().unwrap();

    let told = json!({
        "qp": qp.number(),
        "psn": endpoint.psn,
        "lid": endpoint.lid,
        "gid": endpoint.gid.map(|gid| u128::from_be_bytes(gid.0).to_string()),
        "in_init": in_init.number(),
        "in_rtr": in_rtr.number(),
        "in_rtr_context": in_rtr.object_context().unwrap().to_string(),
        "commanded": commanded.number(),
        "pd": pd.number().unwrap(),
        "address": memory.address(),
        "lkey": memory.lkey(),
        "rkey": memory.rkey(),
        "length": 4096,
    });
    let qp = qp.init(&port.init()).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    receiver.post(1, MrSlice::new(memory)).unwrap();
    let qp = qp.rtr(&port.rtr(&endpoint, &endpoint)).unwrap();
    let qp = qp.rts(&port.rts(&endpoint, &endpoint)).unwrap();
    let mut channel = Endpoint::new(qp, receiver, completions, SendConfig::default()).unwrap();
    println!("\ntold {told}");
    for line in std::io::stdin().lines() {
        let messages = line.unwrap().parse::<u64>().unwrap();
        if messages == 0 {
            let nowhere = Remote::new(0x1000, 0x00ba_d000);
            channel.post(3, RdmaWrite::new(Inline(b"lost"), nowhere).signaled()).unwrap();
            while !channel.poll().any(|returned| returned.unwrap().id == 3) {}
        }
        for _ in 0..messages {
            channel.post(2, SendMessage::new(Inline(b"hello")).signaled()).unwrap();
            // The request's end, and the receive's, whose memory is posted again.
            let mut done = 0;
            while done < 2 {
                let Some(returned) = channel.poll().next() else { continue };
                let returned = returned.unwrap();
                done += 1;
                if let Ok(memory) = returned.buffers.one() {
                    channel.post_receive(1, memory).unwrap();
                }
            }
        }
        println!("\nsent");
    }
    drop((in_init, in_rtr, commanded));
}

#[test]
fn contexts_are_what_the_program_says() {
    for link in ["infiniband", "roce"] {
        let mut program = Program::start(&[("MLX5_MODEL_LINK", link)]);
        program.send(3);
        let dump = run(&["dump", "--pid", &program.pid(), "--json"], 0).report();
        let qp = numbered(&dump, "qp", program.told("qp"));
        let fields = &qp["fields"];
        // RTS, and connected to itself.
        assert_eq!((&fields["state"], &qp["remark"]), (&3.into(), &Value::Null));
        assert_eq!(fields["remote_qpn"], program.told("qp"));
        let psn = (program.told("psn") + 3) & 0xff_ffff;
        assert_eq!((&fields["next_send_psn"], &fields["next_rcv_psn"]), (&psn.into(), &psn.into()));
        assert_eq!(fields["pd"], program.told("pd"));
        match program.told["gid"].as_str() {
            None => assert_eq!(fields["primary_address_path.rlid"], program.told("lid")),
            Some(gid) => {
                let text = run(&["dump", "-p", &program.pid(), "-k", "qp"], 0).out;
                let gid = format!("{:032x}", gid.parse::<u128>().unwrap());
                let shown = text.lines().find(|line| line.contains("rgid_rip")).unwrap();
                let shown: String = shown.split(" = ").nth(1).unwrap().split(' ').collect();
                assert_eq!(shown, gid);
            }
        }
        let state = |which: &str| {
            let qp = numbered(&dump, "qp", program.told(which));
            (qp["fields"]["state"].as_u64().unwrap(), qp["remark"].as_str().unwrap().to_owned())
        };
        assert!(matches!(state("in_init"), (1, remark) if remark.contains("INIT")));
        assert!(matches!(state("in_rtr"), (2, remark) if remark.contains("RTS")));
        let in_rtr = numbered(&dump, "qp", program.told("in_rtr"));
        assert_eq!(in_rtr["fields"]["remote_qpn"], program.told("qp"));
        assert_eq!(in_rtr["fields"]["next_rcv_psn"], program.told("psn"));
        // All of it is what the program itself can query.
        let number = program.told("in_rtr").to_string();
        let text = run(&["dump", "-p", &program.pid(), "-n", &number], 0).out;
        let context = program.told["in_rtr_context"].as_str().unwrap();
        assert!(text.contains(context), "{context}\n{text}");
        // Three messages, and their receives.
        let cqs = objects(&dump, "cq");
        assert_eq!(cqs.len(), 1, "{dump}");
        assert_eq!(cqs[0]["number"], fields["cqn_snd"]);
        assert_eq!(cqs[0]["fields"]["producer_counter"], 6);
        let keys = &objects(&dump, "mr")[0]["keys"];
        for key in ["address", "lkey", "rkey", "length"] {
            assert_eq!(keys[key], program.told[key], "{key}");
        }
        numbered(&dump, "pd", program.told("pd"));
    }
}

#[test]
fn a_queue_pair_that_refused_its_peer_tells_why() {
    let mut program = Program::start(&[]);
    program.send(0);
    let dump = run(&["dump", "--pid", &program.pid(), "--json"], 0).report();
    let qp = numbered(&dump, "qp", program.told("qp"));
    assert_eq!(qp["fields"]["state"], 6);
    let note = qp["note"].as_str().unwrap();
    assert!(note.starts_with("failed: IBV_WC_LOC_PROT_ERR (0x3a 0x0 0x93)"), "{note}");
    assert!(note.contains("a memory key that is gone"), "{note}");
    let text = run(&["dump", "-p", &program.pid(), "-k", "qp"], 0).out;
    assert!(text.contains(note), "{text}");
}

#[test]
fn what_was_made_by_command_is_found_by_its_number() {
    let program = Program::start(&[]);
    let number = program.told("commanded");
    let dump = |more: &[&str]| {
        let pid = program.pid();
        let arguments = [&["dump", "--json", "--pid", &pid], more].concat();
        run(&arguments, 0).report()
    };
    let commanded = numbered(&dump(&["-n", &format!("{number:#x}")]), "qp", number);
    assert_eq!(commanded["fields"]["state"], 0);
    assert_eq!(commanded["fields"]["log_sq_size"], 4);
    // By kind, and by kind and number.
    let qps = dump(&["--kind", "qp"]);
    assert_eq!(objects(&qps, "mr"), [Value::Null; 0]);
    assert!(objects(&qps, "qp").len() >= 3);
    let number = program.told("in_init");
    let one = dump(&["--kind", "qp,cq", "--number", &number.to_string()]);
    // Queue pairs and CQs have numbers of their own, which may be equal.
    let cqs = objects(&dump(&["--kind", "cq"]), "cq");
    let same = cqs.iter().filter(|cq| cq["number"] == number).count();
    assert_eq!((objects(&one, "qp").len(), objects(&one, "cq").len()), (1, same));
    // Looking changed nothing: the same again.
    assert_eq!(dump(&[]), dump(&[]));
}

#[test]
fn a_number_that_no_object_has_ends_with_status_3() {
    let program = Program::start(&[]);
    let pid = program.pid();
    let none = run(&["dump", "--pid", &pid, "--number", "0xabcdef"], 3);
    let why = "has no such object of number 0xabcdef; `mlx5 dump --pid";
    assert!(none.err.contains(why), "{}", none.err);
    assert!(!none.out.contains("process"), "{}", none.out);
    // Others are shown.
    let number = program.told("qp");
    let some = run(&["dump", "--json", "--pid", &pid, "-n", &format!("{number},0xabcdef")], 3);
    assert!(some.err.contains(why), "{}", some.err);
    numbered(&some.report(), "qp", number);
    // A kind that the object is not of.
    run(&["dump", "--pid", &pid, "-k", "mr", "-n", &number.to_string()], 3);
}

#[test]
fn watching_shows_what_moves_until_the_process_ends() {
    let mut program = Program::start(&[]);
    let (pid, number) = (program.pid(), format!("{:#x}", program.told("qp")));
    let mut watching =
        mlx5(&["dump", "--json", "-p", &pid, "-n", &number, "-k", "qp", "-w", "0.02"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let stream = serde_json::Deserializer::from_reader(watching.stdout.take().unwrap());
    let mut reports = stream.into_iter::<Value>().map(|value| value.unwrap()["report"].clone());
    let first = reports.next().unwrap();
    let before = numbered(&first, "qp", program.told("qp"))["fields"]["next_send_psn"].clone();
    assert_eq!(before, program.told("psn"));
    let after = (program.told("psn") + 5) & 0xff_ffff;
    program.send(5);
    let mut seen = before;
    while seen != after {
        for changed in reports.next().unwrap()["changed"].as_array().unwrap() {
            assert_eq!(changed["object"], format!("qp {number}"));
            let fields = changed["fields"].as_array().unwrap();
            if let Some(psn) = fields.iter().find(|field| field["name"] == "next_send_psn") {
                // Each change goes on from the one before.
                assert_eq!(psn["before"], seen);
                seen = psn["now"].clone();
            }
        }
    }
    drop(program);
    // Whatever is said meanwhile: it comes to an end, and that is none that went wrong.
    reports.for_each(drop);
    assert!(watching.wait().unwrap().success());
}

#[test]
fn a_program_of_others_is_looked_into_while_it_runs() {
    // The client finds the server's port as users do, by trying.
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let pingpong = |server: Option<&str>| {
        let mut arguments = vec!["-oL", "ibv_rc_pingpong", "-n", "100000000", "-p", &port];
        arguments.extend(server);
        let mut command = on_the_model("stdbuf", &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Killed(command.spawn().unwrap())
    };
    let mut server = pingpong(None);
    let mut told = BufReader::new(server.0.stdout.take().unwrap());
    let local = wait_for(&mut told, "local address:");
    let mut client = loop {
        let mut client = pingpong(Some("localhost"));
        let mut out = BufReader::new(client.0.stdout.take().unwrap());
        let mut text = String::new();
        while !text.contains("remote address:") && out.read_line(&mut text).unwrap() != 0 {}
        if text.contains("remote address:") {
            break client;
        }
        // Nobody listened yet.
        client.0.wait().unwrap();
    };
    let remote = wait_for(&mut told, "remote address:");
    let value = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("{name} 0x")).unwrap();
        u64::from_str_radix(rest.split(',').next().unwrap(), 16).unwrap()
    };
    let pid = server.0.id().to_string();
    let dump = run(&["dump", "--json", "-p", &pid], 0).report();
    assert_eq!(dump["process"], "ibv_rc_pingpong");
    let qp = numbered(&dump, "qp", value(&local, "QPN"));
    let fields = &qp["fields"];
    assert_eq!(fields["remote_qpn"], value(&remote, "QPN"));
    assert_eq!(fields["primary_address_path.rlid"], value(&remote, "LID"));
    // It has sent some messages of four packets each since it said its PSN.
    let sent = (fields["next_send_psn"].as_u64().unwrap() - value(&local, "PSN")) & 0xff_ffff;
    let got = (fields["next_rcv_psn"].as_u64().unwrap() - value(&remote, "PSN")) & 0xff_ffff;
    assert!(got.abs_diff(sent) <= 8, "{sent} {got}");
    // And it is listed, with its peer.
    let all = run(&["dump", "--json"], 0).report();
    let find = |pid: u32| {
        let processes = all["processes"].as_array().unwrap();
        processes.iter().find(|process| process["pid"] == pid).unwrap()["queue_pairs"][0].clone()
    };
    let (one, other) = (find(server.0.id()), find(client.0.id()));
    assert_eq!((&one["number"], &other["peer"]), (&qp["number"], &qp["number"]));
    assert_eq!(
        (&one["peer"], &one["kind"], &one["state"]),
        (&other["number"], &"RC".into(), &"RTS".into())
    );
    client.0.kill().unwrap();
}

#[test]
fn a_process_that_cannot_be_looked_into_is_told_with_the_reason() {
    let gone = run(&["dump", "--pid", "999999999"], 3).err;
    assert!(gone.contains("there is no such process"), "{gone}");
    let mut other = Killed(Command::new("cat").stdin(Stdio::piped()).spawn().unwrap());
    let text = run(&["dump", "--pid", &other.0.id().to_string()], 3).err;
    assert!(text.contains("has no RDMA device open"), "{text}");
    drop(other.0.stdin.take());
}

#[test]
fn the_report_has_its_shape() {
    let mut program = Program::start(&[]);
    program.send(2);
    let pid = program.pid();
    let qp = program.told("qp").to_string();
    let text = finish(&mut mlx5(&["dump", "-p", &pid, "-n", &qp]), 0).out;
    // Two lines name the model; the third the program, which is called after its build.
    let text = text.splitn(4, '\n').nth(3).unwrap();
    text_has_shape("dump", &without_digits(text));
    json_has_shape("dump", &run(&["dump", "--json", "-p", &pid, "-n", &qp], 0).report());
    let watched = run(&["dump", "-p", &pid, "-k", "mr,pd", "-w", "0.01", "--count", "1"], 0).out;
    let watched = watched.splitn(4, '\n').nth(3).unwrap();
    text_has_shape("dump-watch", &without_digits(watched));
}

/// Hexadecimal numbers as 0: what of them are digits, and so left out of a shape, is chance.
fn without_digits(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push('0');
        plain.push_str(part.trim_start_matches(|next: char| next.is_ascii_hexdigit()));
    }
    plain
}
