//! The device's context of a queue pair, by field names, before and after it is connected; and whether
//! verbs report the same.
//!
//! ```console
//! $ cargo run --example devx_query
//! ```

use mlx5::Error;
use mlx5::connect::LocalPort;
use mlx5::devx::ifc::{ads, cmd_hca_cap, opcode, qpc, query_qp_in, query_qp_out};
use mlx5::devx::{Command, CommandTarget, Group};
use mlx5::ib::Rc;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};

// With no device in the machine, the model stands in for one.
use mlx5_model as _;

fn main() -> Result<(), Error> {
    let context = Context::open_first()?;

    // Firmware commands take a context that was opened with DevX; this says if it was, or why not.
    println!("{}: {}", context.name(), context.devx());
    let adapter = context.adapter()?;
    println!("board {}, PCI vendor {:#06x}", adapter.psid, adapter.vendor_id);

    // What the device can do is asked by group and field; what is missing is an error with its name.
    let capabilities = context.capabilities();
    capabilities.require(Group::General, cmd_hca_cap::RC, "a reliable connection")?;
    let depth = capabilities.current(Group::General, cmd_hca_cap::LOG_MAX_QP_SZ)?;
    println!("a send queue has at most {} units of 64 bytes", 1u64 << depth.unwrap_or(0));

    // A queue pair as verbs make it.
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let qp = QueuePair::<Rc, _>::builder(&pd, &cq).max_send_wr(100).build()?;
    let before = qp.object_context()?;
    println!("\nafter CREATE_QP\n{before}");

    // To RTS, connected to itself.
    let local = LocalPort::new(&context, 1, None)?;
    let qp = qp.init(&local.init()).map_err(|failed| failed.error)?;
    let end = local.connection_data(&qp);
    let qp = qp.rtr(&local.rtr(&end, &end)).map_err(|failed| failed.error)?;
    let qp = qp.rts(&local.rts(&end, &end)).map_err(|failed| failed.error)?;

    // Each move was a command to the device; here is what they have set.
    let after = qp.object_context()?;
    println!("\nset on the way to RTS");
    for (field, old, new) in before.differences(&after) {
        println!("  {}: {old:#x} -> {new:#x}", field.path());
    }

    // Verbs say the same in their own words.
    let told = qp.query()?;
    let path = |field: mlx5::devx::ifc::Field| after.get(field.within(qpc::PRIMARY_ADDRESS_PATH));
    println!("\n{:<24} {:>10} {:>10}", "", "the device", "verbs");
    for (what, device, verbs) in [
        ("destination", after.get(qpc::REMOTE_QPN), told.destination.into()),
        ("next PSN to send", after.get(qpc::NEXT_SEND_PSN), told.sq_psn.into()),
        ("next PSN expected", after.get(qpc::NEXT_RCV_PSN), told.rq_psn.into()),
        ("retries", after.get(qpc::RETRY_COUNT), told.retry_cnt.into()),
        ("port", path(ads::VHCA_PORT_NUM), told.port.into()),
        ("index of the P_Key", path(ads::PKEY_INDEX), told.pkey_index.into()),
    ] {
        println!("{what:<24} {device:>#10x} {verbs:>#10x}");
        assert_eq!(device, verbs, "{what}");
    }

    // The same by hand: any command, its reply as bytes. It has to name the object it is given on.
    let query = |number: u32| {
        Command::new(opcode::QUERY_QP, query_qp_in::SIZE)
            .set(query_qp_in::QPN, number)
            .reply(query_qp_out::SIZE)
    };
    let reply = qp.query_by(&query(qp.number()))?;
    assert_eq!(reply.bytes(query_qp_out::QPC), after.as_bytes());
    let error = qp.query_by(&query(qp.number() ^ 1)).expect_err("another's number");
    println!("\nanother's number: {error}");
    Ok(())
}
