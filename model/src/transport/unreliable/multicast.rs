//! Datagrams to multicast groups: every attached queue pair receives its own copy.

use mlx5_sys::ifc::qpc;

use crate::card::Card;
use crate::object::Service;
use crate::transport::Packet;

impl Card {
    /// Gives a datagram to each queue pair that is attached to its group. The sender's own queue pair
    /// is none of them if it was made so.
    pub(in crate::transport) fn receive_multicast(&mut self, packet: &Packet<'_>) {
        let header = packet.header;
        let Some(datagram) = header.datagram else { return };
        let Some(group) = header.route.group() else { return };
        if header.service != Service::Ud {
            return;
        }
        for qp in self.objects.groups.of(group).to_vec() {
            let Some(object) = self.objects.qps.get(&qp) else { continue };
            let blocked = datagram.source == qp && object.get(qpc::BLOCK_LB_MC) == 1;
            if !blocked {
                // A member that does not receive is no reason to drop the packet: others do.
                let _ = self.receive_for(qp, packet);
            }
        }
    }
}
