//! The session: shakes hands, then stands between the driver and the wrapped session.
//!
//! # States
//!
//! ```text
//! handshake ──▶ Reading ⇄ Flushing ⇄ Waiting          any ──▶ Closed, with an alert (error)
//!                  ⇅                                      └──▶ Aborted (truncated file, abort)
//!        JobToStart ──▶ Working       Closing (output left) ──▶ Closed, with close_notify
//! ```
//!
//! They are what the wrapped session waits for. What the driver is asked for is the same, unless
//! there is output that its queue had no room for: then it is asked to drain.

mod sending;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass::Instant;
use windlass::session::{
    Input, Job, JobResult, Next, Now, Output, Peer, Progress, Service, Session, SessionContext,
    Transport,
};

use self::sending::{PIECE_BYTES, SendError, send_piece};
use crate::channel::Channel;
use crate::plain_http::{Opening, judge};
use crate::report::count;
use crate::service::{Active, TlsLocal};

type Cx<'a, V> = SessionContext<'a, TlsLocal<V>>;

/// One connection over TLS.
pub struct TlsSession<V: Service> {
    channel: Channel,
    stage: Stage<V::Session>,
    phase: Phase,
    /// Plaintext that the wrapped session left.
    carry: Vec<u8>,
    carry_bytes_max: usize,
    /// Its output that is not encrypted yet.
    output: Option<Box<Output>>,
}

enum Stage<S> {
    Handshake(Box<Handshake>),
    Open(S),
}

struct Handshake {
    peer: Peer,
    opened: Instant,
    deadline: Instant,
    /// A stop was asked for: the wrapped session is to be told as it opens.
    is_stopping: bool,
    received_bytes: usize,
    plain_http_answer: Option<Bytes>,
}

/// What the wrapped session waits for, or how the connection ends.
enum Phase {
    Reading,
    Flushing,
    Waiting,
    /// For a job, which starts when the output before it is encrypted.
    JobToStart(Job),
    /// For a job that the driver has.
    Working,
    /// Its last output is not encrypted yet.
    Closing,
    /// All was said.
    Closed,
    Aborted,
}

/// How often the wrapped session may go on at once while its output drains at once.
const ROUNDS_MAX: u32 = 16;
/// A handshake that sends more than this is none.
const HANDSHAKE_BYTES_MAX: usize = 256 * 1024;
/// A handshake that takes longer is ended by a stop; until then it goes on, as the client of a new
/// connection need not expect it to fail.
const FRESH_GRACE: Duration = Duration::from_secs(1);

impl<V: Service> TlsSession<V> {
    pub(crate) fn new(active: &Arc<Active>, peer: Peer, now: Now) -> Self {
        let config = &active.config;
        let handshake = Handshake {
            peer: peer.over(Transport::Tls),
            opened: now.monotonic,
            deadline: now.monotonic + config.handshake_timeout,
            is_stopping: false,
            received_bytes: 0,
            plain_http_answer: config.plain_http_answer.clone(),
        };
        Self {
            channel: Channel::new(Arc::clone(&active.rustls))
                .expect("only a fragment size could be wrong, and none is set"),
            stage: Stage::Handshake(Box::new(handshake)),
            phase: Phase::Reading,
            carry: Vec::new(),
            carry_bytes_max: config.input_bytes_max,
            output: None,
        }
    }

    /// Goes on with the handshake; when it is complete, opens the wrapped session.
    fn shake_hands(&mut self, cx: &mut Cx<'_, V>, input: Input<'_>) -> Progress {
        let Stage::Handshake(handshake) = &mut self.stage else {
            unreachable!("the caller looked");
        };
        if handshake.received_bytes == 0
            && let Some(answer) = &handshake.plain_http_answer
        {
            match judge(input.bytes) {
                Opening::PlainHttp => {
                    cx.output.push_shared(answer.clone());
                    count(&cx.local.counts().plain_http);
                    self.phase = Phase::Closed;
                    return all_of(input, Next::Close);
                }
                Opening::Unclear if !input.ended => return none_of(Next::Read),
                Opening::Unclear | Opening::Tls => {}
            }
        }
        handshake.received_bytes += input.bytes.len();
        let is_too_long = handshake.received_bytes > HANDSHAKE_BYTES_MAX;
        let (peer, is_stopping) = (handshake.peer, handshake.is_stopping);
        let mut plain = std::mem::take(&mut cx.local.scratch.plain);
        plain.clear();
        let received = self.receive(cx, input, &mut plain);
        if received.is_ok() && !self.channel.is_handshaking() {
            count(&cx.local.counts().handshakes);
            if self.channel.is_resumed() {
                count(&cx.local.counts().resumed);
            }
            let shared = Arc::clone(&cx.local.shared);
            let session = shared.inner.open(&mut cx.local.inner, &peer, cx.now);
            self.stage = Stage::Open(session);
            if is_stopping {
                let mut output = self.take_output(cx);
                let next = self.call(cx, &mut output, |session, cx| session.stop(cx));
                self.follow(next);
                self.output = Some(output);
            }
            return self.run(cx, input, plain, input.bytes.len());
        }
        cx.local.scratch.plain = plain;
        if received.is_err() || input.ended || is_too_long {
            count(&cx.local.counts().failed_handshakes);
            self.phase = Phase::Closed;
            return all_of(input, Next::Close);
        }
        all_of(input, Next::Read)
    }

    /// Decrypts all of `input` behind what is in `plain`.
    fn receive(
        &mut self,
        cx: &mut Cx<'_, V>,
        input: Input<'_>,
        plain: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        let records = &mut cx.local.scratch.records;
        self.channel.receive(input.bytes, records, plain, cx.output)
    }

    /// Lets the wrapped session go on with `plain`: what it left and what was decrypted of the
    /// first `taken` bytes of `input`. Takes the rest of it when the session wants input.
    fn run(
        &mut self,
        cx: &mut Cx<'_, V>,
        input: Input<'_>,
        mut plain: Vec<u8>,
        mut taken: usize,
    ) -> Progress {
        let mut output = self.take_output(cx);
        let (mut at, mut rounds) = (0, 0);
        let mut budget = PIECE_BYTES as u64;
        // Once in any case: that the driver calls may be all that says of a notification.
        let mut is_due = true;
        self.send(cx, &mut output, &mut budget);
        loop {
            if taken < input.bytes.len() && self.takes_input(plain.len() - at) {
                taken = input.bytes.len();
                is_due = true;
                if self.receive(cx, input, &mut plain).is_err() {
                    count(&cx.local.counts().protocol_errors);
                    self.phase = Phase::Closed;
                }
            }
            let goes_on = match self.phase {
                Phase::Reading | Phase::Waiting => is_due,
                Phase::Flushing => output.is_low() && rounds < ROUNDS_MAX,
                _ => false,
            };
            if !goes_on {
                break;
            }
            is_due = false;
            rounds += 1;
            let given = Input {
                bytes: &plain[at..],
                ended: self.channel.peer_closed() || input.ended && taken == input.bytes.len(),
            };
            let progress = self.call(cx, &mut output, |session, cx| session.advance(cx, given));
            assert!(
                progress.consumed <= given.bytes.len(),
                "a session consumed more than its input"
            );
            at += progress.consumed;
            let may_read = !given.ended && plain.len() - at < self.carry_bytes_max;
            self.follow(progress.next);
            if matches!(self.phase, Phase::Reading) && !may_read {
                // It wants more, and nothing more can come, or it leaves more than the limit.
                self.phase = Phase::Closing;
            }
            self.send(cx, &mut output, &mut budget);
        }
        self.keep(&plain[at..]);
        cx.local.scratch.plain = plain;
        if matches!(self.phase, Phase::Closing | Phase::Closed | Phase::Aborted) {
            // It is of no use any more.
            taken = input.bytes.len();
        }
        Progress {
            consumed: taken,
            next: self.next(cx, output),
        }
    }

    /// Whether more is to be decrypted, with so much plaintext at hand.
    fn takes_input(&self, plain_len: usize) -> bool {
        match self.phase {
            Phase::Reading => true,
            Phase::Waiting => plain_len < self.carry_bytes_max,
            _ => false,
        }
    }

    /// Keeps what the wrapped session left.
    fn keep(&mut self, left: &[u8]) {
        self.carry.clear();
        if left.is_empty() {
            self.carry = Vec::new();
        } else {
            self.carry.extend_from_slice(left);
        }
    }

    /// Calls the wrapped session.
    fn call<R>(
        &mut self,
        cx: &mut Cx<'_, V>,
        output: &mut Output,
        f: impl FnOnce(&mut V::Session, &mut SessionContext<'_, V::Local>) -> R,
    ) -> R {
        let Stage::Open(session) = &mut self.stage else {
            unreachable!("its phase is that of an open session");
        };
        let mut inner = SessionContext {
            local: &mut cx.local.inner,
            output,
            now: cx.now,
            wakeups: cx.wakeups.reborrow(),
        };
        f(session, &mut inner)
    }

    /// Notes what the wrapped session asked for.
    fn follow(&mut self, next: Next) {
        let has_job = matches!(self.phase, Phase::JobToStart(_) | Phase::Working);
        self.phase = match next {
            // It goes on waiting for its job.
            Next::Read | Next::Flush | Next::Wait if has_job => return,
            Next::Read => Phase::Reading,
            Next::Flush | Next::Finish => Phase::Flushing,
            Next::Wait => Phase::Waiting,
            Next::Job(job) => Phase::JobToStart(job),
            Next::Close => Phase::Closing,
            Next::Abort => Phase::Aborted,
            // Whatever it is, this layer can't pass it on.
            _ => Phase::Aborted,
        };
    }

    /// Encrypts output as far as there is room: a piece at a time if the wrapped session waits for
    /// its output, else up to the driver's high mark.
    fn send(&mut self, cx: &mut Cx<'_, V>, output: &mut Output, budget: &mut u64) {
        if matches!(self.phase, Phase::Closed | Phase::Aborted) {
            output.clear();
            return;
        }
        let is_eager = matches!(self.phase, Phase::Reading | Phase::Waiting | Phase::Working);
        let high_bytes = cx.output.limits().high_bytes;
        while !output.is_empty()
            && (is_eager || *budget > 0)
            && (!cx.output.is_full() || cx.output.is_low())
        {
            let mut room = high_bytes.saturating_sub(cx.output.queued_bytes());
            if !is_eager {
                room = room.min(*budget);
            }
            let piece = &mut cx.local.scratch.piece;
            match send_piece(&mut self.channel, output, cx.output, piece, room) {
                Ok(sent) => *budget = budget.saturating_sub(sent),
                Err(error) => {
                    if error == SendError::Truncated {
                        count(&cx.local.counts().truncated_files);
                    }
                    output.clear();
                    self.phase = Phase::Aborted;
                    return;
                }
            }
        }
        if output.is_empty() && matches!(self.phase, Phase::Closing) {
            self.channel.close(cx.output);
            self.phase = Phase::Closed;
        }
    }

    /// Does what is left to do after a call other than `advance`.
    fn settle(&mut self, cx: &mut Cx<'_, V>, mut output: Box<Output>) -> Next {
        self.send(cx, &mut output, &mut (PIECE_BYTES as u64));
        self.next(cx, output)
    }

    /// What to ask the driver for. Keeps `output` if there is some left.
    fn next(&mut self, cx: &mut Cx<'_, V>, output: Box<Output>) -> Next {
        let is_pending = !output.is_empty();
        if is_pending {
            self.output = Some(output);
        } else {
            cx.local.scratch.put_output(output);
        }
        match &self.phase {
            Phase::Aborted => Next::Abort,
            Phase::Closed => Next::Close,
            Phase::Closing => Next::Finish,
            _ if is_pending => Next::Flush,
            Phase::JobToStart(_) => {
                let Phase::JobToStart(job) = std::mem::replace(&mut self.phase, Phase::Working)
                else {
                    unreachable!("it was looked at just now");
                };
                Next::Job(job)
            }
            Phase::Flushing => Next::Flush,
            Phase::Waiting => Next::Wait,
            // While a job runs, this has the driver go on waiting for it.
            Phase::Reading | Phase::Working => Next::Read,
        }
    }

    fn take_output(&mut self, cx: &mut Cx<'_, V>) -> Box<Output> {
        let limits = cx.output.limits();
        self.output
            .take()
            .unwrap_or_else(|| cx.local.scratch.take_output(limits))
    }

    fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Closing | Phase::Closed | Phase::Aborted)
    }
}

impl<V: Service> Session for TlsSession<V> {
    type Local = TlsLocal<V>;

    fn advance(&mut self, cx: &mut Cx<'_, V>, input: Input<'_>) -> Progress {
        match (&self.phase, &self.stage) {
            (Phase::Closed, _) => all_of(input, Next::Close),
            (Phase::Aborted, _) => all_of(input, Next::Abort),
            (_, Stage::Handshake(_)) => self.shake_hands(cx, input),
            (_, Stage::Open(_)) => {
                let mut plain = std::mem::take(&mut cx.local.scratch.plain);
                plain.clear();
                plain.extend_from_slice(&self.carry);
                self.run(cx, input, plain, 0)
            }
        }
    }

    fn complete(&mut self, cx: &mut Cx<'_, V>, result: JobResult) -> Next {
        let mut output = self.take_output(cx);
        if matches!(self.phase, Phase::Working) {
            self.phase = Phase::Reading;
            let next = self.call(cx, &mut output, |session, cx| session.complete(cx, result));
            self.follow(next);
        }
        self.settle(cx, output)
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            _ if self.is_ending() => None,
            Stage::Handshake(handshake) => Some(handshake.deadline),
            Stage::Open(session) => session.deadline(),
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_, V>) -> Next {
        if let Stage::Handshake(handshake) = &self.stage {
            if handshake.is_stopping {
                self.phase = Phase::Closed;
                return Next::Close;
            }
            // Nothing was said that a reset could destroy.
            count(&cx.local.counts().handshake_timeouts);
            self.phase = Phase::Aborted;
            return Next::Abort;
        }
        let mut output = self.take_output(cx);
        if !self.is_ending() {
            let next = self.call(cx, &mut output, |session, cx| session.expire(cx));
            self.follow(next);
            let time = cx.now.monotonic;
            if self.deadline().is_some_and(|deadline| deadline <= time) {
                // It would expire again and again.
                self.phase = Phase::Closing;
            }
        }
        self.settle(cx, output)
    }

    fn stop(&mut self, cx: &mut Cx<'_, V>) -> Next {
        if let Stage::Handshake(handshake) = &mut self.stage {
            let grace_end = handshake.opened + FRESH_GRACE;
            if cx.now.monotonic < grace_end && !matches!(self.phase, Phase::Closed) {
                handshake.is_stopping = true;
                handshake.deadline = handshake.deadline.min(grace_end);
                return Next::Read;
            }
            self.phase = Phase::Closed;
            return Next::Close;
        }
        let mut output = self.take_output(cx);
        if !self.is_ending() {
            let next = self.call(cx, &mut output, |session, cx| session.stop(cx));
            self.follow(next);
        }
        self.settle(cx, output)
    }
}

impl<V: Service> fmt::Debug for TlsSession<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("is_open", &matches!(self.stage, Stage::Open(_)))
            .finish_non_exhaustive()
    }
}

fn all_of(input: Input<'_>, next: Next) -> Progress {
    Progress {
        consumed: input.bytes.len(),
        next,
    }
}

fn none_of(next: Next) -> Progress {
    Progress { consumed: 0, next }
}
