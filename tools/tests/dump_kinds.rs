//! `mlx5 dump` of all queue kinds, of queues without a queue pair, and of forbidden queries.

mod rig;

use std::process::{Command, Stdio};

use mlx5::connect::LocalPort;
use mlx5::devx::{self, CommandTarget};
use mlx5::ib::{Dct, Rc, Ud, XrcSend};
use mlx5::ring::CqReader;
use mlx5::verbs::attr::DctRtrAttributes;
use mlx5::verbs::{
    CompletionQueue, Pages, ProtectionDomain, QueuePair, QueuePairBuilder, SharedReceiveQueue,
    XrcDomain,
};
use mlx5_model as _;
use rig::looked_into::{Killed, PROGRAM, Program, numbered, objects, open};
use rig::{finish, mlx5, run};
use serde_json::{Map, Value, json};

/// The program: queues of each kind, and a shared receive queue and CQs that no queue pair uses. Says
/// their numbers, with their contexts where the card may be asked; then waits for its input's end.
#[test]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let context = open();
    let commands = context.devx() == mlx5::verbs::Devx::Open;
    let pd = ProtectionDomain::new(&context).unwrap();
    let made = |entries| CompletionQueue::new(&context, entries).unwrap();
    let (cq, xrc_cq, target_cq, lone_cq) = (made(64), made(128), made(256), made(512));
    let domain = XrcDomain::new(&context).unwrap();
    let shared = |wqes| SharedReceiveQueue::builder(&pd).max_wr(wqes);
    let srq = shared(31).build().unwrap();
    let lone_srq = shared(63).build().unwrap();
    let target_srq = shared(127).build().unwrap();
    let xrc_srq = shared(255).xrc(&domain, &xrc_cq).build().unwrap();
    let rc = QueuePair::<Rc, _>::builder(&pd, &cq).shared_receive_queue(&srq).build().unwrap();
    let ud = mlx5::verbs::QueuePairBuilder::<Ud>::new(&pd, &cq).max_send_wr(8).build().unwrap();
    let xrc = mlx5::verbs::QueuePairBuilder::<XrcSend>::new(&pd, &cq).build().unwrap();
    let xrc_target = QueuePair::target(&domain).unwrap();
    let port = LocalPort::new(&context, 1, None).unwrap();
    let to_itself = port.address(&port.connection_data_of(0));
    let dct: QueuePair<Dct, _> =
        QueuePair::dc_target(&pd, &target_cq, &target_srq, 0x1234).build().unwrap();
    let dct = dct.init(&port.init()).unwrap().rtr(&DctRtrAttributes::new(to_itself)).unwrap();

    let mut told = Map::new();
    let mut say =
        |name: &str, number: u32, object: &dyn Fn() -> mlx5::Result<devx::ObjectContext>| {
            let context = commands.then(|| object().unwrap().to_string());
            told.insert(name.to_owned(), json!({ "number": number, "context": context }));
        };
    let cqn = |cq: &CompletionQueue| CqReader::new(cq).unwrap().cqn();
    say("cq", cqn(&cq), &|| cq.object_context());
    say("target_cq", cqn(&target_cq), &|| target_cq.object_context());
    say("lone_cq", cqn(&lone_cq), &|| lone_cq.object_context());
    say("srq", srq.number().unwrap(), &|| srq.object_context());
    say("target_srq", target_srq.number().unwrap(), &|| target_srq.object_context());
    say("lone_srq", lone_srq.number().unwrap(), &|| lone_srq.object_context());
    say("xrc_srq", xrc_srq.number().unwrap(), &|| xrc_srq.object_context());
    say("rc", rc.number(), &|| rc.object_context());
    say("ud", ud.number(), &|| ud.object_context());
    say("xrc", xrc.number(), &|| xrc.object_context());
    say("dct", dct.number(), &|| dct.object_context());
    let commanded = commands.then(|| {
        let umem = devx::Umem::new(&context, Pages::new(1 << 16).unwrap()).unwrap();
        let uar = devx::Uar::first_of(&context, &devx::UarKind::ALL).unwrap().uar;
        let cq = CompletionQueue::by_command(&context, 64).uar(&uar).record(&umem, 0);
        let cq = cq.ring(&umem, 1 << 12).build().unwrap();
        let qp = QueuePairBuilder::<Ud, _>::by_command(&pd, &cq).max_send_wr(16).uar(&uar);
        let qp = qp.record(&umem, 64).ring(&umem, 1 << 15).build().unwrap();
        say("commanded_cq", cq.number(), &|| cq.object().object_context());
        say("commanded_qp", qp.number(), &|| qp.object().object_context());
        (cq, qp)
    });
    println!("\ntold {}", Value::from(told));
    for line in std::io::stdin().lines() {
        line.unwrap();
    }
    drop((lone_cq, lone_srq, xrc_srq, rc, ud, xrc, xrc_target, dct, commanded));
}

fn number(program: &Program, name: &str) -> u64 {
    program.told[name]["number"].as_u64().unwrap()
}

fn has_pid(holder: &Value, pid: &str) -> bool {
    holder["pid"].as_u64() == pid.parse().ok()
}

#[test]
fn queues_of_every_kind_show_what_the_program_itself_is_told() {
    for link in ["infiniband", "roce"] {
        let program = Program::start(&[("MLX5_MODEL_LINK", link)]);
        let kinds = [
            ("qp", "rc", "qpc"),
            ("qp", "ud", "qpc"),
            ("qp", "xrc", "qpc"),
            ("qp", "commanded_qp", "qpc"),
            ("dct", "dct", "dctc"),
            ("cq", "cq", "cqc"),
            ("cq", "lone_cq", "cqc"),
            ("cq", "commanded_cq", "cqc"),
            ("srq", "srq", "rmpc"),
            ("srq", "lone_srq", "rmpc"),
            ("srq", "xrc_srq", "xrc_srqc"),
        ];
        let numbers = kinds.map(|(_, name, _)| number(&program, name).to_string()).join(",");
        let shown = run(&["dump", "--pid", &program.pid(), "--number", &numbers], 0).out;
        for (kind, name, layout) in kinds {
            let context = program.told[name]["context"].as_str().unwrap();
            assert!(context.starts_with(layout), "{name}: {context}");
            assert!(shown.contains(context), "{name}: {context}\n{shown}");
            assert!(shown.contains(&format!("{kind} {:#x}, handle", number(&program, name))));
        }
    }
}

#[test]
fn queues_that_a_shown_one_uses_are_found_and_others_are_said_to_be_there() {
    let program = Program::start(&[]);
    let dump = |more: &[&str]| {
        let pid = program.pid();
        run(&[&["dump", "--json", "--pid", &pid], more].concat(), 0).report()
    };
    let all = dump(&[]);
    let rc = numbered(&all, "qp", number(&program, "rc"));
    assert_eq!(rc["fields"]["cqn_rcv"], number(&program, "cq"));
    assert_eq!(rc["fields"]["srqn_rmpn_xrqn"], number(&program, "srq"));
    numbered(&all, "cq", number(&program, "cq"));
    let srq = numbered(&all, "srq", number(&program, "srq"));
    assert_eq!(srq["remark"], Value::Null);
    for name in ["ud", "xrc"] {
        numbered(&all, "qp", number(&program, name));
    }
    // The kernel made the end of an extended reliable connection that answers in its own name, so that
    // the card tells programs nothing of it, though its number is told.
    let nameless: Vec<Value> =
        objects(&all, "qp").into_iter().filter(|qp| qp["number"].is_null()).collect();
    let [answering] = &nameless[..] else { panic!("{nameless:?}") };
    assert!(answering["remark"].as_str().unwrap().contains("XRC"), "{answering}");
    // Those that nothing leads to have handles, and it is said how they are to be found.
    let nameless: Vec<Value> =
        objects(&all, "srq").into_iter().filter(|srq| srq["number"].is_null()).collect();
    assert!(nameless.len() >= 2, "{all}");
    for srq in &nameless {
        let remark = srq["remark"].as_str().unwrap();
        assert!(remark.contains("--number"), "{remark}");
        assert_eq!(srq["fields"], Value::Null);
    }
    let remarks = all["remarks"].to_string();
    assert!(remarks.contains("nobody tells what"), "{remarks}");
    assert!(remarks.contains("by --number"), "{remarks}");
    // Each handle is reported once: as an object, or as one that cannot be identified.
    let cq = numbered(
        &dump(&["-n", &number(&program, "lone_cq").to_string()]),
        "cq",
        number(&program, "lone_cq"),
    );
    assert_eq!(cq["fields"]["log_cq_size"], 10);
    let handle = cq["handle"].as_u64().unwrap();
    let handles = remarks.split(": ").nth(2).unwrap().split('.').next().unwrap();
    let within = handles.split(", ").any(|range| {
        let mut ends = range.split('-').map(|end| end.trim().parse::<u64>().unwrap());
        let first = ends.next().unwrap();
        (first..=ends.next().unwrap_or(first)).contains(&handle)
    });
    assert!(within, "{handle} in {handles}");
    // Nobody asked for queues.
    let rc = number(&program, "rc").to_string();
    for more in [["-k", "pd"], ["-n", &rc]] {
        assert_eq!(dump(&more)["remarks"], json!([]));
    }
    // A target's number is not told; it leads to its CQ and its receives, too.
    assert!(objects(&all, "dct").is_empty(), "{all}");
    let (dct, cq, srq) =
        (number(&program, "dct"), number(&program, "target_cq"), number(&program, "target_srq"));
    let target = dump(&["-n", &format!("{dct},{cq:#x},{srq}")]);
    let fields = &numbered(&target, "dct", dct)["fields"];
    assert_eq!((&fields["cqn"], &fields["srqn_xrqn"]), (&cq.into(), &srq.into()));
    assert_eq!(fields["dc_access_key"], 0x1234);
    numbered(&target, "cq", cq);
    numbered(&target, "srq", srq);
}

#[test]
fn without_devx_the_cure_is_told_and_what_the_kernel_knows_is_shown() {
    let program = Program::start(&[("MLX5_MODEL_DEVX", "refused")]);
    assert_eq!(program.told["rc"]["context"], Value::Null);
    let text = run(&["dump", "--pid", &program.pid()], 0).out;
    for part in ["opened the device without DevX", "rdma-core 29", "mlx5 info", "without --pid"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // It is of no use to give numbers.
    assert!(!text.contains("--number"), "{text}");
    let dump = run(&["dump", "--json", "--pid", &program.pid()], 0).report();
    assert!(objects(&dump, "qp").len() >= 3, "{dump}");
    assert_eq!(objects(&dump, "srq").len(), 4, "{dump}");
    assert_eq!(objects(&dump, "pd").len(), 1, "{dump}");
    // The kernel's own account has the queue pairs.
    let all = run(&["dump", "--json"], 0).report();
    let holders = all["processes"].as_array().unwrap();
    let own = holders.iter().find(|holder| has_pid(holder, &program.pid())).unwrap();
    let rc = number(&program, "rc");
    assert!(own["queue_pairs"].as_array().unwrap().iter().any(|qp| qp["number"] == rc), "{own}");
}

#[test]
fn the_process_of_another_user_is_not_looked_into_and_the_cure_is_told() {
    // SAFETY: always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    let looked = if root {
        // If the user is root, the command runs as the unprivileged user 65534.
        let program = Program::start(&[]);
        let mut as_nobody = Command::new("setpriv");
        as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        as_nobody.arg(env!("CARGO_BIN_EXE_mlx5")).args(["dump", "--pid", &program.pid()]);
        finish(as_nobody.env("MLX5_MODEL", "always"), 3)
    } else {
        run(&["dump", "--pid", "1"], 3)
    };
    for part in ["this user may not trace the process", "be its user or root", "CAP_SYS_PTRACE"] {
        assert!(looked.err.contains(part), "{part} in {}", looked.err);
    }
}

#[test]
fn a_process_that_has_only_what_looks_like_a_device_is_not_listed() {
    // What stands for devices on the model, but this program is not on the model.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let other = Killed(Command::new("cat").stdin(Stdio::piped()).stderr(full).spawn().unwrap());
    let program = Program::start(&[]);
    let all = run(&["dump", "--json"], 0).report();
    let listed =
        |pid: &str| all["processes"].as_array().unwrap().iter().any(|holder| has_pid(holder, pid));
    assert!(listed(&program.pid()), "{all}");
    let pid = other.0.id().to_string();
    assert!(!listed(&pid), "{all}");
    let text = finish(&mut mlx5(&["dump", "--pid", &pid]), 3).err;
    assert!(text.contains("has no RDMA device open"), "{text}");
}

#[test]
fn a_process_that_has_ended_is_gone_for_the_command_too() {
    let program = Program::start(&[]);
    let pid = program.pid();
    run(&["dump", "--pid", &pid], 0);
    drop(program);
    let gone = run(&["dump", "--pid", &pid], 3).err;
    assert!(gone.contains("there is no such process"), "{gone}");
}
