//! A keep-alive request with a fixed answer allocates nothing.

#![allow(
    unsafe_code,
    reason = "a global allocator that counts is unsafe to write"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use windlass::session::{
    Input, Next, Notifier, Now, Output, Peer, Service, Session, SessionContext, Wakeups,
};
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

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

#[test]
fn fixed_answer_on_a_kept_connection_allocates_nothing() {
    let fixed = FixedResponse::new(Response::new(Status::OK).body(vec![b'x'; 64]));
    let handler = move |_: &Request<'_>, response: Responder<'_>| Ok(response.fixed(&fixed));
    let service = HttpService::new(handler, HttpConfig::default());
    let mut local = service.local();
    let mut session = service.open(&mut local, &Peer::default(), Now::default());
    let mut output = Output::default();
    let make = || Notifier::new(|| {});
    let mut notifier = None;
    let input = b"GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n".repeat(3);
    let mut ask = || {
        let now = Now {
            unix_ms: 1,
            ..Now::default()
        };
        let mut cx = SessionContext {
            local: &mut local,
            output: &mut output,
            now,
            wakeups: Wakeups::new(&mut notifier, &make),
        };
        let progress = session.advance(
            &mut cx,
            Input {
                bytes: &input,
                ended: false,
            },
        );
        assert!(matches!(progress.next, Next::Read) && progress.consumed == input.len());
        assert!(session.deadline().is_some());
        output.advance(output.queued_bytes());
    };
    ask();

    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..1000 {
        ask();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
