//! Line sources: text lines from a terminal, a pipe or a file.

use std::os::fd::{AsFd, BorrowedFd};

use windlass_core::{Disposition, EventId, Happened};
use windlass_sys::fd;

use crate::event_loop::context::Context;
use crate::event_loop::error::RegisterError;
use crate::event_loop::handler::EventHandler;
use crate::event_loop::io_source::IoOptions;
use crate::event_loop::reactor::Reactor;

/// Gathers lines from a descriptor.
struct LineHandler<T, F> {
    source: T,
    handle: F,
    /// The line that is not complete yet.
    partial: Vec<u8>,
    line_bytes_max: usize,
}

/// How much is read at once.
const READ_BYTES: usize = 4096;

impl<T, F> LineHandler<T, F> {
    /// Calls the closure for the end of the line gathered so far.
    fn emit<'l, S>(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        rest: &[u8],
    ) -> Disposition
    where
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, Option<&str>) -> Disposition,
    {
        let handle = &mut self.handle;
        let line = if self.partial.is_empty() {
            rest
        } else {
            self.partial.extend_from_slice(rest);
            &self.partial
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let answer = handle(state, cx, Some(&String::from_utf8_lossy(line)));
        self.partial.clear();
        answer
    }
}

impl<'l, S, T, F> EventHandler<'l, S> for LineHandler<T, F>
where
    T: AsFd,
    F: FnMut(&mut S, &mut Context<'_, 'l, S>, Option<&str>) -> Disposition,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        _happened: Happened,
    ) -> Disposition {
        let mut buf = [0; READ_BYTES];
        // One read: the descriptor may be blocking (a terminal shared with other programs), and
        // only the first read after the report is sure to return.
        let count = match fd::read(self.source.as_fd(), &mut buf) {
            Ok(Some(count)) => count,
            Ok(None) => return Disposition::Keep,
            // A terminal that hung up, a reset: the lines are at their end.
            Err(_) => 0,
        };
        if count == 0 {
            if !self.partial.is_empty() {
                let _ = self.emit(state, cx, &[]);
            }
            (self.handle)(state, cx, None);
            return Disposition::Remove;
        }
        let mut rest = &buf[..count];
        while let Some(at) = rest.iter().position(|&byte| byte == b'\n') {
            let answer = self.emit(state, cx, &rest[..at]);
            rest = &rest[at + 1..];
            if answer != Disposition::Keep {
                self.partial.extend_from_slice(rest);
                return answer;
            }
        }
        if self.partial.len() + rest.len() >= self.line_bytes_max {
            return self.emit(state, cx, rest);
        }
        self.partial.extend_from_slice(rest);
        Disposition::Keep
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.as_fd())
    }
}

impl<'l, S: 'l> Reactor<'l, S> {
    /// Calls `handle` with each line that can be read from `source`, without its line end, and
    /// once with `None` at the end of the input; then the event is gone.
    ///
    /// Works on terminals, pipes, sockets, and regular files (`program < file`), blocking or not.
    /// The descriptor's flags are left alone, as it may be shared with other programs. A last line
    /// without line end counts. Bytes that are not UTF-8 are replaced. A line longer than
    /// [`line_bytes_max`](super::LoopConfig::line_bytes_max) comes in pieces. What std has
    /// buffered of its standard input already is not seen.
    ///
    /// # Errors
    ///
    /// As [`watch`](Self::watch).
    #[track_caller]
    pub fn on_line<T, F>(&mut self, source: T, handle: F) -> Result<EventId, RegisterError>
    where
        T: AsFd + 'l,
        F: FnMut(&mut S, &mut Context<'_, 'l, S>, Option<&str>) -> Disposition + 'l,
    {
        let line_bytes_max = self.config.line_bytes_max.max(1);
        let partial = Vec::new();
        let handler = Box::new(LineHandler {
            source,
            handle,
            partial,
            line_bytes_max,
        });
        self.register_handler(handler, IoOptions::default())
            .map_err(|error| error.map(drop))
    }
}
