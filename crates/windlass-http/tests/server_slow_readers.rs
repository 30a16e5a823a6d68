//! PF-37: readers that are slow bound what is made for them, over real sockets.

mod common;
#[path = "common/live.rs"]
mod live;

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use live::{Client, PATIENCE, Server, set_buffers};
use windlass::models::Limits;
use windlass_http::{BodyWriter, HttpConfig, Produced, Request, Responder, Status};

const CLIENTS: usize = 100;
const PIECE: usize = 4096;
/// Of each socket; the kernel doubles it.
const BUFFER_BYTES: usize = 64 * 1024;

/// Memory of the process that is in use, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("a Linux system");
    let pages = status.split(' ').nth(1).expect("a second field");
    pages.parse::<usize>().expect("a number") * 4096
}

/// Waits until `count` has not changed for a while; answers it.
fn settled(count: &AtomicUsize) -> usize {
    let started = Instant::now();
    let (mut last, mut since) = (0, started);
    while since.elapsed() < Duration::from_millis(300) {
        assert!(started.elapsed() < PATIENCE, "it goes on without end");
        std::thread::sleep(Duration::from_millis(10));
        let now = count.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

#[test]
fn pf37_endless_answers_to_slow_readers_take_bounded_memory_and_go_on() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let handle = move |_: &Request<'_>, response: Responder<'_>| {
        let counted = Arc::clone(&counted);
        let source = move |body: &mut BodyWriter<'_, '_>| {
            while !body.is_full() {
                body.push(&[b'x'; PIECE]);
                counted.fetch_add(PIECE, Ordering::Relaxed);
            }
            Produced::More
        };
        Ok(response.start(Status::OK).stream(source))
    };
    let limits = Limits::default();
    let high_bytes = limits.output.high_bytes as usize;
    let server = Server::start(handle, HttpConfig::default(), limits, Some(BUFFER_BYTES));
    let before = resident_bytes();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let stream = TcpStream::connect(server.addr).expect("connect");
            set_buffers(&stream, BUFFER_BYTES);
            let mut client = Client::new(stream);
            client.get("/");
            client
        })
        .collect();
    // Each has read a little: a slow reader, not a silent one.
    for client in &mut clients {
        client.0.read_exact(&mut [0; 1024]).expect("more");
    }
    let full = settled(&made);
    // What is queued, and what four buffers of the kernel hold, twice as long as was asked for.
    let bound = CLIENTS * (high_bytes + 64 * 1024 + 4 * 2 * BUFFER_BYTES);
    assert!(full <= bound, "{full} bytes were made, {bound} may be");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < CLIENTS * 2 * high_bytes, "memory grew by {grown}");

    let mut quick = clients.pop().expect("a client");
    let mut piece = vec![0; 1 << 20];
    for _ in 0..20 {
        quick.0.read_exact(&mut piece).expect("it goes on");
    }
    let went_on = settled(&made) - full;
    assert!(
        went_on > 19 << 20,
        "{went_on} bytes were made for the quick one"
    );
    assert!(
        went_on < (20 << 20) + high_bytes + (4 << 20),
        "and none for others: {went_on}"
    );
    drop((quick, clients));
    server.stop();
}
