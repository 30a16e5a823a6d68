//! Lifetimes over each back end: closing, removing and replacing while others are ready, from
//! inside handlers, and with duplicates alive.

#[path = "common/loops.rs"]
mod common;

use std::cell::Cell;
use std::io::{PipeReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use common::{drain, in_own_process, on_each_backend, open, pipe, readable_pipe};
use windlass::Disposition::{self, Disable, Keep, Rearm, Remove};
use windlass::demultiplexer::Backend;
use windlass::event_loop::{Context, EventHandler, IoOptions, Poster};
use windlass::{EventId, Happened, StopReason};

on_each_backend! {
    a_closed_number_is_reported_as_an_error_and_does_not_spin
    a_descriptor_is_closed_when_its_event_is_gone
    a_handler_that_removes_itself_is_dropped_when_it_returns
    a_reused_number_is_not_taken_for_the_one_before
    pf_01_a_duplicate_of_a_removed_handle_does_not_wake_the_loop
    pf_01_a_raw_close_under_a_duplicate_is_cleared
    pf_02_a_removed_sibling_does_not_run
    pf_03_all_operations_are_legal_in_a_handler
    pf_03_an_answer_for_a_removed_event_does_not_touch_its_successor
    pf_03_captured_state_may_use_the_loop_when_dropped
}

fn a_descriptor_is_closed_when_its_event_is_gone(backend: Backend) {
    // Other tests start programs, which have all descriptors until they execute.
    let path = format!("{backend}::a_descriptor_is_closed_when_its_event_is_gone");
    in_own_process(&path, || {
        let is_closed = |mut writer: &std::io::PipeWriter| writer.write_all(b"x").is_err();
        for answer in [Remove, Keep, Disable] {
            let mut event_loop = open::<()>(backend);
            let (reader, writer) = readable_pipe();
            event_loop
                .on_readable(reader, move |(), cx, _| {
                    cx.stop();
                    answer
                })
                .expect("register");
            event_loop.run(&mut ()).expect("run");
            assert_eq!(is_closed(&writer), answer == Remove, "{answer:?}");
            drop(event_loop);
            assert!(is_closed(&writer), "with the loop");
        }
    });
}

fn a_handler_that_removes_itself_is_dropped_when_it_returns(backend: Backend) {
    for answer in [Remove, Keep, Disable, Rearm] {
        let mut event_loop = open::<u32>(backend);
        let (reader, _writer) = readable_pipe();
        let token = Rc::new(());
        let held = Rc::clone(&token);
        event_loop
            .on_readable(reader, move |calls, cx, reader| {
                *calls += 1;
                let event = cx.event();
                assert!(cx.remove(event) && !cx.remove(event));
                cx.enable(event).expect_err("gone");
                cx.activate(event, 1).expect_err("gone");
                assert_eq!(drain(reader), b"x", "the source is open still");
                assert_eq!(Rc::strong_count(&held), 2);
                answer
            })
            .expect("register");
        let mut calls = 0;
        let reason = event_loop.run(&mut calls).expect("run");
        assert_eq!((reason, calls), (StopReason::Empty, 1), "{answer:?}");
        assert_eq!(Rc::strong_count(&token), 1);
    }
}

fn pf_01_a_duplicate_of_a_removed_handle_does_not_wake_the_loop(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, mut writer) = pipe();
    let duplicate = reader.try_clone().expect("dup");
    let event = event_loop
        .on_readable(reader, |calls, _, _| {
            *calls += 1;
            Keep
        })
        .expect("register");
    let mut calls = 0;
    event_loop.run_nonblocking(&mut calls).expect("run");
    assert!(event_loop.remove(event));
    writer.write_all(b"x").expect("write");
    sleep_for_a_while(&mut event_loop, &mut calls);
    assert_eq!(calls, 0);
    assert_eq!(event_loop.counters().stale_reports, 0);
    assert_eq!(drain(duplicate), b"x");
}

/// Runs the loop 50 ms and checks that it sleeps meanwhile: few turns, whatever interrupts it.
fn sleep_for_a_while(event_loop: &mut windlass::event_loop::EventLoop<'_, u32>, calls: &mut u32) {
    let before = event_loop.counters().turns;
    event_loop.stop_after(Duration::from_millis(50));
    assert_eq!(event_loop.run(calls).expect("run"), StopReason::Exit);
    let turns = event_loop.counters().turns - before;
    assert!(turns <= 5, "{turns} turns in 50 ms of nothing");
}

/// A handle whose number is closed behind the loop's back.
struct Careless {
    raw: RawFd,
}

impl<'l> EventHandler<'l, u32> for Careless {
    fn handle_event(
        &mut self,
        calls: &mut u32,
        _: &mut Context<'_, 'l, u32>,
        _: Happened,
    ) -> Disposition {
        *calls += 1;
        Disable
    }

    fn get_handle(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: borrowed for the call only, which uses the number and nothing else; that the
        // number may be closed is what is tested, in a process that opens no other meanwhile.
        Some(unsafe { BorrowedFd::borrow_raw(self.raw) })
    }
}

fn close(raw: RawFd) {
    // SAFETY: the number was taken out of its owner by `into_raw_fd` and is closed once.
    drop(unsafe { OwnedFd::from_raw_fd(raw) });
}

fn pf_01_a_raw_close_under_a_duplicate_is_cleared(backend: Backend) {
    let path = format!("{backend}::pf_01_a_raw_close_under_a_duplicate_is_cleared");
    in_own_process(&path, || {
        let mut event_loop = open::<u32>(backend);
        event_loop.hold();
        let (alive, mut to_alive) = pipe();
        event_loop
            .on_readable(alive, |calls, _, reader| {
                *calls += 100 * u32::try_from(drain(reader).len()).expect("few");
                Keep
            })
            .expect("register");
        let (reader, mut writer) = pipe();
        let duplicate = reader.try_clone().expect("dup");
        let raw = reader.into_raw_fd();
        let event = event_loop
            .register_handler(Box::new(Careless { raw }), IoOptions::default())
            .expect("register");
        let mut calls = 0;
        event_loop.run_nonblocking(&mut calls).expect("run");
        close(raw);
        writer.write_all(b"x").expect("write");
        assert!(event_loop.remove(event), "the later removal is quiet");
        sleep_for_a_while(&mut event_loop, &mut calls);
        assert_eq!(calls, 0, "no event is delivered");
        assert!(event_loop.counters().stale_reports <= 1);
        to_alive.write_all(b"y").expect("write");
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, 100, "the others go on after the set was rebuilt");
        event_loop
            .poster()
            .post(|_, cx| cx.stop())
            .expect("posts come through");
        event_loop.run(&mut calls).expect("run");
        drop(duplicate);
    });
}

fn a_closed_number_is_reported_as_an_error_and_does_not_spin(backend: Backend) {
    let path = format!("{backend}::a_closed_number_is_reported_as_an_error_and_does_not_spin");
    in_own_process(&path, || {
        let mut event_loop = open::<u32>(backend);
        event_loop.hold();
        let (reader, _writer) = pipe();
        let raw = reader.into_raw_fd();
        let event = event_loop
            .register_handler(Box::new(Careless { raw }), IoOptions::default())
            .expect("register");
        let mut calls = 0;
        event_loop.run_nonblocking(&mut calls).expect("run");
        close(raw);
        // What changes is told to the kernel, which does not know the number any more.
        event_loop.disable(event).expect("disable");
        event_loop.run_nonblocking(&mut calls).expect("run");
        event_loop.enable(event).expect("enable");
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, 1, "an error, as it waits for nothing");
        event_loop.enable(event).expect("enable");
        event_loop.run_once(&mut calls).expect("run");
        assert_eq!(calls, 2, "tried again, and again an error");
        sleep_for_a_while(&mut event_loop, &mut calls);
        assert!(event_loop.remove(event));
        sleep_for_a_while(&mut event_loop, &mut calls);
        assert_eq!(calls, 2);
    });
}

fn a_reused_number_is_not_taken_for_the_one_before(backend: Backend) {
    let path = format!("{backend}::a_reused_number_is_not_taken_for_the_one_before");
    in_own_process(&path, || {
        let mut event_loop = open::<Vec<&str>>(backend);
        for _ in 0..100 {
            // The first by number and by registration, and so the first reported.
            let (trigger, _writer) = readable_pipe();
            let (old, _old_writer) = readable_pipe();
            let number = old.as_raw_fd();
            let old = Rc::new(Cell::new(Some(old)));
            let taken = Rc::clone(&old);
            let old_event = Rc::new(Cell::new(None::<EventId>));
            let event = Rc::clone(&old_event);
            // Both are ready. The first closes the other, and its number is used again at once.
            event_loop
                .on_readable(trigger, move |_, cx, _| {
                    assert!(cx.remove(event.get().expect("registered")));
                    let (new, mut writer) = pipe();
                    assert_eq!(new.as_raw_fd(), number);
                    writer.write_all(b"y").expect("write");
                    cx.on_readable(new, move |seen: &mut Vec<_>, _, reader| {
                        assert_eq!(drain(reader), b"y");
                        let _open = &writer;
                        seen.push("new");
                        Remove
                    })
                    .expect("register");
                    Remove
                })
                .expect("register");
            let source = taken.take().expect("a pipe");
            let registered = event_loop
                .on_readable(source, |seen: &mut Vec<_>, _, _| {
                    seen.push("old");
                    Remove
                })
                .expect("register");
            old_event.set(Some(registered));
            let mut seen = Vec::new();
            event_loop.run(&mut seen).expect("run");
            assert_eq!(seen, ["new"]);
        }
    });
}

fn pf_02_a_removed_sibling_does_not_run(backend: Backend) {
    // Other tests start programs, which have all descriptors until they execute.
    let path = format!("{backend}::pf_02_a_removed_sibling_does_not_run");
    in_own_process(&path, || {
        let mut event_loop = open::<[u32; 2]>(backend);
        let mut first = [0, 0];
        for round in 0..10_000 {
            // By order of registration; in odd rounds the second is reported first: by the time that
            // it became readable (epoll, io_uring), its place (poll), its number (select).
            let is_reversed = round % 2 == 1;
            let (placeholder, _writer) = pipe();
            let placeholder = event_loop
                .on_readable(placeholder, |_, _, _| Keep)
                .expect("register");
            let mut pipes = [pipe(), pipe()];
            if is_reversed {
                pipes.reverse();
            }
            let mut writers = Vec::new();
            let events = Rc::new(Cell::new([None::<EventId>; 2]));
            for (name, (reader, writer)) in pipes.into_iter().enumerate() {
                writers.push(writer);
                let all = Rc::clone(&events);
                let event = event_loop
                    .on_readable(reader, move |calls: &mut [u32; 2], cx, _| {
                        calls[name] += 1;
                        let sibling = all.get()[1 - name].expect("registered");
                        assert!(cx.remove(sibling), "it is there still");
                        Remove
                    })
                    .expect("register");
                let mut both = events.get();
                both[name] = Some(event);
                events.set(both);
            }
            // So that the kernel waits for both already (io_uring begins with the next wait).
            let mut calls = [0, 0];
            event_loop.run_nonblocking(&mut calls).expect("run");
            let order = if is_reversed { [1, 0] } else { [0, 1] };
            for name in order {
                writers[name].write_all(b"x").expect("write");
            }
            if is_reversed {
                event_loop.remove(placeholder);
            }
            event_loop.run_once(&mut calls).expect("run");
            event_loop.remove(placeholder);
            assert_eq!(event_loop.run(&mut calls).expect("run"), StopReason::Empty);
            assert_eq!(calls[0] + calls[1], 1, "one, and not the other: {calls:?}");
            first[usize::from(calls[1] == 1)] += 1;
            for mut writer in writers {
                writer.write_all(b"x").expect_err("both are closed");
            }
        }
        assert_eq!(event_loop.counters().inserted, 0);
        assert_eq!(first, [5000, 5000], "both orders");
    });
}

fn pf_03_all_operations_are_legal_in_a_handler(backend: Backend) {
    let mut event_loop = open::<Vec<&str>>(backend);
    let (reader, _writer) = readable_pipe();
    let (sibling, _sibling_writer) = readable_pipe();
    let sibling = event_loop
        .on_readable(sibling, |_, _, _| Keep)
        .expect("register");
    event_loop.disable(sibling).expect("disable");
    let hook = event_loop.on_check(|_, _| Keep);
    event_loop
        .on_readable(reader, move |seen: &mut Vec<_>, cx, _| {
            seen.push("first");
            let own = cx.event();
            assert!(cx.remove(sibling));
            assert!(cx.remove(own));
            let (new, mut writer) = pipe();
            writer.write_all(b"y").expect("write");
            cx.on_readable(new, move |seen: &mut Vec<_>, _, _| {
                let _open = &writer;
                seen.push("new reader");
                Remove
            })
            .expect("register");
            cx.after(Duration::ZERO, |seen: &mut Vec<_>, _| {
                seen.push("new timer")
            })
            .expect("arm");
            cx.defer(|seen, _| seen.push("deferred")).expect("defer");
            cx.user_event(|_, _, _| Keep).expect("user event");
            let (event, waker) = cx.waker(|_, _| Keep).expect("waker");
            waker.wake();
            assert!(cx.remove(event));
            cx.on_prepare(|_, _| Remove);
            assert!(cx.remove_hook(hook));
            cx.poster()
                .post(|seen, _| seen.push("posted"))
                .expect("post");
            cx.hold();
            cx.release();
            cx.set_label(own, "gone");
            assert!(cx.set_priority(own, 0).is_err());
            assert!(cx.dump().contains("timer"));
            // For the event that is gone: must not touch the new ones, whatever their slots.
            Disable
        })
        .expect("register");
    let mut seen = Vec::new();
    assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Empty);
    seen[1..].sort_unstable();
    assert_eq!(
        seen,
        ["first", "deferred", "new reader", "new timer", "posted"]
    );
    assert_eq!(event_loop.counters().inserted, 1, "the user event");
}

fn pf_03_an_answer_for_a_removed_event_does_not_touch_its_successor(backend: Backend) {
    for answer in [Remove, Keep, Disable, Rearm] {
        let mut event_loop = open::<Vec<EventId>>(backend);
        event_loop
            .every(Duration::ZERO, move |ids, cx| {
                let own = cx.event();
                cx.remove(own);
                let next = cx
                    .every(Duration::ZERO, |ids: &mut Vec<EventId>, cx| {
                        ids.push(cx.event());
                        if ids.len() == 5 { Remove } else { Keep }
                    })
                    .expect("arm");
                assert_eq!(next.slot(), own.slot(), "the slot is used again at once");
                assert_ne!(next, own);
                ids.push(next);
                answer
            })
            .expect("arm");
        let mut ids = Vec::new();
        assert_eq!(event_loop.run(&mut ids).expect("run"), StopReason::Empty);
        assert_eq!(ids, [ids[0]; 5], "{answer:?}");
    }
}

/// Does all that can be done from a destructor: posts, which then do the rest.
struct OnDrop {
    poster: Poster<'static, Vec<&'static str>>,
    sibling: EventId,
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        let sibling = self.sibling;
        let posted = self.poster.post(move |seen, cx| {
            seen.push("posted by drop");
            assert!(cx.remove(sibling));
            cx.defer(|seen, _| seen.push("deferred")).expect("defer");
        });
        posted.expect("the loop is there");
        self.poster.wake();
    }
}

fn pf_03_captured_state_may_use_the_loop_when_dropped(backend: Backend) {
    for by_itself in [true, false] {
        let mut event_loop = open::<Vec<&'static str>>(backend);
        let sibling = event_loop
            .every(Duration::from_secs(3600), |_, _| Keep)
            .expect("arm");
        let captured = OnDrop {
            poster: event_loop.poster(),
            sibling,
        };
        let (reader, _writer) = readable_pipe();
        let event = event_loop
            .on_readable(reader, move |seen, _, reader| {
                let _held = &captured;
                drain(
                    reader
                        .as_fd()
                        .try_clone_to_owned()
                        .map(PipeReader::from)
                        .expect("dup"),
                );
                seen.push("ran");
                if by_itself { Remove } else { Keep }
            })
            .expect("register");
        let mut seen = Vec::new();
        event_loop.run_once(&mut seen).expect("run");
        if !by_itself {
            assert!(event_loop.remove(event));
        }
        assert_eq!(event_loop.run(&mut seen).expect("run"), StopReason::Empty);
        assert_eq!(seen, ["ran", "posted by drop", "deferred"]);
    }
}
