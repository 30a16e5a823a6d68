//! Bytes that pass by operations of a proactor: received into buffers of a pool, sent from buffers
//! that belong to their operation.
//!
//! # How it works
//!
//! One multishot receive fills buffers, which wait here until the connection reads. What the
//! connection flushes is taken out of its queue into one operation at a time; while that is under
//! way the queue grows, and is full when it is full. An operation that the transport wants started
//! waits in [`to_start`](CompletionTransport::take_start) until the connection's driver fetches it.
//!
//! # A peer that takes nothing
//!
//! How far a send is cannot be seen. When its time is over it is asked to stop: it completes with
//! what the socket has taken meanwhile, and the rest is sent by another.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use windlass_core::Readiness;
use windlass_sys::net;

use super::flush::{FlushError, Flushed};
use super::host::Transport;
use crate::proactor::{
    Completion, OpId, Operation, Outcome, Payload, PoolId, ProvidedBuffer, SharedFd,
};
use crate::session::{Output, Taken};

/// Bytes of a file that one operation sends.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// A send buffer that grew beyond this is not kept for the next: there may be many connections.
const KEEP_BYTES: usize = 2048;
/// Receiving pauses when more than this was received that the connection does not want yet.
const UNWANTED_BYTES_MAX: usize = 16 * 1024;

/// See the module.
pub(in crate::models) struct CompletionTransport {
    socket: SharedFd,
    pool: PoolId,
    received: Received,
    receiving: Receiving,
    watching: Watching,
    sending: Option<Sending>,
    /// What the last send was made of, empty.
    spare: Vec<u8>,
    to_start: Option<Operation>,
    probe: Probe,
    /// The sending side broke.
    send_failure: Option<SendFailure>,
}

/// What was received and not read yet.
#[derive(Default)]
struct Received {
    /// Nearly always the only one.
    first: Option<ProvidedBuffer>,
    /// Bytes of the first that were read.
    first_at: usize,
    more: VecDeque<ProvidedBuffer>,
    bytes: usize,
    end: Option<End>,
}

/// Why nothing more will be received.
enum End {
    Closed,
    Failed(io::Error),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    /// Nothing is received.
    Off,
    /// It is under way.
    On(OpId),
    /// It was asked to stop.
    Stopping(OpId),
}

/// Whether a hang-up of the peer will be told, while nothing is received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watching {
    No,
    On(OpId),
    /// It was told.
    Told,
    Wanted,
}

/// A send that is under way.
struct Sending {
    /// Once it was started.
    id: Option<OpId>,
    /// Bytes of a file that it is to send; none if it sends bytes in memory.
    file_bytes: Option<u64>,
    /// How many bytes in all.
    bytes: u64,
    /// Whether its completion is not told of.
    is_quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    Idle,
    /// The send is to be asked to stop, to see how far it is.
    Wanted,
    /// It was asked.
    Asked,
    /// It had taken nothing.
    Stalled,
}

#[derive(Clone, Copy)]
enum SendFailure {
    Socket,
    Truncated,
}

/// What a completion means to the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::models) struct News {
    pub(in crate::models) readiness: Readiness,
    /// The peer has taken some output.
    pub(in crate::models) progress: bool,
    /// It is known now whether the peer stalls.
    pub(in crate::models) probed: bool,
}

/// What the driver is to do for the transport.
#[derive(Debug)]
pub(in crate::models) enum Wish {
    /// Cancel this operation.
    Cancel(OpId),
    /// Start this one, and [tell](CompletionTransport::started) its id.
    Start(Operation),
    /// The same; that it went well need not be told.
    StartQuietly(Operation),
}

impl CompletionTransport {
    pub(in crate::models) fn new(socket: SharedFd, pool: PoolId) -> Self {
        Self {
            socket,
            pool,
            received: Received::default(),
            receiving: Receiving::Off,
            watching: Watching::No,
            sending: None,
            spare: Vec::new(),
            to_start: None,
            probe: Probe::Idle,
            send_failure: None,
        }
    }

    /// What is to be started or cancelled now; to be asked until there is nothing. `wants_input`:
    /// whether the connection watches for input; `awaits_sent`:
    /// whether it goes on when output has left.
    #[inline]
    pub(in crate::models) fn next_wish(
        &mut self,
        wants_input: bool,
        awaits_sent: bool,
    ) -> Option<Wish> {
        if let Some(operation) = self.to_start.take() {
            // What is large is to be freed soon.
            if let Some(sending) = &mut self.sending
                && !awaits_sent
                && matches!(operation, Operation::Send { .. })
                && sending.bytes <= KEEP_BYTES as u64
            {
                sending.is_quiet = true;
                return Some(Wish::StartQuietly(operation));
            }
            return Some(Wish::Start(operation));
        }
        if self.probe == Probe::Wanted
            && let Some(Sending { id: Some(id), .. }) = self.sending
        {
            self.probe = Probe::Asked;
            return Some(Wish::Cancel(id));
        }
        match self.receiving {
            Receiving::Off if wants_input && self.received.end.is_none() => {
                Some(Wish::Start(Operation::ReceiveMultishot {
                    socket: Arc::clone(&self.socket),
                    pool: self.pool,
                }))
            }
            Receiving::On(id) if !wants_input && self.received.bytes > UNWANTED_BYTES_MAX => {
                self.receiving = Receiving::Stopping(id);
                Some(Wish::Cancel(id))
            }
            Receiving::Off => self.watch(),
            _ => None,
        }
    }

    /// A quiet send, of whose good end nothing tells.
    #[inline]
    pub(in crate::models) fn quiet_send(&self) -> Option<OpId> {
        self.sending.as_ref().filter(|sending| sending.is_quiet)?.id
    }

    /// The quiet send is over, and no completion told of a failure. `spare`: a buffer in return.
    #[inline]
    pub(in crate::models) fn note_quietly_sent(&mut self, spare: Vec<u8>) -> News {
        self.sending = None;
        self.spare = spare;
        let was_asked = std::mem::replace(&mut self.probe, Probe::Idle) == Probe::Asked;
        News {
            readiness: Readiness::WRITE,
            progress: true,
            probed: was_asked,
        }
    }

    /// Its completion will be told after all.
    pub(in crate::models) fn note_asked_for(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.is_quiet = false;
        }
    }

    /// Learns of a peer that breaks off while nothing is received.
    fn watch(&mut self) -> Option<Wish> {
        if self.watching != Watching::No || matches!(self.received.end, Some(End::Failed(_))) {
            return None;
        }
        self.watching = Watching::Wanted;
        Some(Wish::Start(Operation::HangUp {
            fd: Arc::clone(&self.socket),
        }))
    }

    /// Notes what a [`Wish::Start`] was started as.
    #[inline]
    pub(in crate::models) fn started(&mut self, id: OpId) {
        match &mut self.sending {
            Some(sending) if sending.id.is_none() => sending.id = Some(id),
            _ if self.watching == Watching::Wanted => self.watching = Watching::On(id),
            _ => self.receiving = Receiving::On(id),
        }
    }

    /// Takes in what came of one of its operations.
    #[inline]
    pub(in crate::models) fn complete(&mut self, completion: Completion) -> News {
        let is_send = matches!(&self.sending, Some(sending) if sending.id == Some(completion.id));
        if is_send {
            self.complete_send(completion)
        } else if self.watching == Watching::On(completion.id) {
            self.complete_watch(&completion)
        } else {
            self.complete_receive(completion)
        }
    }

    #[cold]
    fn complete_watch(&mut self, completion: &Completion) -> News {
        if completion.is_cancelled() {
            // Not by us: after a fork. It is begun again.
            self.watching = Watching::No;
            return News::default();
        }
        // What the peer sent before is there to be received, and then its end or the error.
        self.watching = Watching::Told;
        News {
            readiness: Readiness::HANG_UP,
            ..News::default()
        }
    }

    #[inline]
    fn complete_receive(&mut self, completion: Completion) -> News {
        if completion.operation.is_some() {
            self.receiving = Receiving::Off;
        }
        let is_cancelled = completion.is_cancelled();
        match completion.result {
            Ok(Outcome::Buffer(buffer)) => self.received.push(buffer),
            Ok(_) => self.received.end = Some(End::Closed),
            // It was asked to pause, and goes on when there is room.
            Err(_) if is_cancelled => return News::default(),
            Err(error) => self.received.end = Some(End::Failed(error)),
        }
        News {
            readiness: self.received.readiness(),
            ..News::default()
        }
    }

    #[inline]
    fn complete_send(&mut self, completion: Completion) -> News {
        let was_asked = self.probe == Probe::Asked;
        self.probe = Probe::Idle;
        let file_bytes = self.sending.take().and_then(|sending| sending.file_bytes);
        let is_cancelled = completion.is_cancelled();
        let sent = match completion.result {
            Ok(Outcome::Bytes(sent)) => sent,
            Err(_) if is_cancelled => 0,
            Ok(_) | Err(_) => {
                self.send_failure = Some(SendFailure::Socket);
                return News {
                    readiness: Readiness::WRITE | Readiness::ERROR,
                    ..News::default()
                };
            }
        };
        let rest = match (completion.operation, file_bytes) {
            (Some(Operation::Send { socket, payload }), _) => self.rest_of(socket, payload, sent),
            (
                Some(Operation::SendFile {
                    file,
                    offset,
                    socket,
                    ..
                }),
                Some(length),
            ) => {
                // A usize fits in 64 bits.
                let (sent, done) = (sent as u64, sent as u64 >= length);
                // At the file's end nothing is sent. Of less than all a socket that failed may be the
                // reason, and says so next.
                if !done && sent == 0 && !is_cancelled {
                    self.send_failure = Some(SendFailure::Truncated);
                }
                (!done).then(|| Operation::SendFile {
                    file,
                    offset: offset + sent,
                    length: length - sent,
                    socket,
                })
            }
            _ => None,
        };
        if let Some(rest) = rest
            && self.send_failure.is_none()
        {
            let (file_bytes, bytes) = match &rest {
                Operation::SendFile { length, .. } => (Some(*length), *length),
                // A usize fits in 64 bits.
                Operation::Send { payload, .. } => (None, payload.as_slice().len() as u64),
                _ => (None, 0),
            };
            self.to_start = Some(rest);
            self.sending = Some(Sending {
                id: None,
                file_bytes,
                bytes,
                is_quiet: false,
            });
            if was_asked && sent == 0 {
                self.probe = Probe::Stalled;
            }
        }
        News {
            readiness: Readiness::WRITE,
            progress: sent > 0,
            probed: was_asked,
        }
    }

    /// What is left to be sent of `payload`; if nothing, its buffer is kept for the next.
    #[inline]
    fn rest_of(
        &mut self,
        socket: SharedFd,
        mut payload: Payload,
        sent: usize,
    ) -> Option<Operation> {
        if sent < payload.as_slice().len() {
            payload.advance(sent);
            return Some(Operation::Send { socket, payload });
        }
        if let Some(mut buffer) = payload.into_vec()
            && buffer.capacity() <= KEEP_BYTES
        {
            buffer.clear();
            self.spare = buffer;
        }
        None
    }
}

impl Received {
    fn push(&mut self, buffer: ProvidedBuffer) {
        self.bytes += buffer.len();
        if self.first.is_none() {
            self.first = Some(buffer);
            self.first_at = 0;
        } else {
            self.more.push_back(buffer);
        }
    }

    /// What there is to be read. That more follows what was received is said beside it.
    fn readiness(&self) -> Readiness {
        match self.end {
            Some(End::Closed) => Readiness::READ | Readiness::PEER_CLOSED,
            Some(End::Failed(_)) => Readiness::READ | Readiness::PEER_CLOSED | Readiness::ERROR,
            None => Readiness::READ,
        }
    }

    #[inline]
    fn read(&mut self, room: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(first) = &self.first {
            let rest = &first[self.first_at..];
            let count = rest.len().min(room.len() - filled);
            room[filled..filled + count].copy_from_slice(&rest[..count]);
            filled += count;
            if count < rest.len() {
                self.first_at += count;
                break;
            }
            self.first_at = 0;
            self.first = self.more.pop_front();
        }
        self.bytes -= filled;
        filled
    }
}

impl Transport for CompletionTransport {
    #[inline]
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let filled = self.received.read(room);
        if filled > 0 || room.is_empty() {
            return Ok(Some(filled));
        }
        match &mut self.received.end {
            None => Ok(None),
            Some(End::Closed) => Ok(Some(0)),
            Some(End::Failed(error)) => Err(io::Error::from_raw_os_error(
                error.raw_os_error().unwrap_or_default(),
            )),
        }
    }

    #[inline]
    fn flush(&mut self, output: &mut Output, sent_bytes: &mut u64) -> Result<Flushed, FlushError> {
        match self.send_failure {
            Some(SendFailure::Socket) => return Err(FlushError::Socket),
            Some(SendFailure::Truncated) => return Err(FlushError::Truncated),
            None => {}
        }
        if self.sending.is_some() {
            return Ok(Flushed::Full);
        }
        let Some(taken) = output.take_front(&mut self.spare, FILE_BYTES_MAX) else {
            return Ok(Flushed::All);
        };
        let socket = Arc::clone(&self.socket);
        let mut file_bytes = None;
        let (operation, len) = match taken {
            Taken::Copied(bytes) => {
                let (len, payload) = (bytes.len() as u64, bytes.into());
                (Operation::Send { socket, payload }, len)
            }
            Taken::Shared(bytes) => {
                let (len, payload) = (bytes.len() as u64, bytes.into());
                (Operation::Send { socket, payload }, len)
            }
            Taken::File { file, offset, len } => {
                file_bytes = Some(len);
                let operation = Operation::SendFile {
                    file,
                    offset,
                    length: len,
                    socket,
                };
                (operation, len)
            }
        };
        *sent_bytes += len;
        self.to_start = Some(operation);
        self.sending = Some(Sending {
            id: None,
            file_bytes,
            bytes: len,
            is_quiet: false,
        });
        Ok(if output.is_empty() {
            Flushed::All
        } else {
            Flushed::Full
        })
    }

    #[inline]
    fn sending_bytes(&self) -> u64 {
        self.sending.as_ref().map_or(0, |sending| sending.bytes)
    }

    #[inline]
    fn has_failed(&self) -> bool {
        self.send_failure.is_some()
    }

    fn is_stalled(&mut self) -> bool {
        if self.probe == Probe::Idle {
            self.probe = Probe::Wanted;
        }
        self.probe == Probe::Stalled
    }

    fn is_probing(&self) -> bool {
        matches!(self.probe, Probe::Wanted | Probe::Asked)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        net::shutdown_write(self.socket.as_fd())
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
