//! Unit tests.

use mlx5_sys::ifc::{ads, alloc_q_counter_in, create_qp_in, opcode, qpc};

use super::*;

fn command() -> Command {
    Command::new(opcode::CREATE_QP, create_qp_in::SIZE)
        .set(create_qp_in::WQ_UMEM_ID, 7u32)
        .fields(create_qp_in::QPC, [(qpc::PD, 0x12u32), (qpc::MTU, 5)])
        .set(ads::SL.within(qpc::PRIMARY_ADDRESS_PATH).within(create_qp_in::QPC), 3u8)
        .bytes(
            ads::RGID_RIP.within(qpc::PRIMARY_ADDRESS_PATH).within(create_qp_in::QPC),
            &[0xfe, 0x80, 0, 0, 1],
        )
}

#[test]
fn a_refusal_says_what_was_sent_and_why_it_was_refused() {
    let reply = [3, 0, 0, 0, 0, 0x5c, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0];
    let error = judge(&command(), "mlx5dv_devx_obj_create", 5, &reply).unwrap_err();
    let Error::Refused(refused) = &error else { panic!("{error}") };
    assert_eq!((refused.opcode(), refused.status(), refused.syndrome()), (0x500, 3, 0x5c0203));
    assert_eq!(refused.status_name(), Some("BAD_PARAM_ERR"));
    assert_eq!(refused.name(), Some("CREATE_QP"));
    assert_eq!(
        error.to_string(),
        "the HCA refused CREATE_QP (0x500): bad parameter (BAD_PARAM_ERR, 0x3), syndrome \
         0x5c0203; sent: wq_umem_id = 7, qpc.pd = 0x12, qpc.mtu = 5, \
         qpc.primary_address_path.sl = 3, qpc.primary_address_path.rgid_rip = fe800000 01"
    );
    assert_eq!(error.errno(), None);
}

#[test]
fn a_refused_set_of_counters_names_cause_and_cure() {
    let reply = [3, 0, 0, 0, 0, 0x89, 0x75, 0xf1, 0, 0, 0, 0, 0, 0, 0, 0];
    let alloc = Command::new(opcode::ALLOC_Q_COUNTER, alloc_q_counter_in::SIZE);
    let error = judge(&alloc, "mlx5dv_devx_obj_create", 5, &reply).unwrap_err();
    let text = error.to_string();
    for part in ["ALLOC_Q_COUNTER", "syndrome 0x8975f1", "driver alone", "hw_counters"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
    // Another command with that number, and another reason of this command, have no cause here.
    for (opcode, last) in [(opcode::CREATE_QP, 0xf1), (opcode::ALLOC_Q_COUNTER, 0xf2)] {
        let reply = [3, 0, 0, 0, 0, 0x89, 0x75, last, 0, 0, 0, 0, 0, 0, 0, 0];
        let error = judge(&Command::new(opcode, 16), "mlx5dv_devx_obj_create", 5, &reply);
        let Err(Error::Refused(refused)) = error else { panic!("{error:?}") };
        assert_eq!(refused.cause(), None);
    }
}

#[test]
fn what_the_kernel_withholds_is_told_from_what_the_card_refuses() {
    for (errno, cure) in [
        (libc::EINVAL, "devx.c"),
        (libc::EPERM, "CAP_NET_RAW"),
        (libc::EOPNOTSUPP, "user contexts"),
        (libc::EAGAIN, "take some first"),
        (libc::EIO, "kernel's log"),
    ] {
        let error = judge(&command(), "mlx5dv_devx_obj_create", errno, &[0; 16]).unwrap_err();
        let Error::Withheld(withheld) = &error else { panic!("{error}") };
        assert_eq!(withheld.errno(), Errno(errno));
        assert_eq!(withheld.sent()[0].value(), Some(7));
        let text = error.to_string();
        for part in ["CREATE_QP (0x500)", "mlx5dv_devx_obj_create", cure, "qpc.mtu = 5"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
        assert_eq!(error.errno(), Some(Errno(errno)));
    }
}

#[test]
fn a_raw_command_is_shown_as_it_is() {
    let command = Command::from_bytes([0x0b, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    let error = judge(&command, "mlx5dv_devx_general_cmd", 0, &[0xee; 16]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("command 0xb01"), "{text}");
    assert!(text.contains("unknown status 0xee"), "{text}");
    assert!(text.contains("sent: 0b010000 00000009 00000000 00000000"), "{text}");
}
