//! What a set of threads waits with: epoll, whose registrations are changed beside the leader, or
//! another method, of which the leader does all.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use windlass_core::{
    Batch, Change, EventDemultiplexer, HandleId, Instant, Interest, Notify, Trigger,
};
use windlass_sys::clock;
use windlass_sys::wake::WakeFd;

use super::kernel::Poller;
use crate::demultiplexer::{
    Backend, BackendConfig, BackendError, EpollDemultiplexer, EpollRegistrar, EpollWaiter, pick,
};
use crate::event_loop::OpenError;

/// Names the wake-up channel, which is no event.
const WAKE: HandleId = HandleId::from_bits(u64::MAX);

/// See the module.
#[derive(Debug)]
pub(super) struct SystemPoller {
    backend: Backend,
    wake: WakeFd,
}

/// What the leader has.
pub(super) enum Waiter {
    Epoll(EpollWaiter),
    Other(Box<dyn EventDemultiplexer + Send>),
}

/// What is behind the lock: none if the leader registers.
pub(super) type Registrar = Option<EpollRegistrar>;

impl SystemPoller {
    pub(super) fn open(config: &BackendConfig) -> Result<(Self, Waiter, Registrar), OpenError> {
        let backend = pick(config).map_err(OpenError::Backend)?;
        let wake = WakeFd::new().map_err(OpenError::WakeUp)?;
        let poller = Self { backend, wake };
        if backend != Backend::Epoll {
            let mut other = backend.open().map_err(OpenError::Backend)?;
            poller.watch_wake(&mut *other, Trigger::Level)?;
            return Ok((poller, Waiter::Other(other), None));
        }
        let mut epoll = EpollDemultiplexer::new()
            .map_err(|source| OpenError::Backend(BackendError::Open { backend, source }))?;
        // For edges: then it need not be read.
        poller.watch_wake(&mut epoll, Trigger::Edge)?;
        let (waiter, registrar) = epoll.into_parts();
        Ok((poller, Waiter::Epoll(waiter), Some(registrar)))
    }

    pub(super) fn backend(&self) -> Backend {
        self.backend
    }

    fn watch_wake(
        &self,
        demultiplexer: &mut dyn EventDemultiplexer,
        trigger: Trigger,
    ) -> Result<(), OpenError> {
        let raw = self.wake.as_fd().as_raw_fd();
        demultiplexer
            .register_event(raw, WAKE, Interest::READ, trigger, Notify::Always)
            .map_err(OpenError::WakeUp)
    }
}

impl Poller for SystemPoller {
    type Waiter = Waiter;
    type Registrar = Registrar;

    fn registers_beside(&self) -> bool {
        self.backend == Backend::Epoll
    }

    fn apply(
        &self,
        registrar: &mut Registrar,
        waiter: Option<&mut Waiter>,
        change: &Change,
    ) -> io::Result<()> {
        match (registrar, waiter) {
            (Some(registrar), _) => registrar.apply(change),
            (None, Some(Waiter::Other(other))) => other.apply(change),
            (None, _) => unreachable!("without a registrar the leader registers"),
        }
    }

    fn is_armed(&self, registrar: &Registrar) -> bool {
        registrar.as_ref().is_some_and(EpollRegistrar::is_armed)
    }

    fn report(&self, registrar: &mut Registrar, batch: &mut Batch) {
        if let Some(registrar) = registrar {
            registrar.report(batch);
        }
    }

    #[inline]
    fn wait(
        &self,
        waiter: &mut Waiter,
        batch: &mut Batch,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        match waiter {
            Waiter::Epoll(epoll) => epoll.wait(batch, timeout),
            Waiter::Other(other) => {
                other.demultiplex(batch, timeout)?;
                self.wake.drain()?;
                Ok(())
            }
        }
    }

    fn wake(&self) {
        // It can't fail: the descriptor is open as long as this, and a full counter wakes too.
        let _ = self.wake.notify();
    }

    fn forget_orphan(
        &self,
        registrar: &mut Registrar,
        waiter: &mut Waiter,
        handle: HandleId,
    ) -> io::Result<bool> {
        if handle == WAKE {
            return Ok(false);
        }
        match (registrar, waiter) {
            (Some(registrar), Waiter::Epoll(epoll)) => {
                let is_rebuilt = registrar.forget_orphan(handle)?;
                if is_rebuilt {
                    epoll.adopt(registrar);
                    registrar.watch_wake(self.wake.as_fd().as_raw_fd(), WAKE)?;
                }
                Ok(is_rebuilt)
            }
            (_, Waiter::Other(other)) => other.forget_orphan(handle),
            (None, Waiter::Epoll(_)) => Ok(false),
        }
    }

    #[inline]
    fn now(&self) -> Instant {
        Instant::from_nanos(clock::monotonic_ns())
    }
}
