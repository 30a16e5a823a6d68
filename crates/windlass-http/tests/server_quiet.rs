//! Clients that are slow, silent or gone keep no processor busy. Alone in its file: it measures the
//! whole process.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::Read;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use live::Server;
use rustix::time::{ClockId, clock_gettime};
use windlass::models::Limits;
use windlass_http::{
    Answered, BodyWriter, HttpConfig, Produced, Request, Responder, ResponseError, Status,
};

static BIG: OnceLock<bytes::Bytes> = OnceLock::new();

fn handle(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    match request.path() {
        "/wait" => Ok(response
            .start(Status::OK)
            .stream(|_: &mut BodyWriter<'_, '_>| Produced::Pending)),
        "/big" => Ok(response
            .start(Status::OK)
            .shared(BIG.get_or_init(|| vec![b'b'; 20_000_000].into()).clone())),
        "/collect" => {
            Ok(response.collect(|body, response| Ok(response.start(Status::OK).body(body))))
        }
        path => Ok(response.start(Status::OK).body(path)),
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[test]
fn pf33_waiting_connections_of_all_kinds_keep_the_processor_quiet() {
    let limits = Limits {
        stop_deadline: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::start(handle, HttpConfig::default(), limits, None);
    let mut clients = Vec::new();
    for sent in [
        "",
        "GET / HTTP/1.1\r\nHo",
        "POST /collect HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
        "POST /drop HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc",
        "GET /wait HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /big HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        for _ in 0..20 {
            let mut client = server.connect();
            client.send(sent.as_bytes());
            clients.push(client);
        }
    }
    // Some of those that wait for a stream have ended their side, or take input that waits.
    for client in &mut clients[80..90] {
        client.end();
    }
    for client in &mut clients[90..100] {
        client.send(&[b'x'; 1000]);
    }
    // Answered when all that was sent before has arrived at the loop.
    let mut last = server.connect();
    last.get("/last");
    last.answer();
    for client in &mut clients[80..120] {
        client.0.read_exact(&mut [0; 16]).expect("a head");
    }

    let window = Duration::from_secs(5);
    let (since, before) = (Instant::now(), processor_time());
    let mut trickled = 0;
    while since.elapsed() < window {
        // The slow ones: one byte a second each.
        std::thread::sleep(Duration::from_secs(1));
        for client in &mut clients[20..40] {
            client.send(b"s");
        }
        for client in &mut clients[100..120] {
            client.0.read_exact(&mut [0]).expect("a byte");
        }
        trickled += 1;
    }
    assert!(trickled <= 5);
    let used = processor_time() - before;
    assert!(
        used < window * 3 / 100,
        "{used:?} of processor time in {window:?}"
    );
    // Some leave by a reset: unread input, or unread output of the other side.
    drop(clients);
    last.get("/again");
    assert_eq!(last.answer().2, b"/again");
    drop(last);
    // Streams without an end of their own, whose client had ended its side, may be cut.
    assert_eq!(server.stop().panics, 0);
}
