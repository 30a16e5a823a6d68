//! Ends: of loops, handlers and processes, with operations in flight.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use windlass::StopReason;
use windlass::event_loop::{LoopConfig, PanicPolicy};
use windlass::proactor::{Completion, Operation, Outcome, Position, Repeat};
use windlass_sys::fd::Blocking;

use crate::common::open_descriptors;
use crate::harness::{
    Make, Random, Scratch, Subject, World, as_file, bytes, content, pair, pipe, read, receive,
    shared, timeout,
};
use crate::sockets::accept;

const ROOM: usize = 4096;
const GUARD: u8 = 0xa5;

/// Starts reads, ends the loop by `end`, takes memory of the same size, has data arrive, and looks
/// whether the memory is as it was.
fn leaves_memory_alone(make: Make, end: impl Fn(Subject)) {
    for started in [0, 4] {
        let mut subject = Subject::new(make);
        let pool = subject.pool(4, ROOM as u32);
        let (mut sockets, mut peers) = (Vec::new(), Vec::new());
        for number in 0..30 {
            let (ours, theirs) = pair(Blocking::Nonblocking);
            let operation = match number % 3 {
                0 => receive(&ours, ROOM),
                1 => read(&ours, ROOM),
                _ => Operation::ReceiveMultishot {
                    socket: Arc::clone(&ours),
                    pool,
                },
            };
            subject.start(operation);
            sockets.push(ours);
            peers.push(theirs);
        }
        for _ in 0..started {
            subject.settle();
        }
        end(subject);
        let memory: Vec<Vec<u8>> = (0..200).map(|_| vec![GUARD; ROOM]).collect();
        for peer in &mut peers {
            peer.set_nonblocking(true).expect("set");
            // Where it was the last to have the socket, nobody reads.
            let _ = peer.write(&[0; ROOM]);
        }
        // Whoever reads for a loop that is gone would do so now.
        std::thread::sleep(Duration::from_millis(5));
        assert!(memory.iter().flatten().all(|byte| *byte == GUARD));
    }
}

pub(crate) fn pf_18_a_dropped_loop_leaves_memory_alone(make: Make) {
    leaves_memory_alone(make, drop);
    leaves_memory_alone(make, std::mem::forget);
}

pub(crate) fn pf_18_a_removed_event_drops_what_its_operations_bring(make: Make) {
    let mut subject = Subject::new(make);
    let pool = subject.pool(2, 100);
    for _ in 0..20 {
        let (ours, mut theirs) = pair(Blocking::Nonblocking);
        let id = subject.start(Operation::ReceiveMultishot { socket: ours, pool });
        subject.settle();
        theirs.write_all(b"for nobody").expect("write");
        let event = subject.event_loop.event_of(id).expect("in flight");
        assert!(subject.event_loop.remove(event));
        // The loop runs until the operation is back, and then nobody has the socket any more.
        let ended = subject.event_loop.run(&mut subject.world).expect("run");
        assert_eq!(ended, StopReason::Empty);
        assert!(subject.world.done.is_empty());
        let mut byte = [0];
        assert!(theirs.read(&mut byte).map_or(true, |count| count == 0));
    }
    // All buffers are back.
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(Operation::ReceiveMultishot { socket: ours, pool });
    theirs.write_all(&content(150)).expect("write");
    let (first, second) = (subject.next_of(id), subject.next_of(id));
    assert!(first.result.is_ok() && second.result.is_ok());
}

pub(crate) fn pf_18_a_handler_that_panics_takes_its_operations_with_it(make: Make) {
    let mut subject = Subject::with(LoopConfig {
        panic_policy: PanicPolicy::Contain(|_| {}),
        ..make()
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    subject
        .event_loop
        .start(
            accept(&shared(listener), Repeat::Multishot),
            |_: &mut World, _, completion: Completion| {
                assert!(completion.result.is_err(), "a connection is too much");
            },
        )
        .expect("start");
    let mut clients: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(address).expect("connect"))
        .collect();
    let other = subject.start(timeout(Duration::from_millis(1)));
    assert!(subject.next_of(other).result.is_ok());
    let ended = subject.event_loop.run(&mut subject.world).expect("run");
    assert_eq!(ended, StopReason::Empty);
    for client in &mut clients {
        // Closed or reset: the listener and all that was accepted are gone.
        assert!(client.read(&mut [0]).map_or(true, |count| count == 0));
    }
    TcpStream::connect(address).expect_err("nobody listens");
}

pub(crate) fn descriptors_stay_open_as_long_as_an_operation_is_in_flight(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(receive(&ours, 10));
    drop(ours);
    subject.settle();
    theirs.write_all(b"still there").expect("write");
    let completion = subject.next_of(id);
    assert_eq!(bytes(&completion), 10);
    drop(completion);
    let error = theirs.write_all(b"gone").expect_err("nobody has it");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

/// In a process of its own.
pub(crate) fn a_child_has_operations_of_its_own(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let id = subject.start(receive(&ours, 10));
    let waiting = subject.start(timeout(Duration::from_secs(100)));
    subject.settle();
    // SAFETY: no other thread holds a lock: the test is alone, and its guard waits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: alarm takes a number.
        unsafe { libc::alarm(60) };
        let result = catch_unwind(AssertUnwindSafe(|| in_child(subject)));
        // SAFETY: ends the process at once: what the parent has is not to be dropped here.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    let mut status = 0;
    // SAFETY: `status` is a local to be filled; the child is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
    theirs.write_all(b"parent").expect("write");
    assert_eq!(subject.next_of(id).into_buffer(), b"parent");
    subject.event_loop.cancel(waiting);
    assert!(subject.next_of(waiting).is_cancelled());
}

fn in_child(mut subject: Subject) {
    subject.event_loop.reinit().expect("reinit");
    for _ in 0..2 {
        let completion = subject.next();
        assert!(completion.is_cancelled() && !completion.has_more());
    }
    let pool = subject.pool(2, 100);
    for round in 0..20_u8 {
        let (ours, mut theirs) = pair(Blocking::Nonblocking);
        let id = subject.start(Operation::ReceiveMultishot {
            socket: Arc::clone(&ours),
            pool,
        });
        subject.settle();
        theirs.write_all(&[round; 10]).expect("write");
        let completion = subject.next_of(id);
        assert!(
            matches!(&completion.result, Ok(Outcome::Buffer(buffer)) if buffer[..] == [round; 10])
        );
    }
    drop(subject);
}

/// In a process of its own.
pub(crate) fn no_descriptor_is_left_behind(make: Make) {
    drop(Subject::new(make));
    let before = open_descriptors();
    let mut random = Random::new(18);
    let large = bytes::Bytes::from(vec![7; 1_000_000]);
    for round in 0..30 {
        let mut subject = Subject::new(make);
        let scratch = Scratch::new();
        let file = scratch.file(&content(100_000));
        let pool = subject.pool(4, 512);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("name");
        subject.start(accept(&shared(listener), Repeat::Multishot));
        let clients: Vec<_> = (0..4).map(|_| TcpStream::connect(address)).collect();
        for _ in 0..20 {
            let (ours, mut theirs) = pair(Blocking::Nonblocking);
            theirs.write_all(&content(1000)).expect("write");
            let (reader, writer) = pipe(Blocking::Blocking);
            let (reader, writer) = (shared(reader), shared(writer));
            subject.start(read(&reader, 100));
            subject.start(Operation::Send {
                socket: Arc::clone(&ours),
                payload: large.clone().into(),
            });
            subject.start(Operation::ReceiveMultishot {
                socket: Arc::clone(&ours),
                pool,
            });
            subject.start(Operation::SendFile {
                file: as_file(&file),
                offset: 0,
                length: 100_000,
                socket: Arc::clone(&ours),
            });
            subject.start(Operation::Splice {
                from: reader,
                from_position: Position::Current,
                to: ours,
                to_position: Position::Current,
                length: 1000,
            });
            subject.start(Operation::Close {
                fd: Arc::into_inner(writer),
            });
            subject.start(timeout(Duration::from_secs(100)));
        }
        for _ in 0..random.below(4) {
            subject.settle();
        }
        if round % 2 == 0 {
            // Completions that nobody has taken go with the loop.
            subject.world.done.clear();
        }
        drop((subject, clients));
    }
    let after = open_descriptors();
    assert_eq!(after, before, "{}", describe(&after));
}

fn describe(descriptors: &[i32]) -> String {
    descriptors
        .iter()
        .filter_map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok())
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_check_sees_descriptors() {
    let (reader, _writer) = pipe(Blocking::Blocking);
    assert!(open_descriptors().contains(&reader.as_raw_fd()));
}
