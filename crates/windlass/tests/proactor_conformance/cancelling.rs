//! Cancelling: what it comes to, and that nothing is lost by it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use windlass::proactor::{CancelOutcome, Operation, Outcome, Repeat};
use windlass_sys::fd::Blocking;

use crate::harness::{
    BOTH, Make, Random, Scratch, Subject, as_file, bytes, connection, content, long_count, pair,
    receive, send, shared, timeout,
};
use crate::sockets::{accept, socket};

pub(crate) fn pf_13_a_cancel_has_three_outcomes(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, mut theirs) = pair(Blocking::Nonblocking);
    // Not begun, or asked to stop before it took anything.
    let id = subject.start(receive(&ours, 10));
    assert_ne!(
        subject.event_loop.cancel(id),
        CancelOutcome::AlreadyComplete
    );
    assert!(subject.next_of(id).is_cancelled());
    // Under way: some of it was sent.
    let id = subject.start(send(&ours, &content(5_000_000)));
    subject.settle();
    assert_eq!(subject.event_loop.cancel(id), CancelOutcome::Requested);
    let sent = bytes(&subject.next_of(id));
    let mut got = vec![0; sent];
    theirs.read_exact(&mut got).expect("read");
    assert!(got == content(5_000_000)[..sent]);
    // Complete: the completion is as it was.
    theirs.write_all(b"abc").expect("write");
    let id = subject.start(receive(&ours, 10));
    while subject.world.done.is_empty() {
        subject.turn();
    }
    assert_eq!(
        subject.event_loop.cancel(id),
        CancelOutcome::AlreadyComplete
    );
    assert_eq!(subject.next_of(id).into_buffer(), b"abc");
    assert_eq!(
        subject.event_loop.cancel(id),
        CancelOutcome::AlreadyComplete
    );
    subject.settle();
    assert!(subject.world.done.is_empty());
}

pub(crate) fn a_cancelled_receive_took_nothing(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = connection(mode);
        let id = subject.start(receive(&ours, 10));
        subject.settle();
        subject.event_loop.cancel(id);
        theirs.write_all(b"for the next").expect("write");
        let completion = subject.next_of(id);
        let mut all = Vec::new();
        if !completion.is_cancelled() {
            // The data came first: then it is told.
            all.extend(completion.into_buffer());
        }
        while all.len() < 12 {
            all.extend(subject.complete(receive(&ours, 100)).into_buffer());
        }
        assert_eq!(all, b"for the next");
    }
}

pub(crate) fn a_cancelled_timeout_is_over_at_once(make: Make) {
    let mut subject = Subject::new(make);
    let start = Instant::now();
    let ids: Vec<_> = (0..500)
        .map(|_| subject.start(timeout(Duration::from_secs(100))))
        .collect();
    let short = subject.start(timeout(Duration::from_millis(1)));
    subject.settle();
    for id in ids {
        assert_ne!(
            subject.event_loop.cancel(id),
            CancelOutcome::AlreadyComplete
        );
        assert!(subject.next_of(id).is_cancelled());
    }
    assert!(subject.next_of(short).result.is_ok());
    assert!(start.elapsed() < Duration::from_secs(90));
}

pub(crate) fn a_cancelled_connect_completes(make: Make) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    // SAFETY: listen takes two numbers; the socket listens already, with a longer queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let mut subject = Subject::new(make);
    for mode in BOTH {
        // The queue has room for few; those beyond are not answered.
        let ids: Vec<_> = (0..4)
            .map(|_| {
                subject.start(Operation::Connect {
                    socket: socket(libc::AF_INET, libc::SOCK_STREAM, mode),
                    address: address.into(),
                })
            })
            .collect();
        subject.settle();
        let mut cancelled = 0;
        for id in ids {
            subject.event_loop.cancel(id);
            cancelled += u32::from(subject.next_of(id).is_cancelled());
        }
        assert!(cancelled >= 1);
    }
}

pub(crate) fn a_cancelled_multishot_gives_what_it_took_before(make: Make) {
    let mut subject = Subject::new(make);
    let pool = subject.pool(8, 4);
    for _ in 0..50 {
        let (ours, mut theirs) = pair(Blocking::Nonblocking);
        let id = subject.start(Operation::ReceiveMultishot {
            socket: Arc::clone(&ours),
            pool,
        });
        subject.settle();
        theirs.write_all(b"0123456789").expect("write");
        subject.event_loop.cancel(id);
        let mut all = Vec::new();
        loop {
            let completion = subject.next_of(id);
            let is_last = !completion.has_more();
            match completion.result {
                Ok(Outcome::Buffer(buffer)) => all.extend_from_slice(&buffer),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
                other => panic!("{other:?}"),
            }
            if is_last {
                break;
            }
        }
        while all.len() < 10 {
            all.extend(subject.complete(receive(&ours, 100)).into_buffer());
        }
        assert_eq!(all, b"0123456789");
    }
}

pub(crate) fn a_cancelled_send_tells_what_went(make: Make) {
    const LEN: usize = 3_000_000;
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = pair(mode);
        let file = Scratch::new().file(&content(LEN));
        let operations = [
            send(&ours, &content(LEN)),
            Operation::SendFile {
                file: as_file(&file),
                offset: 0,
                length: LEN as u64,
                socket: Arc::clone(&ours),
            },
        ];
        for operation in operations {
            let id = subject.start(operation);
            subject.settle();
            subject.event_loop.cancel(id);
            let sent = bytes(&subject.next_of(id));
            assert!((1..LEN).contains(&sent), "{sent}");
            let mut got = vec![0; sent];
            theirs.read_exact(&mut got).expect("read");
            assert!(got == content(LEN)[..sent]);
            theirs.set_nonblocking(true).expect("set");
            theirs.read(&mut [0]).expect_err("no more than was told");
            theirs.set_nonblocking(false).expect("set");
        }
    }
}

pub(crate) fn a_cancel_of_nothing_says_so(make: Make) {
    let mut subject = Subject::new(make);
    let id = subject.start(timeout(Duration::ZERO));
    subject.next_of(id);
    let other = subject.start(timeout(Duration::from_secs(100)));
    assert_eq!(other.slot(), id.slot());
    assert_eq!(
        subject.event_loop.cancel(id),
        CancelOutcome::AlreadyComplete
    );
    subject.settle();
    assert!(subject.world.done.is_empty(), "the other goes on");
    subject.event_loop.cancel(other);
    assert!(subject.next_of(other).is_cancelled());
}

pub(crate) fn the_next_in_line_goes_on(make: Make) {
    for mode in BOTH {
        let mut subject = Subject::new(make);
        let (ours, mut theirs) = pair(mode);
        let ids: Vec<_> = (0..10).map(|_| subject.start(receive(&ours, 1))).collect();
        subject.settle();
        for id in ids.iter().step_by(2) {
            subject.event_loop.cancel(*id);
            assert!(subject.next_of(*id).is_cancelled());
        }
        theirs.write_all(b"abcde").expect("write");
        let mut all = Vec::new();
        for id in ids.iter().skip(1).step_by(2) {
            all.extend(subject.next_of(*id).into_buffer());
        }
        all.sort_unstable();
        assert_eq!(all, b"abcde");
    }
}

/// Sends numbers, a few or many at once, until told to stop; answers how many.
fn send_numbers(mut peer: UnixStream, stop: &AtomicBool) -> u32 {
    let mut random = Random::new(3);
    let mut number = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        let mut burst = Vec::new();
        for _ in 0..=random.below(8) {
            burst.extend_from_slice(&number.to_be_bytes());
            number += 1;
        }
        peer.write_all(&burst).expect("write");
        match random.below(20) {
            0 => thread::sleep(Duration::from_micros(random.below(1500))),
            1..10 => thread::yield_now(),
            _ => {}
        }
    }
    number
}

/// Reads a stream of numbers with time-outs of 0 to 2 ms, after which a read is cancelled.
pub(crate) fn pf_22_a_cancelled_read_loses_no_byte(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = pair(Blocking::Nonblocking);
    let stop = Arc::new(AtomicBool::new(false));
    let sender = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || send_numbers(theirs, &stop))
    };
    let mut random = Random::new(22);
    let mut numbers = Numbers::default();
    let mut cancelled = 0;
    for _ in 0..long_count() * 5 {
        let id = subject.start(receive(&ours, 1 + random.below(40) as usize));
        let timer = match random.below(40) {
            0..34 => None,
            34..39 => Some(Duration::from_micros(random.below(50))),
            _ => Some(Duration::from_micros(random.below(2000))),
        };
        let Some(time) = timer else {
            for _ in 0..random.below(3) {
                subject
                    .event_loop
                    .run_nonblocking(&mut subject.world)
                    .expect("run");
            }
            subject.event_loop.cancel(id);
            let completion = subject.next_of(id);
            cancelled += u64::from(completion.is_cancelled());
            numbers.take(&completion.into_buffer());
            continue;
        };
        let timer = subject
            .event_loop
            .after(time, move |_, cx| {
                cx.cancel(id);
            })
            .expect("a timer");
        let completion = subject.next_of(id);
        subject.event_loop.remove(timer);
        cancelled += u64::from(completion.is_cancelled());
        numbers.take(&completion.into_buffer());
    }
    stop.store(true, Ordering::Relaxed);
    loop {
        let rest = subject.complete(receive(&ours, 65_536));
        if bytes(&rest) == 0 {
            break;
        }
        numbers.take(&rest.into_buffer());
    }
    assert_eq!(sender.join().expect("join"), numbers.next);
    assert!(cancelled > 0 && numbers.next > 0);
}

/// Checks that a stream of numbers has no gap.
#[derive(Default)]
struct Numbers {
    rest: Vec<u8>,
    next: u32,
}

impl Numbers {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / 4 * 4;
        for number in self.rest.drain(..whole).collect::<Vec<_>>().chunks_exact(4) {
            let number = u32::from_be_bytes(number.try_into().expect("four"));
            assert_eq!(number, self.next, "a gap in the stream");
            self.next += 1;
        }
    }
}

pub(crate) fn pf_22_a_cancelled_accept_loses_no_connection(make: Make) {
    const CONNECTIONS: u32 = 200;
    let mut subject = Subject::new(make);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("name");
    let listener = shared(listener);
    let connecting = thread::spawn(move || {
        for number in 0..CONNECTIONS {
            let mut client = TcpStream::connect(address).expect("connect");
            client.write_all(&number.to_be_bytes()).expect("write");
        }
    });
    let mut random = Random::new(1);
    let mut found = Vec::new();
    while found.len() < CONNECTIONS as usize {
        let repeat = [Repeat::Once, Repeat::Multishot][random.below(2) as usize];
        let id = subject.start(accept(&listener, repeat));
        for _ in 0..random.below(3) {
            subject
                .event_loop
                .run_nonblocking(&mut subject.world)
                .expect("run");
        }
        subject.event_loop.cancel(id);
        loop {
            let completion = subject.next_of(id);
            let is_last = !completion.has_more();
            if let Ok(Outcome::Accepted(socket)) = completion.result {
                let got = subject.complete(receive(&shared(socket), 4));
                let number: [u8; 4] = got.into_buffer().try_into().expect("four");
                found.push(u32::from_be_bytes(number));
            }
            if is_last {
                break;
            }
        }
    }
    connecting.join().expect("join");
    found.sort_unstable();
    assert_eq!(found, (0..CONNECTIONS).collect::<Vec<_>>());
}
