//! The poll back end, poll(2).
//!
//! One array of entries for the kernel and one of ours beside it, both dense; a table by
//! descriptor says where an entry is. A wait costs the number of entries.

use std::io;
use std::time::Duration;

use windlass_core::{
    Batch, EventDemultiplexer, Features, HandleId, Interest, Notify, RawHandle, Readiness, Trigger,
};
use windlass_sys::poll::{self, PollFd};

use super::{check_handle, check_trigger, index_of};

const EDGE_UNSUPPORTED: &str = "the poll back end has no edge-triggered reports";

/// The kernel skips entries with a negative number.
const SKIPPED: PollFd = PollFd::new(-1, 0);

/// Waits by ppoll(2).
#[derive(Debug, Default)]
pub struct PollDemultiplexer {
    fds: Vec<PollFd>,
    /// The same places as `fds`.
    entries: Vec<Entry>,
    /// By descriptor: its place in `fds`.
    places: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    raw: RawHandle,
    handle: HandleId,
    notify: Notify,
}

impl PollDemultiplexer {
    /// An empty set; there is nothing to open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn put(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        notify: Notify,
    ) -> io::Result<()> {
        let index = index_of(raw)?;
        let entry = Entry {
            raw,
            handle,
            notify,
        };
        let fd = if interest.is_none() {
            SKIPPED
        } else {
            PollFd::new(raw, events_of(interest))
        };
        if let Some(place) = self.place_of(raw) {
            self.entries[place] = entry;
            self.fds[place] = fd;
            return Ok(());
        }
        check_handle(raw)?;
        let place = u32::try_from(self.fds.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        self.places[index] = Some(place);
        self.entries.push(entry);
        self.fds.push(fd);
        Ok(())
    }

    fn place_of(&self, raw: RawHandle) -> Option<usize> {
        let place = (*self.places.get(usize::try_from(raw).ok()?)?)?;
        Some(place as usize)
    }
}

impl EventDemultiplexer for PollDemultiplexer {
    fn name(&self) -> &'static str {
        "poll"
    }

    fn features(&self) -> Features {
        Features {
            any_descriptor: true,
            early_close: true,
            ..Features::default()
        }
    }

    fn register_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        check_trigger(trigger, EDGE_UNSUPPORTED)?;
        self.put(raw, handle, interest, notify)
    }

    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        check_trigger(trigger, EDGE_UNSUPPORTED)?;
        self.put(raw, handle, interest, notify)
    }

    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()> {
        let Some(place) = self.place_of(raw) else {
            return Ok(());
        };
        self.places[index_of(raw)?] = None;
        self.fds.swap_remove(place);
        self.entries.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places[index_of(moved.raw)?] = u32::try_from(place).ok();
        }
        Ok(())
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let mut left = poll::poll(&mut self.fds, timeout)?;
        for (fd, entry) in self.fds.iter_mut().zip(&self.entries) {
            if left == 0 {
                break;
            }
            let found = fd.found();
            if found == 0 {
                continue;
            }
            left -= 1;
            batch.push(entry.handle, readiness_of(found));
            // What is not open any more would be found by every wait.
            if entry.notify == Notify::Once || found & poll::NVAL != 0 {
                *fd = SKIPPED;
            }
        }
        Ok(())
    }

    fn reinit(&mut self) -> io::Result<()> {
        *self = Self::default();
        Ok(())
    }
}

/// What to ask ppoll(2) for.
pub(crate) fn events_of(interest: Interest) -> i16 {
    let mut events = 0;
    for (interest_bit, event) in [
        (Interest::READ, poll::IN),
        (Interest::WRITE, poll::OUT),
        (Interest::PEER_CLOSED, poll::RDHUP),
        (Interest::PRIORITY, poll::PRI),
    ] {
        if interest.contains(interest_bit) {
            events |= event;
        }
    }
    events
}

/// What it has found.
pub(crate) fn readiness_of(found: i16) -> Readiness {
    let mut readiness = Readiness::NONE;
    for (event, bit) in [
        (poll::IN, Readiness::READ),
        (poll::OUT, Readiness::WRITE),
        (poll::RDHUP, Readiness::PEER_CLOSED),
        (poll::PRI, Readiness::PRIORITY),
        (poll::HUP, Readiness::HANG_UP),
        (poll::ERR, Readiness::ERROR),
        (poll::NVAL, Readiness::ERROR),
    ] {
        if found & event != 0 {
            readiness |= bit;
        }
    }
    readiness
}
