//! Ports of Ethernet.

use super::{PacketReceiverBuilder, PacketSenderBuilder};
use crate::diag::sysfs::Interface;
use crate::error::{Error, Result};
use crate::verbs::{Context, ProtectionDomain, devices};

/// A port of Ethernet, with a protection domain for the memory of its packets. Clones are cheap and name
/// the same port.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::packet::PacketPort;
///
/// let port = PacketPort::new(&context, 1)?;
/// let interface = port.interface().ok_or("no interface")?;
/// println!("{} of {}, {:?}", interface.name, port.context().name(), interface.mtu);
/// assert_eq!(PacketPort::open(&interface.name)?.number(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PacketPort {
    pd: ProtectionDomain,
    number: u8,
    interface: Option<Interface>,
}

impl PacketPort {
    /// Opens the port whose network interface has that name.
    ///
    /// # Errors
    /// - [`Error::Attribute`] with the interfaces of all ports if none has it. A VLAN or a bond on top of
    ///   an interface is not one of these.
    /// - The errors of [`Device::open`](crate::verbs::Device::open) and [`new`](Self::new).
    pub fn open(interface: &str) -> Result<PacketPort> {
        let mut present = Vec::new();
        for device in devices()?.into_iter().filter(crate::verbs::Device::is_mlx5) {
            for (port, name) in Interface::of_device(&device.sysfs_path()) {
                if name == interface {
                    return PacketPort::new(&device.open()?, port);
                }
                present.push(name);
            }
        }
        let rule = match present.join(", ") {
            none if none.is_empty() => "no mlx5 device has a network interface here: ports of \
                                        InfiniBand have none, and others may have theirs in \
                                        another network namespace"
                .to_owned(),
            present => format!("a network interface of an mlx5 device: {present}"),
        };
        Err(Error::attribute("interface", interface, rule))
    }

    /// Takes port `number`, from 1, of a device.
    ///
    /// # Errors
    /// [`Error::NoSuchPort`]; [`Error::Attribute`] for a port that is not of Ethernet; [`Error::Call`].
    pub fn new(context: &Context, number: u8) -> Result<PacketPort> {
        if !context.port(number)?.is_ethernet() {
            let rule = "a port of Ethernet: this one is of InfiniBand, which has no such packets";
            return Err(Error::attribute("port", number, rule));
        }
        let pd = ProtectionDomain::new(context)?;
        let names = Interface::of_device(&context.sysfs_path());
        let name = names.into_iter().find(|(port, _)| *port == number).map(|(_, name)| name);
        let interface = name.as_deref().and_then(Interface::named);
        Ok(PacketPort { pd, number, interface })
    }

    /// Creates a builder for a receiver. Default: 1,024 slots, each for the longest packet of the
    /// interface's MTU, and 64 more slots for packets that the program keeps.
    ///
    /// A feed comes in bursts of short packets. `striding(64, 512).slots(128)` has room for 32,768 of
    /// them.
    pub fn receiver(&self) -> PacketReceiverBuilder {
        PacketReceiverBuilder::new(self)
    }

    /// Creates a builder for an endpoint that sends. Default: 256 requests with up to 192 bytes in
    /// their WQE. Its requests are [`EthSend`](crate::wqe::EthSend),
    /// [`EthMultiPacket`](crate::wqe::EthMultiPacket), [`EthTso`](crate::wqe::EthTso) and
    /// [`WaitUntil`](crate::wqe::WaitUntil).
    ///
    /// A sender that is dropped takes what it has not sent with it. Before that, signal the last request,
    /// and poll until `send_queue().is_idle()`.
    pub fn sender(&self) -> PacketSenderBuilder {
        PacketSenderBuilder::new(self)
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.pd.context()
    }

    /// Returns the protection domain, in which a program registers what it sends.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the port's number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the Ethernet address of its interface.
    ///
    /// # Errors
    /// [`Error::Attribute`] if the port has no network interface here.
    pub fn mac(&self) -> Result<[u8; 6]> {
        let text = self.interface.as_ref().and_then(|interface| interface.mac.as_deref());
        let bytes: Option<Vec<u8>> = text.and_then(|text| {
            text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
        });
        bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
            let rule = "its network interface is not in /sys/class/net: it is in another network \
                        namespace, or sysfs is that of another one (mount -t sysfs sysfs /sys)";
            Error::attribute("port", self.number, rule)
        })
    }

    /// Returns the network interface, as it was when the port was taken. `None` if it has none here: it
    /// may be in another network namespace.
    pub fn interface(&self) -> Option<&Interface> {
        self.interface.as_ref()
    }
}
