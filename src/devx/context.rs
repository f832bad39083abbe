//! Contexts of objects, as the HCA reports them.

use std::fmt;

use mlx5_sys::ifc::{
    self, Field, Layout, create_cq_out, create_dct_out, create_mkey_out, create_qp_out,
    create_rmp_out, create_rq_out, create_rqt_out, create_sq_out, create_srq_out, create_tir_out,
    create_tis_out, create_xrc_srq_out, create_xrq_out, opcode,
};

use super::command::{Command, Reply};
use mlx5_diag::text::Structure;

/// The command that queries the context of a kind of object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    /// The command that makes such an object, and the number's place in its reply.
    pub made_by: u16,
    pub made: Field,
    opcode: u16,
    input: usize,
    /// The place of the object's number in the command.
    number: Field,
    output: usize,
    /// The place of the context in the reply.
    context: Field,
    layout: &'static Layout,
}

/// The most entries of a receive queue table that are queried.
const MOST_ENTRIES: usize = 1 << 12;

macro_rules! queries {
    ($($create:ident $out:ident::$made:ident => $query:ident $input:ident::$number:ident, $output:ident::$context:ident: $layout:ident;)*) => {
        &[$(Query {
            made_by: opcode::$create,
            made: $out::$made,
            opcode: opcode::$query,
            input: ifc::$input::SIZE,
            number: ifc::$input::$number,
            output: ifc::$output::SIZE,
            context: ifc::$output::$context,
            layout: &ifc::$layout::LAYOUT,
        }),*]
    };
}

const QUERIES: &[Query] = queries! {
    CREATE_QP create_qp_out::QPN => QUERY_QP query_qp_in::QPN, query_qp_out::QPC: qpc;
    CREATE_CQ create_cq_out::CQN => QUERY_CQ query_cq_in::CQN, query_cq_out::CQ_CONTEXT: cqc;
    CREATE_RMP create_rmp_out::RMPN => QUERY_RMP query_rmp_in::RMPN, query_rmp_out::RMP_CONTEXT: rmpc;
    CREATE_SRQ create_srq_out::SRQN => QUERY_SRQ query_srq_in::SRQN, query_srq_out::SRQ_CONTEXT_ENTRY: srqc;
    CREATE_XRC_SRQ create_xrc_srq_out::XRC_SRQN => QUERY_XRC_SRQ query_xrc_srq_in::XRC_SRQN, query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY: xrc_srqc;
    CREATE_XRQ create_xrq_out::XRQN => QUERY_XRQ query_xrq_in::XRQN, query_xrq_out::XRQ_CONTEXT: xrqc;
    CREATE_DCT create_dct_out::DCTN => QUERY_DCT query_dct_in::DCTN, query_dct_out::DCT_CONTEXT_ENTRY: dctc;
    CREATE_MKEY create_mkey_out::MKEY_INDEX => QUERY_MKEY query_mkey_in::MKEY_INDEX, query_mkey_out::MEMORY_KEY_MKEY_ENTRY: mkc;
    CREATE_SQ create_sq_out::SQN => QUERY_SQ query_sq_in::SQN, query_sq_out::SQ_CONTEXT: sqc;
    CREATE_RQ create_rq_out::RQN => QUERY_RQ query_rq_in::RQN, query_rq_out::RQ_CONTEXT: rqc;
    CREATE_TIS create_tis_out::TISN => QUERY_TIS query_tis_in::TISN, query_tis_out::TIS_CONTEXT: tisc;
    CREATE_TIR create_tir_out::TIRN => QUERY_TIR query_tir_in::TIRN, query_tir_out::TIR_CONTEXT: tirc;
    CREATE_RQT create_rqt_out::RQTN => QUERY_RQT query_rqt_in::RQTN, query_rqt_out::RQT_CONTEXT: rqtc;
};

impl Query {
    /// Returns the query for objects that a command makes.
    pub fn of(made_by: u16) -> Option<Query> {
        QUERIES.iter().find(|query| query.made_by == made_by).copied()
    }

    /// Returns the command that queries the object of a number.
    pub fn command(&self, number: u32) -> Command {
        // Tables are followed by their entries, of four bytes.
        let entries = if self.made_by == opcode::CREATE_RQT { MOST_ENTRIES * 4 } else { 0 };
        let command = Command::new(self.opcode, self.input).set(self.number, number);
        command.reply(self.output + entries)
    }

    /// Returns the context in its reply.
    pub fn context(&self, reply: &Reply) -> ObjectContext {
        ObjectContext::of(self.layout, reply.bytes(self.context))
    }
}

/// The context of an object (QPC, CQC, RMPC and so on) at the time of the query.
///
/// `Display` lists it by field name, like [`Structure`]. The alternate form (`{:#}`) includes the
/// fields that are zero.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::devx::CommandTarget;
/// use mlx5::devx::ifc::qpc;
/// use mlx5::verbs::QueuePair;
///
/// let qp = QueuePair::builder(&pd, &cq).build()?;
/// let reset = qp.object_context()?;
/// let qp = qp.init(&LocalPort::new(&context, 1, None)?.init())?;
/// // What the transition has changed, by field.
/// let changes = qp.object_context()?.differences(&reset);
/// assert!(changes.iter().any(|(field, _, _)| *field == qpc::STATE));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ObjectContext {
    layout: &'static Layout,
    bytes: Box<[u8]>,
}

impl ObjectContext {
    pub(super) fn of(layout: &'static Layout, bytes: &[u8]) -> ObjectContext {
        ObjectContext { layout, bytes: bytes.into() }
    }

    /// Returns the command that queries the context of the object with a number. `made_by` is the
    /// opcode that makes such objects, for example
    /// [`CREATE_QP`](mlx5_sys::ifc::opcode::CREATE_QP). `None` if no command queries them.
    ///
    /// [`CommandTarget`](super::CommandTarget) executes it on an object of this process.
    pub fn command(made_by: u16, number: u32) -> Option<Command> {
        Some(Query::of(made_by)?.command(number))
    }

    /// Returns the context in the HCA's reply to [`command`](Self::command). `None` if no command
    /// queries such objects, or the reply is too short.
    pub fn from_reply(made_by: u16, reply: &[u8]) -> Option<ObjectContext> {
        let query = Query::of(made_by)?;
        Some(ObjectContext::of(query.layout, reply.get(query.context.bytes())?))
    }

    /// Returns the layout of the context, with its fields.
    pub fn layout(&self) -> &'static Layout {
        self.layout
    }

    /// Returns a field of it, or of a structure in it.
    ///
    /// # Panics
    /// If the field is wider than 64 bits, or lies beyond the context.
    pub fn get(&self, field: Field) -> u64 {
        field.get(&self.bytes)
    }

    /// Returns its bytes, big-endian.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the fields that differ from another context of the same kind, with both values.
    /// Fields wider than 64 bits come in pieces.
    pub fn differences(&self, other: &ObjectContext) -> Vec<(Field, u64, u64)> {
        let fields = self.layout.leaves().into_iter().flat_map(Field::words);
        let within = |context: &ObjectContext, field: Field| {
            field.bit_offset() + field.width() <= context.bytes.len() * 8
        };
        fields
            .filter(|field| within(self, *field) && within(other, *field))
            .map(|field| (field, self.get(field), other.get(field)))
            .filter(|(_, mine, theirs)| mine != theirs)
            .collect()
    }
}

impl fmt::Display for ObjectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Structure { layout: self.layout, bytes: &self.bytes }.fmt(f)
    }
}

impl fmt::Debug for ObjectContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
