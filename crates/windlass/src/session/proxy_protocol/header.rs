//! The header of the PROXY protocol, versions 1 and 2: a parser without I/O.
//!
//! Reference: "The PROXY protocol, versions 1 & 2", HAProxy, sections 2.1 and 2.2.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// The connection is the proxy's own, as for a health check, or it could not tell the client's
    /// address: the address of the connection itself counts.
    Local,
    /// The client of the proxy.
    Client(SocketAddr),
    /// A client without an IP address, on a Unix socket.
    ClientWithoutAddress,
}

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyParse {
    /// A whole header.
    Complete {
        /// What it says.
        header: ProxyHeader,
        /// Its length in bytes.
        len: usize,
    },
    /// The beginning of one.
    Partial,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyHeaderError {
    /// The address block is shorter than its kind of address.
    AddressBlock,
    /// An address of version 1 is not written as the grammar has it.
    AddressText,
    /// The checksum does not match.
    Checksum,
    /// The command of version 2 is neither `LOCAL` nor `PROXY`.
    Command,
    /// The family and transport of version 2 are none that is defined.
    Family,
    /// The line of version 1 is not formed as the grammar has it.
    Line,
    /// The beginning is that of neither version.
    Signature,
    /// The additional fields are cut, or one stands twice that must not.
    Fields,
    /// The header is longer than allowed.
    TooLong,
    /// The version is neither 1 nor 2.
    Version,
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::AddressBlock => "the address block is too short",
            Self::AddressText => "an address is malformed",
            Self::Checksum => "the checksum does not match",
            Self::Command => "the command is unknown",
            Self::Family => "the address family is unknown",
            Self::Fields => "the additional fields are malformed",
            Self::Line => "the line is malformed",
            Self::Signature => "it has no signature",
            Self::TooLong => "it is too long",
            Self::Version => "the version is unknown",
        };
        write!(f, "parse a PROXY protocol header: {what}")
    }
}

impl std::error::Error for ProxyHeaderError {}

/// The longest line of version 1, with its end.
pub const PROXY_LINE_BYTES_MAX: usize = 107;
/// The longest header of version 2 that is taken: addresses of Unix sockets and some KiB of
/// additional fields.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family, and length.
const FIXED_BYTES: usize = 16;
const CHECKSUM_TYPE: u8 = 0x03;

/// Parses the header that `bytes` begin with.
///
/// # Errors
///
/// If no bytes that may follow make a header of them.
pub fn parse_proxy_header(bytes: &[u8]) -> Result<ProxyParse, ProxyHeaderError> {
    if bytes.starts_with(LINE_START) {
        parse_line(bytes)
    } else if bytes.starts_with(SIGNATURE) {
        parse_binary(bytes)
    } else if LINE_START.starts_with(bytes) || SIGNATURE.starts_with(bytes) {
        Ok(ProxyParse::Partial)
    } else {
        Err(ProxyHeaderError::Signature)
    }
}

/// Version 1: a line of text.
fn parse_line(bytes: &[u8]) -> Result<ProxyParse, ProxyHeaderError> {
    let head = &bytes[..bytes.len().min(PROXY_LINE_BYTES_MAX)];
    let Some(end) = head.windows(2).position(|pair| pair == b"\r\n") else {
        // All but a CR at the end, which the line's end may begin with.
        let text = head.strip_suffix(b"\r").unwrap_or(head);
        let is_bad = !text.iter().copied().all(is_text);
        return match () {
            () if is_bad => Err(ProxyHeaderError::Line),
            () if head.len() == PROXY_LINE_BYTES_MAX => Err(ProxyHeaderError::TooLong),
            () => Ok(ProxyParse::Partial),
        };
    };
    let line = &bytes[LINE_START.len()..end];
    let text = line.iter().copied().all(is_text);
    let text = text.then(|| std::str::from_utf8(line).ok()).flatten();
    let mut words = text.ok_or(ProxyHeaderError::Line)?.split(' ');
    let header = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => ProxyHeader::Local,
        Some("TCP4") => client_in(words, |text| parse_v4(text).map(IpAddr::V4))?,
        Some("TCP6") => client_in(words, |text| parse_v6(text).map(IpAddr::V6))?,
        _ => return Err(ProxyHeaderError::Line),
    };
    let len = end + 2;
    Ok(ProxyParse::Complete { header, len })
}

/// Whether a byte may stand within the line.
fn is_text(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

/// The client in the words `source destination source-port destination-port`.
fn client_in<'a>(
    words: impl Iterator<Item = &'a str>,
    parse_ip: impl Fn(&str) -> Option<IpAddr>,
) -> Result<ProxyHeader, ProxyHeaderError> {
    let words = words.collect::<Vec<_>>();
    let [source, destination, source_port, destination_port] = words[..] else {
        return Err(ProxyHeaderError::Line);
    };
    let bad = ProxyHeaderError::AddressText;
    parse_ip(destination).ok_or(bad)?;
    parse_port(destination_port).ok_or(bad)?;
    let ip = parse_ip(source).ok_or(bad)?;
    let port = parse_port(source_port).ok_or(bad)?;
    Ok(ProxyHeader::Client(SocketAddr::new(ip, port)))
}

/// Four decimal numbers without leading zeros, which is what the standard library takes too.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok()
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok()
}

/// A decimal number up to 65,535 without sign or leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = text == "0" || !text.starts_with('0');
    (is_number && is_plain).then(|| text.parse().ok()).flatten()
}

/// Version 2: binary.
fn parse_binary(bytes: &[u8]) -> Result<ProxyParse, ProxyHeaderError> {
    // What is there is judged at once, so that nonsense is not waited for.
    let is_local = match bytes.get(12) {
        None => return Ok(ProxyParse::Partial),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(byte) if byte >> 4 != 2 => return Err(ProxyHeaderError::Version),
        Some(_) => return Err(ProxyHeaderError::Command),
    };
    let Some(&family) = bytes.get(13) else {
        return Ok(ProxyParse::Partial);
    };
    let address_len = match family {
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        // A local connection's addresses are skipped, whatever they are.
        _ if is_local => 0,
        _ => return Err(ProxyHeaderError::Family),
    };
    let Some(&[high, low]) = bytes.get(14..FIXED_BYTES) else {
        return Ok(ProxyParse::Partial);
    };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if len > PROXY_HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    if !is_local && len - FIXED_BYTES < address_len {
        return Err(ProxyHeaderError::AddressBlock);
    }
    let Some(whole) = bytes.get(..len) else {
        return Ok(ProxyParse::Partial);
    };
    let header = if is_local || family == 0x00 {
        ProxyHeader::Local
    } else {
        check_fields(whole, FIXED_BYTES + address_len)?;
        address(family, &whole[FIXED_BYTES..])
    };
    Ok(ProxyParse::Complete { header, len })
}

/// The source in an address block, which is long enough for its family.
fn address(family: u8, block: &[u8]) -> ProxyHeader {
    match family >> 4 {
        1 => {
            let [a, b, c, d] = [block[0], block[1], block[2], block[3]];
            let port = u16::from_be_bytes([block[8], block[9]]);
            ProxyHeader::Client(SocketAddr::from(([a, b, c, d], port)))
        }
        2 => {
            let mut ip = [0; 16];
            ip.copy_from_slice(&block[..16]);
            let port = u16::from_be_bytes([block[32], block[33]]);
            ProxyHeader::Client(SocketAddr::from((ip, port)))
        }
        _ => ProxyHeader::ClientWithoutAddress,
    }
}

/// Walks over the additional fields, of type, length and value, from `at` on; checks the checksum
/// if it is among them.
fn check_fields(header: &[u8], mut at: usize) -> Result<(), ProxyHeaderError> {
    let mut checksum = None;
    while at < header.len() {
        let Some(&[kind, high, low]) = header.get(at..at + 3) else {
            return Err(ProxyHeaderError::Fields);
        };
        let value = at + 3;
        let end = value + usize::from(u16::from_be_bytes([high, low]));
        let bytes = header.get(value..end).ok_or(ProxyHeaderError::Fields)?;
        if kind == CHECKSUM_TYPE {
            let told = <[u8; 4]>::try_from(bytes).map_err(|_| ProxyHeaderError::Fields)?;
            if checksum
                .replace((value, u32::from_be_bytes(told)))
                .is_some()
            {
                return Err(ProxyHeaderError::Fields);
            }
        }
        at = end;
    }
    if let Some((at, told)) = checksum {
        // It is computed with itself taken for zero.
        let state = crc32c(!0, &header[..at]);
        let state = crc32c(state, &[0; 4]);
        if !crc32c(state, &header[at + 4..]) != told {
            return Err(ProxyHeaderError::Checksum);
        }
    }
    Ok(())
}

/// CRC32C (RFC 3720 appendix B.4), bit by bit: headers are short, and few have one.
fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(state, |state, &byte| {
        (0..8).fold(state ^ u32::from(byte), |state, _| {
            (state >> 1) ^ (0x82F6_3B78 & (state & 1).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests;
