//! Where the parts of a response go: collected, handed on, or dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use http::HeaderMap;
use windlass::event_loop::Context;

use crate::client::connection::{Flow, ResponseSink};
use crate::client::core::Core;
use crate::client::driver::ResponseHandler;
use crate::client::exchange::{Delivery, Exchange, Incoming};
use crate::client::head::ResponseHead;
use crate::client::response::{append, owned_headers};
use crate::status::Status;

/// The part of a redirect's body that is read and dropped to keep the connection.
const REDIRECT_BODY_BYTES_MAX: usize = 64 * 1024;

/// Takes the response of one exchange during one call.
pub(super) struct Sink<'a, 'c, 'l, S> {
    pub(super) core: &'a Rc<Core<'l, S>>,
    pub(super) state: &'a mut S,
    pub(super) cx: &'a mut Context<'c, 'l, S>,
    pub(super) exchange: &'a mut Exchange<'l>,
    /// The status, if the head came in this call.
    pub(super) status: Option<Status>,
    pub(super) stop: Option<Stop>,
}

/// Why a sink takes no more.
pub(super) enum Stop {
    /// The rest of a redirect's body is not worth reading.
    Enough,
    /// The request was cancelled.
    Gone,
    /// The program's handler panicked.
    Panicked(Box<dyn Any + Send>),
}

impl<'l, S: 'l> Sink<'_, '_, 'l, S> {
    /// Calls the program's handler; it is not in the table meanwhile.
    fn call(
        &mut self,
        call: impl FnOnce(
            &mut (dyn ResponseHandler<'l, S> + 'l),
            &mut S,
            &mut Context<'_, 'l, S>,
        ) -> Flow,
    ) -> Flow {
        let id = self.exchange.id;
        let Some(mut handler) = self.core.borrow_handler(id) else {
            self.stop = Some(Stop::Gone);
            return Flow::Pause;
        };
        // Unwind safety: after a panic the handler is dropped, and the panic goes on.
        let called = catch_unwind(AssertUnwindSafe(|| {
            call(&mut *handler, self.state, self.cx)
        }));
        match called {
            Ok(flow) if self.core.return_handler(id, handler) => flow,
            Ok(_) => {
                self.stop = Some(Stop::Gone);
                Flow::Pause
            }
            Err(panic) => {
                self.stop = Some(Stop::Panicked(panic));
                Flow::Pause
            }
        }
    }
}

impl<'l, S: 'l> ResponseSink for Sink<'_, '_, 'l, S> {
    fn head(&mut self, head: &ResponseHead<'_>) -> Flow {
        let status = head.status();
        self.status = Some(status);
        if self
            .exchange
            .follows(status, self.core.config.redirects_max)
            && let Some(location) = head.header("location")
        {
            self.exchange.incoming = Incoming::Redirect {
                status,
                location: location.to_vec(),
                body_bytes: 0,
            };
            return Flow::Continue;
        }
        match self.exchange.delivery {
            Delivery::Collected => {
                // Grows as the body comes: what is announced is not believed.
                self.exchange.incoming = Incoming::Collected {
                    status,
                    version: head.version(),
                    headers: owned_headers(head),
                    body: Vec::new(),
                    trailers: HeaderMap::new(),
                };
                Flow::Continue
            }
            Delivery::Streamed => {
                let trailers = HeaderMap::new();
                self.exchange.incoming = Incoming::Streamed { trailers };
                self.call(|handler, state, cx| handler.head(state, cx, head))
            }
        }
    }

    fn body(&mut self, piece: &[u8]) -> Flow {
        match &mut self.exchange.incoming {
            Incoming::Awaited => Flow::Continue,
            Incoming::Collected { body, .. } => {
                body.extend_from_slice(piece);
                Flow::Continue
            }
            Incoming::Redirect { body_bytes, .. } => {
                *body_bytes += piece.len();
                if *body_bytes <= REDIRECT_BODY_BYTES_MAX {
                    return Flow::Continue;
                }
                self.stop = Some(Stop::Enough);
                Flow::Pause
            }
            Incoming::Streamed { .. } => {
                self.call(|handler, state, cx| handler.body(state, cx, piece))
            }
        }
    }

    fn trailer(&mut self, name: &str, value: &[u8]) {
        if let Incoming::Collected { trailers, .. } | Incoming::Streamed { trailers } =
            &mut self.exchange.incoming
        {
            append(trailers, name, value);
        }
    }
}
