//! Unit tests.

use mlx5_sys::ifc::{create_cq_out, create_rmp_out, create_xrc_srq_out};

use super::super::test::Rig;

#[test]
fn queues_lie_where_a_umem_says() {
    let mut rig = Rig::new();
    rig.become_user();
    let ((umem, pages), domain, cq) = (rig.umem(), rig.xrc_domain(), rig.cq());
    let (start, record) = (pages[0] + 192, pages[1] + 0xff8);
    let create = rig.create_cq_in_umem(umem);
    let made = rig.number(&create, create_cq_out::CQN);
    let made = rig.card.objects.cqs.get(made).expect("the CQ");
    assert_eq!((made.pages.locate(0), made.record()), (Some((start, 16 * 64)), record));
    let pool = rig.create_rmp_in_umem(umem);
    let extended = rig.create_xrc_srq_in_umem(domain, cq, umem);
    let places = [(pool, create_rmp_out::RMPN), (extended, create_xrc_srq_out::XRC_SRQN)];
    for (create, number) in places {
        let made = rig.number(&create, number);
        let made = rig.card.objects.srqs.get(made).expect("the queue");
        assert_eq!((made.queue.pages.locate(0), made.record), (Some((start, 8 * 64)), record));
    }
}
