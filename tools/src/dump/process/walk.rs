//! Finds the objects of a process's device.

use std::collections::BTreeSet;
use std::fmt;

use mlx5::Result;
use mlx5::devx::ifc::{dctc, opcode, qpc};
use mlx5::devx::{ObjectContext, QueuePairFailure};

use super::device::{Answer, ProcessDevice, RegionKeys, SHARED_RECEIVES};

/// The kind of an object of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::dump) enum ProcessObjectKind {
    /// A queue pair.
    QueuePair,
    /// A target of dynamic connections.
    DcTarget,
    /// A completion queue.
    CompletionQueue,
    /// A shared receive queue.
    SharedReceiveQueue,
    /// A memory region.
    Region,
    /// A protection domain.
    ProtectionDomain,
    /// Another object, or a queue whose number is not known. The kernel reports only that it
    /// exists.
    Untold,
}

impl ProcessObjectKind {
    /// Returns the short name: `qp`, `dct`, `cq`, `srq`, `mr`, `pd`, `untold`.
    pub const fn name(self) -> &'static str {
        match self {
            ProcessObjectKind::QueuePair => "qp",
            ProcessObjectKind::DcTarget => "dct",
            ProcessObjectKind::CompletionQueue => "cq",
            ProcessObjectKind::SharedReceiveQueue => "srq",
            ProcessObjectKind::Region => "mr",
            ProcessObjectKind::ProtectionDomain => "pd",
            ProcessObjectKind::Untold => "untold",
        }
    }
}

impl fmt::Display for ProcessObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An object of another process.
#[derive(Clone, Debug)]
pub(in crate::dump) struct ProcessObject {
    /// The object's kind.
    pub kind: ProcessObjectKind,
    /// The handle by which the process's opened device names it.
    pub handle: u32,
    /// The number by which the HCA names it; for a region, the number of its key. `None` for a
    /// queue whose number is not known.
    pub number: Option<u32>,
    /// Its context from the HCA. `None` for regions and protection domains, which the kernel does
    /// not let processes query, and for all objects if the process opened the device without DevX.
    pub context: Option<ObjectContext>,
    /// The keys of a region.
    pub keys: Option<RegionKeys>,
    /// Why a queue pair failed, as the HCA tells.
    pub failure: Option<QueuePairFailure>,
}

impl ProcessObject {
    fn new(kind: ProcessObjectKind, handle: u32) -> ProcessObject {
        ProcessObject { kind, handle, number: None, context: None, keys: None, failure: None }
    }
}

/// Numbers to try, in the order in which the objects were made. Handles have the same order, so
/// that the next number is mostly the right one.
struct Numbers {
    left: Vec<u32>,
    next: usize,
}

impl Numbers {
    fn new(numbers: impl IntoIterator<Item = u32>) -> Numbers {
        let unique: BTreeSet<u32> = numbers.into_iter().collect();
        Numbers { left: unique.into_iter().collect(), next: 0 }
    }

    /// Returns the first answer for one of the numbers, and removes that number.
    fn find<T>(
        &mut self,
        mut ask: impl FnMut(u32) -> Result<Option<T>>,
    ) -> Result<Option<(u32, T)>> {
        for step in 0..self.left.len() {
            let at = (self.next + step) % self.left.len();
            if let Some(answer) = ask(self.left[at])? {
                let number = self.left.remove(at);
                self.next = if self.left.is_empty() { 0 } else { at % self.left.len() };
                return Ok(Some((number, answer)));
            }
        }
        Ok(None)
    }
}

impl ProcessDevice {
    /// Returns the objects that have handles below `handles`, in the order of their handles.
    ///
    /// `numbers` are the numbers of queues that may be among them, by
    /// [`queue_pairs`](super::queue_pairs) or from the process itself. The CQs and shared receive
    /// queues of the queue pairs that are found are found as well. Of other queue pairs and shared
    /// receive queues only the handles are found, and other CQs are
    /// [`Untold`](ProcessObjectKind::Untold). The kernel reports no numbers of targets of dynamic
    /// connections (`create_qp` in `drivers/infiniband/hw/mlx5/qp.c` leaves them out of its
    /// resource list, or does not know their numbers yet), nor of objects that were made by
    /// command.
    ///
    /// Takes some calls into the kernel for each handle, and mostly one more for each queue.
    ///
    /// # Errors
    /// [`Error::Call`](mlx5::Error::Call) if the device is gone, whether the process is gone or not.
    pub fn objects(&self, handles: u32, numbers: &[u32]) -> Result<Vec<ProcessObject>> {
        let (mut found, mut unknown) = self.told_by_verbs(handles)?;
        if !self.takes_commands()? {
            for handle in unknown {
                if self.is_shared_receive_queue(handle)? {
                    found.push(ProcessObject::new(ProcessObjectKind::SharedReceiveQueue, handle));
                }
            }
            found.sort_by_key(|object| object.handle);
            return Ok(found);
        }
        let told: BTreeSet<u32> = numbers.iter().copied().collect();
        let mut numbers = Numbers::new(told.iter().copied());
        for object in found.iter_mut().filter(|one| one.kind == ProcessObjectKind::QueuePair) {
            if let Some((number, (kind, context))) =
                numbers.find(|number| self.queue_pair(object.handle, number))?
            {
                (object.kind, object.number, object.context) = (kind, Some(number), Some(context));
            }
        }
        // Those that were made by command.
        for handle in std::mem::take(&mut unknown) {
            match numbers.find(|number| self.queue_pair(handle, number))? {
                None => unknown.push(handle),
                Some((number, (kind, context))) => found.push(ProcessObject {
                    number: Some(number),
                    context: Some(context),
                    ..ProcessObject::new(kind, handle)
                }),
            }
        }
        self.ask_failures(&mut found)?;
        let (mut cqs, mut srqs) = (told.clone(), told);
        for (kind, context) in
            found.iter().filter_map(|one| Some((one.kind, one.context.as_ref()?)))
        {
            let get = |field| context.get(field) as u32;
            if kind == ProcessObjectKind::DcTarget {
                cqs.insert(get(dctc::CQN));
                srqs.insert(get(dctc::SRQN_XRQN));
            } else {
                cqs.extend([get(qpc::CQN_SND), get(qpc::CQN_RCV)]);
                srqs.insert(get(qpc::SRQN_RMPN_XRQN));
            }
        }
        let (mut cqs, mut srqs) = (Numbers::new(cqs), Numbers::new(srqs));
        for handle in unknown {
            let cq = cqs.find(|number| self.ask(handle, &[opcode::CREATE_CQ], number))?;
            let (kind, hit) = match cq {
                Some(hit) => (ProcessObjectKind::CompletionQueue, Some(hit)),
                None => (
                    ProcessObjectKind::SharedReceiveQueue,
                    srqs.find(|number| self.ask(handle, &SHARED_RECEIVES, number))?,
                ),
            };
            let Some((number, context)) = hit else {
                let kind = match () {
                    () if self.is_shared_receive_queue(handle)? => kind,
                    () if self.is_object(handle)? => ProcessObjectKind::Untold,
                    () => continue,
                };
                found.push(ProcessObject::new(kind, handle));
                continue;
            };
            found.push(ProcessObject {
                number: Some(number),
                context: Some(context),
                ..ProcessObject::new(kind, handle)
            });
        }
        found.sort_by_key(|object| object.handle);
        Ok(found)
    }

    /// Asks the HCA why queue pairs in the error state failed.
    fn ask_failures(&self, found: &mut [ProcessObject]) -> Result<()> {
        /// `mlx5_ifc.h`, `MLX5_QPC_STATE_SQER` and `_ERR`.
        const FAILED: [u64; 2] = [4, 6];
        for object in found {
            let Some(context) = object.context.as_ref() else { continue };
            let failed = object.kind == ProcessObjectKind::QueuePair
                && FAILED.contains(&context.get(qpc::STATE));
            if let (true, Some(number)) = (failed, object.number) {
                object.failure = self.failure(object.handle, number)?;
            }
        }
        Ok(())
    }

    /// Returns the objects that verbs identify by handle alone, and the handles they do not
    /// identify.
    fn told_by_verbs(&self, handles: u32) -> Result<(Vec<ProcessObject>, Vec<u32>)> {
        let (mut found, mut unknown) = (Vec::new(), Vec::new());
        for handle in 0..handles {
            if let Some(keys) = self.region(handle)? {
                let mut object = ProcessObject::new(ProcessObjectKind::Region, handle);
                (object.number, object.keys) = (Some(keys.lkey >> 8), Some(keys));
                found.push(object);
            } else if let Some(number) = self.protection_domain(handle)? {
                let mut object = ProcessObject::new(ProcessObjectKind::ProtectionDomain, handle);
                object.number = Some(number);
                found.push(object);
            } else if self.is_queue_pair(handle)? {
                found.push(ProcessObject::new(ProcessObjectKind::QueuePair, handle));
            } else {
                unknown.push(handle);
            }
        }
        Ok((found, unknown))
    }

    fn queue_pair(
        &self,
        handle: u32,
        number: u32,
    ) -> Result<Option<(ProcessObjectKind, ObjectContext)>> {
        if let Some(context) = self.ask(handle, &[opcode::CREATE_QP], number)? {
            return Ok(Some((ProcessObjectKind::QueuePair, context)));
        }
        let target = self.ask(handle, &[opcode::CREATE_DCT], number)?;
        Ok(target.map(|context| (ProcessObjectKind::DcTarget, context)))
    }

    /// Returns the context of an object, if handle and number belong to an object of these kinds.
    fn ask(&self, handle: u32, kinds: &[u16], number: u32) -> Result<Option<ObjectContext>> {
        for made_by in kinds {
            // The HCA may refuse a query of an object that was destroyed meanwhile.
            if let Answer::Context(context) = self.object_context(handle, *made_by, number)? {
                return Ok(Some(context));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
