//! Tables of flows that a program creates by command, and flows that lead to them.

use std::ptr::NonNull;

use mlx5::devx::{Tir, TransportDomain};
use mlx5_sys::dv::{
    MLX5DV_FLOW_ACTION_DEST_DEVX, MLX5DV_FLOW_MATCHER_MASK_FT_TYPE, MLX5DV_FLOW_TABLE_TYPE_NIC_RX,
    mlx5dv_create_flow, mlx5dv_create_flow_matcher, mlx5dv_destroy_flow_matcher,
    mlx5dv_devx_obj_create, mlx5dv_devx_obj_destroy, mlx5dv_devx_obj_modify,
    mlx5dv_flow_action_attr, mlx5dv_flow_matcher, mlx5dv_flow_matcher_attr, mlx5dv_flow_table_type,
};
use mlx5_sys::ifc::{
    Field, cmd_in, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, flow_context, flow_table_context, opcode, set_fte_in,
};
use mlx5_sys::verbs::{ibv_destroy_flow, ibv_flow};

use rig::Rig;

use crate::devx::{Receiver, Sender};
use crate::{address, rig, udp};

/// A flow of libmlx5's that leads to a table made by command.
pub(crate) struct LedToTable {
    flow: *mut ibv_flow,
    matcher: *mut mlx5dv_flow_matcher,
}

impl LedToTable {
    /// Leads packets to an Ethernet address, of the direction that the type of table says.
    pub(crate) fn new(
        rig: &Rig,
        to: [u8; 6],
        kind: mlx5dv_flow_table_type,
        table: &Commanded,
    ) -> Self {
        /// `mlx5dv_flow_match_parameters`, with the first bytes of the outer headers.
        #[repr(C)]
        struct Parameters {
            size: usize,
            bytes: [u8; 64],
        }
        let destination = |address: [u8; 6]| {
            let mut parameters = Parameters { size: 64, bytes: [0; 64] };
            parameters.bytes[8..14].copy_from_slice(&address);
            parameters
        };
        let mut mask = destination([0xff; 6]);
        let mut attr = mlx5dv_flow_matcher_attr {
            match_criteria_enable: 1,
            match_mask: (&raw mut mask).cast(),
            comp_mask: MLX5DV_FLOW_MATCHER_MASK_FT_TYPE.into(),
            ft_type: kind,
            ..Default::default()
        };
        let mut value = destination(to);
        let mut action =
            mlx5dv_flow_action_attr { type_: MLX5DV_FLOW_ACTION_DEST_DEVX, ..Default::default() };
        action.__bindgen_anon_1.obj = table.0.as_ptr();
        // SAFETY: context, matcher and table live, and so does what the calls read.
        let (matcher, flow) = unsafe {
            let matcher = mlx5dv_create_flow_matcher(rig.context.as_raw().as_ptr(), &mut attr);
            assert!(!matcher.is_null(), "{}", std::io::Error::last_os_error());
            (matcher, mlx5dv_create_flow(matcher, (&raw mut value).cast(), 1, &mut action))
        };
        assert!(!flow.is_null(), "{}", std::io::Error::last_os_error());
        Self { flow, matcher }
    }
}

impl Drop for LedToTable {
    fn drop(&mut self) {
        // SAFETY: neither is used afterwards, and the flow goes before its matcher.
        let gone =
            unsafe { (ibv_destroy_flow(self.flow), mlx5dv_destroy_flow_matcher(self.matcher)) };
        assert_eq!(gone, (0, 0));
    }
}

/// `MLX5_FLOW_CONTEXT_ACTION_DROP`
const DROP: u32 = 2;

/// A command of so many bytes with these fields.
fn command(code: u16, length: usize, fields: &[(Field, u32)]) -> Vec<u8> {
    let mut command = vec![0; length];
    cmd_in::OPCODE.set(&mut command, code.into());
    fields.iter().for_each(|(field, value)| field.set(&mut command, (*value).into()));
    command
}

/// An object that libmlx5 creates by a command of the program.
pub(crate) struct Commanded(NonNull<mlx5_sys::dv::mlx5dv_devx_obj>);

impl Commanded {
    /// Returns the object and the reply, or the errno.
    pub(crate) fn new(
        rig: &Rig,
        code: u16,
        length: usize,
        fields: &[(Field, u32)],
    ) -> Result<(Self, [u8; 16]), i32> {
        let (command, mut reply) = (command(code, length, fields), [0; 16]);
        // SAFETY: the context is open, and both buffers have the lengths that are given.
        let object = unsafe {
            mlx5dv_devx_obj_create(
                rig.context.as_raw().as_ptr(),
                command.as_ptr().cast(),
                command.len(),
                reply.as_mut_ptr().cast(),
                reply.len(),
            )
        };
        let error = || std::io::Error::last_os_error().raw_os_error().unwrap();
        NonNull::new(object).map(|object| (Self(object), reply)).ok_or_else(error)
    }

    /// Changes it by a command, and returns the errno; 0 if it is changed.
    fn change(&self, command: &[u8]) -> i32 {
        let mut reply = [0; 16];
        // SAFETY: the object is alive, and both buffers have the lengths that are given.
        let failed = unsafe {
            mlx5dv_devx_obj_modify(
                self.0.as_ptr(),
                command.as_ptr().cast(),
                command.len(),
                reply.as_mut_ptr().cast(),
                reply.len(),
            )
        };
        failed.abs()
    }

    /// Destroys it, and returns the errno; 0 if it is gone.
    pub(crate) fn destroy(&self) -> i32 {
        // SAFETY: the object was created, and libmlx5 frees it only if it is gone.
        unsafe { mlx5dv_devx_obj_destroy(self.0.as_ptr()) }.abs()
    }
}

#[test]
fn tables_of_flows_are_created_by_command() {
    let rig = rig();
    let table = |kind: u32| {
        use create_flow_table_in as q;
        let context = |field: Field| field.within(q::FLOW_TABLE_CONTEXT);
        let fields = [
            (q::TABLE_TYPE, kind),
            (context(flow_table_context::LEVEL), 64),
            (context(flow_table_context::LOG_SIZE), 1),
        ];
        Commanded::new(&rig, opcode::CREATE_FLOW_TABLE, q::SIZE, &fields)
    };
    // The device itself refuses tables that it does not have: of sent RDMA packets.
    assert_eq!(table(8).err(), Some(libc::EREMOTEIO));
    let (table, reply) = table(0).unwrap();
    let number = create_flow_table_out::TABLE_ID.get(&reply) as u32;
    let (group, reply) = {
        use create_flow_group_in as q;
        let fields = [(q::TABLE_ID, number), (q::END_FLOW_INDEX, 1)];
        Commanded::new(&rig, opcode::CREATE_FLOW_GROUP, q::SIZE, &fields).unwrap()
    };
    let id = create_flow_group_out::GROUP_ID.get(&reply) as u32;
    let entry = |operation: u32| {
        use set_fte_in as q;
        let context = |field: Field| field.within(q::FLOW_CONTEXT);
        let fields = [
            (q::OP_MOD, operation),
            (q::TABLE_ID, number),
            (q::FLOW_INDEX, 1),
            (context(flow_context::GROUP_ID), id),
            (context(flow_context::ACTION), DROP),
        ];
        Commanded::new(&rig, opcode::SET_FLOW_TABLE_ENTRY, q::SIZE, &fields)
    };
    // A change creates nothing.
    assert_eq!(entry(1).err(), Some(libc::EINVAL));
    let (entry, _) = entry(0).unwrap();
    let order = [&group, &entry, &group, &table].map(Commanded::destroy);
    assert_eq!(order, [libc::EREMOTEIO, 0, 0, 0]);
}

#[test]
fn a_flow_leads_to_a_table_that_was_created_by_command() {
    /// `MLX5_FLOW_CONTEXT_ACTION_FWD_DEST`, `MLX5_FLOW_DESTINATION_TYPE_TIR`
    const FORWARD: u32 = 4;
    const TIR: u32 = 2;
    /// `MLX5_SET_FTE_MODIFY_ENABLE_MASK_ACTION`, `_DESTINATION_LIST`
    const ACTION: u32 = 1;
    const DESTINATIONS: u32 = 1 << 2;
    let rig = rig();
    let (mut a, mut b) = (Sender::new(&rig), Receiver::new(&rig));
    let tir = Tir::direct(&TransportDomain::new(&rig.context).unwrap(), &b.rq).unwrap();
    let (table, reply) = {
        use create_flow_table_in as q;
        let context = |field: Field| field.within(q::FLOW_TABLE_CONTEXT);
        let fields = [(context(flow_table_context::LEVEL), 64)];
        Commanded::new(&rig, opcode::CREATE_FLOW_TABLE, q::SIZE, &fields).unwrap()
    };
    let number = create_flow_table_out::TABLE_ID.get(&reply) as u32;
    let (group, reply) = {
        let fields = [(create_flow_group_in::TABLE_ID, number)];
        let size = create_flow_group_in::SIZE;
        Commanded::new(&rig, opcode::CREATE_FLOW_GROUP, size, &fields).unwrap()
    };
    let id = create_flow_group_out::GROUP_ID.get(&reply) as u32;
    let context = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
    let size = set_fte_in::SIZE + 8;
    let forward = [
        (set_fte_in::TABLE_ID, number),
        (context(flow_context::GROUP_ID), id),
        (context(flow_context::ACTION), FORWARD),
        (context(flow_context::DESTINATION_LIST_SIZE), 1),
        // `dest_format_struct`: type and number.
        (Field::new(set_fte_in::SIZE, 31, 8), TIR),
        (Field::new(set_fte_in::SIZE, 23, 24), tir.number()),
    ];
    let (entry, _) = Commanded::new(&rig, opcode::SET_FLOW_TABLE_ENTRY, size, &forward).unwrap();

    let flow = LedToTable::new(&rig, address(0x57), MLX5DV_FLOW_TABLE_TYPE_NIC_RX, &table);
    let frame = udp(address(0x57), 4000, b"by a table of its own");
    b.post();
    a.frame(1, &frame);
    let done = b.next().expect("a packet");
    assert_eq!(b.bytes(&done), frame);
    // The entry is changed: packets are dropped, and led to the queue again.
    let change = |index: u32, action: u32, mask: u32| {
        let change = [
            (set_fte_in::OP_MOD, 1),
            (set_fte_in::FLOW_INDEX, index),
            (set_fte_in::MODIFY_ENABLE_MASK, mask),
            (context(flow_context::ACTION), action),
        ];
        let fields = [&forward[..], &change].concat();
        entry.change(&command(opcode::SET_FLOW_TABLE_ENTRY, size, &fields))
    };
    let mut arrives = |number: u64| {
        b.provide();
        a.frame(number, &frame);
        b.next().is_some()
    };
    assert_eq!(change(0, DROP, ACTION), 0);
    assert!(!arrives(2));
    assert_eq!(change(0, FORWARD, ACTION | DESTINATIONS), 0);
    assert!(arrives(3));
    // Linux looks for the entry of the handle, and a mask without bits changes nothing.
    assert_eq!(change(1, DROP, ACTION), libc::EINVAL);
    assert_eq!(change(0, DROP, 0), 0);
    assert!(arrives(4));
    let new = command(opcode::SET_FLOW_TABLE_ENTRY, size, &forward);
    assert_eq!(entry.change(&new), libc::EINVAL);
    // The flow keeps the table.
    let order = [&entry, &group, &table].map(Commanded::destroy);
    assert_eq!(order, [0, 0, libc::EBUSY]);
    drop(flow);
    assert_eq!(table.destroy(), 0);
}
