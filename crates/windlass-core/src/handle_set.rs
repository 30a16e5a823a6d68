//! Handle set: the registrations, one per handle, with the merged interest of all its events.
//!
//! Found by the handle's number through a plain array: descriptors are small integers. A change of
//! the merged interest is only noted; the driver takes the notes before it waits, so that a change
//! that is undone meanwhile costs nothing.

use crate::demultiplexer::{Change, ChangeKind, Notify};
use crate::event_table::EventTable;
use crate::id::{HandleId, NONE, RawHandle};
use crate::interest::{Interest, Trigger};

#[derive(Debug)]
pub(crate) struct HandleSet {
    slots: Vec<HandleSlot>,
    /// The slot of each handle number.
    by_raw: Vec<u32>,
    free: u32,
    /// Handles whose registration may differ from what is wanted, in order of the change.
    dirty: Vec<u32>,
    notify: Notify,
}

#[derive(Debug)]
pub(crate) struct HandleSlot {
    generation: u32,
    pub(crate) raw: RawHandle,
    /// The first of its events; `NONE`: it has none any more. Links the free list when free.
    pub(crate) first_event: u32,
    pub(crate) trigger: Trigger,
    /// What the demultiplexer watches it for.
    applied: Interest,
    /// Whether it is silent until armed again: it reported once, or an edge of it was missed.
    disarmed: bool,
    /// Whether its last change failed: the demultiplexer may watch it, for anything, or not.
    doubtful: bool,
    dirty: bool,
    used: bool,
    /// Running handlers of its events.
    pub(crate) in_flight: u32,
}

impl HandleSet {
    pub(crate) fn new(notify: Notify) -> Self {
        Self {
            slots: Vec::new(),
            by_raw: Vec::new(),
            free: NONE,
            dirty: Vec::new(),
            notify,
        }
    }

    /// The slot of a registration, if the id is not stale.
    #[inline]
    pub(crate) fn find(&self, id: HandleId) -> Option<u32> {
        let slot = self.slots.get(id.index() as usize)?;
        (slot.generation == id.generation() && slot.used && slot.first_event != NONE)
            .then_some(id.index())
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &HandleSlot {
        &self.slots[index as usize]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut HandleSlot {
        &mut self.slots[index as usize]
    }

    pub(crate) fn id_of(&self, index: u32) -> HandleId {
        HandleId::new(index, self.slots[index as usize].generation)
    }

    /// The living registration of a handle number.
    pub(crate) fn of_raw(&self, raw: RawHandle) -> Option<u32> {
        let index = *self.by_raw.get(usize::try_from(raw).ok()?)?;
        (index != NONE).then_some(index)
    }

    /// The registration of `raw`, made if there is none. `raw` is not negative.
    pub(crate) fn find_or_make(&mut self, raw: RawHandle, trigger: Trigger) -> Option<u32> {
        if let Some(index) = self.of_raw(raw) {
            return Some(index);
        }
        let at = usize::try_from(raw).ok()?;
        if at >= self.by_raw.len() {
            self.by_raw.resize(at + 1, NONE);
        }
        let index = if self.free == NONE {
            // There are fewer handles than numbers, so this fits.
            let index = u32::try_from(self.slots.len()).ok()?;
            self.slots.push(HandleSlot::new(0, raw, trigger));
            index
        } else {
            let index = self.free;
            let slot = &mut self.slots[index as usize];
            self.free = slot.first_event;
            *slot = HandleSlot::new(slot.generation, raw, trigger);
            index
        };
        self.by_raw[at] = index;
        Some(index)
    }

    /// Takes `event` into the list of its handle's events.
    pub(crate) fn link(&mut self, events: &mut EventTable, index: u32, event: u32) {
        let mut at = self.slots[index as usize].first_event;
        if at == NONE {
            self.slots[index as usize].first_event = event;
        } else {
            // In order of insertion; a handle has one or two events.
            while events.slot(at).sibling != NONE {
                at = events.slot(at).sibling;
            }
            events.slot_mut(at).sibling = event;
        }
        events.slot_mut(event).subject = index;
    }

    /// Takes `event` out of its handle's list; a handle without events is given up.
    pub(crate) fn unlink(&mut self, events: &mut EventTable, index: u32, event: u32) {
        let after = events.slot(event).sibling;
        let first = self.slots[index as usize].first_event;
        if first == event {
            self.slots[index as usize].first_event = after;
        } else {
            let mut at = first;
            while events.slot(at).sibling != event {
                at = events.slot(at).sibling;
            }
            events.slot_mut(at).sibling = after;
        }
        if self.slots[index as usize].first_event == NONE {
            let raw = self.slots[index as usize].raw;
            if let Ok(at) = usize::try_from(raw) {
                self.by_raw[at] = NONE;
            }
            // The slot itself is freed when the driver has been told to remove the registration.
            self.mark_dirty(index);
        }
    }

    /// Notes that the merged interest of a handle may have changed.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Notes that a handle reported; with [`Notify::Once`] it is silent from now on, unless it is
    /// watched for edges.
    #[inline]
    pub(crate) fn note_report(&mut self, index: u32) {
        if self.notify == Notify::Always {
            return;
        }
        let slot = &mut self.slots[index as usize];
        // A report may be older than the removal of what reported.
        if !slot.applied.is_none() && slot.trigger == Trigger::Level {
            slot.disarmed = true;
        }
    }

    /// Notes that no event of a handle is running any more: it may report again.
    #[inline]
    pub(crate) fn note_idle(&mut self, index: u32) {
        if self.slots[index as usize].disarmed {
            self.mark_dirty(index);
        }
    }

    /// Notes that an event of an edge-triggered handle has missed readiness that was reported
    /// already, or may have: it is to be reported once more.
    #[inline]
    pub(crate) fn note_edge_missed(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.trigger == Trigger::Edge && !slot.applied.is_none() {
            slot.disarmed = true;
            self.mark_dirty(index);
        }
    }

    /// Forgets what the demultiplexer watches: all must be registered anew.
    pub(crate) fn mark_all_unapplied(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.used {
                slot.applied = Interest::NONE;
                slot.disarmed = false;
                slot.doubtful = false;
                self.mark_dirty(index as u32);
            }
        }
    }

    /// Notes that a registration could not be made or changed. A change that failed may have left
    /// the one before it in place: the next one begins with a removal.
    pub(crate) fn note_failure(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.applied = Interest::NONE;
        slot.doubtful = true;
    }

    /// Tries a registration again that could not be made.
    #[inline]
    pub(crate) fn retry_if_failed(&mut self, index: u32) {
        if self.slots[index as usize].doubtful {
            self.mark_dirty(index);
        }
    }

    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Appends to `changes` what the driver must tell its demultiplexer, in order; what it is told
    /// counts as done.
    pub(crate) fn take_changes(&mut self, events: &EventTable, changes: &mut Vec<Change>) {
        let mut dirty = core::mem::take(&mut self.dirty);
        for index in dirty.drain(..) {
            self.slots[index as usize].dirty = false;
            let wanted = self.merged(events, index);
            let id = self.id_of(index);
            let slot = &mut self.slots[index as usize];
            let (trigger, raw) = (slot.trigger, slot.raw);
            let notify = match trigger {
                // It does not repeat itself.
                Trigger::Edge => Notify::Always,
                Trigger::Level => self.notify,
            };
            let busy = slot.in_flight > 0 && notify == Notify::Once && !wanted.is_none();
            let rearm = slot.disarmed && !wanted.is_none();
            let kind = if slot.disarmed && busy || wanted == slot.applied && !rearm {
                // As it should be; or to be armed again when its handler has settled.
                None
            } else if wanted.is_none() {
                Some(ChangeKind::Remove)
            } else if slot.applied.is_none() {
                Some(ChangeKind::Register {
                    interest: wanted,
                    trigger,
                    notify,
                })
            } else {
                Some(ChangeKind::Modify {
                    interest: wanted,
                    trigger,
                    notify,
                })
            };
            if core::mem::take(&mut slot.doubtful) {
                changes.push(Change {
                    handle: id,
                    raw,
                    kind: ChangeKind::Remove,
                });
            }
            if let Some(kind) = kind {
                slot.applied = wanted;
                slot.disarmed = false;
                changes.push(Change {
                    handle: id,
                    raw,
                    kind,
                });
            }
            if slot.first_event == NONE && slot.used {
                slot.used = false;
                slot.generation = slot.generation.wrapping_add(1);
                slot.first_event = self.free;
                self.free = index;
            }
        }
        self.dirty = dirty;
    }

    /// All that the pending events of a handle want.
    fn merged(&self, events: &EventTable, index: u32) -> Interest {
        let mut merged = Interest::NONE;
        let mut at = self.slots[index as usize].first_event;
        while at != NONE {
            let slot = events.slot(at);
            if events.head(at).is_pending() {
                merged |= slot.interest;
            }
            at = slot.sibling;
        }
        merged
    }
}

impl HandleSlot {
    fn new(generation: u32, raw: RawHandle, trigger: Trigger) -> Self {
        Self {
            generation,
            raw,
            first_event: NONE,
            trigger,
            applied: Interest::NONE,
            disarmed: false,
            doubtful: false,
            dirty: false,
            used: true,
            in_flight: 0,
        }
    }
}
