//! What an idle connection holds.

#![allow(
    unsafe_code,
    reason = "a global allocator that counts is unsafe to write"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{Client, ONLY_12, ONLY_13, Script, Server, carry, pattern, wrap};
use windlass_tls::TlsSession;

struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    LIVE_BYTES.with(|live| live.set(live.get() + bytes));
}

// SAFETY: all is handed to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller keeps to the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        add(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps to the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn idle_connection_holds_no_buffers() {
    let service = wrap(Script::echo());
    for versions in [ONLY_12, ONLY_13] {
        let (mut client, mut server) = (Client::with(versions), Server::open(&service));
        for _ in 0..3 {
            client.write(&pattern(100_000));
            carry(&mut client, &mut server, 30_000);
        }
        assert_eq!(client.received.len(), 300_000);
        let Server { session, local, .. } = server;
        drop(local);
        let inline_bytes = size_of_val(&session);
        let before = LIVE_BYTES.with(Cell::get);
        drop::<TlsSession<Script>>(session);
        let heap_bytes = before - LIVE_BYTES.with(Cell::get);
        println!("{inline_bytes} bytes and {heap_bytes} on the heap, {versions:?}");
        assert!(
            inline_bytes < 1500 && heap_bytes < 2500,
            "{inline_bytes}, {heap_bytes}"
        );
    }
}
