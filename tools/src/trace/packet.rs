//! Packets as text.

use mlx5_model::card::Link;
use mlx5_model::wire::Header;

use super::line::Line;
use crate::output::hex;

/// Fills a line with a packet that was sent or received.
pub(super) fn tell(line: &mut Line, link: Link, frame: &[u8], is_sent: bool) {
    let way = if is_sent { "sent" } else { "received" };
    line.with("way", way).with("length", frame.len());
    match Header::decode(link, frame) {
        Ok((header, payload)) => {
            let payload = payload.len();
            let Header { service, opcode, destination, psn, .. } = header;
            line.text = format!("{way} {service:?} {opcode:?} to QP {destination:#x} PSN {psn:#x}");
            if payload > 0 {
                line.text += &format!(", {payload} bytes");
            }
            if let Some(remote) = header.reth {
                line.text += &format!(
                    ", at {:#x} rkey {:#x} of {} bytes",
                    remote.address, remote.key, remote.length
                );
            }
            if let Some(answer) = header.aeth {
                line.text += &format!(", {:?}", answer.syndrome);
            }
            if header.ack_request {
                line.text += ", asks for an acknowledge";
            }
            line.with("service", format!("{service:?}"))
                .with("opcode", format!("{opcode:?}"))
                .with("destination_qp", destination)
                .with("psn", psn)
                .with("payload", payload);
            // A received packet is for a queue pair of this process. A sent packet names the peer's
            // number.
            if !is_sent {
                line.qps.push(destination);
            }
        }
        Err(_) => {
            line.text = format!("{way} a frame of Ethernet, {} bytes", frame.len());
        }
    }
    line.more.push(hex(frame));
}
