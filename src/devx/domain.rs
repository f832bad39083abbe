//! Domains: objects that are nothing but a number to which others belong.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use mlx5_sys::ifc::{
    alloc_pd_in, alloc_pd_out, alloc_transport_domain_in, alloc_transport_domain_out,
    alloc_xrcd_in, alloc_xrcd_out, opcode,
};

use super::{Command, Object};
use crate::verbs::{self, Context, DomainId, Result};

pub(crate) mod sealed {
    use std::any::Any;

    use crate::verbs::{Context, DomainId, Result};

    /// What stands behind a number, whoever made it.
    pub trait Numbered {
        /// The device it belongs to.
        fn context(&self) -> &Context;
        /// The number, by which commands name it.
        ///
        /// # Errors
        /// Of an object of verbs: what asking libmlx5 for it failed with.
        fn number(&self) -> Result<u32>;
        /// What keeps it alive.
        fn keep(&self) -> Box<dyn Any + Send + Sync>;
        /// Tells it from others, as long as it lives.
        fn id(&self) -> DomainId;
    }
}
pub(crate) use sealed::Numbered;

/// A protection domain, of verbs or made by command: what memory keys and queues belong to.
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

impl Domain for ProtectionDomain {}

macro_rules! domain {
    ($(#[$meta:meta])* $name:ident, $create:ident, $size:ident, $number:ident::$field:ident) => {
        $(#[$meta])*
        ///
        /// Clones are cheap and name the same domain, which goes when the last of them, and the last
        /// object that stands on it, is gone.
        #[derive(Clone)]
        pub struct $name {
            object: Arc<Object>,
            number: u32,
        }

        impl $name {
            /// A new domain. One call into the kernel.
            ///
            /// # Errors
            /// Those of [`Command::create`].
            pub fn new(context: &Context) -> Result<Self> {
                let command = Command::new(opcode::$create, $size::SIZE);
                // SAFETY: a domain names no other object, and gives access to no memory.
                let object = unsafe { command.create(context)? };
                let number = object.reply().get($number::$field) as u32;
                Ok(Self { object: Arc::new(object), number })
            }

            /// Its number, by which commands name it. 24 bits.
            pub fn number(&self) -> u32 {
                self.number
            }

            /// The device it belongs to.
            pub fn context(&self) -> &Context {
                self.object.context()
            }

            /// The object behind it, for commands that this crate does not wrap.
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
    /// A protection domain made by command (`ALLOC_PD`): its queues reach the memory of its keys, and
    /// no other. Whatever takes one by verbs takes this too, if it is itself made by command.
    ProtectionDomain, ALLOC_PD, alloc_pd_in, alloc_pd_out::PD
}

domain! {
    /// A domain of extended reliable connections made by command (`ALLOC_XRCD`): of one process, as
    /// nothing leads other processes to it.
    XrcDomain, ALLOC_XRCD, alloc_xrcd_in, alloc_xrcd_out::XRCD
}

domain! {
    /// A transport domain (`ALLOC_TRANSPORT_DOMAIN`): what Ethernet's interfaces belong to, those that
    /// send ([`Tis`](super::Tis)) and those that receive ([`Tir`](super::Tir)).
    TransportDomain, ALLOC_TRANSPORT_DOMAIN, alloc_transport_domain_in,
    alloc_transport_domain_out::TRANSPORT_DOMAIN
}
