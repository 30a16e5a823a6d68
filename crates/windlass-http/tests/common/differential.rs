//! The whole session against itself: the same bytes, cut in different ways, must have the same
//! answers; and what is answered must be readable by a strict reader that shares no code with us.
//!
//! Shared by a test that replays stored inputs, by a property test and by a fuzz target.

#![allow(dead_code, unreachable_pub, reason = "each includer uses a part")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use windlass::session::{Input, Next, Notifier, Progress, Session, SessionContext};
use windlass_http::{
    Answered, BodySink, BodyWriter, FixedResponse, Handler, HttpConfig, HttpService, Method,
    Methods, Notify, Produced, Request, Responder, Response, ResponseError, Status, Trailers,
};

use crate::common::Connection;
use crate::reader::{Ending, read_answers};

/// Longer inputs are not also given byte by byte.
const BYTEWISE_MAX: usize = 4096;
/// How often a session may notify itself in a row.
const ROUNDS_MAX: usize = 10_000;
/// More output than this must never be queued: the high mark, and one answer beyond it.
const QUEUED_BYTES_MAX: u64 = 128 * 1024;

/// Checks the session with one input: its first byte chooses the cuts, the rest is sent.
///
/// # Panics
///
/// If a claim does not hold.
pub fn check(data: &[u8]) {
    let Some((&seed, input)) = data.split_first() else {
        return;
    };
    let whole = transcribe(input, &mut std::iter::once(input.len()));
    whole.check();
    let cut = transcribe(input, &mut lengths(seed));
    same(&whole, &cut);
    if input.len() <= BYTEWISE_MAX {
        let bytewise = transcribe(input, &mut std::iter::repeat(1));
        same(&whole, &bytewise);
    }
}

/// Pseudo-random lengths from 1 to 64, drawn from `seed`.
fn lengths(seed: u8) -> impl Iterator<Item = usize> {
    let mut state = u32::from(seed) * 0x9E37 + 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state % 64) as usize + 1
    })
}

/// What a session made of an input.
#[derive(Debug)]
struct Transcript {
    sent: Vec<u8>,
    aborted: bool,
    /// Before the input was ended; nothing if the session had closed by then.
    consumed: Option<usize>,
}

fn transcribe(input: &[u8], lengths: &mut dyn Iterator<Item = usize>) -> Transcript {
    let mut connection = Connection::open(&service());
    let mut rest = input;
    while !rest.is_empty() && !connection.closed {
        let len = lengths.next().unwrap_or(rest.len()).min(rest.len());
        connection.feed(&rest[..len]);
        connection.serve_notifications(ROUNDS_MAX);
        rest = &rest[len..];
    }
    let consumed = (!connection.closed).then_some(connection.consumed);
    if !connection.closed {
        assert!(connection.pending_bytes() <= HEAD_BYTES, "input is left");
        connection.end().serve_notifications(ROUNDS_MAX);
    }
    assert!(connection.closed, "the session goes on after the end");
    assert!(
        connection.queued_bytes_max <= QUEUED_BYTES_MAX,
        "{} bytes of output were queued",
        connection.queued_bytes_max
    );
    Transcript {
        sent: connection.sent,
        aborted: connection.aborted,
        consumed,
    }
}

fn same(whole: &Transcript, cut: &Transcript) {
    assert_eq!(whole.aborted, cut.aborted, "whether it aborts");
    assert_eq!(whole.consumed, cut.consumed, "what is consumed");
    if whole.aborted {
        // What was queued is lost, which may be more when all came at once.
        assert!(cut.sent.starts_with(&whole.sent), "what was sent before");
    } else {
        assert_eq!(
            whole.sent.escape_ascii().to_string(),
            cut.sent.escape_ascii().to_string(),
            "what was sent"
        );
    }
}

impl Transcript {
    /// Checks what was sent.
    fn check(&self) {
        let ending = if self.aborted {
            Ending::Aborted
        } else {
            Ending::Closed
        };
        let answers = read_answers(&self.sent, ending);
        for (number, answer) in answers.iter().enumerate() {
            let is_last = number + 1 == answers.len();
            assert!(
                is_last || answer.status != 400 && !answer.closes,
                "something follows the answer {answer:?}"
            );
        }
    }
}

const HEAD_BYTES: usize = 1024;

fn service() -> HttpService<Exercise> {
    let mut config = HttpConfig::default();
    config.limits.head_bytes = HEAD_BYTES;
    config.limits.target_bytes = 256;
    config.limits.header_count = 16;
    config.limits.body_bytes = 512;
    config.limits.drain_bytes = 256;
    HttpService::new(Exercise::default(), config)
}

/// Answers in each way there is, by path. Marks its answers to HEAD, so that a reader knows them.
#[derive(Debug)]
struct Exercise {
    fixed: FixedResponse,
}

impl Default for Exercise {
    fn default() -> Self {
        Self {
            fixed: FixedResponse::new(Response::new(Status::OK).body("fixed")),
        }
    }
}

impl Handler for Exercise {
    type Local = ();

    fn local(&self) {}

    fn methods(&self) -> Methods {
        Methods::GET_HEAD.with(Method::Post).with(Method::Put)
    }

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        mut response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        if request.method() == Method::Head {
            response.with_header("X-Head", "1")?;
        }
        let number = request.query().and_then(|query| query.parse().ok());
        // Behind a 400 nothing may follow: the handler gives none.
        let number: u16 = number.filter(|number| *number != 400).unwrap_or(3);
        match request.path() {
            "/fixed" => Ok(response.fixed(&self.fixed)),
            "/collect" => Ok(response.collect(answer_collected)),
            "/limit" => Ok(response.body_limit(16).collect(answer_collected)),
            "/collect-job" => Ok(response.collect(|body, response| {
                let len = body.len();
                Ok(response.job(move || Response::new(Status::OK).body(len.to_string())))
            })),
            "/collect-stream" => Ok(response.collect(|body, response| {
                let pieces = Pieces::new(body.len() as u16 % 64);
                Ok(response.start(Status::OK).stream(pieces.source()))
            })),
            "/receive" => Ok(
                response.receive(Sink::default(), |sink, trailers, response| {
                    let text = format!("{} {}", sink.total, trailers.iter().count());
                    Ok(response.start(Status::CREATED).body(text))
                }),
            ),
            "/receive-error" => Ok(response.receive(Sink::default(), |_, _, response| {
                let _unused = response;
                Err(ResponseError::HeaderName)
            })),
            "/upload" => {
                let sink = Sink::default();
                let progress = Arc::clone(&sink.progress);
                let head = response.upload(sink).start(Status::OK);
                Ok(head.stream(move |body: &mut BodyWriter<'_, '_>| report(&progress, body)))
            }
            "/upload-now" => Ok(response
                .upload(Sink::default())
                .start(Status::OK)
                .body("now")),
            "/upload-twice" => Ok(response
                .upload(Sink::default())
                .receive(Sink::default(), |sink, _, response| {
                    Ok(response.start(Status::OK).body(sink.total.to_string()))
                })),
            "/upload-job" => Ok(response
                .upload(Sink::default())
                .job(|| Response::new(Status::ACCEPTED).body("job"))),
            "/upload-error" => {
                let _unused = response.upload(Sink::default());
                Err(ResponseError::HeaderName)
            }
            "/job" => Ok(response.job(move || Response::new(Status::OK).body(vec![b'j'; 9]))),
            "/job-stream" => {
                let work =
                    move || Response::new(Status::OK).stream(Pieces::new(number % 64).source());
                Ok(response.job(work))
            }
            "/stream" => {
                let pieces = Pieces::new(number % 256);
                Ok(response.start(Status::OK).stream(pieces.source()))
            }
            "/sized" => {
                let count = number % 256;
                let len = u64::from(count) * PIECE.len() as u64;
                let pieces = Pieces::new(count);
                Ok(response
                    .start(Status::OK)
                    .stream_sized(len, pieces.source()))
            }
            "/broken" => {
                let pieces = Pieces::new(number % 256);
                Ok(response
                    .start(Status::OK)
                    .stream_sized(5000, pieces.source()))
            }
            "/failed" => Ok(response
                .start(Status::OK)
                .stream(|body: &mut BodyWriter<'_, '_>| {
                    body.push(b"a part");
                    Produced::Failed
                })),
            "/upgrade" => response.upgrade("echo", &[("X-Echo", "1")], Echo),
            "/interim" => {
                response.interim(103, &[("Link", "</a>; rel=preload")])?;
                Ok(response.start(Status::OK).body("final"))
            }
            "/error" => Ok(response.start(Status::OK).header("A", "\n")?.empty()),
            "/status" => {
                let status = Status::new(number).unwrap_or(Status::OK);
                Ok(response.start(status).body("the body"))
            }
            "/status-stream" => {
                let status = Status::new(number).unwrap_or(Status::OK);
                Ok(response.start(status).stream(Pieces::new(2).source()))
            }
            path => Ok(response.start(Status::OK).body(path)),
        }
    }
}

fn answer_collected(body: Bytes, response: Responder<'_>) -> Result<Answered, ResponseError> {
    Ok(response.start(Status::OK).body(body))
}

const PIECE: &[u8] = &[b'p'; 1000];

/// Makes pieces, one for each time it is asked; of each three the second only when it is notified.
struct Pieces {
    left: u16,
    asked: u32,
}

impl Pieces {
    fn new(left: u16) -> Self {
        Self { left, asked: 0 }
    }

    fn source(mut self) -> impl FnMut(&mut BodyWriter<'_, '_>) -> Produced {
        move |body| {
            self.asked += 1;
            if self.asked % 3 == 2 {
                body.notifier().notify();
                return Produced::Pending;
            }
            if self.left == 0 {
                return match body.trailer("X-End", "1") {
                    Ok(()) => Produced::End,
                    Err(_) => Produced::Failed,
                };
            }
            self.left -= 1;
            body.push(PIECE);
            Produced::More
        }
    }
}

/// Sums a body up; refuses one with a byte `X`, and is not ready now and then.
#[derive(Default)]
struct Sink {
    total: u64,
    asked: u32,
    progress: Arc<Mutex<Uploaded>>,
}

/// What a source knows of the sink beside it.
#[derive(Default)]
struct Uploaded {
    state: Option<Result<u64, ()>>,
    notifier: Option<Notifier>,
}

impl BodySink for Sink {
    fn is_ready(&mut self, notify: &mut Notify<'_, '_>) -> bool {
        self.asked += 1;
        if self.asked.is_multiple_of(3) {
            notify.notifier().notify();
            return false;
        }
        true
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Response> {
        assert!(!piece.is_empty());
        if piece.contains(&b'X') {
            return Err(Response::text(
                Status::UNPROCESSABLE_CONTENT,
                "there is an X",
            ));
        }
        self.total += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        Ok(())
    }

    fn end(&mut self, _trailers: &Trailers) {
        self.settle(Ok(self.total));
    }
}

impl Sink {
    fn settle(&self, state: Result<u64, ()>) {
        let mut progress = self.progress.lock().expect("nobody panics with it");
        progress.state.get_or_insert(state);
        if let Some(notifier) = &progress.notifier {
            notifier.notify();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.settle(Err(()));
    }
}

/// The body of an answer that reports on the sink beside it.
fn report(progress: &Mutex<Uploaded>, body: &mut BodyWriter<'_, '_>) -> Produced {
    let mut progress = progress.lock().expect("nobody panics with it");
    let Some(state) = progress.state else {
        progress.notifier = Some(body.notifier());
        return Produced::Pending;
    };
    body.push(format!("{state:?}").as_bytes());
    Produced::End
}

/// Another protocol: sends back what comes, up to an exclamation mark.
#[derive(Debug)]
struct Echo;

impl Session for Echo {
    type Local = ();

    fn advance(&mut self, cx: &mut SessionContext<'_, ()>, input: Input<'_>) -> Progress {
        let end = input.bytes.iter().position(|byte| *byte == b'!');
        let bytes = end.map_or(input.bytes, |end| &input.bytes[..=end]);
        cx.output.push(bytes);
        Progress {
            consumed: bytes.len(),
            next: if end.is_some() || input.ended {
                Next::Close
            } else if cx.output.is_full() {
                Next::Flush
            } else {
                Next::Read
            },
        }
    }
}
