//! The event demultiplexer: the thing that waits, as a trait, and what passes through it.
//!
//! A back end supplies five calls: [`register_event`](EventDemultiplexer::register_event),
//! [`modify_event`](EventDemultiplexer::modify_event),
//! [`remove_event`](EventDemultiplexer::remove_event),
//! [`demultiplex`](EventDemultiplexer::demultiplex) and
//! [`features`](EventDemultiplexer::features). It keeps a [`HandleId`] beside each handle and
//! returns it with each report, so that a report that is out of date is recognised.

use std::io;
use std::time::Duration;

use crate::id::{HandleId, RawHandle};
use crate::interest::{Interest, Readiness, Trigger};

/// What a back end can do, and what a configuration may require of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Edge-triggered reports.
    pub edge_triggered: bool,
    /// Cost of a wait that does not grow with the number of handles that are not ready.
    pub constant_time: bool,
    /// Any kind of descriptor, regular files included.
    pub any_descriptor: bool,
    /// The peer's half-close as a report of its own.
    pub early_close: bool,
}

impl Features {
    /// Whether all that `required` asks for is there.
    #[must_use]
    pub const fn satisfy(self, required: Self) -> bool {
        (self.edge_triggered || !required.edge_triggered)
            && (self.constant_time || !required.constant_time)
            && (self.any_descriptor || !required.any_descriptor)
            && (self.early_close || !required.early_close)
    }
}

/// How often a registration reports before it must be armed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Notify {
    /// Each wait.
    #[default]
    Always,
    /// Once; then it is silent until modified (`EPOLLONESHOT`). An engine that is configured so
    /// does it with levels only: an edge is reported once anyway, and what comes after it is
    /// reported while handlers run, which costs no call to arm it.
    Once,
}

/// One handle's readiness, as found by a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which registration.
    pub handle: HandleId,
    /// What happened to it.
    pub readiness: Readiness,
}

/// What one wait found: readiness by handle, and signals.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) reports: Vec<Report>,
    pub(crate) signals: Vec<(i32, u32)>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one handle's readiness.
    #[inline]
    pub fn push(&mut self, handle: HandleId, readiness: Readiness) {
        self.reports.push(Report { handle, readiness });
    }

    /// Adds `count` deliveries of a signal.
    pub fn push_signal(&mut self, number: i32, count: u32) {
        self.signals.push((number, count));
    }

    /// Takes everything out; keeps the memory.
    pub fn clear(&mut self) {
        self.reports.clear();
        self.signals.clear();
    }

    /// The reports, in the back end's order.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.signals.is_empty()
    }
}

/// What a driver must tell its demultiplexer about one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The registration; carried as user data.
    pub handle: HandleId,
    /// The handle's number.
    pub raw: RawHandle,
    /// What to do.
    pub kind: ChangeKind,
}

/// What to do with one registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Start watching.
    Register {
        /// All that any event of the handle wants.
        interest: Interest,
        /// Level or edge.
        trigger: Trigger,
        /// Always or once.
        notify: Notify,
    },
    /// Watch for something else, or arm again.
    Modify {
        /// All that any event of the handle wants.
        interest: Interest,
        /// Level or edge.
        trigger: Trigger,
        /// Always or once.
        notify: Notify,
    },
    /// Stop watching.
    Remove,
}

/// Waits for many handles at once (the Reactor pattern's event demultiplexer).
///
/// One thread owns it. It knows handles by number and gives back the [`HandleId`] that it was
/// handed; it knows nothing of events, handlers or time-outs longer than one wait.
pub trait EventDemultiplexer {
    /// The method's name: "epoll", "poll", "select", …
    fn name(&self) -> &'static str;

    /// What it can do.
    fn features(&self) -> Features;

    /// Starts watching `raw` for `interest`.
    ///
    /// # Errors
    ///
    /// The system call's: not a descriptor, already registered, out of memory, out of watches.
    fn register_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()>;

    /// Replaces what `raw` is watched for; arms it again if it was to report once.
    ///
    /// # Errors
    ///
    /// The system call's, among them that `raw` is not registered.
    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()>;

    /// Stops watching `raw`. Not being registered any more is no error.
    ///
    /// # Errors
    ///
    /// The system call's, but for "not registered" and "not a descriptor".
    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()>;

    /// Waits until something is ready, `timeout` is over (`None`: for ever; zero: no wait) or a
    /// signal handler interrupts, and appends what is ready to `batch`. Resolution as fine as the
    /// method allows; never returns early but for readiness or an interruption, rounding up.
    ///
    /// # Errors
    ///
    /// The system call's; an interruption is an empty batch and no error.
    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()>;

    /// Called when a report named a registration that the engine does not know: something keeps
    /// reporting for a handle that was closed while a duplicate lives. Answers whether all
    /// registrations must be made anew ([`Engine::mark_all_unapplied`](crate::Engine)) because the
    /// kernel's set was rebuilt.
    ///
    /// # Errors
    ///
    /// The system calls' that rebuild the set.
    fn forget_orphan(&mut self, _handle: HandleId) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes a new kernel set, empty, in place of one that is shared with another process.
    ///
    /// # Errors
    ///
    /// The system calls'.
    fn reinit(&mut self) -> io::Result<()>;

    /// Carries out one change.
    ///
    /// # Errors
    ///
    /// As the call that it stands for.
    fn apply(&mut self, change: &Change) -> io::Result<()> {
        match change.kind {
            ChangeKind::Register {
                interest,
                trigger,
                notify,
            } => self.register_event(change.raw, change.handle, interest, trigger, notify),
            ChangeKind::Modify {
                interest,
                trigger,
                notify,
            } => self.modify_event(change.raw, change.handle, interest, trigger, notify),
            ChangeKind::Remove => self.remove_event(change.raw),
        }
    }
}
