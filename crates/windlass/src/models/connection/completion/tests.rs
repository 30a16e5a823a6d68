//! The transport alone, with completions as a driver gives them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use windlass_sys::errno::{ECANCELED, ECONNRESET};
use windlass_sys::provided::BufferPools;

use super::*;
use crate::session::OutputLimits;

fn transport() -> (CompletionTransport, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    let pool = BufferPools::new().add(None, 1, 64).expect("a pool");
    let socket = Arc::new(OwnedFd::from(ours));
    (CompletionTransport::new(socket, pool), theirs)
}

/// Starts what is wished for; answers its id and what it is.
fn start(subject: &mut CompletionTransport, number: u64, wants: bool) -> (OpId, Operation) {
    match subject.next_wish(wants, true) {
        Some(Wish::Start(operation)) => {
            let id = OpId::from_bits(number);
            subject.started(id);
            (id, operation)
        }
        other => panic!("{other:?}"),
    }
}

fn done((id, operation): (OpId, Operation), result: Result<usize, i32>) -> Completion {
    Completion {
        id,
        result: result
            .map(Outcome::Bytes)
            .map_err(io::Error::from_raw_os_error),
        operation: Some(operation),
    }
}

/// A transport that sends a part of a file, and the operation that does.
fn sending_a_file(subject: &mut CompletionTransport) -> (OpId, Operation) {
    let mut output = Output::new(OutputLimits::default());
    let file = Arc::new(File::open("/dev/null").expect("open"));
    output.push_file(file, 0, 1000);
    let flushed = subject.flush(&mut output, &mut 0);
    assert!(matches!(flushed, Ok(Flushed::All)));
    start(subject, 1, false)
}

#[test]
fn a_socket_that_fails_in_the_middle_of_a_file_does_not_make_it_short() {
    let (mut subject, _peer) = transport();
    let first = sending_a_file(&mut subject);
    subject.complete(done(first, Ok(400)));
    let second = start(&mut subject, 2, false);
    assert!(matches!(
        second.1,
        Operation::SendFile {
            offset: 400,
            length: 600,
            ..
        }
    ));
    subject.complete(done(second, Err(ECONNRESET)));
    let mut output = Output::new(OutputLimits::default());
    let flushed = subject.flush(&mut output, &mut 0);
    assert!(matches!(flushed, Err(FlushError::Socket)));
}

#[test]
fn a_file_that_is_short_is_told_of_also_when_its_peer_was_doubted() {
    for doubted in [false, true] {
        let (mut subject, _peer) = transport();
        let first = sending_a_file(&mut subject);
        if doubted {
            assert!(!subject.is_stalled());
            let wish = subject.next_wish(false, true);
            assert!(matches!(wish, Some(Wish::Cancel(_))), "{wish:?}");
        }
        subject.complete(done(first, Ok(0)));
        let mut output = Output::new(OutputLimits::default());
        let flushed = subject.flush(&mut output, &mut 0);
        assert!(matches!(flushed, Err(FlushError::Truncated)));
    }
}

#[test]
fn a_peer_that_takes_nothing_of_a_file_stalls() {
    let (mut subject, _peer) = transport();
    let first = sending_a_file(&mut subject);
    assert!(!subject.is_stalled());
    assert!(matches!(
        subject.next_wish(false, true),
        Some(Wish::Cancel(_))
    ));
    let news = subject.complete(done(first, Err(ECANCELED)));
    assert!(news.probed && subject.is_stalled() && !subject.has_failed());
}

#[test]
fn what_a_peer_sent_before_it_hung_up_is_still_received() {
    let (mut subject, _peer) = transport();
    let (id, watch) = start(&mut subject, 1, false);
    assert!(matches!(watch, Operation::HangUp { .. }));
    let news = subject.complete(Completion {
        id,
        result: Ok(Outcome::Events(0x10)),
        operation: Some(watch),
    });
    assert_eq!(news.readiness, Readiness::HANG_UP);
    // It is told once.
    assert!(subject.next_wish(false, false).is_none());
    assert!(matches!(subject.receive(&mut [0; 8]), Ok(None)));
    let (_, receive) = start(&mut subject, 2, true);
    assert!(matches!(receive, Operation::ReceiveMultishot { .. }));
}
