use super::*;

fn agent() -> Agent {
    let mut description = [0; 64];
    description[..4].copy_from_slice(b"node");
    Agent {
        description,
        node_guid: 0x0102_0304_0506_0708,
        vendor: 0x15b3,
        device: 0x1019,
        prefix: 0xfe80 << 48,
        guids: (1..=9).collect(),
        p_keys: (0..128).collect(),
        lid: 0x1234,
        manager_lid: 0x4321,
        capabilities: 1 << 14,
        state: 4,
        physical: 5,
        log_mtu: 11,
    }
}

/// A request for an attribute.
pub fn get(attribute: u16, modifier: u32) -> [u8; SIZE] {
    let mut request = [0; SIZE];
    request[..4].copy_from_slice(&[1, 1, 1, GET]);
    request[8..16].copy_from_slice(&7u64.to_be_bytes());
    request[16..18].copy_from_slice(&attribute.to_be_bytes());
    request[20..24].copy_from_slice(&modifier.to_be_bytes());
    request
}

/// The data of a reply without a fault.
fn data(request: &[u8; SIZE]) -> Vec<u8> {
    let reply = agent().answer(request);
    assert_eq!((reply[3], &reply[4..6]), (GET_RESPONSE, &[0, 0][..]));
    assert_eq!(reply[8..24], request[8..24], "the header is that of the request");
    reply[DATA..DATA_END].to_vec()
}

fn status(request: &[u8; SIZE]) -> u16 {
    let reply = agent().answer(request);
    assert_eq!(reply[DATA..DATA_END], [0; 64]);
    u16::from_be_bytes([reply[4], reply[5]])
}

#[test]
fn the_node_is_described() {
    let info = data(&get(attribute::NODE_INFO, 0));
    assert_eq!(info[..4], [1, 1, 1, 1]);
    assert_eq!(info[4..12], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(info[12..20], info[4..12]);
    assert_eq!(info[20..28], [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(info[28..32], [0, 128, 0x10, 0x19]);
    assert_eq!(info[36..40], [1, 0, 0x15, 0xb3]);
    assert!(data(&get(attribute::NODE_DESCRIPTION, 0)).starts_with(b"node\0"));
}

#[test]
fn the_port_is_described() {
    let info = data(&get(attribute::PORT_INFO, 1));
    assert_eq!(info[8..10], [0xfe, 0x80]);
    assert_eq!(info[16..20], [0x12, 0x34, 0x43, 0x21]);
    assert_eq!((info[31], info[32] & 0xf, info[33] >> 4), (2, 4, 5));
    assert_eq!((info[35] >> 4, info[62] >> 4), (4, 4), "HDR");
    assert_eq!((info[36] >> 4, info[41] & 0xf), (4, 5), "2,048 of 4,096 bytes");
    let mut pulled = agent();
    (pulled.state, pulled.physical) = (1, 2);
    let info = pulled.answer(&get(attribute::PORT_INFO, 1));
    assert_eq!((info[DATA + 31], info[DATA + 35] >> 4, info[DATA + 62] >> 4), (0, 0, 0));
}

#[test]
fn tables_are_read_in_blocks() {
    let guids = data(&get(attribute::GUID_INFO, 1));
    assert_eq!((guids[7], &guids[8..]), (9, &[0; 56][..]), "the ninth");
    let keys = data(&get(attribute::P_KEY_TABLE, 3));
    assert_eq!((keys[1], keys[63]), (96, 127));
    assert_eq!(data(&get(attribute::SL_TO_VL, 0)), [0; 64]);
    for beyond in [get(attribute::GUID_INFO, 2), get(attribute::P_KEY_TABLE, 4)] {
        assert_eq!(status(&beyond), BAD_VALUE);
    }
}

#[test]
fn other_requests_come_back_with_a_status() {
    assert_eq!(status(&get(0x12, 0)), BAD_ATTRIBUTE);
    assert_eq!(status(&get(attribute::PORT_INFO, 2)), BAD_VALUE);
    let change = |at: usize, value: u8| {
        let mut request = get(attribute::NODE_INFO, 0);
        request[at] = value;
        status(&request)
    };
    assert_eq!(change(0, 2), BAD_VERSION);
    assert_eq!(change(1, 7), BAD_VERSION);
    assert_eq!(change(2, 2), BAD_VERSION);
    assert_eq!(change(3, 2), BAD_METHOD);
    let mut directed = get(attribute::NODE_INFO, 0);
    directed[1] = 0x81;
    assert_eq!(data(&directed)[..4], [1, 1, 1, 1]);
}
