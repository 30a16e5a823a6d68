//! The client on an event loop: what a program calls.

use std::fmt;
use std::os::fd::AsFd;
use std::rc::Rc;

use http::HeaderMap;
use windlass::event_loop::{Context, Reactor};
use windlass::pool::WorkerPool;
use windlass_sys::net;

use crate::client::config::ClientConfig;
use crate::client::connection::Flow;
use crate::client::core::{Core, Receiver};
use crate::client::error::ClientError;
use crate::client::exchange::Delivery;
use crate::client::head::ResponseHead;
use crate::client::request::ClientRequest;
use crate::client::response::ClientResponse;

/// A handle of a client; clones are handles of the same one. It belongs to one event loop, in whose
/// calls it is handed the loop: all of them take the [`Context`] of a handler, or the event loop
/// itself before it runs.
///
/// Dropping the last handle closes the connections that are kept; requests that run go on, and
/// their handlers are called.
///
/// ```no_run
/// use windlass::event_loop::EventLoop;
/// use windlass::pool::{PoolConfig, WorkerPool};
/// use windlass_http::client::{ClientConfig, HttpClient};
///
/// let pool = WorkerPool::new(PoolConfig::default())?;
/// let client = HttpClient::new(ClientConfig::default(), pool);
/// let mut event_loop = EventLoop::<Vec<u8>>::new()?;
/// client.get(&mut event_loop, "http://example.com/", |page: &mut Vec<u8>, _cx, result| {
///     match result {
///         Ok(response) => page.extend_from_slice(&response.body),
///         Err(error) => page.extend_from_slice(error.to_string().as_bytes()),
///     }
/// })?;
/// let mut page = Vec::new();
/// event_loop.run(&mut page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HttpClient<'l, S> {
    handle: Rc<Handle<'l, S>>,
}

/// A request that was sent. Ids are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) u64);

/// Takes a response piece by piece, in the loop. Must not block.
pub trait ResponseHandler<'l, S> {
    /// The head of the final response; heads of redirects that are followed are not shown.
    fn head(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>, head: &ResponseHead<'_>)
    -> Flow;

    /// The next bytes of the body, never empty. After [`Flow::Pause`] nothing more is read from the
    /// connection until [`HttpClient::resume`]; no time-out runs meanwhile but that of the whole
    /// request.
    fn body(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>, piece: &[u8]) -> Flow;

    /// The end: the trailers, or why it is no good end. Called last, and exactly once.
    fn end(
        self: Box<Self>,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        result: Result<HeaderMap, ClientError>,
    );
}

impl<'l, S: 'l> HttpClient<'l, S> {
    /// Makes a client. Host names are resolved by jobs in `pool`.
    #[must_use]
    pub fn new(config: ClientConfig, pool: WorkerPool) -> Self {
        let core = Rc::new(Core::new(config, pool));
        Self {
            handle: Rc::new(Handle { core }),
        }
    }

    /// Asks for `url` with `GET`, and calls `done` with the collected response.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and if `url` cannot be asked.
    pub fn get<F>(
        &self,
        cx: &mut Reactor<'l, S>,
        url: &str,
        done: F,
    ) -> Result<RequestId, ClientError>
    where
        F: FnOnce(&mut S, &mut Context<'_, 'l, S>, Result<ClientResponse, ClientError>) + 'l,
    {
        self.send(cx, ClientRequest::get(url)?, done)
    }

    /// Sends `request`, and calls `done`, in a turn to come, with the response or with why there is
    /// none. A status of 400 or more is a response. The body is collected, up to
    /// [`ClientConfig::collected_bytes_max`].
    ///
    /// # Errors
    ///
    /// [`Busy`](super::ClientErrorKind::Busy), [`Loop`](super::ClientErrorKind::Loop), or
    /// [`Request`](super::ClientErrorKind::Request) for `CONNECT`. Then `done` is dropped.
    pub fn send<F>(
        &self,
        cx: &mut Reactor<'l, S>,
        request: ClientRequest<'l>,
        done: F,
    ) -> Result<RequestId, ClientError>
    where
        F: FnOnce(&mut S, &mut Context<'_, 'l, S>, Result<ClientResponse, ClientError>) + 'l,
    {
        let receiver = Receiver::Collected(Box::new(done));
        self.core()
            .submit(cx, request, receiver, Delivery::Collected)
    }

    /// Sends `request`, and gives the response to `handler` as it comes.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn stream<H>(
        &self,
        cx: &mut Reactor<'l, S>,
        request: ClientRequest<'l>,
        handler: H,
    ) -> Result<RequestId, ClientError>
    where
        H: ResponseHandler<'l, S> + 'l,
    {
        let receiver = Receiver::Streamed(Box::new(handler));
        self.core()
            .submit(cx, request, receiver, Delivery::Streamed)
    }

    /// Lets a request go on: a response that its handler paused, and a body whose source had
    /// nothing. Answers whether there is such a request on a connection.
    pub fn resume(&self, cx: &mut Reactor<'l, S>, id: RequestId) -> bool {
        self.core().resume(cx, id)
    }

    /// Cancels a request: its handler is dropped uncalled, its connection is closed. Answers
    /// whether there was such a request. From everywhere, also from the request's own handler.
    pub fn cancel(&self, cx: &mut Reactor<'l, S>, id: RequestId) -> bool {
        self.core().cancel(cx, id)
    }

    /// Closes the connections that are kept without a request.
    pub fn close_idle(&self, cx: &mut Reactor<'l, S>) {
        self.core().close_idle(cx);
    }

    /// How many requests have neither been answered nor cancelled.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.core().pending_count()
    }

    /// How many connections are kept without a request.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.core().idle_count()
    }

    fn core(&self) -> &Rc<Core<'l, S>> {
        &self.handle.core
    }
}

impl<S> Clone for HttpClient<'_, S> {
    fn clone(&self) -> Self {
        Self {
            handle: Rc::clone(&self.handle),
        }
    }
}

impl<S> fmt::Debug for HttpClient<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// What all handles of a client own together: that connections are kept.
struct Handle<'l, S> {
    core: Rc<Core<'l, S>>,
}

impl<S> Drop for Handle<'_, S> {
    fn drop(&mut self) {
        // The loop is not at hand, but it sees the end that follows this.
        for slot in self.core.close() {
            // One that is not connected any more ends by itself.
            let _ = net::shutdown_write(slot.socket.as_fd());
        }
    }
}
