//! Operations, events that they come back as, and ordinary events beside them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use windlass::Disposition::Keep;
use windlass::Happened;
use windlass::demultiplexer::{BackendConfig, EnvironmentUse};
use windlass::event_loop::{CompletionOptions, Context, EventLoop, LoopConfig};
use windlass::proactor::{
    CancelOutcome, Completion, Driver, DriverChoice, Operation, Outcome, ProactorConfig, SharedFd,
};

use crate::common::{guarded, has_io_uring};

/// Runs `test` with a loop whose driver is a ring, if there is one.
pub(crate) fn with_loop<S: Default + 'static>(
    name: &str,
    test: impl FnOnce(EventLoop<'static, S>, S),
) {
    if has_io_uring() {
        guarded(name, || test(open(), S::default()));
    }
}

pub(crate) fn config() -> LoopConfig {
    LoopConfig {
        backend: BackendConfig {
            environment: EnvironmentUse::Ignore,
            ..BackendConfig::default()
        },
        proactor: ProactorConfig {
            driver: DriverChoice::Uring,
            ..ProactorConfig::default()
        },
        ..LoopConfig::default()
    }
}

fn open<S: 'static>() -> EventLoop<'static, S> {
    let event_loop = EventLoop::with_config(config()).expect("open");
    assert_eq!(event_loop.proactor_driver(), Driver::Uring);
    assert!(event_loop.proactor_fallback().is_none());
    assert_eq!(event_loop.backend(), "io_uring");
    event_loop
}

pub(crate) fn pair() -> (SharedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    (Arc::new(ours.into()), theirs)
}

pub(crate) fn receive(socket: &SharedFd, room: usize) -> Operation {
    Operation::Receive {
        socket: Arc::clone(socket),
        buffer: Vec::with_capacity(room),
    }
}

pub(crate) fn send(socket: &SharedFd, bytes: &[u8]) -> Operation {
    Operation::Send {
        socket: Arc::clone(socket),
        payload: bytes.to_vec().into(),
    }
}

#[test]
fn operations_complete_beside_timers_and_posts() {
    with_loop("beside", |mut event_loop, mut seen: Vec<&'static str>| {
        let (socket, mut peer) = pair();
        let answer_to = Arc::clone(&socket);
        event_loop
            .start(
                receive(&socket, 8),
                move |seen: &mut Vec<_>, cx, completion| {
                    assert_eq!(completion.into_buffer(), b"ping");
                    seen.push("received");
                    cx.start(send(&answer_to, b"pong"), |seen: &mut Vec<_>, _, _| {
                        seen.push("sent");
                    })
                    .expect("start");
                },
            )
            .expect("start");
        event_loop
            .after(Duration::from_millis(1), move |seen: &mut Vec<_>, _| {
                seen.push("timer");
                peer.write_all(b"ping").expect("write");
            })
            .expect("timer");
        event_loop
            .poster()
            .post(|seen: &mut Vec<_>, _| seen.push("post"))
            .expect("post");
        event_loop.run(&mut seen).expect("run");
        assert_eq!(seen, ["post", "timer", "received", "sent"]);
    });
}

#[derive(Default)]
struct Echo {
    socket: Option<SharedFd>,
    received: Vec<u8>,
    sent: usize,
    ended: bool,
}

#[test]
fn an_event_takes_the_completions_addressed_to_it() {
    with_loop("addressed", |mut event_loop, mut echo: Echo| {
        let (socket, mut peer) = pair();
        echo.socket = Some(Arc::clone(&socket));
        let pool = event_loop.provide_buffers(4, 256).expect("pool");
        let handler = move |echo: &mut Echo, cx: &mut Context<'_, 'static, Echo>, _: Happened| {
            let event = cx.event();
            while let Some(completion) = cx.next_completion(event) {
                on_completion(echo, cx, completion);
            }
            Keep
        };
        let event = event_loop
            .completion_event(Box::new(handler), CompletionOptions::default())
            .expect("event");
        event_loop
            .start_for(event, Operation::ReceiveMultishot { socket, pool })
            .expect("start");
        let client = std::thread::spawn(move || {
            for round in 0..100_u8 {
                peer.write_all(&[round; 100]).expect("write");
                let mut answer = [0; 100];
                peer.read_exact(&mut answer).expect("read");
                assert_eq!(answer, [round; 100]);
            }
        });
        event_loop.run(&mut echo).expect("run");
        client.join().expect("client");
        assert!(echo.ended);
        assert_eq!((echo.received.len(), echo.sent), (10_000, 10_000));
    });
}

fn on_completion(echo: &mut Echo, cx: &mut Context<'_, 'static, Echo>, completion: Completion) {
    let event = cx.event();
    let is_last = !completion.has_more();
    match (completion.result.expect("works"), completion.operation) {
        (Outcome::Buffer(buffer), _) => {
            assert!(!is_last);
            echo.received.extend_from_slice(&buffer);
            let socket = echo.socket.as_ref().expect("set");
            cx.start_for(event, send(socket, &buffer)).expect("start");
        }
        (Outcome::Bytes(0), Some(Operation::ReceiveMultishot { .. })) => echo.ended = true,
        (Outcome::Bytes(count), Some(Operation::Send { .. })) => echo.sent += count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn cancel_says_what_it_comes_to_and_the_completion_comes_once() {
    with_loop("cancel", |mut event_loop, mut ends: Vec<bool>| {
        let (socket, _peer) = pair();
        let operation = event_loop
            .start(receive(&socket, 8), |ends: &mut Vec<_>, _, completion| {
                ends.push(completion.is_cancelled());
                assert_eq!(completion.into_buffer().capacity(), 8);
            })
            .expect("start");
        event_loop.run_nonblocking(&mut ends).expect("run");
        assert_eq!(event_loop.cancel(operation), CancelOutcome::Requested);
        assert_eq!(event_loop.cancel(operation), CancelOutcome::Requested);
        event_loop.run(&mut ends).expect("run");
        assert_eq!(ends, [true]);
        assert_eq!(event_loop.cancel(operation), CancelOutcome::AlreadyComplete);
    });
}

#[test]
fn an_event_that_is_removed_takes_its_operations_along() {
    with_loop("removed", |mut event_loop, mut calls: u32| {
        let (socket, mut peer) = pair();
        let alive = Rc::new(());
        let token = Rc::downgrade(&alive);
        let operation = event_loop
            .start(receive(&socket, 8), move |calls: &mut u32, _, _| {
                let _ = &alive;
                *calls += 1;
            })
            .expect("start");
        event_loop.run_nonblocking(&mut calls).expect("run");
        let event = event_loop.event_of(operation).expect("in flight");
        assert!(event_loop.remove(event));
        assert_eq!(token.strong_count(), 0);
        // Ends, as the operation is cancelled and holds the loop no longer.
        event_loop.run(&mut calls).expect("run");
        assert_eq!((calls, Arc::strong_count(&socket)), (0, 1));
        // It takes nothing from those that follow.
        peer.write_all(b"late").expect("write");
        event_loop
            .start(receive(&socket, 8), |calls: &mut u32, _, completion| {
                *calls += completion.into_buffer().len() as u32;
            })
            .expect("start");
        event_loop.run(&mut calls).expect("run");
        assert_eq!(calls, 4);
    });
}

#[test]
fn an_operation_for_no_event_comes_back() {
    with_loop("no event", |mut event_loop, mut none: ()| {
        let (socket, _peer) = pair();
        let event = event_loop.user_event(|(), _, _| Keep).expect("event");
        assert!(event_loop.remove(event));
        let error = event_loop
            .start_for(event, receive(&socket, 77))
            .expect_err("there is none");
        let Operation::Receive { buffer, .. } = error.rejected else {
            panic!("another operation");
        };
        assert_eq!(buffer.capacity(), 77);
        event_loop.run(&mut none).expect("nothing is in flight");
    });
}
