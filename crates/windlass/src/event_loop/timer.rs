//! Timers: one-shot, periodic, and armed by hand.

use std::panic::Location;
use std::time::Duration;

use windlass_core::{
    CatchUp, CommonTimeout, CommonTimeoutError, Disposition, EventError, EventId, EventSpec,
    Happened, Instant, Lifetime, Source, Timeout,
};

use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterError;
use crate::event_loop::golden_rule::Origin;
use crate::event_loop::handler::BoxedHandler;
use crate::event_loop::reactor::Reactor;

impl<'l, S: 'l> Reactor<'l, S> {
    /// Calls `run` once, not earlier than `delay` from now; then the event is gone.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn after<F>(&mut self, delay: Duration, run: F) -> Result<EventId, RegisterError>
    where
        F: FnOnce(&mut S, &mut Context<'_, 'l, S>) + 'l,
    {
        let mut run = Some(run);
        let handler = Box::new(
            move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| {
                if let Some(run) = run.take() {
                    run(state, cx);
                }
                Disposition::Remove
            },
        );
        let spec = EventSpec {
            lifetime: Lifetime::OneShot,
            timeout: Some(Timeout::After(delay)),
            ..EventSpec::new(Source::Timer)
        };
        self.insert_timer(spec, handler, Location::caller())
    }

    /// Calls `run` each `period`, the first time one period from now.
    ///
    /// Ticks that were missed, because a handler ran long, are left out: the next one is on the
    /// grid of the first. [`every_with`](Self::every_with) has the other policies.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn every<F>(&mut self, period: Duration, run: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        self.every_with(period, CatchUp::Skip, run)
    }

    /// Calls `run` each `period`; `catch_up` says what becomes of ticks that were missed.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn every_with<F>(
        &mut self,
        period: Duration,
        catch_up: CatchUp,
        mut run: F,
    ) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        let handler =
            Box::new(move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| run(state, cx));
        let timeout = Some(Timeout::After(period));
        let spec = EventSpec {
            timeout,
            catch_up,
            ..EventSpec::new(Source::Timer)
        };
        self.insert_timer(spec, handler, Location::caller())
    }

    /// Makes a timer that is not armed: [`arm_after`](Self::arm_after) and
    /// [`arm_at`](Self::arm_at) arm it, as often as wanted, for one deadline each.
    ///
    /// # Errors
    ///
    /// If the engine is full.
    #[track_caller]
    pub fn timer<F>(&mut self, mut run: F) -> Result<EventId, RegisterError>
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>) -> Disposition + 'l,
    {
        let handler =
            Box::new(move |state: &mut S, cx: &mut Context<'_, 'l, S>, _: Happened| run(state, cx));
        let spec = EventSpec::new(Source::Timer);
        self.insert_timer(spec, handler, Location::caller())
    }

    /// Arms an event for not earlier than `delay` from now, in place of what it was armed for.
    /// Reads the clock; see [`arm_at`](Self::arm_at).
    ///
    /// # Errors
    ///
    /// If there is no such event.
    pub fn arm_after(&mut self, event: EventId, delay: Duration) -> Result<(), EventError> {
        let deadline = self.fresh_now() + delay;
        self.engine.arm(event, deadline)
    }

    /// Arms an event for `deadline`. With [`now`](Self::now) plus a delay it costs no clock
    /// reading, and comes early by as much as this turn is old.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    #[inline]
    pub fn arm_at(&mut self, event: EventId, deadline: Instant) -> Result<(), EventError> {
        self.engine.arm(event, deadline)
    }

    /// Disarms an event's timer; answers whether it was armed.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    #[inline]
    pub fn disarm(&mut self, event: EventId) -> Result<bool, EventError> {
        self.engine.disarm(event)
    }

    /// Sets an event's timeout, and starts it anew if the event is enabled. The timeout of an event
    /// that stays restarts whenever its handler runs.
    ///
    /// # Errors
    ///
    /// If there is no such event.
    pub fn set_timeout(
        &mut self,
        event: EventId,
        timeout: Option<Timeout>,
    ) -> Result<(), EventError> {
        let now = self.fresh_now();
        self.engine.set_timeout(event, timeout, now)
    }

    /// Makes a length of time a common timeout ([`Timeout::Common`]): many events that share it
    /// cost O(1) each, with no sorting. Equal lengths give the same one.
    ///
    /// # Errors
    ///
    /// If 256 lengths are common already.
    pub fn common_timeout(
        &mut self,
        length: Duration,
    ) -> Result<CommonTimeout, CommonTimeoutError> {
        self.engine.common_timeout(length)
    }

    /// When an event's timer is due, if it is armed.
    #[must_use]
    pub fn deadline(&self, event: EventId) -> Option<Instant> {
        self.engine.deadline(event)
    }

    fn insert_timer(
        &mut self,
        spec: EventSpec,
        handler: BoxedHandler<'l, S>,
        place: &'static Location<'static>,
    ) -> Result<EventId, RegisterError> {
        let origin = Origin { label: None, place };
        let event = self
            .insert(spec, handler, origin)
            .map_err(|error| error.map(drop))?;
        if spec.timeout.is_some() {
            let now = self.fresh_now();
            // It exists, as it was just inserted.
            let _ = self.engine.enable(event, now);
        }
        Ok(event)
    }
}
