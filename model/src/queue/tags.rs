//! Tag matching: matching messages against a tag list, and changing the list.

use super::{
    Data, Domain, HEADER, Met, ReceiveWqe, Rendezvous, Syndrome, TagEvent, TagRequest, Tagged,
};
use crate::card::Card;
use crate::work::tags::{RENDEZVOUS, What, kind};

impl Card {
    /// Whether a queue pair's receives come from a queue that matches tags.
    pub(crate) fn matches_tags(&self, qp: u32) -> bool {
        let number = self.objects.qps.get(&qp).and_then(|qp| qp.shared_receive());
        number.is_some_and(|number| {
            self.objects.srqs.get(number).is_some_and(|srq| srq.tags.is_some())
        })
    }

    /// Matches a message against the list of tags. Its first packet has this payload.
    pub(crate) fn meet_tag(&mut self, qp: u32, payload: &[u8]) -> Result<Met, Syndrome> {
        let number = self.objects.qps.get(&qp).and_then(|qp| qp.shared_receive());
        let Some(number) = number else { return Err(Syndrome::LocalQpOperation) };
        let Some(srq) = self.objects.srqs.get(number) else {
            return Err(Syndrome::LocalQpOperation);
        };
        let domain = Domain { pd: srq.pd, qp };
        let header = payload.first_chunk::<HEADER>().copied();
        let tagged = header.filter(|header| matches!(header[0], kind::RENDEZVOUS | kind::EAGER));
        let found = tagged.zip(srq.tags.as_ref()).and_then(|(header, tags)| {
            let tag = header[8..].iter().fold(0, |tag, byte| tag << 8 | u64::from(*byte));
            tags.find(tag).cloned().map(|entry| (header, entry))
        });
        let Some((start, entry)) = found else {
            let Some(wqe) = self.take_shared(number, qp)? else { return Ok(Met::Nothing) };
            let event = if tagged.is_some() { TagEvent::Unexpected } else { TagEvent::NoTag };
            if let Some(tags) = self.objects.srqs.get_mut(number).and_then(|srq| srq.tags.as_mut())
            {
                if event == TagEvent::Unexpected {
                    tags.unexpected();
                }
            }
            let tagged = Tagged { srq: number, event, index: 0, start: [0; HEADER] };
            return Ok(Met::Receive(wqe, tagged));
        };
        let tagged = Tagged { srq: number, event: TagEvent::Consumed, index: entry.index, start };
        let met = if start[0] == kind::RENDEZVOUS {
            let rest = payload[HEADER..].first_chunk::<RENDEZVOUS>();
            let rest = rest.ok_or(Syndrome::LocalLength)?;
            let word = |at: usize| {
                u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
            };
            let address = u64::from(word(0)) << 32 | u64::from(word(4));
            let from = (address, word(8), word(12));
            if u64::from(from.2) > entry.data.iter().map(Data::len).sum() {
                return Err(Syndrome::LocalLength);
            }
            Met::Rendezvous(Rendezvous { tagged, data: entry.data, domain, from })
        } else {
            let (index, data, xrc_srq) = (entry.index, entry.data, Some(number));
            Met::Receive(ReceiveWqe { index, domain, xrc_srq, data }, tagged)
        };
        if let Some(tags) = self.objects.srqs.get_mut(number).and_then(|srq| srq.tags.as_mut()) {
            tags.remove(entry.index);
        }
        Ok(met)
    }

    /// Does what a queue pair asks of its queue's list; gives the completion that it wants.
    pub(crate) fn change_tags(
        &mut self,
        qp: u32,
        request: &TagRequest,
    ) -> Result<Option<Tagged>, Syndrome> {
        /// `MLX5_TMC_SUCCESS`
        const SUCCESS: u8 = 0x80;
        const REFUSED: Syndrome = Syndrome::LocalQpOperation;
        let number = self.objects.qps.get(&qp).and_then(|qp| qp.shared_receive()).ok_or(REFUSED)?;
        let srq = self.objects.srqs.get_mut(number).ok_or(REFUSED)?;
        let tags = srq.tags.as_mut().ok_or(REFUSED)?;
        if let Some(known) = request.known {
            tags.know(known);
        }
        let mut start = [0; HEADER];
        let (event, index) = match &request.what {
            What::Nothing => (TagEvent::Noop, 0),
            What::Append { next, tag, mask, data } => {
                let index = tags.next();
                if !tags.append(*next, *tag, *mask, data.clone()) {
                    return Err(REFUSED);
                }
                (TagEvent::Append, index)
            }
            What::Remove(index) => {
                start[0] = if tags.remove(*index) { SUCCESS } else { 0 };
                (TagEvent::Remove, *index)
            }
        };
        start[4..6].copy_from_slice(&tags.hardware.to_be_bytes());
        Ok(request.report.then_some(Tagged { srq: number, event, index, start }))
    }
}
