//! A whole server of each model: kept connections with a fixed answer allocate nothing, in no thread.

#[path = "common/counting.rs"]
mod counting;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread;

use counting::{allocations, count_this_thread};
use windlass::models::ModelKind;
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

#[test]
fn a_kept_connection_with_a_fixed_answer_allocates_nothing_in_the_whole_server() {
    for kind in [
        ModelKind::SingleLoop,
        ModelKind::MultiLoop,
        ModelKind::HalfSyncHalfAsync,
        ModelKind::Hybrid,
        ModelKind::ThreadPerConnection,
    ] {
        check(kind);
    }
}

fn check(kind: ModelKind) {
    let fixed = FixedResponse::new(Response::new(Status::OK).body(vec![b'x'; 64]));
    let handler = move |_: &Request<'_>, response: Responder<'_>| {
        // Whichever thread calls sessions.
        count_this_thread();
        Ok(response.fixed(&fixed))
    };
    let service = Arc::new(HttpService::new(handler, HttpConfig::default()));
    let (send, started) = mpsc::channel();
    let server = thread::spawn(move || {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let builder = kind.builder(service).listen(addr).threads(THREADS);
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
    // Between threads a queue may see a longer burst than ever before, and grow.
    let growth = if kind == ModelKind::SingleLoop {
        0
    } else {
        200
    };
    assert!(
        during <= growth,
        "{during} allocations in 8000 requests of {kind}"
    );
    stop.stop().expect("it runs");
    drop(clients);
    let report = server.join().expect("no panic");
    assert_eq!(report.accepted, 16);
}
