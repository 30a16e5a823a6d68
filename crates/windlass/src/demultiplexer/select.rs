//! The select back end, select(2), without the C library's limit of 1024 descriptors.
//!
//! The wanted sets are copied for each wait, which the kernel overwrites; a table by descriptor
//! holds the ids. A wait costs the largest number. Hang-up and error show as a read or a write
//! that does not block, and an early close cannot be told from input.

use std::io;
use std::time::Duration;

use windlass_core::{
    Batch, EventDemultiplexer, Features, HandleId, Interest, Notify, RawHandle, Readiness, Trigger,
};
use windlass_sys::errno;
use windlass_sys::fd::is_open;
use windlass_sys::select::{self, FdSet, FdSets};

use super::{check_handle, check_trigger, index_of};

const EDGE_UNSUPPORTED: &str = "the select back end has no edge-triggered reports";
const EARLY_CLOSE_UNSUPPORTED: &str = "the select back end has no early-close reports";

/// Waits by pselect6(2).
#[derive(Debug, Default)]
pub struct SelectDemultiplexer {
    wanted: FdSets,
    found: FdSets,
    /// One more than the largest descriptor in `wanted`, or `None` if it must be looked for.
    span: Option<usize>,
    /// By descriptor.
    entries: Vec<Option<Entry>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    handle: HandleId,
    notify: Notify,
}

impl SelectDemultiplexer {
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
        if interest.contains(Interest::PEER_CLOSED) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                EARLY_CLOSE_UNSUPPORTED,
            ));
        }
        let index = index_of(raw)?;
        if self.entries.get(index).is_none_or(Option::is_none) {
            check_handle(raw)?;
            if index >= self.entries.len() {
                self.entries.resize(index + 1, None);
            }
        }
        self.entries[index] = Some(Entry { handle, notify });
        silence(&mut self.wanted, raw);
        for (bit, set) in [
            (Interest::READ, &mut self.wanted.read),
            (Interest::WRITE, &mut self.wanted.write),
            (Interest::PRIORITY, &mut self.wanted.except),
        ] {
            if interest.contains(bit) {
                set.insert(raw);
            }
        }
        self.span = None;
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let wanted = &self.wanted;
        let span = *self.span.get_or_insert_with(|| wanted.span());
        self.found.copy_from(wanted);
        select::select(&mut self.found, span, timeout)
    }

    /// Adds what the last wait found, which are `left` bits, to `batch`.
    fn report(&mut self, batch: &mut Batch, mut left: usize) {
        let Self {
            wanted,
            found,
            entries,
            span,
        } = self;
        FdSet::each_in([&found.read, &found.write, &found.except], |raw, which| {
            if left == 0 {
                // Bits beyond the size of the process's table are left as they were.
                return false;
            }
            left = left.saturating_sub(which.iter().filter(|&&bit| bit).count());
            if let Some(entry) = index_of(raw)
                .ok()
                .and_then(|index| entries.get(index)?.as_ref())
            {
                batch.push(entry.handle, readiness_of(which));
                if entry.notify == Notify::Once {
                    silence(wanted, raw);
                    *span = None;
                }
            }
            true
        });
    }

    /// Looks for the descriptors that are not open any more: each is reported as an error once
    /// and not waited for again until modified. Whether there was any.
    fn drop_closed(&mut self, batch: &mut Batch) -> bool {
        let Self {
            wanted,
            found,
            entries,
            span,
        } = self;
        let before = batch.reports().len();
        found.copy_from(wanted);
        FdSet::each_in([&found.read, &found.write, &found.except], |raw, _| {
            if !is_open(raw) {
                silence(wanted, raw);
                *span = None;
                let entry = index_of(raw)
                    .ok()
                    .and_then(|index| entries.get(index)?.as_ref());
                if let Some(entry) = entry {
                    batch.push(entry.handle, Readiness::ERROR);
                }
            }
            true
        });
        batch.reports().len() > before
    }
}

impl EventDemultiplexer for SelectDemultiplexer {
    fn name(&self) -> &'static str {
        "select"
    }

    fn features(&self) -> Features {
        Features {
            any_descriptor: true,
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
        silence(&mut self.wanted, raw);
        self.span = None;
        if let Some(entry) = index_of(raw)
            .ok()
            .and_then(|index| self.entries.get_mut(index))
        {
            *entry = None;
        }
        Ok(())
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        match self.wait(timeout) {
            Ok(count) => {
                self.report(batch, count);
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(errno::EBADF) => {
                if self.drop_closed(batch) {
                    return Ok(());
                }
                // Another thread opened the number again meanwhile.
                let count = self.wait(timeout)?;
                self.report(batch, count);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn reinit(&mut self) -> io::Result<()> {
        *self = Self::default();
        Ok(())
    }
}

fn silence(wanted: &mut FdSets, raw: RawHandle) {
    wanted.read.remove(raw);
    wanted.write.remove(raw);
    wanted.except.remove(raw);
}

fn readiness_of([read, write, except]: [bool; 3]) -> Readiness {
    let mut readiness = Readiness::NONE;
    if read {
        readiness |= Readiness::READ;
    }
    if write {
        readiness |= Readiness::WRITE;
    }
    if except {
        readiness |= Readiness::PRIORITY;
    }
    readiness
}
