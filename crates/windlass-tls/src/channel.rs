//! One connection's TLS protocol: records in, plaintext out, and the other way round.
//!
//! rustls' unbuffered interface decrypts in place and encrypts into memory that it is given, so
//! that nothing is kept here but the start of a record that is not whole yet.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{Error, HandshakeKind, ServerConfig};
use windlass::session::Output;

/// The TLS state of a connection.
pub(crate) struct Channel {
    tls: UnbufferedServerConnection,
    /// Input that is not processed yet: a part of a record, or of a handshake message.
    incoming: Vec<u8>,
    peer_closed: bool,
}

/// No more can be sent under these keys, or ever again.
#[derive(Debug)]
pub(crate) struct Exhausted;

/// More unprocessed input than this is refused; rustls takes handshake messages of up to 64 KiB.
const INCOMING_BYTES_MAX: usize = 192 * 1024;
/// The most that a record adds to what is in it: header, nonce, content type, tag; rounded up.
const RECORD_OVERHEAD_BYTES: usize = 64;
/// The most plaintext of one record (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;
/// Room to begin with for a handshake record or an alert.
const HANDSHAKE_ROOM_BYTES: usize = 2048;
/// States that are passed through before application data may be sent.
const STATES_MAX: usize = 64;

impl Channel {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            incoming: Vec::new(),
            peer_closed: false,
        })
    }

    /// Whether the handshake is not complete yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the handshake resumed an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the peer said that it sends no more.
    pub(crate) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Processes `bytes`: appends what was decrypted to `plain`, and what the protocol itself has
    /// to say to `output`. `scratch` is memory to work in.
    ///
    /// On an error the alert is appended to `output`, and the connection is to end.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        output: &mut Output,
    ) -> Result<(), Error> {
        scratch.clear();
        scratch.extend_from_slice(&self.incoming);
        scratch.extend_from_slice(bytes);
        let mut at = 0;
        let result = self.process(scratch, &mut at, plain, output);
        if result.is_err() {
            self.encode_alert(scratch, at, output);
        }
        self.incoming.clear();
        if result.is_ok() && !self.peer_closed {
            self.incoming.extend_from_slice(&scratch[at..]);
        }
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        if self.incoming.len() > INCOMING_BYTES_MAX {
            return Err(Error::General("a message is too long".into()));
        }
        result
    }

    /// Lets rustls process all whole records of `buffer`; `at` says how far it came.
    fn process(
        &mut self,
        buffer: &mut [u8],
        at: &mut usize,
        plain: &mut Vec<u8>,
        output: &mut Output,
    ) -> Result<(), Error> {
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut buffer[*at..]);
            let mut goes_on = true;
            let mut result = Ok(());
            match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(output, HANDSHAKE_ROOM_BYTES, |room| {
                        data.encode(room).map_err(Missing::from)
                    });
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.peer_closed = true,
                // Needs more input, is ready to send, or is of a kind that is not switched on.
                Ok(_) => goes_on = false,
                Err(error) => result = Err(error),
            }
            *at += discard;
            result?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Appends what rustls has queued in answer to an error.
    fn encode_alert(&mut self, buffer: &mut [u8], mut at: usize, output: &mut Output) {
        for _ in 0..STATES_MAX {
            if !self.tls.wants_write() {
                return;
            }
            let UnbufferedStatus { discard, state } =
                self.tls.process_tls_records(&mut buffer[at..]);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                return;
            };
            append(output, HANDSHAKE_ROOM_BYTES, |room| {
                data.encode(room).map_err(Missing::from)
            });
            at += discard;
        }
    }

    /// Encrypts `plain` into `output`.
    pub(crate) fn send(&mut self, plain: &[u8], output: &mut Output) -> Result<(), Exhausted> {
        let records = plain.len().div_ceil(RECORD_BYTES_MAX) + 1;
        self.write(output, |tls, output| {
            let room = plain.len() + records * RECORD_OVERHEAD_BYTES;
            append(output, room, |room| {
                tls.encrypt(plain, room).map_err(Missing::from)
            })
        })
    }

    /// Appends the alert that says that no more is sent.
    pub(crate) fn close(&mut self, output: &mut Output) {
        // If nothing can be sent any more, then not that either.
        let _ = self.write(output, |tls, output| {
            append(output, HANDSHAKE_ROOM_BYTES, |room| {
                tls.queue_close_notify(room).map_err(Missing::from)
            })
        });
    }

    /// Calls `write` when application data may be sent, after what the protocol has to send itself.
    fn write(
        &mut self,
        output: &mut Output,
        mut write: impl FnMut(
            &mut rustls::unbuffered::WriteTraffic<'_, rustls::server::ServerConnectionData>,
            &mut Output,
        ) -> Appended,
    ) -> Result<(), Exhausted> {
        for _ in 0..STATES_MAX {
            let UnbufferedStatus { discard, state } =
                self.tls.process_tls_records(&mut self.incoming);
            let done = match state {
                Ok(ConnectionState::WriteTraffic(mut tls)) => match write(&mut tls, output) {
                    Appended::Yes => true,
                    Appended::No => return Err(Exhausted),
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(output, HANDSHAKE_ROOM_BYTES, |room| {
                        data.encode(room).map_err(Missing::from)
                    });
                    false
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_closed = true;
                    false
                }
                _ => return Err(Exhausted),
            };
            self.incoming.drain(..discard);
            if done {
                return Ok(());
            }
        }
        Err(Exhausted)
    }
}

/// Why nothing was written.
enum Missing {
    /// So much room is needed.
    Room(usize),
    /// There is nothing (more) to write.
    Data,
}

impl From<EncodeError> for Missing {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::Room(size.required_size),
            EncodeError::AlreadyEncoded => Self::Data,
        }
    }
}

impl From<EncryptError> for Missing {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::Room(size.required_size),
            EncryptError::EncryptExhausted => Self::Data,
        }
    }
}

/// Whether something was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appended {
    Yes,
    No,
}

/// Appends to `output` what `write` puts into the room that it is given: `room` bytes, or, if it
/// asks for more, so many.
fn append(
    output: &mut Output,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Missing>,
) -> Appended {
    output.push_with(|bytes| {
        let start = bytes.len();
        loop {
            bytes.resize(start + room, 0);
            match write(&mut bytes[start..]) {
                Ok(written) => {
                    bytes.truncate(start + written);
                    return Appended::Yes;
                }
                Err(Missing::Room(needed)) if needed > room => room = needed,
                Err(_) => {
                    bytes.truncate(start);
                    return Appended::No;
                }
            }
        }
    })
}
