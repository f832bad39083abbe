//! Sources of the input, and bytes of a given kind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::Stdio;
use std::ptr;

use crate::rig::{Printed, mlx5, run};

/// Runs the command on this standard input.
fn piped(arguments: &[&str], input: &[u8], status: i32) -> Printed {
    let mut command = mlx5(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads all");
    let printed = Printed::from(child.wait_with_output().expect("it ends"));
    assert_eq!(printed.status, Some(status), "{arguments:?}\n{}{}", printed.out, printed.err);
    printed
}

#[test]
fn text_comes_from_standard_input_from_files_and_as_an_argument() {
    let line = "Failed status 12: wr_id 0 syndrom 0x81";
    let said = "1. a request failed: IBV_WC_RETRY_EXC_ERR";
    assert!(piped(&["decode"], line.as_bytes(), 0).out.starts_with(said));
    assert!(piped(&["decode", "-"], line.as_bytes(), 0).out.starts_with(said));
    assert!(run(&["decode", line], 0).out.starts_with(said));
    let file = std::env::temp_dir().join(format!("mlx5-decode-{}", std::process::id()));
    fs::write(&file, line).unwrap();
    assert!(run(&["decode", file.to_str().unwrap()], 0).out.starts_with(said));
    fs::remove_file(&file).unwrap();
    let missing = run(&["decode", file.to_str().unwrap()], 3);
    assert!(missing.err.contains("cannot read"), "{}", missing.err);
}

#[test]
fn where_nothing_is_found_it_is_said_what_could_be() {
    let nothing = piped(&["decode"], b"all is well\n", 1);
    for word in ["Nothing was found", "libmlx5", "DPDK", "UCX", "--kind"] {
        assert!(nothing.out.contains(word), "{word} in {}", nothing.out);
    }
    assert!(nothing.out.contains("1 line was read, none with a word"), "{}", nothing.out);
    let failing = piped(&["decode"], b"all is well\nthe disk has failed\n", 1);
    assert!(
        failing.out.contains("2 lines were read; words of failure are in: 2."),
        "{}",
        failing.out
    );
    let others =
        piped(&["decode"], b"a\nthe printer was not found\nkernel: panic of a pigeon\n", 1);
    assert!(others.out.contains("words of failure are in: 2, 3."), "{}", others.out);
    let json = piped(&["decode", "--json"], b"\xff\x00\xfe", 1).report();
    assert_eq!(json["records"].as_array().unwrap().len(), 0);
    assert!(!json["reads"].as_array().unwrap().is_empty());
    // Success CQEs, and words that are about something else.
    for text in ["remote access error in the VPN", "00000000 00000000 00000000 00000000\n"] {
        piped(&["decode"], text.as_bytes(), 1);
    }
}

#[test]
fn a_syndrome_of_the_model_has_the_models_sentence() {
    let code = run(&["decode", "0x5c0e05"], 0).out;
    assert!(code.contains("software ConnectX, refused: hairpins"), "{code}");
    let line = run(&["decode", "CREATE_RQ failed with syndrome 0x5c0e05"], 0).out;
    assert!(line.contains("refused: hairpins") && line.contains("CREATE_RQ"), "{line}");
}

const TIMEOUT: &str = "Failed status 12: wr_id 0 syndrom 0x81";

/// A folder for the files of one test.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("mlx5-decode-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn records_of_several_files_name_their_file_and_its_lines() {
    let folder = folder("files");
    let paths = ["a", "b"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    // The first file has no newline at its end.
    fs::write(&paths[0], TIMEOUT).unwrap();
    fs::write(&paths[1], format!("x\n{TIMEOUT}\n")).unwrap();
    let found = run(&["decode", &paths[0], &paths[1]], 0).out;
    assert!(found.contains(&format!("{}, line 1)", paths[0])), "{found}");
    assert!(found.contains(&format!("{}, line 2)", paths[1])), "{found}");
    let json = run(&["decode", "--json", &paths[0], &paths[1]], 0).report();
    assert_eq!(json["records"][1]["file"], paths[1].as_str());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bare_codes_are_looked_up() {
    let found = run(&["decode", "0x4bb88f"], 0).out;
    assert!(found.contains("RTR2RTS_QP"), "{found}");
    let found = run(&["decode", "12", "0x15"], 0).out;
    assert!(found.contains("IBV_WC_RETRY_EXC_ERR") && found.contains("syndrome 0x15"), "{found}");
    let unknown = run(&["decode", "0x123456"], 1).out;
    assert!(unknown.contains("No public source was found"), "{unknown}");
}

#[test]
fn a_summary_counts_errors_that_are_alike_by_host() {
    let mut log = String::new();
    for at in 0..9 {
        log += &format!("Nov 21 22:27:3{at} node{} app: {TIMEOUT}\nnoise\n", at % 2);
    }
    let found = piped(&["decode", "--summary"], log.as_bytes(), 0).out;
    for part in ["vendor code 0x81, 5 times", "4 times", "host node0; from line 1, Nov 21 22:27:30"]
    {
        assert!(found.contains(part), "{part} in {found}");
    }
    let json = piped(&["decode", "--summary", "--json"], log.as_bytes(), 0).report();
    assert_eq!(json["groups"].as_array().unwrap().len(), 2);
    assert_eq!(json["groups"][1]["times"], 4);
    piped(&["decode", "--summary"], b"all is well\n", 1);
}

#[test]
fn a_followed_input_is_decoded_before_it_ends() {
    let mut command = mlx5(&["decode", "--follow"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{TIMEOUT}").expect("it reads");
    let mut first = String::new();
    // The input stays open: a record can only come before its end.
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut first).expect("a line");
    assert!(first.starts_with("1. a request failed: IBV_WC_RETRY_EXC_ERR"), "{first}");
    drop(input);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the rest");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn the_last_line_of_a_dump_is_enough() {
    for tail in [
        "00000000 00008813 10012abe 0dd0c1d3",
        "[12.5] 00000030: 00 00 00 00 00 00 88 13 10 01 2a be 0d d0 c1 d3",
        // As a debugger shows the words on x86.
        "00000000 13880000 be2a0110 d3c1d00d",
    ] {
        let found = run(&["decode", tail], 0).out;
        assert!(found.contains("RDMA_READ of QP 0x12abe, WQE 0x0dd0, failed"), "{found}");
        assert!(found.contains("Only the last 16 bytes"), "{found}");
    }
}

#[test]
fn bytes_of_a_given_kind_are_shown_by_field() {
    // RDMA_WRITE, index 5, QP 0x77, 3 units, then the remote address and the data.
    let wqe = "00000508 00007703 00000008 00000000 00000000 00001000 00000099 00000000 \
               00000040 00000007 00000000 00002000";
    let found = piped(&["decode", "--kind", "wqe"], wqe.as_bytes(), 0).out;
    for part in [
        "RDMA_WRITE WQE 0x0005 QP 0x77 ds 3 signaled",
        "remote: 0x1000 rkey 0x99",
        "data: 0x2000, 64 bytes, lkey 0x7",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    // Binary is the same, and so are words as x86 loads them.
    let bytes: Vec<u8> = wqe
        .split_ascii_whitespace()
        .flat_map(|word| u32::from_str_radix(word, 16).unwrap().to_be_bytes())
        .collect();
    let same = |other: String| {
        other.lines().next().map(str::to_owned) == found.lines().next().map(str::to_owned)
    };
    assert!(same(piped(&["decode", "--kind", "wqe"], &bytes, 0).out));
    let turned: Vec<String> = bytes
        .chunks_exact(4)
        .map(|word| format!("{:08x}", u32::from_le_bytes(word.try_into().unwrap())))
        .collect();
    let turned = turned.join(" ");
    assert!(same(piped(&["decode", "--kind", "wqe", "--words", "le"], turned.as_bytes(), 0).out));
    // The transport says what stands between.
    let send = "00000a 0a 00007704 00000000 00000000 0000000100000002 80000042 00000000 ";
    let send = format!("{send}{}{}", "00".repeat(32), "0000004000000007 0000000000002000");
    let ud = piped(&["decode", "--kind", "wqe", "--transport", "ud"], send.as_bytes(), 0).out;
    assert!(ud.contains("address: QP or DCT 0x42"), "{ud}");

    let eqe = format!(
        "00 04 00 00{}0000002a{}00000001{}",
        "00".repeat(28),
        "00".repeat(4),
        "00".repeat(20)
    );
    let found = piped(&["decode", "--kind", "eqe"], eqe.as_bytes(), 0).out;
    assert!(found.contains("EQE CQ_ERROR owner 0 CQ 0x2a, overrun"), "{found}");
    let found = piped(&["decode", "--kind", "qp-dbr"], b"00001234 00000005", 0).out;
    assert!(found.contains("receive 0x1234, send 0x0005"), "{found}");
    let found = piped(&["decode", "--kind", "cq-dbr"], b"00000007 21000007", 0).out;
    assert!(found.contains("arm sequence 2 solicited"), "{found}");
}

#[test]
fn commands_replies_and_contexts_are_shown_by_field() {
    // QUERY_QP of 0x123, with a user context.
    let command =
        piped(&["decode", "--kind", "command"], b"050b0002 00000000 00000123 00000000", 0);
    assert!(command.out.contains("QUERY_QP (0x50b), 16 bytes"), "{}", command.out);
    assert!(command.out.contains("qpn  0x123") || command.out.contains("0x123"), "{}", command.out);
    let reply =
        piped(&["decode", "--kind", "reply"], b"03000000 005c0203 00000000 00000000", 0).out;
    for part in [
        "reply: BAD_PARAM_ERR",
        "MLX5_CMD_STAT_BAD_PARAM_ERR",
        "0x5c0203: The model, a software ConnectX, refused: buffers and doorbell records",
    ] {
        assert!(reply.contains(part), "{part} in {reply}");
    }
    let reply =
        piped(&["decode", "--kind", "reply:create_qp"], b"00000000 00000000 00000777 00000000", 0);
    assert!(reply.out.contains("qpn") && reply.out.contains("0x777"), "{}", reply.out);
    // A context by name: state 3, RC.
    let qpc = format!("30000000 00001234 {}", "00".repeat(224));
    let qpc = piped(&["decode", "--kind", "qpc", "--json"], qpc.as_bytes(), 0).report();
    let fields = qpc["records"][0]["fields"].as_array().unwrap();
    let field = |name: &str| fields.iter().find(|field| field["name"] == name).unwrap();
    assert_eq!(
        (&field("state")["value"], &field("state")["meaning"]),
        (&"3".into(), &"RTS".into())
    );
    assert_eq!(field("pd")["value"], "0x1234");
}

#[test]
fn a_kind_that_is_not_there_is_a_wrong_command_line_and_too_few_bytes_are_said() {
    assert!(run(&["decode", "--kind", "qp", "00"], 2).err.contains("is no kind"));
    let short = piped(&["decode", "--kind", "cqe"], b"00 01 02", 3);
    assert!(short.err.contains("64 bytes"), "{}", short.err);
    assert!(piped(&["decode", "--kind", "cqe"], b"", 3).err.contains("no hex"));
}

#[test]
fn the_table_has_every_code_with_its_source() {
    let json = run(&["decode", "--table", "--json"], 0).report();
    assert_eq!(json["statuses"].as_array().unwrap().len(), 13);
    let vendor = json["vendor_codes"].as_array().unwrap();
    assert!(vendor.len() >= 15);
    for entry in vendor
        .iter()
        .map(|entry| &entry["code"])
        .chain(json["hardware_syndromes"].as_array().unwrap())
        .chain(json["queue_numbers"].as_array().unwrap())
        .chain(json["command_syndromes"].as_array().unwrap())
    {
        let source = entry["source"].as_str().unwrap();
        let known = ["https://", "a public text whose address is not known: "];
        assert!(known.iter().any(|start| source.starts_with(start)), "{entry}");
    }
    for list in ["statuses", "command_statuses", "health"] {
        for entry in json[list].as_array().unwrap() {
            assert!(!entry["causes"].as_array().unwrap().is_empty(), "{entry}");
        }
    }
    let text = run(&["decode", "--table"], 0).out;
    assert!(text.contains("MLX5_CMD_STAT_BAD_OUTP_LEN_ERR") && text.contains("HIGH_TEMP_ERR"));
    assert!(text.contains("hardware syndrome 1/0x60") && text.contains("(0x41 0x0 0x0)"));
}

#[test]
fn lines_end_at_the_width_of_the_terminal() {
    for columns in [60, 130] {
        let (mut ours, mut theirs) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the call takes no name and no settings, and fills the two descriptors.
        let failed =
            unsafe { libc::openpty(&mut ours, &mut theirs, ptr::null_mut(), ptr::null(), &size) };
        assert_eq!(failed, 0);
        // SAFETY: nothing else has the descriptors.
        let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let mut command = mlx5(&[
            "decode",
            "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        ]);
        command.stdin(Stdio::null()).stdout(theirs);
        let mut child = command.spawn().expect("the command starts");
        drop(command);
        let mut printed = Vec::new();
        // Reading fails when the last process has closed the terminal.
        let _ = fs::File::from(ours).read_to_end(&mut printed);
        assert!(child.wait().expect("it ends").success());
        let printed = String::from_utf8(printed).expect("text");
        // Addresses are not broken.
        let lengths = printed.lines().filter(|line| !line.contains("https://"));
        let longest = lengths.map(|line| line.chars().count()).max();
        let nearly = usize::from(columns) - 20..=usize::from(columns);
        assert!(longest.is_some_and(|longest| nearly.contains(&longest)), "{longest:?}\n{printed}");
    }
}

#[test]
fn help_says_when_one_uses_it() {
    let help = run(&["decode", "--help"], 0).out;
    for word in ["dmesg | mlx5 decode", "--kind", "--transport", "--table", "libmlx5", "NCCL"] {
        assert!(help.contains(word), "{word} in {help}");
    }
}
