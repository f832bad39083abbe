//! The choice of the model: by the environment, and between two copies if a program has the model
//! linked in and preloaded as well.

use std::process::{Command, Output};

use mlx5_model as _;
use mlx5_sys::verbs::*;

/// Makes a child of these tests print its devices.
const MARK: &str = "MLX5_MODEL_TEST_LIST";

fn child(environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_child_lists_its_devices", "--nocapture"]).env(MARK, "1");
    for name in ["MLX5_MODEL", "MLX5_MODEL_LINK", "MLX5_MODEL_MODE", "MLX5_MODEL_DEVICES"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

fn devices(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| Some(line.split_once("device: ")?.1.to_string())).collect()
}

#[test]
fn a_child_lists_its_devices() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let mut count = 0;
    // SAFETY: the list is read before it is freed.
    unsafe {
        let list = ibv_get_device_list(&mut count);
        for index in 0..if list.is_null() { 0 } else { count as usize } {
            let device = *list.add(index);
            let name = std::ffi::CStr::from_ptr(ibv_get_device_name(device)).to_str().unwrap();
            let context = ibv_open_device(device);
            assert!(!context.is_null(), "{name}");
            println!("\ndevice: {name}");
            assert_eq!(ibv_close_device(context), 0);
        }
        if !list.is_null() {
            ibv_free_device_list(list);
        }
    }
    println!("\nlisted");
}

#[test]
fn there_are_as_many_devices_as_asked_for() {
    assert_eq!(devices(&child(&[("MLX5_MODEL_DEVICES", "3")])), ["mlx5_0", "mlx5_1", "mlx5_2"]);
    assert_eq!(devices(&child(&[("MLX5_MODEL", "always")])), ["mlx5_0"]);
}

#[test]
fn the_model_can_be_turned_off() {
    let output = child(&[("MLX5_MODEL", "never")]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("listed"), "{output:?}");
    let real = std::fs::read_dir("/./sys/class/infiniband").map_or(0, Iterator::count);
    assert_eq!(devices(&output).len(), real);
}

#[test]
fn a_value_that_is_not_known_offers_nothing_and_says_why() {
    for (name, value) in [
        ("MLX5_MODEL", "perhaps"),
        ("MLX5_MODEL_LINK", "token-ring"),
        ("MLX5_MODEL_MODE", "fast"),
        ("MLX5_MODEL_DEVICES", "0"),
    ] {
        let output = child(&[(name, value)]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(name) && text.contains(value), "{output:?}");
        assert!(devices(&output).is_empty(), "{output:?}");
    }
}

#[test]
fn a_variable_that_is_not_known_offers_nothing_and_says_the_nearest() {
    let output = child(&[("MLX5_MODEL_LNIK", "roce")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("MLX5_MODEL_LNIK") && text.contains("MLX5_MODEL_LINK"), "{output:?}");
    assert_eq!(text.matches("mlx5-model: ").count(), 1, "{output:?}");
    assert!(devices(&output).is_empty(), "{output:?}");
}

/// Takes CAP_NET_RAW from this thread, also from one of root.
fn drop_net_raw() {
    const CAP_NET_RAW: u32 = 13;
    let header = [0x2008_0522u32, 0];
    let mut sets = [0u32; 6];
    // SAFETY: version 3 has a header of two words and six words of sets, which both calls get.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0] &= !(1 << CAP_NET_RAW);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

#[test]
fn a_child_without_net_raw_wants_packets() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    // SAFETY: all zeros are valid attributes, which are filled; the objects live as long as the process.
    unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&mut count);
        let context = ibv_open_device(*list);
        let (pd, cq) = (
            ibv_alloc_pd(context),
            ibv_create_cq(context, 16, std::ptr::null_mut(), std::ptr::null_mut(), 0),
        );
        let mut attributes: ibv_qp_init_attr = std::mem::zeroed();
        (attributes.send_cq, attributes.recv_cq) = (cq, cq);
        attributes.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
        (attributes.cap.max_recv_wr, attributes.cap.max_recv_sge) = (4, 1);
        let errno = |done: bool| if done { 0 } else { *libc::__errno_location() };
        let with = ibv_create_qp(pd, &mut attributes);
        assert!(!with.is_null(), "errno {}", errno(false));
        let flow = || {
            let mut flow: ibv_flow_attr = std::mem::zeroed();
            flow.type_ = ibv_flow_attr_type::IBV_FLOW_ATTR_ALL_DEFAULT;
            (flow.size, flow.port) = (size_of::<ibv_flow_attr>() as u16, 1);
            ibv_create_flow(with, &mut flow).is_some_and(|flow| !flow.is_null())
        };
        drop_net_raw();
        let without = ibv_create_qp(pd, &mut attributes);
        println!("\nerrors: {} {}", errno(!without.is_null()), errno(flow()));
    }
}

#[test]
fn raw_packets_need_net_raw_if_the_environment_says_so() {
    let run = |value: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_child_without_net_raw_wants_packets", "--nocapture"]);
        command.env(MARK, "1").env("MLX5_MODEL", "always").env("MLX5_MODEL_LINK", "roce");
        let output = command.envs(value.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).matches("CAP_NET_RAW").count();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = text.lines().find_map(|line| line.split_once("errors: "));
        (errors.map(|(_, errors)| errors.to_owned()), said)
    };
    let refused = format!("{0} {0}", libc::EPERM);
    assert_eq!(run(&[("MLX5_MODEL_PRIVILEGE", "checked")]), (Some(refused), 0));
    // The difference to Linux is reported once.
    assert_eq!(run(&[]), (Some("0 0".to_owned()), 1));
}

#[test]
fn a_copy_that_was_preloaded_too_stays_out() {
    let library = std::env::current_exe().unwrap().with_file_name("libmlx5_model.so");
    assert!(library.is_file(), "{} is built with the tests", library.display());
    let library = library.to_str().unwrap();
    let output = child(&[("LD_PRELOAD", library), ("MLX5_MODEL", "always")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(devices(&output), ["mlx5_0"]);
}

#[test]
fn this_executable_comes_before_the_c_library() {
    // By address: a function that was not exported, or not linked in, is the C library's.
    let own = std::env::current_exe().unwrap().canonicalize().unwrap();
    for name in [
        c"open",
        c"open64",
        c"openat",
        c"openat64",
        c"__open_2",
        c"__openat_2",
        c"opendir",
        c"stat",
        c"stat64",
        c"lstat",
        c"statx",
        c"access",
        c"readlink",
        c"realpath",
        c"fopen",
        c"scandir",
        c"ioctl",
        c"mmap",
        c"mmap64",
        c"munmap",
        c"mremap",
        c"madvise",
        c"close",
        c"close_range",
        c"closefrom",
        c"fclose",
        c"read",
        c"dup",
        c"dup2",
        c"fcntl",
        c"fcntl64",
        c"socket",
        c"sigaction",
        c"signal",
        c"pthread_sigmask",
        c"sigprocmask",
    ] {
        // SAFETY: the names are C strings; dladdr fills the structure, and its name is a C string
        // that lives as long as the executable.
        let file = unsafe {
            let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            let mut found: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(address, &mut found), 0, "{name:?}");
            std::ffi::CStr::from_ptr(found.dli_fname).to_str().unwrap().to_string()
        };
        assert_eq!(std::fs::canonicalize(&file).unwrap(), own, "{name:?} is from {file}");
    }
}
