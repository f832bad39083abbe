//! The report on processes and their objects.

use std::fmt;

use mlx5::devx::ObjectContext;
use serde::Serialize;
use serde_json::{Map, Value};

/// The processes that have devices open.
#[derive(Debug, Serialize)]
pub(super) struct Everybody {
    pub processes: Vec<Holder>,
    pub remark: Option<String>,
}

/// A process.
#[derive(Debug, Serialize)]
pub(super) struct Holder {
    pub pid: u32,
    pub process: String,
    /// Its open descriptors.
    pub descriptors: Vec<i32>,
    pub queue_pairs: Vec<QueuePair>,
}

/// A queue pair, as the kernel accounts for it.
#[derive(Debug, Serialize)]
pub(super) struct QueuePair {
    pub device: String,
    pub number: u32,
    pub kind: &'static str,
    pub state: &'static str,
    pub peer: Option<u32>,
}

/// The objects of a process.
#[derive(Debug, Serialize)]
pub(super) struct Dump {
    pub pid: u32,
    pub process: String,
    pub devices: Vec<OpenDevice>,
    pub remarks: Vec<String>,
    #[serde(skip)]
    pub verbose: bool,
}

/// An open device of the process, and the objects on it.
#[derive(Debug, Serialize)]
pub(super) struct OpenDevice {
    pub device: String,
    pub descriptor: i32,
    pub objects: Vec<Object>,
}

/// An object.
#[derive(Debug, Serialize)]
pub(super) struct Object {
    pub kind: &'static str,
    pub handle: u32,
    /// Its number; for a memory region, its key.
    pub number: Option<u32>,
    /// The fault of the object.
    pub remark: Option<&'static str>,
    /// Why a queue pair failed, or when it notices a peer that does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub keys: Option<Keys>,
    /// All fields of its context by name.
    pub fields: Option<Map<String, Value>>,
    #[serde(skip)]
    pub context: Option<ObjectContext>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Keys {
    pub lkey: u32,
    pub rkey: u32,
    pub address: u64,
    pub length: u64,
}

impl Dump {
    /// Iterates over all objects, each with its device's descriptor.
    pub fn objects(&self) -> impl Iterator<Item = (i32, &Object)> {
        self.devices
            .iter()
            .flat_map(|device| device.objects.iter().map(move |object| (device.descriptor, object)))
    }

    /// Returns in words which of these numbers no object has; empty if each has one.
    pub fn missing(&self, numbers: &[u32]) -> String {
        let is_there =
            |number: &&u32| self.objects().any(|(_, object)| object.number == Some(**number));
        let missing = numbers.iter().filter(|number| !is_there(number));
        let missing: Vec<_> = missing.map(|number| format!("{number:#x}")).collect();
        if missing.is_empty() {
            return String::new();
        }
        let (process, pid) = (&self.process, self.pid);
        format!(
            "{process} (process {pid}) has no such object of number {}; `mlx5 dump --pid {pid}` shows \
             its objects",
            missing.join(", ")
        )
    }
}

impl Object {
    /// Returns the kind, and the number if known.
    pub fn name(&self) -> String {
        match self.number {
            Some(number) => format!("{} {number:#x}", self.kind),
            None => format!("{} of handle {}", self.kind, self.handle),
        }
    }
}

impl fmt::Display for Everybody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            write!(f, "no process that this user may look into has an RDMA device open")?;
        }
        for (at, holder) in self.processes.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            let open: Vec<String> = holder.descriptors.iter().map(i32::to_string).collect();
            write!(f, "{} {}, descriptor {}", holder.pid, holder.process, open.join(", "))?;
            for qp in &holder.queue_pairs {
                write!(f, "\n  {}: qp {:#x}, {}, {}", qp.device, qp.number, qp.kind, qp.state)?;
                if let Some(peer) = qp.peer {
                    write!(f, ", peer {peer:#x}")?;
                }
            }
        }
        match &self.remark {
            Some(remark) => write!(f, "\n! {remark}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.process, self.pid)?;
        for device in &self.devices {
            write!(f, "\n{}, descriptor {}:", device.device, device.descriptor)?;
            if device.objects.is_empty() {
                write!(f, " no such object")?;
            }
            for object in &device.objects {
                write!(f, "\n{}", object.name())?;
                if object.number.is_some() {
                    write!(f, ", handle {}", object.handle)?;
                }
                if let Some(keys) = &object.keys {
                    write!(
                        f,
                        ": lkey {:#x}, rkey {:#x}, {} bytes at {:#x}",
                        keys.lkey, keys.rkey, keys.length, keys.address
                    )?;
                }
                if let Some(remark) = object.remark {
                    write!(f, "\n! {remark}")?;
                }
                match &object.context {
                    Some(context) if self.verbose => write!(f, "\n{context:#}")?,
                    Some(context) => write!(f, "\n{context}")?,
                    None => {}
                }
                if let Some(note) = &object.note {
                    write!(f, "\n{note}")?;
                }
            }
        }
        for remark in &self.remarks {
            write!(f, "\n! {remark}")?;
        }
        Ok(())
    }
}
