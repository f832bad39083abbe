//! Answers of a port's subnet management agent (IBA 1.3, 14.2): the attributes that the port's own
//! driver asks for.

use super::mad::SIZE;

/// The data of a packet starts here and has 64 bytes (IBA 1.3, 14.2.1.1).
const DATA: usize = 64;
const DATA_END: usize = 128;
/// Management classes: routed by LID, and by a list of ports.
const CLASSES: [u8; 2] = [0x01, 0x81];
const GET: u8 = 0x01;
const GET_RESPONSE: u8 = 0x81;
/// Statuses (IBA 1.3, 13.4.7).
const BAD_VERSION: u16 = 1 << 2;
const BAD_METHOD: u16 = 2 << 2;
const BAD_ATTRIBUTE: u16 = 3 << 2;
const BAD_VALUE: u16 = 7 << 2;

/// Attributes (IBA 1.3, 14.2.5).
mod attribute {
    pub const NODE_DESCRIPTION: u16 = 0x10;
    pub const NODE_INFO: u16 = 0x11;
    pub const GUID_INFO: u16 = 0x14;
    pub const PORT_INFO: u16 = 0x15;
    pub const P_KEY_TABLE: u16 = 0x16;
    pub const SL_TO_VL: u16 = 0x17;
}

/// What an agent knows of its node and port.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The text of the node.
    pub description: [u8; 64],
    /// GUID of the node.
    pub node_guid: u64,
    /// Vendor and device, as PCI has them.
    pub vendor: u32,
    /// The device's number.
    pub device: u16,
    /// GID prefix of the subnet.
    pub prefix: u64,
    /// GUIDs of the port, the first one its own.
    pub guids: Vec<u64>,
    /// Partition keys, by index. Zero is none.
    pub p_keys: Vec<u16>,
    /// LID, and that of the subnet manager; zero without one.
    pub lid: u16,
    /// LID of the subnet manager.
    pub manager_lid: u16,
    /// Capability flags of the port.
    pub capabilities: u32,
    /// The state, and the physical one.
    pub state: u8,
    /// The physical state.
    pub physical: u8,
    /// log2 of the MTU in use.
    pub log_mtu: u32,
}

impl Agent {
    /// Answers a packet. One that cannot be answered comes back with a status.
    pub fn answer(&self, request: &[u8; SIZE]) -> [u8; SIZE] {
        let mut reply = *request;
        reply[3] = GET_RESPONSE;
        reply[DATA..DATA_END].fill(0);
        let status = match self.fill(request, &mut reply[DATA..DATA_END]) {
            Ok(()) => 0,
            Err(status) => status,
        };
        reply[4..6].copy_from_slice(&status.to_be_bytes());
        reply
    }

    fn fill(&self, request: &[u8; SIZE], data: &mut [u8]) -> Result<(), u16> {
        if request[0] != 1 || !CLASSES.contains(&request[1]) || request[2] != 1 {
            return Err(BAD_VERSION);
        }
        if request[3] != GET {
            return Err(BAD_METHOD);
        }
        let modifier = u32::from_be_bytes([request[20], request[21], request[22], request[23]]);
        match u16::from_be_bytes([request[16], request[17]]) {
            attribute::NODE_DESCRIPTION => data.copy_from_slice(&self.description),
            attribute::NODE_INFO => self.node_info(data),
            attribute::GUID_INFO => block(data, &self.guids, modifier, |guid| guid.to_be_bytes())?,
            // Port 0 is the one that the packet came to.
            attribute::PORT_INFO if modifier > 1 => return Err(BAD_VALUE),
            attribute::PORT_INFO => self.port_info(data),
            attribute::P_KEY_TABLE => {
                block(data, &self.p_keys, modifier, |key| key.to_be_bytes())?;
            }
            // All service levels use the first virtual lane, because there is no other.
            attribute::SL_TO_VL => {}
            _ => return Err(BAD_ATTRIBUTE),
        }
        Ok(())
    }

    fn node_info(&self, data: &mut [u8]) {
        /// A channel adapter with one port.
        const HEAD: [u8; 4] = [1, 1, 1, 1];
        data[..4].copy_from_slice(&HEAD);
        data[4..12].copy_from_slice(&self.node_guid.to_be_bytes());
        data[12..20].copy_from_slice(&self.node_guid.to_be_bytes());
        data[20..28].copy_from_slice(&self.guids.first().copied().unwrap_or(0).to_be_bytes());
        data[28..30].copy_from_slice(&(self.p_keys.len() as u16).to_be_bytes());
        data[30..32].copy_from_slice(&self.device.to_be_bytes());
        data[36..40].copy_from_slice(&(1 << 24 | self.vendor & 0xff_ffff).to_be_bytes());
    }

    fn port_info(&self, data: &mut [u8]) {
        /// Four lanes; QDR in the field that ends there, and HDR in the extended one.
        const WIDTH: u8 = 2;
        const QDR: u8 = 4;
        const HDR: u8 = 4;
        /// The code of an MTU of 4,096 bytes, and that of four data lanes.
        const GREATEST_MTU: u8 = 5;
        const LANES: u8 = 3;
        /// Physical states from which a link is in operation.
        const LINK_UP: u8 = 5;
        const SUBNET_TIMEOUT: u8 = 18;
        data[8..16].copy_from_slice(&self.prefix.to_be_bytes());
        data[16..18].copy_from_slice(&self.lid.to_be_bytes());
        data[18..20].copy_from_slice(&self.manager_lid.to_be_bytes());
        data[20..24].copy_from_slice(&self.capabilities.to_be_bytes());
        data[28..31].copy_from_slice(&[1, WIDTH, WIDTH]);
        data[32] = QDR << 4 | self.state;
        // Without a link, it searches for a peer.
        data[33] = self.physical << 4 | 2;
        data[35] = QDR;
        data[36] = (self.log_mtu.saturating_sub(7) as u8) << 4;
        data[37] = LANES << 4;
        data[41] = GREATEST_MTU;
        data[43] = LANES << 4;
        data[50] = self.guids.len() as u8;
        data[51] = SUBNET_TIMEOUT;
        data[62] = HDR;
        data[63] = HDR;
        if self.physical == LINK_UP {
            data[31] = WIDTH;
            data[35] |= QDR << 4;
            data[62] |= HDR << 4;
        }
    }
}

/// Writes a block of a table: as many entries as fit, from the block's first one on.
fn block<T: Copy, const N: usize>(
    data: &mut [u8],
    table: &[T],
    block: u32,
    bytes: impl Fn(T) -> [u8; N],
) -> Result<(), u16> {
    // The upper half of the modifier is the port of a switch.
    let first = (block & 0xffff) as usize * (data.len() / N);
    let rest = table.get(first..).filter(|rest| !rest.is_empty()).ok_or(BAD_VALUE)?;
    for (entry, value) in data.chunks_exact_mut(N).zip(rest) {
        entry.copy_from_slice(&bytes(*value));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
