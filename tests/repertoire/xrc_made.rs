//! Features of extended reliable connections that only verbs have: domains shared by contexts.

use std::fs::File;

use mlx5::cqe::Completion;
use mlx5::verbs::{Context, XrcDomain, XrcOpen};
use mlx5::wqe::{Inline, SendMessage, XrcAddress};
use mlx5_model::Mode;

use super::xrc::{connection, receiver};
use rig::{Rig, wait};

#[test]
fn a_domain_behind_a_file_is_found_by_every_context_that_opens_it() {
    let rig = Rig::new(Mode::Trapped);
    let path = std::env::temp_dir().join(format!("mlx5-xrc-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let refused = XrcDomain::of_file(&rig.context, &file, XrcOpen::Existing).unwrap_err();
    assert!(refused.to_string().contains("no process has a domain"), "{refused}");
    let first = XrcDomain::of_file(&rig.context, &file, XrcOpen::New).unwrap();
    let refused = XrcDomain::of_file(&rig.context, &file, XrcOpen::New).unwrap_err();
    assert!(refused.to_string().contains("has a domain already"), "{refused}");
    // A target of one context, and a shared receive queue of another.
    let other = Rig { context: Context::open_first().unwrap(), ..Rig::new(Mode::Trapped) };
    let other = Rig { pd: mlx5::verbs::ProtectionDomain::new(&other.context).unwrap(), ..other };
    let second = XrcDomain::of_file(&other.context, &file, XrcOpen::Existing).unwrap();
    let mut receiver = receiver(&other, &second);
    let (mut line, target) = connection(&rig, &first);
    let memory = other.memory(4096);
    let sge = memory.sge(0, 64).unwrap();
    let to = XrcAddress::new(receiver.number);
    // SAFETY: the memory lives to the end; the payload is copied.
    unsafe {
        receiver.shared.post(1, sge).unwrap();
        line.send.post(2, SendMessage::new(Inline(b"across contexts")).signaled().to(to)).unwrap();
    }
    assert_eq!(line.done().0, 2);
    match wait(&mut receiver.completions, &mut receiver.shared) {
        Completion::Receive(done) => assert_eq!((done.id, done.qpn), (1, target.number())),
        other => panic!("{other:?}"),
    }
    let mut bytes = [0; 15];
    memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"across contexts");
    // The last one takes the domain with it.
    drop((target, first, receiver, second));
    let refused = XrcDomain::of_file(&rig.context, &file, XrcOpen::Existing).unwrap_err();
    assert!(refused.to_string().contains("no process has a domain"), "{refused}");
    std::fs::remove_file(path).unwrap();
}
