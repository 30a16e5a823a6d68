//! Answers 100,000 requests in memory, to be run under callgrind:
//!
//! `valgrind --tool=callgrind --toggle-collect='*::measured*' count_instructions [browser]`
//!
//! and divide the instructions collected by the requests printed. The driver's part, taking the
//! output out, is not counted.

#![allow(clippy::print_stdout, reason = "a program")]

use windlass::session::{
    Input, Notifier, Now, Output, Peer, Service, Session, SessionContext, Wakeups,
};
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

const SHORT: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const BROWSER: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\n\r\n";

fn main() -> Result<(), windlass_http::ResponseError> {
    let is_browser = std::env::args()
        .nth(1)
        .is_some_and(|kind| kind == "browser");
    let bytes = if is_browser { BROWSER } else { SHORT };
    let response = Response::new(Status::OK).header("Content-Type", "text/plain")?;
    let fixed = FixedResponse::new(response.body(vec![b'x'; 64]));
    let handler = move |_: &Request<'_>, response: Responder<'_>| Ok(response.fixed(&fixed));
    let service = HttpService::new(handler, HttpConfig::default());
    let mut local = service.local();
    let mut session = service.open(&mut local, &Peer::default(), Now::default());
    let mut output = Output::default();
    let make = || Notifier::new(|| {});
    let mut notifier = None;
    let mut sent_bytes = 0;
    let count = 100_000;
    for number in 0..count {
        let now = Now {
            unix_ms: number / 100,
            ..Now::default()
        };
        let cx = SessionContext {
            local: &mut local,
            output: &mut output,
            now,
            wakeups: Wakeups::new(&mut notifier, &make),
        };
        assert_eq!(measured(&mut session, cx, bytes), bytes.len());
        sent_bytes += output.queued_bytes();
        output.advance(output.queued_bytes());
    }
    println!("{count} requests, {sent_bytes} bytes sent");
    Ok(())
}

#[inline(never)]
fn measured<S: Session>(
    session: &mut S,
    mut cx: SessionContext<'_, S::Local>,
    bytes: &[u8],
) -> usize {
    session
        .advance(
            &mut cx,
            Input {
                bytes,
                ended: false,
            },
        )
        .consumed
}
