//! A connection as a handler of completions: the loop's proactor receives and sends.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use windlass_core::{Disposition, Happened, Interest, Readiness};

use super::book::Entry;
use super::loop_connection::{Cx, step_in_loop};
use super::state::ServerState;
use crate::event_loop::EventHandler;
use crate::models::connection::{CompletionTransport, Connection, Transport, Wish};
use crate::proactor::PoolId;
use crate::session::Service;

/// One connection of a loop whose bytes pass by operations.
pub(super) struct CompletionConnection<V: Service> {
    connection: Connection<V, CompletionTransport>,
    entry: Entry,
}

/// What carries a connection by operations.
pub(super) fn transport(socket: OwnedFd, pool: PoolId) -> CompletionTransport {
    CompletionTransport::new(Arc::new(socket), pool)
}

impl<V: Service> CompletionConnection<V> {
    pub(super) fn new(connection: Connection<V, CompletionTransport>, entry: Entry) -> Self {
        Self { connection, entry }
    }

    /// Takes in what its operations came to; answers whether there is something to go on with.
    #[inline]
    fn take_completions(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        happened: &mut Happened,
    ) -> bool {
        let event = cx.event();
        let mut received = false;
        loop {
            let transport = self.connection.transport_mut();
            let news = if let Some(completion) = cx.next_completion(event) {
                transport.complete(completion)
            } else if let Some(send) = transport.quiet_send()
                && cx.event_of(send).is_none()
            {
                transport.note_quietly_sent(cx.take_buffer())
            } else {
                break;
            };
            received |= news.readiness != Readiness::WRITE;
            happened.readiness |= news.readiness;
            happened.timed_out |= news.probed;
            if news.progress {
                let now = state.now(cx);
                self.connection.note_progress(now);
            }
        }
        received || happened.user || happened.timed_out || self.connection.awaits_sent()
    }

    /// Starts and cancels what the transport wants.
    #[inline]
    fn follow_wishes(&mut self, cx: &mut Cx<'_, V>) -> Disposition {
        let event = cx.event();
        let wants_input = self.connection.interest().contains(Interest::READ);
        let awaits_sent = self.connection.awaits_sent();
        let transport = self.connection.transport_mut();
        if (awaits_sent || transport.is_probing())
            && let Some(operation) = transport.quiet_send()
        {
            // What was over was noted before.
            let is_in_flight = cx.wake_for(operation);
            debug_assert!(is_in_flight, "its completion was missed");
            transport.note_asked_for();
        }
        while let Some(wish) = transport.next_wish(wants_input, awaits_sent) {
            let started = match wish {
                Wish::Cancel(operation) => {
                    cx.cancel(operation);
                    continue;
                }
                Wish::Start(operation) => cx.start_for(event, operation),
                Wish::StartQuietly(operation) => cx.start_quietly_for(event, operation),
            };
            match started {
                Ok(operation) => transport.started(operation),
                // No descriptor for the emulated driver: nothing would ever come.
                Err(_) => return Disposition::Remove,
            }
        }
        Disposition::Keep
    }
}

impl<V: Service> Drop for CompletionConnection<V> {
    fn drop(&mut self) {
        self.entry.note_end(|| self.connection.summary());
    }
}

impl<V: Service> EventHandler<'static, ServerState<V>> for CompletionConnection<V> {
    fn handle_event(
        &mut self,
        state: &mut ServerState<V>,
        cx: &mut Cx<'_, V>,
        mut happened: Happened,
    ) -> Disposition {
        if self.take_completions(state, cx, &mut happened)
            && step_in_loop(&mut self.connection, state, cx, happened) == Disposition::Remove
        {
            return Disposition::Remove;
        }
        let disposition = self.follow_wishes(cx);
        if disposition == Disposition::Remove {
            state.lane.counts.failed += 1;
            state.forget_connection(cx);
        }
        disposition
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.connection.transport().socket())
    }
}
