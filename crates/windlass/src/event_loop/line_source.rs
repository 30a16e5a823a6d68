//! Line sources: text lines from a terminal, a pipe or a file.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use windlass_core::{Disposition, EventId, Happened, Readiness};
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
    lines: Lines,
}

/// How much is read at once.
const READ_BYTES: usize = 4096;

impl<T: AsFd, F> LineHandler<T, F> {
    /// Reads once: the descriptor may be blocking (a terminal shared with other programs), and
    /// only the first read after the report is sure to return.
    fn read(&mut self) {
        let mut buf = [0; READ_BYTES];
        match fd::read(self.source.as_fd(), &mut buf) {
            Ok(None) => {}
            Ok(Some(0)) => self.lines.ended = true,
            Ok(Some(count)) => self.lines.bytes.extend_from_slice(&buf[..count]),
            // A terminal that hung up, a reset: the lines are at their end.
            Err(_) => self.lines.ended = true,
        }
    }
}

impl<'l, S, T, F> EventHandler<'l, S> for LineHandler<T, F>
where
    S: 'l,
    T: AsFd,
    F: FnMut(&mut S, &mut Context<'_, 'l, S>, Option<&str>) -> Disposition,
{
    fn handle_event(
        &mut self,
        state: &mut S,
        cx: &mut Context<'_, 'l, S>,
        happened: Happened,
    ) -> Disposition {
        // Without a report, as when it goes on after a stop, a read might block.
        if !happened.readiness.is_none() && !self.lines.has_more() {
            self.read();
        }
        let mut answer = Disposition::Keep;
        while let Some(range) = self.lines.next() {
            let line = String::from_utf8_lossy(&self.lines.bytes[range]);
            match (self.handle)(state, cx, Some(&line)) {
                Disposition::Keep => {}
                Disposition::Rearm => answer = Disposition::Rearm,
                last => return last,
            }
            if !cx.may_go_on() {
                return cx.go_on_later(self.lines.has_more(), answer);
            }
        }
        if self.lines.ended {
            (self.handle)(state, cx, None);
            return Disposition::Remove;
        }
        answer
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.as_fd())
    }

    fn has_more(&self) -> bool {
        self.lines.has_more()
    }
}

impl<'l, S: 'l> Context<'_, 'l, S> {
    /// Whether the running handler may be told more at once: its event still waits, and nobody
    /// asked for the end of the run.
    fn may_go_on(&self) -> bool {
        let state = self.engine.state(self.event());
        state.is_some_and(|state| state.pending)
            && !self.engine.exit_asked()
            && !self.engine.break_asked()
    }

    /// Has the handler called again for what is left, unless it was disabled or removed.
    fn go_on_later(&mut self, is_left: bool, answer: Disposition) -> Disposition {
        let event = self.event();
        let state = self.engine.state(event);
        if is_left && state.is_some_and(|state| state.pending) {
            // It exists.
            let _ = self.engine.activate_event(event, Readiness::NONE, 1);
        }
        answer
    }
}

/// What was read and not told yet.
#[derive(Debug)]
struct Lines {
    bytes: Vec<u8>,
    /// Where the next line starts in `bytes`.
    start: usize,
    /// Up to where `bytes` is known to have no line end from `start` on.
    searched: usize,
    line_bytes_max: usize,
    /// Nothing more will be read.
    ended: bool,
}

impl Lines {
    fn new(line_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            line_bytes_max,
            ended: false,
        }
    }

    /// Whether there is something to tell without reading.
    fn has_more(&self) -> bool {
        self.ended || self.find_end().is_some() || self.is_too_long(&self.bytes[self.start..])
    }

    /// Where the next line's end is, from `start`.
    fn find_end(&self) -> Option<usize> {
        let from = self.searched.max(self.start);
        let end = self.bytes[from..].iter().position(|&byte| byte == b'\n')?;
        Some(from + end - self.start)
    }

    /// A full line and its line end, CR LF, have room.
    fn is_too_long(&self, rest: &[u8]) -> bool {
        rest.len() > self.line_bytes_max.saturating_add(2)
    }

    /// Where the next line is in `bytes`, or a piece of one that is too long.
    fn next(&mut self) -> Option<Range<usize>> {
        let rest = &self.bytes[self.start..];
        let (line, used) = match self.find_end() {
            Some(at) => (&rest[..at], at + 1),
            None if self.is_too_long(rest) || self.ended && !rest.is_empty() => (rest, rest.len()),
            None => {
                self.searched = self.bytes.len();
                self.forget_told();
                return None;
            }
        };
        let whole = line.strip_suffix(b"\r").unwrap_or(line);
        let (length, used) = if whole.len() > self.line_bytes_max {
            let length = piece_length(whole, self.line_bytes_max);
            (length, length)
        } else {
            (whole.len(), used)
        };
        let start = self.start;
        self.start += used;
        Some(start..start + length)
    }

    fn forget_told(&mut self) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
    }
}

/// The length of a piece of at most `max` bytes that cuts no character in two.
fn piece_length(bytes: &[u8], max: usize) -> usize {
    // A character has at most four bytes; those after the first are 10xxxxxx.
    let is_start = |at: &usize| bytes[*at] & 0xc0 != 0x80;
    (max.saturating_sub(3)..=max)
        .rev()
        .find(is_start)
        .filter(|&length| length > 0)
        .unwrap_or(max)
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
    /// Lines that were read already wait when the event is disabled, or the loop stopped, by the
    /// one before them: for its being enabled, or for the next run.
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
        let handler = Box::new(LineHandler {
            source,
            handle,
            lines: Lines::new(line_bytes_max),
        });
        self.register_handler(handler, IoOptions::default())
            .map_err(|error| error.map(drop))
    }
}
