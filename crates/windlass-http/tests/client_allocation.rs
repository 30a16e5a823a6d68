//! A prepared request on a kept connection allocates nothing.

#![allow(
    unsafe_code,
    reason = "a global allocator that counts is unsafe to write"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use windlass::session::{Input, Output};
use windlass_http::client::{
    ClientConnection, ClientNext, ClientRequest, Flow, ResponseLimits, ResponseSink, Reuse,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
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

/// Counts bytes, as a load generator does.
struct Count(u64);

impl ResponseSink for Count {
    fn body(&mut self, piece: &[u8]) -> Flow {
        self.0 += piece.len() as u64;
        Flow::Continue
    }
}

#[test]
fn a_prepared_request_and_its_response_allocate_nothing() {
    let request = ClientRequest::get("http://h/a").expect("valid").prepare();
    let mut connection = ClientConnection::new(ResponseLimits::default());
    let mut output = Output::default();
    let mut count = Count(0);
    let answers: [&[u8]; 2] = [
        b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    ];
    let mut ask = |bytes: &[u8]| {
        connection.send(&request, &mut output);
        output.advance(output.queued_bytes());
        // In two pieces, as networks cut it.
        let first = &bytes[..20];
        let input = Input {
            bytes: first,
            ended: false,
        };
        let progress = connection.advance(input, &mut count).expect("a head");
        assert_eq!((progress.consumed, progress.next), (0, ClientNext::Read));
        let input = Input {
            bytes,
            ended: false,
        };
        let progress = connection.advance(input, &mut count).expect("a response");
        assert_eq!(progress.next, ClientNext::Done(Reuse::Keep));
        assert_eq!(progress.consumed, bytes.len());
    };
    answers.iter().for_each(|answer| ask(answer));
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..1000 {
        answers.iter().for_each(|answer| ask(answer));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(count.0, 2002 * 5);
}
