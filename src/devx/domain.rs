//! Domains: objects that consist of a number only, to which other objects belong.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    alloc_pd_in, alloc_pd_out, alloc_transport_domain_in, alloc_transport_domain_out,
    alloc_xrcd_in, alloc_xrcd_out, opcode,
};

use super::{Command, Object};
use crate::error::Result;
use crate::ring::source::DomainId;
use crate::verbs::{self, Context};

pub(crate) mod sealed {
    use std::any::Any;

    use crate::error::Result;
    use crate::ring::source::DomainId;
    use crate::verbs::Context;

    /// An object with a number, made by verbs or by command.
    pub trait Numbered {
        /// Returns the device.
        fn context(&self) -> &Context;
        /// Returns the number by which commands name it.
        ///
        /// # Errors
        /// For a verbs object: the error of querying libmlx5 for the number.
        fn number(&self) -> Result<u32>;
        /// Returns an owner that keeps the object alive.
        fn keep(&self) -> Box<dyn Any + Send + Sync>;
        /// Returns an identifier that is unique as long as the object exists.
        fn id(&self) -> DomainId;
    }
}
pub(crate) use sealed::Numbered;

/// A domain that an object of a builder will belong to.
pub(super) struct Home {
    /// By which commands name it, or why it cannot be found out.
    pub(super) number: Result<u32>,
    pub(super) id: DomainId,
    /// Keeps the domain alive.
    pub(super) owner: Box<dyn Any + Send + Sync>,
}

impl Home {
    pub(super) fn of(domain: &dyn Domain) -> Home {
        Home { number: domain.number(), id: domain.id(), owner: domain.keep() }
    }
}

/// A protection domain, made by verbs or by command, to which memory keys and queues belong.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::devx::{DevxMkey, DevxPd, Domain};
///
/// /// A key that a send queue will configure, in a domain of either kind.
/// fn key(pd: &dyn Domain) -> mlx5::Result<DevxMkey> {
///     DevxMkey::builder(pd).free(4)
/// }
/// assert_ne!(key(&pd)?.lkey(), key(&DevxPd::new(&context)?)?.lkey());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Domain: Numbered {}

impl Domain for verbs::ProtectionDomain {}
impl Numbered for verbs::ProtectionDomain {
    fn context(&self) -> &Context {
        self.context()
    }

    fn number(&self) -> Result<u32> {
        self.number()
    }

    fn keep(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(self.clone())
    }

    fn id(&self) -> DomainId {
        self.id()
    }
}

impl Domain for DevxPd {}

macro_rules! domain {
    ($(#[$meta:meta])* $name:ident, $create:ident, $size:ident, $number:ident::$field:ident) => {
        $(#[$meta])*
        ///
        /// Clones are cheap and name the same domain. It is freed after its last clone, and the
        /// last object that uses it, are dropped.
        #[derive(Clone)]
        pub struct $name {
            object: Arc<Object>,
            number: u32,
        }

        impl $name {
            /// Creates a new domain. One call into the kernel.
            ///
            /// # Errors
            /// - [`Error::Refused`](crate::Error::Refused) by the HCA,
            ///   [`Error::Withheld`](crate::Error::Withheld) by the kernel.
            /// - [`Error::NoDevx`](crate::Error::NoDevx) if the context may give no commands.
            /// - [`Error::Attribute`](crate::Error::Attribute) if the command cannot be sent.
            pub fn new(context: &Context) -> Result<Self> {
                let command = Command::new(opcode::$create, $size::SIZE);
                // SAFETY: a domain names no other object, and gives access to no memory.
                let object = unsafe { command.create(context)? };
                let number = object.reply().get($number::$field) as u32;
                Ok(Self { object: Arc::new(object), number })
            }

            /// Returns its number, by which commands name it. 24 bits.
            pub fn number(&self) -> u32 {
                self.number
            }

            /// Returns the device.
            pub fn context(&self) -> &Context {
                self.object.context()
            }

            /// Returns the object behind it, for commands that this crate does not wrap.
            pub fn object(&self) -> &Object {
                &self.object
            }
        }

        impl Numbered for $name {
            fn context(&self) -> &Context {
                self.context()
            }

            fn number(&self) -> Result<u32> {
                Ok(self.number)
            }

            fn keep(&self) -> Box<dyn Any + Send + Sync> {
                Box::new(self.object.clone())
            }

            fn id(&self) -> DomainId {
                DomainId::at(Arc::as_ptr(&self.object))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("number", &format_args!("{:#x}", self.number))
                    .finish_non_exhaustive()
            }
        }
    };
}

domain! {
    /// A protection domain made by command (`ALLOC_PD`): its queues only reach the memory of its
    /// keys. Objects made by command accept it wherever they accept a verbs domain.
    ///
    /// See the example on [`Domain`].
    #[doc(alias = "MLX5_CMD_OP_ALLOC_PD")]
    DevxPd, ALLOC_PD, alloc_pd_in, alloc_pd_out::PD
}

domain! {
    /// A domain of extended reliable connections made by command (`ALLOC_XRCD`). It belongs to one
    /// process: other processes cannot open it.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// use mlx5::devx::DevxXrcd;
    /// use mlx5::verbs::{CompletionQueue, SharedReceiveQueue};
    ///
    /// let domain = DevxXrcd::new(&context)?;
    /// let cq = CompletionQueue::by_command(&context, 128).build()?;
    /// let srq = SharedReceiveQueue::by_command(&pd).xrc(&domain, &cq).build()?;
    /// assert!(srq.number()? > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "MLX5_CMD_OP_ALLOC_XRCD")]
    DevxXrcd, ALLOC_XRCD, alloc_xrcd_in, alloc_xrcd_out::XRCD
}

domain! {
    /// A transport domain (`ALLOC_TRANSPORT_DOMAIN`), to which Ethernet's sending interfaces
    /// ([`Tis`](super::Tis)) and receiving interfaces ([`Tir`](super::Tir)) belong.
    ///
    /// See the example on [`Tir`](super::Tir).
    #[doc(alias = "MLX5_CMD_OP_ALLOC_TRANSPORT_DOMAIN")]
    TransportDomain, ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain_in,
    alloc_transport_domain_out::TRANSPORT_DOMAIN
}
