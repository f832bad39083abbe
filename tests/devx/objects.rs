//! Domains, counter sets and keys: created, refused, destroyed while other objects use them, and
//! dropped in any order.

use mlx5::Error;
use mlx5::devx::ifc::{
    alloc_pd_in, alloc_pd_out, create_psv_in, create_psv_out, create_tis_in, dealloc_pd_in, opcode,
    status, tisc,
};
use mlx5::devx::{Command, DevxMkey, DevxPd, DevxXrcd, TransportDomain};
use mlx5::verbs::{self, Context};
use mlx5_model as _;

use crate::commands::{create, execute};

fn context() -> Context {
    Context::open_first().unwrap()
}

/// Status and words of what the card refused.
fn refused(error: &Error) -> (u8, String) {
    match error {
        Error::Refused(refused) => (refused.status(), error.to_string()),
        other => panic!("not refused by the card: {other}"),
    }
}

#[test]
fn domains_have_numbers_of_their_own() {
    let context = context();
    let pds = [0; 3].map(|_| DevxPd::new(&context).unwrap());
    let other = verbs::ProtectionDomain::new(&context).unwrap();
    let mut numbers: Vec<u32> = pds.iter().map(DevxPd::number).collect();
    numbers.push(other.number().unwrap());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    assert_eq!(pds[0].context().as_raw(), context.as_raw());
    assert!(format!("{:?}", pds[0]).contains("DevxPd"));
    let domains = [0; 2].map(|_| TransportDomain::new(&context).unwrap());
    assert_ne!(domains[0].number(), domains[1].number());
    let domains = [0; 2].map(|_| DevxXrcd::new(&context).unwrap());
    assert_ne!(domains[0].number(), domains[1].number());
}

#[test]
fn what_stands_on_a_domain_keeps_it() {
    let context = context();
    let pd = DevxPd::new(&context).unwrap();
    let key = DevxMkey::builder(&pd).free(4).unwrap();
    // The domain's last owner is gone before the key is, and so is the context's.
    drop((pd, context));
    key.query().unwrap();
    drop(key);
}

#[test]
fn a_domain_in_use_is_not_destroyed() {
    let context = context();
    // By hand, so that nothing keeps anything.
    let pd = create(&Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE), &context).unwrap();
    let number = pd.reply().get(alloc_pd_out::PD);
    let psv = create(&make_psv(1, number), &context).unwrap();
    let failed = pd.destroy().unwrap_err();
    assert!(failed.error.errno().is_some(), "{failed}");
    let pd = failed.object;
    psv.destroy().unwrap();
    pd.destroy().unwrap();
}

fn make_psv(count: u32, pd: u64) -> Command {
    Command::new(opcode::CREATE_PSV, create_psv_in::SIZE)
        .set(create_psv_in::NUM_PSV, count)
        .set(create_psv_in::PD, pd)
        .reply(create_psv_out::SIZE)
}

#[test]
fn a_psv_needs_a_domain_and_is_made_alone() {
    let context = context();
    let pd = DevxPd::new(&context).unwrap();
    create(&make_psv(1, pd.number().into()), &context).unwrap();
    let (status, text) = refused(&create(&make_psv(1, 0xff_fff0), &context).unwrap_err());
    assert_eq!(status, status::BAD_RES_ERR, "{text}");
    assert!(text.contains("CREATE_PSV") && text.contains("pd = 0xfffff0"), "{text}");
    // Several at once could not go by themselves, so the kernel withholds it.
    let error = create(&make_psv(2, pd.number().into()), &context).unwrap_err();
    assert!(matches!(error, Error::Withheld(_)), "{error}");
}

#[test]
fn objects_of_one_opened_device_are_not_reached_from_another() {
    let (own, other) = (context(), context());
    let pd = DevxPd::new(&other).unwrap();
    let foreign: u64 = pd.number().into();
    let (status, text) = refused(&create(&make_psv(1, foreign), &own).unwrap_err());
    assert_eq!(status, status::BAD_RES_ERR, "{text}");
    let domain = TransportDomain::new(&other).unwrap();
    let tis = Command::new(opcode::CREATE_TIS, create_tis_in::SIZE)
        .set(tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX), domain.number());
    assert_eq!(refused(&create(&tis, &own).unwrap_err()).0, status::BAD_RES_ERR);
    assert!(create(&tis, &other).is_ok());
    // Nor is one destroyed by a command of another.
    let free =
        Command::new(opcode::DEALLOC_PD, dealloc_pd_in::SIZE).set(dealloc_pd_in::PD, foreign);
    assert!(matches!(execute(&free, &own), Err(Error::Withheld(_))));
    create(&make_psv(1, foreign), &other).unwrap();
}

#[test]
fn objects_that_are_leaked_do_no_harm() {
    let context = context();
    let pd = DevxPd::new(&context).unwrap();
    std::mem::forget(DevxMkey::builder(&pd).free(1).unwrap());
    std::mem::forget(crate::counters::set(&context));
    let number = pd.number();
    drop(pd);
    // The domain is still there, under what was leaked on it.
    assert_ne!(DevxPd::new(&context).unwrap().number(), number);
}

#[test]
fn objects_come_and_go_by_the_thousand() {
    let context = context();
    let mut kept = Vec::new();
    for round in 0..1000u32 {
        let pd = DevxPd::new(&context).unwrap();
        let key = DevxMkey::builder(&pd).free(round % 16 + 1).unwrap();
        match round % 3 {
            0 => drop((pd, key)),
            1 => drop((key, pd)),
            _ => kept.push((pd, key)),
        }
        if kept.len() > 64 {
            kept.clear();
        }
    }
}
