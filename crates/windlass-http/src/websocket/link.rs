//! The codec of frames, fed from memory.
//!
//! The codec wants a stream. It is given one for each call: reads come from the input of the call,
//! and find it empty rather than block; writes go to the output, which takes all.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tungstenite::error::ProtocolError;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, FrameHeader};
use tungstenite::protocol::{Role, WebSocketConfig as CodecConfig, WebSocketContext};
use tungstenite::{Error, Message as Frame};
use windlass::session::Output;

use super::WebSocketConfig;
use super::close::{CloseCode, cut_reason};
use super::message::{Message, Text};

/// The codec of one socket.
#[derive(Debug)]
pub(super) struct Link(WebSocketContext);

/// What reading found.
pub(super) enum Received {
    /// The client sent a close frame: of these. Its answer is written with the next read.
    Close(Option<(CloseCode, Text)>),
    /// The closing handshake is complete.
    Closed,
    /// A ping, which is answered with the next read, or a pong.
    Control,
    /// The client broke the rule that this code stands for.
    Failed(CloseCode),
    /// The input ended without a closing handshake.
    Lost,
    Message(Message),
    NeedsInput,
}

/// Memory kept for the input of each socket, and read at once.
const READ_BYTES: usize = 4096;

/// Payloads of up to this many bytes are copied: they then leave in one piece with their header.
const COPY_BYTES_MAX: usize = 4096;

impl Link {
    pub(super) fn new(config: &WebSocketConfig) -> Self {
        let codec = CodecConfig::default()
            .read_buffer_size(READ_BYTES)
            // What is written is in the output at once.
            .write_buffer_size(0)
            .max_message_size(Some(config.message_bytes))
            .max_frame_size(Some(config.frame_bytes.min(config.message_bytes)));
        Self(WebSocketContext::new(Role::Server, Some(codec)))
    }

    /// Takes from the front of `input` up to the end of the next frame that means something.
    pub(super) fn receive(
        &mut self,
        input: &mut &[u8],
        end: InputEnd,
        output: &mut Output,
    ) -> Received {
        let mut stream = Stream { input, end, output };
        match self.0.read(&mut stream) {
            Ok(Frame::Binary(bytes)) => Received::Message(Message::Binary(bytes)),
            Ok(Frame::Text(text)) => Received::Message(Message::Text(Text::from_codec(text))),
            Ok(Frame::Close(close)) => Received::Close(close.map(|close| {
                let code = CloseCode::received(close.code.into());
                (code, Text::from_codec(close.reason))
            })),
            Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_)) => Received::Control,
            Err(error) => failure(&error),
        }
    }

    /// Whether messages may still be sent: no close frame was sent or received.
    pub(super) fn is_open(&self) -> bool {
        self.0.can_write()
    }

    /// Writes a message as one frame; only while the link is open.
    pub(super) fn send(&self, message: Message, output: &mut Output) {
        let (kind, payload): (Data, Bytes) = match message {
            Message::Binary(bytes) => (Data::Binary, bytes),
            Message::Text(text) => (Data::Text, text.into()),
        };
        let header = FrameHeader {
            opcode: OpCode::Data(kind),
            ..FrameHeader::default()
        };
        output.push_with(|buf| {
            header
                .format(payload.len() as u64, buf)
                .expect("writing to a Vec does not fail");
        });
        if payload.len() <= COPY_BYTES_MAX {
            output.push(&payload);
        } else {
            output.push_shared(payload);
        }
    }

    pub(super) fn ping(&mut self, output: &mut Output) {
        self.write(Frame::Ping(Bytes::new()), output);
    }

    /// Writes a close frame, unless one was sent or received.
    pub(super) fn close(&mut self, code: CloseCode, reason: &str, output: &mut Output) {
        if self.is_open() {
            let frame = CloseFrame {
                code: code.code().into(),
                reason: cut_reason(reason).into(),
            };
            self.write(Frame::Close(Some(frame)), output);
        }
    }

    fn write(&mut self, frame: Frame, output: &mut Output) {
        let mut stream = Stream {
            input: &mut &[][..],
            end: InputEnd::Open,
            output,
        };
        let written = self.0.write(&mut stream, frame);
        let flushed = written.and_then(|()| self.0.flush(&mut stream));
        // The output takes all; an error means that the link is closed, which the next read says.
        debug_assert!(!matches!(flushed, Err(Error::Io(_))), "{flushed:?}");
    }
}

/// Whether more input can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputEnd {
    Ended,
    Open,
}

struct Stream<'a, 'i> {
    input: &'a mut &'i [u8],
    end: InputEnd,
    output: &'a mut Output,
}

impl Read for Stream<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() && self.end == InputEnd::Open {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.input.read(buf)
    }
}

impl Write for Stream<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.output.push(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What an error of the codec means, and what the client is told of it (RFC 6455 section 7.4.1).
fn failure(error: &Error) -> Received {
    match error {
        Error::Io(error) if error.kind() == io::ErrorKind::WouldBlock => Received::NeedsInput,
        Error::ConnectionClosed | Error::AlreadyClosed => Received::Closed,
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Received::Lost,
        Error::Capacity(_) => Received::Failed(CloseCode::TOO_LARGE),
        Error::Utf8(_) => Received::Failed(CloseCode::INVALID_DATA),
        // Whatever else the codec finds wrong is wrong with the frames.
        _ => Received::Failed(CloseCode::PROTOCOL_ERROR),
    }
}
