use super::*;

fn parse(text: &str) -> Result<Options, BadOption> {
    Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn options_are_read() {
    let options = parse("--function a --link roce --function b --log all").unwrap();
    assert_eq!(options.sockets, [PathBuf::from("a"), PathBuf::from("b")]);
    assert_eq!((options.link, options.log), (Link::Roce, Log::All));
    assert_eq!(options.profile, Profile::Complete);
    let options = parse("--function a --profile cx6dx --link roce").unwrap();
    assert_eq!(options.profile, Profile::ConnectX6Dx);
}

#[test]
fn mistakes_are_named() {
    assert_eq!(parse("").unwrap_err(), BadOption::Functions(0));
    assert_eq!(parse(&"--function a ".repeat(17)).unwrap_err(), BadOption::Functions(17));
    assert_eq!(parse("--function").unwrap_err(), BadOption::NoValue("--function".into()));
    assert_eq!(parse("--verbose").unwrap_err(), BadOption::Unknown("--verbose".into()));
    let wrong = BadOption::Value("--profile".into(), "cx4".into());
    assert_eq!(parse("--profile cx4").unwrap_err(), wrong);
    assert_eq!(parse("--function a --profile cx6dx").unwrap_err(), BadOption::Link("cx6dx"));
    let wrong = BadOption::Value("--link".into(), "token-ring".into());
    assert_eq!(parse("--link token-ring").unwrap_err(), wrong);
}
