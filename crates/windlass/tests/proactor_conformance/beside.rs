//! Operations beside the loop's other events.

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use windlass::Disposition::{Keep, Remove};
use windlass::StopReason;
use windlass::event_loop::{CompletionOptions, Context, EventHandler, Signal};
use windlass::proactor::{Completion, Operation};
use windlass::{Disposition, EventId, Happened};
use windlass_sys::fd::Blocking;

use crate::harness::{
    Make, Subject, World, bytes, content, pair, pipe, read, receive, send, shared, timeout,
};

pub(crate) fn an_operation_keeps_the_loop_running(make: Make) {
    let mut subject = Subject::new(make);
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    subject.start(receive(&ours, 10));
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        theirs.write_all(b"late").expect("write");
    });
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    assert_eq!(bytes(&subject.next()), 4);
    writer.join().expect("join");
}

pub(crate) fn operations_that_wait_do_not_wake_the_loop(make: Make) {
    let mut subject = Subject::new(make);
    let pool = subject.pool(1, 16);
    let (idle, _peer) = pair(Blocking::Blocking);
    let (stuffed, _unread) = pair(Blocking::Nonblocking);
    let (flooded, mut source) = pair(Blocking::Nonblocking);
    let (reader, _writer) = pipe(Blocking::Blocking);
    let reader = shared(reader);
    source.write_all(&[1; 1000]).expect("write");
    let cancelled = subject.start(receive(&idle, 10));
    subject.settle();
    subject.event_loop.cancel(cancelled);
    subject.start(receive(&idle, 10));
    subject.start(send(&stuffed, &content(3_000_000)));
    subject.start(read(&reader, 10));
    subject.start(timeout(Duration::from_secs(1000)));
    subject.start(Operation::ReceiveMultishot {
        socket: flooded,
        pool,
    });
    // It keeps the only buffer, and the socket has more.
    let _kept = subject.next_of(cancelled);
    while subject.world.done.is_empty() {
        subject.turn();
    }
    subject.settle();
    let turns = Rc::new(Cell::new(0));
    let count = Rc::clone(&turns);
    subject.event_loop.on_check(move |_: &mut World, _| {
        count.set(count.get() + 1);
        Keep
    });
    subject
        .event_loop
        .after(Duration::from_millis(50), |_, cx| cx.break_loop())
        .expect("a timer");
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Break);
    assert!(turns.get() <= 5, "{} turns", turns.get());
}

pub(crate) fn timers_run_between_operations(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(receive(&ours, 10));
    subject
        .event_loop
        .every(Duration::from_millis(1), |world: &mut World, _| {
            world.ticks += 1;
            if world.ticks == 5 { Remove } else { Keep }
        })
        .expect("a timer");
    while subject.world.ticks < 5 {
        subject.turn();
    }
    assert!(subject.world.done.is_empty());
    theirs.write_all(b"x").expect("write");
    assert_eq!(bytes(&subject.next_of(id)), 1);
}

pub(crate) fn timeouts_complete_in_order_and_not_early(make: Make) {
    let mut subject = Subject::new(make);
    let start = Instant::now();
    let delays = [30, 10, 0, 20, 5].map(Duration::from_millis);
    let ids = delays.map(|delay| subject.start(timeout(delay)));
    let never = subject.start(timeout(Duration::MAX));
    let mut last = Duration::ZERO;
    for _ in ids {
        let completion = subject.next();
        assert!(completion.result.is_ok(), "{completion:?}");
        let at = ids
            .iter()
            .position(|id| *id == completion.id)
            .expect("ours");
        assert!(start.elapsed() >= delays[at]);
        assert!(delays[at] >= last, "in order");
        last = delays[at];
    }
    subject.event_loop.cancel(never);
    assert!(subject.next_of(never).is_cancelled());
}

pub(crate) fn posts_and_watched_descriptors_work_beside_operations(make: Make) {
    let mut subject = Subject::new(make);
    let poster = subject.event_loop.poster();
    let (watched, writer) = pipe(Blocking::Nonblocking);
    subject
        .event_loop
        .on_readable(watched, |world: &mut World, _, _| {
            world.ticks += 100;
            Remove
        })
        .expect("watch");
    let (reader, other) = pipe(Blocking::Blocking);
    let id = subject.start(read(&shared(reader), 10));
    subject.settle();
    let thread = thread::spawn(move || {
        poster
            .post(|world: &mut World, _| world.ticks += 1)
            .expect("post");
        std::fs::File::from(writer).write_all(b"w").expect("write");
        std::fs::File::from(other).write_all(b"o").expect("write");
    });
    while subject.world.ticks < 101 || subject.world.done.is_empty() {
        subject.turn();
    }
    thread.join().expect("join");
    assert_eq!(subject.next_of(id).into_buffer(), b"o");
    // The program may itself watch a descriptor that an operation is on.
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(receive(&ours, 1));
    subject
        .event_loop
        .on_readable(ours, |world: &mut World, _, _| {
            world.ticks += 1000;
            Remove
        })
        .expect("watch");
    theirs.write_all(b"both").expect("write");
    assert_eq!(subject.next_of(id).into_buffer(), b"b");
    while subject.world.ticks < 1000 {
        subject.turn();
    }
}

/// An event whose handler counts its calls, and gathers the completions of its operations.
fn gathering_event(subject: &mut Subject) -> EventId {
    let handler = |world: &mut World, cx: &mut Context<'_, 'static, World>, _: Happened| {
        world.ticks += 1;
        let event = cx.event();
        while let Some(completion) = cx.next_completion(event) {
            world.done.push_back(completion);
        }
        Keep
    };
    subject
        .event_loop
        .completion_event(Box::new(handler), CompletionOptions::default())
        .expect("event")
}

pub(crate) fn of_a_quiet_send_failures_are_told_and_what_is_asked_for(make: Make) {
    let mut subject = Subject::new(make);
    let (socket, mut peer) = std::os::unix::net::UnixStream::pair().expect("pair");
    let socket = shared(socket);
    let event = gathering_event(&mut subject);
    let quiet = |subject: &mut Subject, content: &[u8]| {
        let operation = send(&socket, content);
        let started = subject.event_loop.start_quietly_for(event, operation);
        started.expect("start")
    };
    let run = |subject: &mut Subject| {
        let ended = subject.event_loop.run(&mut subject.world).expect("run");
        assert_eq!(ended, StopReason::Empty);
    };
    // Of a good end nothing but the buffer comes back, and the loop does not wait for more.
    let sending = quiet(&mut subject, b"quiet");
    assert_eq!(subject.event_loop.event_of(sending), Some(event));
    run(&mut subject);
    let mut got = [0; 5];
    peer.read_exact(&mut got).expect("read");
    assert_eq!((subject.world.ticks, &got), (0, b"quiet"));
    assert_eq!(subject.event_loop.event_of(sending), None);
    assert!(!subject.event_loop.wake_for(sending));
    assert!(subject.event_loop.take_buffer().capacity() >= 5);
    assert_eq!(subject.event_loop.take_buffer().capacity(), 0);
    // Who asks for it while it is in flight is told.
    let sending = quiet(&mut subject, b"asked for");
    assert!(subject.event_loop.wake_for(sending));
    run(&mut subject);
    let told = subject.world.done.pop_front().expect("told");
    assert_eq!((told.id, bytes(&told)), (sending, 9));
    assert_eq!(subject.world.ticks, 1);
    // Nor is what brings something.
    peer.write_all(b"answer").expect("write");
    let receiving = receive(&socket, 10);
    let started = subject.event_loop.start_quietly_for(event, receiving);
    started.expect("start");
    run(&mut subject);
    let told = subject.world.done.pop_front().expect("told");
    assert_eq!(told.into_buffer(), b"answer");
    assert_eq!(subject.world.ticks, 2);
    // A failure is never quiet.
    drop(peer);
    let sending = quiet(&mut subject, b"to nobody");
    run(&mut subject);
    let told = subject.world.done.pop_front().expect("told");
    assert_eq!((told.id, told.result.is_err()), (sending, true));
    assert_eq!(subject.world.ticks, 3);
}

pub(crate) fn a_quiet_send_that_the_socket_does_not_take_is_sent_later_or_cancelled(make: Make) {
    let mut subject = Subject::new(make);
    let (socket, mut peer) = std::os::unix::net::UnixStream::pair().expect("pair");
    socket.set_nonblocking(true).expect("set");
    let mut filled = 0;
    while let Ok(count) = (&socket).write(&[0; 4096]) {
        filled += count;
    }
    let socket = shared(socket);
    let event = gathering_event(&mut subject);
    let quiet = |subject: &mut Subject| {
        let operation = send(&socket, b"late");
        let started = subject.event_loop.start_quietly_for(event, operation);
        started.expect("start")
    };
    let cancelled = quiet(&mut subject);
    subject.event_loop.cancel(cancelled);
    let told = subject.next_of(cancelled);
    assert!(told.is_cancelled());
    let sending = quiet(&mut subject);
    let tick = subject.start(timeout(Duration::from_millis(5)));
    subject.next_of(tick);
    assert_eq!(subject.event_loop.event_of(sending), Some(event));
    let mut got = vec![0; filled];
    peer.read_exact(&mut got).expect("read");
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    assert!(subject.world.done.is_empty());
    let mut got = [0; 4];
    peer.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"late");
}

pub(crate) fn handlers_start_and_cancel_operations(make: Make) {
    let mut subject = Subject::new(make);
    let (left, right) = std::os::unix::net::UnixStream::pair().expect("pair");
    let (left, right) = (shared(left), shared(right));
    let forever = subject.start(timeout(Duration::from_secs(1000)));
    // A ball that is thrown to and fro; the last throw cancels what else is in flight.
    fn throw(
        cx: &mut Context<'_, 'static, World>,
        (from, to): (windlass::proactor::SharedFd, windlass::proactor::SharedFd),
        forever: windlass::proactor::OpId,
    ) {
        cx.start(send(&from, b"ball"), |_, _, sent: Completion| {
            assert_eq!(bytes(&sent), 4)
        })
        .expect("start");
        let catcher = receive(&to, 10);
        cx.start(catcher, move |world: &mut World, cx, got: Completion| {
            assert_eq!(got.into_buffer(), b"ball");
            world.ticks += 1;
            if world.ticks < 100 {
                throw(
                    cx,
                    (std::sync::Arc::clone(&to), std::sync::Arc::clone(&from)),
                    forever,
                );
            } else {
                cx.cancel(forever);
            }
        })
        .expect("start");
    }
    subject
        .event_loop
        .defer(move |_, cx| throw(cx, (left, right), forever))
        .expect("defer");
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    assert_eq!(subject.world.ticks, 100);
    assert!(subject.next_of(forever).is_cancelled());
}

/// Takes the completions of its event.
struct Taker(Rc<Cell<usize>>);

impl EventHandler<'static, World> for Taker {
    fn handle_event(
        &mut self,
        _world: &mut World,
        cx: &mut Context<'_, 'static, World>,
        _happened: Happened,
    ) -> Disposition {
        let event = cx.event();
        while let Some(completion) = cx.next_completion(event) {
            assert!(completion.result.is_ok());
            self.0.set(self.0.get() + 1);
        }
        Keep
    }
}

pub(crate) fn an_event_takes_the_completions_of_many_operations(make: Make) {
    let mut subject = Subject::new(make);
    let count = Rc::new(Cell::new(0));
    let event = subject
        .event_loop
        .completion_event(
            Box::new(Taker(Rc::clone(&count))),
            CompletionOptions::default(),
        )
        .expect("an event");
    for number in 0..500 {
        let operation: Operation = timeout(Duration::from_micros(number % 7));
        subject
            .event_loop
            .start_for(event, operation)
            .expect("start");
    }
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    assert_eq!(count.get(), 500);
    assert!(subject.event_loop.remove(event));
    let refused = subject.event_loop.start_for(event, timeout(Duration::ZERO));
    let refused = refused.expect_err("it is gone");
    assert!(matches!(refused.rejected, Operation::Timeout { .. }));
}

/// In a process of its own.
pub(crate) fn signals_work_beside_operations(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(receive(&ours, 10));
    subject
        .event_loop
        .on_signal(Signal::USR1, |world: &mut World, _, _| {
            world.ticks += 1;
            Keep
        })
        .expect("watch");
    for round in 1..=10 {
        // SAFETY: raise takes a number; the signal has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        while subject.world.ticks < round {
            subject.turn();
        }
    }
    theirs.write_all(b"x").expect("write");
    assert_eq!(bytes(&subject.next_of(id)), 1);
}
