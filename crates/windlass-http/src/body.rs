//! Framing of request bodies (RFC 9112 sections 6 and 7): where a body ends.
//!
//! The decoder takes input in any cut and gives the data piece by piece, by reference. Sizes are
//! 64-bit and checked; nothing is allocated. Trailer fields are checked and given apart, line by
//! line, never merged into the headers (RFC 9110 section 6.5.1).

use crate::syntax::{is_token, is_token_byte, is_value_bytes};

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Chunked,
    /// So many bytes; zero is no body.
    Length(u64),
}

impl Framing {
    /// Whether there is a body at all.
    pub(crate) fn is_none(self) -> bool {
        self == Self::Length(0)
    }
}

/// Finds the end of one body.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    state: State,
    /// What chunk extensions and trailers have used of their limit.
    overhead_bytes: usize,
    overhead_bytes_max: usize,
}

/// What one step found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    /// Bytes of the input that are done with.
    pub(crate) consumed: usize,
    /// The data among them.
    pub(crate) data: &'a [u8],
    /// A trailer line among them, checked, without its line end.
    pub(crate) trailer: &'a [u8],
    /// Whether the body ended.
    pub(crate) done: bool,
}

/// The body breaks the grammar or a limit; no byte after it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBody;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Data with a known end, after which the body ends.
    Length(u64),
    ChunkSize {
        digits: u8,
        value: u64,
    },
    ChunkExtension {
        part: Extension,
        value: u64,
    },
    ChunkSizeLf {
        value: u64,
    },
    ChunkData(u64),
    ChunkDataCr,
    ChunkDataLf,
    /// At the start of a trailer line, of which so much is known to have no line end.
    Trailer {
        scanned: usize,
    },
    Done,
}

/// Where in `*( ";" chunk-ext-name [ "=" chunk-ext-val ] )` the decoder is (RFC 9112 section 7.1.1).
/// Blanks between the parts are "bad whitespace", which nobody sends in good faith.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Behind the semicolon.
    NameStart,
    Name,
    /// Behind the equals sign.
    ValueStart,
    Token,
    Quoted,
    /// Behind a backslash.
    QuotedPair,
    QuotedEnd,
}

impl Extension {
    /// Whether the chunk line may end here, or another extension begin.
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }

    fn next(self, byte: u8) -> Result<Self, BadBody> {
        Ok(match (self, byte) {
            (_, b';') if self.may_end() => Self::NameStart,
            (Self::NameStart | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::Name, b'=') => Self::ValueStart,
            (Self::ValueStart | Self::Token, _) if is_token_byte(byte) => Self::Token,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, _) if is_value_bytes(&[byte]) => Self::Quoted,
            _ => return Err(BadBody),
        })
    }
}

const CHUNK_START: State = State::ChunkSize {
    digits: 0,
    value: 0,
};

impl BodyDecoder {
    pub(crate) fn new(framing: Framing, overhead_bytes_max: usize) -> Self {
        let state = match framing {
            Framing::Chunked => CHUNK_START,
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
        };
        Self {
            state,
            overhead_bytes: 0,
            overhead_bytes_max,
        }
    }

    /// Takes what it can of `input`, up to the end of a piece of data or of the body.
    ///
    /// Nothing consumed and not done: more input is needed.
    pub(crate) fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, BadBody> {
        let mut at = 0;
        let mut data: &[u8] = &[];
        let mut trailer: &[u8] = &[];
        while data.is_empty() && trailer.is_empty() && self.state != State::Done {
            let rest = &input[at..];
            let Some(&byte) = rest.first() else { break };
            match self.state {
                State::Length(left) => {
                    data = prefix(rest, left);
                    at += data.len();
                    self.state = match left - data.len() as u64 {
                        0 => State::Done,
                        left => State::Length(left),
                    };
                }
                State::ChunkData(left) => {
                    data = prefix(rest, left);
                    at += data.len();
                    self.state = match left - data.len() as u64 {
                        0 => State::ChunkDataCr,
                        left => State::ChunkData(left),
                    };
                }
                State::Trailer { scanned } => match memchr::memchr(b'\n', &rest[scanned..]) {
                    Some(end) => {
                        let line = &rest[..=scanned + end];
                        trailer = self.trailer_line(line)?;
                        at += line.len();
                    }
                    None if rest.len() > self.overhead_bytes_max - self.overhead_bytes => {
                        return Err(BadBody);
                    }
                    None => {
                        self.state = State::Trailer {
                            scanned: rest.len(),
                        };
                        break;
                    }
                },
                state => {
                    self.state = self.framing_byte(state, byte)?;
                    at += 1;
                }
            }
        }
        Ok(Decoded {
            consumed: at,
            data,
            trailer,
            done: self.state == State::Done,
        })
    }

    /// The state after one byte between data: `chunk = chunk-size [ chunk-ext ] CRLF data CRLF`.
    fn framing_byte(&mut self, state: State, byte: u8) -> Result<State, BadBody> {
        Ok(match (state, byte) {
            (State::ChunkSize { digits, value }, _) if byte.is_ascii_hexdigit() => {
                // Sixteen digits fit; this bounds leading zeros as well.
                if digits == 16 {
                    return Err(BadBody);
                }
                let digit = (byte as char).to_digit(16).ok_or(BadBody)?;
                State::ChunkSize {
                    digits: digits + 1,
                    value: value << 4 | u64::from(digit),
                }
            }
            (State::ChunkSize { digits: 0, .. }, _) => return Err(BadBody),
            (State::ChunkSize { value, .. }, b'\r') => State::ChunkSizeLf { value },
            (State::ChunkSize { value, .. }, b';') => State::ChunkExtension {
                part: Extension::NameStart,
                value,
            },
            (State::ChunkExtension { part, value }, b'\r') if part.may_end() => {
                State::ChunkSizeLf { value }
            }
            (State::ChunkExtension { part, value }, _) => {
                self.spend_overhead(1)?;
                let part = part.next(byte)?;
                State::ChunkExtension { part, value }
            }
            (State::ChunkSizeLf { value: 0 }, b'\n') => State::Trailer { scanned: 0 },
            (State::ChunkSizeLf { value }, b'\n') => State::ChunkData(value),
            (State::ChunkDataCr, b'\r') => State::ChunkDataLf,
            (State::ChunkDataLf, b'\n') => CHUNK_START,
            _ => return Err(BadBody),
        })
    }

    fn trailer_line<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], BadBody> {
        self.spend_overhead(line.len())?;
        let line = line.strip_suffix(b"\r\n").ok_or(BadBody)?;
        if line.is_empty() {
            self.state = State::Done;
            return Ok(line);
        }
        let colon = memchr::memchr(b':', line).ok_or(BadBody)?;
        if !is_token(&line[..colon]) || !is_value_bytes(&line[colon + 1..]) {
            return Err(BadBody);
        }
        self.state = State::Trailer { scanned: 0 };
        Ok(line)
    }

    fn spend_overhead(&mut self, bytes: usize) -> Result<(), BadBody> {
        self.overhead_bytes += bytes;
        if self.overhead_bytes > self.overhead_bytes_max {
            Err(BadBody)
        } else {
            Ok(())
        }
    }
}

/// The first `left` bytes of `rest`, or all of it.
pub(crate) fn prefix(rest: &[u8], left: u64) -> &[u8] {
    &rest[..usize::try_from(left).unwrap_or(usize::MAX).min(rest.len())]
}

#[cfg(test)]
mod tests;
