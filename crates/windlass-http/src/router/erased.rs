//! Handlers of any type side by side, each with its own part of a driver thread.

use std::any::Any;

use crate::handler::Handler;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::ResponseError;

/// A handler whose type is forgotten. `L` is what the handlers of a thread share.
pub(super) trait Erased<L>: Send + Sync {
    /// Makes the part of one driver thread.
    fn local(&self) -> Box<dyn Any + Send>;

    /// Answers one request; `own` was made by [`Self::local`].
    fn handle(
        &self,
        shared: &mut L,
        own: &mut (dyn Any + Send),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError>;
}

/// A [`Handler`].
pub(super) struct Own<H>(pub(super) H);

impl<L, H: Handler> Erased<L> for Own<H> {
    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(self.0.local())
    }

    fn handle(
        &self,
        _shared: &mut L,
        own: &mut (dyn Any + Send),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let own = own
            .downcast_mut()
            .expect("a handler is given what it made itself");
        self.0.handle(own, request, response)
    }
}

/// A function that uses what the handlers of a thread share.
pub(super) struct Sharing<F>(pub(super) F);

impl<L, F> Erased<L> for Sharing<F>
where
    F: Fn(&mut L, &Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync,
{
    fn local(&self) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn handle(
        &self,
        shared: &mut L,
        _own: &mut (dyn Any + Send),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        self.0(shared, request, response)
    }
}
