//! Requests to the command file that no library would make: lengths, handles and pointers of all
//! kinds, for every method. Each request succeeds or is refused as the kernel would refuse it.
//! Afterwards the device still works.

mod support;

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;
use mlx5_model as _;
use support::random::Random;
use support::request::Kind::{Handle, In, New, Out};
use support::request::{
    Attribute, ERRNOS, Header, METHODS, NOBODY, PAGE, REQUEST, Scene, Tally, attribute, call,
    errno, structure, word,
};
use support::role::{Player, play};

#[test]
fn role() {
    play(&[
        ("declared", declared),
        ("headers", headers),
        ("random", random),
        ("legacy", legacy),
        ("mappings", mappings),
        ("descriptors", descriptors),
        ("races", races),
    ]);
}

/// Each attribute of each method: missing, short, long, twice, with unknown flags, pointing to
/// where nothing is.
fn declared() -> i32 {
    let scene = Scene::new();
    for method in METHODS {
        let (object, number) = (method.object, method.method);
        let name = format!("object {object:#x} method {number:#x}");
        let good = scene.scratch.attributes(method);
        let refused = |given: &[Attribute], errnos: &[c_int], what: &str| {
            let result = call(scene.file, object, number, given);
            let fits = matches!(result, Err(errno) if errnos.contains(&errno));
            assert!(fits, "{name}, {what}: {result:?}, not one of {errnos:?}");
        };
        for (index, (id, kind)) in method.required.iter().chain(method.optional).enumerate() {
            let with = |change: &dyn Fn(&mut Attribute)| {
                let mut given = good.clone();
                change(&mut given[index]);
                given
            };
            if index < method.required.len() {
                let mut given = good.clone();
                given.remove(index);
                refused(&given, &[libc::EINVAL], &format!("without attribute {id:#x}"));
            }
            let mut given = good.clone();
            given.push(good[index]);
            refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} twice"));
            let given = with(&|attribute| attribute.flags = 0x80);
            refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} with unknown flags"));
            let given = with(&|attribute| attribute.reserved = 1);
            refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} with a reserved field"));
            match *kind {
                In(least, most) => {
                    if least > 0 {
                        let given = with(&|attribute| attribute.length = least - 1);
                        refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} short"));
                    }
                    if most < u16::MAX {
                        let given = with(&|attribute| attribute.length = most + 1);
                        let errnos = [libc::EINVAL, libc::EOPNOTSUPP];
                        refused(&given, &errnos, &format!("attribute {id:#x} long"));
                    }
                    for length in [9, 100, 4096, u16::MAX] {
                        for address in scene.scratch.unreadable() {
                            let given = with(&|attribute| {
                                (attribute.length, attribute.data) = (length, address);
                            });
                            refused(&given, &ERRNOS, &format!("{id:#x} at {address:#x}"));
                        }
                    }
                }
                Out(least) => {
                    if least > 0 {
                        let given = with(&|attribute| attribute.length = least - 1);
                        refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} short"));
                    }
                    let bad = scene.scratch.unreadable();
                    for address in bad.into_iter().chain([scene.scratch.read_only()]) {
                        let given = with(&|attribute| attribute.data = address);
                        // Where it is not written to, nothing is wrong with it.
                        if let Err(errno) = call(scene.file, object, number, &given) {
                            assert!(ERRNOS.contains(&errno), "{name}, {id:#x}: errno {errno}");
                        }
                    }
                }
                Handle | New => {
                    let given = with(&|attribute| attribute.length = 8);
                    refused(&given, &[libc::EINVAL], &format!("attribute {id:#x} with a length"));
                }
            }
        }
        // A method of a single object, with an unused handle.
        if let [(id, Handle), ..] = method.required {
            for handle in [NOBODY, 0xffff_ffff, 1 << 32, u64::MAX, 1 << 63] {
                let mut given = good.clone();
                given[0].data = handle;
                refused(&given, &[libc::ENOENT], &format!("attribute {id:#x} is {handle:#x}"));
            }
        }
        let mut given = good.clone();
        given.push(attribute(0x777, 0, 0));
        refused(&given, &[libc::EPROTONOSUPPORT], "an unknown attribute that matters");
        scene.check();
    }
    scene.end()
}

#[test]
fn every_method_refuses_what_it_does_not_declare() {
    Player::of("declared").end_well();
}

/// Headers that lie, and methods that are not there.
fn headers() -> i32 {
    let scene = Scene::new();
    let file = scene.file;
    for (object, method) in [(0, 77), (77, 0), (0x1000, 0x1fff), (0xffff, 0xffff), (7, 0xffff)] {
        assert_eq!(call(file, object, method, &[]), Err(libc::EPROTONOSUPPORT));
    }
    let whole = Header {
        length: 24,
        object: 16,
        method: 0,
        attributes: 0,
        reserved1: 0,
        driver: 1,
        reserved2: 0,
    };
    let lies: [(&str, Header, c_int); 7] = [
        ("shorter than it is", Header { length: 23, ..whole }, libc::EINVAL),
        ("longer than it is", Header { length: 40, ..whole }, libc::EINVAL),
        ("no length", Header { length: 0, ..whole }, libc::EINVAL),
        ("attributes that are not there", Header { attributes: 1, ..whole }, libc::EINVAL),
        ("more than a page", Header { attributes: 4095, length: 65_534, ..whole }, libc::EINVAL),
        ("a reserved field", Header { reserved1: 1, ..whole }, libc::EPROTONOSUPPORT),
        ("the other reserved field", Header { reserved2: 1, ..whole }, libc::EPROTONOSUPPORT),
    ];
    for (what, header, expected) in lies {
        scene.scratch.fill(&[0; 64]);
        // SAFETY: the header fits where it is written, and the request reads no further than the
        // writable pages.
        let result = unsafe {
            (scene.scratch.writable() as *mut Header).write(header);
            libc::ioctl(file, REQUEST, scene.scratch.writable())
        };
        assert_eq!((result, errno()), (-1, expected), "{what}");
    }
    for address in scene.scratch.unreadable() {
        // SAFETY: the kernel's interface takes any address.
        let result = unsafe { libc::ioctl(file, REQUEST, address) };
        assert_eq!((result, errno()), (-1, libc::EFAULT), "{address:#x}");
    }
    // A header at the end of memory, with attributes where nothing is.
    let last = scene.scratch.0 + 3 * PAGE as u64 - 24;
    // SAFETY: the read-only page is made writable for the header alone.
    let result = unsafe {
        let page = scene.scratch.read_only() as *mut libc::c_void;
        libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        (last as *mut Header).write(Header { attributes: 2, length: 24 + 32, ..whole });
        libc::mprotect(page, PAGE, libc::PROT_READ);
        libc::ioctl(file, REQUEST, last)
    };
    assert_eq!((result, errno()), (-1, libc::EFAULT));
    // Another request number is not for this file.
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::ioctl(file, 0x1234, 0) }, -1);
    scene.end()
}

#[test]
fn headers_that_lie_are_refused() {
    Player::of("headers").end_well();
}

fn random() -> i32 {
    let scene = Scene::new();
    let mut tally = Tally::default();
    for seed in 0..30_000u64 {
        let random = &mut Random::new(seed);
        let method = &METHODS[random.below(METHODS.len())];
        let mut given = scene.scratch.attributes(method);
        for (attribute, (_, kind)) in
            given.iter_mut().zip(method.required.iter().chain(method.optional))
        {
            match *kind {
                In(least, most) => {
                    let most = most.min(600);
                    attribute.length = least + random.below(usize::from(most - least) + 1) as u16;
                    attribute.data = if attribute.length > 8 && random.below(8) > 0 {
                        scene.scratch.writable()
                    } else {
                        word(random, &scene.scratch)
                    };
                }
                Out(least) if random.below(8) == 0 => {
                    attribute.length = least + random.below(600) as u16;
                    attribute.data = word(random, &scene.scratch);
                }
                Handle | New => attribute.data = word(random, &scene.scratch),
                Out(_) => {}
            }
        }
        for _ in 0..random.below(3) {
            match random.below(4) {
                0 if !given.is_empty() => {
                    given.remove(random.below(given.len()));
                }
                1 if !given.is_empty() => {
                    let index = random.below(given.len());
                    given[index].length = random.next() as u16;
                }
                2 => given.push(attribute(random.next() as u16, 8, random.next())),
                _ => {}
            }
        }
        let contents = structure(random, &scene.scratch, 512);
        scene.scratch.fill(&contents);
        tally.count(call(scene.file, method.object, method.method, &given));
        if seed % 1000 == 0 {
            scene.check();
        }
    }
    tally.end("methods");
    scene.end()
}

#[test]
fn random_requests_do_no_harm() {
    Player::of("random").end_well();
}

/// Commands of the older form: every number, with structures of every length.
fn legacy() -> i32 {
    const EXTENDED: u64 = 0x8000_0000;
    let scene = Scene::new();
    let mut tally = Tally::default();
    let known: Vec<u64> = [0, 1, 2, 3, 4, 5, 8, 9, 11, 13, 14, 16, 17, 18, 19, 20, 24, 25, 26, 27]
        .into_iter()
        .chain(30..=35)
        .chain([37, 38, 39])
        .chain([1, 18, 24, 26, 50, 53, 55, 57].map(|number| EXTENDED | number))
        .collect();
    let invoke = |command: u64, core: (u16, u64), room: (u16, u64), driver: (u16, u64)| {
        let driver_room = attribute(0x1001, 64, scene.scratch.writable() + 3072);
        let given = [
            attribute(0, core.0, core.1),
            attribute(1, room.0, room.1),
            attribute(2, 8, command),
            attribute(0x1000, driver.0, driver.1),
            driver_room,
        ];
        call(scene.file, 0, 0, &given)
    };
    // Nothing that is known takes nothing; nothing else is known.
    for command in 0..0x100 {
        for command in [command, EXTENDED | command] {
            let result = invoke(command, (0, 0), (0, 0), (0, 0));
            let errno = if known.contains(&command) { libc::ENOSPC } else { libc::EOPNOTSUPP };
            assert_eq!(result, Err(errno), "command {command:#x}");
        }
    }
    for command in [0x100, 0x4000_0000, EXTENDED | 0x100, u64::from(u32::MAX)] {
        let result = invoke(command, (8, 0), (8, 0), (0, 0));
        assert!(matches!(result, Err(libc::EINVAL | libc::EOPNOTSUPP)), "{command:#x}: {result:?}");
    }
    for seed in 0..40_000u64 {
        let random = &mut Random::new(seed);
        let command =
            if random.below(50) == 0 { random.next() & 0x8000_01ff } else { random.pick(&known) };
        let pointer = |random: &mut Random, good: u64| {
            if random.below(20) == 0 { word(random, &scene.scratch) } else { good }
        };
        let base = scene.scratch.writable();
        let core = (random.below(200) as u16, pointer(random, base));
        let room = (random.below(400) as u16, pointer(random, base + 1024));
        let driver = (random.below(120) as u16, pointer(random, base + 512));
        let contents = structure(random, &scene.scratch, 1024);
        scene.scratch.fill(&contents);
        tally.count(invoke(command, core, room, driver));
        if seed % 1000 == 0 {
            scene.check();
        }
    }
    tally.end("legacy commands");
    scene.end()
}

#[test]
fn random_legacy_commands_do_no_harm() {
    Player::of("legacy").end_well();
}

/// Offsets of `mmap` that mean nothing.
fn mappings() -> i32 {
    let scene = Scene::new();
    for seed in 0..5_000u64 {
        let random = &mut Random::new(seed);
        let length = random.pick(&[0, 1, 4095, 4096, 4097, 1 << 20, usize::MAX & !4095]);
        let protection = random.next() as c_int & 7;
        let flags = random.pick(&[libc::MAP_SHARED, libc::MAP_PRIVATE, 0]);
        let offset = match random.below(4) {
            0 => random.next() as i64,
            1 => ((9 << 16) + random.below(100) as i64) * PAGE as i64,
            _ => random.below(1 << 24) as i64 * PAGE as i64,
        };
        // SAFETY: the kernel chooses the address, and what is mapped is unmapped at once.
        unsafe {
            let at = libc::mmap(null_mut(), length, protection, flags, scene.file, offset);
            if at == libc::MAP_FAILED {
                let errno = errno();
                let fits = [libc::EINVAL, libc::ENOMEM, libc::ENODEV, libc::EPERM, libc::EACCES];
                assert!(fits.contains(&errno), "errno {errno}");
            } else {
                assert!(length <= PAGE, "{length} bytes at {offset:#x}");
                assert_eq!(libc::munmap(at, PAGE), 0);
            }
        }
        if seed % 500 == 0 {
            scene.check();
        }
    }
    scene.end()
}

#[test]
fn random_mappings_do_no_harm() {
    Player::of("mappings").end_well();
}

/// Copies of a command file, and descriptors that are none.
fn descriptors() -> i32 {
    let scene = Scene::new();
    let ports = [attribute(0, 1, 1), attribute(1, 40, scene.scratch.writable())];
    let query = |file| call(file, 0, 2, &ports);
    assert_eq!(query(scene.file), Ok(()));
    for file in [-1, c_int::MIN, c_int::MAX, 1 << 20] {
        assert_eq!(query(file), Err(libc::EBADF));
        // SAFETY: closes nothing.
        assert_eq!((unsafe { libc::close(file) }, errno()), (-1, libc::EBADF));
    }
    // SAFETY: descriptors of this test's own.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        assert_eq!(query(null), Err(libc::ENOTTY));
        let copies = [
            libc::dup(scene.file),
            libc::fcntl(scene.file, libc::F_DUPFD, 100),
            libc::fcntl(scene.file, libc::F_DUPFD_CLOEXEC, 200),
            libc::dup3(scene.file, 300, libc::O_CLOEXEC),
        ];
        for copy in copies {
            assert!(copy >= 0);
            assert_eq!(query(copy), Ok(()));
        }
        assert_eq!(libc::dup2(copies[0], copies[1]), copies[1]);
        assert_eq!(query(copies[1]), Ok(()));
        for copy in copies {
            assert_eq!(libc::close(copy), 0);
            assert_eq!(query(copy), Err(libc::EBADF));
            assert_eq!(query(scene.file), Ok(()), "the file stays as long as it has a descriptor");
        }
        // Another file in the place of a command file.
        let copy = libc::dup(scene.file);
        assert_eq!(libc::dup2(null, copy), copy);
        assert_eq!(query(copy), Err(libc::ENOTTY));
        libc::close(copy);
        libc::close(null);
        // What is no command file of the kernel's takes no request.
        let channel = mlx5_sys::verbs::ibv_create_comp_channel(scene.healthy.0.device.context);
        assert_eq!(query((*channel).fd), Err(libc::ENOTTY));
        assert_eq!(mlx5_sys::verbs::ibv_destroy_comp_channel(channel), 0);
    }
    scene.end()
}

#[test]
fn a_file_lives_as_long_as_its_last_descriptor() {
    Player::of("descriptors").end_well();
}

/// Requests of several threads to one file, which is closed while they are under way.
fn races() -> i32 {
    let scene = Scene::new();
    for round in 0..20 {
        // SAFETY: the path is a C string.
        let file = unsafe {
            libc::open(c"/dev/infiniband/uverbs0".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC)
        };
        assert!(file >= 0);
        let closed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (scratch, closed) = (&scene.scratch, &closed);
                scope.spawn(move || {
                    let random = &mut Random::new(round << 8 | thread);
                    let mut tally = Tally::default();
                    while !closed.load(Ordering::Relaxed) {
                        let method = &METHODS[random.below(METHODS.len())];
                        let mut given = scratch.attributes(method);
                        for attribute in &mut given {
                            if attribute.length == 0 {
                                attribute.data = random.below(8) as u64;
                            }
                        }
                        tally.count(call(file, method.object, method.method, &given));
                    }
                });
            }
            // A context for them to make objects on, if none of them was faster.
            let ucontext = [[2u32, 0, 0, 0], [1 << 8 | 1, 0, 2, 0]].concat();
            let bytes: Vec<u8> = ucontext.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let given = [attribute(0x1000, 32, bytes.as_ptr() as u64)];
            let made = call(file, 0, 3, &given);
            assert!(matches!(made, Ok(()) | Err(libc::EINVAL | libc::EOPNOTSUPP)), "{made:?}");
            for _ in 0..20 {
                scene.check();
            }
            // SAFETY: the descriptor is this test's own.
            unsafe { libc::close(file) };
            closed.store(true, Ordering::Relaxed);
        });
    }
    scene.end()
}

#[test]
fn a_file_can_be_closed_under_its_requests() {
    Player::of("races").end_well();
}
