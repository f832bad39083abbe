//! The rings of queues that programs make by command. Their memory is in umems.

use mlx5_sys::ifc::{Field, cqc, create_cq_in, create_qp_in, qpc};

use super::queues::{Pair, Receive};
use super::rings::{CqRing, ReceiveRing, SendRing};
use crate::object::Service;

/// Returns the ring of a CQ by the command that made it. `at` gives the address of an offset in a umem.
/// `None` for a CQ whose CQEs are compressed, or whose memory is not known.
pub(super) fn cq(input: &[u8], at: impl Fn(u64, u64) -> Option<u64>) -> Option<CqRing> {
    if input.len() < create_cq_in::SIZE {
        return None;
    }
    let of = |field: Field| field.within(create_cq_in::CQ_CONTEXT).get(input);
    if of(cqc::CQE_COMP_EN) != 0 {
        return None;
    }
    let (umem, offset) = (create_cq_in::CQ_UMEM_ID, create_cq_in::CQ_UMEM_OFFSET);
    let base = at(umem.get(input), offset.get(input))?;
    let record = at(of(cqc::DBR_UMEM_ID), of(cqc::DBR_ADDR))?;
    let size = if of(cqc::CQE_SZ) == 0 { 64 } else { 128 };
    CqRing::new(base, 1 << of(cqc::LOG_CQ_SIZE).min(31), size, record)
}

/// Returns the rings of a queue pair by the command that made it.
pub(super) fn queue_pair(
    input: &[u8],
    number: u32,
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Option<Pair> {
    /// `MLX5_SRQ_RQ`, and no shared receive queue.
    const SHARED: u64 = 1;
    const OWN: u64 = 0;
    if input.len() < create_qp_in::SIZE {
        return None;
    }
    let of = |field: Field| field.within(create_qp_in::QPC).get(input);
    let service = match of(qpc::ST) {
        0 => Service::Rc,
        1 => Service::Uc,
        2 => Service::Ud,
        3 => Service::Xrc,
        5 => Service::Dc,
        _ => return None,
    };
    // The first WQE's place in the first page.
    if of(qpc::PAGE_OFFSET) != 0 {
        return None;
    }
    let (umem, offset) = (create_qp_in::WQ_UMEM_ID, create_qp_in::WQ_UMEM_OFFSET);
    let base = at(umem.get(input), offset.get(input))?;
    let record = at(of(qpc::DBR_UMEM_ID), of(qpc::DBR_ADDR))?;
    let (log, shift) = (of(qpc::LOG_RQ_SIZE) as u32, of(qpc::LOG_RQ_STRIDE) as u32 + 4);
    let (receive, before) = match of(qpc::RQ_TYPE) {
        OWN => (
            ReceiveRing::new(base, 1 << log, shift, record).map_or(Receive::None, Receive::Own),
            1 << (log + shift),
        ),
        SHARED => (Receive::Shared(of(qpc::SRQN_RMPN_XRQN) as u32), 0),
        _ => (Receive::None, 0),
    };
    let send = match of(qpc::NO_SQ) {
        0 => {
            let blocks = 1 << of(qpc::LOG_SQ_SIZE);
            SendRing::new(base.checked_add(before)?, blocks, record.checked_add(4)?)
        }
        _ => None,
    };
    let cqs = [of(qpc::CQN_SND) as u32, of(qpc::CQN_RCV) as u32];
    Some(Pair { number, service, send, receive, cqs })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Umem 7 is here, and there is no other.
    const UMEM: u64 = 0x10_0000;

    fn at(umem: u64, offset: u64) -> Option<u64> {
        (umem == 7).then_some(UMEM + offset)
    }

    fn of(size: usize, context: Field, fields: &[(Field, u64)], plain: &[(Field, u64)]) -> Vec<u8> {
        let mut input = vec![0; size];
        fields.iter().for_each(|(field, value)| field.within(context).set(&mut input, *value));
        plain.iter().for_each(|(field, value)| field.set(&mut input, *value));
        input
    }

    #[test]
    fn cq_is_where_its_command_says() {
        let context = create_cq_in::CQ_CONTEXT;
        let fields = [
            (cqc::LOG_CQ_SIZE, 4),
            (cqc::CQE_SZ, 1),
            (cqc::DBR_UMEM_ID, 7),
            (cqc::DBR_ADDR, 0x1000),
        ];
        let plain = [(create_cq_in::CQ_UMEM_ID, 7), (create_cq_in::CQ_UMEM_OFFSET, 0x40)];
        let input = of(create_cq_in::SIZE, context, &fields, &plain);
        let expected = CqRing::new(UMEM + 0x40, 16, 128, UMEM + 0x1000);
        assert_eq!(format!("{:?}", cq(&input, at)), format!("{expected:?}"));
        assert!(cq(&input[1..], at).is_none());
        assert!(cq(&input, |_, _| None).is_none());
        let compressed = [&fields[..], &[(cqc::CQE_COMP_EN, 1)]].concat();
        assert!(cq(&of(create_cq_in::SIZE, context, &compressed, &plain), at).is_none());
    }

    #[test]
    fn send_queue_is_behind_the_receive_queue() {
        let fields = [
            (qpc::ST, 2),
            (qpc::LOG_RQ_SIZE, 3),
            (qpc::LOG_RQ_STRIDE, 1),
            (qpc::LOG_SQ_SIZE, 5),
            (qpc::CQN_SND, 8),
            (qpc::CQN_RCV, 9),
            (qpc::DBR_UMEM_ID, 7),
            (qpc::DBR_ADDR, 0x2000),
        ];
        let plain = [(create_qp_in::WQ_UMEM_ID, 7), (create_qp_in::WQ_UMEM_OFFSET, 0x80)];
        let input = of(create_qp_in::SIZE, create_qp_in::QPC, &fields, &plain);
        let pair = queue_pair(&input, 5, at).unwrap();
        assert_eq!((pair.number, pair.service, pair.cqs), (5, Service::Ud, [8, 9]));
        let send = SendRing::new(UMEM + 0x80 + 8 * 32, 32, UMEM + 0x2004);
        assert_eq!(format!("{:?}", pair.send), format!("{send:?}"));
        let Receive::Own(ring) = pair.receive else { panic!("it has a receive queue") };
        let receive = ReceiveRing::new(UMEM + 0x80, 8, 5, UMEM + 0x2000).unwrap();
        assert_eq!(format!("{ring:?}"), format!("{receive:?}"));
    }

    #[test]
    fn any_command_is_read_without_harm() {
        for byte in 0..=u8::MAX {
            let _ = cq(&vec![byte; create_cq_in::SIZE], |_, offset| Some(offset));
            let _ = queue_pair(&vec![byte; create_qp_in::SIZE], 1, |_, offset| Some(offset));
        }
    }
}
