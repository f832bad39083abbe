//! Errors compose: `?` takes every error of posting and polling to the error types of programs.

#![forbid(unsafe_code)]

use std::error::Error as StdError;
use std::time::{Duration, Instant};

use mlx5::Error;
use mlx5::connect::{ConnectError, LocalPort};
use mlx5::cqe::QueueKind;
use mlx5::endpoint::{Endpoint, EndpointError, MrSlice, Outcome, Receiver, Returned};
use mlx5::expert::{ProbeError, TagError};
use mlx5::ib::Access;
use mlx5::ring::{
    CqReader, DrainError, Excess, PollError, PostError, QueueError, ReceiveConfig, SendConfig,
};
use mlx5::verbs::attr::InitAttributes;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::{Inline, RdmaWrite, Remote, SendMessage};
use mlx5_model as _;

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the endpoint's inline payloads may be.
const TOO_LONG: [u8; 4096] = [7; 4096];

/// An endpoint that is connected to itself, and memory for its receives.
fn endpoint() -> mlx5::Result<(Endpoint, MrSlice)> {
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let qp = QueuePair::builder(&pd, &cq).max_inline_data(64).build()?.init(&local.init())?;
    let mut completions = CqReader::new(&cq)?;
    let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
    let mine = local.connection_data(&qp);
    let qp = qp.rtr(&local.rtr(&mine, &mine))?.rts(&local.rts(&mine, &mine))?;
    let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
    Ok((endpoint, MrSlice::new(pd.allocate(64, Access::LOCAL_WRITE)?)))
}

/// Polls until a request or a receive is back.
fn next(endpoint: &mut Endpoint) -> Result<Returned, EndpointError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(returned) = endpoint.poll().next() {
            return returned;
        }
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

/// A function that receives `text` from its own endpoint, with an error type of the caller's choice.
macro_rules! echo {
    ($name:ident, $error:ty) => {
        fn $name(endpoint: &mut Endpoint, memory: MrSlice, text: &[u8]) -> Result<Vec<u8>, $error> {
            endpoint.post_receive(1, memory)?;
            let mut batch = endpoint.batch();
            batch.append(2, SendMessage::new(Inline(text)).signaled())?;
            batch.ring();
            loop {
                let Returned { id, buffers, outcome } = next(endpoint)?;
                match outcome {
                    Outcome::Failed(failure) => return Err(failure.into()),
                    Outcome::Received(_) => {
                        let mut text = buffers.slices()[0].to_vec();
                        endpoint.post(3, RdmaWrite::new(Inline(&text), Remote::new(0, 0)))?;
                        text.truncate(5);
                        return Ok(text);
                    }
                    _ => assert_eq!(id, 2),
                }
            }
        }
    };
}

echo!(with_mlx5_error, mlx5::Error);
echo!(with_boxed_error, Box<dyn StdError>);
echo!(with_sendable_error, Box<dyn StdError + Send + Sync>);

#[test]
fn borrowed_payloads_are_posted_with_a_question_mark() {
    let text = String::from("hello");
    let (mut endpoint, memory) = self::endpoint().unwrap();
    assert_eq!(with_mlx5_error(&mut endpoint, memory, text.as_bytes()).unwrap(), b"hello");
    let (mut endpoint, memory) = self::endpoint().unwrap();
    assert_eq!(with_boxed_error(&mut endpoint, memory, text.as_bytes()).unwrap(), b"hello");
    let (mut endpoint, memory) = self::endpoint().unwrap();
    assert_eq!(with_sendable_error(&mut endpoint, memory, text.as_bytes()).unwrap(), b"hello");
}

#[test]
fn a_refused_request_becomes_its_post_error() {
    let long = TOO_LONG.to_vec();
    let (mut endpoint, memory) = self::endpoint().unwrap();
    let error = with_mlx5_error(&mut endpoint, memory, &long).unwrap_err();
    let Error::Post(expected) = error else { panic!("{error}") };
    let is_long = matches!(expected, PostError::InlineTooLong(by) if by.asked() == 4096);
    assert!(is_long, "{expected}");
    let (mut endpoint, memory) = self::endpoint().unwrap();
    let error = with_boxed_error(&mut endpoint, memory, &long).unwrap_err();
    assert_eq!(error.downcast_ref::<PostError>(), Some(&expected));
    let (mut endpoint, memory) = self::endpoint().unwrap();
    let error = with_sendable_error(&mut endpoint, memory, &long).unwrap_err();
    assert_eq!(error.downcast_ref::<PostError>(), Some(&expected));
    assert_eq!(error.to_string(), expected.to_string());
}

#[test]
fn an_owned_payload_is_taken_back_or_the_error_is_passed_on() {
    fn post(endpoint: &mut Endpoint, slice: MrSlice, remote: Remote) -> mlx5::Result<()> {
        endpoint.post(1, RdmaWrite::new(slice, remote))?;
        Ok(())
    }
    let (mut endpoint, _) = self::endpoint().unwrap();
    // Memory of another domain, which the queue refuses.
    let (_, foreign) = self::endpoint().unwrap();
    let remote = Remote::new(0, 0);
    let refused = endpoint.post(1, RdmaWrite::new(foreign, remote)).unwrap_err();
    let region = refused.operation.into_payload().into_region().unwrap();
    let error = post(&mut endpoint, MrSlice::new(region), remote).unwrap_err();
    assert!(matches!(error, Error::Post(PostError::PdMismatch)), "{error}");
}

#[test]
fn a_failed_request_is_an_error_like_others() {
    let (mut endpoint, _) = self::endpoint().unwrap();
    let nowhere = Remote::new(0x1000, 0x00ba_d000);
    endpoint.post(5, RdmaWrite::new(Inline(b"lost"), nowhere).signaled()).unwrap();
    let Outcome::Failed(failure) = next(&mut endpoint).unwrap().outcome else { panic!() };
    let error = Error::from(failure);
    assert!(matches!(error, Error::Failed(inner) if inner == failure), "{error}");
    assert_eq!(error.to_string(), failure.to_string());
    // The endpoint is its own peer, which refuses the request.
    assert!(error.to_string().contains("connected to itself"), "{error}");
}

#[test]
fn errors_of_polls_have_one_variant_each() {
    let error = Error::from(EndpointError::Poll(PollError::Overrun));
    assert!(matches!(error, Error::Poll(PollError::Overrun)), "{error}");
    let error = Error::from(PostError::WqeLength);
    assert!(matches!(error, Error::Post(PostError::WqeLength)), "{error}");
}

/// `main` prints the `Debug` of the error that it returns.
#[test]
fn debug_of_every_error_is_its_sentence() {
    fn sentence<E: StdError>(error: E) {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains(' '), "{error}");
    }
    let (mut endpoint, memory) = self::endpoint().unwrap();
    let refused = endpoint.post(1, SendMessage::new(Inline(&TOO_LONG))).unwrap_err();
    assert_eq!(format!("{refused:?}"), refused.to_string());
    sentence(PostError::from(refused));
    sentence(PostError::InlineTooLong(Excess::new(65, 64)));
    sentence(PollError::QueueNotGiven { qpn: 5, queue: QueueKind::Send });
    sentence(EndpointError::Poll(PollError::Overrun));
    sentence(PollError::DeviceFailed);
    sentence(PostError::DeviceFailed);
    sentence(DrainError::TimedOut { outstanding: 3 });
    sentence(TagError::ListFull { entries: 8 });
    sentence(ProbeError::SharedCq);
    sentence(QueueError::CqMismatch);
    sentence(ConnectError::NotThisProtocol { got: *b"HTTP" });
    sentence(Error::NotMlx5 { name: "mlx4_0".into() });
    sentence(Error::from(TagError::Gone));
    sentence(Context::open("absent").unwrap_err());
    let context = endpoint.queue_pair().context();
    let pd = ProtectionDomain::new(context).unwrap();
    let cq = CompletionQueue::new(context, 16).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    sentence(qp.init(&InitAttributes::new(99)).unwrap_err());
    sentence(pd.register(Vec::new(), Access::LOCAL_WRITE).unwrap_err());
    sentence(memory.into_region().unwrap().into_buffer::<Vec<u8>>().unwrap_err());
}

#[test]
fn refusals_of_a_full_queue_say_how_full_it_is() {
    let (mut endpoint, _) = self::endpoint().unwrap();
    let nowhere = Remote::new(0x1000, 0x00ba_d000);
    let slots = endpoint.send_queue().request_limit();
    let refused = loop {
        match endpoint.post(2, RdmaWrite::new(Inline(b"quiet"), nowhere)) {
            Ok(()) => {}
            Err(refused) => break refused.error,
        }
    };
    let silent = format!("none of those outstanding ({} blocks) is", slots - 1);
    assert!(refused.to_string().contains(&silent), "{refused}");
    assert!(refused.to_string().contains("signal this one, or call reclaim"), "{refused}");
    let full = PostError::QueueFull { free: 2 }.to_string();
    assert!(full.contains("the 2 entries that are free"), "{full}");
    let slots = PostError::CqFull { slots: 63 }.to_string();
    assert!(slots.contains("all 63 CQ slots"), "{slots}");
}
