//! What the engine is to do, said plainly: lists that are scanned, nothing cached, nothing linked.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::*;

/// One event as the model knows it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) serial: u32,
    pub(crate) id: EventId,
    pub(crate) source: Source,
    /// Which registration of its handle number.
    pub(crate) instance: Option<u32>,
    pub(crate) one_shot: bool,
    pub(crate) priority: u8,
    pub(crate) timeout: Option<Length>,
    pub(crate) catch_up: CatchUp,
    pub(crate) internal: bool,
    pub(crate) pending: bool,
    pub(crate) in_flight: bool,
    pub(crate) deferred: bool,
    /// What happened since its handler was last called, if it is active.
    pub(crate) active: Option<What>,
    pub(crate) active_since_turn: u64,
    pub(crate) deadline: Option<(u64, u64)>,
    /// Of an edge-triggered handle: what it is ready for and this event was not told yet.
    pub(crate) owed: Readiness,
}

/// A timeout's length, and which common timeout it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    pub(crate) length: Duration,
    pub(crate) common: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct What {
    pub(crate) readiness: Readiness,
    pub(crate) timed_out: Option<u64>,
    pub(crate) signalled: bool,
    pub(crate) user: bool,
    pub(crate) count: u32,
}

/// A registration: from the first event of a handle number until its last is gone.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) raw: RawHandle,
    pub(crate) instance: u32,
    pub(crate) id: HandleId,
    pub(crate) in_flight: u32,
    /// A registration that failed and was not made since.
    pub(crate) failed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) config: EngineConfig,
    pub(crate) mode: RunMode,
    /// In order of insertion.
    pub(crate) events: Vec<Event>,
    pub(crate) handles: Vec<Handle>,
    /// Serials of what may be dispatched, in order of activation.
    pub(crate) queue: Vec<u32>,
    pub(crate) turn: u64,
    arm_order: u64,
    common_last: BTreeMap<usize, u64>,
    waited_turns: BTreeMap<u8, u32>,
    pub(crate) break_asked: bool,
    pub(crate) exit_asked: bool,
    pub(crate) continue_asked: bool,
    pub(crate) exit_at: Option<u64>,
    pub(crate) holds: usize,
    pub(crate) in_flight: usize,
    pub(crate) dispatched: u64,
    pub(crate) stale_reports: u64,
    pub(crate) expired: u64,
}

/// The turn as the model sees it.
#[derive(Debug)]
pub(crate) struct ModelTurn {
    pub(crate) priority: Option<u8>,
    pub(crate) stale: Option<HandleId>,
    started: u64,
    callbacks: u32,
    counted: u32,
}

/// What a handler that runs was called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) serial: u32,
    pub(crate) id: EventId,
    pub(crate) instance: Option<u32>,
    pub(crate) what: What,
}

pub(crate) fn told(readiness: Readiness, interest: Interest) -> Readiness {
    let mut told = Readiness::NONE;
    if interest.is_none() {
        return told;
    }
    let broken = readiness.contains(Readiness::HANG_UP) || readiness.contains(Readiness::ERROR);
    for (wish, answer) in [
        (Interest::READ, Readiness::READ),
        (Interest::WRITE, Readiness::WRITE),
        (Interest::PEER_CLOSED, Readiness::PEER_CLOSED),
        (Interest::PRIORITY, Readiness::PRIORITY),
    ] {
        let implied = broken && (wish == Interest::READ || wish == Interest::WRITE);
        if interest.contains(wish) && (readiness.contains(answer) || implied) {
            told |= answer;
        }
    }
    for unasked in [Readiness::HANG_UP, Readiness::ERROR] {
        if readiness.contains(unasked) {
            told |= unasked;
        }
    }
    told
}

impl Event {
    pub(crate) fn interest(&self) -> Interest {
        match self.source {
            Source::Handle { interest, .. } => interest,
            _ => Interest::NONE,
        }
    }

    pub(crate) fn is_edge(&self) -> bool {
        matches!(
            self.source,
            Source::Handle {
                trigger: Trigger::Edge,
                ..
            }
        )
    }

    pub(crate) fn is_timer(&self) -> bool {
        self.source == Source::Timer
    }
}

impl Model {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    pub(crate) fn find(&self, serial: u32) -> Option<usize> {
        self.events.iter().position(|event| event.serial == serial)
    }

    fn handle(&mut self, instance: u32) -> Option<&mut Handle> {
        self.handles
            .iter_mut()
            .find(|handle| handle.instance == instance)
    }

    pub(crate) fn of_instance(&self, instance: u32) -> Vec<usize> {
        (0..self.events.len())
            .filter(|&at| self.events[at].instance == Some(instance))
            .collect()
    }

    pub(crate) fn merged(&self, instance: u32) -> Interest {
        let mut merged = Interest::NONE;
        for at in self.of_instance(instance) {
            if self.events[at].pending {
                merged |= self.events[at].interest();
            }
        }
        merged
    }

    // What a program does.

    pub(crate) fn enable(&mut self, at: usize, now: u64, ready: Readiness) {
        let event = &self.events[at];
        if event.is_timer() && event.timeout.is_none() {
            return;
        }
        self.set_pending(at, ready);
        if let Some(length) = self.events[at].timeout {
            self.withdraw_timeout(at);
            self.start_timeout(at, length, now);
        }
    }

    pub(crate) fn set_pending(&mut self, at: usize, ready: Readiness) {
        let event = &mut self.events[at];
        if !event.pending {
            event.pending = true;
            if event.is_edge() {
                event.owed = told(ready, event.interest()) & ready;
            }
        }
    }

    pub(crate) fn disable(&mut self, at: usize) {
        self.deactivate(at);
        let event = &mut self.events[at];
        event.pending = false;
        event.deadline = None;
        event.owed = Readiness::NONE;
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.disable(at);
        let event = self.events.remove(at);
        if let Some(instance) = event.instance
            && self.of_instance(instance).is_empty()
        {
            self.handles.retain(|handle| handle.instance != instance);
        }
    }

    pub(crate) fn arm(&mut self, at: usize, deadline: u64, ready: Readiness) {
        self.withdraw_timeout(at);
        self.set_pending(at, ready);
        self.arm_order += 1;
        self.events[at].deadline = Some((deadline, self.arm_order));
    }

    pub(crate) fn disarm(&mut self, at: usize) -> bool {
        let was = self.events[at].deadline.take().is_some();
        self.withdraw_timeout(at);
        if self.events[at].is_timer() {
            self.disable(at);
        }
        was
    }

    pub(crate) fn set_timeout(&mut self, at: usize, timeout: Option<Length>, now: u64) {
        self.events[at].timeout = timeout;
        if !self.events[at].pending {
            return;
        }
        self.withdraw_timeout(at);
        match timeout {
            Some(length) => self.start_timeout(at, length, now),
            None if self.events[at].is_timer() => self.disable(at),
            None => self.events[at].deadline = None,
        }
    }

    pub(crate) fn set_interest(&mut self, at: usize, wish: Interest, ready: Readiness) {
        let event = &mut self.events[at];
        let Source::Handle { interest, .. } = &mut event.source else {
            panic!("not a handle's event");
        };
        if *interest == wish {
            return;
        }
        *interest = wish;
        if event.is_edge() && event.pending {
            event.owed = told(ready, wish) & ready;
        }
        if let Some(what) = &mut event.active
            && !what.user
        {
            what.readiness = what.readiness & told(what.readiness, wish);
            self.deactivate_if_nothing(at);
        }
    }

    pub(crate) fn activate_event(&mut self, at: usize, readiness: Readiness, count: u32) {
        self.happens(at, |what| {
            what.readiness |= readiness;
            what.user = true;
            what.count = what.count.saturating_add(count);
        });
    }

    // What the engine does with it.

    fn start_timeout(&mut self, at: usize, length: Length, now: u64) {
        let ns = u64::try_from(length.length.as_nanos()).unwrap_or(u64::MAX);
        let mut deadline = now.saturating_add(ns);
        if let Some(common) = length.common {
            let last = self.common_last.entry(common).or_default();
            deadline = deadline.max(*last);
            *last = deadline;
        }
        self.arm_order += 1;
        self.events[at].deadline = Some((deadline, self.arm_order));
    }

    fn happens(&mut self, at: usize, what: impl FnOnce(&mut What)) {
        let turn = self.turn;
        let event = &mut self.events[at];
        let was_active = event.active.is_some();
        what(event.active.get_or_insert_default());
        if was_active {
            return;
        }
        event.active_since_turn = turn;
        if !event.in_flight {
            self.queue.push(event.serial);
        }
    }

    fn deactivate(&mut self, at: usize) {
        let event = &mut self.events[at];
        event.active = None;
        event.deferred = false;
        let serial = event.serial;
        self.queue.retain(|&queued| queued != serial);
    }

    fn deactivate_if_nothing(&mut self, at: usize) {
        let nothing = self.events[at].active.is_some_and(|what| {
            what.readiness.is_none() && what.timed_out.is_none() && !what.signalled && !what.user
        });
        if nothing {
            self.deactivate(at);
        }
    }

    fn withdraw_timeout(&mut self, at: usize) {
        if let Some(what) = &mut self.events[at].active
            && what.timed_out.take().is_some()
        {
            self.deactivate_if_nothing(at);
        }
    }

    /// A report by handle id; whether the registration exists.
    pub(crate) fn report(&mut self, id: HandleId, readiness: Readiness) -> bool {
        let Some(handle) = self.handles.iter().find(|handle| handle.id == id) else {
            return false;
        };
        for at in self.of_instance(handle.instance) {
            let told = told(readiness, self.events[at].interest());
            if self.events[at].pending && !told.is_none() {
                self.happens(at, |what| what.readiness |= told);
            }
        }
        true
    }

    pub(crate) fn activate(
        &mut self,
        reports: &[Report],
        signals: &[(i32, u32)],
        now: u64,
    ) -> ModelTurn {
        let mut stale = None;
        for report in reports {
            if !self.report(report.handle, report.readiness) {
                self.stale_reports += 1;
                stale = Some(report.handle);
            }
        }
        for &(number, count) in signals {
            for at in 0..self.events.len() {
                if self.events[at].source == Source::Signal(number) && self.events[at].pending {
                    self.happens(at, |what| {
                        what.signalled = true;
                        what.count = what.count.saturating_add(count);
                    });
                }
            }
        }
        let mut due: Vec<(u64, u64, usize)> = (0..self.events.len())
            .filter_map(|at| self.events[at].deadline.map(|(ns, order)| (ns, order, at)))
            .filter(|&(ns, ..)| ns <= now)
            .collect();
        due.sort_unstable();
        for (ns, _, at) in due {
            self.expired += 1;
            self.events[at].deadline = None;
            self.happens(at, |what| what.timed_out = Some(ns));
        }
        if self.exit_at.is_some_and(|at| at <= now) {
            self.exit_at = None;
            self.exit_asked = true;
        }
        self.turn += 1;
        let priority = self.choose();
        ModelTurn {
            priority,
            stale,
            started: now,
            callbacks: 0,
            counted: 0,
        }
    }

    fn choose(&mut self) -> Option<u8> {
        let mut waiting: Vec<u8> = self
            .queue
            .iter()
            .map(|&serial| self.events[self.find(serial).unwrap()].priority)
            .collect();
        waiting.sort_unstable();
        waiting.dedup();
        let urgent = *waiting.first()?;
        let Some(limit) = self.config.starvation_limit_turns else {
            return Some(urgent);
        };
        self.waited_turns
            .retain(|priority, _| waiting.contains(priority));
        for &priority in &waiting {
            *self.waited_turns.entry(priority).or_default() += 1;
        }
        let longest = *self.waited_turns.values().max().unwrap();
        let chosen = if longest > limit {
            *self
                .waited_turns
                .iter()
                .find(|&(_, &turns)| turns == longest)
                .unwrap()
                .0
        } else {
            urgent
        };
        self.waited_turns.remove(&chosen);
        Some(chosen)
    }

    pub(crate) fn dispatch(&mut self, turn: &mut ModelTurn, now: u64) -> Option<Called> {
        let priority = turn.priority?;
        loop {
            if self.break_asked || self.continue_asked {
                return None;
            }
            let place = self
                .queue
                .iter()
                .position(|&serial| self.events[self.find(serial).unwrap()].priority == priority)?;
            let serial = self.queue[place];
            let at = self.find(serial).unwrap();
            if self.config.fresh_activations == FreshActivations::NextTurn
                && self.events[at].active_since_turn == self.turn
            {
                return None;
            }
            if let Some(limit) = self.config.dispatch_limit
                && turn.callbacks > 0
                && priority >= limit.from_priority
            {
                let late = limit.interval.is_some_and(|interval| {
                    u128::from(now.saturating_sub(turn.started)) >= interval.as_nanos()
                });
                if late || limit.callbacks_max.is_some_and(|max| turn.callbacks >= max) {
                    return None;
                }
            }
            self.queue.remove(place);
            let instance = self.events[at].instance;
            if let Some(instance) = instance
                && self.config.handle_sharing == HandleSharing::Exclusive
                && self.handle(instance).unwrap().in_flight > 0
            {
                self.events[at].deferred = true;
                continue;
            }
            turn.callbacks += 1;
            turn.counted += u32::from(!self.events[at].internal);
            return Some(self.call(at, now));
        }
    }

    fn call(&mut self, at: usize, now: u64) -> Called {
        self.in_flight += 1;
        self.dispatched += 1;
        let event = &mut self.events[at];
        event.in_flight = true;
        let what = event.active.take().unwrap();
        event.owed = event.owed.without(what.readiness);
        let called = Called {
            serial: event.serial,
            id: event.id,
            instance: event.instance,
            what,
        };
        if let Some(instance) = called.instance {
            self.handle(instance).unwrap().in_flight += 1;
        }
        let event = &mut self.events[at];
        if !event.pending {
            return called;
        }
        if event.one_shot {
            event.pending = false;
            event.deadline = None;
            event.owed = Readiness::NONE;
        } else if let Some(length) = event.timeout {
            match (what.timed_out, length.common) {
                (Some(reached), None) => {
                    let next = next_on_grid(event.catch_up, reached, length.length, now);
                    self.arm_order += 1;
                    self.events[at].deadline = Some((next, self.arm_order));
                }
                _ => self.start_timeout(at, length, now),
            }
        } else if event.is_timer() && what.timed_out.is_some() && event.deadline.is_none() {
            event.pending = false;
        }
        called
    }

    pub(crate) fn settle(
        &mut self,
        called: Called,
        disposition: Option<Disposition>,
        now: u64,
        ready: Readiness,
    ) {
        self.in_flight -= 1;
        let turn = self.turn;
        if let Some(instance) = called.instance
            && let Some(handle) = self.handle(instance)
        {
            handle.in_flight -= 1;
            if handle.in_flight == 0 {
                for at in self.of_instance(instance) {
                    if core::mem::take(&mut self.events[at].deferred) {
                        self.events[at].active_since_turn = turn;
                        self.queue.push(self.events[at].serial);
                    }
                }
            }
        }
        let Some(at) = self.find(called.serial) else {
            return;
        };
        self.events[at].in_flight = false;
        if self.events[at].active.is_some() {
            self.events[at].active_since_turn = turn;
            self.queue.push(called.serial);
        }
        match disposition {
            Some(Disposition::Keep) => {}
            Some(Disposition::Rearm) => self.enable(at, now, ready),
            Some(Disposition::Disable) => self.disable(at),
            Some(Disposition::Remove) | None => self.remove(at),
        }
    }

    // How a run goes.

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let timers = self
            .events
            .iter()
            .filter_map(|event| event.deadline.map(|(ns, _)| ns));
        timers.chain(self.exit_at).min()
    }

    fn is_empty(&self) -> bool {
        let busy = |event: &Event| !event.internal && (event.pending || event.active.is_some());
        !self.events.iter().any(busy) && self.holds == 0 && self.in_flight == 0
    }

    fn is_over(&self) -> bool {
        self.is_empty() && !self.mode.no_exit_on_empty && self.exit_at.is_none()
    }

    pub(crate) fn prepare(&mut self) -> Result<Wait, StopReason> {
        self.continue_asked = false;
        if core::mem::take(&mut self.break_asked) {
            return Err(StopReason::Break);
        }
        if core::mem::take(&mut self.exit_asked) {
            return Err(StopReason::Exit);
        }
        if self.is_over() {
            return Err(StopReason::Empty);
        }
        Ok(if self.mode.nonblock || !self.queue.is_empty() {
            Wait::Poll
        } else {
            self.next_deadline()
                .map_or(Wait::Forever, |ns| Wait::Until(Instant::from_nanos(ns)))
        })
    }

    pub(crate) fn wake_needed(&self, waiting: Wait) -> bool {
        if waiting == Wait::Poll {
            return false;
        }
        if self.break_asked || self.exit_asked || !self.queue.is_empty() || self.is_over() {
            return true;
        }
        match (waiting, self.next_deadline()) {
            (_, None) => false,
            (Wait::Until(end), Some(next)) => next < end.as_nanos(),
            (_, Some(_)) => true,
        }
    }

    pub(crate) fn finish(&self, turn: &ModelTurn) -> Option<StopReason> {
        if self.break_asked || self.exit_asked {
            return None;
        }
        let passed = match turn.priority {
            Some(_) => self.mode.once && self.queue.is_empty() && turn.counted > 0,
            None => self.mode.nonblock,
        };
        passed.then_some(StopReason::Passed)
    }

    /// What a handle is ready for changed: edges are owed to those who listen.
    pub(crate) fn readiness_changed(
        &mut self,
        raw: RawHandle,
        before: Readiness,
        after: Readiness,
    ) {
        for event in &mut self.events {
            if matches!(event.source, Source::Handle { raw: r, trigger: Trigger::Edge, .. } if r == raw)
                && event.pending
            {
                let rising = after.without(before);
                event.owed |= told(rising, event.interest()) & rising;
                event.owed = event.owed & after;
            }
        }
    }
}

fn next_on_grid(policy: CatchUp, reached: u64, length: Duration, now: u64) -> u64 {
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let on_grid = reached.saturating_add(length);
    match policy {
        CatchUp::Burst => on_grid,
        CatchUp::Delay => now.saturating_add(length),
        CatchUp::Steady if on_grid < now => now.saturating_add(length),
        CatchUp::Steady => on_grid,
        CatchUp::Skip => {
            let length = length.max(1);
            // The first point of the grid after now.
            let steps = (now - reached) / length + 1;
            reached.saturating_add(steps.saturating_mul(length))
        }
    }
}
