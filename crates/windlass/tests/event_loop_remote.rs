//! What other threads do to the loop, over each back end: posts, wakers, stops.

#[path = "common/loops.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{config, on_each_backend, open, readable_pipe};
use windlass::Disposition::{Disable, Keep, Remove};
use windlass::StopReason;
use windlass::demultiplexer::Backend;
use windlass::event_loop::{EventLoop, LoopConfig, PanicPolicy, PostError, Waker};

on_each_backend! {
    a_burst_from_outside_is_one_turn
    a_closure_of_any_alignment_arrives
    a_panicking_post_does_not_lose_the_others
    a_panicking_post_does_not_swallow_the_ring_of_later_ones
    a_poster_may_be_used_in_the_drop_of_a_post
    a_waker_that_is_removed_is_quiet
    a_wake_from_inside_the_handler_runs_it_again
    io_has_its_turn_between_bursts_of_posts
    large_and_small_closures_both_arrive
    posts_of_each_thread_arrive_in_order
    posts_of_an_ended_loop_are_dropped_with_it
    posts_that_came_before_the_run_are_run_by_an_empty_loop
    posts_to_a_dropped_loop_are_refused
    pf_15_after_the_last_wake_a_call_begins
    pf_15_every_item_is_seen_with_several_wakers
    the_own_events_of_the_loop_are_not_to_be_removed
    threads_reach_a_sleeping_loop
}

fn threads_reach_a_sleeping_loop(backend: Backend) {
    let mut event_loop = open::<Vec<thread::ThreadId>>(backend);
    event_loop.hold();
    let poster = event_loop.poster();
    let thread = thread::spawn(move || {
        let own = thread::current().id();
        // One at a time: the loop sleeps again before the next comes, or not; all are run.
        for _ in 0..1000 {
            let (ran, has_run) = sync_channel(1);
            poster
                .post(move |seen: &mut Vec<_>, _| {
                    assert_ne!(thread::current().id(), own);
                    seen.push(own);
                    ran.send(()).expect("send");
                })
                .expect("post");
            has_run.recv().expect("it ran");
        }
        poster.stop();
    });
    let mut seen = Vec::new();
    event_loop.run(&mut seen).expect("run");
    thread.join().expect("join");
    assert_eq!(seen.len(), 1000);
}

fn posts_of_each_thread_arrive_in_order(backend: Backend) {
    const THREADS: usize = 4;
    const POSTS: usize = 20_000;
    let mut event_loop = open::<[usize; THREADS]>(backend);
    event_loop.hold();
    let left = Arc::new(AtomicUsize::new(THREADS));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (poster, left) = (event_loop.poster(), Arc::clone(&left));
            thread::spawn(move || {
                for number in 0..POSTS {
                    poster
                        .post(move |next: &mut [usize; THREADS], _| {
                            assert_eq!(next[thread], number);
                            next[thread] += 1;
                        })
                        .expect("post");
                }
                if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    poster.post(|_, cx| cx.stop()).expect("post");
                }
            })
        })
        .collect();
    let mut next = [0; THREADS];
    event_loop.run(&mut next).expect("run");
    for thread in threads {
        thread.join().expect("join");
    }
    assert_eq!(next, [POSTS; THREADS]);
}

fn a_burst_from_outside_is_one_turn(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let poster = event_loop.poster();
    for _ in 0..1000 {
        poster.post(|count: &mut u32, _| *count += 1).expect("post");
    }
    let mut count = 0;
    let before = event_loop.counters().turns;
    event_loop.run_once(&mut count).expect("run");
    assert_eq!((count, event_loop.counters().turns - before), (1000, 1));
    // A burst while the loop is in a handler: one more turn, not a thousand.
    poster
        .post(move |_: &mut u32, cx| {
            let poster = cx.poster();
            let burst = thread::spawn(move || {
                for _ in 0..1000 {
                    poster.post(|count: &mut u32, _| *count += 1).expect("post");
                }
            });
            burst.join().expect("join");
        })
        .expect("post");
    let before = event_loop.counters().turns;
    event_loop.run_once(&mut count).expect("run");
    event_loop.run_once(&mut count).expect("run");
    assert_eq!((count, event_loop.counters().turns - before), (2000, 2));
    let before = event_loop.counters().turns;
    event_loop.run_nonblocking(&mut count).expect("run");
    event_loop.run_nonblocking(&mut count).expect("run");
    let spurious = event_loop.counters().turns - before - 2;
    assert!(spurious <= 1, "{spurious} turns for nothing");
}

fn large_and_small_closures_both_arrive(backend: Backend) {
    let mut event_loop = open::<Vec<u64>>(backend);
    let poster = event_loop.poster();
    let small = 7_u64;
    let large = [1_u64; 100];
    let text = String::from("dropped once");
    poster.post(move |sums, _| sums.push(small)).expect("post");
    poster
        .post(move |sums, _| sums.push(large.iter().sum()))
        .expect("post");
    poster
        .post(move |sums, _| sums.push(text.len() as u64))
        .expect("post");
    let mut sums = Vec::new();
    event_loop.run(&mut sums).expect("run");
    assert_eq!(sums, [7, 100, 12]);
}

fn a_closure_of_any_alignment_arrives(backend: Backend) {
    #[repr(align(64))]
    struct Line(u8);

    let mut event_loop = open::<Vec<u128>>(backend);
    let poster = event_loop.poster();
    let wide = 1_u128 << 100;
    let line = Line(7);
    poster.post(move |seen, _| seen.push(wide)).expect("post");
    poster
        .post(move |seen, _| {
            // The whole of it, not only the byte.
            let line = line;
            assert!((&raw const line).is_aligned());
            seen.push(line.0.into());
        })
        .expect("post");
    let mut seen = Vec::new();
    event_loop.run(&mut seen).expect("run");
    assert_eq!(seen, [1 << 100, 7]);
}

fn posts_that_came_before_the_run_are_run_by_an_empty_loop(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let poster = event_loop.poster();
    poster.post(|count: &mut u32, _| *count += 1).expect("post");
    let (_, waker) = event_loop
        .waker(|count, _| {
            *count += 10;
            Keep
        })
        .expect("waker");
    waker.wake();
    let mut count = 0;
    assert_eq!(event_loop.run(&mut count).expect("run"), StopReason::Empty);
    assert_eq!(count, 11);
}

fn posts_to_a_dropped_loop_are_refused(backend: Backend) {
    let event_loop = open::<()>(backend);
    let poster = event_loop.poster();
    drop(event_loop);
    let token = Arc::new(());
    let held = Arc::clone(&token);
    let refused = poster.post(move |(), _| drop(held));
    assert_eq!(refused, Err(PostError));
    assert_eq!(Arc::strong_count(&token), 1, "the closure is dropped");
    poster.wake();
    poster.stop();
}

fn posts_of_an_ended_loop_are_dropped_with_it(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let poster = event_loop.poster();
    let token = Arc::new(());
    poster.post(|_, cx| cx.break_loop()).expect("post");
    let mut count = 0;
    event_loop.run(&mut count).expect("run");
    let (large, small) = ([0_u64; 64], Arc::clone(&token));
    poster
        .post(move |count: &mut u32, _| {
            *count += 1;
            drop((large, small));
        })
        .expect("the loop is there");
    // Threads that post while the loop is dropped: each post is run, dropped or refused.
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (poster, token) = (poster.clone(), Arc::clone(&token));
            thread::spawn(move || {
                loop {
                    let token = Arc::clone(&token);
                    if poster.post(move |_, _| drop(token)).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    drop(event_loop);
    for thread in threads {
        thread.join().expect("join");
    }
    assert_eq!((count, Arc::strong_count(&token)), (0, 1));
}

/// Posts when it is dropped.
struct PostsOnDrop(windlass::event_loop::Poster<'static, u32>);

impl Drop for PostsOnDrop {
    fn drop(&mut self) {
        // Refused while the loop is being dropped.
        let _ = self.0.post(|count, _| *count += 1);
    }
}

fn a_poster_may_be_used_in_the_drop_of_a_post(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let poster = event_loop.poster();
    let guard = PostsOnDrop(poster.clone());
    poster.post(move |_, _| drop(guard)).expect("post");
    let guard = PostsOnDrop(poster.clone());
    let event = event_loop
        .after(Duration::from_secs(3600), move |_, _| drop(guard))
        .expect("arm");
    let mut count = 0;
    event_loop.run_nonblocking(&mut count).expect("run");
    assert!(event_loop.remove(event), "dropped with its guard");
    event_loop.run(&mut count).expect("run");
    assert_eq!(count, 2);
    // Dropped unused with the loop, both in the queue and in a handler.
    let (queued, watched) = (PostsOnDrop(poster.clone()), PostsOnDrop(poster.clone()));
    poster.post(move |_, _| drop(queued)).expect("post");
    event_loop
        .after(Duration::from_secs(3600), move |_, _| drop(watched))
        .expect("arm");
    drop(event_loop);
    assert_eq!(poster.post(|_, _| {}), Err(PostError));
}

fn a_panicking_post_does_not_lose_the_others(backend: Backend) {
    let mut event_loop = open::<Vec<u32>>(backend);
    let poster = event_loop.poster();
    for number in 0..6 {
        poster
            .post(move |seen: &mut Vec<u32>, _| {
                assert!(number % 3 != 1, "post {number} panics");
                seen.push(number);
            })
            .expect("post");
    }
    let mut seen = Vec::new();
    for _ in 0..2 {
        let run = catch_unwind(AssertUnwindSafe(|| event_loop.run(&mut seen)));
        run.expect_err("it propagates");
    }
    assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Empty);
    assert_eq!(seen, [0, 2, 3, 5]);
}

fn a_panicking_post_does_not_swallow_the_ring_of_later_ones(backend: Backend) {
    let config = LoopConfig {
        panic_policy: PanicPolicy::Contain(|_| {}),
        ..config(backend)
    };
    let mut event_loop = EventLoop::<Vec<u32>>::with_config(config).expect("open");
    event_loop.hold();
    let poster = event_loop.poster();
    let inner = poster.clone();
    poster
        .post(move |_, _| {
            // While the first burst runs another comes: its first post rings, the next does not.
            inner
                .post(|seen: &mut Vec<u32>, _| seen.push(2))
                .expect("post");
            panic!("of the first post");
        })
        .expect("post");
    poster
        .post(|seen: &mut Vec<u32>, _| seen.push(1))
        .expect("post");
    let mut seen = Vec::new();
    // It sleeps when there is nothing more to do; the stop comes when the posts have run.
    let (ran, has_run) = mpsc::channel();
    event_loop.on_check(move |seen: &mut Vec<u32>, _| {
        if seen.len() == 2 {
            let _ = ran.send(());
        }
        Keep
    });
    let stopper = poster.clone();
    let thread = thread::spawn(move || {
        // If it does not come, the assertion below says what was left behind.
        let _ = has_run.recv_timeout(Duration::from_secs(20));
        stopper.stop();
    });
    event_loop
        .every(Duration::from_millis(1), |_, _| Keep)
        .expect("turns for the hook");
    event_loop.run(&mut seen).expect("run");
    thread.join().expect("join");
    assert_eq!(seen, [1, 2]);
}

fn io_has_its_turn_between_bursts_of_posts(backend: Backend) {
    fn again(count: &mut (u32, u32), cx: &mut windlass::event_loop::Context<'_, '_, (u32, u32)>) {
        count.0 += 1;
        assert!(count.0 < 1000, "I/O has no turn");
        cx.poster().post(again).expect("post");
    }
    let mut event_loop = open::<(u32, u32)>(backend);
    let (reader, _writer) = readable_pipe();
    event_loop
        .on_readable(reader, |(_, reads), cx, _| {
            *reads += 1;
            if *reads == 10 {
                cx.stop();
            }
            Keep
        })
        .expect("register");
    event_loop.poster().post(again).expect("post");
    let mut count = (0, 0);
    event_loop.run(&mut count).expect("run");
    assert!(count.0 <= 12, "{count:?}");
}

fn pf_15_every_item_is_seen_with_several_wakers(backend: Backend) {
    const WAKERS: usize = 4;
    const THREADS: usize = 3;
    const ITEMS: usize = 5_000;
    let mut event_loop = open::<usize>(backend);
    event_loop.hold();
    let wakers: Vec<(Arc<Mutex<Vec<usize>>>, Waker)> = (0..WAKERS)
        .map(|_| {
            let queue = Arc::new(Mutex::new(Vec::new()));
            let items = Arc::clone(&queue);
            let (_, waker) = event_loop
                .waker(move |seen, cx| {
                    let taken = std::mem::take(&mut *items.lock().expect("lock"));
                    *seen += taken.len();
                    if *seen == WAKERS * THREADS * ITEMS {
                        cx.stop();
                    }
                    Keep
                })
                .expect("waker");
            (queue, waker)
        })
        .collect();
    let mut seen = 0;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let wakers = &wakers;
            scope.spawn(move || {
                for item in 0..ITEMS {
                    for (queue, waker) in wakers {
                        queue.lock().expect("lock").push(item);
                        waker.wake();
                        for _ in 0..(item * (thread + 3)) % 97 {
                            std::hint::spin_loop();
                        }
                    }
                }
            });
        }
        // It ends by the last item alone: no other event would make up for a lost wake.
        event_loop.run(&mut seen).expect("run");
    });
    assert_eq!(seen, WAKERS * THREADS * ITEMS);
}

fn pf_15_after_the_last_wake_a_call_begins(backend: Backend) {
    let mut event_loop = open::<usize>(backend);
    event_loop.hold();
    let published = Arc::new(AtomicUsize::new(0));
    let (told, is_told) = mpsc::channel();
    let value = Arc::clone(&published);
    let (_, waker) = event_loop
        .waker(move |_, _| {
            told.send(value.load(Ordering::Acquire)).expect("send");
            Keep
        })
        .expect("waker");
    let poster = event_loop.poster();
    let thread = thread::spawn(move || {
        for round in 1..=5_000 {
            published.store(round, Ordering::Release);
            // Merged or not: a call that begins after the last of them sees the value.
            for _ in 0..round % 3 + 1 {
                waker.wake();
            }
            while is_told.recv().expect("the call") < round {}
        }
        poster.stop();
    });
    event_loop.run(&mut 0).expect("run");
    thread.join().expect("join");
}

fn a_wake_from_inside_the_handler_runs_it_again(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    event_loop.hold();
    let slot = Arc::new(Mutex::new(None::<Waker>));
    let own = Arc::clone(&slot);
    let (_, waker) = event_loop
        .waker(move |calls, cx| {
            *calls += 1;
            if *calls == 3 {
                cx.stop();
            } else {
                own.lock().expect("lock").as_ref().expect("set").wake();
            }
            Keep
        })
        .expect("waker");
    *slot.lock().expect("lock") = Some(waker.clone());
    waker.wake();
    let mut calls = 0;
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 3);
}

fn a_waker_that_is_removed_is_quiet(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let mut count = 0;
    let (event, waker) = event_loop.waker(|_, _| panic!("removed")).expect("waker");
    waker.wake();
    assert!(event_loop.remove(event));
    // Its slot has another occupant now.
    let (second, other) = event_loop
        .waker(|count, _| {
            *count += 1;
            Disable
        })
        .expect("waker");
    for _ in 0..3 {
        waker.wake();
        event_loop.run_nonblocking(&mut count).expect("run");
    }
    assert_eq!(count, 0);
    for expected in 1..=2 {
        other.wake();
        event_loop.run_nonblocking(&mut count).expect("run");
        assert_eq!(count, expected);
    }
    event_loop.remove(second);
    // Wakers that answer Remove, and others than are never used.
    for _ in 0..100 {
        let (event, _) = event_loop.waker(|_, _| Keep).expect("waker");
        event_loop.remove(event);
        let (_, once) = event_loop
            .waker(|count, _| {
                *count += 1;
                Remove
            })
            .expect("waker");
        once.wake();
        event_loop.run_nonblocking(&mut count).expect("run");
        once.wake();
    }
    event_loop.run(&mut count).expect("run");
    assert_eq!((count, event_loop.counters().inserted), (102, 0));
    drop(event_loop);
    waker.wake();
}

fn the_own_events_of_the_loop_are_not_to_be_removed(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let all: Vec<_> = event_loop.events().map(|event| event.info.id).collect();
    for event in all {
        assert!(!event_loop.remove(event));
        event_loop.disable(event).expect_err("refused");
        event_loop
            .set_interest(event, windlass::Interest::NONE)
            .expect_err("refused");
    }
    event_loop.hold();
    let poster = event_loop.poster();
    poster
        .post(|_, cx| {
            let event = cx.event();
            assert!(!cx.remove(event), "a post has no event of its own");
        })
        .expect("post");
    let thread = thread::spawn(move || {
        poster
            .post(|count: &mut u32, cx| {
                *count += 1;
                cx.stop();
            })
            .expect("post");
    });
    let mut count = 0;
    event_loop.run(&mut count).expect("run");
    thread.join().expect("join");
    assert_eq!(count, 1);
}
