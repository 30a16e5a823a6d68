//! A whole server on one loop: kept connections with a fixed answer allocate nothing.

#[path = "common/counting.rs"]
mod counting;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use counting::{allocations, count_this_thread};
use windlass::models::SingleLoop;
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

#[test]
fn a_kept_connection_with_a_fixed_answer_allocates_nothing_in_the_whole_server() {
    let fixed = FixedResponse::new(Response::new(Status::OK).body(vec![b'x'; 64]));
    let handler = move |_: &Request<'_>, response: Responder<'_>| Ok(response.fixed(&fixed));
    let service = Arc::new(HttpService::new(handler, HttpConfig::default()));
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
    let mut answer = vec![0; 4096];
    let request = b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\n\r\n";
    let mut ask_all = |rounds: usize| {
        for _ in 0..rounds {
            for client in &mut clients {
                client.write_all(request).expect("send");
            }
            for client in &mut clients {
                let mut got = 0;
                while !answer[..got].ends_with(b"xxxxxxxx") {
                    let count = client.read(&mut answer[got..]).expect("receive");
                    assert!(count > 0, "the server closed");
                    got += count;
                }
            }
        }
    };
    // Tables and buffers grow, and timers go round the wheel's first buckets.
    ask_all(500);
    let before = allocations();
    ask_all(500);
    let during = allocations() - before;
    assert_eq!(during, 0, "allocations in 8000 requests");
    stop.stop().expect("it runs");
    drop(clients);
    let report = server.join().expect("no panic");
    assert_eq!(report.accepted, 16);
}
