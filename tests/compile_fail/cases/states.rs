//! Queue pairs: each call exists only in the states that allow it.

/// A send queue needs a queue pair in RTS.
mod send_queue {
    use mlx5::{ring::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn early(qp: &QueuePair<Rc, Rtr>, completions: &mut CqReader) -> mlx5::Result<SendQueue> {
        SendQueue::new(qp, completions, SendConfig::default())
        //~^ E0277 no send queue can be made of QueuePair<Rc, Rtr>
    }

    fn ready(qp: &QueuePair<Rc, Rts>, completions: &mut CqReader) -> mlx5::Result<SendQueue> {
        SendQueue::new(qp, completions, SendConfig::default())
    }
}

/// A receive queue needs a queue pair in INIT or later.
mod receive_queue {
    use mlx5::{ring::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn early(
        qp: &QueuePair<Rc, Reset>,
        completions: &mut CqReader,
    ) -> mlx5::Result<ReceiveQueue> {
        ReceiveQueue::new(qp, completions, ReceiveConfig::default())
        //~^ E0277 the trait bound Reset: CanReceive is not satisfied
    }

    fn ready(
        qp: &QueuePair<Rc, Init>,
        completions: &mut CqReader,
    ) -> mlx5::Result<ReceiveQueue> {
        ReceiveQueue::new(qp, completions, ReceiveConfig::default())
    }
}

/// A transition consumes the queue pair.
mod transition {
    use mlx5::{ib::*, verbs::{attr::*, *}};

    #[cfg(misuse)]
    fn twice(qp: QueuePair<Rc, Init>, to: &RtrAttributes) {
        let connected = qp.rtr(to);
        let again = qp.rtr(to);
        //~^ E0382 use of moved value: qp
    }

    fn once(qp: QueuePair<Rc, Init>, to: &RtrAttributes) {
        let connected = qp.rtr(to);
    }
}

/// No state is skipped.
mod order {
    use mlx5::{ib::*, verbs::{attr::*, *}};

    #[cfg(misuse)]
    fn skip(qp: QueuePair<Rc, Init>, to: &RtsAttributes) {
        let _ = qp.rts(to);
        //~^ E0599 no method named rts found
    }

    fn step(qp: QueuePair<Rc, Rtr>, to: &RtsAttributes) {
        let _ = qp.rts(to);
    }
}

/// Queue pairs made by command have the same states.
mod by_command {
    #[cfg(misuse)]
    mod early_refused {
        use mlx5::{
            devx::Firmware,
            ring::*,
            ib::Rc,
            verbs::{QueuePair, Rtr},
        };

        fn early(
            qp: &QueuePair<Rc, Rtr, Firmware>,
            completions: &mut CqReader,
        ) -> mlx5::Result<SendQueue> {
            SendQueue::new(qp, completions, SendConfig::default())
            //~^ E0277 no send queue can be made of QueuePair<Rc, Rtr, Firmware>
        }
    }

    mod ready_accepted {
        use mlx5::{
            devx::Firmware,
            ring::*,
            ib::Rc,
            verbs::{QueuePair, Rts},
        };

        fn ready(
            qp: &QueuePair<Rc, Rts, Firmware>,
            completions: &mut CqReader,
        ) -> mlx5::Result<SendQueue> {
            SendQueue::new(qp, completions, SendConfig::default())
        }
    }

    #[cfg(misuse)]
    mod skip_refused {
        use mlx5::{
            devx::Firmware,
            ib::Rc,
            verbs::{Init, QueuePair, attr::RtsAttributes},
        };

        fn skip(qp: QueuePair<Rc, Init, Firmware>, to: &RtsAttributes) {
            let _ = qp.rts(to);
            //~^ E0599 no method named rts found
        }
    }

    #[cfg(misuse)]
    mod twice_refused {
        use mlx5::{
            devx::Firmware,
            ib::Rc,
            verbs::{Init, QueuePair, attr::RtrAttributes},
        };

        fn twice(qp: QueuePair<Rc, Init, Firmware>, to: &RtrAttributes) {
            let connected = qp.rtr(to);
            let again = qp.rtr(to);
            //~^ E0382 use of moved value: qp
        }
    }

    mod once_accepted {
        use mlx5::{
            devx::Firmware,
            ib::Rc,
            verbs::{Init, QueuePair, attr::{RtrAttributes, RtsAttributes}},
        };

        fn once(
            qp: QueuePair<Rc, Init, Firmware>,
            to: &RtrAttributes,
            then: &RtsAttributes,
        ) -> mlx5::Result<()> {
            let connected = qp.rtr(to)?.rts(then)?;
            Ok(())
        }
    }
}

/// Resetting a queue pair whose queues exist is unsafe.
mod reset {
    use mlx5::{
        devx::Firmware,
        ib::Rc,
        verbs::{QueuePair, Rts},
    };

    #[cfg(misuse)]
    fn reset(qp: QueuePair<Rc, Rts, Firmware>) {
        let _ = qp.reset_under_queues();
        //~^ E0133 call to unsafe function reset_under_queues
    }

    mod reset_accepted {
        use super::*;

        fn reset(qp: QueuePair<Rc, Rts, Firmware>) {
            let _ = qp.reset();
        }
    }
}

/// A DC target made by command has a number from RTR on. SRQs attach to it from then on.
mod dc_target {
    use mlx5::{devx::Firmware, ring::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn share(srq: &mut Srq, target: &QueuePair<Dct, Init, Firmware>, cq: &mut CqReader) {
        let _ = srq.attach(target, cq);
        //~^ E0277 queue pairs of transport Dct are not made by CREATE_QP
    }

    mod share_accepted {
        use super::*;

        fn share(srq: &mut Srq, target: &QueuePair<Dct, Rtr, Firmware>, cq: &mut CqReader) {
            let _ = srq.attach(target, cq);
        }
    }
}
