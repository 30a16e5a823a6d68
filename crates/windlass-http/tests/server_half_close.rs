//! PF-34: a client that closes its sending side after its request gets its answer, over real
//! sockets.

mod common;
#[path = "common/live.rs"]
mod live;

use std::thread;
use std::time::Duration;

use live::Server;
use windlass::models::Limits;
use windlass_http::{
    Answered, BodyWriter, HttpConfig, Produced, Request, Responder, Response, ResponseError, Status,
};

const BIG: usize = 10_000_000;

/// `/<milliseconds>/<length>`: a job that takes so long and answers so much.
fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    let path = request.path();
    if path == "/collect" {
        return Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))));
    }
    if let Some(len) = path.strip_prefix("/stream/") {
        let mut left: usize = len.parse().expect("a number");
        return Ok(response
            .start(Status::OK)
            .stream(move |body: &mut BodyWriter<'_, '_>| {
                while left > 0 && !body.is_full() {
                    let piece = left.min(10_000);
                    body.push(&vec![b's'; piece]);
                    left -= piece;
                }
                if left == 0 {
                    Produced::End
                } else {
                    Produced::More
                }
            }));
    }
    let (ms, len) = path[1..].split_once('/').expect("two parts");
    let (ms, len) = (
        ms.parse().expect("a number"),
        len.parse().expect("a number"),
    );
    if ms == 0 {
        return Ok(response.start(Status::OK).shared(vec![b'a'; len].into()));
    }
    Ok(response.job(move || {
        thread::sleep(Duration::from_millis(ms));
        Response::new(Status::OK).body(vec![b'a'; len])
    }))
}

fn start() -> Server {
    Server::start(handle, HttpConfig::default(), Limits::default(), None)
}

#[test]
fn pf34_half_closed_client_gets_its_whole_answer_however_late_and_long() {
    let server = start();
    for ms in [0, 10, 500] {
        for len in [5, BIG] {
            let sent = server
                .connect()
                .get(&format!("/{ms}/{len}"))
                .end()
                .read_all();
            let answers = common::answers(&sent);
            assert_eq!((answers.len(), answers[0].body.len()), (1, len), "{ms} ms");
        }
    }
    let mut client = server.connect();
    let sent = client.get("/0/5").get("/10/6").get("/0/7").end().read_all();
    let lens: Vec<_> = common::answers(&sent)
        .iter()
        .map(|a| a.body.len())
        .collect();
    assert_eq!(lens, [5, 6, 7], "all complete requests are answered");
    let sent = server
        .connect()
        .get(&format!("/stream/{BIG}"))
        .end()
        .read_all();
    assert!(sent.len() > BIG && sent.ends_with(b"\r\n0\r\n\r\n"));
    assert_eq!(server.stop().failed, 0);
}

#[test]
fn pf34_end_in_the_middle_of_a_request_closes_without_an_answer() {
    let server = start();
    for cut in [
        "",
        "GET /0/5 HTTP/1.1\r\nHost",
        "POST /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
        "POST /collect HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
    ] {
        let sent = server.connect().send(cut.as_bytes()).end().read_all();
        assert!(sent.is_empty(), "{cut}");
    }
    server.stop();
}
