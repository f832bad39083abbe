//! Commands on objects of verbs: the HCA's data agree with those of verbs, and commands that do not
//! name the object are blocked.

use std::time::Duration;

use mlx5::Error;
use mlx5::devx::ifc::{
    ads, cqc, dctc, mkc, modify_cq_in, opcode, qp_2err_in, qpc, query_cq_in, query_cq_out,
    query_qp_in, query_qp_out, rmpc, wq, xrc_srqc,
};
use mlx5::devx::{Command, CommandTarget};
use mlx5::ib::Rc;
use mlx5::verbs::attr::{CqeSize, DctRtrAttributes, QpState};
use mlx5::verbs::{
    CompletionQueue, Context, ProtectionDomain, QueuePair, SharedReceiveQueue, XrcDomain,
};

use crate::commands::{create, make_key};
use rig::Rig;

fn rig() -> Rig {
    Rig::new(mlx5_model::Mode::Trapped)
}

#[test]
fn a_queue_pairs_context_agrees_with_what_verbs_tell() {
    let rig = rig();
    let cqs = [rig.cq(64), rig.cq(128)];
    let builder =
        || QueuePair::<Rc, _>::builder(&rig.pd, &cqs[0]).receive_cq(&cqs[1]).max_send_wr(100);
    let reset = builder().build().unwrap();
    let context = reset.object_context().unwrap();
    assert_eq!(context.layout().name, "qpc");
    assert_eq!(context.get(qpc::STATE), 0);
    assert_eq!(context.get(qpc::ST), 0);
    assert_eq!(context.get(qpc::PD), rig.pd.number().unwrap().into());
    let numbers = cqs.each_ref().map(|cq| {
        let cqc = cq.object_context().unwrap();
        assert_eq!(cqc.get(cqc::CQE_SZ), 0);
        1 << cqc.get(cqc::LOG_CQ_SIZE)
    });
    assert_eq!(numbers, cqs.each_ref().map(|cq| cq.capacity() + 1));
    assert_ne!(context.get(qpc::CQN_SND), context.get(qpc::CQN_RCV));
    let sends = 1u32 << context.get(qpc::LOG_SQ_SIZE);
    assert!(sends >= reset.capacities().max_send_wr, "{context}");

    let (a, b) = rig.connect(rig.to_init(reset), rig.init(builder()));
    let (context, told) = (a.object_context().unwrap(), a.query().unwrap());
    assert_eq!(told.state, QpState::Rts);
    assert_eq!(context.get(qpc::STATE), 3);
    assert_eq!(context.get(qpc::REMOTE_QPN), b.number().into());
    assert_eq!(context.get(qpc::REMOTE_QPN), told.destination.into());
    assert_eq!(context.get(qpc::NEXT_SEND_PSN), told.sq_psn.into());
    assert_eq!(context.get(qpc::NEXT_RCV_PSN), told.rq_psn.into());
    assert_eq!(128 << context.get(qpc::MTU), told.path_mtu.unwrap().bytes());
    assert_eq!(context.get(qpc::RETRY_COUNT), told.retry_cnt.into());
    assert_eq!(context.get(qpc::RNR_RETRY), told.rnr_retry.into());
    assert_eq!(1 << context.get(qpc::LOG_RRA_MAX), told.max_dest_rd_atomic);
    let path = |field: mlx5::devx::ifc::Field| context.get(field.within(qpc::PRIMARY_ADDRESS_PATH));
    assert_eq!(path(ads::PKEY_INDEX), told.pkey_index.into());
    assert_eq!(path(ads::VHCA_PORT_NUM), told.port.into());
    for line in ["state = 3 (RTS)", "st = 0 (RC)", "primary_address_path.vhca_port_num = 1"] {
        assert!(context.to_string().contains(line), "{line:?} is missing in {context}");
    }
    // Before and after differ in what the moves set.
    let fresh = builder().build().unwrap().object_context().unwrap();
    let changed: Vec<String> =
        fresh.differences(&context).iter().map(|(field, ..)| field.path().to_string()).collect();
    for name in ["state", "remote_qpn", "mtu", "primary_address_path.vhca_port_num"] {
        assert!(changed.iter().any(|field| field == name), "{name} in {changed:?}");
    }
    assert!(!changed.iter().any(|field| field == "pd" || field == "log_sq_size"), "{changed:?}");
}

#[test]
fn contexts_of_other_objects_agree_too() {
    let rig = rig();
    let cq = CompletionQueue::builder(&rig.context, 32).cqe_size(CqeSize::B128).build().unwrap();
    let context = cq.object_context().unwrap();
    assert_eq!((context.layout().name, context.get(cqc::CQE_SZ)), ("cqc", 1));
    assert_eq!(1 << context.get(cqc::LOG_CQ_SIZE), cq.capacity() + 1);
    assert_eq!(context.to_string(), cq.clone().object_context().unwrap().to_string());

    let shared = SharedReceiveQueue::builder(&rig.pd).max_wr(30).build().unwrap();
    let context = shared.object_context().unwrap();
    assert_eq!(context.layout().name, "rmpc");
    let log = wq::LOG_WQ_SZ.within(rmpc::WQ);
    assert!(1 << context.get(log) >= shared.capacity(), "{context}");
    assert!(context.to_string().contains("wq.log_wq_sz"), "{context}");

    let domain = XrcDomain::new(&rig.context).unwrap();
    let extended = SharedReceiveQueue::builder(&rig.pd).xrc(&domain, &cq).build().unwrap();
    let context = extended.object_context().unwrap();
    assert_eq!(context.layout().name, "xrc_srqc");
    assert_eq!(context.get(xrc_srqc::PD), rig.pd.number().unwrap().into());
    assert_eq!(context.get(xrc_srqc::STATE), 0);
}

#[test]
fn a_target_of_dynamic_connections_shows_its_own_context() {
    let rig = rig();
    let cq = rig.cq(64);
    let shared = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let target = QueuePair::dc_target(&rig.pd, &cq, &shared, 0x1234_5678_9abc).build().unwrap();
    let target = target.init(&rig.local.init()).unwrap();
    let address = rig.local.address(&rig.local.connection_data(&target));
    let target = target.rtr(&DctRtrAttributes::new(address)).unwrap();
    let context = target.object_context().unwrap();
    assert_eq!(context.layout().name, "dctc");
    assert_eq!(context.get(dctc::DC_ACCESS_KEY), 0x1234_5678_9abc);
    assert!(context.to_string().contains("state = 0 (active)"), "{context}");
}

#[test]
fn a_command_has_to_name_the_object_that_it_is_given_on() {
    let rig = rig();
    let (cq, other) = (rig.cq(16), rig.cq(16));
    let qp = QueuePair::<Rc, _>::builder(&rig.pd, &cq).build().unwrap();
    let query = |number: u32| {
        Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
            .set(query_qp_in::QPN, number)
            .reply(query_qp_out::SIZE)
    };
    let reply = qp.query_by(&query(qp.number())).unwrap();
    assert_eq!(reply.bytes(query_qp_out::QPC), qp.object_context().unwrap().as_bytes());
    let withheld = |result: Result<mlx5::devx::Reply, Error>| {
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Withheld(one) if one.errno().0 == libc::EINVAL), "{error}");
    };
    withheld(qp.query_by(&query(qp.number() + 1)));
    // The same number, of a CQ; and the right one, on the wrong object.
    withheld(cq.query_by(&query(qp.number())));
    // A change is no query, and a query no change.
    let fail = Command::new(opcode::QP_2ERR, qp_2err_in::SIZE).set(qp_2err_in::QPN, qp.number());
    assert!(matches!(qp.query_by(&fail), Err(Error::Attribute { .. })));
    // SAFETY: the command only asks.
    withheld(unsafe { qp.modify_by(&query(qp.number())) });
    // Destroying is left to who made it.
    let destroy = Command::new(opcode::DESTROY_QP, 16).set(query_qp_in::QPN, qp.number());
    // SAFETY: the kernel withholds the command.
    withheld(unsafe { qp.modify_by(&destroy) });
    drop(other);
}

#[test]
fn what_verbs_made_is_changed_by_command() {
    let rig = rig();
    let cq = rig.cq(64);
    let (a, b) = {
        let builder = || QueuePair::<Rc, _>::builder(&rig.pd, &cq);
        rig.connect(rig.init(builder()), rig.init(builder()))
    };
    let fail = Command::new(opcode::QP_2ERR, qp_2err_in::SIZE).set(qp_2err_in::QPN, a.number());
    // SAFETY: in ERROR no WQE is executed, and nothing is posted here.
    unsafe { a.modify_by(&fail) }.unwrap();
    assert_eq!(a.object_context().unwrap().get(qpc::STATE), 6);
    assert_eq!(b.object_context().unwrap().get(qpc::STATE), 3);

    // Moderation, which verbs set as well: both see it.
    let cqn = a.object_context().unwrap().get(qpc::CQN_SND) as u32;
    let moderate = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE)
        .set(modify_cq_in::CQN, cqn)
        .set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, 3u32)
        .fields(modify_cq_in::CQ_CONTEXT, [(cqc::CQ_PERIOD, 17u32), (cqc::CQ_MAX_COUNT, 9)]);
    // SAFETY: the command says when events come, and nothing else.
    unsafe { cq.modify_by(&moderate) }.unwrap();
    let context = cq.object_context().unwrap();
    assert_eq!((context.get(cqc::CQ_PERIOD), context.get(cqc::CQ_MAX_COUNT)), (17, 9));
    cq.moderate(4, Duration::from_micros(5)).unwrap();
    let context = cq.object_context().unwrap();
    assert_eq!((context.get(cqc::CQ_PERIOD), context.get(cqc::CQ_MAX_COUNT)), (5, 4));
    // A refusal of the card comes as such.
    let refused = Command::new(opcode::QUERY_CQ, query_cq_in::SIZE)
        .set(query_cq_in::CQN, cqn)
        .op_mod(1)
        .reply(query_cq_out::SIZE);
    let error = cq.query_by(&refused).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
}

#[test]
fn objects_of_commands_show_their_contexts_the_same_way() {
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    let key = create(&make_key(pd.number().unwrap(), 4), &context).unwrap();
    let shown = key.object_context().unwrap();
    assert_eq!(shown.layout().name, "mkc");
    assert_eq!(shown.get(mkc::PD), pd.number().unwrap().into());
    assert!(shown.to_string().contains("translations_octword_size = 4"), "{shown}");
    let domain = create(&Command::new(opcode::ALLOC_PD, 16), &context).unwrap();
    let error = domain.object_context().unwrap_err();
    assert!(error.to_string().contains("ALLOC_PD"), "{error}");
}
