//! Changes and messages in random order, compared with a list in software.

use std::collections::{HashMap, VecDeque};

use mlx5::expert::{Tag, TagHeader};
use mlx5::expert::{TagError, TagHandle};

use super::{CAPACITY, Lines};
use rig::random::Random;

/// A software model of the tag list.
#[derive(Default)]
struct Reference {
    entries: VecDeque<(u64, Tag, TagHandle)>,
}

#[test]
fn any_order_of_changes_and_messages_matches_as_a_list_would() {
    let mut random = Random::new();
    let mut lines = Lines::new(3);
    let Lines { matcher, senders, .. } = &mut lines;
    let mut list = Reference::default();
    let mut receives = 0u64;
    let mut found: HashMap<&str, u32> = HashMap::new();
    for id in 0..4000u64 {
        while matcher.tags.receives().free() > 0 && matcher.tags.receives().outstanding() < 4 {
            matcher.post(receives);
            receives += 1;
        }
        match random.below(4) {
            0 | 1 => {
                let mask = [!0, 0x3, 0x1, 0][random.below(4) as usize];
                let tag = Tag::masked(random.below(4).into(), mask);
                match matcher.append(id, tag) {
                    Ok(handle) => list.entries.push_back((id, tag, handle)),
                    Err(error) => {
                        assert_eq!(error, TagError::ListFull { entries: CAPACITY.tags });
                        assert_eq!(list.entries.len(), CAPACITY.tags as usize);
                        *found.entry("full").or_default() += 1;
                    }
                }
            }
            2 if !list.entries.is_empty() => {
                let at = random.below(list.entries.len() as u32) as usize;
                let (_, _, handle) = list.entries.remove(at).unwrap();
                assert!(matcher.remove(handle));
                *found.entry("removed").or_default() += 1;
            }
            _ => {
                let tag = u64::from(random.below(4));
                let sender = &mut senders[random.below(3) as usize];
                let length = random.below(100) as usize;
                let bytes = random.bytes(length);
                sender.eager(TagHeader::eager(tag), &bytes);
                let at = list.entries.iter().position(|(_, entry, _)| entry.matches(tag));
                match at.and_then(|at| list.entries.remove(at)) {
                    Some((id, ..)) => {
                        assert_eq!(matcher.arrived(), (id, bytes));
                        *found.entry("matched").or_default() += 1;
                    }
                    None => {
                        let (_, header, rest) = matcher.unexpected();
                        assert_eq!((header.tag, rest), (tag, bytes));
                        *found.entry("unexpected").or_default() += 1;
                        if matcher.tags.needs_sync() || random.below(2) == 0 {
                            matcher.sync();
                        }
                    }
                }
            }
        }
        assert_eq!(matcher.tags.entries() as usize, list.entries.len());
    }
    assert_eq!(matcher.poll(), None);
    assert_eq!(found.len(), 4, "{found:?}");
}
