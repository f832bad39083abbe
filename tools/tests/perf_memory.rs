//! `mlx5 perf --memory`: messages in memory of each origin.

mod perf_pair;
mod rig;

use perf_pair::{Server, wait_until_measuring};
use rig::{mlx5, run};

#[test]
fn data_of_every_operation_is_right_in_memory_of_every_origin() {
    let server = Server::start(&["--clients", "24"]);
    let port = server.port();
    for memory in ["odp", "device", "dmabuf"] {
        for kind in ["lat", "bw"] {
            for operation in ["send", "write", "read", "fadd"] {
                let mut arguments = vec!["perf", kind, "127.0.0.1", "-p", &port, "-o", operation];
                arguments.extend(["-n", "100", "-w", "10", "--validate", "--json"]);
                arguments.extend(["--memory", memory]);
                if operation != "fadd" {
                    // Not a multiple of the words of device memory.
                    arguments.extend(["-s", "61"]);
                }
                if kind == "bw" {
                    arguments.extend(["-t", "16", "-Q", "4"]);
                }
                let report = run(&arguments, 0).report();
                let case = format!("{memory} {kind} {operation}");
                assert!(report["points"][0]["validated"].as_u64().unwrap() >= 100, "{case}");
                let settings = report["configuration"].as_array().unwrap();
                let named = |it: &&serde_json::Value| it["name"] == "memory";
                assert_eq!(settings.iter().find(named).unwrap()["value"], memory, "{case}");
            }
        }
    }
    server.finish(0);
}

#[test]
fn wrong_messages_are_noticed_in_memory_of_every_origin() {
    // A server of another process has all of the device's memory to itself.
    let server = Server::start(&["--clients", "9"]);
    let port = server.port();
    for memory in ["odp", "device", "dmabuf"] {
        for operation in ["send", "write", "read"] {
            let mut arguments = vec!["perf", "bw", "127.0.0.1", "-p", &port, "-o", operation];
            arguments.extend(["-n", "60", "-w", "0", "-t", "8", "-Q", "4", "-s", "61"]);
            arguments.extend(["--validate", "--corrupt-at", "57", "--memory", memory]);
            let printed = run(&arguments, 1);
            assert!(printed.out.contains("WRONG"), "{memory} {operation}: {}", printed.out);
        }
    }
    server.finish(1);
}

#[test]
fn a_server_has_memory_of_its_own_choice_and_says_what_does_not_go() {
    let server = Server::start(&["--clients", "2", "--memory", "device"]);
    let port = server.port();
    let to_it = ["perf", "lat", "127.0.0.1", "-p", &port, "-n", "50"];
    // It answers inline, which its memory cannot.
    let refused = run(&to_it, 3).err;
    assert!(refused.contains("--memory device") && refused.contains("--inline 0"), "{refused}");
    run(&[&to_it[..], &["--inline", "0", "--validate"]].concat(), 0);
    server.finish(3);
}

#[test]
fn memory_of_the_device_is_as_large_as_the_device_has_it() {
    let refused = run(&["perf", "bw", "--loopback", "--memory", "device", "-n", "10"], 3).err;
    assert!(refused.contains("of the device") && refused.contains("--depth"), "{refused}");
}

#[test]
fn a_dma_buf_is_memory_of_a_file() {
    let arguments = ["bw", "-o", "write", "--loopback", "--memory", "dmabuf", "-D", "60s"];
    let mut client = mlx5(&[&["perf"], &arguments[..]].concat()).spawn().unwrap();
    wait_until_measuring(&mut client);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", client.id())).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(maps.contains("memfd:mlx5-perf"), "{maps}");
}
