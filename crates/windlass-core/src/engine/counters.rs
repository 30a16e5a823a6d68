//! Counters: how much there is and was.

/// Numbers of events and of what went through the engine. Internal events are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that exist, in any state.
    pub inserted: usize,
    /// Events that are pending.
    pub pending: usize,
    /// The most that were pending at once.
    pub pending_max: usize,
    /// Events that are active.
    pub active: usize,
    /// The most that were active at once.
    pub active_max: usize,
    /// Holds: reasons beside events for the loop to go on ([`hold`](crate::Engine::hold)).
    pub holds: usize,
    /// The most holds at once.
    pub holds_max: usize,
    /// Handlers that are running.
    pub in_flight: usize,
    /// Turns that reached activation.
    pub turns: u64,
    /// Handlers that were handed out.
    pub dispatched: u64,
    /// Reports for registrations that do not exist any more.
    pub stale_reports: u64,
    /// Timers that became due.
    pub expired: u64,
}
