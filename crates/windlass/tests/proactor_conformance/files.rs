//! Files: opened, read, written, described, closed.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use windlass::proactor::{
    Access, Create, OpenOptions, Operation, Outcome, Position, SharedFd, SyncExtent,
};

use crate::harness::{Make, Scratch, Subject, bytes, is_done, read, shared, write};

const READ_WRITE: OpenOptions = OpenOptions {
    access: Access::ReadWrite,
    create: Create::IfMissing,
    truncate: false,
    append: false,
    mode: 0o640,
};

fn directory(scratch: &Scratch) -> SharedFd {
    shared(std::fs::File::open(&scratch.0).expect("open"))
}

fn open_at(directory: &SharedFd, path: &str, options: OpenOptions) -> Operation {
    Operation::OpenAt {
        directory: Some(Arc::clone(directory)),
        path: CString::new(path).expect("no NUL"),
        options,
    }
}

fn opened(subject: &mut Subject, operation: Operation) -> OwnedFd {
    match subject.complete(operation).result {
        Ok(Outcome::Opened(fd)) => fd,
        other => panic!("{other:?}"),
    }
}

fn read_at(fd: &SharedFd, room: usize, offset: u64) -> Operation {
    Operation::Read {
        fd: Arc::clone(fd),
        buffer: Vec::with_capacity(room),
        position: Position::At(offset),
    }
}

fn statx(directory: Option<&SharedFd>, path: &str) -> Operation {
    Operation::Statx {
        directory: directory.cloned(),
        path: CString::new(path).expect("no NUL"),
    }
}

pub(crate) fn a_file_is_made_written_read_and_described(make: Make) {
    let scratch = Scratch::new();
    let mut subject = Subject::new(make);
    let place = directory(&scratch);
    let file = shared(opened(&mut subject, open_at(&place, "new", READ_WRITE)));
    // SAFETY: F_GETFD takes no argument.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    assert_eq!(bytes(&subject.complete(write(&file, b"hello"))), 5);
    let several = Operation::WriteVectored {
        fd: Arc::clone(&file),
        payloads: vec![b", wor".to_vec().into(), (&b"ld"[..]).into()],
        position: Position::At(5),
    };
    assert_eq!(bytes(&subject.complete(several)), 7);
    for extent in [SyncExtent::Data, SyncExtent::All] {
        let fd = Arc::clone(&file);
        assert!(is_done(&subject.complete(Operation::Sync { fd, extent })));
    }
    let got = subject.complete(read_at(&file, 100, 3));
    assert_eq!((bytes(&got), got.into_buffer()), (9, b"lo, world".to_vec()));
    let absolute = scratch.0.join("new");
    let absolute = absolute.to_str().expect("UTF-8").to_owned();
    for described in [
        statx(Some(&place), "new"),
        statx(Some(&file), ""),
        statx(None, &absolute),
    ] {
        match subject.complete(described).result {
            Ok(Outcome::Status(status)) => {
                assert!(status.is_file());
                assert_eq!(status.size_bytes, 12);
            }
            other => panic!("{other:?}"),
        }
    }
    let options = OpenOptions {
        access: Access::Write,
        append: true,
        create: Create::Never,
        ..READ_WRITE
    };
    let end = shared(opened(&mut subject, open_at(&place, "new", options)));
    assert_eq!(bytes(&subject.complete(write(&end, b"!"))), 1);
    assert_eq!(
        std::fs::read(scratch.0.join("new")).expect("read"),
        b"hello, world!"
    );
    let options = OpenOptions {
        truncate: true,
        ..options
    };
    opened(&mut subject, open_at(&place, "new", options));
    assert_eq!(std::fs::read(scratch.0.join("new")).expect("read"), b"");
}

pub(crate) fn opening_goes_wrong_as_open_does(make: Make) {
    let scratch = Scratch::new();
    let mut subject = Subject::new(make);
    let place = directory(&scratch);
    let reading = OpenOptions::default();
    assert_eq!(
        subject.error(open_at(&place, "missing", reading)),
        libc::ENOENT
    );
    assert_eq!(
        subject.error(open_at(&place, "missing/x", reading)),
        libc::ENOENT
    );
    let file = scratch.file(b"x");
    let new = OpenOptions {
        create: Create::New,
        ..READ_WRITE
    };
    assert_eq!(subject.error(open_at(&place, "file", new)), libc::EEXIST);
    assert_eq!(subject.error(open_at(&file, "x", reading)), libc::ENOTDIR);
    let writing = OpenOptions {
        access: Access::Write,
        ..reading
    };
    assert_eq!(subject.error(open_at(&place, ".", writing)), libc::EISDIR);
    let path = CString::new(scratch.0.join("file").as_os_str().as_bytes()).expect("no NUL");
    let absolute = Operation::OpenAt {
        directory: None,
        path,
        options: reading,
    };
    opened(&mut subject, absolute);
}

pub(crate) fn positions_are_kept_or_moved(make: Make) {
    let mut subject = Subject::new(make);
    let file = Scratch::new().file(b"0123456789");
    assert_eq!(subject.complete(read(&file, 3)).into_buffer(), b"012");
    assert_eq!(subject.complete(read_at(&file, 2, 7)).into_buffer(), b"78");
    assert_eq!(subject.complete(read(&file, 3)).into_buffer(), b"345");
    let mut buffer = Vec::with_capacity(6);
    buffer.extend_from_slice(b"ab");
    let room = buffer.capacity() - 2;
    let appended = subject.complete(Operation::Read {
        fd: file,
        buffer,
        position: Position::At(0),
    });
    assert_eq!(bytes(&appended), room);
    assert_eq!(appended.into_buffer()[..6], *b"ab0123");
}

pub(crate) fn reading_at_the_end_is_zero_bytes(make: Make) {
    let mut subject = Subject::new(make);
    let file = Scratch::new().file(b"0123456789");
    for offset in [10, 1000] {
        let got = subject.complete(read_at(&file, 10, offset));
        assert_eq!(bytes(&got), 0);
    }
    assert_eq!(bytes(&subject.complete(read_at(&file, 10, 8))), 2);
}

pub(crate) fn a_descriptor_is_closed_once(make: Make) {
    let mut subject = Subject::new(make);
    let (reader, writer) = std::io::pipe().expect("pipe");
    let closed = subject.complete(Operation::Close {
        fd: Some(writer.into()),
    });
    assert!(is_done(&closed));
    assert!(matches!(
        closed.operation,
        Some(Operation::Close { fd: None })
    ));
    // The end of the pipe is there, as nobody writes any more.
    assert_eq!(bytes(&subject.complete(read(&shared(reader), 10))), 0);
    assert_eq!(subject.error(Operation::Close { fd: None }), libc::EINVAL);
}

pub(crate) fn a_description_of_nothing_is_an_error(make: Make) {
    let scratch = Scratch::new();
    let mut subject = Subject::new(make);
    let place = directory(&scratch);
    assert_eq!(subject.error(statx(Some(&place), "missing")), libc::ENOENT);
    let file = scratch.file(b"");
    assert_eq!(subject.error(statx(Some(&file), "x")), libc::ENOTDIR);
}

pub(crate) fn the_wrong_access_is_an_error(make: Make) {
    let scratch = Scratch::new();
    let mut subject = Subject::new(make);
    let reading = scratch.file(b"x");
    assert_eq!(subject.error(write(&reading, b"y")), libc::EBADF);
    assert_eq!(subject.error(write(&reading, b"")), libc::EINVAL);
    let place = directory(&scratch);
    assert_eq!(subject.error(read(&place, 10)), libc::EISDIR);
    let sync = Operation::Sync {
        fd: crate::sockets::socket(
            libc::AF_INET,
            libc::SOCK_STREAM,
            windlass_sys::fd::Blocking::Blocking,
        ),
        extent: SyncExtent::All,
    };
    assert_eq!(subject.error(sync), libc::EINVAL);
}
