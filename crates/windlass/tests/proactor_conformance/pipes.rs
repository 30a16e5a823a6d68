//! Pipes, polls, and what else is read and written as a stream.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use windlass::proactor::{Operation, Outcome, Position, SharedFd};
use windlass_sys::epoll::{HUP, IN, OUT};
use windlass_sys::fd::{Blocking, set_blocking};

use crate::harness::{
    BOTH, Make, Scratch, Subject, bytes, content, pair, pipe, read, receive, shared, write,
};

fn poll(fd: &SharedFd, events: u32) -> Operation {
    Operation::Poll {
        fd: Arc::clone(fd),
        events,
    }
}

fn events(subject: &mut Subject, operation: Operation) -> u32 {
    match subject.complete(operation).result {
        Ok(Outcome::Events(events)) => events,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn an_empty_pipe_is_waited_for_whether_it_blocks_or_not(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (reader, writer) = pipe(mode);
        let id = subject.start(read(&shared(reader), 10));
        subject.stays_quiet(Duration::from_millis(5));
        let mut writer = File::from(writer);
        writer.write_all(b"late").expect("write");
        let got = subject.next_of(id);
        assert_eq!((bytes(&got), got.into_buffer()), (4, b"late".to_vec()));
    }
}

pub(crate) fn a_full_pipe_is_waited_for_whether_it_blocks_or_not(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (reader, writer) = pipe(Blocking::Nonblocking);
        let mut filler = File::from(writer.try_clone().expect("duplicate"));
        let mut expected = 0;
        while let Ok(count) = filler.write(&[0; 4096]) {
            expected += count;
        }
        set_blocking(writer.as_fd(), mode).expect("set");
        let writer = shared(writer);
        let id = subject.start(write(&writer, &[1; 20_000]));
        subject.stays_quiet(Duration::from_millis(5));
        let mut reader = File::from(reader);
        let mut all = vec![0; expected];
        reader.read_exact(&mut all).expect("read");
        let written = bytes(&subject.next_of(id));
        assert!((1..=20_000).contains(&written), "{written}");
        drop((writer, filler));
        set_blocking(reader.as_fd(), Blocking::Blocking).expect("set");
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("read");
        assert_eq!(rest, vec![1; written]);
    }
}

pub(crate) fn a_pipe_without_a_reader_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    for mode in BOTH {
        let (reader, writer) = pipe(mode);
        drop(reader);
        assert_eq!(subject.error(write(&shared(writer), b"x")), libc::EPIPE);
    }
}

pub(crate) fn several_buffers_are_filled_one_after_the_other(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (reader, writer) = pipe(mode);
        let (reader, writer) = (shared(reader), shared(writer));
        let written = subject.complete(Operation::WriteVectored {
            fd: Arc::clone(&writer),
            payloads: vec![b"ab".to_vec().into(), (&b"cdefg"[..]).into()],
            position: Position::Current,
        });
        assert_eq!(bytes(&written), 7);
        let rooms = |rooms: &[usize]| Operation::ReadVectored {
            fd: Arc::clone(&reader),
            buffers: rooms.iter().map(|room| Vec::with_capacity(*room)).collect(),
            position: Position::Current,
        };
        let got = subject.complete(rooms(&[3, 0, 100]));
        assert_eq!(bytes(&got), 7);
        let Some(Operation::ReadVectored { buffers, .. }) = got.operation else {
            panic!("the operation does not come back");
        };
        assert_eq!(buffers, [&b"abc"[..], &b""[..], &b"defg"[..]]);
        assert_eq!(subject.error(rooms(&[])), libc::EINVAL);
        assert_eq!(subject.error(rooms(&[0, 0])), libc::EINVAL);
        assert_eq!(subject.error(rooms(&[1; 1025])), libc::EINVAL);
    }
}

pub(crate) fn many_reads_of_one_pipe_take_each_byte_once(make: Make) {
    const READS: usize = 200;
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (reader, writer) = pipe(mode);
        let reader = shared(reader);
        let mut writer = File::from(writer);
        for _ in 0..READS {
            subject.start(read(&reader, 3));
        }
        subject.settle();
        let sent = content(READS * 3);
        for part in sent.chunks(7) {
            writer.write_all(part).expect("write");
            subject.settle();
        }
        drop(writer);
        let mut got = Vec::new();
        for _ in 0..READS {
            got.extend(subject.next().into_buffer());
        }
        // Some took less than they had room for.
        loop {
            let rest = subject.complete(read(&reader, 1000));
            if bytes(&rest) == 0 {
                break;
            }
            got.extend(rest.into_buffer());
        }
        let mut sent = sent;
        sent.sort_unstable();
        got.sort_unstable();
        assert_eq!(got.len(), sent.len());
        assert_eq!(got, sent);
    }
}

/// Of the emulated driver; a ring promises no order.
pub(crate) fn operations_of_one_direction_run_in_the_order_of_their_start(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = pair(Blocking::Nonblocking);
    let theirs = shared(theirs);
    let reads: Vec<_> = (0..100).map(|_| subject.start(read(&theirs, 2))).collect();
    let writes: Vec<_> = (0..100_u8)
        .map(|number| subject.start(write(&ours, &[number, number])))
        .collect();
    for (number, id) in (0_u8..).zip(reads) {
        assert_eq!(subject.next_of(id).into_buffer(), [number, number]);
    }
    for id in writes {
        assert_eq!(bytes(&subject.next_of(id)), 2);
    }
}

pub(crate) fn readiness_is_polled_once(make: Make) {
    let mut subject = Subject::new(make);
    let (reader, writer) = pipe(Blocking::Blocking);
    let (reader, writer) = (shared(reader), shared(writer));
    assert_eq!(events(&mut subject, poll(&writer, OUT)), OUT);
    let id = subject.start(poll(&reader, IN));
    let other = subject.start(poll(&reader, IN));
    subject.stays_quiet(Duration::from_millis(2));
    subject.complete(write(&writer, b"x"));
    for id in [id, other] {
        let completion = subject.next_of(id);
        assert!(!completion.has_more());
        assert!(matches!(completion.result, Ok(Outcome::Events(IN))));
    }
    assert_eq!(events(&mut subject, poll(&reader, IN)), IN);
    drop(writer);
    assert_eq!(events(&mut subject, poll(&reader, IN)) & HUP, HUP);
    let file = Scratch::new().file(b"x");
    assert_eq!(events(&mut subject, poll(&file, IN | OUT)), IN | OUT);
    // A poll takes nothing, and stands beside a read.
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    let receiving = subject.start(receive(&ours, 10));
    let polling = subject.start(poll(&ours, IN));
    subject.settle();
    theirs.write_all(b"abc").expect("write");
    assert_eq!(bytes(&subject.next_of(receiving)), 3);
    theirs.write_all(b"d").expect("write");
    assert!(subject.next_of(polling).result.is_ok());
}

pub(crate) fn an_eventfd_is_read_when_it_is_signalled(make: Make) {
    let mut subject = Subject::new(make);
    for flags in [0, libc::EFD_NONBLOCK] {
        // SAFETY: eventfd takes two numbers.
        let fd = unsafe { libc::eventfd(0, flags | libc::EFD_CLOEXEC) };
        // SAFETY: it was just opened, and is nobody else's.
        let fd = shared(unsafe { OwnedFd::from_raw_fd(fd) });
        let id = subject.start(read(&fd, 8));
        subject.stays_quiet(Duration::from_millis(2));
        let count = 7_u64.to_ne_bytes();
        assert_eq!(bytes(&subject.complete(write(&fd, &count))), 8);
        assert_eq!(subject.next_of(id).into_buffer(), count);
    }
}
