//! The rest of a body that nobody wants: parsed and dropped, so that the next request is never
//! built from its bytes.

use windlass::Instant;
use windlass::session::{Now, SessionContext};

use super::{HttpSession, Phase, Step, body_deadline};
use crate::body::{BodyDecoder, Framing};
use crate::config::HttpConfig;
use crate::handler::Handler;
use crate::service::HttpLocal;

/// A body that is dropped.
#[derive(Debug)]
pub(super) struct Drain {
    decoder: BodyDecoder,
    started: Instant,
    received_bytes: u64,
}

impl Drain {
    pub(super) fn new(framing: Framing, config: &HttpConfig, now: Now) -> Self {
        Self {
            decoder: BodyDecoder::new(framing, config.limits.head_bytes),
            started: now.monotonic,
            received_bytes: 0,
        }
    }
}

impl<H: Handler> HttpSession<H> {
    /// Drops what is there of a body.
    pub(super) fn drain(&mut self, cx: &SessionContext<'_, HttpLocal<H>>, input: &[u8]) -> Step {
        let HttpConfig {
            limits, timeouts, ..
        } = &cx.local.shared.config;
        let Phase::Drain(drain) = &mut self.phase else {
            return Step::NeedsInput;
        };
        // The request was answered: an error in its body can only end the connection.
        let Ok(decoded) = drain.decoder.decode(input) else {
            return Step::Over;
        };
        drain.received_bytes += decoded.data.len() as u64;
        if drain.received_bytes > limits.drain_bytes {
            return Step::Over;
        }
        if decoded.done {
            self.phase = Phase::Head;
            self.deadline = Instant::FAR;
            return Step::Consumed(decoded.consumed);
        }
        if decoded.consumed == 0 {
            self.deadline = body_deadline(drain.started, drain.received_bytes, timeouts);
            return Step::NeedsInput;
        }
        Step::Consumed(decoded.consumed)
    }
}
