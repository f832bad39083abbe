//! The line that says how a queue pair and its memory are reached: hexadecimal fields of fixed width.

use mlx5::connect::{ConnectionData, RemoteRegion};
use mlx5::ib::Gid;
use mlx5::verbs::attr::Mtu;

use crate::perf::plan::Plan;
use crate::perf::station::Endpoint;

/// Bytes of a line without a GID.
pub const BY_LID: usize = 59;
/// Bytes of a line with a GID.
pub const BY_GID: usize = 108;

/// The form of a line. Both sides have to use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Addressed by LID: InfiniBand.
    Lid,
    /// Addressed by GID: RoCE, and InfiniBand with `-x`.
    Gid,
}

impl Form {
    /// Returns the form of an endpoint's line.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Form {
        if endpoint.data.gid.is_some() { Form::Gid } else { Form::Lid }
    }

    fn length(self) -> usize {
        match self {
            Form::Lid => BY_LID,
            Form::Gid => BY_GID,
        }
    }
}

/// How a queue pair and its memory are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The port's LID.
    pub lid: u16,
    /// READs and atomics of the peer that the queue pair executes at a time.
    pub out_reads: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// The first PSN that the queue pair sends, 24 bits.
    pub psn: u32,
    /// The key of the memory.
    pub rkey: u32,
    /// Address of the memory.
    pub address: u64,
    /// The port's GID.
    pub gid: Option<[u8; 16]>,
}

impl Keys {
    /// Returns the keys of this side's endpoint.
    #[must_use]
    pub fn of(Endpoint { data, .. }: &Endpoint) -> Keys {
        Keys {
            lid: data.lid,
            out_reads: data.responder_depth.into(),
            qpn: data.qpn,
            psn: data.psn,
            rkey: data.region.map_or(0, |region| region.rkey),
            address: data.region.map_or(0, |region| region.address),
            gid: data.gid.map(|gid| gid.0),
        }
    }

    /// Returns the form of their line.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.gid.is_some() { Form::Gid } else { Form::Lid }
    }

    /// Returns the fields before the GID.
    fn head(&self) -> String {
        let Keys { lid, out_reads, qpn, psn, rkey, address, .. } = self;
        let (qpn, psn) = (qpn & 0xff_ffff, psn & 0xff_ffff);
        format!("{lid:04x}:{out_reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{address:016x}:")
    }

    /// Returns the line without a GID. Its last field is the number of a shared receive queue.
    #[must_use]
    pub fn by_lid(&self) -> [u8; BY_LID] {
        line(&format!("{}{:08x}", self.head(), 0))
    }

    /// Returns the line with a GID.
    #[must_use]
    pub fn by_gid(&self) -> [u8; BY_GID] {
        let gid: Vec<String> =
            self.gid.unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect();
        line(&format!("{}{}:{:08x}:", self.head(), gid.join(":"), 0))
    }

    /// Parses a line, which has to have this form.
    ///
    /// # Errors
    /// Returns which field is wrong, and the line.
    pub fn parse(bytes: &[u8], form: Form) -> Result<Keys, String> {
        let wrong = |what: &str| format!("its keys have a wrong {what}: {}", bytes.escape_ascii());
        if bytes.len() != form.length() {
            return Err(wrong("length"));
        }
        let mut fields = Fields(bytes);
        let mut keys = Keys {
            lid: fields.next(4, b':').ok_or_else(|| wrong("LID"))? as u16,
            out_reads: fields.next(4, b':').ok_or_else(|| wrong("number of READs"))? as u16,
            qpn: fields.next(6, b':').ok_or_else(|| wrong("queue pair number"))? as u32,
            psn: fields.next(6, b':').ok_or_else(|| wrong("PSN"))? as u32,
            rkey: fields.next(8, b':').ok_or_else(|| wrong("RKey"))? as u32,
            address: fields.next(16, b':').ok_or_else(|| wrong("address"))?,
            gid: None,
        };
        let srq = || wrong("number of a shared receive queue");
        if form == Form::Lid {
            fields.next(8, 0).ok_or_else(srq)?;
            return Ok(keys);
        }
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = fields.next(2, b':').ok_or_else(|| wrong("GID"))? as u8;
        }
        fields.next(8, b':').ok_or_else(srq)?;
        keys.gid = Some(gid);
        Ok(keys)
    }

    /// Returns the endpoint, whose memory has `length` bytes, if messages by the plan can go there.
    ///
    /// # Errors
    /// Returns which field is wrong.
    pub fn endpoint(&self, plan: &Plan, mtu: Mtu, length: u64) -> Result<Endpoint, String> {
        let depth = u8::try_from(self.out_reads).unwrap_or(u8::MAX);
        if depth == 0 && plan.operation.fetches() {
            return Err(format!("its queue pair executes no {}", plan.operation));
        }
        if self.address.checked_add(length - 1).is_none() {
            return Err(format!("{length} bytes at {:#x} are no memory", self.address));
        }
        if self.gid == Some([0; 16]) {
            return Err("its GID is 0".to_owned());
        }
        let region = RemoteRegion { address: self.address, length, rkey: self.rkey };
        let data = ConnectionData {
            psn: self.psn,
            lid: self.lid,
            gid: self.gid.map(Gid),
            responder_depth: depth,
            initiator_depth: depth,
            region: Some(region),
            ..ConnectionData::new(self.qpn, mtu)
        };
        Ok(Endpoint { data, target: self.qpn, shared: 0, frame: None })
    }
}

/// Returns a text with zeros behind it.
fn line<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// The rest of a line.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Returns the next number, which has to have so many digits, and `end` behind them.
    fn next(&mut self, digits: usize, end: u8) -> Option<u64> {
        let (field, rest) = self.0.split_at_checked(digits)?;
        let (&last, rest) = rest.split_first()?;
        self.0 = rest;
        // A sign is no digit.
        if last != end || !field.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u64::from_str_radix(std::str::from_utf8(field).ok()?, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &[u8] = b"0001:0010:000107:a1b2c3:0000180f:00007f0123456000:00000000\0";
    const LINE_GID: &[u8] = b"0000:0001:000107:a1b2c3:0000180f:00007f0123456000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\0";

    fn keys() -> Keys {
        Keys {
            lid: 1,
            out_reads: 16,
            qpn: 0x107,
            psn: 0xa1_b2c3,
            rkey: 0x180f,
            address: 0x7f01_2345_6000,
            gid: None,
        }
    }

    #[test]
    fn lines_are_those_of_perftest() {
        assert_eq!(keys().by_lid(), LINE);
        assert_eq!(Keys::parse(LINE, Form::Lid), Ok(keys()));
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1];
        let with_gid = Keys { lid: 0, out_reads: 1, gid: Some(gid), ..keys() };
        assert_eq!(with_gid.by_gid(), LINE_GID);
        assert_eq!(Keys::parse(LINE_GID, Form::Gid), Ok(with_gid));
    }

    #[test]
    fn the_wrong_field_is_named() {
        let cases: [(usize, u8, &str); 8] = [
            (0, b'g', "LID"),
            (5, b'+', "READs"),
            (10, b' ', "queue pair number"),
            (23, b';', "PSN"),
            (30, b'x', "RKey"),
            (40, b'-', "address"),
            (57, 0, "shared receive queue"),
            (58, b'0', "shared receive queue"),
        ];
        for (at, byte, name) in cases {
            let mut line = LINE.to_vec();
            line[at] = byte;
            let error = Keys::parse(&line, Form::Lid).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        let short = Keys::parse(&LINE[..58], Form::Lid).unwrap_err();
        assert!(short.contains("length"), "{short}");
        assert!(Keys::parse(LINE, Form::Gid).unwrap_err().contains("length"));
        let mut line = LINE_GID.to_vec();
        line[80] = b'z';
        assert!(Keys::parse(&line, Form::Gid).unwrap_err().contains("GID"));
    }

    #[test]
    fn keys_that_reach_nothing_are_refused() {
        let plan = crate::perf::plan::tests::plan();
        let read = Plan { operation: crate::perf::plan::Operation::Read, ..plan.clone() };
        let refused =
            |keys: Keys, plan: &Plan| keys.endpoint(plan, Mtu::Mtu1024, 4096).unwrap_err();
        assert!(refused(Keys { out_reads: 0, ..keys() }, &read).contains("no read"));
        assert!(refused(Keys { address: u64::MAX - 4094, ..keys() }, &plan).contains("no memory"));
        assert!(refused(Keys { gid: Some([0; 16]), ..keys() }, &plan).contains("GID"));
        let last = Keys { address: u64::MAX - 4095, out_reads: 0x1ff, ..keys() };
        let endpoint = last.endpoint(&read, Mtu::Mtu1024, 4096).unwrap();
        assert_eq!((endpoint.data.responder_depth, endpoint.target), (255, 0x107));
    }

    fn any_keys() -> impl Strategy<Value = Keys> {
        let numbers = (any::<u16>(), any::<u16>(), 0u32..1 << 24, 0u32..1 << 24);
        (numbers, any::<u32>(), any::<u64>(), any::<Option<[u8; 16]>>()).prop_map(
            |((lid, out_reads, qpn, psn), rkey, address, gid)| Keys {
                lid,
                out_reads,
                qpn,
                psn,
                rkey,
                address,
                gid,
            },
        )
    }

    proptest! {
        #[test]
        fn a_line_gives_its_keys_back(keys in any_keys()) {
            let line = match keys.form() {
                Form::Lid => keys.by_lid().to_vec(),
                Form::Gid => keys.by_gid().to_vec(),
            };
            prop_assert_eq!(Keys::parse(&line, keys.form()), Ok(keys));
        }

        #[test]
        fn any_bytes_are_keys_or_an_error_of_one_line(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            by_gid: bool,
        ) {
            let form = if by_gid { Form::Gid } else { Form::Lid };
            if let Err(error) = Keys::parse(&bytes, form) {
                prop_assert!(error.chars().all(|c| !c.is_control()));
            }
        }

        /// Changing one byte changes the keys, or is noticed, or is the case of a digit or an unused
        /// field.
        #[test]
        fn a_changed_byte_never_passes_as_the_same_line(at in 0..50usize, byte: u8) {
            let mut line = LINE.to_vec();
            line[at] = byte;
            let same = byte.eq_ignore_ascii_case(&LINE[at]);
            prop_assert_eq!(Keys::parse(&line, Form::Lid) == Ok(keys()), same);
        }
    }
}
