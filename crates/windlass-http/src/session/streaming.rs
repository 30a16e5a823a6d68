//! The body of an answer on its way from a source to the output.

use std::mem;
use std::time::Duration;

use windlass::Instant;
use windlass::session::SessionContext;

use super::late::Late;
use super::receiving::{Pumped, Receiving};
use super::{HttpSession, Phase, Step};
use crate::body_source::{BodySource, BodyWriter, Hints, Produced, StreamFraming};
use crate::handler::Handler;
use crate::service::{HttpLocal, Logged};
use crate::status::Status;

/// An answer whose body is being made.
pub(super) struct Streaming {
    source: Box<dyn BodySource>,
    status: Status,
    framing: StreamFraming,
    written_bytes: u64,
    trailers: Vec<u8>,
    /// The body of the request, where a sink takes it beside the answer.
    upload: Option<Box<Receiving>>,
    /// Not there while `upload` has it.
    late: Option<Late>,
    peer_ended: bool,
}

/// How often a source is asked in one go.
const PRODUCE_MAX: u32 = 256;
/// How soon a source is asked again that wants to be asked at a time that is over.
const WAKE_MIN: Duration = Duration::from_millis(1);

impl Streaming {
    pub(super) fn new<H: Handler>(
        source: Box<dyn BodySource>,
        status: Status,
        framing: StreamFraming,
        late: Late,
        cx: &SessionContext<'_, HttpLocal<H>>,
    ) -> Self {
        let (upload, late) = if late.taker.is_some() {
            (Some(Box::new(Receiving::new(late, cx))), None)
        } else {
            (None, Some(late))
        };
        Self {
            source,
            status,
            framing,
            written_bytes: 0,
            trailers: Vec::new(),
            upload,
            late,
            peer_ended: false,
        }
    }

    /// Has the source append once; answers what it says and whether anything was appended.
    fn produce<H: Handler>(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        stopping: bool,
    ) -> (Produced, bool) {
        cx.local.scratch.clear();
        let before = self.written_bytes;
        let mut writer = BodyWriter {
            output: cx.output,
            scratch: &mut cx.local.scratch,
            framing: &mut self.framing,
            written_bytes: &mut self.written_bytes,
            trailers: &mut self.trailers,
            wakeups: &mut cx.wakeups,
            now: cx.now,
            hints: Hints {
                peer_ended: self.peer_ended,
                stopping,
            },
        };
        let mut produced = self.source.produce(&mut writer);
        if produced == Produced::End {
            if !writer.finish() {
                produced = Produced::Failed;
            }
        } else {
            writer.flush();
        }
        if self.framing == StreamFraming::Broken {
            produced = Produced::Failed;
        }
        (produced, self.written_bytes != before)
    }

    /// Gives the request's body to its sink; answers how much of the input that took.
    fn pump<H: Handler>(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        input: &[u8],
        ended: bool,
    ) -> Result<usize, Aborted> {
        let Some(upload) = &mut self.upload else {
            return Ok(0);
        };
        let (consumed, pumped) = upload.pump(&mut cx.wakeups, cx.now.monotonic, input);
        match pumped {
            Pumped::Done(trailers) => {
                if let Some(upload) = self.upload.take() {
                    self.late = Some(upload.end_beside(&trailers));
                }
            }
            // The answer goes on, to whoever may still read.
            Pumped::NeedsInput if ended && consumed == 0 => {
                self.late = self.upload.take().map(|upload| upload.break_off());
            }
            Pumped::NeedsInput | Pumped::NotReady => {}
            Pumped::Malformed(_) | Pumped::Refused(_) => return Err(Aborted),
        }
        Ok(consumed)
    }
}

/// The exchange can't be completed.
struct Aborted;

impl<H: Handler> HttpSession<H> {
    /// Has the source append as long as there is room, and the sink of the request's body, if there
    /// is one, take what came.
    pub(super) fn stream(
        &mut self,
        cx: &mut SessionContext<'_, HttpLocal<H>>,
        input: &[u8],
        ended: bool,
    ) -> Step {
        let stopping = self.stopping;
        let Phase::Stream(streaming) = &mut self.phase else {
            return Step::NeedsInput;
        };
        streaming.peer_ended |= ended;
        match streaming.pump(cx, input, ended) {
            Ok(0) => {}
            Ok(consumed) => return Step::Consumed(consumed),
            Err(Aborted) => return self.abort_stream(cx),
        }
        for round in 1_u32.. {
            if cx.output.is_full() {
                if let Some(upload) = &mut streaming.upload {
                    upload.pause(cx.now.monotonic);
                }
                self.deadline = Instant::FAR;
                return Step::Flush;
            }
            match streaming.produce(cx, stopping) {
                (Produced::More, true) if round < PRODUCE_MAX => {}
                (Produced::More, _) => {
                    // It makes little or nothing at a time: others have their turn first.
                    cx.wakeups.notifier().notify();
                    self.deadline = Instant::FAR;
                    return Step::Wait;
                }
                (Produced::Pending, _) => {
                    self.deadline = self.stream_deadline(cx);
                    return Step::Wait;
                }
                (Produced::Failed, _) => return self.abort_stream(cx),
                (Produced::End, _) => return self.finish_stream(cx),
            }
        }
        Step::Wait
    }

    /// When a stream is to be looked after: its source wants to be asked, or the body that comes
    /// beside it must have come.
    fn stream_deadline(&self, cx: &SessionContext<'_, HttpLocal<H>>) -> Instant {
        let Phase::Stream(streaming) = &self.phase else {
            return Instant::FAR;
        };
        let wake_at = streaming.source.wake_at().unwrap_or(Instant::FAR);
        let soonest = cx.now.monotonic + WAKE_MIN;
        let body = streaming.upload.as_ref().map_or(Instant::FAR, |upload| {
            upload.deadline(&cx.local.shared.config.timeouts)
        });
        wake_at.max(soonest).min(body)
    }

    /// The source wants to be asked again, or the body beside it is late.
    pub(super) fn expire_stream(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>) -> Step {
        let Phase::Stream(streaming) = &mut self.phase else {
            return Step::Over;
        };
        let timeouts = &cx.local.shared.config.timeouts;
        if let Some(upload) = &streaming.upload
            && upload.deadline(timeouts) <= cx.now.monotonic
        {
            return self.abort_stream(cx);
        }
        self.deadline = Instant::FAR;
        self.stream(cx, &[], false)
    }

    /// The body of the answer is complete.
    fn finish_stream(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>) -> Step {
        self.deadline = Instant::FAR;
        let Phase::Stream(streaming) = mem::replace(&mut self.phase, Phase::Over) else {
            return Step::Over;
        };
        self.log_stream(cx, &streaming);
        let Streaming {
            framing,
            upload,
            late,
            ..
        } = *streaming;
        if framing == StreamFraming::Close {
            return Step::Over;
        }
        match (upload, late) {
            (Some(upload), _) => self.phase = Phase::Receive(upload),
            (None, Some(late)) => self.go_on(cx, late.persistence(), late.framer.framing),
            (None, None) => {}
        }
        Step::Consumed(0)
    }

    /// The body of the answer can't be completed. What was sent of it is logged.
    fn abort_stream(&mut self, cx: &mut SessionContext<'_, HttpLocal<H>>) -> Step {
        self.deadline = Instant::FAR;
        if let Phase::Stream(streaming) = mem::replace(&mut self.phase, Phase::Over) {
            self.log_stream(cx, &streaming);
        }
        Step::Abort
    }

    fn log_stream(&self, cx: &mut SessionContext<'_, HttpLocal<H>>, streaming: &Streaming) {
        let upload = streaming.upload.as_deref().map(Receiving::late);
        if let Some(Late { kept, .. }) = streaming.late.as_ref().or(upload) {
            let logged = Logged::Kept(kept);
            cx.local
                .log(self.peer, logged, streaming.status, streaming.written_bytes);
        }
    }
}
