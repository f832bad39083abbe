//! Commands on memory: umems, memory keys, and device memory.

use mlx5_sys::ifc::{
    Field, alloc_memic_in, alloc_memic_out, create_mkey_in, create_psv_in, create_psv_out,
    create_umem_in, dealloc_memic_in, destroy_mkey_in, destroy_psv_in, destroy_umem_in, mkc,
    opcode, query_mkey_in, umem,
};

use super::super::Refusal;
use super::super::buffer::PAS;
use super::{Case, Command, Rig, Row};
use crate::object::{Memic, Room};

pub const ROWS: &[Row] = &[
    Row::users(create_umem),
    Row::users(destroy_umem),
    Row::new(create_mkey),
    Row::new(create_indirect_mkey),
    Row::new(create_mkey_of_pieces),
    Row::users(create_mkey_in_umem),
    Row::new(create_memic_mkey),
    Row::drivers(create_physical_mkey),
    Row::new(query_mkey),
    Row::new(destroy_mkey),
    Row::new(create_psv),
    Row::new(destroy_psv),
    Row::new(alloc_memic),
    Row::new(dealloc_memic),
];

/// Position of the list of keys or pages in a command.
const LIST: Field = Field::new(PAS, 31, 64);

/// Two pages of memory by number.
pub fn umem(rig: &mut Rig) -> u32 {
    rig.umem().0
}

fn create_umem(rig: &mut Rig) -> Case {
    let field = |field: Field| field.within(create_umem_in::UMEM);
    let create = rig.create_umem();
    Case::anyones(create)
        .refuses(field(umem::ATS), 1u64, Refusal::UmemShape)
        .refuses(field(umem::LOG_PAGE_SIZE), 19u64, Refusal::UmemShape)
        .refuses(field(umem::LOG_PAGE_SIZE), 1u64, Refusal::PageAddress)
        .refuses(field(umem::PAGE_OFFSET), 4096u64, Refusal::UmemShape)
        .refuses(field(umem::NUM_OF_MTT), 0u64, Refusal::UmemShape)
        .refuses(field(umem::NUM_OF_MTT), 3u64, Refusal::InputLength)
        .refuses(field(umem::NUM_OF_MTT), u64::MAX, Refusal::InputLength)
        .refuses(Field::new(0x30, 31, 64), 0x10_0040u64, Refusal::PageAddress)
        .refuses(Field::new(0x38, 31, 64), 0x10_0040u64, Refusal::PageAddress)
        .of_driver(Refusal::UmemOfDriver)
        .after(|rig, _| rig.card.objects.room = Room::of(0), Refusal::NoRoom)
}

fn destroy_umem(rig: &mut Rig) -> Case {
    let (idle, busy) = (umem(rig), umem(rig));
    let (domain, cq) = (rig.xrc_domain(), rig.cq());
    let holders = [
        rig.create_cq_in_umem(busy),
        rig.create_mkey_in_umem(busy),
        rig.create_rmp_in_umem(busy),
        rig.create_xrc_srq_in_umem(domain, cq, busy),
    ]
    .map(|create| rig.holder(&create));
    let destroy = Command::new(opcode::DESTROY_UMEM, 0x10).set(destroy_umem_in::UMEM_ID, idle);
    Case::new(destroy)
        .refuses(destroy_umem_in::UMEM_ID, 5u64, Refusal::NoUmem)
        .held(destroy_umem_in::UMEM_ID, busy, Refusal::UmemBusy, holders)
        .twice(Refusal::NoUmem)
}

fn key(field: Field) -> Field {
    field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY)
}

/// Creates a case with the refusals common to all keys. Users may not use the driver's PD.
fn key_case(rig: &mut Rig, create: Command) -> Case {
    let pd = rig.foreign_pd();
    let case = Case::new(create);
    let case = match rig.user {
        // The driver names any number.
        0 => case.kind(key(mkc::PD)),
        _ => case.refuses(key(mkc::PD), 0u64, Refusal::NoPd),
    };
    case.refuses(create_mkey_in::PG_ACCESS, 1u64, Refusal::MkeyPageAccess)
        .refuses(create_mkey_in::INPUT_MKEY_INDEX, 1u64, Refusal::MkeyIndex)
        .refuses(key(mkc::BSF_EN), 1u64, Refusal::MkeySignature)
        .refuses(key(mkc::BSF_OCTWORD_SIZE), 4u64, Refusal::MkeySignature)
        .refuses(key(mkc::QPN), 5u64, Refusal::MkeyQp)
        .foreign(key(mkc::PD), pd)
}

/// Adds the refusals of a key's length.
fn with_length(case: Case) -> Case {
    case.refuses(key(mkc::LEN), 0u64, Refusal::MkeyLength)
        .refuses(key(mkc::LEN), (1u64 << 47) + 1, Refusal::MkeyLength)
        .refuses(key(mkc::LENGTH64), 1u64, Refusal::MkeyLength)
        .refuses(key(mkc::START_ADDR), u64::MAX - 0xffe, Refusal::MkeyLength)
}

fn create_mkey(rig: &mut Rig) -> Case {
    let given = create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE;
    let room = key(mkc::TRANSLATIONS_OCTWORD_SIZE);
    let create = rig.create_mkey();
    let long =
        create.clone().set(key(mkc::LEN), 1u64 << 40).set(room, 1u64 << 30).set(given, 1u64 << 30);
    let case = with_length(key_case(rig, create))
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 1u64, Refusal::NoUmem)
        .refuses(key(mkc::ACCESS_MODE_4_2), 1u64, Refusal::MkeyMemic)
        .kind(key(mkc::ACCESS_MODE_1_0))
        .refuses(key(mkc::ACCESS_MODE_4_2), 2u64, Refusal::MkeyAccessMode)
        .refuses(key(mkc::ACCESS_MODE_4_2), 3u64, Refusal::MkeyAccessMode)
        .refuses(key(mkc::LOG_PAGE_SIZE), 11u64, Refusal::MkeyPageSize)
        .refuses(key(mkc::LEN), 0x2000u64, Refusal::MkeyTranslation)
        .refuses(room, 0u64, Refusal::MkeyEmpty)
        .refuses(given, 0u64, Refusal::MkeyTranslation)
        .refuses(LIST, 0x10_0100u64, Refusal::PageAddress)
        .refuses(Field::new(PAS + 8, 31, 64), 0x10_0100u64, Refusal::PageAddress)
        .otherwise(long, Refusal::InputLength);
    if rig.user == 0 {
        return case;
    }
    let physical = physical_key(rig);
    case.otherwise(physical, Refusal::MkeyPhysicalUser)
}

fn create_indirect_mkey(rig: &mut Rig) -> Case {
    let given = create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE;
    let room = key(mkc::TRANSLATIONS_OCTWORD_SIZE);
    let create = rig.create_mkey().set(key(mkc::ACCESS_MODE_1_0), 2u64);
    let long = create.clone().set(room, 64u64).set(given, 64u64);
    with_length(key_case(rig, create))
        .kind(key(mkc::ACCESS_MODE_1_0))
        .refuses(key(mkc::ACCESS_MODE_4_2), 2u64, Refusal::MkeyAccessMode)
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 1u64, Refusal::MkeyUmem)
        .refuses(room, 0u64, Refusal::MkeyEmpty)
        .refuses(room, (1u64 << 16) + 1, Refusal::MkeyTranslation)
        .refuses(room, 0xffff_ffffu64, Refusal::MkeyTranslation)
        .refuses(given, 0u64, Refusal::MkeyTranslation)
        .refuses(given, 2u64, Refusal::MkeyTranslation)
        .otherwise(long, Refusal::InputLength)
}

/// Gives the card memory of its own, and the user or the driver 64 bytes of it.
fn memic(rig: &mut Rig) -> u64 {
    if !rig.card.memic.is_there() {
        rig.give_memic();
    }
    let reply = rig.run(&Command::alloc_memic(64)).expect("device memory");
    alloc_memic_out::MEMIC_START_ADDR.get(&reply)
}

/// Keys that each stand for 4 KiB.
fn create_mkey_of_pieces(rig: &mut Rig) -> Case {
    let given = create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE;
    let room = key(mkc::TRANSLATIONS_OCTWORD_SIZE);
    let create = rig.create_mkey().set(key(mkc::ACCESS_MODE_1_0), 3u64);
    with_length(key_case(rig, create))
        .kind(key(mkc::ACCESS_MODE_1_0))
        .refuses(key(mkc::ACCESS_MODE_4_2), 2u64, Refusal::MkeyAccessMode)
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 1u64, Refusal::MkeyUmem)
        .refuses(key(mkc::LOG_PAGE_SIZE), 11u64, Refusal::MkeyEntity)
        .refuses(key(mkc::LEN), 0x1001u64, Refusal::MkeyTranslation)
        .refuses(room, 0u64, Refusal::MkeyEmpty)
        .refuses(given, 0u64, Refusal::MkeyTranslation)
        .refuses(given, 2u64, Refusal::MkeyTranslation)
}

/// A key whose first page starts where its umem does.
fn create_mkey_in_umem(rig: &mut Rig) -> Case {
    let (own, others) = (umem(rig), rig.as_stranger(umem));
    let create = rig.create_mkey_in_umem(own);
    // It starts inside of the memory, and ends behind it.
    let beyond = create
        .clone()
        .set(key(mkc::START_ADDR), 0x7000_0040u64)
        .set(create_mkey_in::MKEY_UMEM_OFFSET, 0x1040u64);
    with_length(key_case(rig, create))
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 0u64, Refusal::InputLength)
        .refuses(create_mkey_in::MKEY_UMEM_ID, 1u64, Refusal::NoUmem)
        .refuses(create_mkey_in::MKEY_UMEM_ID, others, Refusal::Owner)
        .refuses(create_mkey_in::MKEY_UMEM_OFFSET, 0x2000u64, Refusal::UmemRange)
        .refuses(create_mkey_in::MKEY_UMEM_OFFSET, u64::MAX, Refusal::UmemRange)
        .otherwise(beyond, Refusal::UmemRange)
        .refuses(create_mkey_in::MKEY_UMEM_OFFSET, 0x80u64, Refusal::MkeyUmem)
        .refuses(key(mkc::ACCESS_MODE_1_0), 2u64, Refusal::MkeyUmem)
        .refuses(key(mkc::ACCESS_MODE_4_2), 1u64, Refusal::MkeyUmem)
        .refuses(key(mkc::LOG_PAGE_SIZE), 11u64, Refusal::MkeyPageSize)
        .refuses(key(mkc::TRANSLATIONS_OCTWORD_SIZE), 0u64, Refusal::MkeyEmpty)
        .refuses(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 0u64, Refusal::MkeyTranslation)
}

fn memic_key(rig: &mut Rig, start: u64) -> Command {
    rig.create_mkey()
        .set(key(mkc::ACCESS_MODE_1_0), 1u64)
        .set(key(mkc::ACCESS_MODE_4_2), 1u64)
        .set(key(mkc::START_ADDR), start)
        .set(key(mkc::LEN), 64u64)
}

fn create_memic_mkey(rig: &mut Rig) -> Case {
    let start = memic(rig);
    let create = memic_key(rig, start);
    key_case(rig, create)
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 1u64, Refusal::MkeyUmem)
        .refuses(key(mkc::ACCESS_MODE_1_0), 2u64, Refusal::MkeyAccessMode)
        .refuses(key(mkc::ACCESS_MODE_4_2), 2u64, Refusal::MkeyAccessMode)
        .refuses(key(mkc::LENGTH64), 1u64, Refusal::MkeyLength)
        .refuses(key(mkc::START_ADDR), start - 1, Refusal::MkeyMemic)
        .refuses(key(mkc::START_ADDR), start + 64, Refusal::MkeyMemic)
        .refuses(key(mkc::LEN), 65u64, Refusal::MkeyMemic)
}

/// Bus addresses, as the driver alone names them.
fn physical_key(rig: &mut Rig) -> Command {
    let create = rig.create_mkey();
    create.set(key(mkc::ACCESS_MODE_1_0), 0u64).set(key(mkc::LENGTH64), 1u64)
}

fn create_physical_mkey(rig: &mut Rig) -> Case {
    let create = physical_key(rig);
    key_case(rig, create)
        .refuses(create_mkey_in::MKEY_UMEM_VALID, 1u64, Refusal::MkeyUmem)
        .refuses(key(mkc::ACCESS_MODE_1_0), 1u64, Refusal::MkeyLength)
        .refuses(key(mkc::ACCESS_MODE_4_2), 1u64, Refusal::MkeyAccessMode)
}

fn query_mkey(rig: &mut Rig) -> Case {
    let create = rig.create_mkey();
    let key = rig.mkey(&create);
    let foreign = rig.foreign_key();
    let query = Command::new(opcode::QUERY_MKEY, 0x10).set(query_mkey_in::MKEY_INDEX, key >> 8);
    Case::new(query)
        .refuses(query_mkey_in::MKEY_INDEX, 1u64, Refusal::NoMkey)
        .refuses(query_mkey_in::PG_ACCESS, 1u64, Refusal::MkeyPageAccess)
        .foreign(query_mkey_in::MKEY_INDEX, foreign)
}

fn destroy_mkey(rig: &mut Rig) -> Case {
    let create = rig.create_mkey();
    let key = rig.mkey(&create);
    let foreign = rig.foreign_key();
    let destroy =
        Command::new(opcode::DESTROY_MKEY, 0x10).set(destroy_mkey_in::MKEY_INDEX, key >> 8);
    Case::new(destroy)
        .refuses(destroy_mkey_in::MKEY_INDEX, 1u64, Refusal::NoMkey)
        .foreign(destroy_mkey_in::MKEY_INDEX, foreign)
        .twice(Refusal::NoMkey)
}

fn alloc_memic(rig: &mut Rig) -> Case {
    memic(rig);
    Case::anyones(Command::alloc_memic(64))
        .refuses(alloc_memic_in::MEMIC_SIZE, 0u64, Refusal::MemicSize)
        .refuses(alloc_memic_in::MEMIC_SIZE, 65u64, Refusal::MemicSize)
        .refuses(alloc_memic_in::MEMIC_SIZE, 0x1040u64, Refusal::MemicExhausted)
        .refuses(alloc_memic_in::RANGE_START_ADDR, Memic::WINDOW - 64, Refusal::MemicRange)
        .refuses(alloc_memic_in::RANGE_START_ADDR, u64::MAX, Refusal::MemicRange)
        .refuses(alloc_memic_in::RANGE_SIZE, 0xffff_ffffu64, Refusal::MemicRange)
        .refuses(alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT, 7u64, Refusal::MemicAlignment)
        .refuses(alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT, 255u64, Refusal::MemicAlignment)
}

fn dealloc_memic(rig: &mut Rig) -> Case {
    let (idle, busy) = (memic(rig), memic(rig));
    let create = memic_key(rig, busy);
    let holder = rig.holder(&create);
    let dealloc = Command::new(opcode::DEALLOC_MEMIC, 0x20)
        .set(dealloc_memic_in::MEMIC_START_ADDR, idle)
        .set(dealloc_memic_in::MEMIC_SIZE, 64u64);
    Case::new(dealloc)
        .refuses(dealloc_memic_in::MEMIC_START_ADDR, idle + 1, Refusal::NoMemic)
        .held(dealloc_memic_in::MEMIC_START_ADDR, busy, Refusal::MemicBusy, [holder])
        .refuses(dealloc_memic_in::MEMIC_SIZE, 128u64, Refusal::NoMemic)
        .twice(Refusal::NoMemic)
}

fn psv_command(rig: &Rig, count: u64) -> Command {
    Command::new(opcode::CREATE_PSV, create_psv_in::SIZE)
        .set(create_psv_in::NUM_PSV, count)
        .set(create_psv_in::PD, rig.pd)
}

/// One PSV.
pub fn psv(rig: &mut Rig) -> u32 {
    rig.number(&psv_command(rig, 1), create_psv_out::PSV0_INDEX)
}

fn create_psv(rig: &mut Rig) -> Case {
    let pd = rig.foreign_pd();
    Case::new(psv_command(rig, 3))
        .refuses(create_psv_in::NUM_PSV, 0u64, Refusal::PsvCount)
        .refuses(create_psv_in::NUM_PSV, 5u64, Refusal::PsvCount)
        .refuses(create_psv_in::PD, 1u64, Refusal::NoPd)
        .foreign(create_psv_in::PD, pd)
}

fn destroy_psv(rig: &mut Rig) -> Case {
    let (own, foreign) = (psv(rig), rig.foreign(psv));
    Case::new(Command::new(opcode::DESTROY_PSV, 0x10).set(destroy_psv_in::PSVN, own))
        .refuses(destroy_psv_in::PSVN, 5u64, Refusal::NoPsv)
        .foreign(destroy_psv_in::PSVN, foreign)
        .twice(Refusal::NoPsv)
}
