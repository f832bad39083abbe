//! Replay of a recording on fresh cards, whose memory and clock answer from the recording.

use std::io::Read;
use std::sync::Arc;

use crate::card::Card;
use crate::clock::Clock;
use crate::object::Memic;
use crate::trace::{Call, Detail, Nothing, Performed, ReadError, Reader, Script, Tap, Verdict};
use crate::transport::Recipient;
use crate::wire::Frame;

/// Makes the calls of a stream on fresh cards, and compares what they do with what is recorded.
///
/// # Errors
/// [`ReadError::StoryOnly`] where the stream does not say what the cards read,
/// [`ReadError::Observed`] where it was observed on a device, and those of
/// [`Reader::next_call`], but for a stream that ends early.
pub fn replay<R: Read>(reader: &mut Reader<R>) -> Result<Verdict, ReadError> {
    match reader.header().detail {
        Detail::Replay => {}
        Detail::Story => return Err(ReadError::StoryOnly),
        Detail::Observed => return Err(ReadError::Observed),
    }
    let tap = Tap::replaying(Script::default());
    let cards = reader.header().cards.clone().into_iter().enumerate();
    let mut cards: Vec<Card> = cards
        .map(|(index, identity)| {
            let mut card = Card::new(identity, Arc::new(Nothing), Clock::Manual(0));
            card.tap(&tap, index as u8);
            card
        })
        .collect();
    let mut cut = false;
    loop {
        let mut performed = match reader.next_call() {
            Ok(Some(performed)) => performed,
            Ok(None) => break,
            Err(ReadError::Cut(_)) => {
                cut = true;
                break;
            }
            Err(error) => return Err(error),
        };
        let course = std::mem::take(&mut performed.course);
        tap.script(|script| script.load(&performed, course));
        // The reader has seen that there is such a card.
        if let Some(card) = cards.get_mut(usize::from(performed.card)) {
            make(card, &performed);
        }
        tap.script(Script::finish);
    }
    let verdict = tap.script(Script::take_verdict).unwrap_or_default();
    Ok(Verdict { cut, ..verdict })
}

fn make(card: &mut Card, performed: &Performed) {
    match &performed.call {
        Call::Command(input) => {
            let mut output = vec![0; performed.reply.as_ref().map_or(0, Vec::len)];
            card.execute(input, &mut output);
        }
        Call::Store { uar, offset, bytes } => card.store(*uar, (*offset).into(), bytes),
        Call::RingAll(uar) => card.ring_all(*uar),
        Call::ReceiveOwn { domain, frame } => card.receive(&Frame(frame.to_vec(), Some(*domain))),
        Call::Receive(frame) => card.receive(&Frame::new(frame.to_vec())),
        Call::ReceiveManagement(frame) => {
            let _ = card.arrive(&Frame::new(frame.to_vec()), Recipient::Agent);
        }
        Call::SendManagement(frame) => card.send_management(Frame::new(frame.to_vec())),
        Call::Expire => card.expire(),
        Call::Pump => drop(card.pump()),
        Call::Settle => drop(card.settle()),
        Call::Release => drop(card.release_cqes()),
        Call::TakeFrame => drop(card.take_frame()),
        Call::TakeInterrupt => drop(card.take_interrupt()),
        Call::Prefix(prefix) => card.add_prefix(*prefix),
        Call::Memic(bus) => card.set_memic(Memic::at(*bus)),
        Call::Port(up) => card.set_port(*up),
        Call::Timeouts(timeouts) => card.set_timeouts(*timeouts),
        Call::CounterSets(sets) => card.set_counter_sets(*sets),
        Call::OverrunCqs(number) => card.overrun_cqs(*number),
        Call::OverrunEqs(number) => card.overrun_eqs(*number),
        Call::WqeFaults(faults) => card.set_wqe_faults(faults.to_vec()),
        Call::Stop => card.stop(),
        Call::Reset => card.reset(),
        Call::Notice(notice) => card.notify(*notice),
        Call::Congested { way, full } => card.set_congested(*way, *full),
        // Only observers of devices write it.
        Call::Look => {}
        Call::Refused { request, errno } => card.refused(request, *errno),
        Call::Slow { way, slow } => card.set_slow(*way, *slow),
    }
}
