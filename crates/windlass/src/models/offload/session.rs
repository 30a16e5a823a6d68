//! The session that a loop drives in place of the program's.

use std::panic::resume_unwind;
use std::sync::Arc;

use windlass_core::Instant;

use super::OffloadLocal;
use super::trip::{Desk, Home, Trip};
use crate::session::{
    Input, Job, JobResult, Next, Notifier, Output, OutputLimits, Progress, Service, Session,
    SessionContext, Wakeups,
};

/// See the module above.
pub(in crate::models) struct OffloadSession<V: Service> {
    place: Place<V::Session>,
}

/// Where the program's session is.
enum Place<S> {
    /// Here; it has not been away yet.
    Fresh {
        session: S,
        notifier: Option<Notifier>,
    },
    /// Here.
    Home(Box<Trip<S>>),
    /// On a trip that ends at this desk.
    Away(Arc<Desk<S>>),
    /// Nowhere, for a moment.
    Nowhere,
}

/// A small answer is copied to the loop's own buffer; a large one moves.
const COPY_BYTES_MAX: usize = 4096;
/// A box keeps no larger buffers between two trips.
const KEEP_BYTES_MAX: usize = 4096;

type Cx<'a, V> = SessionContext<'a, OffloadLocal<V>>;

impl<V: Service> OffloadSession<V> {
    pub(super) fn new(session: V::Session) -> Self {
        let notifier = None;
        Self {
            place: Place::Fresh { session, notifier },
        }
    }

    /// Sends the session away, to be called with `input`.
    fn leave(&mut self, cx: &mut Cx<'_, V>, mut trip: Box<Trip<V::Session>>, input: Input<'_>) {
        trip.input.clear();
        trip.input.extend_from_slice(input.bytes);
        trip.input_ended = input.ended;
        trip.turn = cx.now.monotonic;
        trip.set_limits(cx.output);
        if let Some(notifier) = &trip.notifier {
            // It is called now; what comes from here on has it called again.
            let _ = notifier.take();
        }
        self.place = Place::Away(Arc::clone(&trip.home.desk));
        cx.local.begin(trip);
    }

    /// Takes in what the trip brought.
    fn come_home(&mut self, cx: &mut Cx<'_, V>, mut trip: Box<Trip<V::Session>>) -> Progress {
        let answer = trip.answer.take().expect("a trip ends with an answer");
        trip.deliver(cx.output);
        let notified = trip.notifier.as_ref().is_some_and(Notifier::take);
        let again = notified.then(|| trip.home.notifier.clone());
        self.place = Place::Home(trip);
        let progress = answer.unwrap_or_else(|panic| resume_unwind(panic));
        if let Some(notifier) = again
            && matches!(progress.next, Next::Read | Next::Wait)
        {
            // While it was away, and perhaps after it had looked.
            notifier.notify();
        }
        progress
    }

    /// Calls the session where it is, in the loop's thread. None if it is away.
    fn call(
        &mut self,
        cx: &mut Cx<'_, V>,
        call: impl FnOnce(&mut V::Session, &mut SessionContext<'_, V::Local>) -> Next,
    ) -> Option<Next> {
        let outer = cx.wakeups.notifier();
        let make = || {
            let outer = outer.clone();
            Notifier::new(move || outer.notify())
        };
        let (session, notifier) = match &mut self.place {
            Place::Fresh { session, notifier } => (session, notifier),
            Place::Home(trip) => (&mut trip.session, &mut trip.notifier),
            Place::Away(_) | Place::Nowhere => return None,
        };
        let mut inner_cx = SessionContext {
            local: &mut cx.local.inner,
            output: cx.output,
            now: cx.now,
            wakeups: Wakeups::new(notifier, &make),
        };
        Some(call(session, &mut inner_cx))
    }
}

impl<S> Trip<S> {
    fn new(session: S, notifier: Option<Notifier>, outer: Notifier, limits: OutputLimits) -> Self {
        Self {
            session,
            input: Vec::new(),
            input_ended: false,
            output: Output::new(limits),
            answer: None,
            turn: Instant::ZERO,
            notifier,
            home: Home {
                desk: Arc::new(Desk::new()),
                notifier: outer,
            },
        }
    }

    /// Has the output be full when it would be, behind what is queued.
    fn set_limits(&mut self, queued: &Output) {
        let mut limits = queued.limits();
        limits.high_bytes = limits.high_bytes.saturating_sub(queued.queued_bytes());
        if limits != self.output.limits() {
            self.output = Output::new(limits);
        }
    }

    /// Moves the output behind what is queued.
    fn deliver(&mut self, queued: &mut Output) {
        match self.output.as_copied() {
            Some(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                queued.push(bytes);
                self.output.clear();
            }
            None if self.output.is_empty() => {}
            _ => {
                let limits = self.output.limits();
                queued.append(&mut self.output);
                // Not the loop's buffer, which it may be now: idle connections keep little.
                self.output = Output::new(limits);
            }
        }
        if self.input.capacity() > KEEP_BYTES_MAX {
            self.input = Vec::new();
        }
    }
}

impl<V: Service> Session for OffloadSession<V> {
    type Local = OffloadLocal<V>;

    fn advance(&mut self, cx: &mut Cx<'_, V>, input: Input<'_>) -> Progress {
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Fresh { session, notifier } => {
                let outer = cx.wakeups.notifier();
                let trip = Trip::new(session, notifier, outer, cx.output.limits());
                self.leave(cx, Box::new(trip), input);
            }
            Place::Home(trip) => self.leave(cx, trip, input),
            Place::Away(desk) => {
                if let Some(trip) = desk.take() {
                    return self.come_home(cx, trip);
                }
                // Something else had it called; it is not back yet.
                self.place = Place::Away(desk);
            }
            Place::Nowhere => {}
        }
        Progress {
            consumed: 0,
            next: Next::Job(Job::away()),
        }
    }

    fn complete(&mut self, cx: &mut Cx<'_, V>, result: JobResult) -> Next {
        let next = self.call(cx, |session, cx| session.complete(cx, result));
        next.unwrap_or(Next::Read)
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.place {
            Place::Fresh { session, .. } => session.deadline(),
            Place::Home(trip) => trip.session.deadline(),
            Place::Away(_) | Place::Nowhere => None,
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_, V>) -> Next {
        let next = self.call(cx, |session, cx| session.expire(cx));
        next.unwrap_or(Next::Read)
    }

    fn stop(&mut self, cx: &mut Cx<'_, V>) -> Next {
        let next = self.call(cx, |session, cx| session.stop(cx));
        next.unwrap_or(Next::Read)
    }
}

impl<V: Service> Drop for OffloadSession<V> {
    fn drop(&mut self) {
        if let Place::Away(desk) = &self.place {
            desk.leave();
        }
    }
}
