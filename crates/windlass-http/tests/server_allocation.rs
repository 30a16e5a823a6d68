//! A whole server on one loop: kept connections with a fixed answer allocate nothing.

#![allow(
    unsafe_code,
    reason = "a global allocator that counts is unsafe to write"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use windlass::models::SingleLoop;
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

struct Counting;

/// Allocations of threads that count.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    // A thread that ends has no such flag any more, and does not count.
    if COUNTS.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: all is handed to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
        COUNTS.set(true);
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
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    ask_all(500);
    let during = ALLOCATIONS.load(Ordering::SeqCst) - before;
    assert_eq!(during, 0, "allocations in 8000 requests");
    stop.stop().expect("it runs");
    drop(clients);
    let report = server.join().expect("no panic");
    assert_eq!(report.accepted, 16);
}
