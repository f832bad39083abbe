//! Reads the RDMA objects of a process.

use std::collections::BTreeMap;

use mlx5::devx::ifc::{cqc, qpc};
use mlx5::diag::text::Structure;
use mlx5::verbs::devices;
use serde_json::Value;

use super::Arguments;
use super::process::{
    self, Process, ProcessDevice, ProcessObject, ProcessObjectKind, QueuePairResource,
};
use super::report::{Dump, Everybody, Holder, Keys, Object, OpenDevice, QueuePair};
use crate::outcome::{Error, Result};

/// An examined process, looked at once or repeatedly.
pub(super) struct Target<'a> {
    process: Process,
    /// The devices that it has open, with their names.
    devices: Vec<(ProcessDevice, String)>,
    arguments: &'a Arguments,
    remarks: Vec<String>,
}

impl<'a> Target<'a> {
    /// Copies the descriptors of the process's devices.
    pub fn open(process: Process, arguments: &'a Arguments) -> Result<Target<'a>> {
        let names: BTreeMap<u64, String> =
            devices()?.iter().map(|device| (device.guid().0, device.name())).collect();
        let (mut opened, mut remarks, mut failed) = (Vec::new(), Vec::new(), None);
        for device in &process.devices {
            match device.copy() {
                Ok(copy) => {
                    let name = names.get(&copy.guid().0).cloned();
                    opened.push((copy, name.unwrap_or_else(|| "a device not listed".to_owned())));
                }
                Err(error) => {
                    remarks.push(format!("descriptor {}: {error}", device.descriptor));
                    failed = Some(error);
                }
            }
        }
        match (opened.is_empty(), failed) {
            (true, Some(error)) => Err(error.into()),
            _ => Ok(Target { process, devices: opened, arguments, remarks }),
        }
    }

    /// Returns whether the process still runs.
    pub fn lives(&self) -> bool {
        process::process(self.process.pid).is_ok_and(|now| !now.devices.is_empty())
    }

    /// Reads the objects that exist now.
    pub fn look(&self) -> Result<Dump> {
        let mut remarks = self.remarks.clone();
        let resources = process::queue_pairs().unwrap_or_else(|error| {
            remarks.push(format!("queue pairs are found by --number alone: {error}"));
            Vec::new()
        });
        let own = |resource: &&QueuePairResource| resource.pid == Some(self.process.pid);
        let mut numbers: Vec<u32> =
            resources.iter().filter(own).map(|resource| resource.number).collect();
        numbers.extend(&self.arguments.number);
        let mut opened = Vec::new();
        for (device, name) in &self.devices {
            let objects = device.objects(self.arguments.handles, &numbers)?;
            let asked = device.takes_commands()?;
            let at = format!("{name}, descriptor {}", device.origin().descriptor);
            if !asked {
                remarks.push(format!("{at}: {NO_DEVX}"));
            }
            let untold: Vec<u32> = objects
                .iter()
                .filter(|object| object.kind == ProcessObjectKind::Untold)
                .map(|object| object.handle)
                .collect();
            if !untold.is_empty() && self.arguments.wants_queues() {
                remarks.push(format!(
                    "{at}: nobody tells what the objects of these handles are: {}. CQs that no queue \
                     pair shown here completes on are among them, as are UMEMs, address handles and \
                     others that are no queues: give the numbers of CQs and DCTs by --number",
                    ranges(&untold)
                ));
            }
            let wanted = objects.iter().filter(|object| {
                object.kind != ProcessObjectKind::Untold
                    && self.arguments.wants(object.kind, object.number)
            });
            opened.push(OpenDevice {
                device: name.clone(),
                descriptor: device.origin().descriptor,
                objects: wanted.map(|object| told(object, asked)).collect(),
            });
        }
        Ok(Dump {
            pid: self.process.pid,
            process: self.process.name.clone(),
            devices: opened,
            remarks,
            verbose: self.arguments.verbose,
        })
    }
}

/// The remark for objects that the HCA may not be queried about.
const NO_DEVX: &str = "the program opened the device without DevX, so the kernel lets nobody ask the \
    device: contexts, CQs and what was made by command are missing. libmlx5 of rdma-core 29 and later asks \
    for DevX on each open and goes on without it where it is refused: update an older one, and see by \
    `mlx5 info` whether the device refuses it and why. `mlx5 dump` without --pid shows what the kernel \
    itself knows of the queue pairs";

/// Formats numbers in ascending order, with consecutive ones as `3-7`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let texts = runs.map(|run| match (run[0], run[run.len() - 1]) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Makes an object's entry in the report. `asked` tells whether the HCA was queried.
fn told(object: &ProcessObject, asked: bool) -> Object {
    let fields = object.context.as_ref().map(|context| {
        let fields = context.layout().leaves().into_iter().flat_map(|field| field.words());
        let whole = context.as_bytes().len() * 8;
        fields
            .filter(|field| field.bit_offset() + field.width() <= whole)
            .map(|field| (field.path().to_string(), Value::from(context.get(field))))
            .collect()
    });
    Object {
        kind: object.kind.name(),
        handle: object.handle,
        number: object.number,
        remark: if asked { remark(object) } else { None },
        note: object.failure.map(|failure| format!("failed: {failure}")).or_else(|| {
            let context = object.context.as_ref()?;
            Structure { layout: context.layout(), bytes: context.as_bytes() }.dead_peer()
        }),
        keys: object.keys.map(|keys| Keys {
            lkey: keys.lkey,
            rkey: keys.rkey,
            address: keys.address,
            length: keys.length,
        }),
        fields,
        context: object.context.clone(),
    }
}

/// Returns what is wrong with an object, or about to be.
fn remark(object: &ProcessObject) -> Option<&'static str> {
    let Some(context) = &object.context else {
        return match object.kind {
            ProcessObjectKind::QueuePair => Some(
                "the device does not tell of it: its number is not known and to be given by --number, or \
                 it is one for frames or the target of an XRC connection, about which programs may \
                 not ask",
            ),
            ProcessObjectKind::SharedReceiveQueue => Some(
                "no queue pair shown here takes from it, and nobody tells its number: give it by \
                 --number",
            ),
            _ => None,
        };
    };
    match object.kind {
        ProcessObjectKind::QueuePair => {
            let counter = |field| context.get(field) as u16;
            let counters = [qpc::SW_SQ_WQEBB_COUNTER, qpc::HW_SQ_WQEBB_COUNTER].map(counter);
            queue_pair_remark(context.get(qpc::STATE), counters)
        }
        ProcessObjectKind::CompletionQueue => match context.get(cqc::STATUS) {
            9 => Some(
                "it overran: more completions came than it holds; its queue pairs go to the error \
                 state, and a larger CQ or earlier polls are the cure",
            ),
            0xa => Some("the device could not write to it"),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the remark for a QPC state (`mlx5_ifc.h`, `MLX5_QPC_STATE_*`) and for the producer and
/// consumer counter of the send queue. In the error state the producer is the doorbell record
/// (measured on ConnectX-6, evidence E006, E007).
fn queue_pair_remark(state: u64, [producer, consumer]: [u16; 2]) -> Option<&'static str> {
    match state {
        6 if (producer.wrapping_sub(consumer) as i16) < 0 => Some(
            "in the error state, and its doorbell record is behind the requests that were sent: the \
             device reports none of them, not even the one that failed, before the program stores \
             their counter to the record",
        ),
        0 => Some("in RESET: nothing is received or sent before INIT, RTR and RTS"),
        1 => Some(
            "in INIT: it receives nothing and sends nothing before the program moves it to RTR, for \
             which it has to know its peer",
        ),
        2 => Some(
            "in RTR: it receives, but what is posted to its send queue waits until the program moves \
             it to RTS",
        ),
        4 => Some(
            "its send queue stopped on an error, whose CQE says which: the program may go on by \
             moving it from SQE to RTS",
        ),
        6 => Some(
            "in the error state: all requests are flushed; the first CQE that was not flushed says \
             why, and the way back leads over RESET",
        ),
        _ => None,
    }
}

/// Lists the processes that have devices open.
pub(super) fn everybody() -> Result<Everybody> {
    let (resources, remark) = match process::queue_pairs() {
        Ok(all) => (all, None),
        Err(error) => (Vec::new(), Some(format!("queue pairs are not told: {error}"))),
    };
    let processes = process::processes().map_err(Error::from)?;
    let holders = processes
        .into_iter()
        .map(|process| {
            let own = resources.iter().filter(|resource| resource.pid == Some(process.pid));
            let queue_pairs = own
                .map(|resource| QueuePair {
                    device: resource.device.clone(),
                    number: resource.number,
                    kind: kind(resource.kind),
                    state: state(resource.state),
                    peer: resource.remote,
                })
                .collect();
            let descriptors = process.devices.iter().map(|device| device.descriptor).collect();
            Holder { pid: process.pid, process: process.name, descriptors, queue_pairs }
        })
        .collect();
    Ok(Everybody { processes: holders, remark })
}

/// `enum ib_qp_type`
fn kind(kind: u8) -> &'static str {
    match kind {
        0 => "SMI",
        1 => "GSI",
        2 => "RC",
        3 => "UC",
        4 => "UD",
        8 => "raw packet",
        9 => "XRC initiator",
        10 => "XRC target",
        0xff => "of the driver (DC, or made for its needs)",
        _ => "of an unknown type",
    }
}

/// `enum ib_qp_state`
fn state(state: u8) -> &'static str {
    match state {
        0 => "RESET",
        1 => "INIT",
        2 => "RTR",
        3 => "RTS",
        4 => "SQD",
        5 => "SQE",
        6 => "ERROR",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests;
