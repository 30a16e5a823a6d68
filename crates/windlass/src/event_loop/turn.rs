//! One turn of the loop, and one call of a handler: the driver of the engine's five steps.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Call, Disposition, EventDemultiplexer, EventId, Happened, InFlight, Instant, Readiness,
    RunMode, Settled, Step, StopReason, Turn, TurnEnd, WaitPlan, WatcherCall, WatcherKind,
};

use crate::event_loop::config::{PanicPolicy, PanicReport};
use crate::event_loop::context::Context;
use crate::event_loop::error::RunError;
use crate::event_loop::golden_rule::Origin;
use crate::event_loop::handler::BoxedHandler;
use crate::event_loop::reactor::Reactor;

impl<'l, S: 'l> Reactor<'l, S> {
    /// Prepare, wait, activate, dispatch and settle what is active. Answers why the run is over,
    /// if it is.
    pub(super) fn turn(&mut self, state: &mut S) -> Result<Option<StopReason>, RunError> {
        if self.remote.take_stop() {
            self.engine.exit_loop();
        }
        let has_work = self.remote.has_work();
        if has_work && let Some(event) = self.wake_event {
            // It exists as long as the loop.
            let _ = self.engine.activate_event(event, Readiness::NONE, 1);
        }
        self.run_watchers(WatcherKind::Prepare, state);
        // First, as events whose registration fails become active: the loop must not wait then.
        self.apply_quietly();
        let plan = match self.prepare(has_work) {
            Step::Stop(reason) => return Ok(Some(reason)),
            Step::Wait(plan) => plan,
        };
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
            TurnEnd::Again if self.is_pass_of_posts() => Some(StopReason::Passed),
            TurnEnd::Again => None,
            TurnEnd::Stop(reason) => Some(reason),
        })
    }

    /// Prepares; what other threads have sent already runs before the loop counts as empty.
    fn prepare(&mut self, has_work: bool) -> Step {
        if !has_work {
            return self.engine.prepare();
        }
        self.engine.begin_run(RunMode {
            no_exit_on_empty: true,
            ..self.mode
        });
        let step = self.engine.prepare();
        self.engine.begin_run(self.mode);
        step
    }

    /// Whether this was the pass of a run for one pass, in which only posts ran: the engine counts
    /// their event as the loop's own. As with other events, what they activated still runs, and a
    /// stop that they asked for is the reason of the end.
    fn is_pass_of_posts(&self) -> bool {
        self.mode.once
            && self.post_ran
            && self.engine.counters().active == 0
            && !self.engine.exit_asked()
            && !self.engine.break_asked()
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
        let waited = self.wait_for_all(timeout);
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
        self.golden_rule.begin(self.now);
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
                woke = Some(self.now.unwrap_or_else(|| self.wake_time()));
            }
            self.invoke(call, state);
        }
        if let Some(woke) = woke {
            let end = self.fresh_now();
            self.lag
                .record(end.saturating_since(woke).as_nanos() as u64);
        }
    }

    /// When this turn's handlers began to run, looked up when the first is done: exact if it was
    /// short, else to a tick of the coarse clock.
    #[cold]
    fn wake_time(&mut self) -> Instant {
        let first_ns = self.golden_rule.first_ns();
        Instant::from_nanos(self.fresh_now().as_nanos().saturating_sub(first_ns))
    }

    /// Calls one handler with nothing of the loop borrowed, and settles it.
    #[inline(always)]
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
        let result = self.call(&mut payload, state, event, happened);
        match result {
            Ok(disposition) => self.settle(token, payload, disposition),
            Err(panic) => {
                let origin = self.origins.get(event);
                if payload.survives_panic() {
                    self.settle(token, payload, Disposition::Keep);
                    // What it had not done yet is done in the next turn.
                    self.remote.wake();
                } else {
                    self.engine.abandon(token);
                    self.apply_quietly();
                    self.sync_signals();
                    self.forget_operations(event);
                    // After the kernel has forgotten the descriptor that it owns.
                    drop(payload);
                }
                self.after_panic(origin, panic);
            }
        }
    }

    /// The policy for panics, when their handler is gone.
    #[cold]
    fn after_panic(&mut self, origin: Option<Origin>, panic: Box<dyn Any + Send>) {
        match self.config.panic_policy {
            PanicPolicy::Contain(report) => {
                let origin = origin.unwrap_or_else(|| Origin {
                    label: None,
                    place: Location::caller(),
                });
                report(&PanicReport {
                    origin: &origin,
                    payload: &*panic,
                });
            }
            PanicPolicy::Propagate => {
                self.end_run();
                resume_unwind(panic);
            }
        }
    }

    /// Calls a handler or hook, watched by the golden rule.
    #[inline(always)]
    fn call(
        &mut self,
        handler: &mut BoxedHandler<'l, S>,
        state: &mut S,
        event: EventId,
        happened: Happened,
    ) -> std::thread::Result<Disposition> {
        let me = Arc::as_ptr(&self.remote);
        self.running = Some(event);
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.begin(event);
        }
        // Unwind safety: the handler is dropped after a panic; the loop is consistent at every
        // call out of it; the state is the program's, as with any panic that it catches.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut cx = Context::new(self, event);
            handler.handle_event(state, &mut cx, happened)
        }));
        // The handler would be settled in a loop that it is not of.
        assert!(
            std::ptr::eq(me, Arc::as_ptr(&self.remote)),
            "a handler exchanged its event loop for another (mem::swap through a Context)"
        );
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.end();
        }
        self.running = None;
        self.golden_rule.check(event, &self.origins);
        result
    }

    #[inline(always)]
    fn settle(&mut self, token: InFlight, payload: BoxedHandler<'l, S>, disposition: Disposition) {
        let now = match disposition {
            Disposition::Rearm => self.fresh_now(),
            _ => Instant::ZERO,
        };
        let event = token.event();
        let settled = self.engine.settle(token, payload, disposition, now);
        if disposition != Disposition::Keep {
            self.sync_signals();
        }
        if let Settled::Released(handler) = settled {
            self.apply_quietly();
            self.forget_operations(event);
            // Only now: the kernel has forgotten the descriptor.
            drop(handler);
        }
    }

    #[inline]
    fn run_watchers(&mut self, kind: WatcherKind, state: &mut S) {
        if self.engine.has_watchers() {
            self.run_watchers_of(kind, state);
        }
    }

    fn run_watchers_of(&mut self, kind: WatcherKind, state: &mut S) {
        let mut cursor = self.engine.watch(kind);
        while let Some(WatcherCall { id, mut payload }) = self.engine.next_watcher(&mut cursor) {
            let Some(event) = payload.hook_id() else {
                debug_assert!(false, "a watcher is a hook");
                continue;
            };
            let happened = Happened::nothing(event);
            self.golden_rule.begin(None);
            self.running_hook = Some(id);
            let result = self.call(&mut payload, state, event, happened);
            self.running_hook = None;
            match result {
                Ok(disposition) => {
                    if let Some(hook) = self.engine.settle_watcher(id, payload, disposition) {
                        self.forget_hook(&hook);
                    }
                }
                Err(panic) => {
                    self.engine.abandon_watcher(id);
                    drop(payload);
                    let origin = self.origins.get(event);
                    self.origins.remove_hook(event);
                    self.after_panic(origin, panic);
                }
            }
        }
    }
}
