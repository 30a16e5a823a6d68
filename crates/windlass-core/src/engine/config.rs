//! Configuration of an engine, and of one run of it.

use core::time::Duration;

use crate::demultiplexer::Notify;

/// The most priorities that an engine can have.
pub const PRIORITIES_MAX: u16 = 256;

/// How an engine behaves; fixed for its life.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// How many priorities there are, 1 to 256 (default 1). 0 is the most urgent.
    pub priorities: u16,
    /// How long less urgent events may run before the demultiplexer is asked again.
    pub dispatch_limit: Option<DispatchLimit>,
    /// After how many turns in which other events ran a waiting priority gets one (default: never;
    /// as long as urgent events keep coming, the others wait). If several have waited too long,
    /// they take turns: none waits longer than this and one turn for each other priority.
    pub starvation_limit_turns: Option<u32>,
    /// When an event runs that was activated by a handler of this turn.
    pub fresh_activations: FreshActivations,
    /// Whether two handlers of one handle may run at once.
    pub handle_sharing: HandleSharing,
    /// How registrations are to report.
    pub notify: Notify,
    /// About how many timers one turn takes on (default 1024): with more due, the earliest run, and
    /// I/O has its turn before the rest. Those that share a tick of 16 microseconds stay together.
    pub expire_max: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            priorities: 1,
            dispatch_limit: None,
            starvation_limit_turns: None,
            fresh_activations: FreshActivations::default(),
            handle_sharing: HandleSharing::default(),
            notify: Notify::default(),
            expire_max: 1024,
        }
    }
}

/// The most that is dispatched before the loop looks again, for priorities at or beyond a limit.
///
/// "Beyond" means less urgent: numerically equal or greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchLimit {
    /// The time after which no further handler is started.
    pub interval: Option<Duration>,
    /// The number of handlers after which none is started.
    pub callbacks_max: Option<u32>,
    /// The most urgent priority that is limited; those before it never are.
    pub from_priority: u8,
}

/// When an event runs that was activated while handlers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreshActivations {
    /// In a later turn: I/O and stops get a look-in between, whatever handlers activate.
    #[default]
    NextTurn,
    /// In this turn, if its priority is the one that runs.
    SameTurn,
}

/// Whether two handlers of one handle may run at once, in drivers with several threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleSharing {
    /// One after the other; an event of a busy handle waits until the other has settled.
    Exclusive,
    /// Each event by itself.
    #[default]
    Shared,
}

/// How one run goes and when it ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunMode {
    /// End when some handlers ran and none is left active.
    pub once: bool,
    /// Never wait; end when nothing is active.
    pub nonblock: bool,
    /// Go on when no event is left.
    pub no_exit_on_empty: bool,
}
