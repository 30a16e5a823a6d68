//! What moves within the kernel: files to sockets, splices.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;

use windlass::proactor::{Operation, Position, SharedFd};
use windlass_sys::fd::Blocking;

use crate::harness::{
    BOTH, Make, Scratch, Subject, as_file, bytes, connection, content, pair, pipe, shared,
};

const LEN: usize = 700_000;

fn part(file: &SharedFd, offset: u64, length: u64, socket: &SharedFd) -> Operation {
    Operation::SendFile {
        file: as_file(file),
        offset,
        length,
        socket: Arc::clone(socket),
    }
}

fn splice(from: (&SharedFd, Position), to: (&SharedFd, Position), length: u32) -> Operation {
    Operation::Splice {
        from: Arc::clone(from.0),
        from_position: from.1,
        to: Arc::clone(to.0),
        to_position: to.1,
        length,
    }
}

pub(crate) fn a_file_is_sent_whole_in_part_and_not_beyond_its_end(make: Make) {
    let file = Scratch::new().file(&content(LEN));
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = connection(mode);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).expect("read");
            all
        });
        let end = LEN as u64;
        assert_eq!(bytes(&subject.complete(part(&file, 0, end, &ours))), LEN);
        assert_eq!(
            bytes(&subject.complete(part(&file, 10, 300_000, &ours))),
            300_000
        );
        assert_eq!(
            bytes(&subject.complete(part(&file, end - 5, 100, &ours))),
            5
        );
        assert_eq!(
            bytes(&subject.complete(part(&file, end + 5, 100, &ours))),
            0
        );
        assert_eq!(subject.error(part(&file, 0, 0, &ours)), libc::EINVAL);
        drop(ours);
        let all = content(LEN);
        let expected = [&all[..], &all[10..300_010], &all[LEN - 5..]].concat();
        assert!(reader.join().expect("join") == expected);
    }
}

pub(crate) fn a_file_is_sent_to_a_slow_reader(make: Make) {
    let file = Scratch::new().file(&content(LEN));
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = pair(mode);
        let id = subject.start(part(&file, 0, LEN as u64, &ours));
        let mut all = Vec::new();
        let mut buffer = [0; 10_000];
        while all.len() < LEN {
            subject.settle();
            let count = theirs.read(&mut buffer).expect("read");
            all.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(bytes(&subject.next_of(id)), LEN);
        assert!(all == content(LEN));
    }
}

pub(crate) fn a_file_is_sent_to_sockets_only(make: Make) {
    let file = Scratch::new().file(&content(1000));
    let mut subject = Subject::new(make);
    let (_reader, writer) = pipe(Blocking::Blocking);
    assert_eq!(
        subject.error(part(&file, 0, 10, &shared(writer))),
        libc::ENOTSOCK
    );
}

pub(crate) fn splices_move_between_pipes_sockets_and_files(make: Make) {
    const HERE: Position = Position::Current;
    let file = Scratch::new().file(&content(1000));
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (reader, writer) = pipe(mode);
        let (reader, writer) = (shared(reader), shared(writer));
        let (ours, mut theirs) = pair(mode);
        let from_file = splice((&file, Position::At(100)), (&writer, HERE), 50);
        assert_eq!(bytes(&subject.complete(from_file)), 50);
        let to_socket = splice((&reader, HERE), (&ours, HERE), 1000);
        assert_eq!(bytes(&subject.complete(to_socket)), 50);
        let mut got = [0; 50];
        theirs.read_exact(&mut got).expect("read");
        assert_eq!(got, content(1000)[100..150]);
        let id = subject.start(splice((&ours, HERE), (&writer, HERE), 1000));
        subject.settle();
        theirs.write_all(b"back").expect("write");
        assert_eq!(bytes(&subject.next_of(id)), 4);
        drop(theirs);
        let nothing = splice((&ours, HERE), (&writer, HERE), 1000);
        assert_eq!(bytes(&subject.complete(nothing)), 0);
        drop(writer);
        let reader = Arc::into_inner(reader).expect("nobody else has it");
        let mut rest = String::new();
        File::from(reader).read_to_string(&mut rest).expect("read");
        assert_eq!(rest, "back");
    }
}

pub(crate) fn a_splice_without_a_pipe_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    let file = Scratch::new().file(&content(1000));
    let (ours, _theirs) = pair(Blocking::Blocking);
    let (reader, _writer) = pipe(Blocking::Blocking);
    let reader = shared(reader);
    let operation = splice((&file, Position::At(0)), (&ours, Position::Current), 10);
    assert_eq!(subject.error(operation), libc::EINVAL);
    let operation = splice((&reader, Position::At(0)), (&ours, Position::Current), 10);
    assert_eq!(subject.error(operation), libc::ESPIPE);
}
