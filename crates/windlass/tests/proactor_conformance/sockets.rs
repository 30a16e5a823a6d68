//! Stream sockets: connecting, accepting, sending, receiving.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use windlass::proactor::{Address, Operation, Outcome, Repeat, SharedFd};
use windlass_sys::fd::{Blocking, blocking, set_blocking};

use crate::harness::{
    BOTH, Make, Scratch, Subject, bytes, connection, content, is_done, pair, receive, send, shared,
};

/// A new socket, not connected.
pub(crate) fn socket(family: i32, kind: i32, mode: Blocking) -> SharedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: socket takes three numbers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was just opened, and is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_blocking(fd.as_fd(), mode).expect("set");
    shared(fd)
}

fn connect(socket: &SharedFd, address: impl Into<Address>) -> Operation {
    Operation::Connect {
        socket: Arc::clone(socket),
        address: address.into(),
    }
}

pub(crate) fn accept(listener: &SharedFd, repeat: Repeat) -> Operation {
    Operation::Accept {
        listener: Arc::clone(listener),
        repeat,
    }
}

pub(crate) fn a_connection_is_made_accepted_and_used(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("name");
        set_blocking(listener.as_fd(), mode).expect("set");
        let listener = shared(listener);
        let accepting = subject.start(accept(&listener, Repeat::Once));
        subject.settle();
        let client = socket(libc::AF_INET, libc::SOCK_STREAM, mode);
        assert!(is_done(&subject.complete(connect(&client, address))));
        assert_eq!(blocking(client.as_fd()).expect("get"), mode);
        assert_eq!(blocking(listener.as_fd()).expect("get"), mode);
        let Ok(Outcome::Accepted(server)) = subject.next_of(accepting).result else {
            panic!("not accepted");
        };
        assert_eq!(
            blocking(server.as_fd()).expect("get"),
            Blocking::Nonblocking
        );
        // SAFETY: F_GETFD takes no argument.
        let flags = unsafe { libc::fcntl(server.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        let server = shared(server);
        let sent = subject.complete(send(&client, b"hello"));
        assert_eq!(bytes(&sent), 5);
        assert_eq!(sent.into_buffer(), b"hello");
        let got = subject.complete(receive(&server, 100));
        assert_eq!(bytes(&got), 5);
        assert_eq!(got.into_buffer(), b"hello");
    }
}

pub(crate) fn a_connection_to_nobody_is_refused(make: Make) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    drop(listener);
    let mut subject = Subject::new(make);
    for mode in BOTH {
        let client = socket(libc::AF_INET, libc::SOCK_STREAM, mode);
        let error = subject.error(connect(&client, address));
        assert_eq!(error, libc::ECONNREFUSED);
    }
}

pub(crate) fn a_connection_over_a_path_is_made_and_a_missing_one_is_an_error(make: Make) {
    let scratch = Scratch::new();
    let path = scratch.0.join("s");
    let listener = UnixListener::bind(&path).expect("bind");
    let mut subject = Subject::new(make);
    for mode in BOTH {
        let client = socket(libc::AF_UNIX, libc::SOCK_STREAM, mode);
        assert!(is_done(
            &subject.complete(connect(&client, Address::Unix(path.clone())))
        ));
        listener.accept().expect("accept");
        let client = socket(libc::AF_UNIX, libc::SOCK_STREAM, mode);
        let missing = Address::Unix(scratch.0.join("missing"));
        assert_eq!(subject.error(connect(&client, missing)), libc::ENOENT);
        let long = Address::Unix(scratch.0.join("x".repeat(200)));
        subject
            .complete(connect(&client, long))
            .result
            .expect_err("too long");
    }
}

pub(crate) fn a_full_unix_listener_is_waited_for(make: Make) {
    for mode in BOTH {
        let scratch = Scratch::new();
        let path = scratch.0.join("s");
        let listener = UnixListener::bind(&path).expect("bind");
        // SAFETY: listen takes two numbers; the socket listens already, with a longer queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect(&path).expect("connect");
        let mut subject = Subject::new(make);
        let client = socket(libc::AF_UNIX, libc::SOCK_STREAM, mode);
        let id = subject.start(connect(&client, Address::Unix(path)));
        subject.stays_quiet(Duration::from_millis(20));
        let _accepted = listener.accept().expect("accept");
        assert!(is_done(&subject.next_of(id)));
    }
}

pub(crate) fn a_second_connect_is_an_error(make: Make) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    let mut subject = Subject::new(make);
    let client = shared(TcpStream::connect(address).expect("connect"));
    assert_eq!(subject.error(connect(&client, address)), libc::EISCONN);
}

pub(crate) fn accepting_from_what_does_not_listen_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    for repeat in [Repeat::Once, Repeat::Multishot] {
        let idle = socket(libc::AF_INET, libc::SOCK_STREAM, Blocking::Blocking);
        assert_eq!(subject.error(accept(&idle, repeat)), libc::EINVAL);
        let file = Scratch::new().file(b"x");
        assert_eq!(subject.error(accept(&file, repeat)), libc::ENOTSOCK);
    }
}

pub(crate) fn a_large_send_is_complete_only_when_all_is_sent(make: Make) {
    const LEN: usize = 5_000_000;
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = connection(mode);
        let sending = subject.start(send(&ours, &content(LEN)));
        subject.settle();
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).expect("read");
            all
        });
        let sent = subject.next_of(sending);
        assert_eq!(bytes(&sent), LEN);
        assert_eq!(sent.into_buffer().len(), LEN);
        drop(ours);
        assert!(reader.join().expect("join") == content(LEN));
    }
}

pub(crate) fn the_end_of_a_stream_is_zero_bytes_after_all_that_was_sent(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = pair(mode);
        theirs.write_all(b"abcdef").expect("write");
        drop(theirs);
        let mut all = Vec::new();
        loop {
            let got = subject.complete(receive(&ours, 4));
            if bytes(&got) == 0 {
                break;
            }
            all.extend(got.into_buffer());
        }
        assert_eq!(all, b"abcdef");
    }
}

pub(crate) fn a_reset_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = connection(Blocking::Blocking);
    let id = subject.start(receive(&ours, 10));
    subject.settle();
    windlass_sys::net::set_linger_zero(theirs.as_fd()).expect("option");
    drop(theirs);
    let completion = subject.next_of(id);
    let error = completion.result.expect_err("reset").raw_os_error();
    assert_eq!(error, Some(libc::ECONNRESET));
}

pub(crate) fn a_send_that_the_peer_cuts_tells_what_went(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = pair(Blocking::Blocking);
    let id = subject.start(send(&ours, &content(5_000_000)));
    subject.settle();
    drop(theirs);
    let completion = subject.next_of(id);
    let sent = bytes(&completion);
    assert!((1..5_000_000).contains(&sent), "{sent}");
    assert_eq!(subject.error(send(&ours, b"x")), libc::EPIPE);
}

pub(crate) fn nothing_to_send_and_no_room_are_errors(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, _theirs) = pair(Blocking::Blocking);
    assert_eq!(subject.error(send(&ours, b"")), libc::EINVAL);
    assert_eq!(subject.error(receive(&ours, 0)), libc::EINVAL);
    let zero_copy = Operation::SendZeroCopy {
        socket: Arc::clone(&ours),
        payload: Vec::new().into(),
    };
    assert_eq!(subject.error(zero_copy), libc::EINVAL);
    let several = Operation::ReceiveMessage {
        socket: ours,
        buffers: vec![Vec::new(); 3],
    };
    assert_eq!(subject.error(several), libc::EINVAL);
}

pub(crate) fn what_is_no_socket_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    let file = Scratch::new().file(b"content");
    assert_eq!(subject.error(receive(&file, 10)), libc::ENOTSOCK);
    assert_eq!(subject.error(send(&file, b"x")), libc::ENOTSOCK);
    let pool = subject.pool(2, 64);
    let endless = Operation::ReceiveMultishot {
        socket: Arc::clone(&file),
        pool,
    };
    assert_eq!(subject.error(endless), libc::ENOTSOCK);
    let shutdown = Operation::Shutdown {
        socket: file,
        side: Shutdown::Both,
    };
    assert_eq!(subject.error(shutdown), libc::ENOTSOCK);
    let idle = socket(libc::AF_INET, libc::SOCK_STREAM, Blocking::Blocking);
    assert_eq!(subject.error(receive(&idle, 10)), libc::ENOTCONN);
}

pub(crate) fn a_shutdown_is_seen_by_the_peer(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = connection(Blocking::Blocking);
    let end = Operation::Shutdown {
        socket: Arc::clone(&ours),
        side: Shutdown::Write,
    };
    assert!(is_done(&subject.complete(end)));
    assert_eq!(theirs.read(&mut [0; 4]).expect("read"), 0);
    theirs.write_all(b"more").expect("write");
    assert_eq!(subject.complete(receive(&ours, 9)).into_buffer(), b"more");
    let idle = socket(libc::AF_INET, libc::SOCK_STREAM, Blocking::Blocking);
    let end = Operation::Shutdown {
        socket: idle,
        side: Shutdown::Both,
    };
    assert_eq!(subject.error(end), libc::ENOTCONN);
}

pub(crate) fn a_zero_copy_send_gives_its_buffer_back(make: Make) {
    const LEN: usize = 300_000;
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = connection(Blocking::Nonblocking);
    let reader = thread::spawn(move || {
        let mut all = vec![0; LEN];
        theirs.read_exact(&mut all).expect("read");
        all
    });
    let sent = subject.complete(Operation::SendZeroCopy {
        socket: ours,
        payload: content(LEN).into(),
    });
    assert_eq!(bytes(&sent), LEN);
    assert!(sent.into_buffer() == content(LEN));
    assert!(reader.join().expect("join") == content(LEN));
    // A socket that knows no such thing sends as usual.
    let (ours, mut theirs) = pair(Blocking::Blocking);
    let sent = subject.complete(Operation::SendZeroCopy {
        socket: ours,
        payload: b"plain".to_vec().into(),
    });
    assert_eq!(bytes(&sent), 5);
    let mut got = [0; 5];
    theirs.read_exact(&mut got).expect("read");
    assert_eq!(&got, b"plain");
}

pub(crate) fn blocking_sockets_do_not_block_the_loop(make: Make) {
    let mut subject = Subject::new(make);
    let (silent, _theirs) = pair(Blocking::Blocking);
    let (stuffed, mut reader) = pair(Blocking::Blocking);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    let listener = shared(listener);
    let waits = [
        subject.start(receive(&silent, 10)),
        subject.start(send(&stuffed, &content(3_000_000))),
        subject.start(accept(&listener, Repeat::Once)),
    ];
    subject.stays_quiet(Duration::from_millis(10));
    let drained = thread::spawn(move || {
        let mut all = vec![0; 3_000_000];
        reader.read_exact(&mut all).expect("read");
    });
    let _client = TcpStream::connect(address).expect("connect");
    assert_eq!(bytes(&subject.next_of(waits[1])), 3_000_000);
    assert!(subject.next_of(waits[2]).result.is_ok());
    drained.join().expect("join");
    subject.event_loop.cancel(waits[0]);
    assert!(subject.next_of(waits[0]).is_cancelled());
}

/// In a process of its own.
pub(crate) fn a_closed_peer_is_an_error_and_no_signal(make: Make) {
    // SAFETY: the default action of a signal; Rust programs ignore it otherwise.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut subject = Subject::new(make);
    for mode in BOTH {
        let (ours, theirs) = pair(mode);
        drop(theirs);
        assert_eq!(subject.error(send(&ours, b"x")), libc::EPIPE);
        let message = Operation::SendMessage {
            socket: Arc::clone(&ours),
            payloads: vec![b"x".to_vec().into()],
            address: None,
        };
        assert_eq!(subject.error(message), libc::EPIPE);
        let zero_copy = Operation::SendZeroCopy {
            socket: ours,
            payload: b"x".to_vec().into(),
        };
        assert_eq!(subject.error(zero_copy), libc::EPIPE);
    }
}
