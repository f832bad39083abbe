//! Doorbell registers: which kinds the kernel provides, and the cost of stores to them.

use mlx5::connect::LocalPort;
use mlx5::devx::{Uar, UarKind};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Devx, ProtectionDomain, QueuePair, Rts};

use super::check::{Check, Group, Question};
use super::situation::Situation;

pub fn look(situation: &Situation) -> Vec<Check> {
    let mut checks: Vec<Check> =
        UarKind::ALL.into_iter().map(|kind| register(situation, kind)).collect();
    checks.push(copies(situation));
    checks
}

fn register(situation: &Situation, kind: UarKind) -> Check {
    let why = match kind {
        UarKind::BlueFlame => "short WQEs are copied to it: the device need not fetch them",
        UarKind::NonCached => {
            "a doorbell for queues by command, without the flush of write-combining"
        }
        UarKind::NonCachedDedicated => "the same for one queue alone; rings without being shared",
    };
    let question = Question::new(Group::Registers, kind.to_string(), "mlx5dv_devx_alloc_uar", why);
    let Some(context) = situation.context() else {
        return question.not_applicable(situation.why_not_open());
    };
    if let Devx::Refused(_) = context.devx() {
        return question.unknown("registers are given by DevX, which is refused: see there", None);
    }
    match (Uar::new(context, kind), kind) {
        (Ok(uar), UarKind::BlueFlame) if uar.blue_flame() == 0 => question.warning(
            "given, but the device has no BlueFlame",
            "none: each request is fetched from memory after an 8-byte doorbell",
        ),
        (Ok(uar), UarKind::BlueFlame) => {
            question.good(format!("given, two buffers of {} bytes", uar.blue_flame()))
        }
        (Ok(_), _) => question.good("given"),
        (Err(error), UarKind::BlueFlame) => question.warning(
            error.to_string(),
            "dmesg | grep 'Write combining'; in a virtual machine ask for write-combining of the \
             device's memory. Doorbells of 8 bytes work all the same",
        ),
        // This kind is newer than the kernels of long-term distributions, and no program requires
        // it.
        (Err(error), UarKind::NonCachedDedicated) => question.not_applicable(error.to_string()),
        (Err(error), UarKind::NonCached) => question.warning(
            error.to_string(),
            "a newer kernel; until then: a BlueFlame register (UarKind)",
        ),
    }
}

/// Rounds of NOPs for each way of copying.
const ROUNDS: u32 = 200;

fn copies(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Registers,
        "write combining",
        "bf.size of mlx5dv_init_obj; NOPs by each way of copying, timed",
        "combined, a WQE of 64 bytes goes to the device as one packet of PCI Express",
    );
    let Some(context) = situation.context() else {
        return question.not_applicable(situation.why_not_open());
    };
    let port = situation.ports().into_iter().find(|&port| situation.is_active(port));
    let Some(port) = port else {
        return question.unknown("a queue pair in RTS is needed, and no port is active", None);
    };
    let cq = match CompletionQueue::new(context, 16) {
        Ok(cq) => cq,
        Err(error) => return question.unknown(error.to_string(), None),
    };
    let queue_pair = match to_itself(context, &cq, port, situation) {
        Ok(queue_pair) => queue_pair,
        Err(error) => return question.unknown(error.to_string(), None),
    };
    let measured = (|| -> Result<_, Box<dyn std::error::Error>> {
        let mut completions = CqReader::new(&cq)?;
        let mut queue = SendQueue::new(&queue_pair, &mut completions, SendConfig::default())?;
        if queue.copy().is_none() {
            return Ok(None);
        }
        if situation.model {
            return Ok(Some(None));
        }
        Ok(Some(Some(queue.probe_copies(&mut completions, ROUNDS)?)))
    })();
    match measured {
        Err(error) => question.unknown(error.to_string(), None),
        Ok(None) => question.warning(
            "no queue pair may copy WQEs to its register (bf.size is 0): the kernel found that stores \
             are not combined, or MLX5_SHUT_UP_BF is set",
            "dmesg | grep 'Write combining'; unset MLX5_SHUT_UP_BF",
        ),
        Ok(Some(None)) => question.not_applicable(
            "WQEs are copied; times are not measured, as the model's registers are memory",
        ),
        Ok(Some(Some(probe))) => {
            let times = probe.times().iter();
            let times = times.map(|time| {
                format!("{} {} + {} ns", time.copy.name(), time.post, time.completion)
            });
            question.good(format!(
                "NOPs, posted + completed: {}; fastest {}",
                times.collect::<Vec<_>>().join(", "),
                probe.fastest().name()
            ))
        }
    }
}

/// Creates a queue pair in RTS that is its own peer.
pub fn to_itself(
    context: &Context,
    cq: &CompletionQueue,
    port: u8,
    situation: &Situation,
) -> mlx5::Result<QueuePair<Rc, Rts>> {
    let gid = situation.arguments.gid_index.and_then(|index| u8::try_from(index).ok());
    let local = LocalPort::new(context, port, gid)?;
    let pd = ProtectionDomain::new(context)?;
    let queue_pair = QueuePair::builder(&pd, cq).max_send_wr(16).max_recv_wr(4).build()?;
    let own = local.connection_data(&queue_pair);
    let queue_pair = queue_pair.init(&local.init())?.rtr(&local.rtr(&own, &own))?;
    Ok(queue_pair.rts(&local.rts(&own, &own))?)
}
