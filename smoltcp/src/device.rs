//! The device: packets of one session.

use std::fmt;
use std::time::Duration;

use mlx5::endpoint::{MrSlice, Outcome, SendEndpoint};
use mlx5::ib::{Access, RawPacket};
use mlx5::packet::{Losses, Packet, PacketPort, PacketReceiver};
use mlx5::wqe::{EthSend, Inline};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::Session;

/// Bytes of the Ethernet header.
const HEADER: usize = 14;
/// EtherTypes.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Bytes of an IP packet that travel in the WQE. Longer ones are read from memory.
const INLINE: usize = 144;
/// Packets that may be on their way to the HCA.
const SENDS: usize = 256;
/// The MTU where no interface tells one.
const MTU: usize = 1500;

/// A device of smoltcp that carries one TCP session.
///
/// See the example on [the crate](crate).
pub struct SessionDevice {
    receiver: PacketReceiver,
    sender: Sender,
    session: Session,
    mtu: usize,
    damaged: u64,
    failed: Option<mlx5::Error>,
}

impl SessionDevice {
    /// Steers the packets of a session here.
    ///
    /// # Errors
    /// [`Error::Attribute`](mlx5::Error::Attribute) for a port without a network interface; the errors of
    /// making queues and rules, such as EPERM without `CAP_NET_RAW`.
    pub fn new(port: &PacketPort, session: Session) -> mlx5::Result<SessionDevice> {
        let mut receiver = port.receiver().slots(512).spare_slots(0).build()?;
        let rule = receiver.rule().tcp(session.remote(), session.local());
        receiver.steer(rule)?;
        let interface = port.interface();
        let mtu = interface.and_then(|interface| interface.mtu).map_or(MTU, |mtu| mtu as usize);
        let sender = Sender::new(port, &session, mtu)?;
        Ok(SessionDevice { receiver, sender, session, mtu, damaged: 0, failed: None })
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns how many packets had a wrong checksum, and were dropped.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Waits until a packet of the session is there, and returns whether there is one before `timeout`. It
    /// may return true without one. smoltcp has work to do without a packet after its `poll_delay`, so wait
    /// no longer. Programs that have a processor of their own poll instead.
    ///
    /// # Errors
    /// The errors of [`PacketReceiver::wait`].
    pub fn wait(&mut self, timeout: Duration) -> mlx5::Result<bool> {
        self.receiver.wait(timeout)
    }

    /// Returns how many packets of the session found no receive posted.
    ///
    /// # Errors
    /// The errors of [`PacketReceiver::losses`].
    pub fn losses(&self) -> mlx5::Result<Losses> {
        self.receiver.losses()
    }

    /// Returns the first error of the queues, since smoltcp's polls return none.
    ///
    /// # Errors
    /// That error: the device failed, or a packet was longer than the interface's MTU.
    pub fn check(&mut self) -> mlx5::Result<()> {
        match self.failed.take().or_else(|| self.sender.failed.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// A packet that has arrived, lent to smoltcp.
#[derive(Debug)]
pub struct RxToken<'a>(Packet<'a>);

/// The right to send a packet.
#[derive(Debug)]
pub struct TxToken<'a>(&'a mut Sender);

impl Device for SessionDevice {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        // smoltcp answers a packet with one of its own: without room for that, it waits.
        if !self.sender.has_room() {
            return None;
        }
        match self.receiver.poll(1).next()? {
            Ok(packet) if packet.fault().is_none() && packet.len() > HEADER => {
                Some((RxToken(packet), TxToken(&mut self.sender)))
            }
            Ok(_) => {
                self.damaged += 1;
                None
            }
            Err(error) => {
                self.failed.get_or_insert(error.into());
                None
            }
        }
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        self.sender.has_room().then_some(TxToken(&mut self.sender))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut checksum = ChecksumCapabilities::ignored();
        // The HCA leaves those of ICMP alone.
        checksum.icmpv4 = Checksum::Both;
        checksum.icmpv6 = Checksum::Both;
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ip;
        all.max_transmission_unit = self.mtu;
        all.checksum = checksum;
        all
    }
}

impl smoltcp::phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0[HEADER..])
    }
}

impl smoltcp::phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        self.0.send(length, work)
    }
}

/// The sending side.
struct Sender {
    endpoint: SendEndpoint<RawPacket>,
    header: [u8; HEADER],
    /// Requests that can be posted: their ids, each with memory for a packet of the MTU.
    free: Vec<(usize, MrSlice)>,
    /// The memory of each request on its way that the HCA does not read, by id.
    rests: Vec<Option<MrSlice>>,
    failed: Option<mlx5::Error>,
}

impl Sender {
    fn new(port: &PacketPort, session: &Session, mtu: usize) -> mlx5::Result<Sender> {
        let kind = if session.remote().is_ipv4() { IPV4 } else { IPV6 };
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&session.next_hop());
        header[6..12].copy_from_slice(&port.mac()?);
        header[12..].copy_from_slice(&kind);
        // One byte more than a packet has, so that each leaves a rest.
        let size = (mtu + 1).next_multiple_of(64);
        let region = port.pd().allocate(size * SENDS, Access::LOCAL_WRITE)?;
        let mut whole = MrSlice::new(region);
        let mut free: Vec<_> =
            (1..SENDS).rev().map(|id| (id, whole.split_off(id * size))).collect();
        free.push((0, whole));
        let builder = port.sender().requests(SENDS as u32);
        let endpoint = builder.max_inline_data((HEADER + INLINE) as u32).build()?;
        let rests = (0..SENDS).map(|_| None).collect();
        Ok(Sender { endpoint, header, free, rests, failed: None })
    }

    /// Takes completions, and returns whether a packet can be sent.
    fn has_room(&mut self) -> bool {
        for returned in self.endpoint.poll() {
            let returned = match returned {
                Ok(returned) => returned,
                Err(error) => {
                    self.failed.get_or_insert(error.into());
                    break;
                }
            };
            if let Outcome::Failed(failure) = returned.outcome {
                self.failed.get_or_insert(failure.into());
            }
            let id = returned.id as usize;
            let Some(rest) = self.rests.get_mut(id).and_then(Option::take) else { continue };
            self.free.push((id, whole(returned.buffers.one().ok(), rest)));
        }
        !self.free.is_empty()
    }

    /// Sends a packet of IP that `work` writes.
    fn send<R>(&mut self, length: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        // A token is made only where there is one.
        let Some((id, mut memory)) = self.free.pop() else { return work(&mut vec![0; length]) };
        let (result, refused) = if length <= INLINE {
            let mut bytes = [0; INLINE];
            let result = work(&mut bytes[..length]);
            let request = EthSend::new(Inline(&bytes[..length]));
            let request = request.header(&self.header).checksums().signaled();
            let posted = self.endpoint.post(id as u64, request);
            (result, posted.err().map(|refused| (refused.error, None)))
        } else {
            let rest = memory.split_off(length);
            // Nobody else may write it, so it is lent.
            let result = match memory.as_mut_slice() {
                Some(bytes) => work(bytes),
                None => work(&mut vec![0; length]),
            };
            let request = EthSend::new(std::mem::replace(&mut memory, rest));
            let request = request.header(&self.header).checksums().signaled();
            let posted = self.endpoint.post(id as u64, request);
            let refused = posted.err();
            (result, refused.map(|refused| (refused.error, Some(refused.operation.into_payload()))))
        };
        match refused {
            None => self.rests[id] = Some(memory),
            // As if it were lost on its way: TCP sends it again.
            Some((error, front)) => {
                self.failed.get_or_insert(error.into());
                self.free.push((id, whole(front, memory)));
            }
        }
        result
    }
}

/// Joins the memory of a packet with the rest behind it, if the packet had any.
fn whole(front: Option<MrSlice>, rest: MrSlice) -> MrSlice {
    match front {
        None => rest,
        // They were split, so they join.
        Some(front) => front.join(rest).unwrap_or_else(|(front, _)| front),
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("free", &self.free.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for SessionDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionDevice")
            .field("session", &self.session)
            .field("sender", &self.sender)
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}
