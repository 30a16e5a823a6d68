//! Answers that are compressed on the fly.

#![cfg(feature = "compression")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use common::{AllMethods, Answer, Connection, answers};
use proptest::prelude::*;
use windlass_http::{
    Answered, BodyWriter, Compression, Handler, HttpConfig, HttpService, Method, Produced, Request,
    Responder, Response, ResponseError, Status,
};

/// Text of `len` bytes that shrinks.
fn text(len: usize) -> Vec<u8> {
    b"All work and no play makes Jack a dull boy. "
        .iter()
        .copied()
        .cycle()
        .take(len)
        .collect()
}

fn decompress(coding: Option<&str>, mut data: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        None => data.read_to_end(&mut plain),
        Some("br") => brotli::Decompressor::new(data, 4096).read_to_end(&mut plain),
        Some("gzip") => flate2::read::GzDecoder::new(data).read_to_end(&mut plain),
        Some("zstd") => {
            let mut decoder = zstd::stream::read::Decoder::new(data).expect("a decoder");
            decoder.read_to_end(&mut plain)
        }
        Some(other) => panic!("unknown: {other}"),
    }
    .expect("valid");
    plain
}

/// What of `data` comes out though it has no end yet.
fn decompress_start(coding: &str, data: &[u8]) -> Vec<u8> {
    let mut plain = vec![0; 64 * 1024];
    let mut len = 0;
    let mut decoder: Box<dyn Read + '_> = match coding {
        "br" => Box::new(brotli::Decompressor::new(data, 4096)),
        "gzip" => Box::new(flate2::read::GzDecoder::new(data)),
        _ => Box::new(zstd::stream::read::Decoder::new(data).expect("a decoder")),
    };
    while let Ok(count @ 1..) = decoder.read(&mut plain[len..]) {
        len += count;
    }
    plain.truncate(len);
    plain
}

fn config() -> HttpConfig {
    let mut config = HttpConfig::default();
    config.compression = Some(Compression::default());
    config
}

/// What `handler` says to a request for `path` with these header lines.
fn ask(handler: impl Handler, request_line: &str, header_lines: &str) -> Answer {
    let service = HttpService::new(handler, config());
    let mut connection = Connection::open(&service);
    let request = format!("{request_line}\r\nHost: h\r\n{header_lines}\r\n");
    connection.feed(request.as_bytes());
    if !request_line.starts_with("HEAD ") && !connection.text().contains("chunked\r\n") {
        let mut all = answers(&connection.sent);
        assert_eq!(all.len(), 1);
        return all.remove(0);
    }
    split(&connection.sent)
}

/// A head and what is behind it.
fn split(sent: &[u8]) -> Answer {
    let end = sent
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    let head = str::from_utf8(&sent[..end]).expect("ASCII").to_owned();
    let status = head[9..12].parse().expect("a status");
    let body = match head.contains("Transfer-Encoding: chunked\r\n") {
        true => unchunk(&sent[end..]).0,
        false => sent[end..].to_vec(),
    };
    Answer { status, head, body }
}

/// The data of whole chunks, and what is behind the last one of them.
fn unchunk(mut chunks: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut data = Vec::new();
    while let Some(end) = chunks.windows(2).position(|w| w == b"\r\n") {
        let size = str::from_utf8(&chunks[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let (content, rest) = chunks[end + 2..].split_at(size);
        if size == 0 {
            return (data, rest);
        }
        data.extend_from_slice(content);
        chunks = rest.strip_prefix(b"\r\n").expect("a chunk's end");
    }
    (data, chunks)
}

/// Answers with `len` bytes of text and these headers.
fn page(
    status: Status,
    headers: &'static [(&'static str, &'static str)],
    len: usize,
) -> impl Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static
{
    move |_: &Request<'_>, response: Responder<'_>| {
        let mut head = response.start(status);
        for (name, value) in headers {
            head = head.header(name, value)?;
        }
        Ok(head.body(text(len)))
    }
}

const PLAIN: (&str, &str) = ("Content-Type", "text/plain");
const GZIP: &str = "Accept-Encoding: gzip\r\n";

#[test]
fn best_coding_that_is_accepted_and_used_is_applied() {
    for (accepted, coding) in [
        ("gzip", Some("gzip")),
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, zstd", Some("zstd")),
        ("br;q=0.1, gzip", Some("gzip")),
        ("deflate", None),
        ("gzip;q=0", None),
        ("identity, gzip;q=0.5", None),
    ] {
        let line = format!("Accept-Encoding: {accepted}\r\n");
        let answer = ask(page(Status::OK, &[PLAIN], 5000), "GET / HTTP/1.1", &line);
        assert_eq!(answer.header("content-encoding"), coding, "{accepted}");
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "{accepted}");
        assert_eq!(decompress(coding, &answer.body), text(5000), "{accepted}");
        assert_eq!(answer.body.len() < 500, coding.is_some(), "{accepted}");
    }
}

#[test]
fn coding_without_a_level_is_not_used() {
    let mut config = config();
    let compression = config.compression.as_mut().expect("set above");
    (compression.brotli, compression.zstd) = (None, None);
    let service = HttpService::new(page(Status::OK, &[PLAIN], 5000), config);
    let mut connection = Connection::open(&service);
    connection.feed(b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br, zstd, gzip\r\n\r\n");
    let answer = split(&connection.sent);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
}

#[test]
fn nothing_is_compressed_by_default() {
    let service = HttpService::new(page(Status::OK, &[PLAIN], 5000), HttpConfig::default());
    let mut connection = Connection::open(&service);
    connection.feed(b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = split(&connection.sent);
    assert_eq!((answer.header("vary"), answer.body.len()), (None, 5000));
}

#[test]
fn answers_that_must_stay_as_they_are_do_and_do_not_vary() {
    let not_modified: &[_] = &[PLAIN];
    for (status, headers, len) in [
        (Status::OK, &[PLAIN][..], 1023),
        (Status::OK, &[PLAIN], 9 * 1024 * 1024),
        (Status::OK, &[("Content-Type", "image/png")], 5000),
        (Status::OK, &[], 5000),
        (Status::PARTIAL_CONTENT, &[PLAIN], 5000),
        (
            Status::OK,
            &[PLAIN, ("Content-Range", "bytes 0-4999/5000")],
            5000,
        ),
        (Status::OK, &[PLAIN, ("Content-Encoding", "x")], 5000),
        (
            Status::OK,
            &[PLAIN, ("Cache-Control", "a, No-Transform")],
            5000,
        ),
        (
            Status::OK,
            &[PLAIN, ("Content-Digest", "sha-256=:YQ==:")],
            5000,
        ),
        (Status::NOT_FOUND, &[PLAIN], 5000),
        (Status::NO_CONTENT, &[PLAIN], 0),
        (Status::NOT_MODIFIED, not_modified, 0),
    ] {
        let answer = ask(page(status, headers, len), "GET / HTTP/1.1", GZIP);
        assert_eq!(answer.status, status.code());
        assert_eq!(answer.header("vary"), None, "{}", answer.head);
        assert!(answer.body == text(len), "{}", answer.head);
    }
}

#[test]
fn validators_become_weak_and_ranges_are_not_offered() {
    const HEADERS: &[(&str, &str)] = &[
        PLAIN,
        ("ETag", "\"v1\""),
        ("Accept-Ranges", "bytes"),
        ("Vary", "Origin"),
    ];
    let answer = ask(page(Status::OK, HEADERS, 5000), "GET / HTTP/1.1", GZIP);
    assert_eq!(answer.header("etag"), Some("W/\"v1\""));
    assert_eq!(answer.header("accept-ranges"), None);
    assert!(
        answer
            .head
            .contains("\r\nVary: Origin\r\nVary: Accept-Encoding\r\n")
    );
    let plain = ask(page(Status::OK, HEADERS, 5000), "GET / HTTP/1.1", "");
    assert_eq!(plain.header("etag"), Some("\"v1\""));
    assert_eq!(plain.header("accept-ranges"), Some("bytes"));
    // A cache finds the stored answer by the same validator.
    let unchanged = ask(
        page(Status::NOT_MODIFIED, HEADERS, 0),
        "GET / HTTP/1.1",
        GZIP,
    );
    assert_eq!(unchanged.header("etag"), Some("W/\"v1\""));
    assert_eq!(unchanged.header("content-encoding"), None);
    let unchanged = ask(page(Status::NOT_MODIFIED, HEADERS, 0), "GET / HTTP/1.1", "");
    assert_eq!(unchanged.header("etag"), Some("\"v1\""));
}

#[test]
fn head_has_the_headers_of_get_but_the_length() {
    const HEADERS: &[(&str, &str)] = &[PLAIN, ("ETag", "\"v1\""), ("Accept-Ranges", "bytes")];
    for header_lines in [GZIP, "", "Accept-Encoding: zstd, br\r\n"] {
        let without_length = |answer: &Answer| -> Vec<String> {
            let lines = answer.head.lines().map(str::to_owned);
            lines
                .filter(|line| !line.starts_with("Content-Length"))
                .collect()
        };
        let page = || page(Status::OK, HEADERS, 5000);
        let get = ask(page(), "GET / HTTP/1.1", header_lines);
        let head = ask(page(), "HEAD / HTTP/1.1", header_lines);
        assert_eq!(without_length(&head), without_length(&get));
        assert_eq!(head.body, b"");
        let length = head.header("content-length").map(str::to_owned);
        assert_eq!(length, header_lines.is_empty().then(|| "5000".to_owned()));
    }
}

/// Adds headers to what another handler answers.
struct Wrapping<H>(H, &'static str, &'static str);

impl<H: Handler> Handler for Wrapping<H> {
    type Local = H::Local;

    fn local(&self) -> Self::Local {
        self.0.local()
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        mut response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        response.with_header(self.1, self.2)?;
        self.0.handle(local, request, response)
    }
}

#[test]
fn headers_of_wrapping_handlers_are_sent_once_and_obeyed() {
    let page = || page(Status::OK, &[PLAIN], 5000);
    let answer = ask(Wrapping(page(), "X-A", "b"), "GET / HTTP/1.1", GZIP);
    assert_eq!(answer.head.matches("X-A: b\r\n").count(), 1);
    assert_eq!(answer.head.matches("Vary").count(), 1);
    assert_eq!(answer.head.matches("Date").count(), 1);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    for (name, value) in [("Cache-Control", "no-transform"), ("ETag", "\"v\"")] {
        let answer = ask(Wrapping(page(), name, value), "GET / HTTP/1.1", GZIP);
        assert_eq!(
            (answer.header("content-encoding"), answer.body.len()),
            (None, 5000)
        );
    }
}

#[test]
fn later_requests_wait_for_the_job_and_the_connection_goes_on() {
    let handler = |request: &Request<'_>, response: Responder<'_>| {
        let len = if request.path() == "/long" { 5000 } else { 3 };
        let head = response
            .start(Status::OK)
            .header("Content-Type", "text/plain")?;
        Ok(head.body(text(len)))
    };
    let service = HttpService::new(handler, config());
    let mut connection = Connection::open(&service);
    connection.hold_jobs = true;
    connection.feed(b"GET /long HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n");
    connection.feed(b"GET /short HTTP/1.1\r\nHost: h\r\nAccept-Encoding: br\r\n\r\n");
    assert!(connection.sent.is_empty());
    connection.run_held_job();
    let all = answers(&connection.sent);
    assert_eq!(decompress(Some("br"), &all[0].body), text(5000));
    assert_eq!((all[1].body.len(), all.len()), (3, 2));
    assert!(!connection.closed);
}

#[test]
fn answers_of_jobs_and_to_bodies_are_compressed_too() {
    let late = || {
        AllMethods(|request: &Request<'_>, response: Responder<'_>| {
            let made = |body: Vec<u8>| {
                let response = Response::new(Status::OK).header("Content-Type", "text/plain");
                response.expect("valid").body(body)
            };
            Ok(match request.method() {
                Method::Post => response.collect(move |body, response| {
                    Ok(response.respond(made([&body[..], &text(5000)].concat())))
                }),
                _ => response.job(move || made(text(5000))),
            })
        })
    };
    let answer = ask(late(), "GET / HTTP/1.1", GZIP);
    assert_eq!(decompress(Some("gzip"), &answer.body), text(5000));
    let service = HttpService::new(late(), config());
    let mut connection = Connection::open(&service);
    connection.feed(
        b"POST / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
    );
    let answer = split(&connection.sent);
    assert_eq!(
        decompress(Some("gzip"), &answer.body),
        [b"hi", &text(5000)[..]].concat()
    );
}

#[test]
fn part_of_a_file_is_read_and_compressed_in_the_job() {
    let path = std::env::temp_dir().join(format!("windlass-compression-{}", std::process::id()));
    let content = [b"head", &text(100_000)[..], b"tail"].concat();
    File::create(&path)
        .and_then(|mut file| file.write_all(&content))
        .expect("write");
    let file = Arc::new(File::open(&path).expect("open"));
    std::fs::remove_file(&path).expect("remove");
    let sends = |len: u64| {
        let file = Arc::clone(&file);
        move |_: &Request<'_>, response: Responder<'_>| {
            let head = response
                .start(Status::OK)
                .header("Content-Type", "text/css")?;
            Ok(head.file(Arc::clone(&file), 4, len))
        }
    };
    let answer = ask(sends(100_000), "GET / HTTP/1.1", GZIP);
    assert_eq!(decompress(Some("gzip"), &answer.body), text(100_000));
    // The file is shorter than was said: nothing of it was sent yet.
    let answer = ask(sends(200_000), "GET / HTTP/1.1", GZIP);
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (500, None)
    );
}

/// Streams `pieces`, pausing before each empty one.
fn streams(
    pieces: Vec<Vec<u8>>,
    len: Option<u64>,
) -> impl Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static
{
    move |_: &Request<'_>, response: Responder<'_>| {
        let mut pieces = pieces.clone().into_iter();
        let source = move |body: &mut BodyWriter<'_, '_>| {
            match pieces.next() {
                None => return Produced::End,
                Some(piece) if piece.is_empty() => {
                    body.notifier().notify();
                    return Produced::Pending;
                }
                Some(piece) => body.push(&piece),
            }
            Produced::More
        };
        let head = response
            .start(Status::OK)
            .header("Content-Type", "text/event-stream")?;
        Ok(match len {
            Some(len) => head.stream_sized(len, source),
            None => head.stream(source),
        })
    }
}

fn open_stream(
    handler: impl Handler,
    version: &str,
    coding: &str,
) -> Connection<HttpService<impl Handler>> {
    let mut connection = Connection::open(&HttpService::new(handler, config()));
    let request = format!("GET / {version}\r\nHost: h\r\nAccept-Encoding: {coding}\r\n\r\n");
    connection.feed(request.as_bytes());
    connection
}

#[test]
fn what_a_stream_has_made_comes_through_when_it_pauses() {
    for coding in ["gzip", "br", "zstd"] {
        let pieces = vec![
            b"data: 1\n\n".to_vec(),
            vec![],
            b"data: 2\n\n".to_vec(),
            vec![],
            vec![],
        ];
        let mut connection = open_stream(streams(pieces, None), "HTTP/1.1", coding);
        let answer = split(&connection.sent);
        assert_eq!(answer.header("content-encoding"), Some(coding));
        assert_eq!(
            decompress_start(coding, &answer.body),
            b"data: 1\n\n",
            "{coding}"
        );
        assert!(connection.serve_notification());
        let answer = split(&connection.sent);
        assert_eq!(
            decompress_start(coding, &answer.body),
            b"data: 1\n\ndata: 2\n\n",
            "{coding}"
        );
        let sent = connection.sent.len();
        assert!(connection.serve_notification());
        assert_eq!(
            connection.sent.len(),
            sent,
            "no empty block for a pause without data"
        );
        assert!(connection.serve_notification());
        let answer = split(&connection.sent);
        assert_eq!(
            decompress(Some(coding), &answer.body),
            b"data: 1\n\ndata: 2\n\n",
            "{coding}"
        );
        assert!(connection.sent.ends_with(b"0\r\n\r\n") && !connection.closed);
    }
}

#[test]
fn stream_of_a_promised_length_is_compressed_and_held_to_it() {
    let pieces = || vec![text(3000), text(3000)];
    let connection = open_stream(streams(pieces(), Some(6000)), "HTTP/1.1", "zstd");
    let answer = split(&connection.sent);
    assert_eq!(answer.header("content-length"), None);
    assert_eq!(decompress(Some("zstd"), &answer.body), pieces().concat());
    for len in [5999, 6001] {
        let connection = open_stream(streams(pieces(), Some(len)), "HTTP/1.1", "zstd");
        assert!(
            connection.closed && !connection.sent.ends_with(b"0\r\n\r\n"),
            "{len}"
        );
    }
    let connection = open_stream(streams(vec![text(100)], Some(100)), "HTTP/1.1", "zstd");
    assert_eq!(
        split(&connection.sent).header("content-length"),
        Some("100"),
        "too short"
    );
}

#[test]
fn http10_client_gets_a_compressed_stream_up_to_the_end_of_the_connection() {
    let connection = open_stream(streams(vec![text(3000)], None), "HTTP/1.0", "gzip");
    let answer = split(&connection.sent);
    assert!(connection.closed && !answer.head.contains("chunked"));
    assert_eq!(decompress(Some("gzip"), &answer.body), text(3000));
}

#[test]
fn trailers_of_a_compressed_stream_are_sent() {
    let handler = |_: &Request<'_>, response: Responder<'_>| {
        let source = |body: &mut BodyWriter<'_, '_>| {
            body.push(b"text");
            body.trailer("X-Sum", "4").expect("valid");
            Produced::End
        };
        Ok(response
            .start(Status::OK)
            .header("Content-Type", "text/plain")?
            .stream(source))
    };
    let connection = open_stream(handler, "HTTP/1.1", "gzip");
    assert!(connection.sent.ends_with(b"0\r\nX-Sum: 4\r\n\r\n"));
    assert_eq!(
        decompress(Some("gzip"), &split(&connection.sent).body),
        b"text"
    );
}

#[test]
fn stream_that_never_ends_and_shrinks_to_nothing_lets_others_have_their_turn() {
    let handler = |_: &Request<'_>, response: Responder<'_>| {
        let source = |body: &mut BodyWriter<'_, '_>| {
            while !body.is_full() {
                body.push(&[b'a'; 1024]);
            }
            Produced::More
        };
        Ok(response
            .start(Status::OK)
            .header("Content-Type", "text/plain")?
            .stream(source))
    };
    let mut connection = open_stream(handler, "HTTP/1.1", "zstd");
    for _ in 0..3 {
        assert!(
            connection.serve_notification(),
            "it waits though it has more"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn stream_decompresses_to_what_its_source_made(
        pieces in proptest::collection::vec(
            prop_oneof![
                1 => Just(Vec::new()),
                3 => proptest::collection::vec(any::<u8>(), 1..2000),
                1 => (20_000_usize..80_000).prop_map(text),
            ],
            0..12,
        ),
        coding in proptest::sample::select(vec!["gzip", "br", "zstd"]),
    ) {
        let mut connection = open_stream(streams(pieces.clone(), None), "HTTP/1.1", coding);
        while connection.serve_notification() {}
        prop_assert!(connection.sent.ends_with(b"0\r\n\r\n"));
        let answer = split(&connection.sent);
        prop_assert_eq!(answer.header("content-encoding"), Some(coding));
        prop_assert_eq!(decompress(Some(coding), &answer.body), pieces.concat());
    }
}

#[test]
fn files_are_compressed_whether_their_content_is_in_memory_or_not() {
    let dir = std::env::temp_dir().join(format!("windlass-compress-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("create");
    for (name, len) in [
        ("short.txt", 4000),
        ("long.txt", 100_000),
        ("tiny.txt", 100),
    ] {
        std::fs::write(dir.join(name), text(len)).expect("write");
        let files = || windlass_http::StaticFiles::new(&dir).expect("open");
        let line = format!("GET /{name} HTTP/1.1");
        let plain = ask(files(), &line, "");
        assert_eq!((plain.status, plain.body.len()), (200, len), "{name}");
        let answer = ask(files(), &line, GZIP);
        assert_eq!(
            decompress(answer.header("content-encoding"), &answer.body),
            text(len)
        );
        let is_long = len >= 1024;
        assert_eq!(
            answer.header("content-encoding").is_some(),
            is_long,
            "{name}"
        );
        assert_eq!(plain.header("vary").is_some(), is_long, "{name}");
        let part = ask(files(), &line, &format!("{GZIP}Range: bytes=1-3\r\n"));
        assert_eq!((part.status, &part.body[..]), (206, &text(4)[1..]));
        assert!(part.header("content-encoding").is_none());
    }
    std::fs::remove_dir_all(&dir).expect("remove");
}
