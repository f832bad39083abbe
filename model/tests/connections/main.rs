//! Programs that connect by librdmacm, unmodified, each as server and client in two processes.
//!
//! [`channel`] writes commands to the event channel itself, without librdmacm.

use mlx5_model as _;

mod channel;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::process::Command;

use support::process::{Output, Process};
use support::role::play;
use support::sockets::{sockets, wait, wait_for_service};
use support::{LIMIT, Model, port, turn};

#[test]
fn role() {
    play(&[("closed", channel::closed), ("forked", channel::forked)]);
}

const LINKS: [Model; 2] = [Model { roce: false, mode: None }, Model { roce: true, mode: None }];

fn start(model: Model, name: &str, arguments: &[&str], port: &str) -> Process {
    let (program, rest) = arguments.split_first().expect("a program");
    let mut command: Command = model.command(program);
    command.args(rest.iter().map(|argument| if *argument == "PORT" { port } else { argument }));
    Process::start(&format!("{program} ({name})"), command)
}

/// Runs a server and, once it listens, a client. `PORT` in their arguments stands for a port.
/// Returns the output of both, server first.
fn pair(model: Model, server: &[&str], client: &[&str]) -> (Output, Output) {
    let _turn = turn();
    let port = port::free();
    let mut server = start(model, "server", server, &port);
    wait_for_service(&port, &mut server);
    let client = start(model, "client", client, &port).finish(LIMIT);
    (server.finish(LIMIT), client)
}

#[track_caller]
fn succeed(server: &[&str], client: &[&str]) {
    for model in LINKS {
        let (server, client) = pair(model, server, client);
        server.assert_success();
        client.assert_success();
    }
}

#[test]
fn rping_sees_its_data() {
    for address in ["127.0.0.1", "::1", "198.18.0.1"] {
        let model = LINKS[1];
        let server = ["rping", "-s", "-C", "10", "-v", "-a", address, "-p", "PORT"];
        let client = ["rping", "-c", "-C", "10", "-v", "-V", "-a", address, "-p", "PORT"];
        let (server, client) = pair(model, &server, &client);
        for side in [server.assert_rping_success(), client.assert_rping_success()] {
            let pings = side.stdout.matches("ping data: rdma-ping-").count();
            assert_eq!(pings, 10, "{side}");
        }
    }
    for model in LINKS {
        let server = ["rping", "-s", "-C", "3", "-p", "PORT"];
        let client = ["rping", "-c", "-V", "-C", "3", "-a", "127.0.0.1", "-p", "PORT"];
        let (server, client) = pair(model, &server, &client);
        server.assert_rping_success();
        client.assert_rping_success();
    }
}

#[test]
fn ucmatose_connects_and_disconnects() {
    for model in LINKS {
        let server = ["ucmatose", "-p", "PORT", "-c", "20", "-C", "5"];
        let client = ["ucmatose", "-s", "127.0.0.1", "-p", "PORT", "-c", "20", "-C", "5"];
        let (server, client) = pair(model, &server, &client);
        for side in [server.assert_success(), client.assert_success()] {
            assert!(side.stdout.contains("data transfers complete"), "{side}");
            assert!(side.stdout.contains("return status 0"), "{side}");
        }
        // The side that disconnects says so.
        assert!(server.stdout.contains("disconnected"), "{server}");
    }
}

#[test]
fn udaddy_looks_up_a_datagram_service() {
    /// The port that the program has built in.
    const PORT: &str = "7174";
    for model in LINKS {
        let _turn = turn();
        let mut server = start(model, "server", &["udaddy", "-c", "4"], PORT);
        wait_for_service(PORT, &mut server);
        let client = ["udaddy", "-s", "127.0.0.1", "-c", "4"];
        let client = start(model, "client", &client, PORT).finish(LIMIT);
        for side in [server.finish(LIMIT).assert_success(), client.assert_success()] {
            assert!(side.stdout.contains("data transfers complete"), "{side}");
            assert!(side.stdout.contains("return status 0"), "{side}");
        }
    }
}

/// Returns once a process hears multicast messages: it listens under a name below `all/`.
fn wait_for_group(receiver: &mut Process) {
    let folder = format!("/proc/{}/fd", receiver.id());
    wait(receiver, || {
        let listeners: Vec<String> =
            sockets().into_iter().filter(|line| line.contains("/all/")).collect();
        let inode = |line: &String| line.split_whitespace().nth(6).map(str::to_owned);
        let listeners: Vec<String> = listeners.iter().filter_map(inode).collect();
        fs::read_dir(&folder).into_iter().flatten().flatten().any(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            listeners.iter().any(|inode| target == format!("socket:[{inode}]"))
        })
    });
}

#[test]
fn mckey_reaches_two_receivers() {
    for model in LINKS {
        let _turn = turn();
        let group = ["mckey", "-m", "239.1.2.3", "-b", "127.0.0.1", "-C", "5"];
        let mut receivers: Vec<Process> =
            (0..2).map(|_| start(model, "receiver", &group, "")).collect();
        receivers.iter_mut().for_each(wait_for_group);
        let sender = start(model, "sender", &[&group[..], &["-s"]].concat(), "").finish(LIMIT);
        sender.assert_success();
        for receiver in receivers {
            let output = receiver.finish(LIMIT);
            output.assert_success();
            assert!(output.stdout.contains("data transfers complete"), "{output}");
        }
    }
}

#[test]
fn rdma_server_serves_rdma_client() {
    for model in LINKS {
        let server = ["rdma_server", "-p", "PORT"];
        let client = ["rdma_client", "-s", "127.0.0.1", "-p", "PORT"];
        let (server, client) = pair(model, &server, &client);
        assert!(server.assert_success().stdout.contains("rdma_server: end 0"), "{server}");
        assert!(client.assert_success().stdout.contains("rdma_client: end 0"), "{client}");
    }
}

#[test]
fn rdma_xserver_serves_every_kind_of_connection() {
    for kind in ["r", "x"] {
        succeed(
            &["rdma_xserver", "-p", "PORT", "-c", kind],
            &["rdma_xclient", "-s", "127.0.0.1", "-p", "PORT", "-c", kind],
        );
    }
}

/// Since rdma-core 59, both sides meet at a TCP port first, and both end. Before, the server ends or, in the
/// oldest versions, runs until it is killed.
#[test]
fn cmtime_makes_many_connections() {
    let usage = Command::new("cmtime").arg("-h").output().expect("cmtime is there");
    let meets = String::from_utf8_lossy(&usage.stdout).contains("controller_address");
    let (server, client) = if meets {
        let both = ["cmtime", "-b", "127.0.0.1", "-C", "127.0.0.1", "-p", "PORT", "-c", "100"];
        ([&both[..], &["-L"]].concat(), both.to_vec())
    } else {
        let both = ["cmtime", "-p", "PORT", "-c", "100"];
        (both.to_vec(), [&both[..], &["-s", "127.0.0.1"]].concat())
    };
    for model in LINKS {
        let _turn = turn();
        let port = port::free();
        let mut server = start(model, "server", &server, &port);
        if meets {
            server.wait_until_it_listens(&port, LIMIT);
        } else {
            wait_for_service(&port, &mut server);
        }
        let client = start(model, "client", &client, &port).finish(LIMIT);
        let steps = ["connect ", "disconnect ", "destroy "];
        assert!(steps.iter().all(|step| client.stdout.contains(step)), "{client}");
        client.assert_success();
        if meets || server.has_ended() {
            server.finish(LIMIT).assert_success();
        }
    }
}

#[test]
fn streams_of_rsockets() {
    for program in ["rstream", "riostream"] {
        succeed(
            &[program, "-p", "PORT", "-S", "65536", "-C", "20"],
            &[program, "-s", "127.0.0.1", "-p", "PORT", "-S", "65536", "-C", "20"],
        );
    }
}

#[test]
fn fi_pingpong_uses_verbs() {
    for model in LINKS {
        let _turn = turn();
        let port = port::free();
        let common = ["fi_pingpong", "-p", "verbs", "-e", "msg", "-I", "50", "-S", "1024"];
        let server = [&common[..], &["-B", "PORT"]].concat();
        let mut server = start(model, "server", &server, &port);
        server.wait_until_it_listens(&port, LIMIT);
        let client = [&common[..], &["-P", "PORT", "127.0.0.1"]].concat();
        let client = start(model, "client", &client, &port).finish(LIMIT);
        client.assert_success();
        server.finish(LIMIT).assert_success();
    }
}

/// Datagrams by rsockets, whose address handles have a LID alone: they need InfiniBand. The server
/// takes the first address of its host unless it is given one, and runs until it is killed.
///
/// Each datagram is echoed, and sent again until it is. Without echoes, the result is a count at the
/// time when the server gets the last datagram. Others may arrive later: until the client's service
/// thread has an address handle, rsockets sends by UDP, and the server's service thread forwards.
#[test]
fn udpong_echoes_datagrams_on_infiniband() {
    let (_turn, model) = (turn(), LINKS[0]);
    let port = port::free();
    let end = format!(":{:04X} ", port.number());
    let mut server = start(model, "server", &["udpong", "-b", "127.0.0.1", "-p", "PORT"], &port);
    wait(&mut server, || fs::read_to_string("/proc/net/udp").is_ok_and(|list| list.contains(&end)));
    let client = ["udpong", "-s", "127.0.0.1", "-p", "PORT", "-C", "10", "-S", "64", "-T", "e"];
    let client = start(model, "client", &client, &port).finish(LIMIT);
    // Each echo counts as two transfers.
    assert!(client.assert_success().stdout.contains("custom    64      20"), "{client}");
    assert!(!server.has_ended());
}

/// UCX's connection manager, which passes the addresses of its transports in private data. The
/// server runs until it is killed.
#[test]
fn io_demo_of_ucx_connects_by_rdmacm() {
    for model in LINKS {
        let _turn = turn();
        let port = port::free();
        let side = |name: &str, arguments: &[&str]| {
            let mut command = model.command("io_demo");
            command.args(["-p", &port]).args(arguments);
            command.env("UCX_TLS", "rc").env("UCX_NET_DEVICES", "mlx5_0:1");
            command.env("UCX_SOCKADDR_TLS_PRIORITY", "rdmacm");
            Process::start(&format!("io_demo ({name})"), command)
        };
        let mut server = side("server", &[]);
        wait_for_service(&port, &mut server);
        let client = ["-i", "20", "-o", "read,write", "127.0.0.1"];
        let client = side("client", &client).finish(LIMIT);
        client.assert_success();
        let text = format!("{client}");
        assert!(text.contains("Client exit with status 'OK'"), "{client}");
        assert!(!server.has_ended());
    }
}

#[test]
fn connection_that_cannot_be_made_says_why() {
    for model in LINKS {
        let port = port::free();
        for (address, why) in [
            ("127.0.0.1", "RDMA_CM_EVENT_REJECTED, error 8"),
            ("192.0.2.77", "RDMA_CM_EVENT_ADDR_ERROR, error -19"),
        ] {
            let client = ["rping", "-c", "-a", address, "-p", "PORT"];
            let client = start(model, "client", &client, &port).finish(LIMIT);
            assert!(!client.status.success(), "{client}");
            assert!(format!("{client}").contains(why), "{client}");
        }
    }
}

#[test]
fn service_has_one_listener() {
    let model = LINKS[1];
    let port = port::free();
    let mut first = start(model, "first", &["rping", "-s", "-p", "PORT"], &port);
    wait_for_service(&port, &mut first);
    let second = start(model, "second", &["rping", "-s", "-p", "PORT"], &port).finish(LIMIT);
    assert!(!second.status.success(), "{second}");
    // It binds a wildcard address.
    assert!(format!("{second}").contains("Cannot assign requested address"), "{second}");
}
