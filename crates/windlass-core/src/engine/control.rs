//! Loop control: what a program asked of the loop, and how a turn or a run ends.

use crate::engine::token::WaitPlan;
use crate::time::Instant;

/// What [`prepare`](crate::Engine::prepare) answers.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// Wait according to the plan.
    Wait(WaitPlan),
    /// The run is over.
    Stop(StopReason),
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// [`break_loop`](crate::Engine::break_loop): at once after the running handler.
    Break,
    /// No event is pending or active, and nothing holds the loop.
    Empty,
    /// [`exit_loop`](crate::Engine::exit_loop) or its deadline.
    Exit,
    /// The run was for one pass ([`RunMode`](crate::RunMode)) and that is done.
    Passed,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TurnEnd {
    /// Go on with [`prepare`](crate::Engine::prepare).
    Again,
    /// The run is over.
    Stop(StopReason),
}

/// What was asked and not yet done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    pub(crate) break_asked: bool,
    pub(crate) exit_asked: bool,
    pub(crate) continue_asked: bool,
    pub(crate) exit_deadline: Option<Instant>,
}
