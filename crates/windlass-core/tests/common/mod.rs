//! The smallest driver: one thread, simulated time, handlers as plain functions of the loop.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use windlass_core::sim::{SimControl, SimDemultiplexer};
use windlass_core::*;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const READ: Interest = Interest::READ;
pub(crate) const WRITE: Interest = Interest::WRITE;

/// The payload is a name; who is called with what is written down.
pub(crate) struct Driver {
    pub(crate) engine: Engine<&'static str>,
    pub(crate) demultiplexer: SimDemultiplexer,
    pub(crate) control: SimControl,
    /// Everything that was called, in order.
    pub(crate) called: Vec<(&'static str, Happened)>,
    pub(crate) released: Vec<&'static str>,
    pub(crate) stale: Option<HandleId>,
}

pub(crate) fn reads(raw: RawHandle) -> EventSpec {
    watches(raw, READ, Trigger::Level)
}

pub(crate) fn watches(raw: RawHandle, interest: Interest, trigger: Trigger) -> EventSpec {
    EventSpec::new(Source::Handle {
        raw,
        interest,
        trigger,
    })
}

pub(crate) fn every(length: Duration) -> EventSpec {
    EventSpec {
        timeout: Some(Timeout::After(length)),
        ..EventSpec::new(Source::Timer)
    }
}

pub(crate) fn once(spec: EventSpec) -> EventSpec {
    EventSpec {
        lifetime: Lifetime::OneShot,
        ..spec
    }
}

pub(crate) fn user() -> EventSpec {
    EventSpec::new(Source::User)
}

pub(crate) fn at_priority(priority: u8, spec: EventSpec) -> EventSpec {
    EventSpec { priority, ..spec }
}

impl Driver {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let (demultiplexer, control) = SimDemultiplexer::new();
        Self {
            engine: Engine::new(config),
            demultiplexer,
            control,
            called: Vec::new(),
            released: Vec::new(),
            stale: None,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.control.now()
    }

    pub(crate) fn add(&mut self, spec: EventSpec, name: &'static str) -> EventId {
        let id = self.engine.insert(spec, name).expect("the spec fits");
        self.engine
            .enable(id, self.control.now())
            .expect("just inserted");
        id
    }

    pub(crate) fn apply(&mut self) {
        let mut changes = Vec::new();
        self.engine.take_changes(&mut changes);
        for change in changes {
            if self.demultiplexer.apply(&change).is_err() {
                self.engine.registration_failed(change.handle);
            }
        }
    }

    /// One turn. Every handler runs `handler` and answers what that answers.
    pub(crate) fn turn_with(
        &mut self,
        mut handler: impl FnMut(&mut Self, &Call<&'static str>) -> Disposition,
    ) -> Option<StopReason> {
        self.apply();
        let plan = match self.engine.prepare() {
            Step::Wait(plan) => plan,
            Step::Stop(reason) => return Some(reason),
        };
        let mut batch = Batch::new();
        let timeout = plan.timeout(self.now());
        self.demultiplexer
            .demultiplex(&mut batch, timeout)
            .expect("simulated");
        let mut turn = self
            .engine
            .activate(plan.waited(), &mut batch, self.control.now());
        self.stale = turn.stale();
        while let Some(call) = self.engine.dispatch(&mut turn, self.control.now()) {
            self.called.push((call.payload, call.happened));
            let disposition = handler(self, &call);
            let now = self.control.now();
            match self
                .engine
                .settle(call.token, call.payload, disposition, now)
            {
                Settled::Kept => {}
                Settled::Released(name) => self.released.push(name),
            }
        }
        match self.engine.finish(turn) {
            TurnEnd::Again => None,
            TurnEnd::Stop(reason) => Some(reason),
        }
    }

    pub(crate) fn turn(&mut self) -> Option<StopReason> {
        self.turn_with(|_, _| Disposition::Keep)
    }

    /// Turns until the run ends by itself.
    pub(crate) fn run(&mut self, mode: RunMode) -> StopReason {
        self.engine.begin_run(mode);
        (0..10_000).find_map(|_| self.turn()).expect("the run ends")
    }

    /// Takes the names of who was called.
    pub(crate) fn names(&mut self) -> Vec<&'static str> {
        self.called.drain(..).map(|(name, _)| name).collect()
    }

    pub(crate) fn last(&self) -> Happened {
        self.called.last().expect("someone was called").1
    }
}
