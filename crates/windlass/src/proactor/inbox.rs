//! Which event each operation in flight is for, and the completions that events have not taken.
//!
//! # Invariants
//!
//! - A record exists for each operation from its start to its last completion, in the place that
//!   its id names. It is in the list of its event, unless that is gone.
//! - What is in the queue of an event is for that event: both lists are emptied when it is removed.

use windlass_core::EventId;
use windlass_sys::operation::{Completion, OpId, Operation, Outcome};

/// The loop's view of operations, beside the driver that carries them out.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// By the operation's place.
    records: Vec<Record>,
    /// By the event's place.
    boxes: Vec<EventBox>,
    /// Completions in the queues of their events.
    nodes: Vec<Node>,
    /// The first node that is free.
    free: u32,
    /// Buffers of sends that went well and that nobody is told of, empty.
    spares: Vec<Vec<u8>>,
}

/// So many buffers are kept at most: as many as one turn needs, and more are seldom of use.
const SPARES_MAX: usize = 256;
/// A buffer that grew beyond this is not kept.
const SPARE_BYTES_MAX: usize = 2048;
const NONE: u32 = u32::MAX;

/// An operation in flight.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: OpId,
    /// `None`: the event is gone.
    event: Option<EventId>,
    previous: u32,
    next: u32,
    notice: Notice,
}

/// Whether a completion has the handler of its event run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Each one.
    Always,
    /// Unless the operation did all that it was for.
    OfFailure,
}

/// The operations and completions of one event.
#[derive(Clone, Copy, Debug)]
struct EventBox {
    first_operation: u32,
    first_completion: u32,
    last_completion: u32,
}

const EMPTY: EventBox = EventBox {
    first_operation: NONE,
    first_completion: NONE,
    last_completion: NONE,
};

#[derive(Debug)]
struct Node {
    completion: Option<Completion>,
    next: u32,
}

/// What became of a completion.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// It went well, which nobody is told of.
    Quietly,
    /// It waits for its event's handler.
    To(EventId),
    /// Its event is gone: nobody wants it.
    Unwanted(Completion),
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            free: NONE,
            ..Self::default()
        }
    }

    /// An operation was started for `event`.
    #[inline]
    pub(crate) fn note_start(&mut self, id: OpId, event: EventId, notice: Notice) {
        let place = event.slot();
        if place >= self.boxes.len() {
            self.boxes.resize(place + 1, EMPTY);
        }
        let slot = id.slot();
        if slot >= self.records.len() {
            let free = Record {
                id,
                event: None,
                previous: NONE,
                next: NONE,
                notice,
            };
            self.records.resize(slot + 1, free);
        }
        let first = std::mem::replace(&mut self.boxes[place].first_operation, slot as u32);
        if first != NONE {
            self.records[first as usize].previous = slot as u32;
        }
        self.records[slot] = Record {
            id,
            event: Some(event),
            previous: NONE,
            next: first,
            notice,
        };
    }

    /// Puts a completion into its event's queue.
    #[inline]
    pub(crate) fn deliver(&mut self, completion: Completion) -> Delivered {
        let slot = completion.id.slot();
        let Record { event, notice, .. } = self.records[slot];
        let Some(event) = event else {
            return Delivered::Unwanted(completion);
        };
        if notice == Notice::OfFailure && did_all(&completion) {
            self.unlink(slot);
            self.keep_buffer(completion);
            return Delivered::Quietly;
        }
        if !completion.has_more() {
            self.unlink(slot);
        }
        let at = self.free;
        let at = if let Some(node) = self.nodes.get_mut(at as usize) {
            self.free = std::mem::replace(&mut node.next, NONE);
            node.completion = Some(completion);
            at
        } else {
            self.nodes.push(Node {
                completion: Some(completion),
                next: NONE,
            });
            (self.nodes.len() - 1) as u32
        };
        let mailbox = &mut self.boxes[event.slot()];
        let last = std::mem::replace(&mut mailbox.last_completion, at);
        if last == NONE {
            mailbox.first_completion = at;
        } else {
            self.nodes[last as usize].next = at;
        }
        Delivered::To(event)
    }

    /// An empty buffer, with room if one was kept.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    #[inline]
    fn keep_buffer(&mut self, completion: Completion) {
        if let Some(Operation::Send { payload, .. }) = completion.operation
            && let Some(mut buffer) = payload.into_vec()
            && buffer.capacity() <= SPARE_BYTES_MAX
            && self.spares.len() < SPARES_MAX
        {
            buffer.clear();
            self.spares.push(buffer);
        }
    }

    /// Has the completion of an operation that was started quietly make its event's handler run.
    /// Answers whether it is in flight.
    pub(crate) fn wake_for(&mut self, id: OpId) -> bool {
        match self.records.get_mut(id.slot()) {
            Some(record) if record.id == id && record.event.is_some() => {
                record.notice = Notice::Always;
                true
            }
            _ => false,
        }
    }

    /// Takes the next completion out of an event's queue.
    #[inline]
    pub(crate) fn take(&mut self, event: EventId) -> Option<Completion> {
        let mailbox = self.boxes.get_mut(event.slot())?;
        let at = mailbox.first_completion;
        let node = self.nodes.get_mut(at as usize)?;
        let completion = node.completion.take();
        mailbox.first_completion = std::mem::replace(&mut node.next, self.free);
        if mailbox.first_completion == NONE {
            mailbox.last_completion = NONE;
        }
        self.free = at;
        completion
    }

    /// Whether completions wait for an event.
    pub(crate) fn has_completion(&self, event: EventId) -> bool {
        self.boxes
            .get(event.slot())
            .is_some_and(|mailbox| mailbox.first_completion != NONE)
    }

    /// Whether an event that is removed leaves anything here.
    #[inline]
    pub(crate) fn concerns(&self, event: EventId) -> bool {
        self.boxes.get(event.slot()).is_some_and(|mailbox| {
            mailbox.first_completion != NONE || mailbox.first_operation != NONE
        })
    }

    /// The event is gone: its completions, to be dropped, and its operations, to be cancelled.
    pub(crate) fn forget(&mut self, event: EventId) -> (Vec<Completion>, Vec<OpId>) {
        let completions = std::iter::from_fn(|| self.take(event)).collect();
        let mut operations = Vec::new();
        if let Some(mailbox) = self.boxes.get_mut(event.slot()) {
            let mut at = std::mem::replace(&mut mailbox.first_operation, NONE);
            while let Some(record) = self.records.get_mut(at as usize) {
                record.event = None;
                operations.push(record.id);
                at = record.next;
            }
        }
        (completions, operations)
    }

    /// The event that an operation in flight is for.
    pub(crate) fn event_of(&self, id: OpId) -> Option<EventId> {
        let record = self.records.get(id.slot())?;
        if record.id == id { record.event } else { None }
    }

    #[inline]
    fn unlink(&mut self, slot: usize) {
        let Record {
            event,
            previous,
            next,
            ..
        } = self.records[slot];
        self.records[slot].event = None;
        if let Some(record) = self.records.get_mut(next as usize) {
            record.previous = previous;
        }
        if let Some(record) = self.records.get_mut(previous as usize) {
            record.next = next;
        } else if let Some(event) = event {
            self.boxes[event.slot()].first_operation = next;
        }
    }
}

/// Whether an operation is complete, did all that it was for, and brings nothing.
fn did_all(completion: &Completion) -> bool {
    match (&completion.result, &completion.operation) {
        (
            Ok(Outcome::Bytes(count)),
            Some(
                Operation::Send { payload, .. }
                | Operation::SendZeroCopy { payload, .. }
                | Operation::Write { payload, .. },
            ),
        ) => *count == payload.as_slice().len(),
        (
            Ok(Outcome::Done),
            Some(Operation::Close { .. } | Operation::Shutdown { .. } | Operation::Sync { .. }),
        ) => true,
        _ => false,
    }
}
