//! The bytes of an exchange: the request goes out, piece by piece, the response comes in.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use windlass::event_loop::Context;
use windlass::session::Input;

use super::{Exchanged, Link};
use crate::client::connection::{ClientNext, ClientProgress, Reuse};
use crate::client::error::{ClientErrorKind, ResponseFault};
use crate::client::request::Pulled;
use crate::client::sink::{Sink, Stop};

/// The buffer that connections read into.
const READ_BYTES: usize = 64 * 1024;
/// Reads in one call: others must have their turn.
const READS_MAX: usize = 16;
/// Pieces of a request's body in one call.
const PULLS_MAX: usize = 64;

impl<'l, S: 'l> Link<'l, S> {
    /// Writes and reads what can be.
    pub(super) fn transfer(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>) -> Exchanged {
        if let Err(kind) = self.write(cx) {
            self.fail(cx, kind);
            return Exchanged::Closed;
        }
        if self.paused {
            return Exchanged::Waits;
        }
        if (!self.carry.is_empty() || self.input_ended || self.protocol.has_response_begun())
            && let Some(exchanged) = self.take_input(state, cx, &[])
        {
            return exchanged;
        }
        let mut buf = self.core.scratch.take();
        buf.resize(READ_BYTES, 0);
        let exchanged = self.read(state, cx, &mut buf);
        self.core.scratch.set(buf);
        exchanged
    }

    fn read(&mut self, state: &mut S, cx: &mut Context<'_, 'l, S>, buf: &mut [u8]) -> Exchanged {
        for _ in 0..READS_MAX {
            let count = match self.transport.read(buf) {
                Ok(None) => return Exchanged::Waits,
                Ok(Some(count)) => count,
                Err(error) => {
                    let error = self.write_error.take().unwrap_or(error);
                    self.lose(cx, error.into_kind());
                    return Exchanged::Closed;
                }
            };
            self.input_ended |= count == 0;
            self.active_at = cx.now();
            if let Some(exchanged) = self.take_input(state, cx, &buf[..count]) {
                return exchanged;
            }
        }
        // TLS may have taken more from the socket than was read here: nobody reports that.
        let event = cx.event();
        let _ = cx.activate(event, 1);
        Exchanged::Waits
    }

    /// Gives what was left and `fresh` to the protocol; answers nothing if it needs more.
    fn take_input(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        fresh: &[u8],
    ) -> Option<Exchanged> {
        let exchange = self.exchange.as_mut()?;
        let id = exchange.id;
        let mut sink = Sink {
            core: &self.core,
            state,
            cx,
            exchange,
            status: None,
            stop: None,
        };
        let ended = self.input_ended;
        let result = if self.carry.is_empty() {
            let input = Input {
                bytes: fresh,
                ended,
            };
            let result = self.protocol.advance(input, &mut sink);
            if let Ok(progress) = result {
                self.carry.extend_from_slice(&fresh[progress.consumed..]);
            }
            result
        } else {
            self.carry.extend_from_slice(fresh);
            let input = Input {
                bytes: &self.carry,
                ended,
            };
            let result = self.protocol.advance(input, &mut sink);
            if let Ok(progress) = result {
                self.carry.drain(..progress.consumed);
            }
            result
        };
        let Sink { status, stop, .. } = sink;
        if status.is_some_and(|status| status.code() >= 300) && self.protocol.is_uploading() {
            // The rest of the body is of no interest to this server (RFC 9112 section 9.5).
            self.source = None;
        }
        match stop {
            None => self.take_progress(cx, result),
            Some(Stop::Enough) => Some(self.complete(cx, Reuse::Close)),
            Some(Stop::Gone) => Some(Exchanged::Closed),
            Some(Stop::Panicked(panic)) => {
                let core = Rc::clone(&self.core);
                core.cancel(cx, id);
                resume_unwind(panic)
            }
        }
    }

    fn take_progress(
        &mut self,
        cx: &mut Context<'_, 'l, S>,
        result: Result<ClientProgress, ResponseFault>,
    ) -> Option<Exchanged> {
        let next = match result {
            Ok(progress) => progress.next,
            Err(fault @ (ResponseFault::Closed | ResponseFault::Truncated)) => {
                let kind = match self.write_error.take() {
                    Some(error) => error.into_kind(),
                    None => ClientErrorKind::Response(fault),
                };
                self.lose(cx, kind);
                return Some(Exchanged::Closed);
            }
            Err(fault) => {
                self.fail(cx, ClientErrorKind::Response(fault));
                return Some(Exchanged::Closed);
            }
        };
        match next {
            ClientNext::Done(reuse) => Some(self.complete(cx, reuse)),
            ClientNext::Paused => {
                self.paused = true;
                Some(Exchanged::Waits)
            }
            ClientNext::Read => None,
            ClientNext::Tunnel => {
                // CONNECT is not sent.
                self.fail(cx, ClientErrorKind::Response(ResponseFault::Upgrade));
                Some(Exchanged::Closed)
            }
        }
    }

    /// Writes what is queued, and has the source make more of it while there is little.
    fn write(&mut self, cx: &mut Context<'_, 'l, S>) -> Result<(), ClientErrorKind> {
        for _ in 0..PULLS_MAX {
            self.flush(cx);
            if self.source.is_none() || self.source_waits || !self.output.is_low() {
                return Ok(());
            }
            self.pull(cx)?;
        }
        self.flush(cx);
        Ok(())
    }

    fn flush(&mut self, cx: &mut Context<'_, 'l, S>) {
        let has_output = !self.output.is_empty() || self.transport.wants_write();
        if self.write_error.is_some() || !has_output {
            return;
        }
        match self.transport.write(&mut self.output) {
            Ok(0) => {}
            Ok(_) => self.active_at = cx.now(),
            Err(error) => {
                // A server that answers early and closes resets what still comes; its answer may
                // be there to be read.
                self.write_error = Some(error);
                self.output.clear();
                self.source = None;
            }
        }
    }

    /// Takes one piece from the source.
    fn pull(&mut self, cx: &mut Context<'_, 'l, S>) -> Result<(), ClientErrorKind> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        let mut piece = std::mem::take(&mut self.piece);
        piece.clear();
        // Unwind safety: after a panic the request is gone, with its source.
        let pulled = catch_unwind(AssertUnwindSafe(|| source.pull(&mut piece)));
        let pulled = match pulled {
            Ok(pulled) => pulled.map_err(ClientErrorKind::UploadSource)?,
            Err(panic) => {
                if let Some(exchange) = &self.exchange {
                    let (core, id) = (Rc::clone(&self.core), exchange.id);
                    core.cancel(cx, id);
                }
                resume_unwind(panic)
            }
        };
        let pushed = self.protocol.push_body(&piece, &mut self.output);
        let pushed = pushed.and_then(|()| match pulled {
            Pulled::End => self.protocol.end_body(&mut self.output),
            Pulled::More | Pulled::Pending => Ok(()),
        });
        pushed.map_err(|error| ClientErrorKind::UploadSource(Box::new(error)))?;
        self.source_waits =
            pulled == Pulled::Pending || (pulled == Pulled::More && piece.is_empty());
        if pulled == Pulled::End {
            self.source = None;
        }
        self.piece = piece;
        Ok(())
    }
}
