//! The format of the times in CQEs: which one a queue made by command gets, and which one it has.

use mlx5_sys::ifc::{Field, cmd_hca_cap, roce_cap};

use super::context::ObjectContext;
use crate::cqe::TimestampFormat;
use crate::error::{Error, Result};
use crate::ib::capability::Group;
use crate::verbs::Context;

/// Values of the capabilities (`mlx5_ifc.h`, `MLX5_TIMESTAMP_FORMAT_CAP_*`): free running alone is 0.
const REAL_TIME_ALONE: u64 = 1;

/// The queues that have a capability of their own for the formats of their times.
#[derive(Clone, Copy)]
pub(super) enum Stamped {
    /// Queue pairs.
    Pair,
    /// Send queues of Ethernet.
    Send,
    /// Receive queues of Ethernet.
    Receive,
}

impl Stamped {
    fn capability(self) -> (Group, Field) {
        match self {
            Self::Pair => (Group::Roce, roce_cap::QP_TS_FORMAT),
            Self::Send => (Group::General, cmd_hca_cap::SQ_TS_FORMAT),
            Self::Receive => (Group::General, cmd_hca_cap::RQ_TS_FORMAT),
        }
    }

    /// Returns the `ts_format` of a new queue. If no format was asked for, it is free running; on
    /// devices that do not have that, the default. Linux chooses the same for queues of verbs
    /// (`qp.c`, `get_ts_format`).
    ///
    /// # Errors
    /// [`Error::NoCapability`] for real time where it is not offered; [`Error::Attribute`] for free
    /// running where the device has real time alone.
    pub(super) fn format(self, context: &Context, asked: Option<TimestampFormat>) -> Result<u64> {
        let (group, field) = self.capability();
        let capabilities = context.capabilities();
        let real_time_alone = capabilities.current(group, field)? == Some(REAL_TIME_ALONE);
        let format = match asked {
            Some(TimestampFormat::RealTime) => {
                capabilities.require(group, field, "times in real-time format")?;
                TimestampFormat::RealTime
            }
            Some(TimestampFormat::FreeRunning) if real_time_alone => {
                let rule = "the queues of this device have real-time format alone: ask for that, or \
                            switch REAL_TIME_CLOCK_ENABLE off (mlxconfig)";
                return Err(Error::attribute("timestamps", "free running", rule));
            }
            Some(other) => other,
            None if real_time_alone => TimestampFormat::Default,
            None => TimestampFormat::FreeRunning,
        };
        Ok(match format {
            TimestampFormat::FreeRunning => 0,
            TimestampFormat::Default => 1,
            TimestampFormat::RealTime => 2,
        })
    }
}

impl ObjectContext {
    /// Returns the format of the times in the CQEs of this queue or queue pair. `None` for objects
    /// of other kinds.
    ///
    /// ```
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
    /// use mlx5::cqe::TimestampFormat;
    /// use mlx5::devx::CommandTarget;
    /// use mlx5::verbs::QueuePair;
    ///
    /// // Of a queue pair that libibverbs has made.
    /// let qp = QueuePair::builder(&pd, &cq).build()?;
    /// let format = qp.object_context()?.timestamp_format();
    /// assert_eq!(format, Some(TimestampFormat::FreeRunning));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timestamp_format(&self) -> Option<TimestampFormat> {
        let fields = self.layout().leaves();
        let field = fields.into_iter().find(|field| field.name() == Some("TS_FORMAT"))?;
        match self.get(field) {
            0 => Some(TimestampFormat::FreeRunning),
            1 => Some(TimestampFormat::Default),
            2 => Some(TimestampFormat::RealTime),
            _ => None,
        }
    }
}
