//! A strict reader of answers, written from RFC 9112 and from nothing else.

#![allow(dead_code, unreachable_pub, reason = "each includer uses a part")]

/// How a stream of answers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a reset: the last answer may be cut.
    Aborted,
    /// In order: all answers are whole.
    Closed,
}

/// One final answer.
#[derive(Debug, PartialEq, Eq)]
pub struct FinalAnswer {
    pub status: u16,
    /// Names in lower case.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The interim answers before it.
    pub interim: Vec<u16>,
    /// Whether it says that the connection ends.
    pub closes: bool,
}

impl FinalAnswer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads all answers of `stream`. Answers to HEAD have a field `X-Head`.
///
/// # Panics
///
/// If the stream is not a sequence of well-framed answers.
pub fn read_answers(stream: &[u8], ending: Ending) -> Vec<FinalAnswer> {
    let mut rest = stream;
    let mut answers = Vec::new();
    let mut interim = Vec::new();
    while !rest.is_empty() {
        let Some((status, fields, after)) = read_head(rest, ending) else {
            break;
        };
        rest = after;
        if matches!(status, 100 | 102..=199) {
            let framed = ["content-length", "transfer-encoding", "connection"];
            let is_bare = |(name, _): &(String, String)| !framed.contains(&name.as_str());
            assert!(fields.iter().all(is_bare), "an interim answer is framed");
            interim.push(status);
            continue;
        }
        let mut answer = FinalAnswer {
            status,
            closes: fields
                .iter()
                .any(|(name, value)| name == "connection" && value == "close"),
            fields,
            body: Vec::new(),
            trailers: Vec::new(),
            interim: std::mem::take(&mut interim),
        };
        let Some(after) = read_body(&mut answer, rest, ending) else {
            answers.push(answer);
            break;
        };
        rest = after;
        answers.push(answer);
    }
    answers
}

type Fields = Vec<(String, String)>;

/// A head and what follows it; nothing if it is cut, which must be allowed.
fn read_head(stream: &[u8], ending: Ending) -> Option<(u16, Fields, &[u8])> {
    let Some(end) = find(stream, b"\r\n\r\n") else {
        assert_eq!(ending, Ending::Aborted, "a head is cut");
        return None;
    };
    let head = str::from_utf8(&stream[..end]).expect("a head is text");
    let mut lines = head.split("\r\n");
    let line = lines.next().expect("a status line");
    let status = line.strip_prefix("HTTP/1.1 ").expect("a status line");
    assert_eq!(status.as_bytes()[3], b' ', "{line}");
    let status = status[..3].parse().expect("a status");
    Some((status, lines.map(read_field).collect(), &stream[end + 4..]))
}

fn read_field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(": ").expect("a field line");
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    assert!(
        !name.is_empty() && name.chars().all(is_token_char),
        "{line}"
    );
    assert!(!value.contains(['\r', '\n', '\0']), "{line:?}");
    (name.to_ascii_lowercase(), value.to_owned())
}

/// Reads the body of `answer`; gives back what follows, or nothing if all was read.
fn read_body<'a>(answer: &mut FinalAnswer, rest: &'a [u8], ending: Ending) -> Option<&'a [u8]> {
    let count = |name| answer.fields.iter().filter(|(key, _)| key == name).count();
    assert_eq!(count("date"), usize::from(answer.status != 101), "one date");
    assert!(
        count("content-length") + count("transfer-encoding") <= 1,
        "{answer:?}"
    );
    let length = answer
        .field("content-length")
        .map(|length| length.parse().expect("a number"));
    let chunked = answer
        .field("transfer-encoding")
        .map(|coding| assert_eq!(coding, "chunked"));
    if answer.status == 101 {
        answer.body = rest.to_vec();
        return None;
    }
    if matches!(answer.status, 204 | 304) {
        assert!(length.is_none() && chunked.is_none(), "{answer:?}");
        return Some(rest);
    }
    if answer.field("x-head").is_some() {
        return Some(rest);
    }
    // A refusal of a request whose method is HEAD is not marked, and the last.
    if rest.is_empty() && answer.closes && answer.status >= 400 {
        return None;
    }
    match (length, chunked) {
        (Some(length), _) => {
            let got = rest.len().min(length);
            assert!(got == length || ending == Ending::Aborted, "a body is cut");
            answer.body = rest[..got].to_vec();
            Some(&rest[got..])
        }
        (None, Some(())) => read_chunks(answer, rest, ending),
        (None, None) => {
            assert!(answer.closes, "a body without an end: {answer:?}");
            answer.body = rest.to_vec();
            None
        }
    }
}

fn read_chunks<'a>(
    answer: &mut FinalAnswer,
    mut rest: &'a [u8],
    ending: Ending,
) -> Option<&'a [u8]> {
    loop {
        let (line, after) = take_line(rest, ending)?;
        let size = usize::from_str_radix(line, 16).expect("a chunk size");
        if size == 0 {
            rest = after;
            break;
        }
        if after.len() < size + 2 {
            assert_eq!(ending, Ending::Aborted, "a chunk is cut");
            return None;
        }
        answer.body.extend_from_slice(&after[..size]);
        assert_eq!(&after[size..size + 2], b"\r\n", "a chunk's end");
        rest = &after[size + 2..];
    }
    loop {
        let (line, after) = take_line(rest, ending)?;
        rest = after;
        if line.is_empty() {
            return Some(rest);
        }
        answer.trailers.push(read_field(line));
    }
}

fn take_line(stream: &[u8], ending: Ending) -> Option<(&str, &[u8])> {
    let Some(end) = find(stream, b"\r\n") else {
        assert_eq!(ending, Ending::Aborted, "a line is cut");
        return None;
    };
    let line = str::from_utf8(&stream[..end]).expect("a line is text");
    Some((line, &stream[end + 2..]))
}

fn find(stream: &[u8], what: &[u8]) -> Option<usize> {
    stream.windows(what.len()).position(|window| window == what)
}
