//! The session against a model: a second, slow and strict reader of requests, written from the
//! grammar. The session must see exactly the requests that the model sees, with the same bodies.

#![allow(dead_code, unreachable_pub, reason = "each includer uses a part")]

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};

use windlass_http::{
    Answered, Handler, HttpConfig, HttpService, Method, Methods, Request, Responder, ResponseError,
    Status,
};

use crate::common::Connection;

/// A request with its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    method: String,
    target: String,
    body: Vec<u8>,
}

const HEADER_COUNT_MAX: usize = 128;
const BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Checks that the session sees the requests in `input` that the model sees.
///
/// # Panics
///
/// If it does not.
pub fn check(input: &[u8]) {
    let expected = requests(input);
    for step in [input.len().max(1), 7] {
        let seen = seen_by_session(input, step);
        assert_eq!(seen, expected, "given {step} bytes at a time");
    }
}

fn seen_by_session(input: &[u8], step: usize) -> Vec<Seen> {
    let mut config = HttpConfig::default();
    config.limits.head_bytes = 1024 * 1024;
    config.limits.target_bytes = 1024 * 1024;
    config.limits.header_count = HEADER_COUNT_MAX;
    config.limits.body_bytes = BODY_BYTES_MAX;
    let recorder = Recorder::default();
    let seen = Arc::clone(&recorder.0);
    let mut connection = Connection::open(&HttpService::new(recorder, config));
    for piece in input.chunks(step) {
        connection.feed(piece);
    }
    drop(connection);
    let mut seen = seen.lock().expect("nobody panics with it");
    std::mem::take(&mut *seen)
}

/// Collects each body and notes each request that is whole.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Vec<Seen>>>);

impl Handler for Recorder {
    type Local = ();

    fn local(&self) {}

    fn methods(&self) -> Methods {
        let others = [Method::Post, Method::Put, Method::Delete, Method::Options];
        others
            .into_iter()
            .chain([Method::Trace, Method::Patch])
            .fold(Methods::GET_HEAD, Methods::with)
    }

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let seen = Arc::clone(&self.0);
        let method = request.method().to_string();
        let target = request.target().to_owned();
        Ok(response.collect(move |body, response| {
            let body = body.to_vec();
            seen.lock().expect("nobody panics with it").push(Seen {
                method,
                target,
                body,
            });
            Ok(response.start(Status::OK).empty())
        }))
    }
}

/// The requests in `input` up to the first that is not whole, not valid, or the last of its
/// connection.
fn requests(input: &[u8]) -> Vec<Seen> {
    let mut requests = Vec::new();
    let mut rest = input;
    while let Some((seen, is_last, after)) = request(rest) {
        requests.push(seen);
        if is_last {
            break;
        }
        rest = after;
    }
    requests
}

fn request(input: &[u8]) -> Option<(Seen, bool, &[u8])> {
    let input = input.strip_prefix(b"\r\n").unwrap_or(input);
    let (line, mut rest) = line(input)?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return None;
    };
    let is_http11 = match version {
        b"HTTP/1.0" => false,
        b"HTTP/1.1" => true,
        _ => return None,
    };
    let mut fields = Vec::new();
    loop {
        let (line, after) = self::line(rest)?;
        rest = after;
        if line.is_empty() {
            break;
        }
        fields.push(field(line)?);
    }
    if fields.len() > HEADER_COUNT_MAX {
        return None;
    }
    let method = str::from_utf8(method).ok()?;
    let target = str::from_utf8(target).ok()?;
    let values = |name: &str| -> Vec<&[u8]> {
        let named = fields.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| *value).collect()
    };
    match values("host")[..] {
        [host] if is_host(host) => {}
        [] if !is_http11 => {}
        _ => return None,
    }
    if !is_known(method) || !is_target(method, target) {
        return None;
    }
    let expects = values("expect");
    let can_expect = expects.is_empty()
        || expects.len() == 1 && expects[0].eq_ignore_ascii_case(b"100-continue");
    if is_http11 && !can_expect {
        return None;
    }
    let (body, rest) = match (
        &values("content-length")[..],
        &values("transfer-encoding")[..],
    ) {
        ([], []) => (Vec::new(), rest),
        ([length], []) => counted(length, rest)?,
        ([], [coding]) if is_http11 && coding.eq_ignore_ascii_case(b"chunked") => chunked(rest)?,
        _ => return None,
    };
    let options = values("connection").join(&b","[..]);
    let has_option = |name: &str| {
        let mut options = options.split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_last = has_option("close") || !is_http11 && !has_option("keep-alive");
    let seen = Seen {
        method: method.to_owned(),
        target: target.to_owned(),
        body,
    };
    Some((seen, is_last, rest))
}

/// A line without its end, in which there is no other CR or LF.
fn line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input
        .iter()
        .position(|byte| matches!(byte, b'\r' | b'\n'))?;
    let after = input[end..].strip_prefix(b"\r\n")?;
    Some((&input[..end], after))
}

fn field(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_value = value
        .iter()
        .all(|b| *b == b'\t' || *b >= b' ' && *b != 0x7f);
    let name = str::from_utf8(name).ok()?.to_ascii_lowercase();
    (is_token(&name) && is_value).then(|| (name, trim(value)))
}

fn trim(mut value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    while value.first().is_some_and(is_blank) {
        value = &value[1..];
    }
    while value.last().is_some_and(is_blank) {
        value = &value[..value.len() - 1];
    }
    value
}

fn is_token(text: &str) -> bool {
    let is_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_char)
}

fn is_known(method: &str) -> bool {
    [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH",
    ]
    .contains(&method)
}

fn is_target(method: &str, target: &str) -> bool {
    if !target.chars().all(|c| c.is_ascii_graphic() && c != '#') {
        return false;
    }
    if target.starts_with('/') || target == "*" && method == "OPTIONS" {
        return true;
    }
    let lower = target.to_ascii_lowercase();
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| lower.strip_prefix(scheme));
    rest.is_some_and(|rest| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        is_host(authority.as_bytes())
    })
}

fn is_host(host: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(host) else {
        return false;
    };
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((literal, after)) => {
            if literal.parse::<Ipv6Addr>().is_err() {
                return false;
            }
            match after.strip_prefix(':') {
                Some(port) => ("v6", port),
                None if after.is_empty() => ("v6", ""),
                None => return false,
            }
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let is_port = port.is_empty()
        || port.bytes().all(|b| b.is_ascii_digit())
            && port.trim_start_matches('0').len() <= 5
            && port.parse::<u64>().is_ok_and(|port| port <= 65535);
    is_port && is_name(name)
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        let ok = match c {
            '%' => (0..2).all(|_| chars.next().is_some_and(|c| c.is_ascii_hexdigit())),
            _ => c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c),
        };
        if !ok {
            return false;
        }
    }
    !name.is_empty()
}

fn counted<'a>(length: &[u8], rest: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    if length.is_empty() || !length.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: usize = str::from_utf8(length).ok()?.parse().ok()?;
    let body = rest.get(..length)?;
    Some((body.to_vec(), &rest[length..]))
}

fn chunked(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let (size, after) = chunk_line(rest)?;
        if size == 0 {
            rest = after;
            break;
        }
        body.extend_from_slice(after.get(..size)?);
        rest = after[size..].strip_prefix(b"\r\n")?;
    }
    loop {
        let (line, after) = line(rest)?;
        rest = after;
        if line.is_empty() {
            return Some((body, rest));
        }
        field(line)?;
    }
}

/// The size of a chunk and what follows its line. A quoted string may have no CR or LF.
fn chunk_line(input: &[u8]) -> Option<(usize, &[u8])> {
    let (line, after) = line(input)?;
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    if digits == 0 || digits > 16 {
        return None;
    }
    let size = u64::from_str_radix(str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
    let mut extensions = &line[digits..];
    while !extensions.is_empty() {
        extensions = extension(extensions)?;
    }
    Some((usize::try_from(size).ok()?, after))
}

/// What follows one chunk extension.
fn extension(text: &[u8]) -> Option<&[u8]> {
    let rest = skip_token(text.strip_prefix(b";")?)?;
    let Some(value) = rest.strip_prefix(b"=") else {
        return Some(rest);
    };
    let Some(mut quoted) = value.strip_prefix(b"\"") else {
        return skip_token(value);
    };
    loop {
        let (&byte, after) = quoted.split_first()?;
        quoted = match byte {
            b'"' => return Some(after),
            b'\\' => match after.split_first()? {
                (b'\t' | b' '..=b'~' | 0x80.., after) => after,
                _ => return None,
            },
            b'\t' | b' '..=b'~' | 0x80.. => after,
            _ => return None,
        };
    }
}

fn skip_token(text: &[u8]) -> Option<&[u8]> {
    let is_char = |b: &&u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let len = text.iter().take_while(is_char).count();
    (len > 0).then(|| &text[len..])
}
