//! Firmware commands: accepted, refused by the HCA, blocked by the kernel, or not sent at all; and
//! the objects that they create.

use mlx5::Error;
use mlx5::devx::ifc::{
    Field, alloc_pd_in, cmd_in, create_mkey_in, create_mkey_out, mkc, opcode, qp_2rst_in,
    query_adapter_in, query_adapter_out, query_adapter_param_block, query_mkey_in, query_mkey_out,
    query_roce_address_in, status,
};
use mlx5::devx::{AsyncCommands, Command, CommandTarget, Object, Reply};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5_model as _;

fn context() -> Context {
    Context::open_first().unwrap()
}

/// A key over other keys, of `entries` of them, all free.
pub fn make_key(pd: u32, entries: u32) -> Command {
    Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE)
        .fields(
            create_mkey_in::MEMORY_KEY_MKEY_ENTRY,
            [
                (mkc::ACCESS_MODE_1_0, 2),
                (mkc::UMR_EN, 1),
                (mkc::FREE, 1),
                (mkc::QPN, 0xff_ffff),
                (mkc::PD, pd),
                (mkc::TRANSLATIONS_OCTWORD_SIZE, entries),
            ],
        )
        .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 0u32)
}

/// Creates what gives access to no memory: a key without entries, a domain, a PSV, a TIS.
pub fn create(command: &Command, context: &Context) -> Result<Object, Error> {
    // SAFETY: the object leads to no memory, has no ring, and is on no queue's way.
    unsafe { command.create(context) }
}

/// Sends a general command that changes nothing, or that is refused.
pub fn execute(command: &Command, context: &Context) -> Result<Reply, Error> {
    // SAFETY: no queue and no memory changes.
    unsafe { command.execute(context) }
}

fn pdn(pd: &ProtectionDomain) -> u32 {
    pd.number().unwrap()
}

fn number(key: &Object) -> u64 {
    key.reply().get(create_mkey_out::MKEY_INDEX)
}

fn query(number: u64) -> Command {
    Command::new(opcode::QUERY_MKEY, query_mkey_in::SIZE)
        .set(query_mkey_in::MKEY_INDEX, number)
        .reply(query_mkey_out::SIZE)
}

#[test]
fn a_command_is_executed_and_answered() {
    let reply = Command::new(opcode::QUERY_ADAPTER, query_adapter_in::SIZE)
        .reply(query_adapter_out::SIZE)
        .query(&context())
        .unwrap();
    let block = reply.bytes(query_adapter_out::QUERY_ADAPTER_STRUCT);
    assert_eq!(query_adapter_param_block::VSD_VENDOR_ID.get(block), 0x15b3);
    assert_eq!(reply.as_bytes().len(), query_adapter_out::SIZE);
}

#[test]
fn any_bytes_can_be_sent_and_what_comes_back_is_given() {
    let mut bytes = vec![0; 16];
    cmd_in::OPCODE.set(&mut bytes, opcode::QUERY_ADAPTER.into());
    let raw = Command::from_bytes(bytes).reply(query_adapter_out::SIZE);
    let built = Command::new(opcode::QUERY_ADAPTER, 16).reply(query_adapter_out::SIZE);
    let context = context();
    assert_eq!(raw.query(&context).unwrap(), built.query(&context).unwrap());
}

#[test]
fn a_refusal_has_status_syndrome_and_what_was_sent() {
    let error = Command::new(opcode::QUERY_ROCE_ADDRESS, query_roce_address_in::SIZE)
        .set(query_roce_address_in::ROCE_ADDRESS_INDEX, 0xffffu32)
        .reply(0x30)
        .query(&context())
        .unwrap_err();
    let Error::Refused(refused) = &error else { panic!("{error}") };
    assert_eq!(refused.opcode(), opcode::QUERY_ROCE_ADDRESS);
    assert!([status::BAD_OP_ERR, status::IX_ERR].contains(&refused.status()), "{error}");
    assert_ne!(refused.syndrome(), 0);
    let text = error.to_string();
    for part in ["QUERY_ROCE_ADDRESS (0x", "syndrome 0x", "roce_address_index = 0xffff"] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
}

#[test]
fn the_kernel_withholds_what_is_not_general() {
    let context = context();
    // Makes an object, which this call does not take.
    let command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE);
    let error = execute(&command, &context).unwrap_err();
    let Error::Withheld(withheld) = &error else { panic!("{error}") };
    assert_eq!(withheld.errno().0, libc::EINVAL);
    assert_eq!(withheld.call(), "mlx5dv_devx_general_cmd");
    assert!(error.to_string().contains("ALLOC_PD"), "{error}");
    // Only asks, and this call takes what makes objects.
    let error = create(&Command::new(opcode::QUERY_ADAPTER, 16), &context).unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
    // Nothing at all.
    let error = execute(&Command::from_bytes([0xff; 16]), &context).unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
}

#[test]
fn what_cannot_be_sent_is_told_before_it_is() {
    let context = context();
    let adapter = || Command::new(opcode::QUERY_ADAPTER, query_adapter_in::SIZE);
    let past = Field::named("PAST", 0x10, 31, 32);
    for (command, parts) in [
        (adapter().set(cmd_in::OP_MOD, 0x1_0000u32), ["OP_MOD", "0x10000", "16 bits"]),
        (adapter().set(past, 0u32), ["PAST", "byte 0x10", "16 bytes"]),
        (adapter().bytes(past, &[0; 4]), ["PAST", "byte 0x10", "16 bytes"]),
        (adapter().bytes(cmd_in::OP_MOD, &[0; 3]), ["OP_MOD", "3 bytes", "16 bits"]),
        (adapter().reply(15), ["reply", "15 bytes", "16 to 65535"]),
        (adapter().reply(1 << 16), ["reply", "65536 bytes", "16 to 65535"]),
        (adapter().tail([0; 1 << 13]), ["command", "65552 bytes", "16 to 65535"]),
        (Command::from_bytes([]), ["command", "0 bytes", "16 to 65535"]),
    ] {
        for error in
            [execute(&command, &context).unwrap_err(), create(&command, &context).unwrap_err()]
        {
            assert!(matches!(error, Error::Attribute { .. }), "{error}");
            let text = error.to_string();
            for part in parts {
                assert!(text.contains(part), "{part:?} is missing in {text:?}");
            }
        }
    }
}

#[test]
fn an_object_is_made_asked_about_and_destroyed() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let key = create(&make_key(pdn(&pd), 4), &context).unwrap();
    let reply = key.query(&query(number(&key))).unwrap();
    let entry = reply.bytes(query_mkey_out::MEMORY_KEY_MKEY_ENTRY);
    assert_eq!(mkc::PD.get(entry), u64::from(pdn(&pd)));
    assert_eq!(mkc::TRANSLATIONS_OCTWORD_SIZE.get(entry), 4);
    // Only the object that the call names can be named in the command.
    let other = create(&make_key(pdn(&pd), 4), &context).unwrap();
    let error = key.query(&query(number(&other))).unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
    // Keys cannot be changed by command.
    // SAFETY: the command only asks.
    let error = unsafe { key.modify(&query(number(&key))) }.unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
    key.destroy().unwrap();
    drop(other);
}

#[test]
fn an_object_keeps_what_it_stands_on_until_it_is_gone() {
    use std::sync::Arc;
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let stands_on = Arc::new(());
    for way in 0..3 {
        let mut key = create(&make_key(pdn(&pd), 1), &context).unwrap();
        key.keep(stands_on.clone());
        key.keep(pd.clone());
        assert_eq!(Arc::strong_count(&stands_on), 2);
        match way {
            0 => drop(key),
            1 => key.destroy().unwrap(),
            // Leaked: the kernel has it until the device is closed, and what it stands on stays.
            _ => std::mem::forget(key),
        }
        assert_eq!(Arc::strong_count(&stands_on), if way == 2 { 2 } else { 1 });
    }
}

#[test]
fn a_context_stays_open_as_long_as_its_objects() {
    let key = {
        let context = context();
        let pd = ProtectionDomain::new(&context).unwrap();
        let mut key = create(&make_key(pdn(&pd), 1), &context).unwrap();
        key.keep(pd);
        key
    };
    key.query(&query(number(&key))).unwrap();
    std::thread::spawn(move || key.destroy().unwrap()).join().unwrap();
}

#[test]
fn safe_queries_refuse_commands_that_change_something() {
    let context = context();
    let pd = ProtectionDomain::new(&context).unwrap();
    let key = create(&make_key(pdn(&pd), 4), &context).unwrap();
    let cq = CompletionQueue::new(&context, 16).unwrap();
    let qp = QueuePair::<Rc, _>::builder(&pd, &cq).build().unwrap();
    let commands = AsyncCommands::new(&context).unwrap();
    let changes = [
        make_key(pdn(&pd), 4),
        Command::new(opcode::QP_2RST, qp_2rst_in::SIZE).set(qp_2rst_in::QPN, qp.number()),
        Command::new(opcode::MODIFY_SQ, 0x100),
        Command::new(opcode::DESTROY_MKEY, 16),
        // Opcodes without a name, which the card alone knows.
        Command::new(0xb05, 16),
        Command::from_bytes([0x0b, 0x05, 0, 0]).tail([0, 0]),
    ];
    for command in changes {
        let errors = [
            command.query(&context).unwrap_err(),
            key.query(&command).unwrap_err(),
            qp.query_by(&command).unwrap_err(),
            commands.query(&key, &command, 0).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Attribute { .. }), "{error}");
            let said = error.to_string();
            for part in ["opcode is ", &command.name().to_string(), "QUERY_*", "unsafe"] {
                assert!(said.contains(part), "{part:?} is missing in {said:?}");
            }
        }
    }
    assert_eq!(commands.outstanding(), 0);
}

#[test]
fn queries_that_let_the_hca_write_memory_are_not_safe() {
    let pd = ProtectionDomain::new(&context()).unwrap();
    let region = pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let counters = |flags: u8| {
        let mut bytes = [0; 0x20];
        bytes[..2].copy_from_slice(&opcode::QUERY_FLOW_COUNTER.to_be_bytes());
        bytes[0x0c..0x10].copy_from_slice(&region.lkey().to_be_bytes());
        bytes[0x10..0x18].copy_from_slice(&region.address().to_be_bytes());
        bytes[0x18] = flags;
        bytes[0x1b] = 4;
        Command::from_bytes(bytes.to_vec()).reply(0x20).query(&context()).unwrap_err()
    };
    let error = counters(0x40);
    assert!(matches!(error, Error::Attribute { .. }), "{error}");
    assert!(error.to_string().contains("dump_to_memory"), "{error}");
    // Without that bit it is sent, and refused elsewhere: the program has no flow counter.
    let error = counters(0);
    assert!(!matches!(error, Error::Attribute { .. }), "{error}");
}
