//! Reading streams. Any bytes are accepted up to the first invalid ones.

use std::collections::VecDeque;
use std::io::{self, Read};

use super::header::FIXED;
use super::record::{HEAD, LONGEST};
use super::{BUILD, Call, Header, Observed, Record, VERSION};

/// The reason why no more can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading the file or pipe failed.
    #[error("the recording cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The stream does not start like a recording.
    #[error("this is no recording of the model: it begins with something else")]
    NoTrace,
    /// The stream has another version of the format.
    #[error(
        "the recording has version {0} of the format, and this is {VERSION}: use the mlx5 command \
         of the build that wrote it, or record again"
    )]
    Version(u32),
    /// The header's checksum or content is wrong.
    #[error("the recording's header is damaged: its checksum is wrong; record again")]
    Header,
    /// The stream ends inside a record: its program was killed, or the file was cut.
    #[error(
        "the recording ends in the middle of record {0}: its program was killed, or it was cut"
    )]
    Cut(u64),
    /// A record is invalid.
    #[error("record {0} of the recording is damaged")]
    Damaged(u64),
    /// The stream was observed on a device, and cannot be replayed.
    #[error(
        "the recording was observed on a device of the machine, and only the model can repeat what \
         it did: record with `mlx5 trace --model --record`"
    )]
    Observed,
    /// The stream cannot be replayed.
    #[error(
        "the recording tells the story alone, without what the card read: record with `mlx5 trace \
         --record`, or with MLX5_MODEL_TRACE_DETAIL=replay"
    )]
    StoryOnly,
}

/// Reads a stream, record by record.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    /// Number of records read.
    count: u64,
    content: Vec<u8>,
}

/// A call with its course.
#[derive(Clone, Debug)]
pub struct Performed {
    /// Index of the device in the process, from 0.
    pub card: u8,
    /// Time, in nanoseconds since the stream began.
    pub time: u64,
    /// The number of its first record in the stream.
    pub record: u64,
    /// The input of the device.
    pub call: Call<'static>,
    /// The records of its course.
    pub course: Vec<Record<'static>>,
    /// The reply to a command.
    pub reply: Option<Vec<u8>>,
}

impl Performed {
    /// Returns the events in order: the input of the device before its actions.
    pub fn events(self) -> impl Iterator<Item = Event> {
        let Performed { card, time, call, course, reply, .. } = self;
        let what = match (call, reply) {
            (Call::Command(input), Some(output)) => {
                Some(What::Command { input: input.into_owned(), output })
            }
            (call, _) if call.is_routine() => None,
            (Call::TakeFrame | Call::TakeInterrupt, _) => None,
            (call, _) => Some(What::Entered(call)),
        };
        let did = course.into_iter().filter_map(|record| match record {
            Record::Observed(observed) => Some(What::Observed(observed)),
            _ => None,
        });
        what.into_iter().chain(did).map(move |what| Event { card, time, what })
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Any [`ReadError`] except [`ReadError::Damaged`].
    pub fn new(mut from: R) -> Result<Reader<R>, ReadError> {
        let mut fixed = [0; FIXED];
        match from.read_exact(&mut fixed) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ReadError::NoTrace);
            }
            Err(error) => return Err(error.into()),
        }
        let (length, checksum) = Header::announced(&fixed)?;
        let mut content = Vec::new();
        if fill(&mut from, &mut content, length)? {
            let header = Header::read(&content, checksum)?;
            return Ok(Reader { from, header, count: 0, content });
        }
        Err(ReadError::Cut(0))
    }

    /// Returns the header of the stream.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether another build of the model wrote the stream.
    pub fn is_foreign(&self) -> bool {
        self.header.build != BUILD
    }

    /// Returns the next record; `None` at the end. An interrupted system call is tried again.
    ///
    /// # Errors
    /// [`ReadError::Io`], [`ReadError::Cut`], [`ReadError::Damaged`].
    pub fn next_record(&mut self) -> Result<Option<Record<'static>>, ReadError> {
        let number = self.count;
        let mut head = Vec::new();
        if !fill(&mut self.from, &mut head, HEAD)? {
            return if head.is_empty() { Ok(None) } else { Err(ReadError::Cut(number)) };
        }
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > LONGEST {
            return Err(ReadError::Damaged(number));
        }
        self.content.clear();
        if !fill(&mut self.from, &mut self.content, length)? {
            return Err(ReadError::Cut(number));
        }
        self.count += 1;
        Record::read(head[0], &self.content).map(Some).ok_or(ReadError::Damaged(number))
    }

    /// Returns the next call with its course; `None` at the end.
    ///
    /// # Errors
    /// - The errors of [`Reader::next_record`]: [`ReadError::Io`], [`ReadError::Cut`],
    ///   [`ReadError::Damaged`].
    /// - [`ReadError::Damaged`] also if the records are in an invalid order.
    pub fn next_call(&mut self) -> Result<Option<Performed>, ReadError> {
        let record = self.count;
        let (card, time, call) = match self.next_record()? {
            None => return Ok(None),
            Some(Record::Call { card, time, call }) => (card, time, call),
            Some(_) => return Err(ReadError::Damaged(record)),
        };
        if usize::from(card) >= self.header.cards.len() {
            return Err(ReadError::Damaged(record));
        }
        let is_command = matches!(call, Call::Command(_));
        let mut course = Vec::new();
        loop {
            let number = self.count;
            let reply = match self.next_record()? {
                None => return Err(ReadError::Cut(number)),
                Some(Record::Reply(bytes)) if is_command => Some(bytes.into_owned()),
                Some(Record::End) if !is_command => None,
                Some(Record::Call { .. } | Record::Reply(_) | Record::End) => {
                    return Err(ReadError::Damaged(number));
                }
                Some(within) => {
                    course.push(within);
                    continue;
                }
            };
            return Ok(Some(Performed { card, time, record, call, course, reply }));
        }
    }

    /// Returns the events: the input of the devices and their actions.
    pub fn events(self) -> Events<R> {
        Events { reader: self, waiting: VecDeque::new(), ended: false }
    }
}

/// Appends `length` bytes, fewer only at the end of the stream. Returns whether all were there.
/// Allocates only for bytes that exist, not for an announced length.
fn fill(from: &mut impl Read, to: &mut Vec<u8>, length: usize) -> io::Result<bool> {
    Ok(from.take(length as u64).read_to_end(to)? == length)
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Index of the device in the process, from 0.
    pub card: u8,
    /// Time, in nanoseconds since the stream began.
    pub time: u64,
    /// The event's content.
    pub what: What,
}

/// The content of an event.
#[derive(Clone, Debug)]
pub enum What {
    /// A command was executed.
    Command {
        /// The command.
        input: Vec<u8>,
        /// Its reply.
        output: Vec<u8>,
    },
    /// Other input of the device.
    Entered(Call<'static>),
    /// An action of the device.
    Observed(Observed<'static>),
}

/// The events of a stream, in order: the input of a device before its actions. After an error no
/// more events follow.
#[derive(Debug)]
pub struct Events<R> {
    reader: Reader<R>,
    waiting: VecDeque<Event>,
    ended: bool,
}

impl<R: Read> Events<R> {
    /// Returns the header of the stream.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    fn take(&mut self) -> Result<Option<Event>, ReadError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let Some(performed) = self.reader.next_call()? else { return Ok(None) };
            self.waiting.extend(performed.events());
        }
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.take().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
