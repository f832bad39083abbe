//! DevX without the library: a user context that issues firmware commands by ioctl, and its
//! objects.

use libc::c_int;
use mlx5_sys::ifc::{
    Field, alloc_pd_out, cmd_in, cqc, create_cq_in, create_cq_out, create_dct_in, create_dct_out,
    create_mkey_in, create_mkey_out, create_qp_in, create_qp_out, create_rmp_in, create_rmp_out,
    create_xrq_in, create_xrq_out, dctc, mkc, modify_cq_in, modify_rmp_in, opcode, qpc,
    query_cq_in, query_dct_in, query_mkey_in, query_qp_in, query_rmp_in, query_xrq_in, rmpc,
    rst2init_qp_in, wq, xrqc,
};

use super::request::{PAGE, attribute, call, make};
use super::verbs::Device;

/// Pages of the memory that a user's queues lie in.
pub const PAGES: usize = 16;
/// Bytes of the longest reply that is asked for.
pub const REPLY: usize = 0x210;

/// An object made by command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kernel's handle.
    pub handle: u64,
    /// The device's number.
    pub number: u64,
}

/// The command that shows an object, and where it has the number.
pub type Query = (u16, Field);

/// A user context with one object of each kind, and the commands that made them.
pub struct User {
    pub file: c_int,
    /// Memory that the card knows as `umem`.
    pub memory: usize,
    pub umem: u64,
    /// Objects with how they are shown, users after what they use.
    pub objects: Vec<(Object, Option<Query>)>,
    /// Commands that make objects, and where replies have their numbers.
    pub creates: Vec<(Vec<u8>, Field)>,
    /// Commands that change the object of this place in `objects`.
    pub changes: Vec<(usize, Vec<u8>)>,
    /// Commands that ask.
    pub general: Vec<Vec<u8>>,
}

/// A command under construction.
pub struct Command(pub Vec<u8>);

impl Command {
    pub fn new(code: u16, length: usize) -> Self {
        Self(vec![0; length]).set(cmd_in::OPCODE, code)
    }

    pub fn set(mut self, field: Field, value: impl Into<u64>) -> Self {
        field.set(&mut self.0, value.into());
        self
    }
}

/// A reply and whether it says that the command was executed: EREMOTEIO is the card's refusal.
fn given(result: Result<u64, c_int>, reply: Vec<u8>) -> Result<(u64, Vec<u8>), (c_int, Vec<u8>)> {
    match result {
        Ok(handle) => Ok((handle, reply)),
        Err(errno) => Err((errno, reply)),
    }
}

/// The result of a command: handle and reply, or errno and reply.
pub type Answer = Result<(u64, Vec<u8>), (c_int, Vec<u8>)>;

/// `DEVX_OBJ_CREATE`
pub fn create(file: c_int, command: &[u8], room: usize) -> Answer {
    let mut reply = vec![0; room];
    let given_to = [
        attribute(0x1000, 0, 0),
        attribute(0x1001, command.len() as u16, inline(command)),
        attribute(0x1002, room as u16, reply.as_mut_ptr() as u64),
    ];
    given(make(file, 0x1001, 0x1000, &given_to), reply)
}

/// `DEVX_OBJ_DESTROY`
pub fn destroy(file: c_int, handle: u64) -> Result<(), c_int> {
    call(file, 0x1001, 0x1001, &[attribute(0x1000, 0, handle)])
}

/// `DEVX_OBJ_MODIFY` (0x1002) or `DEVX_OBJ_QUERY` (0x1003)
pub fn on_object(file: c_int, method: u16, handle: u64, command: &[u8], room: usize) -> Answer {
    let mut reply = vec![0; room];
    let given_to = [
        attribute(0x1000, 0, handle),
        attribute(0x1001, command.len() as u16, inline(command)),
        attribute(0x1002, room as u16, reply.as_mut_ptr() as u64),
    ];
    given(make(file, 0x1001, method, &given_to), reply)
}

/// `DEVX_OTHER`
pub fn other(file: c_int, command: &[u8], room: usize) -> Answer {
    let mut reply = vec![0; room];
    let given_to = [
        attribute(0x1000, command.len() as u16, inline(command)),
        attribute(0x1001, room as u16, reply.as_mut_ptr() as u64),
    ];
    given(make(file, 0x1000, 0x1000, &given_to), reply)
}

/// Inputs of up to eight bytes are in the attribute itself.
fn inline(bytes: &[u8]) -> u64 {
    if bytes.len() > 8 {
        return bytes.as_ptr() as u64;
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
}

impl User {
    /// Takes memory at `memory` for the queues of a user context on `device`, and makes an object of
    /// each kind there.
    pub fn new(device: Device, memory: usize) -> Self {
        // SAFETY: the context is open.
        let file = unsafe { (*device.context).cmd_fd };
        let mut number = 0u32;
        let out = |number: &mut u32| attribute(0x1004, 4, std::ptr::from_mut(number) as u64);
        let umem = [
            attribute(0x1000, 0, 0),
            attribute(0x1001, 8, memory as u64),
            attribute(0x1002, 8, (PAGES * PAGE) as u64),
            // Local and remote writes.
            attribute(0x1003, 4, 0b11),
            out(&mut number),
        ];
        make(file, 0x1002, 0x1000, &umem).expect("a umem");
        let umem = u64::from(number);
        let (mut offset, mut length) = (0u64, 0u32);
        let uar = [
            attribute(0x1000, 0, 0),
            attribute(0x1001, 4, 0),
            attribute(0x1002, 8, std::ptr::from_mut(&mut offset) as u64),
            attribute(0x1003, 4, std::ptr::from_mut(&mut length) as u64),
            out(&mut number),
        ];
        make(file, 0x1008, 0x1000, &uar).expect("a UAR");
        let uar = u64::from(number);
        let eqn =
            [attribute(0x1000, 4, 0), attribute(0x1001, 4, std::ptr::from_mut(&mut number) as u64)];
        call(file, 0x1000, 0x1002, &eqn).expect("an EQ");
        let mut user = Self {
            file,
            memory,
            umem,
            objects: Vec::new(),
            creates: Vec::new(),
            changes: Vec::new(),
            general: Vec::new(),
        };
        user.stand(uar, u64::from(number));
        user
    }

    /// Makes an object; its number.
    fn add(&mut self, command: Command, number: Field, query: Option<Query>) -> u64 {
        let (handle, reply) = create(self.file, &command.0, REPLY).expect("an object");
        let object = Object { handle, number: number.get(&reply) };
        self.objects.push((object, query));
        self.creates.push((command.0, number));
        object.number
    }

    /// One object of each kind, each on a page of the umem, with its doorbell record on the last.
    fn stand(&mut self, uar: u64, eqn: u64) {
        let umem = self.umem;
        let at = |page: u64| page * PAGE as u64;
        let record = |place: u64| (PAGES as u64 - 1) * PAGE as u64 + 64 * place;
        let pd = self.add(Command::new(opcode::ALLOC_PD, 0x10), alloc_pd_out::PD, None);

        let field = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
        let cq = Command::new(opcode::CREATE_CQ, create_cq_in::SIZE)
            .set(create_cq_in::CQ_UMEM_ID, umem)
            .set(create_cq_in::CQ_UMEM_OFFSET, at(0))
            .set(field(cqc::LOG_CQ_SIZE), 6u64)
            .set(field(cqc::UAR_PAGE), uar)
            .set(field(cqc::C_EQN_OR_APU_ELEMENT), eqn)
            .set(field(cqc::DBR_UMEM_ID), umem)
            .set(field(cqc::DBR_ADDR), record(0));
        let shown = (opcode::QUERY_CQ, query_cq_in::CQN);
        let cq = self.add(cq, create_cq_out::CQN, Some(shown));
        let change = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE)
            .set(modify_cq_in::CQN, cq)
            .set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, 0b11u64);
        self.changes.push((self.objects.len() - 1, change.0));

        let field = |field: Field| field.within(create_qp_in::QPC);
        let qp = Command::new(opcode::CREATE_QP, create_qp_in::SIZE)
            .set(create_qp_in::WQ_UMEM_ID, umem)
            .set(create_qp_in::WQ_UMEM_OFFSET, at(2))
            .set(field(qpc::PM_STATE), 3u64)
            .set(field(qpc::PD), pd)
            .set(field(qpc::UAR_PAGE), uar)
            .set(field(qpc::CQN_SND), cq)
            .set(field(qpc::CQN_RCV), cq)
            .set(field(qpc::LOG_RQ_SIZE), 4u64)
            .set(field(qpc::LOG_SQ_SIZE), 4u64)
            .set(field(qpc::DBR_UMEM_ID), umem)
            .set(field(qpc::DBR_ADDR), record(1));
        let shown = (opcode::QUERY_QP, query_qp_in::QPN);
        let qp = self.add(qp, create_qp_out::QPN, Some(shown));
        for code in [
            opcode::RST2INIT_QP,
            opcode::INIT2INIT_QP,
            opcode::INIT2RTR_QP,
            opcode::RTR2RTS_QP,
            opcode::RTS2RTS_QP,
            opcode::QP_2ERR,
            opcode::QP_2RST,
        ] {
            use mlx5_sys::ifc::ads;
            let field = |field: Field| field.within(rst2init_qp_in::QPC);
            let change = Command::new(code, rst2init_qp_in::SIZE)
                .set(rst2init_qp_in::QPN, qp)
                .set(field(qpc::PM_STATE), 3u64)
                .set(field(ads::VHCA_PORT_NUM.within(qpc::PRIMARY_ADDRESS_PATH)), 1u64)
                .set(field(qpc::MTU), 3u64)
                .set(field(qpc::LOG_MSG_MAX), 30u64);
            self.changes.push((self.objects.len() - 1, change.0));
        }

        let inner = |field: Field, at: Field| field.within(rmpc::WQ).within(at);
        let rmp = Command::new(opcode::CREATE_RMP, create_rmp_in::SIZE)
            .set(rmpc::STATE.within(create_rmp_in::CTX), 1u64)
            .set(inner(wq::PD, create_rmp_in::CTX), pd)
            .set(inner(wq::LOG_WQ_STRIDE, create_rmp_in::CTX), 6u64)
            .set(inner(wq::LOG_WQ_SZ, create_rmp_in::CTX), 3u64)
            .set(inner(wq::WQ_UMEM_ID, create_rmp_in::CTX), umem)
            .set(inner(wq::WQ_UMEM_OFFSET, create_rmp_in::CTX), at(4))
            .set(inner(wq::DBR_UMEM_ID, create_rmp_in::CTX), umem)
            .set(inner(wq::DBR_ADDR, create_rmp_in::CTX), record(2));
        let shown = (opcode::QUERY_RMP, query_rmp_in::RMPN);
        let rmp = self.add(rmp, create_rmp_out::RMPN, Some(shown));
        let change = Command::new(opcode::MODIFY_RMP, modify_rmp_in::SIZE)
            .set(modify_rmp_in::RMPN, rmp)
            .set(modify_rmp_in::RMP_STATE, 1u64)
            .set(rmpc::STATE.within(modify_rmp_in::CTX), 1u64)
            .set(modify_rmp_in::BITMASK, 1u64)
            .set(inner(wq::LWM, modify_rmp_in::CTX), 2u64);
        self.changes.push((self.objects.len() - 1, change.0));

        let field = |field: Field| field.within(create_dct_in::DCT_CONTEXT_ENTRY);
        let dct = Command::new(opcode::CREATE_DCT, create_dct_in::SIZE)
            .set(field(dctc::PD), pd)
            .set(field(dctc::CQN), cq)
            .set(field(dctc::SRQN_XRQN), rmp)
            .set(field(dctc::MTU), 3u64);
        let shown = (opcode::QUERY_DCT, query_dct_in::DCTN);
        self.add(dct, create_dct_out::DCTN, Some(shown));

        let field = |field: Field| field.within(create_xrq_in::XRQ_CONTEXT);
        let inner = |inner: Field| field(inner.within(xrqc::WQ));
        let xrq = Command::new(opcode::CREATE_XRQ, create_xrq_in::SIZE)
            .set(field(xrqc::TOPOLOGY), 1u64)
            .set(field(xrqc::CQN), cq)
            .set(inner(wq::PD), pd)
            .set(inner(wq::LOG_WQ_STRIDE), 6u64)
            .set(inner(wq::LOG_WQ_SZ), 3u64)
            .set(inner(wq::WQ_UMEM_ID), umem)
            .set(inner(wq::WQ_UMEM_OFFSET), at(5))
            .set(inner(wq::DBR_UMEM_ID), umem)
            .set(inner(wq::DBR_ADDR), record(3));
        let shown = (opcode::QUERY_XRQ, query_xrq_in::XRQN);
        self.add(xrq, create_xrq_out::XRQN, Some(shown));

        let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let key = Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE)
            .set(create_mkey_in::MKEY_UMEM_ID, umem)
            .set(create_mkey_in::MKEY_UMEM_OFFSET, at(8))
            .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 1u64)
            .set(field(mkc::ACCESS_MODE_1_0), 1u64)
            .set(field(mkc::RR), 1u64)
            .set(field(mkc::RW), 1u64)
            .set(field(mkc::LR), 1u64)
            .set(field(mkc::LW), 1u64)
            .set(field(mkc::QPN), 0xff_ffffu64)
            .set(field(mkc::PD), pd)
            .set(field(mkc::START_ADDR), self.memory as u64 + at(8))
            .set(field(mkc::LEN), 2 * PAGE as u64)
            .set(field(mkc::LOG_PAGE_SIZE), 12u64)
            .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 1u64);
        let shown = (opcode::QUERY_MKEY, query_mkey_in::MKEY_INDEX);
        self.add(key, create_mkey_out::MKEY_INDEX, Some(shown));

        for code in [opcode::NOP, opcode::QUERY_HCA_CAP, opcode::QUERY_HCA_VPORT_CONTEXT] {
            self.general.push(Command::new(code, 0x10).0);
        }
    }

    /// Every object that can be shown, as the card shows it to its user.
    pub fn shown(&self) -> Vec<Result<Vec<u8>, c_int>> {
        let shown = self.objects.iter().filter_map(|(object, query)| {
            let (code, field) = (*query)?;
            let command = Command::new(code, 0x10).set(field, object.number);
            let answer = on_object(self.file, 0x1003, object.handle, &command.0, REPLY);
            Some(answer.map(|(_, reply)| reply).map_err(|(errno, _)| errno))
        });
        shown.collect()
    }
}
