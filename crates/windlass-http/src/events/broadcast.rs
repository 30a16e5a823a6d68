//! One sender of events for many clients.

use std::sync::Arc;

use super::event::{EncodedEvent, Event, EventError};
use super::{EventSendError, EventSender, Lag};
use crate::sync::{Mutex, lock};

/// Sends events to all clients that were added. Clones share the clients.
///
/// Clients that are gone are dropped at the next event, and those that lag by [`Lag::Disconnect`].
/// An event is written once; each client's queue refers to the same bytes. Its cost is one lock and
/// one wake-up per client.
#[derive(Clone, Debug, Default)]
pub struct Broadcast(Arc<Mutex<Vec<EventSender>>>);

impl Broadcast {
    /// Adds a client.
    pub fn add(&self, sender: EventSender) {
        lock(&self.0).push(sender);
    }

    /// Sends an event to all clients; answers how many it was queued for.
    ///
    /// # Errors
    ///
    /// If the event can't be written.
    pub fn send(&self, event: &Event<'_>) -> Result<usize, EventError> {
        Ok(self.send_encoded(&event.encode()?))
    }

    /// Sends an event that is written already to all clients; answers how many it was queued for.
    pub fn send_encoded(&self, event: &EncodedEvent) -> usize {
        let mut sent = 0;
        let mut gone = Vec::new();
        let mut senders = lock(&self.0);
        for sender in std::mem::take(&mut *senders) {
            match sender.send_encoded(event) {
                Ok(()) => sent += 1,
                Err(EventSendError::Lagging) if sender.lag == Lag::Skip => {}
                Err(_) => {
                    gone.push(sender);
                    continue;
                }
            }
            senders.push(sender);
        }
        drop(senders);
        // What a client's callbacks do when it goes is done without the lock.
        drop(gone);
        sent
    }

    /// How many clients there are; those that are gone are dropped.
    #[must_use]
    pub fn client_count(&self) -> usize {
        let mut senders = lock(&self.0);
        let gone: Vec<_> = senders
            .extract_if(.., |sender| sender.is_closed())
            .collect();
        let count = senders.len();
        drop(senders);
        drop(gone);
        count
    }

    /// Ends all streams behind what is queued.
    pub fn finish(&self) {
        let senders = std::mem::take(&mut *lock(&self.0));
        for sender in senders {
            sender.finish();
        }
    }
}
