//! Bodies of requests on their way to a handler: piece by piece, with back-pressure.
//!
//! A handler that wants the body of a request says so by its [`Responder`]:
//! [`collect`](Responder::collect) for the whole in memory, [`receive`](Responder::receive) for
//! pieces and an answer at the end, [`upload`](Responder::upload) for pieces while the answer is
//! given already. What no handler wants is dropped, within a limit.

use std::fmt;

use bytes::Bytes;
use windlass::session::Notifier;
use windlass::session::Wakeups;

use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::trailers::Trailers;

/// Takes the body of a request. Dropped without a call of [`end`](Self::end) if the body breaks
/// off, breaks the grammar, or exceeds a limit.
pub trait BodySink: Send + 'static {
    /// Whether another piece may be given. If not, the sink takes the notifier and uses it when it
    /// is ready again; meanwhile no more is read from the client than the driver's limit.
    fn is_ready(&mut self, _notify: &mut Notify<'_, '_>) -> bool {
        true
    }

    /// Takes the next piece; never an empty one.
    ///
    /// # Errors
    ///
    /// An answer in place of the one that the whole body would have had. The connection ends after
    /// it. If the answer was begun already, the connection is reset instead.
    fn data(&mut self, piece: &[u8]) -> Result<(), Response>;

    /// The body is complete.
    fn end(&mut self, _trailers: &Trailers) {}
}

/// Where a sink or a source gets the notifier of its connection.
#[derive(Debug)]
pub struct Notify<'a, 'b>(pub(crate) &'a mut Wakeups<'b>);

impl Notify<'_, '_> {
    /// The connection's notifier: using it, from any thread, has the sink or the source asked again.
    #[must_use]
    pub fn notifier(&mut self) -> Notifier {
        self.0.notifier()
    }
}

/// What a session does with a body that is wanted.
pub(crate) enum Taker {
    /// Gives it to a sink that makes the answer.
    Answering(Box<dyn AnsweringSink>),
    /// Gives it to a sink beside the answer.
    Beside(Box<dyn BodySink>),
}

impl Taker {
    pub(crate) fn sink(&mut self) -> &mut dyn BodySink {
        match self {
            Self::Answering(sink) => sink.sink(),
            Self::Beside(sink) => &mut **sink,
        }
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answering(_) => "Answering",
            Self::Beside(_) => "Beside",
        })
    }
}

/// A sink with what makes the answer of it.
pub(crate) trait AnsweringSink: Send {
    fn sink(&mut self) -> &mut dyn BodySink;

    fn answer(
        self: Box<Self>,
        trailers: &Trailers,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError>;
}

pub(crate) struct WithAnswer<S, F> {
    pub(crate) sink: S,
    pub(crate) answer: F,
}

impl<S, F> AnsweringSink for WithAnswer<S, F>
where
    S: BodySink,
    F: FnOnce(S, &Trailers, Responder<'_>) -> Result<Answered, ResponseError> + Send,
{
    fn sink(&mut self) -> &mut dyn BodySink {
        &mut self.sink
    }

    fn answer(
        self: Box<Self>,
        trailers: &Trailers,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        (self.answer)(self.sink, trailers, response)
    }
}

/// Gathers a body in memory.
#[derive(Debug, Default)]
pub(crate) struct Collected(Vec<u8>);

impl Collected {
    pub(crate) fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

impl BodySink for Collected {
    fn data(&mut self, piece: &[u8]) -> Result<(), Response> {
        self.0.extend_from_slice(piece);
        Ok(())
    }
}
