//! The body of a request on its way to a handler's sink.

use windlass::Instant;
use windlass::session::{SessionContext, Wakeups};

use super::late::Late;
use super::{HttpSession, Phase, Step, body_deadline};
use crate::body::{BodyDecoder, Framing, prefix};
use crate::body_sink::{Notify, Taker};
use crate::config::Timeouts;
use crate::handler::Handler;
use crate::refusal::Refusal;
use crate::responder::Persistence;
use crate::response::Response;
use crate::service::HttpLocal;
use crate::status::Status;
use crate::trailers::Trailers;

/// A body that is taken.
#[derive(Debug)]
pub(super) struct Receiving {
    decoder: BodyDecoder,
    /// Has the taker.
    late: Late,
    trailers: Trailers,
    /// When the body began, put off by the time for which nothing was read.
    started: Instant,
    /// Since when nothing is read, though the client may be sending.
    paused_at: Option<Instant>,
    received_bytes: u64,
}

/// How far taking a body came.
pub(super) enum Pumped {
    Done(Trailers),
    /// The body breaks the grammar or a limit.
    Malformed(Refusal),
    NeedsInput,
    /// The sink takes no more for now.
    NotReady,
    /// The sink wants no more.
    Refused(Response),
}

impl Receiving {
    /// `late` has a taker.
    pub(super) fn new<H: Handler>(late: Late, cx: &SessionContext<'_, HttpLocal<H>>) -> Self {
        let overhead_bytes_max = cx.local.shared.config.limits.head_bytes;
        let framing: Framing = late.framer.framing;
        Self {
            decoder: BodyDecoder::new(framing, overhead_bytes_max),
            late,
            trailers: Trailers::default(),
            started: cx.now.monotonic,
            paused_at: None,
            received_bytes: 0,
        }
    }

    /// Gives the sink what it takes of `input`; answers how much that was.
    pub(super) fn pump(
        &mut self,
        wakeups: &mut Wakeups<'_>,
        now: Instant,
        input: &[u8],
    ) -> (usize, Pumped) {
        if let Some(paused_at) = self.paused_at.take() {
            self.started = self.started + now.saturating_since(paused_at);
        }
        let (consumed, pumped) = self.give(wakeups, input);
        if matches!(pumped, Pumped::NotReady) {
            self.pause(now);
        }
        (consumed, pumped)
    }

    /// Notes that nothing is read from now on, which is not the client's fault.
    pub(super) fn pause(&mut self, now: Instant) {
        self.paused_at.get_or_insert(now);
    }

    fn give(&mut self, wakeups: &mut Wakeups<'_>, input: &[u8]) -> (usize, Pumped) {
        const NO_TAKER: Refusal = Refusal::bad("nobody takes the body");
        const BAD: Refusal = Refusal::bad("the body is malformed");
        const TOO_LARGE: Refusal = Refusal::new(
            Status::CONTENT_TOO_LARGE,
            "the body is longer than is allowed here",
        );
        let bytes_max = self.late.body_bytes_max;
        let Some(taker) = &mut self.late.taker else {
            return (0, Pumped::Malformed(NO_TAKER));
        };
        let sink = taker.sink();
        let mut consumed = 0;
        loop {
            if !sink.is_ready(&mut Notify(wakeups)) {
                return (consumed, Pumped::NotReady);
            }
            let Ok(decoded) = self.decoder.decode(&input[consumed..]) else {
                return (consumed, Pumped::Malformed(BAD));
            };
            let data = prefix(decoded.data, bytes_max - self.received_bytes);
            let is_too_long = data.len() < decoded.data.len();
            self.received_bytes += data.len() as u64;
            consumed += decoded.consumed;
            if !decoded.trailer.is_empty() {
                self.trailers.push_line(decoded.trailer);
            }
            // What is within the limit is given, so that the answer does not depend on the cut.
            if !data.is_empty()
                && let Err(response) = sink.data(data)
            {
                return (consumed, Pumped::Refused(response));
            }
            if is_too_long {
                return (consumed, Pumped::Malformed(TOO_LARGE));
            }
            if decoded.done {
                return (consumed, Pumped::Done(std::mem::take(&mut self.trailers)));
            }
            if decoded.consumed == 0 {
                return (consumed, Pumped::NeedsInput);
            }
        }
    }

    /// Until when more must have come.
    pub(super) fn deadline(&self, timeouts: &Timeouts) -> Instant {
        if self.paused_at.is_some() {
            return Instant::FAR;
        }
        body_deadline(self.started, self.received_bytes, timeouts)
    }

    /// Tells the sink that the body is complete; gives back what is remembered of the request.
    pub(super) fn end_beside(mut self, trailers: &Trailers) -> Late {
        if let Some(mut taker) = self.late.taker.take() {
            taker.sink().end(trailers);
        }
        self.late.body_was_read();
        self.late
    }

    /// Drops the sink, as the body broke off; gives back what is remembered of the request.
    pub(super) fn break_off(mut self) -> Late {
        self.late.taker = None;
        self.late.framer.persistence = Persistence::Close;
        self.late.framer.persistence_if_read = Persistence::Close;
        self.late
    }

    pub(super) fn late(&self) -> &Late {
        &self.late
    }

    fn answers(&self) -> bool {
        matches!(self.late.taker, Some(Taker::Answering(_)))
    }
}

impl<H: Handler> HttpSession<H> {
    /// Gives the handler's sink what is there of the body, and has it answer at the end.
    pub(super) fn receive(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        input: &[u8],
    ) -> Step {
        let Phase::Receive(receiving) = &mut self.phase else {
            return Step::NeedsInput;
        };
        let (consumed, pumped) = receiving.pump(&mut cx.wakeups, cx.now.monotonic, input);
        match pumped {
            Pumped::Done(trailers) => match self.finish_body(cx, &trailers) {
                Step::Consumed(_) => Step::Consumed(consumed),
                Step::Job(_, job) => Step::Job(consumed, job),
                other => other,
            },
            Pumped::Malformed(refusal) => {
                self.refuse_body(cx, Response::text(refusal.status, refusal.why))
            }
            Pumped::Refused(response) => self.refuse_body(cx, response),
            // The next step finds nothing more to take.
            Pumped::NeedsInput | Pumped::NotReady if consumed > 0 => Step::Consumed(consumed),
            Pumped::NeedsInput => {
                self.deadline = receiving.deadline(&cx.local.shared.config.timeouts);
                Step::NeedsInput
            }
            Pumped::NotReady => {
                // It is the sink that is slow, not the client.
                self.deadline = receiving.deadline(&cx.local.shared.config.timeouts);
                Step::Wait
            }
        }
    }

    /// The body is complete: the sink answers, unless the answer was given already.
    fn finish_body(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        trailers: &Trailers,
    ) -> Step {
        self.deadline = Instant::FAR;
        let Phase::Receive(receiving) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Step::Over;
        };
        let mut receiving = *receiving;
        let Some(Taker::Answering(sink)) = receiving
            .late
            .taker
            .take_if(|taker| matches!(taker, Taker::Answering(_)))
        else {
            let late = receiving.end_beside(trailers);
            self.go_on(cx, late.persistence(), Framing::Length(0));
            return Step::Consumed(0);
        };
        let mut late = receiving.late;
        late.body_was_read();
        self.answer_late(cx, late, |responder| sink.answer(trailers, responder))
    }

    /// The body ends badly. A client whose answer was begun sees a reset, or the end after it.
    fn refuse_body(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        response: Response,
    ) -> Step {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            // The answer may be a stream, which is still to be made.
            Phase::Receive(receiving) if receiving.answers() => {
                self.respond_late(cx, receiving.break_off(), response)
            }
            _ => Step::Over,
        }
    }

    /// The body did not come in time.
    pub(super) fn expire_body(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>) -> Step {
        let why = "the body did not come in time";
        self.refuse_body(cx, Response::text(Status::REQUEST_TIMEOUT, why))
    }
}
