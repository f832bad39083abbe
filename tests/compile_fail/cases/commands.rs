//! Firmware commands: queries are safe, changes are not, and kinds of objects do not mix.

/// A destroyed object cannot be queried. Capabilities borrow the context.
mod objects {
    #[cfg(misuse)]
    mod late_refused {
        use mlx5::devx::*;

        fn late(object: Object, query: &Command) {
            let _ = object.destroy();
            let _ = object.query(query);
            //~^ E0382 borrow of moved value: object
        }
    }

    #[cfg(misuse)]
    mod kept_refused {
        use mlx5::{devx::*, ib::*, verbs::*};

        fn kept() -> mlx5::Result<Capabilities<'static>> {
            let context = Context::open_first()?;
            Ok(context.capabilities())
            //~^ E0515 cannot return value referencing local variable context
        }
    }

    mod in_time_accepted {
        use mlx5::{devx::*, ib::*, verbs::*};

        fn in_time(object: Object, query: &Command) {
            let _ = object.query(query);
            let _ = object.destroy();
        }
        fn kept(context: &Context) -> Capabilities<'_> {
            context.capabilities()
        }
    }
}

/// Commands that create or change an object are unsafe. Queries are safe.
mod raw {
    #[cfg(misuse)]
    mod create_refused {
        use mlx5::{devx::*, ib::*, verbs::*};

        fn create(command: &Command, context: &Context) {
            let _ = command.create(context);
            //~^ E0133 call to unsafe function create
        }
    }

    #[cfg(misuse)]
    mod execute_refused {
        use mlx5::{devx::*, ib::*, verbs::*};

        fn execute(command: &Command, context: &Context) {
            let _ = command.execute(context);
            //~^ E0133 call to unsafe function execute
        }
    }

    #[cfg(misuse)]
    mod change_refused {
        use mlx5::devx::*;

        fn change(key: &DevxMkey, command: &Command) {
            let _ = key.object().modify(command);
            //~^ E0133 call to unsafe function modify
        }
    }

    #[cfg(misuse)]
    mod reset_refused {
        use mlx5::{devx::*, endpoint::Endpoint};

        fn reset(channel: &Endpoint, command: &Command) {
            let _ = channel.queue_pair().modify_by(command);
            //~^ E0133 call to unsafe function modify_by
        }
    }

    mod ask_accepted {
        use mlx5::{devx::*, endpoint::Endpoint, verbs::Context};

        fn ask(context: &Context, key: &DevxMkey, channel: &Endpoint, command: &Command) {
            let _ = command.query(context);
            let _ = key.object().query(command);
            let _ = channel.queue_pair().query_by(command);
        }
    }
}

/// An SQ made by command has no receives.
mod send_only {
    use mlx5::{devx::*, ring::*};

    #[cfg(misuse)]
    fn receive(sq: &Sq, completions: &mut CqReader) {
        let _ = ReceiveQueue::new(sq, completions, ReceiveConfig::default());
        //~^ E0277 no receive queue can be made of Sq
    }

    mod receive_accepted {
        use super::*;

        fn receive(rq: &Rq, completions: &mut CqReader) {
            let _ = ReceiveQueue::new(rq, completions, ReceiveConfig::default());
        }
    }
}

/// A flow leads to a TIR, not to a table.
mod flows {
    use mlx5::{expert::*, devx::*, ib::*, verbs::*};

    #[cfg(misuse)]
    fn lead(table: &Rqt) {
        let _ = Flow::builder(1).build(table);
        //~^ E0277 the trait bound Rqt: FlowTarget is not satisfied
    }

    mod lead_accepted {
        use super::*;

        fn lead(tir: &Tir) {
            let _ = Flow::builder(1).build(tir);
        }
    }
}

/// Verbs take CQs of verbs only, because the kernel knows no others by handle.
mod foreign_cq {
    #[cfg(misuse)]
    mod mixed_refused {
        use mlx5::{devx::Firmware, ib::*, verbs::*};

        fn mixed(
            pd: &ProtectionDomain,
            cq: &CompletionQueue<Firmware>,
        ) -> mlx5::Result<QueuePair<Rc, Reset>> {
            QueuePair::builder(pd, cq).build()
            //~^ E0308 mismatched types expected &CompletionQueue, found &CompletionQueue<Firmware>
        }
    }

    mod mixed_accepted {
        use mlx5::{
            devx::Firmware,
            ib::Rc,
            verbs::{CompletionQueue, ProtectionDomain, QueuePair, Reset},
        };

        fn mixed(
            pd: &ProtectionDomain,
            cq: &CompletionQueue,
        ) -> mlx5::Result<QueuePair<Rc, Reset, Firmware>> {
            QueuePair::by_command(pd, cq).build()
        }
    }
}

/// A DC target is not built like other queue pairs. Initiators of DC take no SRQ.
mod builders {
    use mlx5::{devx, ib::*, verbs::*};

    #[cfg(misuse)]
    fn target(pd: &ProtectionDomain, cq: &CompletionQueue) {
        let _ = QueuePairBuilder::<Dct, _>::by_command(pd, cq);
        //~^ E0599 by_command exists trait bounds were not satisfied
    }

    #[cfg(misuse)]
    fn receives(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue<devx::Firmware>) {
        let _ = QueuePairBuilder::<Dci, _>::by_command(pd, cq).shared_receive_queue(srq);
        //~^ E0599 shared_receive_queue exists trait bounds were not satisfied
    }

    fn both(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue<devx::Firmware>) {
        let _ = QueuePairBuilder::<Dci, _>::by_command(pd, cq).build();
        let _ = QueuePairBuilder::<Ud, _>::by_command(pd, cq).shared_receive_queue(srq).build();
        let _ = QueuePair::dc_target_by_command(pd, cq, srq, 1);
    }
}

/// An event channel of commands has no events of verbs objects.
mod events {
    use mlx5::{devx::*, verbs};

    #[cfg(misuse)]
    fn listen(channel: &EventChannel, cq: &verbs::CompletionQueue) {
        let _ = channel.subscribe(cq, EventKind::Completion, 1);
        //~^ E0277 the trait bound CompletionQueue: DevxEventSource is not satisfied
    }

    mod listen_accepted {
        use super::*;

        fn listen(channel: &EventChannel, cq: &verbs::CompletionQueue<Firmware>) {
            let _ = channel.subscribe(cq, EventKind::Completion, 1);
        }
    }
}
