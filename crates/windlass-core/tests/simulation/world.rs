//! The engine, its model and the simulated demultiplexer, driven turn by turn side by side.

use std::collections::HashSet;
use std::time::Duration;

use windlass_core::sim::{SimControl, SimDemultiplexer};
use windlass_core::*;

use crate::model::{Called, Event, Model};

/// SplitMix64: small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

pub(crate) const HANDLES: u64 = 5;
pub(crate) const EVENTS_MAX: usize = 20;
const IN_FLIGHT_MAX: usize = 3;
const WAIT_MAX: Duration = Duration::from_secs(3_600);
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const COMMON: [u64; 2] = [20 * MS, 35 * MS];

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) verbose: bool,
    pub(crate) engine: Engine<u32>,
    pub(crate) model: Model,
    pub(crate) demultiplexer: SimDemultiplexer,
    pub(crate) control: SimControl,
    pub(crate) common: [CommonTimeout; 2],
    /// What each handle number is ready for.
    pub(crate) ready: [Readiness; HANDLES as usize],
    /// Level or edge, by number, so that most insertions fit.
    pub(crate) triggers: [Trigger; HANDLES as usize],
    pub(crate) next_serial: u32,
    pub(crate) next_instance: u32,
    /// Ids of what is gone.
    pub(crate) gone: Vec<EventId>,
    pub(crate) gone_handles: Vec<HandleId>,
    pub(crate) handle_ids: HashSet<HandleId>,
    pub(crate) in_flight: Vec<(InFlight, u32, Called)>,
    pub(crate) signals: Vec<(i32, u32)>,
    /// Handlers and programs do nothing more.
    pub(crate) quiet: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "simulation failed: seed {}, turn {} (replay: WINDLASS_SEED={})",
                self.seed, self.model.turn, self.seed
            );
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool, random: &mut Random) -> Self {
        let config = EngineConfig {
            priorities: 1 + random.below(4) as u16,
            dispatch_limit: random.one_in(3).then(|| DispatchLimit {
                interval: random
                    .one_in(2)
                    .then(|| Duration::from_millis(random.below(5))),
                callbacks_max: random.one_in(2).then(|| random.below(4) as u32),
                from_priority: random.below(3) as u8,
            }),
            starvation_limit_turns: random.one_in(3).then(|| random.below(4) as u32),
            fresh_activations: random
                .pick(&[FreshActivations::NextTurn, FreshActivations::SameTurn]),
            handle_sharing: random.pick(&[HandleSharing::Exclusive, HandleSharing::Shared]),
            notify: random.pick(&[Notify::Always, Notify::Once]),
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config);
        let (demultiplexer, control) = SimDemultiplexer::new();
        let common = COMMON.map(|ns| {
            engine
                .common_timeout(Duration::from_nanos(ns))
                .expect("two lengths")
        });
        let triggers = core::array::from_fn(|_| random.pick(&[Trigger::Level, Trigger::Edge]));
        let mut world = Self {
            seed,
            verbose,
            engine,
            model: Model::new(config),
            demultiplexer,
            control,
            common,
            ready: [Readiness::NONE; HANDLES as usize],
            triggers,
            next_serial: 0,
            next_instance: 0,
            gone: Vec::new(),
            gone_handles: Vec::new(),
            handle_ids: HashSet::new(),
            in_flight: Vec::new(),
            signals: Vec::new(),
            quiet: false,
        };
        world.log(|| format!("{config:?}"));
        world.begin_run(random);
        world
    }

    pub(crate) fn calls(&self) -> u64 {
        self.model.dispatched
    }

    pub(crate) fn log(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>4} {} {}", self.model.turn, self.control.now(), what());
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.control.now()
    }

    pub(crate) fn ns(&self) -> u64 {
        self.control.now().as_nanos()
    }

    pub(crate) fn ready_of(&self, at: usize) -> Readiness {
        match self.model.events[at].source {
            Source::Handle { raw, .. } => self.ready[raw as usize],
            _ => Readiness::NONE,
        }
    }

    fn begin_run(&mut self, random: &mut Random) {
        let mode = RunMode {
            once: random.one_in(4),
            nonblock: random.one_in(4),
            no_exit_on_empty: random.one_in(4),
        };
        if random.one_in(3) {
            self.engine.forget_stops();
            self.model.break_asked = false;
            self.model.exit_asked = false;
            self.model.continue_asked = false;
        }
        self.engine.begin_run(mode);
        self.model.mode = mode;
        self.log(|| format!("begin {mode:?}"));
    }

    /// One turn, with whatever the program does before, during and after it.
    pub(crate) fn turn(&mut self, random: &mut Random) {
        for _ in 0..random.below(6) {
            self.act(random);
        }
        self.apply_changes();
        let expected = self.model.prepare();
        let plan = match self.engine.prepare() {
            Step::Wait(plan) => plan,
            Step::Stop(reason) => {
                assert_eq!(Err(reason), expected);
                self.log(|| format!("stop {reason:?}"));
                return self.begin_run(random);
            }
        };
        assert_eq!(Ok(plan.wait()), expected);
        assert!(
            !self.engine.wake_needed(plan.wait()),
            "the plan is out of date"
        );
        self.check();
        // Other threads, while this one waits.
        for _ in 0..random.below(8).saturating_sub(5) {
            self.act(random);
            let expected = self.model.wake_needed(plan.wait());
            let changed = plan.wait() != Wait::Poll && self.engine.has_changes();
            assert_eq!(self.engine.wake_needed(plan.wait()), expected || changed);
            self.apply_changes();
        }
        let mut batch = Batch::new();
        // Some deadlines never come.
        let timeout = plan
            .timeout(self.now())
            .map(|timeout| timeout.min(WAIT_MAX));
        self.demultiplexer
            .demultiplex(&mut batch, timeout)
            .expect("simulated");
        self.disturb(&mut batch, random);
        let reports = batch.reports().to_vec();
        let signals = core::mem::take(&mut self.signals);
        for &(number, count) in &signals {
            batch.push_signal(number, count);
        }
        self.log(|| format!("reports {reports:?} signals {signals:?}"));
        let mut model_turn = self.model.activate(&reports, &signals, self.ns());
        let mut turn = self
            .engine
            .activate(plan.waited(), &mut batch, self.control.now());
        assert!(batch.is_empty());
        assert_eq!(turn.priority(), model_turn.priority);
        assert_eq!(turn.stale(), model_turn.stale);
        self.check();
        loop {
            let expected = self.model.dispatch(&mut model_turn, self.ns());
            let call = self.engine.dispatch(&mut turn, self.control.now());
            let Some(call) = call else {
                assert_eq!(expected, None);
                break;
            };
            self.check_call(&call, expected);
            self.in_flight
                .push((call.token, call.payload, expected.expect("checked")));
            self.check();
            // The handler runs, and other threads do.
            for _ in 0..random.below(5) {
                self.act(random);
                self.check();
            }
            if self.in_flight.len() >= IN_FLIGHT_MAX || !random.one_in(3) {
                self.settle_one(random);
            }
            if self.model.dispatched > 20_000 {
                panic!("handlers keep each other going without end");
            }
        }
        // Sometimes others still run when the next turn begins.
        while !self.in_flight.is_empty() && !random.one_in(4) {
            self.settle_one(random);
        }
        let expected = self.model.finish(&model_turn);
        match self.engine.finish(turn) {
            TurnEnd::Again => assert_eq!(expected, None),
            TurnEnd::Stop(reason) => {
                assert_eq!(Some(reason), expected);
                self.begin_run(random);
            }
        }
        self.check();
    }

    /// The program does nothing more: all that is owed is delivered, and the loop comes to rest.
    pub(crate) fn quiesce(&mut self) {
        self.quiet = true;
        let mut random = Random::new(self.seed);
        self.model.break_asked = false;
        self.model.exit_asked = false;
        self.engine.forget_stops();
        let mode = RunMode {
            nonblock: true,
            no_exit_on_empty: true,
            ..RunMode::default()
        };
        self.engine.begin_run(mode);
        self.model.mode = mode;
        while !self.in_flight.is_empty() {
            self.settle_one(&mut random);
        }
        for raw in 0..HANDLES as i32 {
            let edge = |event: &Event| {
                event.is_edge() && matches!(event.source, Source::Handle { raw: r, .. } if r == raw)
            };
            if !self.model.events.iter().any(edge) {
                self.set_ready(raw, Readiness::NONE);
            }
        }
        // Endless zero-length timers come first in their priority and may keep others from it.
        for at in 0..self.model.events.len() {
            let (id, ns) = (self.model.events[at].id, self.ns());
            self.model.set_timeout(at, None, ns);
            self.model.disarm(at);
            self.engine
                .set_timeout(id, None, self.control.now())
                .expect("it exists");
            self.engine.disarm(id).expect("it exists");
        }
        for _ in 0..EVENTS_MAX * 4 {
            // `act` and `disturb` do nothing now.
            self.turn(&mut random);
            self.model.mode = mode;
            self.engine.begin_run(mode);
        }
        // With one report each, arming again reports what is ready again.
        let at_rest = self.model.queue.is_empty();
        assert!(
            at_rest || self.model.config.notify == Notify::Once,
            "{:?}",
            self.model.queue
        );
        for event in self
            .model
            .events
            .iter()
            .filter(|event| event.is_edge() && event.pending)
        {
            let failed = self
                .model
                .handles
                .iter()
                .any(|handle| Some(handle.instance) == event.instance && handle.failed);
            let waits = event.active.is_some();
            assert!(
                event.owed.is_none() || failed || waits,
                "an edge was lost: {event:?}"
            );
        }
    }

    fn settle_one(&mut self, random: &mut Random) {
        let at = random.below(self.in_flight.len() as u64) as usize;
        let (token, payload, called) = self.in_flight.remove(at);
        let ready = self
            .model
            .find(called.serial)
            .map_or(Readiness::NONE, |at| self.ready_of(at));
        let existed = self.model.find(called.serial).is_some();
        if !self.quiet && random.one_in(12) {
            self.log(|| format!("abandon {}", called.serial));
            self.engine.abandon(token);
            self.model
                .settle(called, None, self.control.now().as_nanos(), ready);
            self.bury(called.id);
            return;
        }
        let disposition = match random.below(10) {
            _ if self.quiet => Disposition::Keep,
            0 => Disposition::Remove,
            1 => Disposition::Disable,
            2 | 3 => Disposition::Rearm,
            _ => Disposition::Keep,
        };
        self.log(|| format!("settle {} {disposition:?}", called.serial));
        let now = self.now();
        let settled = self.engine.settle(token, payload, disposition, now);
        self.model
            .settle(called, Some(disposition), now.as_nanos(), ready);
        match settled {
            Settled::Kept => assert!(existed && disposition != Disposition::Remove),
            Settled::Released(payload) => {
                assert_eq!(payload, called.serial);
                assert!(!existed || disposition == Disposition::Remove);
                self.bury(called.id);
            }
        }
        self.check();
    }

    pub(crate) fn bury(&mut self, id: EventId) {
        if !self.gone.contains(&id) {
            self.gone.push(id);
        }
        self.gone_handles = self
            .handle_ids
            .iter()
            .copied()
            .filter(|id| !self.model.handles.iter().any(|handle| handle.id == *id))
            .collect();
        self.gone_handles.sort_unstable();
    }

    /// Reports of what is gone, reports twice, reports nobody asked for.
    fn disturb(&self, batch: &mut Batch, random: &mut Random) {
        if self.quiet {
            return;
        }
        let bits = Readiness::from_bits(random.below(64) as u8);
        if random.one_in(4) && !self.gone_handles.is_empty() {
            batch.push(random.pick(&self.gone_handles), bits);
        }
        if random.one_in(8) && !batch.reports().is_empty() {
            let again = random.pick(batch.reports());
            batch.push(again.handle, again.readiness);
        }
        if random.one_in(8) && !self.model.handles.is_empty() {
            let at = random.below(self.model.handles.len() as u64) as usize;
            batch.push(self.model.handles[at].id, bits);
        }
        if random.one_in(16) {
            batch.push(HandleId::from_bits(random.next()), bits);
        }
    }

    pub(crate) fn apply_changes(&mut self) {
        let mut changes = Vec::new();
        self.engine.take_changes(&mut changes);
        assert!(!self.engine.has_changes());
        for change in changes {
            let result = self.demultiplexer.apply(&change);
            self.log(|| format!("apply {change:?}: {result:?}"));
            let alive = self
                .model
                .handles
                .iter_mut()
                .find(|handle| handle.id == change.handle);
            if let Some(handle) = alive {
                assert_eq!(handle.raw, change.raw);
                handle.failed = result.is_err();
            }
            if result.is_err() {
                self.engine.registration_failed(change.handle);
                self.model.report(change.handle, Readiness::ERROR);
            }
        }
        if !self.engine.has_changes() {
            self.check_registrations();
        }
    }

    pub(crate) fn set_ready(&mut self, raw: RawHandle, readiness: Readiness) {
        let before = core::mem::replace(&mut self.ready[raw as usize], readiness);
        self.control.set_ready(raw, readiness);
        self.model.readiness_changed(raw, before, readiness);
    }
}
