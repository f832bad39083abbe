use super::*;

const FILE: &str = "\
format = 1

[device]
bed = \"device\"
product = \"ConnectX-6 Dx\"
part = 4125
firmware = \"22.41.1000\"
link = \"Ethernet\"

[system]
distribution = \"debian 13\"
kernel = \"6.12.41\"
rdma-core = \"56.1\"
mlx5 = \"0.1.0\"

[[answer]]
question = \"cqe.local-key\"
fact = \"E036\"
unit = \"bytes\"
seen = [\"93005204d2\", \"93005204d2\"]

[[answer]]
question = \"time.dead-peer\"
fact = \"E072\"
unit = \"us\"
seen = [9000000]

[[unanswered]]
question = \"doorbell.late\"
why = \"not applicable\"
";

fn parse(text: &str) -> Result<Seen, String> {
    Seen::parse(text.as_bytes(), &Expectations::read())
}

/// An empty folder of one test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("mlx5-seen-{test}-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    folder
}

#[test]
fn a_file_is_written_as_it_was_read() {
    let seen = parse(FILE).expect("a file");
    assert_eq!(seen.device.part, Some(4125));
    assert_eq!(seen.answers[0].seen.trials(), 2);
    assert_eq!(seen.unanswered[0].why, Why::NotApplicable);
    assert_eq!(seen.to_string(), FILE);
}

#[test]
fn answers_are_judged_by_the_table_of_questions() {
    let expectations = Expectations::read();
    let seen = parse(FILE).expect("a file");
    let judged = seen.judged(&expectations);
    let judged: Vec<_> = judged.map(|(answer, _, judgement)| (&*answer.fact, judgement)).collect();
    assert_eq!(judged, [("E036", Judgement::Agrees), ("E072", Judgement::Contradicts)]);
}

#[test]
fn what_is_no_such_file_is_refused_with_its_reason() {
    let answer = "\n[[answer]]\nquestion = \"cqe.local-key\"\nfact = \"E036\"\nunit = \"bytes\"\n";
    let twice = format!("{FILE}{answer}seen = [\"00\"]\n");
    let many: String = (0..600).map(|_| format!("{answer}seen = [\"00\"]\n")).collect();
    let trials = format!("seen = [{}]", "0, ".repeat(65));
    for (file, words) in [
        (String::new(), "no format"),
        ("format = 2\nwhat = 1".to_owned(), "format 2"),
        ("format = -1".to_owned(), "`-1`"),
        ("\nformat =".to_owned(), "line 2"),
        (FILE.replace("kernel", "host"), "unknown field `host`"),
        (FILE.replace("\"device\"", "\"toaster\""), "unknown variant `toaster`"),
        (FILE.replace("debian 13", "debian | 13"), "distribution: at most"),
        (FILE.replace("debian 13", &"d".repeat(65)), "distribution: at most"),
        (FILE.replace("ConnectX-6 Dx", "<b>"), "product: at most"),
        (FILE.replace("cqe.local-key", "cqe.own-idea"), "cqe.own-idea is not one of"),
        (FILE.replace("E036", "E999"), "asks about E036, not about E999"),
        (FILE.replace("\"Ethernet\"", "\"InfiniBand\""), "asks about F003"),
        (twice, "cqe.local-key is there twice"),
        (format!("{FILE}{many}"), "more than 512 questions"),
        (FILE.replace("\"us\"", "\"kHz\""), "time.dead-peer is answered in us, not in kHz"),
        (FILE.replace("seen = [9000000]", "seen = []"), "0 trials"),
        (FILE.replace("seen = [9000000]", &trials), "65 trials"),
        (FILE.replace("seen = [9000000]", "seen = [-1]"), "Values"),
        (FILE.replace("seen = [9000000]", "seen = [\"00\"]"), "not numbers"),
        (FILE.replace("\"93005204d2\",", "\"9\","), "not bytes"),
        (FILE.replace("\"93005204d2\",", "\"XX\","), "not bytes"),
        (format!("{FILE}{}", "#".repeat(LARGEST as usize)), "longer than"),
        (format!("format = {}1", "[".repeat(20_000)), ""),
    ] {
        let error = parse(&file).expect_err(words);
        assert!(error.contains(words), "{words}: {error}");
    }
    // Whatever a stranger writes, a terminal only shows it.
    let error = parse(&format!("{FILE}\"\\u001b[31m\\u202e\" = 1\n")).expect_err("a key");
    assert!(error.contains("unknown field `[31m`"), "{error}");
    let error = Seen::parse(b"format = 1 # \xff", &Expectations::read()).expect_err("no text");
    assert!(error.contains("not a text"), "{error}");
}

#[test]
fn no_change_of_a_byte_ends_the_reader() {
    let expectations = Expectations::read();
    for at in 0..FILE.len() {
        // However it ends, it ends.
        let _ = Seen::parse(&FILE.as_bytes()[..at], &expectations);
        for byte in [0, b'"', b'['] {
            let mut bytes = FILE.as_bytes().to_vec();
            bytes[at] = byte;
            let _ = Seen::parse(&bytes, &expectations);
        }
    }
}

#[test]
fn a_file_is_taken_with_its_source_and_beside_others() {
    let expectations = Expectations::read();
    let folder = folder("taken");
    let sent = folder.join("sent.toml");
    let other = FILE.replace("debian 13", "debian 12");
    let names = [FILE, &other].map(|file| {
        fs::write(&sent, file).expect("a file");
        let merge = |source| Seen::merge(&folder, &sent, source, &expectations);
        let path = merge("issue 7 of this project").expect("a new file");
        let again = merge("issue 8 of this project").expect_err("taken before");
        assert!(
            again.ends_with("these answers are there, from issue 7 of this project"),
            "{again}"
        );
        path.file_name().expect("a name").to_string_lossy().into_owned()
    });
    let name = "connectx-6-dx-22.41.1000-ethernet";
    assert_eq!(names, [format!("{name}_1.toml"), format!("{name}_2.toml")]);
    let all = Seen::all(&folder, &expectations).expect("the ledger's files");
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].source.as_deref(), Some("issue 7 of this project"));
    assert_eq!(all[0].answers, parse(FILE).expect("a file").answers);
    fs::remove_dir_all(&folder).expect("the folder");
}

#[test]
fn answers_of_the_model_and_answers_without_a_source_are_not_taken() {
    let expectations = Expectations::read();
    let folder = folder("refused");
    let sent = folder.join("sent.toml");
    let (head, _) = FILE.split_once("[[answer]]").expect("answers");
    let device =
        &head[head.find("bed").expect("a device")..head.find("[system]").expect("a system")];
    let peer = device.replace("\"device\"", "\"model\"");
    for (file, source, words) in [
        (head.to_owned(), "somewhere", "no answer"),
        (FILE.replace("[system]", &format!("[peer]\n{peer}[system]")), "somewhere", "of the model"),
        (FILE.replace("\"device\"", "\"model\""), "somewhere", "of the model"),
        (FILE.replace("\"device\"", "\"guest\""), "somewhere", "of the model"),
        (FILE.to_owned(), " ", "needs a source"),
        (FILE.to_owned(), "a\nb", "source: at most"),
    ] {
        fs::write(&sent, file).expect("a file");
        let error = Seen::merge(&folder, &sent, source, &expectations).expect_err(words);
        assert!(error.contains(words), "{words}: {error}");
    }
    let error = Seen::read(&folder, &expectations).expect_err("a folder");
    assert!(error.contains("not a regular file"), "{error}");
    assert!(!folder.join(FOLDER).exists());
    assert_eq!(Seen::all(&folder, &expectations), Ok(Vec::new()));
    fs::remove_dir_all(&folder).expect("the folder");
}
