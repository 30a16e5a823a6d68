//! Tokens that pass from step to step of a turn: none can be copied, none skipped.

use core::time::Duration;

use crate::id::{EventId, HandleId};
use crate::interest::Readiness;
use crate::time::Instant;

/// How long a driver may wait. From [`prepare`](crate::Engine::prepare).
#[derive(Debug)]
#[must_use = "a plan that is not waited for ends the run"]
pub struct WaitPlan {
    pub(crate) wait: Wait,
}

/// The longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until something happens.
    Forever,
    /// Not at all: something is active already.
    Poll,
    /// Until then at the latest.
    Until(Instant),
}

impl WaitPlan {
    /// The longest wait.
    #[must_use]
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The longest wait as seen from `now`: `None` is for ever.
    #[must_use]
    pub fn timeout(&self, now: Instant) -> Option<Duration> {
        match self.wait {
            Wait::Forever => None,
            Wait::Poll => Some(Duration::ZERO),
            Wait::Until(deadline) => Some(deadline.saturating_since(now)),
        }
    }

    /// Says that the wait is over.
    pub fn waited(self) -> Waited {
        Waited { _waited: () }
    }
}

/// The wait is over; to be handed to [`activate`](crate::Engine::activate).
#[derive(Debug)]
#[must_use = "what the wait brought must be activated"]
pub struct Waited {
    _waited: (),
}

/// A turn in which handlers may run. From [`activate`](crate::Engine::activate), ended by
/// [`finish`](crate::Engine::finish).
#[derive(Debug)]
#[must_use = "a turn must be dispatched and finished"]
pub struct Turn {
    /// The priority that runs; `None`: nothing was active.
    pub(crate) priority: Option<u8>,
    pub(crate) started: Instant,
    pub(crate) callbacks: u32,
    /// Of these, those of events that count.
    pub(crate) counted: u32,
    pub(crate) stale: Option<HandleId>,
}

impl Turn {
    /// A registration that reported and does not exist, if there was one in this turn's batch:
    /// the kernel still watches something that was closed.
    #[must_use]
    pub fn stale(&self) -> Option<HandleId> {
        self.stale
    }

    /// The priority whose events run in this turn.
    #[must_use]
    pub fn priority(&self) -> Option<u8> {
        self.priority
    }
}

/// One event to handle: call the payload, then [`settle`](crate::Engine::settle).
#[derive(Debug)]
#[must_use = "a call must be settled"]
pub struct Call<P> {
    /// The event in flight.
    pub token: InFlight,
    /// The payload (handler), moved out of the engine.
    pub payload: P,
    /// What happened.
    pub happened: Happened,
}

/// The right and duty to settle one event whose handler runs.
#[derive(Debug)]
#[must_use = "an event in flight must be settled"]
pub struct InFlight {
    pub(crate) event: EventId,
    pub(crate) handle: Option<HandleId>,
}

impl InFlight {
    /// Which event it is.
    #[must_use]
    pub fn event(&self) -> EventId {
        self.event
    }
}

/// What happened to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Which event.
    pub event: EventId,
    /// The readiness of its handle, as far as it asked for it.
    pub readiness: Readiness,
    /// Whether its timeout or deadline was reached.
    pub timed_out: bool,
    /// Whether its signal came.
    pub signalled: bool,
    /// Whether the program activated it.
    pub user: bool,
    /// How many signals or activations were merged.
    pub count: u32,
    /// The deadline that was reached, if it timed out.
    pub deadline: Option<Instant>,
}

impl Happened {
    /// Nothing happened to `event`: for a call by the driver's own will.
    #[must_use]
    pub const fn nothing(event: EventId) -> Self {
        Self {
            event,
            readiness: Readiness::NONE,
            timed_out: false,
            signalled: false,
            user: false,
            count: 0,
            deadline: None,
        }
    }
}

/// Where a payload is after [`settle`](crate::Engine::settle).
#[derive(Debug)]
#[must_use = "a payload that is released is the driver's to drop, after the changes were applied"]
pub enum Settled<P> {
    /// Back in the engine.
    Kept,
    /// The event is gone.
    Released(P),
}
