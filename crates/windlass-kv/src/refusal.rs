//! Refusals: why a command is not done, in the words that clients of Redis know.

use crate::parser::{Args, ProtocolError};

/// So much of what the client sent is repeated to it.
const ECHO_BYTES_MAX: usize = 128;

/// Why a command is not done.
#[derive(Debug)]
pub(crate) enum Refusal<'a> {
    BadClientName,
    BadCursor,
    BadHelloOption(&'a [u8]),
    BadVersion,
    DatabaseOutOfRange,
    DecrementOverflow,
    ExpireOptionsExclude(&'static str),
    /// Of this command.
    InvalidExpire(&'static str),
    KeyTooLong,
    NotAnInteger,
    NotAVersion,
    Overflow,
    Protocol(ProtocolError),
    Syntax,
    TooLong,
    UnknownCommand(Args<'a>),
    UnknownExpireOption(&'a [u8]),
    /// Of this command.
    UnknownSubcommand(&'static str, &'a [u8]),
    /// Of this command.
    WrongArity(&'static str),
}

impl Refusal<'_> {
    /// Appends it, without the line end.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::BadVersion => to.extend_from_slice(b"NOPROTO unsupported protocol version"),
            _ => {
                to.extend_from_slice(b"ERR ");
                self.write_text(to);
            }
        }
    }

    fn write_text(&self, to: &mut Vec<u8>) {
        let mut add = |parts: &[&[u8]]| {
            for part in parts {
                to.extend_from_slice(part);
            }
        };
        match self {
            Self::BadClientName => {
                add(&[b"Client names cannot contain spaces, newlines or special characters."]);
            }
            Self::BadCursor => add(&[b"invalid cursor"]),
            Self::BadHelloOption(option) => {
                add(&[b"Syntax error in HELLO option '", clip(option), b"'"]);
            }
            Self::BadVersion => {}
            Self::DatabaseOutOfRange => add(&[b"DB index is out of range"]),
            Self::DecrementOverflow => add(&[b"decrement would overflow"]),
            Self::ExpireOptionsExclude(which) => add(&[
                which.as_bytes(),
                b" options at the same time are not compatible",
            ]),
            Self::InvalidExpire(command) => add(&[
                b"invalid expire time in '",
                command.as_bytes(),
                b"' command",
            ]),
            Self::KeyTooLong => add(&[b"key exceeds maximum allowed size"]),
            Self::NotAVersion => add(&[b"Protocol version is not an integer or out of range"]),
            Self::NotAnInteger => add(&[b"value is not an integer or out of range"]),
            Self::Overflow => add(&[b"increment or decrement would overflow"]),
            Self::Protocol(error) => write_protocol_error(*error, to),
            Self::Syntax => add(&[b"syntax error"]),
            Self::TooLong => {
                add(&[b"string exceeds maximum allowed size (proto-max-bulk-len)"]);
            }
            Self::UnknownCommand(args) => write_unknown(*args, to),
            Self::UnknownExpireOption(option) => add(&[b"Unsupported option ", until_zero(option)]),
            Self::UnknownSubcommand(command, name) => add(&[
                b"unknown subcommand '",
                clip(name),
                b"'. Try ",
                command.to_ascii_uppercase().as_bytes(),
                b" HELP.",
            ]),
            Self::WrongArity(command) => add(&[
                b"wrong number of arguments for '",
                command.as_bytes(),
                b"' command",
            ]),
        }
    }
}

fn write_protocol_error(error: ProtocolError, to: &mut Vec<u8>) {
    to.extend_from_slice(b"Protocol error: ");
    let text: &[u8] = match error {
        ProtocolError::ExpectedDollar(byte) => {
            to.extend_from_slice(b"expected '$', got '");
            to.push(byte);
            b"'"
        }
        ProtocolError::InvalidBulkLength => b"invalid bulk length",
        ProtocolError::InvalidMultibulkLength => b"invalid multibulk length",
        ProtocolError::TooBigBulkCount => b"too big bulk count string",
        ProtocolError::TooBigCommand => b"too big command",
        ProtocolError::TooBigInline => b"too big inline request",
        ProtocolError::TooBigMultibulkCount => b"too big mbulk count string",
        ProtocolError::UnbalancedQuotes => b"unbalanced quotes in request",
    };
    to.extend_from_slice(text);
}

fn write_unknown(args: Args<'_>, to: &mut Vec<u8>) {
    to.extend_from_slice(b"unknown command '");
    to.extend_from_slice(clip(args.at(0)));
    to.extend_from_slice(b"', with args beginning with: ");
    let start = to.len();
    for arg in args.from(1) {
        let Some(room) = ECHO_BYTES_MAX.checked_sub(to.len() - start) else {
            break;
        };
        if room == 0 {
            break;
        }
        let arg = until_zero(arg);
        to.push(b'\'');
        to.extend_from_slice(&arg[..arg.len().min(room)]);
        to.extend_from_slice(b"' ");
    }
}

/// A string's beginning, as C sees it: up to the first zero byte.
fn until_zero(text: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, text).unwrap_or(text.len());
    &text[..end]
}

fn clip(text: &[u8]) -> &[u8] {
    let text = until_zero(text);
    &text[..text.len().min(ECHO_BYTES_MAX)]
}
