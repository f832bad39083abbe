//! The checks of benchmark results can fail. They find hot loops with a locked instruction, a load
//! fence or a call, grown counts, and exceeded limits. Stepping through instructions sees records
//! and fences in order.

#[allow(dead_code, reason = "nothing is measured here")]
#[path = "../benches/instructions/bounds.rs"]
mod bounds;
#[allow(dead_code, reason = "the tests ask for offences only")]
#[path = "../benches/instructions/disassembly.rs"]
mod disassembly;
#[path = "../benches/instructions/limits.rs"]
mod limits;
#[allow(dead_code, reason = "reports are made by hand here")]
#[path = "../benches/report/mod.rs"]
mod report;
#[allow(dead_code, reason = "nothing is measured here")]
#[path = "../benches/instructions/rows.rs"]
mod rows;
#[cfg(target_arch = "x86_64")]
#[path = "../benches/stores/stepped.rs"]
mod stepped;

use std::collections::HashMap;

use report::earlier::Earlier;
use report::{Line, Report};
use rows::{How, Row, column};

#[cfg(target_arch = "x86_64")]
mod hot {
    use core::arch::asm;
    use std::hint::black_box;

    use crate::disassembly::Disassembly;

    /// A function with these instructions, whatever the compiler does or leaves out.
    macro_rules! function {
        ($name:ident, $($instruction:literal),*) => {
            #[inline(never)]
            fn $name(to: &mut u64) {
                // SAFETY: at most a store to what is borrowed; RAX is said to be written.
                unsafe { asm!($($instruction,)* in("rdi") to, out("rax") _) }
            }
        };
    }

    function!(adds_locked, "lock inc qword ptr [rdi]");
    function!(exchanges, "mov eax, 1", "xchg qword ptr [rdi], rax");
    function!(waits_for_loads, "mov rax, [rdi]", "lfence");
    function!(stores, "mov qword ptr [rdi], 1", "xchg ax, ax", "sfence");

    #[inline(never)]
    fn calls_directly(to: &mut u64) {
        stores(to);
        black_box(0);
    }

    #[inline(never)]
    fn calls_through(function: fn(&mut u64)) {
        function(&mut 0);
    }

    #[test]
    fn functions_are_known_by_their_names_whatever_is_generic_in_them() {
        use crate::disassembly::is_called;
        for name in [
            "mlx5::ring::send::SendQueue<T>::post_rest",
            "<mlx5::ring::send::SendQueue>::post_rest::<mlx5::wqe::RdmaWrite<mlx5::wqe::Sge>>",
            "<mlx5::Next<A>>::post_rest::<<mlx5::Next<A>>::fire_any::{closure#0}>",
            "mlx5::ring::Other<A, B>::post_rest::<false>::<A>",
        ] {
            assert!(is_called(name, "::post_rest"), "{name}");
            assert!(!is_called(name, "::post"), "{name}");
            assert!(!is_called(name, "::fire_any"), "{name}");
        }
        for broken in ["", ">", "<>", "a>>", "::<", "post_rest<a>"] {
            assert!(!is_called(broken, "::post_rest"), "{broken}");
        }
    }

    #[test]
    fn what_waits_or_locks_or_calls_is_found_and_nothing_else() {
        for function in [adds_locked, exchanges, waits_for_loads, stores, calls_directly] {
            calls_through(black_box(function));
        }
        let executable = std::env::current_exe().unwrap();
        let disassembly = Disassembly::of(&executable).unwrap();
        let offences = |function: &str| {
            disassembly.offences(&format!("bench_checks::hot::{function}")).join("\n")
        };
        assert_eq!(offences("stores"), "");
        assert_eq!(disassembly.store_fences("bench_checks::hot::stores"), 1);
        for (function, part) in [
            ("adds_locked", "lock"),
            ("exchanges", "xchg"),
            ("waits_for_loads", "lfence"),
            ("calls_directly", "calls bench_checks::hot::stores"),
            ("calls_through", "calls something unknown"),
            ("is_not_there", "there is no function"),
        ] {
            assert!(offences(function).contains(part), "{function}: {}", offences(function));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn stepping_sees_record_stores_and_fences_in_order() {
    use core::arch::asm;
    use stepped::{Event, stepped};

    let mut records = [0u32; 2];
    let [first, second] = [0, 1].map(|at| (&raw mut records).cast::<u32>().wrapping_add(at));
    // SAFETY: the records outlive the call. The code stores to them, and not to the stack.
    let ((), events) = unsafe {
        stepped(&[first.addr(), second.addr()], || {
            asm!(
                "mov dword ptr [{second}], 1",
                "sfence",
                "mov dword ptr [{first}], 7",
                "mov dword ptr [{first}], 7",
                "lfence",
                "lock add dword ptr [{second}], 1",
                "mov eax, 3",
                "xchg dword ptr [{first}], eax",
                "xchg eax, ecx",
                "mfence",
                first = in(reg) first,
                second = in(reg) second,
                out("eax") _,
                out("ecx") _,
            );
        })
    };
    let seen = [
        Event::Record(1),
        Event::StoreFence,
        Event::Record(0),
        Event::OtherFence,
        Event::Record(1),
        Event::Locked,
        Event::Record(0),
        Event::Locked,
        Event::OtherFence,
    ];
    assert_eq!(events, seen);
    // And nothing is stepped any more.
    // SAFETY: the record outlives the call, and nothing is executed.
    let ((), events) = unsafe { stepped(&[first.addr()], || ()) };
    assert_eq!(events, []);
}

fn counts(raw: f64) -> HashMap<&'static str, f64> {
    HashMap::from([(column::RAW, raw), (column::FLOOR, 10.0), (column::CLASSIC, 300.0)])
}

/// A report as it is recorded, with two rows.
fn recorded(rustc: &str, raw: f64) -> Earlier {
    let columns = vec![column::CLASSIC, column::RAW, column::FLOOR];
    let line = |name: &str| Line {
        name: name.to_owned(),
        values: columns.iter().map(|column| counts(raw).get(column).map(|&it| it.into())).collect(),
        remarks: vec![("limit", "60.0, \"held\"".to_owned())],
    };
    let report = Report {
        title: "Instructions per call",
        context: vec![("rustc", rustc.to_owned()), ("cpu", "any \\ \"thing\", really".to_owned())],
        lines: vec![line("post"), line("poll")],
        columns: columns.clone(),
        ours: column::RAW,
    };
    Earlier::read(&report::json::text(&report)).unwrap()
}

#[test]
fn a_report_is_read_back_as_it_was_written() {
    let earlier = recorded("1.85.0", 50.0);
    assert_eq!(earlier.context["rustc"], "1.85.0");
    assert_eq!(earlier.context["cpu"], "any \\ \"thing\", really");
    assert_eq!(earlier.rows.len(), 2);
    let read = &earlier.rows["poll"];
    assert_eq!(read.len(), 3, "{read:?}");
    assert!(counts(50.0).iter().all(|(column, count)| read[*column] == *count), "{read:?}");
    for broken in ["{\n  \"rustc\": 1.85.0,\n}", "{\"row\": \"post\", \"mlx5\": }", "rows"] {
        assert!(Earlier::read(broken).is_err(), "{broken}");
    }
}

#[test]
fn counts_may_grow_by_two_percent_and_not_more() {
    let earlier = recorded("1.85.0", 50.0);
    let grown = |raw, rustc| limits::grown(&[("post", counts(raw))], rustc, &earlier);
    assert_eq!(grown(49.0, "1.85.0").unwrap(), [""; 0]);
    assert_eq!(grown(50.9, "1.85.0").unwrap(), [""; 0]);
    assert_eq!(grown(51.2, "1.85.0").unwrap(), ["post: mlx5 grew from 50.0 to 51.2"]);
    // Another compiler's counts say nothing about this code; a row that is new has no past.
    assert!(grown(80.0, "1.90.0").unwrap_err().contains("1.85.0"));
    let new = limits::grown(&[("new", counts(80.0))], "1.85.0", &earlier);
    assert_eq!(new.unwrap(), [""; 0]);
}

#[test]
fn limits_that_are_held_fail_when_they_are_passed_or_cannot_be_judged() {
    // All counts are within their limits, also the counts whose limits are not held.
    let sides = || {
        let mut counts = all_sides(1.0);
        // Some may take a third of what libmlx5 does.
        counts.extend([(column::CLASSIC, 4.0), (column::EXTENDED, 4.0)]);
        counts
    };
    let fine: limits::Counts = Row::ALL.iter().map(|_| sides()).collect();
    assert_eq!(limits::passed(&fine), [""; 0]);
    for (at, row) in Row::ALL.iter().enumerate() {
        let held = row.spec().limits.iter().any(|limit| limit.held);
        let mut counts = fine.clone();
        // Only the limited sides: others are what they are compared with.
        counts[at].extend(row.spec().limits.iter().map(|limit| (limit.column, 1000.0)));
        let failures = limits::passed(&counts);
        assert_eq!(!failures.is_empty(), held, "{}", row.text());
        assert!(failures.iter().all(|failure| failure.contains("PASSED")), "{failures:?}");
        counts[at] = HashMap::new();
        let judged = row.spec().limits.is_empty();
        assert_eq!(limits::passed(&counts).is_empty(), judged, "{}", row.text());
    }
    // The factor over the floor counts, too.
    let mut counts = fine;
    counts[0].insert(column::RAW, 16.0);
    counts[0].insert(column::FLOOR, 10.0);
    assert_eq!(limits::passed(&counts).len(), 1);
}

#[test]
fn a_row_that_takes_more_cycles_than_its_bound_fails_also_beside_other_programs() {
    // Blocks of a row and of its floor. Other programs slow either down, in most blocks.
    let judged = |blocks: &[[f64; 2]]| {
        let mut blocks = blocks.iter().cycle().copied();
        let [row, floor] = bounds::least(1.4, bounds::NONE, || blocks.next()).unwrap();
        row <= 1.4 * floor
    };
    assert!(judged(&[[13.0, 10.0]]));
    assert!(judged(&[[30.0, 10.0], [26.0, 20.0], [40.0, 12.0], [13.0, 25.0]]));
    assert!(!judged(&[[15.0, 10.0]]));
    // A slow floor does not hide a slow row.
    assert!(!judged(&[[22.0, 30.0], [22.0, 10.0], [50.0, 30.0]]));
}

#[test]
fn a_row_is_held_to_its_record_where_that_is_less_than_the_bound() {
    let bound = bounds::BOUNDS.iter().find(|bound| bound.row == Row::Poll).unwrap();
    let most = |times: &str| {
        let line = format!("{{\"row\": \"{}\", \"{}\": \"{times}\"}}", bound.text(), bounds::TIMES);
        bound.most(Some(&Earlier::read(&line).unwrap())).0
    };
    assert_eq!(most("2.00"), 2.5);
    // Short rows may take some cycles more.
    assert_eq!(most("1.00"), 1.5);
    assert_eq!(most("9.00"), bound.most(None).0);
}

#[test]
fn every_row_but_those_of_other_copies_and_of_other_programs_has_a_bound_on_its_cycles() {
    for &row in Row::ALL {
        use Row::*;
        // The copies are not what programs use by default. The others are loops of a program, or of
        // packets, which a process of their own counts. Cycles are measured in one process.
        let free = matches!(row, Sse2 | Avx2 | Avx512 | Movdir64b)
            || row.program() == PoolPost.program()
            || row.is_of_packets();
        let bounded =
            bounds::BOUNDS.iter().any(|bound| bound.row == row && bound.column == column::RAW);
        assert_eq!(bounded, !free, "{}", row.text());
        let fills = |row: Row| matches!(row.spec().how, How::Fill | How::FillLists(_));
        for bound in bounds::BOUNDS.iter().filter(|bound| bound.row == row) {
            assert_eq!(fills(row), fills(bound.floor), "{}", row.text());
        }
    }
}

fn all_sides(count: f64) -> HashMap<&'static str, f64> {
    [
        column::CLASSIC,
        column::EXTENDED,
        column::OWNED,
        column::RAW,
        column::HEADER,
        column::LIBRARY,
        column::FLOOR,
    ]
    .map(|column| (column, count))
    .into()
}
