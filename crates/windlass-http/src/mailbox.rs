//! A bounded queue from any threads to one connection.
//!
//! The connection is woken by its [`Notifier`] exactly when it found the queue empty and something
//! came; the senders are told exactly when one was refused and there is room again, or nothing
//! more will be taken.
//!
//! # Invariants
//!
//! - `waiting` is there only while the queue is empty: who puts the first item there takes it out
//!   and uses it. So no wake-up is lost, and none is superfluous.
//! - `refused_bytes` is there only while an item of that size does not fit, or half of the capacity
//!   is still in use.
//! - After `Sealed` nothing is put in; after `Closed` the queue is empty.
//! - Nobody else's code runs under the lock: notifiers and callbacks are used, and items dropped,
//!   behind it.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use windlass::session::Notifier;

use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// A queue of items, each counted with its size in bytes.
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    /// Notified when a blocked sender should look again.
    changed: Condvar,
    capacity_bytes: usize,
}

struct State<T> {
    queue: VecDeque<(T, usize)>,
    queued_bytes: usize,
    phase: Phase,
    stopping: bool,
    /// Of the connection, when it found nothing.
    waiting: Option<Notifier>,
    /// The size of the largest item that was refused since there was room.
    refused_bytes: Option<usize>,
    on_change: Option<Callback>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The last item was put in.
    Sealed,
    /// The connection takes nothing more.
    Closed,
}

type Callback = Arc<dyn Fn() + Send + Sync>;

/// What the connection took.
pub(crate) enum Taken<T> {
    Item(T),
    /// The queue is empty: the notifier will be used.
    Nothing,
}

/// Something that could not be sent, given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrySendError<T> {
    /// The other side is gone, or the end was sent already.
    Closed(T),
    /// There is no room for it now.
    Full(T),
}

impl<T> TrySendError<T> {
    /// What was to be sent.
    pub fn into_inner(self) -> T {
        match self {
            Self::Closed(item) | Self::Full(item) => item,
        }
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "send to a client that is gone",
            Self::Full(_) => "send to a client whose queue is full",
        })
    }
}

impl<T: fmt::Debug> Error for TrySendError<T> {}

impl<T> Mailbox<T> {
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                queued_bytes: 0,
                phase: Phase::Open,
                stopping: false,
                waiting: None,
                refused_bytes: None,
                on_change: None,
            }),
            changed: Condvar::new(),
            capacity_bytes,
        }
    }

    /// Puts `item` in, which counts for `bytes`. One that is larger than the capacity fits into an
    /// empty queue.
    pub(crate) fn try_send(&self, item: T, bytes: usize) -> Result<(), TrySendError<T>> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open {
            return Err(TrySendError::Closed(item));
        }
        if !state.fits(bytes, self.capacity_bytes) {
            let refused = state.refused_bytes.unwrap_or(0).max(bytes);
            state.refused_bytes = Some(refused);
            return Err(TrySendError::Full(item));
        }
        Self::put(state, item, bytes);
        Ok(())
    }

    /// As [`try_send`](Self::try_send), but waits for room. An error gives the item back: it will
    /// not be taken.
    pub(crate) fn send(&self, item: T, bytes: usize) -> Result<(), T> {
        let mut state = lock(&self.state);
        loop {
            if state.phase != Phase::Open {
                return Err(item);
            }
            if state.fits(bytes, self.capacity_bytes) {
                Self::put(state, item, bytes);
                return Ok(());
            }
            let refused = state.refused_bytes.unwrap_or(0).max(bytes);
            state.refused_bytes = Some(refused);
            state = wait(&self.changed, state);
        }
    }

    /// Puts the last item in, whatever room there is. Dropped if there was a last one already.
    pub(crate) fn seal(&self, last: T) {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open {
            drop(state);
            return drop(last);
        }
        state.phase = Phase::Sealed;
        Self::put(state, last, 0);
        // Others may be blocked in `send`.
        self.changed.notify_all();
    }

    /// Puts the last item in place of all that were not taken yet, also of another last one.
    pub(crate) fn seal_now(&self, last: T) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed {
            drop(state);
            return drop(last);
        }
        state.phase = Phase::Sealed;
        state.queued_bytes = 0;
        let dropped = std::mem::take(&mut state.queue);
        Self::put(state, last, 0);
        self.changed.notify_all();
        drop(dropped);
    }

    fn put(mut state: MutexGuard<'_, State<T>>, item: T, bytes: usize) {
        state.queue.push_back((item, bytes));
        state.queued_bytes += bytes;
        let waiting = state.waiting.take();
        drop(state);
        if let Some(notifier) = waiting {
            notifier.notify();
        }
    }

    /// For the connection: takes the next item, or leaves `notifier` for who puts one in.
    pub(crate) fn take(&self, notifier: impl FnOnce() -> Notifier) -> Taken<T> {
        let mut state = lock(&self.state);
        let Some((item, bytes)) = state.queue.pop_front() else {
            // It makes a notifier of the driver's, which calls nobody.
            state.waiting = Some(notifier());
            return Taken::Nothing;
        };
        state.queued_bytes -= bytes;
        let has_room = state.take_room(self.capacity_bytes);
        let told = state.on_change.clone().filter(|_| has_room);
        drop(state);
        if has_room {
            self.changed.notify_all();
        }
        if let Some(callback) = told {
            callback();
        }
        Taken::Item(item)
    }

    /// For the connection: notes that the server stops, and tells the senders if it is news.
    pub(crate) fn note_stopping(&self) {
        let mut state = lock(&self.state);
        if state.stopping {
            return;
        }
        state.stopping = true;
        let told = state.on_change.clone();
        drop(state);
        if let Some(callback) = told {
            callback();
        }
    }

    /// For the connection: nothing more is taken.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Closed;
        state.queued_bytes = 0;
        state.waiting = None;
        let dropped = std::mem::take(&mut state.queue);
        // The callback may hold what holds this: it is needed no more.
        let told = state.on_change.take();
        drop(state);
        self.changed.notify_all();
        if let Some(callback) = told {
            callback();
        }
        drop(dropped);
    }

    pub(crate) fn on_change(&self, callback: Callback) {
        let mut state = lock(&self.state);
        let is_closed = state.phase == Phase::Closed;
        let old = if is_closed {
            None
        } else {
            state.on_change.replace(Arc::clone(&callback))
        };
        drop(state);
        drop(old);
        if is_closed {
            callback();
        }
    }

    pub(crate) fn free_bytes(&self) -> usize {
        let queued_bytes = lock(&self.state).queued_bytes;
        self.capacity_bytes.saturating_sub(queued_bytes)
    }

    /// Whether nothing more can be put in.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).phase != Phase::Open
    }

    pub(crate) fn is_stopping(&self) -> bool {
        lock(&self.state).stopping
    }
}

impl<T> State<T> {
    fn fits(&self, bytes: usize, capacity_bytes: usize) -> bool {
        self.queue.is_empty() || bytes <= capacity_bytes.saturating_sub(self.queued_bytes)
    }

    /// Whether somebody was refused and is to be told of the room now. Half of the capacity must be
    /// free, so that a refused sender is not woken for each item.
    fn take_room(&mut self, capacity_bytes: usize) -> bool {
        let Some(refused) = self.refused_bytes else {
            return false;
        };
        let roomy = self.queued_bytes <= capacity_bytes / 2 && self.fits(refused, capacity_bytes);
        if roomy {
            self.refused_bytes = None;
        }
        roomy
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Mailbox")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("queued_bytes", &state.queued_bytes)
            .field("phase", &state.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_model;
