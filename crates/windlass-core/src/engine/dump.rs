//! Listing: each event as people and tools see it.

use crate::event_table::{Source, State, Timeout};
use crate::id::EventId;
use crate::time::Instant;

/// What is known of one event.
#[derive(Clone, Copy, Debug)]
pub struct EventInfo {
    /// Its id.
    pub id: EventId,
    /// What it waits for.
    pub source: Source,
    /// Where it stands.
    pub state: State,
    /// Its priority.
    pub priority: u8,
    /// Whether it stays pending.
    pub persistent: bool,
    /// Whether it is the driver's own.
    pub internal: bool,
    /// Its timeout's length.
    pub timeout: Option<Timeout>,
    /// When it is due, if it is armed.
    pub deadline: Option<Instant>,
}
