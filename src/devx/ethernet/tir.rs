//! Transport interfaces for receiving (TIR).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mlx5_sys::ifc::{
    Field, create_tir_in, create_tir_out, modify_tir_bitmask, modify_tir_in, opcode, query_tir_in,
    query_tir_out, rx_hash_field_select, tirc,
};

use super::super::{Command, Object, TransportDomain};
use super::{Rq, Rqt};
use crate::error::{Error, Result};
use crate::verbs::flow::sealed::{Place, Target};
use crate::verbs::{Context, FlowTarget};

/// `MLX5_TIRC_DISP_TYPE_INDIRECT`
const INDIRECT: u64 = 1;
/// `MLX5_RX_HASH_FN_TOEPLITZ`
const TOEPLITZ: u64 = 2;
/// The size of a hash key in bytes, and its place in the context (`tirc`, `rx_hash_toeplitz_key`).
const KEY: usize = 40;
const KEY_AT: usize = 0x28;

/// A transport interface for receiving (`CREATE_TIR`). It steers the packets of a
/// [`verbs::Flow`](crate::verbs::Flow) to one receive queue, or spreads them by a hash among those
/// of a table.
///
/// Clones are cheap and name the same interface. It is destroyed after its last clone, and the last
/// flow that uses it, are dropped.
///
/// ```
/// # // SAFETY: no other thread runs yet.
/// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::devx::{Rq, Rqt, RssHash, Tir, TransportDomain};
/// use mlx5::verbs::Flow;
///
/// // Connections of TCP spread over two queues, by a hash under a key of 40 bytes.
/// let [one, two] = [Rq::builder(&pd, &cq).build()?, Rq::builder(&pd, &cq).build()?];
/// let table = Rqt::new(&[&one, &two], 2)?;
/// let domain = TransportDomain::new(&context)?;
/// let tir = Tir::spread(&domain, &table, &[0x6d; 40], RssHash::Ipv4Tcp)?;
/// let _flow = Flow::builder(1).destination([2, 0, 0, 0, 0, 7]).build(&tir)?;
/// assert_eq!(table.list()?, [one.number(), two.number()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MLX5_CMD_OP_CREATE_TIR", "MLX5_CMD_OP_DESTROY_TIR"))]
#[derive(Clone)]
pub struct Tir {
    inner: Arc<TirInner>,
}

struct TirInner {
    object: Object,
    number: u32,
    /// The table that it steers to, dropped after it.
    table: Option<Mutex<Rqt>>,
}

/// The header fields that the hash covers. The packets of one connection go to one queue.
///
/// See the example on [`Tir`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RssHash {
    /// The addresses of IPv4.
    Ipv4,
    /// The addresses of IPv4 and the ports of TCP.
    Ipv4Tcp,
    /// The addresses of IPv4 and the ports of UDP.
    Ipv4Udp,
    /// The addresses of IPv6.
    Ipv6,
    /// The addresses of IPv6 and the ports of TCP.
    Ipv6Tcp,
    /// The addresses of IPv6 and the ports of UDP.
    Ipv6Udp,
}

impl RssHash {
    /// Returns the values of `rx_hash_field_select`: IP version, protocol, and the fields.
    fn fields(self) -> [(Field, u64); 3] {
        /// `MLX5_HASH_FIELD_SEL_{SRC_IP, DST_IP}`, `_{L4_SPORT, L4_DPORT}`
        const ADDRESSES: u64 = 0b0011;
        const PORTS: u64 = 0b1100;
        let (version, protocol, selected) = match self {
            Self::Ipv4 => (0, 0, ADDRESSES),
            Self::Ipv4Tcp => (0, 0, ADDRESSES | PORTS),
            Self::Ipv4Udp => (0, 1, ADDRESSES | PORTS),
            Self::Ipv6 => (1, 0, ADDRESSES),
            Self::Ipv6Tcp => (1, 0, ADDRESSES | PORTS),
            Self::Ipv6Udp => (1, 1, ADDRESSES | PORTS),
        };
        [
            (rx_hash_field_select::L3_PROT_TYPE, version),
            (rx_hash_field_select::L4_PROT_TYPE, protocol),
            (rx_hash_field_select::SELECTED_FIELDS, selected),
        ]
    }
}

/// Sets the hash in a command with the context at `at`.
fn spread(command: Command, at: Field, key: &[u8; KEY], by: RssHash) -> Command {
    let outer = tirc::RX_HASH_FIELD_SELECTOR_OUTER.within(at);
    let whole = Field::named("RX_HASH_TOEPLITZ_KEY", KEY_AT, 31, KEY * 8).within(at);
    command.set(tirc::RX_HASH_FN.within(at), TOEPLITZ).bytes(whole, key).fields(outer, by.fields())
}

impl Tir {
    /// Creates a TIR that steers to one receive queue. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] for a queue or table of another opened device, or if the command
    ///   cannot be sent.
    pub fn direct(domain: &TransportDomain, rq: &Rq) -> Result<Tir> {
        domain.context().require_same("receive queue", rq.context().as_raw())?;
        let command = Command::new(opcode::CREATE_TIR, create_tir_in::SIZE)
            .set(tirc::INLINE_RQN.within(create_tir_in::CTX), rq.number());
        Self::make(domain, command, rq.clone(), None)
    }

    /// Creates a TIR that spreads packets among the queues of a table, by a Toeplitz hash with
    /// `key`. Packets without such headers go to the first queue. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    /// - [`Error::NoDevx`] if the context may give no commands.
    /// - [`Error::Attribute`] for a queue or table of another opened device, or if the command
    ///   cannot be sent.
    pub fn spread(
        domain: &TransportDomain,
        table: &Rqt,
        key: &[u8; KEY],
        by: RssHash,
    ) -> Result<Tir> {
        domain.context().require_same("table", table.context().as_raw())?;
        let field = |field: Field| field.within(create_tir_in::CTX);
        let command = Command::new(opcode::CREATE_TIR, create_tir_in::SIZE)
            .set(field(tirc::DISP_TYPE), INDIRECT)
            .set(field(tirc::INDIRECT_TABLE), table.number());
        let command = spread(command, create_tir_in::CTX, key, by);
        Self::make(domain, command, (), Some(Mutex::new(table.clone())))
    }

    fn make(
        domain: &TransportDomain,
        command: Command,
        keep: impl std::any::Any + Send + Sync,
        table: Option<Mutex<Rqt>>,
    ) -> Result<Tir> {
        let command = command
            .set(tirc::TRANSPORT_DOMAIN.within(create_tir_in::CTX), domain.number())
            .reply(create_tir_out::SIZE);
        // SAFETY: the TIR keeps what it names, its domain and a queue or table, and gives access to
        // no memory itself.
        let mut object = unsafe { command.create(domain.context())? };
        object.keep((keep, domain.clone()));
        let number = object.reply().get(create_tir_out::TIRN) as u32;
        Ok(Tir { inner: Arc::new(TirInner { object, number, table }) })
    }

    /// Returns its number. 24 bits.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Makes it steer to another table from now on. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for a TIR that steers to a single queue, or a table of another opened
    ///   device.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn set_table(&self, table: &Rqt) -> Result<()> {
        self.context().require_same("table", table.context().as_raw())?;
        let mut now = self.table()?.lock().unwrap_or_else(PoisonError::into_inner);
        let command = Command::new(opcode::MODIFY_TIR, modify_tir_in::SIZE)
            .set(modify_tir_in::TIRN, self.number())
            .set(modify_tir_bitmask::INDIRECT_TABLE.within(modify_tir_in::BITMASK), 1u32)
            .set(tirc::INDIRECT_TABLE.within(modify_tir_in::CTX), table.number());
        // SAFETY: the TIR keeps the table it named before and, from the next line on, the table it
        // names now. No queue changes.
        unsafe { self.inner.object.modify(&command)? };
        *now = table.clone();
        Ok(())
    }

    /// Changes the hash from now on. One call into the kernel.
    ///
    /// # Errors
    /// - [`Error::Attribute`] for a TIR that steers to a single queue.
    /// - [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn set_spread(&self, key: &[u8; KEY], by: RssHash) -> Result<()> {
        self.table()?;
        let command = Command::new(opcode::MODIFY_TIR, modify_tir_in::SIZE)
            .set(modify_tir_in::TIRN, self.number())
            .set(modify_tir_bitmask::HASH.within(modify_tir_in::BITMASK), 1u32);
        let command = spread(command, modify_tir_in::CTX, key, by);
        // SAFETY: the only selected field says how packets are hashed.
        unsafe { self.inner.object.modify(&command) }.map(|_| ())
    }

    fn table(&self) -> Result<&Mutex<Rqt>> {
        self.inner.table.as_ref().ok_or_else(|| {
            let rule = "it leads to one receive queue, and spreads nothing";
            Error::attribute("TIR", format_args!("{:#x}", self.number()), rule)
        })
    }

    /// Returns its context as the HCA shows it, laid out as [`tirc`](super::super::ifc::tirc). One
    /// call into the kernel.
    ///
    /// # Errors
    /// [`Error::Refused`] by the HCA, [`Error::Withheld`] by the kernel.
    pub fn query(&self) -> Result<Vec<u8>> {
        let query = Command::new(opcode::QUERY_TIR, query_tir_in::SIZE)
            .set(query_tir_in::TIRN, self.number())
            .reply(query_tir_out::SIZE);
        Ok(self.inner.object.query(&query)?.bytes(query_tir_out::TIR_CONTEXT).to_vec())
    }

    /// Returns the device.
    pub fn context(&self) -> &Context {
        self.inner.object.context()
    }

    /// Returns the object behind it, for commands that this crate does not wrap.
    pub fn object(&self) -> &Object {
        &self.inner.object
    }
}

impl fmt::Debug for Tir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tir")
            .field("number", &format_args!("{:#x}", self.number()))
            .finish_non_exhaustive()
    }
}

impl FlowTarget for Tir {}
impl Target for Tir {
    fn place(&self) -> Place {
        Place::Object(self.object().as_raw())
    }

    fn device(&self) -> &Context {
        self.context()
    }

    fn keep(&self) -> Box<dyn Send + Sync> {
        Box::new(self.clone())
    }
}
