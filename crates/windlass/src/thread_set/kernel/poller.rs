//! What a set of threads waits with, as a trait: the system's, and the model check's.

use std::io;
use std::time::Duration;

use windlass_core::{Batch, Change, HandleId, Instant};

/// What waits and registers, as a set of threads needs it.
pub(in crate::thread_set) trait Poller: Send + Sync {
    /// What the leader waits with.
    type Waiter: Send;
    /// What registers, under the set's lock.
    type Registrar: Send;

    /// Whether registrations can be changed while the leader waits.
    fn registers_beside(&self) -> bool;

    /// Carries out a change. The waiter is there unless somebody waits.
    fn apply(
        &self,
        registrar: &mut Self::Registrar,
        waiter: Option<&mut Self::Waiter>,
        change: &Change,
    ) -> io::Result<()>;

    /// Whether something is ready that no wait reports; [`report`](Self::report) does.
    fn is_armed(&self, registrar: &Self::Registrar) -> bool;

    fn report(&self, registrar: &mut Self::Registrar, batch: &mut Batch);

    /// Waits; ends early after a [`wake`](Self::wake) that no wait has seen yet.
    fn wait(
        &self,
        waiter: &mut Self::Waiter,
        batch: &mut Batch,
        timeout: Option<Duration>,
    ) -> io::Result<()>;

    /// Ends the leader's wait, or the next one.
    fn wake(&self);

    /// A registration that the engine does not know was reported: whether all are to be made anew.
    fn forget_orphan(
        &self,
        registrar: &mut Self::Registrar,
        waiter: &mut Self::Waiter,
        handle: HandleId,
    ) -> io::Result<bool>;

    fn now(&self) -> Instant;
}
