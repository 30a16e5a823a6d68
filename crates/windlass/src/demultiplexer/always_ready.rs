//! The handles that epoll refuses because they never block: regular files, directories, devices.

use windlass_core::{Batch, HandleId, Interest, Notify, RawHandle, Readiness, Trigger};

/// A list: programs have few such handles at a time, so that a search is short.
#[derive(Debug, Default)]
pub(super) struct AlwaysReady {
    entries: Vec<Entry>,
    /// How many entries report at the next wait.
    armed_count: usize,
}

#[derive(Debug)]
struct Entry {
    raw: RawHandle,
    handle: HandleId,
    readiness: Readiness,
    repeats: Repeats,
    is_armed: bool,
}

/// Whether a report leaves the entry armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    Always,
    /// Once, or on each change, and it never changes.
    UntilModified,
}

impl AlwaysReady {
    /// Puts `raw` in, or replaces and arms it.
    pub(super) fn insert(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) {
        self.remove(raw);
        let readiness = readiness_of(interest);
        let repeats = match (trigger, notify) {
            (Trigger::Level, Notify::Always) => Repeats::Always,
            _ => Repeats::UntilModified,
        };
        let is_armed = !readiness.is_none();
        self.armed_count += usize::from(is_armed);
        self.entries.push(Entry {
            raw,
            handle,
            readiness,
            repeats,
            is_armed,
        });
    }

    /// Takes `raw` out; whether it was in.
    pub(super) fn remove(&mut self, raw: RawHandle) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.raw == raw) else {
            return false;
        };
        let entry = self.entries.swap_remove(at);
        self.armed_count -= usize::from(entry.is_armed);
        true
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.armed_count = 0;
    }

    /// Whether the next wait must not block.
    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed_count > 0
    }

    /// Adds what is ready to `batch`.
    pub(super) fn report(&mut self, batch: &mut Batch) {
        for entry in self.entries.iter_mut().filter(|entry| entry.is_armed) {
            batch.push(entry.handle, entry.readiness);
            if entry.repeats == Repeats::UntilModified {
                entry.is_armed = false;
                self.armed_count -= 1;
            }
        }
    }
}

/// Reads and writes never block; nothing else ever happens.
fn readiness_of(interest: Interest) -> Readiness {
    let mut readiness = Readiness::NONE;
    if interest.contains(Interest::READ) {
        readiness |= Readiness::READ;
    }
    if interest.contains(Interest::WRITE) {
        readiness |= Readiness::WRITE;
    }
    readiness
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(list: &mut AlwaysReady) -> Vec<(u64, Readiness)> {
        let mut batch = Batch::new();
        list.report(&mut batch);
        batch
            .reports()
            .iter()
            .map(|report| (report.handle.to_bits(), report.readiness))
            .collect()
    }

    #[test]
    fn entries_report_by_their_trigger_and_count_what_is_armed() {
        let mut list = AlwaysReady::default();
        let id = HandleId::from_bits;
        list.insert(3, id(1), Interest::READ, Trigger::Level, Notify::Always);
        list.insert(4, id(2), Interest::WRITE, Trigger::Edge, Notify::Always);
        list.insert(5, id(3), Interest::READ, Trigger::Level, Notify::Once);
        list.insert(6, id(4), Interest::PRIORITY, Trigger::Level, Notify::Always);
        let first = [
            (1, Readiness::READ),
            (2, Readiness::WRITE),
            (3, Readiness::READ),
        ];
        assert_eq!(reported(&mut list), first);
        assert_eq!(reported(&mut list), [(1, Readiness::READ)]);
        assert!(list.remove(3) && !list.remove(3));
        assert!(!list.is_armed());
        list.insert(5, id(5), Interest::READ, Trigger::Level, Notify::Once);
        assert!(list.is_armed());
        assert_eq!(reported(&mut list), [(5, Readiness::READ)]);
        list.clear();
        assert!(reported(&mut list).is_empty());
    }
}
