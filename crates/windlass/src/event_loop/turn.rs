//! One turn of the loop, and one call of a handler: the driver of the engine's five steps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use windlass_core::{
    Call, Disposition, EventDemultiplexer, EventId, Happened, InFlight, Instant, Readiness,
    RunMode, Settled, Step, StopReason, Turn, TurnEnd, WaitPlan, WatcherCall, WatcherKind,
};

use crate::event_loop::config::{PanicPolicy, PanicReport};
use crate::event_loop::context::Context;
use crate::event_loop::error::RunError;
use crate::event_loop::handler::BoxedHandler;
use crate::event_loop::reactor::Reactor;

impl<'l, S: 'l> Reactor<'l, S> {
    pub(super) fn begin_run(&mut self, mode: RunMode) {
        self.mode = mode;
        self.engine.begin_run(mode);
    }

    /// Prepare, wait, activate, dispatch and settle what is active. Answers why the run is over,
    /// if it is.
    pub(super) fn turn(&mut self, state: &mut S) -> Result<Option<StopReason>, RunError> {
        self.post_ran = false;
        if self.remote.take_stop() {
            self.engine.exit_loop();
        }
        if self.remote.has_work()
            && let Some(event) = self.wake_event
        {
            // It exists as long as the loop.
            let _ = self.engine.activate_event(event, Readiness::NONE, 1);
        }
        self.run_watchers(WatcherKind::Prepare, state);
        let plan = match self.engine.prepare() {
            Step::Stop(reason) => return Ok(Some(reason)),
            Step::Wait(plan) => plan,
        };
        self.apply_quietly();
        self.wait(&plan)?;
        self.gather_signals();
        let now = if self.engine.has_deadlines() {
            self.now()
        } else {
            Instant::ZERO
        };
        let mut batch = std::mem::take(&mut self.batch);
        let mut turn = self.engine.activate(plan.waited(), &mut batch, now);
        self.batch = batch;
        if turn.stale().is_some() {
            self.clear_orphans(&turn)?;
        }
        self.run_watchers(WatcherKind::Check, state);
        self.dispatch_all(&mut turn, state);
        Ok(match self.engine.finish(turn) {
            TurnEnd::Again if self.mode.once && self.post_ran => Some(StopReason::Passed),
            TurnEnd::Again => None,
            TurnEnd::Stop(reason) => Some(reason),
        })
    }

    fn wait(&mut self, plan: &WaitPlan) -> Result<(), RunError> {
        let mut timeout = plan.timeout(match plan.wait() {
            windlass_core::Wait::Until(_) => self.fresh_now(),
            _ => Instant::ZERO,
        });
        let may_sleep = timeout != Some(Duration::ZERO);
        if may_sleep && !self.remote.fall_asleep() {
            timeout = Some(Duration::ZERO);
        }
        let waited = self.demultiplexer.demultiplex(&mut self.batch, timeout);
        if may_sleep {
            self.remote.wake_up();
        }
        self.now = None;
        waited.map_err(|source| {
            self.batch.clear();
            RunError::Wait {
                backend: self.demultiplexer.name(),
                source,
            }
        })
    }

    /// The kernel reported something that was closed while a duplicate of it lives.
    #[cold]
    fn clear_orphans(&mut self, turn: &Turn) -> Result<(), RunError> {
        let Some(handle) = turn.stale() else {
            return Ok(());
        };
        let rebuilt =
            self.demultiplexer
                .forget_orphan(handle)
                .map_err(|source| RunError::Rebuild {
                    backend: self.demultiplexer.name(),
                    source,
                })?;
        if rebuilt {
            self.engine.mark_all_unapplied();
            self.apply_quietly();
        }
        Ok(())
    }

    fn dispatch_all(&mut self, turn: &mut Turn, state: &mut S) {
        let mut calls = 0_u32;
        self.golden_rule.begin();
        let mut woke = None;
        loop {
            let now = if self.engine.needs_time(turn) {
                self.fresh_now()
            } else {
                Instant::ZERO
            };
            let Some(call) = self.engine.dispatch(turn, now) else {
                break;
            };
            calls += 1;
            if calls == 2 {
                // Only a second handler of a turn has waited for another.
                woke = Some(self.now());
            }
            self.invoke(call, state);
        }
        if let Some(woke) = woke {
            let end = self.fresh_now();
            self.lag
                .record(end.saturating_since(woke).as_nanos() as u64);
        }
    }

    /// Calls one handler with nothing of the loop borrowed, and settles it.
    fn invoke(&mut self, call: Call<BoxedHandler<'l, S>>, state: &mut S) {
        let Call {
            token,
            mut payload,
            happened,
        } = call;
        let event = token.event();
        if let Some(deadline) = happened.deadline {
            let late = self.now().saturating_since(deadline);
            self.lag
                .record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
        }
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.begin(event);
        }
        let result = self.call(&mut payload, state, event, happened);
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.end();
        }
        self.golden_rule.check(event, &self.origins);
        match result {
            Ok(disposition) => self.settle(token, payload, disposition),
            Err(panic) => {
                let origin = self.origins.get(event);
                if payload.survives_panic() {
                    self.settle(token, payload, Disposition::Keep);
                    // What it had not done yet is done in the next turn.
                    let _ = self.engine.activate_event(event, Readiness::NONE, 1);
                } else {
                    self.engine.abandon(token);
                    self.apply_quietly();
                    self.sync_signals();
                    // After the kernel has forgotten the descriptor that it owns.
                    drop(payload);
                }
                match (self.config.panic_policy, origin) {
                    (PanicPolicy::Contain(report), Some(origin)) => {
                        report(&PanicReport {
                            origin: &origin,
                            payload: &*panic,
                        });
                    }
                    _ => resume_unwind(panic),
                }
            }
        }
    }

    #[inline]
    fn call(
        &mut self,
        handler: &mut BoxedHandler<'l, S>,
        state: &mut S,
        event: EventId,
        happened: Happened,
    ) -> std::thread::Result<Disposition> {
        // Unwind safety: the handler is dropped after a panic; the loop is consistent at every
        // call out of it; the state is the program's, as with any panic that it catches.
        catch_unwind(AssertUnwindSafe(|| {
            let mut cx = Context::new(self, event);
            handler.handle_event(state, &mut cx, happened)
        }))
    }

    #[inline]
    fn settle(&mut self, token: InFlight, payload: BoxedHandler<'l, S>, disposition: Disposition) {
        let now = match disposition {
            Disposition::Rearm => self.fresh_now(),
            _ => Instant::ZERO,
        };
        let settled = self.engine.settle(token, payload, disposition, now);
        if disposition != Disposition::Keep {
            self.sync_signals();
        }
        if let Settled::Released(handler) = settled {
            self.apply_quietly();
            // Only now: the kernel has forgotten the descriptor.
            drop(handler);
        }
    }

    fn run_watchers(&mut self, kind: WatcherKind, state: &mut S) {
        let mut cursor = self.engine.watch(kind);
        while let Some(WatcherCall { id, mut payload }) = self.engine.next_watcher(&mut cursor) {
            // A hook has no event of its own; it is told the loop's.
            let Some(event) = self.wake_event else { return };
            let happened = Happened::nothing(event);
            match self.call(&mut payload, state, event, happened) {
                Ok(disposition) => drop(self.engine.settle_watcher(id, payload, disposition)),
                Err(panic) => {
                    self.engine.abandon_watcher(id);
                    drop(payload);
                    match (self.config.panic_policy, self.origins.get(event)) {
                        (PanicPolicy::Contain(report), Some(origin)) => {
                            report(&PanicReport {
                                origin: &origin,
                                payload: &*panic,
                            });
                        }
                        _ => resume_unwind(panic),
                    }
                }
            }
        }
    }
}
