//! What a loop waits with: a back end, and the driver of its operations.

use std::io;
use std::time::Duration;

use windlass_core::{
    Batch, EventDemultiplexer, Features, HandleId, Interest, Notify, RawHandle, Trigger,
};
use windlass_sys::errno::{EAGAIN, EBUSY, EINTR};
use windlass_sys::operation::execution::Faults;
use windlass_sys::provided::BufferPools;

use super::choice::Driver;
use super::emulated::EmulatedDriver;
use super::{CancelOutcome, Completion, OpId, Operation, PoolId};
use crate::demultiplexer::UringDemultiplexer;

/// A back end with a driver.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// The kernel's ring, for both.
    Uring(Box<UringDemultiplexer>),
    /// Any back end, and the loop's own thread.
    Other {
        /// The back end.
        demultiplexer: AnyDemultiplexer,
        /// Made when the first operation is started.
        driver: Option<Box<EmulatedDriver>>,
        /// What the driver's descriptor is registered as.
        watched_as: Option<HandleId>,
    },
}

/// What submissions meet that fail for now.
const ERRORS: [i32; 3] = [EAGAIN, EBUSY, EINTR];
/// So many submissions are made to fail at most.
const FAULTS_MAX: u64 = 64;

/// A back end of any kind.
pub(crate) struct AnyDemultiplexer(Box<dyn EventDemultiplexer + Send>);

impl std::fmt::Debug for AnyDemultiplexer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Waiter {
    pub(crate) fn other(demultiplexer: Box<dyn EventDemultiplexer + Send>) -> Self {
        Self::Other {
            demultiplexer: AnyDemultiplexer(demultiplexer),
            driver: None,
            watched_as: None,
        }
    }

    /// Who carries out operations.
    pub(crate) fn driver(&self) -> Driver {
        match self {
            Self::Uring(_) => Driver::Uring,
            Self::Other { .. } => Driver::Emulated,
        }
    }

    /// The emulated driver, if it is in use.
    pub(crate) fn emulated(&self) -> Option<&EmulatedDriver> {
        match self {
            Self::Uring(_) => None,
            Self::Other { driver, .. } => driver.as_deref(),
        }
    }

    /// Makes the emulated driver if it is needed and not there. Answers whether it is new, and so
    /// must be watched.
    pub(crate) fn prepare_driver(&mut self) -> io::Result<bool> {
        match self {
            Self::Other {
                driver: driver @ None,
                ..
            } => {
                *driver = Some(Box::new(EmulatedDriver::open()?));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The registration of the emulated driver's descriptor.
    pub(crate) fn set_watched_as(&mut self, handle: HandleId) {
        if let Self::Other { watched_as, .. } = self {
            *watched_as = Some(handle);
        }
    }

    /// Starts an operation. The driver was prepared.
    #[inline]
    pub(crate) fn start(&mut self, operation: Operation) -> OpId {
        match self {
            Self::Uring(demultiplexer) => demultiplexer.ring_mut().start(operation),
            Self::Other { driver, .. } => {
                let driver = driver.as_mut().expect("prepared by the caller");
                driver.start(operation)
            }
        }
    }

    /// As [`start`](Self::start), of an operation whose good end nobody waits for.
    #[inline]
    pub(crate) fn start_quietly(&mut self, operation: Operation) -> OpId {
        match self {
            Self::Uring(demultiplexer) => demultiplexer.ring_mut().start_at_once(operation),
            Self::Other { .. } => self.start(operation),
        }
    }

    /// Somebody waits for it after all.
    pub(crate) fn hurry(&mut self, id: OpId) {
        if let Self::Uring(demultiplexer) = self {
            demultiplexer.ring_mut().hurry(id);
        }
    }

    pub(crate) fn cancel(&mut self, id: OpId) -> CancelOutcome {
        match self {
            Self::Uring(demultiplexer) => demultiplexer.ring_mut().cancel(id),
            Self::Other { driver, .. } => driver
                .as_mut()
                .map_or(CancelOutcome::AlreadyComplete, |driver| driver.cancel(id)),
        }
    }

    /// Has the driver's work go wrong now and then, for tests: a ring's submissions, the calls and
    /// reports of the emulated driver.
    pub(crate) fn inject(&mut self, seed: u64, one_in: u32, count: u64) {
        match self {
            Self::Uring(demultiplexer) => {
                let errors = (seed..).take(count.min(FAULTS_MAX) as usize);
                let errors: Vec<i32> = errors
                    .map(|at| ERRORS[at as usize % ERRORS.len()])
                    .collect();
                demultiplexer.ring_mut().fail_next_submissions(&errors);
            }
            Self::Other {
                driver: Some(driver),
                ..
            } => driver.inject(Faults::random(seed, one_in, count)),
            Self::Other { driver: None, .. } => {}
        }
    }

    /// Has a ring find a completion that names no operation, or no longer; for tests.
    pub(crate) fn inject_stray(&mut self, pools: &BufferPools, id: OpId) {
        if let Self::Uring(demultiplexer) = self {
            let ring = demultiplexer.ring_mut();
            if !ring.is_in_flight(id) {
                let found = ring.inject_completion(pools, id.to_bits(), 1, 0);
                debug_assert!(found.is_none());
            }
        }
    }

    /// Makes a pool of buffers.
    pub(crate) fn add_pool(
        &mut self,
        pools: &mut BufferPools,
        count: u16,
        size_bytes: u32,
    ) -> io::Result<PoolId> {
        let ring = match self {
            Self::Uring(demultiplexer) => Some(demultiplexer.ring_mut()),
            Self::Other { .. } => None,
        };
        pools.add(ring, count, size_bytes)
    }

    /// Waits as [`demultiplex`](EventDemultiplexer::demultiplex) does, also for completions, which
    /// go to `sink`. May find nothing before the time is over.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        pools: &BufferPools,
        batch: &mut Batch,
        timeout: Option<Duration>,
        sink: impl FnMut(Completion),
    ) -> io::Result<()> {
        match self {
            Self::Uring(demultiplexer) => demultiplexer.wait(pools, batch, timeout, sink).map(drop),
            Self::Other {
                demultiplexer,
                driver: None,
                ..
            } => demultiplexer.0.demultiplex(batch, timeout),
            Self::Other {
                demultiplexer,
                driver: Some(driver),
                watched_as,
            } => {
                let timeout = match (timeout, driver.wait_limit(pools)) {
                    (Some(timeout), Some(limit)) => Some(timeout.min(limit)),
                    (timeout, limit) => timeout.or(limit),
                };
                demultiplexer.0.demultiplex(batch, timeout)?;
                let is_ready = watched_as
                    .is_some_and(|own| batch.reports().iter().any(|report| report.handle == own));
                driver.reap(pools, is_ready, sink)
            }
        }
    }

    /// As [`EventDemultiplexer::reinit`], and of the driver: answers what was in flight, as
    /// completed.
    pub(crate) fn reinit_with(&mut self, pools: &BufferPools) -> io::Result<Vec<Completion>> {
        match self {
            Self::Uring(demultiplexer) => demultiplexer.reinit_with(pools),
            Self::Other {
                demultiplexer,
                driver,
                ..
            } => {
                demultiplexer.0.reinit()?;
                match driver {
                    Some(driver) => driver.reinit(),
                    None => Ok(Vec::new()),
                }
            }
        }
    }

    fn as_dyn(&self) -> &dyn EventDemultiplexer {
        match self {
            Self::Uring(demultiplexer) => &**demultiplexer,
            Self::Other { demultiplexer, .. } => &*demultiplexer.0,
        }
    }

    fn as_dyn_mut(&mut self) -> &mut dyn EventDemultiplexer {
        match self {
            Self::Uring(demultiplexer) => &mut **demultiplexer,
            Self::Other { demultiplexer, .. } => &mut *demultiplexer.0,
        }
    }
}

impl EventDemultiplexer for Waiter {
    fn name(&self) -> &'static str {
        self.as_dyn().name()
    }

    fn features(&self) -> Features {
        self.as_dyn().features()
    }

    fn register_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.as_dyn_mut()
            .register_event(raw, handle, interest, trigger, notify)
    }

    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.as_dyn_mut()
            .modify_event(raw, handle, interest, trigger, notify)
    }

    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()> {
        self.as_dyn_mut().remove_event(raw)
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        self.as_dyn_mut().demultiplex(batch, timeout)
    }

    fn forget_orphan(&mut self, handle: HandleId) -> io::Result<bool> {
        self.as_dyn_mut().forget_orphan(handle)
    }

    fn reinit(&mut self) -> io::Result<()> {
        self.as_dyn_mut().reinit()
    }
}
