//! Buffers that the kernel writes into: who has them when.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use windlass::event_loop::{EventLoop, PanicPolicy};
use windlass::proactor::{Completion, Operation, Outcome, PoolId, ProvidedBuffer, SharedFd};

use super::basics::{config, pair, receive, with_loop};
use crate::common::{guarded, has_io_uring};

const SIZE: usize = 4096;
const GUARD: u8 = 0xa5;

/// Allocates what a freed buffer would be given out as, many times over.
fn guards() -> Vec<Vec<u8>> {
    (0..64).map(|_| vec![GUARD; SIZE]).collect()
}

fn assert_untouched(guards: &[Vec<u8>]) {
    for guard in guards {
        assert!(guard.iter().all(|byte| *byte == GUARD), "written to");
    }
}

/// How a loop with a receive in flight ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    EventRemoved,
    Forgotten,
    Panicked,
}

#[test]
fn pf_18_memory_of_an_operation_is_not_freed_under_the_kernel() {
    if !has_io_uring() {
        return;
    }
    guarded("pf_18", || {
        for end in [
            End::Dropped,
            End::EventRemoved,
            End::Forgotten,
            End::Panicked,
        ] {
            for _ in 0..20 {
                end_with_a_receive_in_flight(end);
            }
        }
    });
}

fn end_with_a_receive_in_flight(end: End) {
    let (socket, mut peer) = pair();
    let mut event_loop = EventLoop::<()>::with_config(windlass::event_loop::LoopConfig {
        panic_policy: PanicPolicy::Propagate,
        ..config()
    })
    .expect("open");
    let id = event_loop
        .start(receive(&socket, SIZE), |(), _, _| {})
        .expect("start");
    event_loop.run_nonblocking(&mut ()).expect("run");
    match end {
        End::Dropped => drop(event_loop),
        End::Forgotten => std::mem::forget(event_loop),
        End::EventRemoved => {
            let event = event_loop.event_of(id).expect("in flight");
            assert!(event_loop.remove(event));
            event_loop.run(&mut ()).expect("the operation comes back");
        }
        End::Panicked => {
            event_loop
                .after(Duration::ZERO, |(), _| panic!("as intended"))
                .expect("timer");
            let run = std::panic::AssertUnwindSafe(|| {
                let _ = event_loop.run(&mut ());
            });
            std::panic::catch_unwind(run).expect_err("it panics");
            drop(event_loop);
        }
    }
    let guards = guards();
    peer.write_all(&[0xff; SIZE]).expect("write");
    // What the kernel does late it does before it tells of later work.
    let (other, mut other_peer) = pair();
    let mut second = EventLoop::<usize>::with_config(config()).expect("open");
    second
        .start(receive(&other, 8), |len: &mut usize, _, completion| {
            *len = completion.into_buffer().len();
        })
        .expect("start");
    other_peer.write_all(b"x").expect("write");
    let mut len = 0;
    second.run(&mut len).expect("run");
    assert_eq!(len, 1);
    assert_untouched(&guards);
}

/// What a consumer that is slower than its peer has.
#[derive(Default)]
struct Slow {
    held: Vec<ProvidedBuffer>,
    seen: Vec<u32>,
    ended: bool,
}

const MESSAGES: u32 = 1000;

#[test]
fn pf_21_a_burst_into_a_pool_of_one_or_two_is_received_whole_and_in_order() {
    for count in [1, 2] {
        with_loop("pf_21", |mut event_loop, mut slow: Slow| {
            let (ours, theirs) = UnixDatagram::pair().expect("pair");
            let socket: SharedFd = Arc::new(ours.into());
            let pool = event_loop.provide_buffers(count, 64).expect("pool");
            let sender = std::thread::spawn(move || {
                for number in 0..MESSAGES {
                    theirs.send(&number.to_le_bytes()).expect("send");
                }
            });
            event_loop
                .start(
                    Operation::ReceiveMultishot { socket, pool },
                    |slow: &mut Slow, cx, completion| {
                        keep(slow, completion);
                        if slow.seen.len() as u32 == MESSAGES {
                            cx.stop();
                        } else if slow.held.len() == 1 {
                            // Only later is there a buffer again.
                            cx.after(Duration::from_micros(50), |slow: &mut Slow, _| {
                                slow.held.clear();
                            })
                            .expect("timer");
                        }
                    },
                )
                .expect("start");
            event_loop.run(&mut slow).expect("run");
            sender.join().expect("join");
            assert_eq!(slow.seen, (0..MESSAGES).collect::<Vec<_>>());
            assert!(!slow.ended);
        });
    }
}

fn keep(slow: &mut Slow, completion: Completion) {
    slow.ended |= !completion.has_more();
    match completion.result.expect("works") {
        Outcome::Buffer(buffer) => {
            let number = buffer[..].try_into().expect("four bytes");
            slow.seen.push(u32::from_le_bytes(number));
            slow.held.push(buffer);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn buffers_of_a_pool_outlive_the_loop() {
    with_loop("outlive", |mut event_loop, mut slow: Slow| {
        let (ours, theirs) = UnixDatagram::pair().expect("pair");
        let socket: SharedFd = Arc::new(ours.into());
        let pool: PoolId = event_loop.provide_buffers(4, 64).expect("pool");
        theirs.send(&7_u32.to_le_bytes()).expect("send");
        event_loop
            .start(
                Operation::ReceiveMultishot { socket, pool },
                |slow: &mut Slow, cx, completion| {
                    keep(slow, completion);
                    cx.stop();
                },
            )
            .expect("start");
        event_loop.run(&mut slow).expect("run");
        drop(event_loop);
        assert_eq!(slow.held[0][..], 7_u32.to_le_bytes());
        slow.held.clear();
    });
}

#[test]
fn a_receive_that_waits_for_a_buffer_can_be_cancelled() {
    with_loop("cancel parked", |mut event_loop, mut slow: Slow| {
        let (ours, theirs) = UnixDatagram::pair().expect("pair");
        let socket: SharedFd = Arc::new(ours.into());
        let pool = event_loop.provide_buffers(1, 64).expect("pool");
        for number in 0..2_u32 {
            theirs.send(&number.to_le_bytes()).expect("send");
        }
        let operation = event_loop
            .start(
                Operation::ReceiveMultishot {
                    socket: Arc::clone(&socket),
                    pool,
                },
                |slow: &mut Slow, _, completion| {
                    if completion.is_cancelled() {
                        slow.ended = true;
                    } else {
                        keep(slow, completion);
                    }
                },
            )
            .expect("start");
        // The first has the only buffer; the second finds none.
        for _ in 0..3 {
            event_loop.run_nonblocking(&mut slow).expect("run");
        }
        assert_eq!((slow.seen.as_slice(), slow.ended), (&[0][..], false));
        event_loop.cancel(operation);
        event_loop.run(&mut slow).expect("run");
        assert!(slow.ended);
        // What it did not take is there still.
        event_loop
            .start(receive(&socket, 8), |slow: &mut Slow, _, completion| {
                let buffer = completion.into_buffer();
                let number = buffer[..].try_into().expect("four bytes");
                slow.seen.push(u32::from_le_bytes(number));
            })
            .expect("start");
        event_loop.run(&mut slow).expect("run");
        assert_eq!(slow.seen, [0, 1]);
    });
}
