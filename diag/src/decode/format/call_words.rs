//! Calls of libibverbs that programs name in words: "Failed to create QP", "CQ creation failed".
//!
//! A program's words are a verb and an object. Each such pair is one call.

/// A call that a line names in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InWords {
    /// The end of the words in the line.
    pub end: usize,
    /// The function's name.
    pub name: &'static str,
}

/// Actions of a program on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Modify,
    Register,
    Deregister,
    Destroy,
    Open,
    Query,
    Resize,
    Post,
}

use Verb::*;

/// Verbs, and nouns made of them, in lower case.
const VERBS: &[(&str, Verb)] = &[
    ("create", Create),
    ("creating", Create),
    ("creation", Create),
    ("make", Create),
    ("allocate", Create),
    ("allocating", Create),
    ("allocation", Create),
    ("alloc", Create),
    ("modify", Modify),
    ("modifying", Modify),
    ("move", Modify),
    ("transition", Modify),
    ("register", Register),
    ("registering", Register),
    ("registration", Register),
    ("reg", Register),
    ("deregister", Deregister),
    ("deregistering", Deregister),
    ("dereg", Deregister),
    ("deregistration", Deregister),
    ("destroy", Destroy),
    ("destroying", Destroy),
    ("deallocate", Destroy),
    ("dealloc", Destroy),
    ("free", Destroy),
    ("open", Open),
    ("query", Query),
    ("querying", Query),
    ("resize", Resize),
    ("post", Post),
    ("posting", Post),
];

/// Objects in one or two words, in lower case, with the calls of verbs on them.
const OBJECTS: &[(&str, &[(Verb, &str)])] = &[
    ("queue pair", QUEUE_PAIR),
    ("qpair", QUEUE_PAIR),
    ("qp", QUEUE_PAIR),
    ("dct", TARGET),
    ("dci", QUEUE_PAIR),
    ("completion queue", CQ),
    ("cq", CQ),
    ("completion channel", CHANNEL),
    ("event channel", &[(Create, "rdma_create_event_channel")]),
    ("comp channel", CHANNEL),
    ("shared receive", SRQ),
    ("srq", SRQ),
    ("protection domain", DOMAIN),
    ("pd", DOMAIN),
    ("memory region", REGION),
    ("mr", REGION),
    ("memory", &[(Register, "ibv_reg_mr"), (Deregister, "ibv_dereg_mr")]),
    ("address handle", HANDLE),
    ("ah", HANDLE),
    ("gid", &[(Query, "ibv_query_gid")]),
    ("ib device", DEVICE),
    ("rdma device", DEVICE),
    ("verbs device", DEVICE),
    ("ibv device", DEVICE),
    ("send", &[(Post, "ibv_post_send")]),
    ("sends", &[(Post, "ibv_post_send")]),
    ("recv", &[(Post, "ibv_post_recv")]),
    ("receive", &[(Post, "ibv_post_recv")]),
    ("receives", &[(Post, "ibv_post_recv")]),
];

const QUEUE_PAIR: &[(Verb, &str)] =
    &[(Create, "ibv_create_qp"), (Modify, "ibv_modify_qp"), (Destroy, "ibv_destroy_qp")];
const TARGET: &[(Verb, &str)] = &[(Create, "mlx5dv_create_qp"), (Modify, "ibv_modify_qp")];
const CQ: &[(Verb, &str)] =
    &[(Create, "ibv_create_cq"), (Resize, "ibv_resize_cq"), (Destroy, "ibv_destroy_cq")];
const CHANNEL: &[(Verb, &str)] =
    &[(Create, "ibv_create_comp_channel"), (Destroy, "ibv_destroy_comp_channel")];
const SRQ: &[(Verb, &str)] = &[(Create, "ibv_create_srq"), (Destroy, "ibv_destroy_srq")];
const DOMAIN: &[(Verb, &str)] = &[(Create, "ibv_alloc_pd"), (Destroy, "ibv_dealloc_pd")];
const REGION: &[(Verb, &str)] = &[
    (Register, "ibv_reg_mr"),
    (Create, "ibv_reg_mr"),
    (Deregister, "ibv_dereg_mr"),
    (Destroy, "ibv_dereg_mr"),
];
const HANDLE: &[(Verb, &str)] = &[(Create, "ibv_create_ah"), (Destroy, "ibv_destroy_ah")];
const DEVICE: &[(Verb, &str)] = &[(Open, "ibv_open_device"), (Query, "ibv_query_device")];

/// Words between "failed" and the verb.
const TO: [&str; 4] = ["to", "not", "while", "when"];

/// Words of failure before a verb, in lower case.
const FAILED: [&str; 11] = [
    "failed", "fail", "failure", "unable", "cannot", "can't", "couldn't", "could", "can", "error",
    "failing",
];

/// Most words between a verb and its object: "a new", "the UD", "notification".
const BETWEEN: usize = 2;

/// Returns the call that a line names in words of failure.
pub(super) fn find(line: &str) -> Option<InWords> {
    let words = words(line);
    let of = |at| before(&words, at).or_else(|| behind(&words, at)).or_else(|| around(&words, at));
    (0..words.len()).find_map(of).or_else(|| with_operation(line))
}

/// A word in lower case, and its end in the line.
type Word = (String, usize);

/// Words of a line. An apostrophe belongs to its word.
fn words(line: &str) -> Vec<Word> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '\'';
    let mut words = Vec::new();
    let mut start = None;
    let mut last = ' ';
    for (at, letter) in line.char_indices().chain([(line.len(), ' ')]) {
        // "RegisterMemoryRegion" has three words.
        let begins = letter.is_ascii_uppercase() && last.is_ascii_lowercase();
        last = letter;
        match (start, is_part(letter)) {
            (None, true) => start = Some(at),
            (Some(from), true) if begins => {
                words.push((line[from..at].to_ascii_lowercase(), at));
                start = Some(at);
            }
            (Some(from), false) => {
                words.push((line[from..at].to_ascii_lowercase(), at));
                start = None;
            }
            _ => {}
        }
    }
    words
}

fn verb(word: Option<&Word>) -> Option<Verb> {
    let (word, _) = word?;
    VERBS.iter().find(|(text, _)| text == word).map(|(_, verb)| *verb)
}

/// Returns the object at a place, with its number of words.
fn object(words: &[Word], at: usize) -> Option<(&'static [(Verb, &'static str)], usize)> {
    let (first, _) = words.get(at)?;
    let two = words.get(at + 1).map(|(second, _)| format!("{first} {second}"));
    let found = |text: &str| OBJECTS.iter().find(|(object, _)| *object == text);
    let in_two = two.and_then(|two| found(&two)).map(|(_, calls)| (*calls, 2));
    in_two.or_else(|| found(first).map(|(_, calls)| (*calls, 1)))
}

fn call(calls: &[(Verb, &'static str)], verb: Verb) -> Option<&'static str> {
    calls.iter().find(|(of, _)| *of == verb).map(|(_, name)| *name)
}

/// "Failed to create the QP", "Couldn't allocate MR", "Unable to post 3 receives".
fn before(words: &[Word], at: usize) -> Option<InWords> {
    if !FAILED.contains(&words[at].0.as_str()) {
        return None;
    }
    let mut next = at + 1;
    while words.get(next).is_some_and(|(word, _)| TO.contains(&word.as_str())) {
        next += 1;
    }
    let verb = verb(words.get(next))?;
    let (calls, place, count) = (next + 1..=next + 1 + BETWEEN)
        .find_map(|place| object(words, place).map(|(calls, count)| (calls, place, count)))?;
    let name = call(calls, verb)?;
    Some(InWords { end: end(words, place + count - 1, verb), name })
}

/// "QP creation failed", "memory registration failed".
fn behind(words: &[Word], at: usize) -> Option<InWords> {
    let (calls, count) = object(words, at)?;
    let verb = verb(words.get(at + count))?;
    let name = call(calls, verb)?;
    let last = at + count + 1;
    let (failed, end) = words.get(last)?;
    failed.starts_with("fail").then_some(InWords { end: *end, name })
}

/// "create qp failed", "post_send failed", "Creating the queue pair failed".
fn around(words: &[Word], at: usize) -> Option<InWords> {
    let verb = verb(words.get(at))?;
    let is_filler =
        |word: &Word| ["a", "an", "the", "rdma", "ib", "ibv"].contains(&word.0.as_str());
    let place = at + 1 + usize::from(words.get(at + 1).is_some_and(is_filler));
    let (calls, count) = object(words, place)?;
    let name = call(calls, verb)?;
    let mut last = place + count;
    let moves = |word: &Word| ["to", "init", "rtr", "rts", "state"].contains(&word.0.as_str());
    while verb == Modify && words.get(last).is_some_and(moves) {
        last += 1;
    }
    let (failed, end) = words.get(last)?;
    failed.starts_with("fail").then_some(InWords { end: *end, name })
}

/// Posts that a program names by the operation: "Send with RDMA_WRITE(WITH_IMM) failed", "Receive
/// with RDMA_RECV failed".
fn with_operation(line: &str) -> Option<InWords> {
    const POSTS: [(&str, &str); 3] = [
        ("send with ", "ibv_post_send"),
        ("receive with ", "ibv_post_recv"),
        ("recv with ", "ibv_post_recv"),
    ];
    const OPERATIONS: [&str; 4] = ["rdma_", "atomic_", "send", "recv"];
    let lower = line.to_ascii_lowercase();
    POSTS.iter().find_map(|(words, name)| {
        let from = lower.find(words)? + words.len();
        let rest = &lower[from..];
        let failed = rest.find(" failed")?;
        let named = OPERATIONS.iter().any(|operation| rest.starts_with(operation));
        let alone = named && !rest[..failed].contains(' ');
        alone.then_some(InWords { end: from + failed + " failed".len(), name })
    })
}

/// Returns the end of the words that belong to a call: "QP 3 to RTR", "SRQ".
fn end(words: &[Word], last: usize, verb: Verb) -> usize {
    let moves = |word: &str| {
        ["state", "to", "from", "init", "rtr", "rts", "reset", "num", "queue"].contains(&word)
            || word.bytes().all(|digit| digit.is_ascii_digit())
    };
    let mut last = last;
    while verb == Modify && words.get(last + 1).is_some_and(|(word, _)| moves(word)) {
        last += 1;
    }
    words[last].1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Option<&'static str> {
        find(line).map(|call| call.name)
    }

    #[test]
    fn verbs_and_objects_make_a_call() {
        for (line, call) in [
            ("Failed to create RC QP: Invalid argument", "ibv_create_qp"),
            ("could not create the queue pair", "ibv_create_qp"),
            ("QP creation failed", "ibv_create_qp"),
            ("Unable to create AH.", "ibv_create_ah"),
            ("Failed to modify QP 122273 to RTR", "ibv_modify_qp"),
            ("failed to transition qp to RTS: Connection timed out", "ibv_modify_qp"),
            ("Failed to deallocate PD - Device or resource busy", "ibv_dealloc_pd"),
            ("Couldn't allocate MR", "ibv_reg_mr"),
            ("memory registration failed: Bad address", "ibv_reg_mr"),
            ("Failed to post a send for the qpair 0x7f with errno -12", "ibv_post_send"),
            ("Failed to post notification recv: Success [0]", "ibv_post_recv"),
            ("error creating completion channel", "ibv_create_comp_channel"),
            ("cannot open IB device mlx5_0", "ibv_open_device"),
            ("create qp failed: Invalid argument", "ibv_create_qp"),
            ("post_send failed", "ibv_post_send"),
            ("Creating the queue pair failed with errno 16.", "ibv_create_qp"),
            ("rdma_cm event channel creation failed", "rdma_create_event_channel"),
            ("modify QP to RTR failed", "ibv_modify_qp"),
            ("Send with RDMA_WRITE(WITH_IMM) failed.", "ibv_post_send"),
            ("Send with ATOMIC_CMP_AND_SWP failed.", "ibv_post_send"),
            ("Receive with RDMA_RECV failed.", "ibv_post_recv"),
            ("RegisterRdmaMemoryRegion failed! errno:22", "ibv_reg_mr"),
            ("createQueuePair failed", "ibv_create_qp"),
            ("error modifying DCT to RTR: Invalid argument", "ibv_modify_qp"),
        ] {
            assert_eq!(name(line), Some(call), "{line}");
        }
    }

    #[test]
    fn other_verbs_and_objects_are_no_call() {
        for line in [
            "Failed to create file: No such file or directory",
            "failed to modify CQ",
            "QP creation succeeded",
            "QP",
            "failed to",
            "",
            "we create a QP, and fail",
            "send with care failed",
            "send with rdma_write and a retry failed",
        ] {
            assert_eq!(name(line), None, "{line}");
        }
    }
}
