//! Watchers: hooks that run in every turn, before the wait (prepare) and after it (check).

use crate::engine::{Disposition, Engine};

/// When a watcher runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherKind {
    /// Before the loop waits.
    Prepare,
    /// After the wait, before handlers run.
    Check,
}

/// Names a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatcherId(u64);

/// How far a pass over the watchers of one kind has come.
#[derive(Debug)]
pub struct WatcherCursor {
    kind: WatcherKind,
    /// Watchers up to this id were called.
    after: u64,
    /// Watchers beyond this id were added in this pass and wait for the next.
    last: u64,
}

/// A watcher to call; to be settled.
#[derive(Debug)]
#[must_use = "a watcher must be settled"]
pub struct WatcherCall<P> {
    /// Which one.
    pub id: WatcherId,
    /// Its payload, moved out.
    pub payload: P,
}

/// All watchers, in order of insertion. Ids ascend and are not reused.
#[derive(Debug)]
pub(crate) struct Watchers<P> {
    list: Vec<(u64, WatcherKind, Option<P>)>,
    last_id: u64,
}

impl<P> Default for Watchers<P> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            last_id: 0,
        }
    }
}

impl<P> Engine<P> {
    /// Adds a hook that runs in every turn from the next pass on.
    pub fn insert_watcher(&mut self, kind: WatcherKind, payload: P) -> WatcherId {
        self.watchers.last_id += 1;
        self.watchers
            .list
            .push((self.watchers.last_id, kind, Some(payload)));
        WatcherId(self.watchers.last_id)
    }

    /// Removes a hook. Its payload comes back unless it is running: then it is released when it
    /// settles. Nothing if there is no such hook.
    pub fn remove_watcher(&mut self, id: WatcherId) -> Option<P> {
        let at = self
            .watchers
            .list
            .binary_search_by_key(&id.0, |watcher| watcher.0)
            .ok()?;
        self.watchers.list.remove(at).2
    }

    /// Whether there is any hook.
    #[must_use]
    #[inline]
    pub fn has_watchers(&self) -> bool {
        !self.watchers.list.is_empty()
    }

    /// Begins a pass over the hooks of one kind.
    #[must_use]
    pub fn watch(&self, kind: WatcherKind) -> WatcherCursor {
        WatcherCursor {
            kind,
            after: 0,
            last: self.watchers.last_id,
        }
    }

    /// The next hook of the pass; hooks may come and go meanwhile.
    pub fn next_watcher(&mut self, cursor: &mut WatcherCursor) -> Option<WatcherCall<P>> {
        if self.watchers.list.is_empty() {
            return None;
        }
        let start = self
            .watchers
            .list
            .partition_point(|watcher| watcher.0 <= cursor.after);
        for (id, kind, payload) in &mut self.watchers.list[start..] {
            if *id > cursor.last {
                break;
            }
            if *kind == cursor.kind
                && let Some(payload) = payload.take()
            {
                cursor.after = *id;
                return Some(WatcherCall {
                    id: WatcherId(*id),
                    payload,
                });
            }
        }
        None
    }

    /// Takes a hook back, or releases it: if it answered [`Disposition::Remove`] or was removed
    /// while it ran. The other answers keep it.
    pub fn settle_watcher(
        &mut self,
        id: WatcherId,
        payload: P,
        disposition: Disposition,
    ) -> Option<P> {
        let Ok(at) = self
            .watchers
            .list
            .binary_search_by_key(&id.0, |watcher| watcher.0)
        else {
            return Some(payload);
        };
        if disposition == Disposition::Remove {
            self.watchers.list.remove(at);
            return Some(payload);
        }
        self.watchers.list[at].2 = Some(payload);
        None
    }

    /// Gives up a hook whose payload is lost (it panicked).
    pub fn abandon_watcher(&mut self, id: WatcherId) {
        self.remove_watcher(id);
    }
}
