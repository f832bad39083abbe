//! Datagram services and multicast groups.

use mlx5::Error;
use mlx5::connect::cm::{CmError, Identifier, JoinAs};
use mlx5::cqe::{Completion, ReceiveDone};
use mlx5::ring::{ReceiveQueue, SendQueue};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{AddressHandle, MemoryRegion, QueuePairBuilder};
use mlx5::wqe::{SendImm, UdAddress};

use super::*;

/// Bytes of a datagram's receive.
const WIDE: usize = ReceiveDone::HEADER_BYTES + ROOM;

/// A datagram queue pair, on the raw layer, with one receive posted.
struct Station {
    qp: QueuePair<Ud, Rts>,
    sends: SendQueue<Ud>,
    receives: ReceiveQueue,
    completions: CqReader,
    memory: MemoryRegion,
}

impl Station {
    fn new(pd: &ProtectionDomain, init: &UdInitAttributes) -> Station {
        let cq = CompletionQueue::new(pd.context(), 64).unwrap();
        let qp = QueuePairBuilder::<Ud>::new(pd, &cq).max_inline_data(ROOM as u32).build().unwrap();
        let qp = qp.init(init).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut receives = ReceiveQueue::new(&qp, &mut completions, config).unwrap();
        let qp = qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
        let sends = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        let memory = pd.allocate(WIDE, Access::LOCAL_WRITE).unwrap();
        let sge = memory.sge(0, WIDE).unwrap();
        // SAFETY: the memory is read when the receive is complete, and freed after the queue.
        unsafe { receives.post(0, sge).unwrap() };
        Station { qp, sends, receives, completions, memory }
    }

    fn say(&mut self, text: &str, to: &UdAddress) {
        let datagram = SendImm::new(Inline(text.as_bytes()), 5).signaled();
        // SAFETY: the text travels in the WQE, so the request names no memory.
        unsafe { self.sends.post(0, datagram.to(to)).unwrap() };
    }

    fn hear(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.completions.poll(&mut (&mut self.sends, &mut self.receives)).unwrap() {
                Some(Completion::Receive(done)) => {
                    let mut bytes = [0; WIDE];
                    self.memory.read(0, &mut bytes);
                    return String::from_utf8_lossy(&bytes[done.datagram()]).into_owned();
                }
                Some(Completion::Failed(failure)) => panic!("{failure}"),
                _ => std::thread::yield_now(),
            }
        }
        panic!("no datagram arrives");
    }
}

#[test]
fn a_datagram_service_is_found_by_address_and_port() {
    let mut listener = service();
    let id = resolved_service(address(&listener));
    let pd = domain(id.open().unwrap());
    let mut client = Station::new(&pd, &id.init().unwrap());
    let asked = id.look_up(b"who are you?").unwrap();
    let request = request(&mut listener);
    assert!(request.peer().private_data.starts_with(b"who are you?\0"));
    assert_eq!(request.peer().private_data.len(), 180);
    let init = request.init().unwrap();
    let mut server = Station::new(&pd, &init);
    request.accept(&server.qp, b"a station").unwrap();
    let mut found = asked.wait(PATIENCE).unwrap();
    found.try_event().unwrap();
    let service = found.service();
    assert_eq!((service.qpn, service.qkey), (server.qp.number(), init.qkey));
    assert!(service.private_data.starts_with(b"a station\0"));
    assert_eq!(service.private_data.len(), 136);
    let handle = AddressHandle::new(&pd, &service.address).unwrap();
    client.say("hello", &UdAddress::new(&handle, service.qpn, service.qkey));
    assert_eq!(server.hear(), "hello");
}

#[test]
fn a_service_that_refuses_and_one_that_is_not_there_are_told_apart() {
    let mut listener = service();
    let to = address(&listener);
    let asked = resolved_service(to).look_up(b"").unwrap();
    request(&mut listener).reject(b"closed").unwrap();
    let answer = |error| match error {
        Error::Cm(CmError::NoService { status, private_data, .. }) => (status, private_data),
        error => panic!("{error}"),
    };
    let (status, private_data) = answer(asked.wait(PATIENCE).unwrap_err());
    assert_eq!(status, 2);
    assert!(private_data.starts_with(b"closed\0"), "{private_data:?}");
    drop(listener);
    let asked = resolved_service(to).look_up(b"").unwrap();
    assert_eq!(answer(asked.wait(PATIENCE).unwrap_err()).0, 1);
}

#[test]
fn private_data_of_datagram_services_has_limits_of_its_own() {
    let mut listener = service();
    let error = resolved_service(address(&listener)).look_up(&[1; 181]).unwrap_err();
    assert!(error.to_string().contains("at most 180"), "{error}");
    let id = resolved_service(address(&listener));
    let pd = domain(id.open().unwrap());
    let _asked = id.look_up(&[1; 180]).unwrap();
    let request = request(&mut listener);
    assert_eq!(request.peer().private_data, [1; 180]);
    let server = Station::new(&pd, &request.init().unwrap());
    let error = request.accept(&server.qp, &[2; 137]).unwrap_err();
    assert!(error.to_string().contains("at most 136"), "{error}");
}

#[test]
fn every_member_of_a_group_receives() {
    let [.., high, low] = std::process::id().to_be_bytes();
    let group = std::net::IpAddr::from([239, 11, high, low]);
    let join = || {
        let id = Identifier::datagrams().unwrap();
        let from = "127.0.0.1:0".parse().ok();
        let id = id.resolve_address(from, (group, 0).into(), PATIENCE).unwrap();
        let id = id.wait(PATIENCE).unwrap();
        id.join(group, JoinAs::Member).unwrap().wait(PATIENCE).unwrap()
    };
    let members = [join(), join()];
    let pd = domain(members[0].open().unwrap());
    let mut stations = members.each_ref().map(|id| Station::new(&pd, &id.init().unwrap()));
    let mut attached = Vec::new();
    for (id, station) in members.iter().zip(&stations) {
        attached.push(station.qp.attach_multicast(id.group().gid, id.group().lid).unwrap());
    }
    let sender = join();
    let handle = AddressHandle::new(&pd, &sender.group().address).unwrap();
    let everybody = UdAddress::multicast(&handle, sender.group().qkey);
    let mut speaker = Station::new(&pd, &sender.init().unwrap());
    speaker.say("to all", &everybody);
    for station in &mut stations {
        assert_eq!(station.hear(), "to all");
    }
    for id in members {
        assert_eq!(id.group(), sender.group());
        id.leave().unwrap();
    }
}

#[test]
fn only_multicast_addresses_are_joined() {
    let listener = service();
    let id = Identifier::datagrams().unwrap();
    let id =
        id.resolve_address(None, address(&listener), PATIENCE).unwrap().wait(PATIENCE).unwrap();
    let error = id.join("192.0.2.1".parse().unwrap(), JoinAs::Member).unwrap_err();
    assert!(matches!(error, Error::Attribute { attribute: "multicast group", .. }), "{error}");
}

#[test]
fn ipv6_groups_are_joined_on_infiniband_only() {
    let group: std::net::IpAddr = "ff12::4d:6c:35".parse().unwrap();
    let listener = service();
    let id = Identifier::datagrams().unwrap();
    let id = id.resolve_address(None, address(&listener), PATIENCE).unwrap();
    let joined = id.wait(PATIENCE).unwrap().join(group, JoinAs::Member);
    if std::env::var("MLX5_MODEL_LINK").as_deref() == Ok("roce") {
        let text = joined.unwrap_err().to_string();
        assert!(text.contains("524") && text.contains("IPv4 groups only"), "{text}");
    } else {
        joined.unwrap().wait(PATIENCE).unwrap();
    }
}
