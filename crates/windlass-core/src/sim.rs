//! The simulated demultiplexer and clock: whole loops in virtual time, replayable.
//!
//! Nothing is ready until a test says so; a wait in which nothing is ready lets exactly its
//! time-out pass on the simulated clock. Errors can be put in the way of the next registrations.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::demultiplexer::{Batch, EventDemultiplexer, Features, Notify};
use crate::id::{HandleId, RawHandle};
use crate::interest::{Interest, Readiness, Trigger};
use crate::time::Instant;

/// A demultiplexer whose handles exist only in the test.
#[derive(Debug, Default)]
pub struct SimDemultiplexer {
    state: Arc<Mutex<SimState>>,
}

/// The test's hand on a simulated demultiplexer and its clock.
#[derive(Clone, Debug)]
pub struct SimControl {
    state: Arc<Mutex<SimState>>,
}

#[derive(Debug, Default)]
struct SimState {
    now_ns: u64,
    registrations: BTreeMap<RawHandle, Registration>,
    readiness: BTreeMap<RawHandle, Readiness>,
    failures: VecDeque<io::ErrorKind>,
    waits: u64,
    calls: u64,
}

/// How the simulated demultiplexer watches one handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The id that is reported.
    pub handle: HandleId,
    /// What is watched for.
    pub interest: Interest,
    /// Level or edge.
    pub trigger: Trigger,
    /// Always or once.
    pub notify: Notify,
    armed: bool,
    /// With edge trigger: what became ready since the last report.
    edge: Readiness,
}

impl Registration {
    /// Whether it reports: one that was to report once and did is silent until modified.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.armed
    }
}

impl SimDemultiplexer {
    /// A demultiplexer that watches nothing, its clock at zero, and the hand on it.
    #[must_use]
    pub fn new() -> (Self, SimControl) {
        let simulated = Self::default();
        let control = SimControl {
            state: Arc::clone(&simulated.state),
        };
        (simulated, control)
    }

    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimControl {
    fn state(&self) -> MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The simulated time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.state().now_ns)
    }

    /// Lets time pass.
    pub fn pass(&self, duration: Duration) {
        let mut state = self.state();
        state.now_ns = (Instant::from_nanos(state.now_ns) + duration).as_nanos();
    }

    /// Sets what `raw` is ready for, in place of what it was.
    pub fn set_ready(&self, raw: RawHandle, readiness: Readiness) {
        let mut state = self.state();
        let before = state.readiness.insert(raw, readiness).unwrap_or_default();
        if let Some(registration) = state.registrations.get_mut(&raw) {
            registration.edge |= readiness.without(before);
        }
    }

    /// Closes `raw`: its readiness and its registration are gone, as with the last descriptor of a
    /// description.
    pub fn close(&self, raw: RawHandle) {
        let mut state = self.state();
        state.readiness.remove(&raw);
        state.registrations.remove(&raw);
    }

    /// Makes the next register or modify call fail, after those that are to fail already.
    pub fn fail_next(&self, kind: io::ErrorKind) {
        self.state().failures.push_back(kind);
    }

    /// How `raw` is watched.
    #[must_use]
    pub fn registration(&self, raw: RawHandle) -> Option<Registration> {
        self.state().registrations.get(&raw).copied()
    }

    /// How many waits there were.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.state().waits
    }

    /// How many register, modify and remove calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }
}

impl SimState {
    fn fail(&mut self) -> io::Result<()> {
        self.calls += 1;
        self.failures
            .pop_front()
            .map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl EventDemultiplexer for SimDemultiplexer {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn features(&self) -> Features {
        Features {
            edge_triggered: true,
            constant_time: true,
            any_descriptor: true,
            early_close: true,
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
        let mut state = self.state();
        state.fail()?;
        if state.registrations.contains_key(&raw) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let edge = state.readiness.get(&raw).copied().unwrap_or_default();
        let registration = Registration {
            handle,
            interest,
            trigger,
            notify,
            armed: true,
            edge,
        };
        state.registrations.insert(raw, registration);
        Ok(())
    }

    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        let mut state = self.state();
        state.fail()?;
        let edge = state.readiness.get(&raw).copied().unwrap_or_default();
        let found = state
            .registrations
            .get_mut(&raw)
            .ok_or(io::ErrorKind::NotFound)?;
        *found = Registration {
            handle,
            interest,
            trigger,
            notify,
            armed: true,
            edge,
        };
        Ok(())
    }

    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()> {
        let mut state = self.state();
        state.calls += 1;
        state.registrations.remove(&raw);
        Ok(())
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let mut state = self.state();
        state.waits += 1;
        let SimState {
            registrations,
            readiness,
            ..
        } = &mut *state;
        let mut found = false;
        for (raw, registration) in registrations.iter_mut().filter(|(_, r)| r.armed) {
            let ready = readiness.get(raw).copied().unwrap_or_default();
            let mut told = ready.told_to(registration.interest);
            if registration.trigger == Trigger::Edge {
                if (registration.edge & told).is_none() {
                    continue;
                }
                registration.edge = Readiness::NONE;
            }
            if told.is_none() {
                continue;
            }
            // The kernel reports what is, not what the engine makes of it.
            told = told & ready;
            registration.armed = registration.notify == Notify::Always;
            batch.push(registration.handle, told);
            found = true;
        }
        if !found && let Some(timeout) = timeout {
            state.now_ns = (Instant::from_nanos(state.now_ns) + timeout).as_nanos();
        }
        Ok(())
    }

    fn reinit(&mut self) -> io::Result<()> {
        self.state().registrations.clear();
        Ok(())
    }
}
