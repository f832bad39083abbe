//! Datagrams to multicast groups: every attached queue pair receives its own copy.

use mlx5_sys::ifc::qpc;

use crate::card::Card;
use crate::object::{Service, State};
use crate::wire::Header;

impl Card {
    /// Gives a datagram to each queue pair that is attached to its group. The sender's own queue pair
    /// is none of them if it was made so.
    pub(in crate::transport) fn receive_multicast(
        &mut self,
        header: &Header,
        payload: &[u8],
        packet: &[u8],
    ) {
        let Some(datagram) = header.datagram else { return };
        let Some(group) = header.route.group() else { return };
        if header.service != Service::Ud {
            return;
        }
        for qp in self.objects.groups.of(group).to_vec() {
            let Some(object) = self.objects.qps.get(&qp) else { continue };
            let receives =
                matches!(object.state, State::Rtr | State::Rts | State::Sqd | State::SqError);
            let blocked = datagram.source == qp && object.get(qpc::BLOCK_LB_MC) == 1;
            if receives && !blocked {
                self.unreliable(qp, |card, state| state.receive(card, header, payload, packet));
            }
        }
    }
}
