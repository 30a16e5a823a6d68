//! Who answers requests.

use crate::method::Methods;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::ResponseError;

/// Answers requests. One is shared by all threads of a server.
///
/// Called on the driver's thread, which must not block: work that blocks or takes long is handed
/// out with [`Responder::job`]. Every `Fn(&Request, Responder) -> Result<Answered, ResponseError>`
/// is a handler.
pub trait Handler: Send + Sync + 'static {
    /// What the handler keeps for each driver thread: a cache, scratch memory.
    type Local: Send;

    /// Makes the part of one driver thread.
    fn local(&self) -> Self::Local;

    /// The methods that this handler serves; all others are answered `405` for it, with an
    /// `Allow` header. `CONNECT` never reaches a handler.
    fn methods(&self) -> Methods {
        Methods::GET_HEAD
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// If the answer was not valid; it becomes `500`.
    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError>;
}

impl<F> Handler for F
where
    F: Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static,
{
    type Local = ();

    fn local(&self) -> Self::Local {}

    fn handle(
        &self,
        (): &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        self(request, response)
    }
}
