//! Operations that go on, and buffers of pools.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use windlass::proactor::{OpId, Operation, Outcome, PoolId, ProvidedBuffer, Repeat, SharedFd};
use windlass_sys::fd::{Blocking, set_blocking};

use crate::harness::{BOTH, Make, Subject, bytes, pair, receive, shared};
use crate::sockets::accept;

fn receive_all(socket: &SharedFd, pool: PoolId) -> Operation {
    Operation::ReceiveMultishot {
        socket: Arc::clone(socket),
        pool,
    }
}

/// The next buffer of `id`; `None` at the end.
fn next_buffer(subject: &mut Subject, id: OpId) -> Option<ProvidedBuffer> {
    let completion = subject.next_of(id);
    let is_last = !completion.has_more();
    match completion.result {
        Ok(Outcome::Buffer(buffer)) => {
            assert!(!is_last && !buffer.is_empty());
            Some(buffer)
        }
        Ok(Outcome::Bytes(0)) => {
            assert!(is_last);
            None
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn one_accept_takes_many_connections(make: Make) {
    const CONNECTIONS: usize = 100;
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("name");
        set_blocking(listener.as_fd(), mode).expect("set");
        let id = subject.start(accept(&shared(listener), Repeat::Multishot));
        let clients = thread::spawn(move || {
            let clients: Vec<TcpStream> = (0..CONNECTIONS)
                .map(|_| TcpStream::connect(address).expect("connect"))
                .collect();
            clients
        });
        let mut accepted = Vec::new();
        while accepted.len() < CONNECTIONS {
            let completion = subject.next_of(id);
            assert!(completion.has_more(), "{completion:?}");
            let Ok(Outcome::Accepted(socket)) = completion.result else {
                panic!("{completion:?}");
            };
            accepted.push(socket);
        }
        clients.join().expect("join");
        subject.event_loop.cancel(id);
        let last = subject.next_of(id);
        assert!(last.is_cancelled() && !last.has_more(), "{last:?}");
        assert!(matches!(last.operation, Some(Operation::Accept { .. })));
    }
}

pub(crate) fn a_single_accept_takes_one(make: Make) {
    let mut subject = Subject::new(make);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    let _clients = [TcpStream::connect(address), TcpStream::connect(address)];
    let listener = shared(listener);
    for _ in 0..2 {
        let completion = subject.complete(accept(&listener, Repeat::Once));
        assert!(!completion.has_more() && completion.result.is_ok());
    }
    let waits = subject.start(accept(&listener, Repeat::Once));
    subject.settle();
    assert!(subject.world.done.is_empty());
    subject.event_loop.cancel(waits);
    assert!(subject.next_of(waits).is_cancelled());
}

pub(crate) fn a_receive_goes_on_to_the_end_of_the_stream(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let pool = subject.pool(4, 1000);
        let (ours, mut theirs) = pair(mode);
        let id = subject.start(receive_all(&ours, pool));
        subject.settle();
        for round in 1..=20_u8 {
            theirs.write_all(&[round; 100]).expect("write");
            let buffer = next_buffer(&mut subject, id).expect("more");
            assert_eq!(&buffer[..], [round; 100]);
        }
        theirs.write_all(b"end").expect("write");
        drop(theirs);
        assert_eq!(&next_buffer(&mut subject, id).expect("more")[..], b"end");
        assert!(next_buffer(&mut subject, id).is_none());
    }
}

/// A burst of numbered messages, and a consumer that keeps buffers for a while.
fn burst(make: Make, count: u16, keep: usize) {
    const MESSAGES: u32 = 1000;
    let mut subject = Subject::new(make);
    let pool = subject.pool(count, 64);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let sender = thread::spawn(move || {
        for number in 0..MESSAGES {
            theirs.write_all(&number.to_be_bytes()).expect("write");
        }
    });
    let id = subject.start(receive_all(&ours, pool));
    let mut all = Vec::new();
    let mut kept = VecDeque::new();
    let mut turns = 0;
    while let Some(buffer) = {
        while subject.world.done.is_empty() {
            // The consumer is slow: buffers come back some turns later.
            turns += 1;
            if turns % 3 == 0 || kept.len() < keep {
                kept.pop_front();
            }
            subject
                .event_loop
                .run_nonblocking(&mut subject.world)
                .expect("run");
        }
        next_buffer(&mut subject, id)
    } {
        all.extend_from_slice(&buffer);
        kept.push_back(buffer);
        assert!(kept.len() <= usize::from(count));
    }
    sender.join().expect("join");
    let numbers: Vec<u32> = all
        .chunks_exact(4)
        .map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four")))
        .collect();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
}

pub(crate) fn pf_21_a_burst_passes_through_a_pool_of_one(make: Make) {
    burst(make, 1, 1);
}

pub(crate) fn pf_21_a_burst_passes_through_a_pool_of_two(make: Make) {
    burst(make, 2, 2);
}

pub(crate) fn pf_21_many_sockets_share_a_small_pool(make: Make) {
    const SOCKETS: usize = 20;
    const BYTES: usize = 2000;
    let mut subject = Subject::new(make);
    let pool = subject.pool(2, 100);
    let mut received = BTreeMap::new();
    let mut peers = Vec::new();
    for _ in 0..SOCKETS {
        let (ours, mut theirs) = pair(Blocking::Nonblocking);
        theirs.write_all(&[1; BYTES]).expect("write");
        peers.push(theirs);
        received.insert(subject.start(receive_all(&ours, pool)), 0);
    }
    // While both buffers are kept nothing goes on, and the loop is not busy with that.
    let mut kept = vec![subject.next(), subject.next()];
    subject.stays_quiet(std::time::Duration::from_millis(5));
    drop(peers);
    let mut ended = 0;
    while ended < SOCKETS {
        let completion = kept.pop().unwrap_or_else(|| subject.next());
        match completion.result {
            Ok(Outcome::Buffer(buffer)) => {
                *received.get_mut(&completion.id).expect("ours") += buffer.len();
            }
            Ok(Outcome::Bytes(0)) => ended += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        received.values().all(|count| *count == BYTES),
        "{received:?}"
    );
}

pub(crate) fn a_flooded_socket_starves_no_other(make: Make) {
    let mut subject = Subject::new(make);
    let pool = subject.pool(64, 1024);
    let (flooded, mut source) = pair(Blocking::Nonblocking);
    let flood = thread::spawn(move || while source.write_all(&[0; 65_536]).is_ok() {});
    let endless = subject.start(receive_all(&flooded, pool));
    subject.next_of(endless);
    for round in 0..50 {
        let (ours, mut theirs) = pair(Blocking::Nonblocking);
        theirs.write_all(b"x").expect("write");
        let id = subject.start(receive(&ours, 10));
        let mut turns = 0;
        while !subject.world.done.iter().any(|one| one.id == id) {
            subject.world.done.retain(|one| one.id != endless);
            subject.turn();
            turns += 1;
            assert!(turns < 10, "round {round}");
        }
        assert_eq!(bytes(&subject.next_of(id)), 1);
    }
    subject.event_loop.cancel(endless);
    while subject.next_of(endless).has_more() {}
    drop((flooded, subject));
    flood.join().expect("join");
}

pub(crate) fn a_buffer_outlives_the_loop(make: Make) {
    let mut subject = Subject::new(make);
    let pool = subject.pool(2, 100);
    let (ours, mut theirs) = pair(Blocking::Blocking);
    theirs.write_all(b"kept").expect("write");
    let id = subject.start(receive_all(&ours, pool));
    let buffer = next_buffer(&mut subject, id).expect("more");
    drop(subject);
    theirs.write_all(b"nobody takes it").expect("write");
    assert_eq!(&buffer[..], b"kept");
}

/// In a process of its own.
pub(crate) fn pf_21_an_accept_without_descriptors_ends_and_can_be_started_again(make: Make) {
    let mut subject = Subject::new(make);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    let listener = shared(listener);
    // What is there first opens what the driver needs.
    let first = subject.start(accept(&listener, Repeat::Multishot));
    let _client = TcpStream::connect(address).expect("connect");
    assert!(subject.next_of(first).result.is_ok());
    let clients: Vec<TcpStream> = (0..5)
        .map(|_| TcpStream::connect(address).expect("connect"))
        .collect();
    let mut hoard = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => hoard.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    let completion = subject.next_of(first);
    assert!(!completion.has_more(), "{completion:?}");
    let error = completion.result.expect_err("no descriptor is left");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    drop(hoard);
    let again = subject.start(accept(&listener, Repeat::Multishot));
    for _ in &clients {
        assert!(subject.next_of(again).result.is_ok());
    }
}
