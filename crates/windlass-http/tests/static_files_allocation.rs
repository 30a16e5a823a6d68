//! A whole server on one loop: kept connections with cached files allocate nothing.

mod common;
#[path = "common/counting.rs"]
mod counting;
mod site;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use counting::{allocations, count_this_thread};
use site::{Site, set_modified};
use windlass::models::SingleLoop;
use windlass_http::{HttpConfig, HttpService, Precompressed};

/// Sends `request` on each connection and reads the answers to their known end.
fn ask_all(clients: &mut [TcpStream], request: &[u8], answer_len: usize, rounds: usize) {
    let mut answer = vec![0; answer_len];
    for _ in 0..rounds {
        for client in &mut *clients {
            client.write_all(request).expect("send");
        }
        for client in &mut *clients {
            client.read_exact(&mut answer).expect("receive");
            assert!(answer.starts_with(b"HTTP/1.1 "));
        }
    }
}

/// The length of one answer to `request`, once the file is settled and has a tag.
fn answer_len(addr: SocketAddr, request: &str) -> usize {
    let request = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
    loop {
        let mut client = TcpStream::connect(addr).expect("connect");
        client.write_all(request.as_bytes()).expect("send");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("receive");
        if answer.windows(6).any(|w| w == b"ETag: ") {
            return answer.len() - "Connection: close\r\n".len();
        }
    }
}

#[test]
fn a_kept_connection_with_cached_files_allocates_nothing_in_the_whole_server() {
    let site = Site::empty();
    for (path, len) in [
        ("short.txt", 4096),
        ("short.txt.br", 1000),
        ("long.bin", 50_000),
        ("index.html", 100),
    ] {
        // Long ago, so that each answer has a date.
        set_modified(&site.write(path, vec![b'x'; len]), 1_000_000, 0);
    }
    let files = site.files().precompressed(Precompressed::Siblings);
    let service = Arc::new(HttpService::new(files, HttpConfig::default()));
    let (send, started) = mpsc::channel();
    let server = thread::spawn(move || {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let builder = SingleLoop::builder(service).listen(addr);
        let mut server = builder.build().expect("build");
        let started = (server.local_addrs()[0], server.stop_handle());
        send.send(started).expect("the test waits");
        count_this_thread();
        server.run().expect("run")
    });
    let (addr, stop) = started.recv().expect("it starts");
    let mut clients: Vec<TcpStream> = (0..16)
        .map(|_| TcpStream::connect(addr).expect("connect"))
        .collect();
    for headers in [
        "GET /short.txt HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\n\r\n",
        "GET /short.txt HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, br\r\n\r\n",
        "GET /long.bin HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
        "GET /long.bin HTTP/1.1\r\nHost: h\r\nRange: bytes=100-199\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nRange: bytes=-7\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n\r\n",
        "HEAD /long.bin HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let len = answer_len(addr, headers);
        let mut during = 0;
        // Tables and buffers grow, and timers go round the wheel's first buckets.
        for rounds in [200, 200, 200] {
            let before = allocations();
            ask_all(&mut clients, headers.as_bytes(), len, rounds);
            during = allocations() - before;
        }
        assert_eq!(during, 0, "allocations in 3200 requests: {headers}");
    }
    stop.stop().expect("it runs");
    drop(clients);
    server.join().expect("no panic");
}
