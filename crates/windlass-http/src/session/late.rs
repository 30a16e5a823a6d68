//! Answers that are not given at once: what must be remembered of the request, and how the answer
//! is made in the end.

use windlass::session::SessionContext;

use super::receiving::Receiving;
use super::streaming::Streaming;
use super::{HttpSession, Phase, Step};
use crate::access_log::KeptRequest;
use crate::body::Framing;
use crate::body_sink::Taker;
use crate::handler::Handler;
use crate::refusal::Refusal;
use crate::responder::{
    Answered, Framer, Kind, LateKind, Logging, Outcome, Persistence, Responder,
};
use crate::response::{Response, ResponseError};
use crate::service::{HttpLocal, Logged};
use crate::session::exchange::internal_error;
use crate::status::Status;

/// What is remembered of a request until its answer is complete.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) framer: Framer,
    pub(super) kept: KeptRequest,
    /// Header lines that the answer will have.
    pub(super) extra: Vec<u8>,
    /// What takes the body of the request beside the answer.
    pub(super) taker: Option<Taker>,
    /// The most of the body that is taken.
    pub(super) body_bytes_max: u64,
}

impl Late {
    /// Notes that the body of the request was read to its end.
    pub(super) fn body_was_read(&mut self) {
        self.framer.framing = Framing::Length(0);
        self.framer.expects_continue = false;
        self.framer.persistence = self.framer.persistence_if_read;
    }

    /// Notes that the connection ends after the answer.
    fn close(&mut self) {
        self.framer.persistence = Persistence::Close;
        self.framer.persistence_if_read = Persistence::Close;
    }

    /// How the connection goes on after the answer.
    pub(super) fn persistence(&self) -> Persistence {
        if self.taker.is_some() {
            self.framer.persistence_if_read
        } else {
            self.framer.persistence
        }
    }
}

impl<H: Handler> HttpSession<H> {
    /// Has `answer` answer a request that was kept.
    pub(super) fn answer_late(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        mut late: Late,
        answer: impl FnOnce(Responder<'_>) -> Result<Answered, ResponseError>,
    ) -> Step {
        if self.stopping {
            late.close();
            // The session of another protocol would not be told of the stop.
            late.framer.upgrades = false;
        }
        let HttpLocal {
            scratch,
            date,
            shared,
            ..
        } = &mut *cx.local;
        scratch.clear();
        let mut outcome = Outcome::default();
        let mut framer = late.framer;
        framer.persistence = late.persistence();
        let responder = Responder {
            output: cx.output,
            scratch,
            extra: &mut late.extra,
            date: date.text(),
            config: &shared.config,
            framer,
            outcome: &mut outcome,
        };
        let result = answer(responder);
        self.conclude(cx, outcome, result.is_ok(), late)
    }

    pub(super) fn respond_late(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        late: Late,
        response: Response,
    ) -> Step {
        self.answer_late(cx, late, |responder| Ok(responder.respond(response)))
    }

    /// Goes on as the outcome of a handler demands.
    pub(super) fn conclude(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        outcome: Outcome,
        is_ok: bool,
        mut late: Late,
    ) -> Step {
        let Outcome {
            kind,
            taker,
            body_bytes_max,
            discarded,
            closes,
            logging,
        } = outcome;
        if logging == Logging::Silent {
            late.kept.silence();
        }
        let kind = if discarded.is_some() {
            LateKind::TooLarge.into()
        } else {
            kind
        };
        if closes {
            late.close();
        }
        late.taker = taker.map(|taker| *taker).or(late.taker);
        late.body_bytes_max = body_bytes_max.unwrap_or(late.body_bytes_max);
        let kind = match kind {
            Kind::Answered { status, body_bytes } => {
                let logged = Logged::Kept(&late.kept);
                cx.local.log(self.peer, logged, status, body_bytes);
                self.after_answer(cx, late);
                return Step::Consumed(0);
            }
            Kind::Late(kind) => Some(*kind),
            Kind::Nothing => None,
        };
        match kind {
            Some(LateKind::Stream {
                status,
                source,
                framing,
            }) => {
                self.phase =
                    Phase::Stream(Box::new(Streaming::new(source, status, framing, late, cx)));
            }
            Some(LateKind::Upgrade(session)) => {
                let logged = Logged::Kept(&late.kept);
                cx.local
                    .log(self.peer, logged, Status::SWITCHING_PROTOCOLS, 0);
                self.phase = Phase::Upgraded(session);
            }
            Some(LateKind::TooLarge) => {
                let why = "the body is longer than is allowed here";
                let refusal = Refusal::new(Status::CONTENT_TOO_LARGE, why);
                self.refuse_late(cx, &late, refusal);
                return Step::Over;
            }
            Some(LateKind::Job(job)) if is_ok => {
                self.phase = Phase::Job(Box::new(late));
                return Step::Job(0, job);
            }
            Some(LateKind::Receive) if is_ok && late.taker.is_some() => {
                self.phase = Phase::Receive(Box::new(Receiving::new(late, cx)));
            }
            // The handler failed, or dropped its responder.
            Some(LateKind::Again(_) | LateKind::Job(_) | LateKind::Receive) | None => {
                late.taker = None;
                return self.respond_late(cx, late, internal_error());
            }
        }
        Step::Consumed(0)
    }

    /// Enters the phase after a complete answer.
    pub(super) fn after_answer(&mut self, cx: &SessionContext<'_, HttpLocal<H>>, late: Late) {
        let persistence = late.persistence();
        if late.taker.is_some() {
            self.phase = Phase::Receive(Box::new(Receiving::new(late, cx)));
        } else {
            self.go_on(cx, persistence, late.framer.framing);
        }
    }

    /// Answers a kept request with an error; the connection then ends.
    pub(super) fn refuse_late(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        late: &Late,
        refusal: Refusal,
    ) {
        let response = Response::text(refusal.status, refusal.why);
        self.close_with(cx, late, response);
    }

    /// Answers a kept request; the connection then ends.
    pub(super) fn close_with(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        late: &Late,
        response: Response,
    ) {
        let framer = Framer {
            persistence: Persistence::Close,
            ..late.framer
        };
        self.respond(cx, framer, Logged::Kept(&late.kept), &late.extra, response);
        self.phase = Phase::Over;
    }
}
