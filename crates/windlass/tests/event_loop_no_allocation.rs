//! The loop allocates nothing in steady state. One test, alone in its process: the allocator
//! counts for all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass::Disposition::Keep;
use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse};
use windlass::event_loop::{Context, EventLoop, IoOptions, LoopConfig, Poster, Waker};
use windlass::{CatchUp, Timeout};
use windlass_sys::fd::{Blocking, set_blocking};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PIPES: u32 = 50;

struct Counts {
    reads: u32,
    ticks: u32,
    posts: u32,
    wakes: u32,
    /// When to stop.
    reads_max: u32,
    poster: Poster<'static, Self>,
    waker: Waker,
}

/// Hands a byte on, through the pipe that it came by: readable again in the next turn.
fn open(backend: Backend) -> (EventLoop<'static, Counts>, Counts) {
    let config = LoopConfig {
        backend: BackendConfig {
            force: Some(backend),
            environment: EnvironmentUse::Ignore,
            ..BackendConfig::default()
        },
        ..LoopConfig::default()
    };
    let mut event_loop = EventLoop::<Counts>::with_config(config).expect("open");
    for number in 0..PIPES {
        let (reader, writer) = io::pipe().expect("pipe");
        set_blocking(reader.as_fd(), Blocking::Nonblocking).expect("reader");
        (&writer).write_all(b"x").expect("write");
        let options = IoOptions {
            // Half of them have a timeout that each call starts anew.
            timeout: (number % 2 == 0).then_some(Timeout::After(Duration::from_secs(60))),
            ..IoOptions::default()
        };
        event_loop
            .watch(reader, options, move |counts, cx, mut reader, _| {
                let mut byte = [0];
                assert_eq!(reader.read(&mut byte).expect("read"), 1);
                (&writer).write_all(&byte).expect("write");
                counts.reads += 1;
                if counts.reads == counts.reads_max {
                    cx.stop();
                }
                if counts.reads % 10 == 0 {
                    post(counts);
                }
                if counts.reads % 7 == 0 {
                    counts.waker.wake();
                }
                Keep
            })
            .expect("register");
    }
    for period_us in [100, 333, 1000, 5000] {
        let period = Duration::from_micros(period_us);
        event_loop
            .every_with(period, CatchUp::Skip, |counts, _| {
                counts.ticks += 1;
                Keep
            })
            .expect("arm");
    }
    let (_, waker) = event_loop
        .waker(|counts, _| {
            counts.wakes += 1;
            Keep
        })
        .expect("waker");
    let counts = Counts {
        reads: 0,
        ticks: 0,
        posts: 0,
        wakes: 0,
        reads_max: 0,
        poster: event_loop.poster(),
        waker,
    };
    (event_loop, counts)
}

fn post(counts: &Counts) {
    // Of four words, which is what fits without a box.
    let words = [1_u32, 2, 3, 4, 5, 6, 7, 8];
    let run = move |counts: &mut Counts, _: &mut Context<'_, 'static, Counts>| {
        counts.posts += words[0];
    };
    counts.poster.post(run).expect("post");
}

const WINDOWS_MAX: u32 = 3;

#[test]
fn events_timers_posts_and_wakes_in_steady_state_allocate_nothing() {
    for backend in Backend::ALL {
        let (mut event_loop, mut counts) = open(backend);
        counts.reads_max = 10_000;
        event_loop.run(&mut counts).expect("warm up");
        // A machine that is busy elsewhere makes turns longer than any before, and their buffers
        // grow once for that: what must not allocate is what happens again and again.
        let mut allocations = u64::MAX;
        for window in 1..=WINDOWS_MAX {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            counts.reads_max = 10_000 + window * 100_000;
            event_loop.run(&mut counts).expect("run");
            allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            if allocations == 0 {
                break;
            }
        }
        let Counts {
            reads,
            ticks,
            posts,
            wakes,
            ..
        } = counts;
        assert!(reads >= 110_000 && ticks > 0 && posts > 5_000 && wakes > 1_000);
        assert_eq!(allocations, 0, "{backend}: {ticks} {posts} {wakes}");
    }
}
