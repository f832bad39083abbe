use super::*;

#[test]
fn frame_reaches_the_process_that_has_a_prefix_after_another_one_ended() {
    let domain = format!("prefix-{}", std::process::id());
    let mut sender = Network::new(&domain, 1).unwrap();
    let mut ended = Network::new(&domain, 2).unwrap();
    let prefix = ended.claim(0).unwrap();
    let mut send = |byte: u8| {
        sender.send(prefix, Frame(vec![byte; 64]));
        sender.flush(&mut []);
    };
    send(1);
    let name = ended.name(&format!("{prefix:04x}"));
    drop(ended);
    let next = socket::listen(&name).unwrap();
    for byte in 2..4 {
        send(byte);
    }
    let connection = socket::accept(&next).expect("a new connection");
    let mut batch = Batch::new();
    let frames = batch.receive(&connection).unwrap();
    assert_eq!(frames.iter().map(|frame| frame.0[0]).collect::<Vec<_>>(), [2, 3]);

    // Nobody has the prefix: frames are lost, and the sender keeps nothing of the peer.
    drop((connection, next));
    sender.send(prefix, Frame(vec![4; 64]));
    sender.flush(&mut []);
    assert!(sender.peers.is_empty());
}
