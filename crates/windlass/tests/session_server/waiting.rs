//! Sessions that wait for a notification.

use std::io::Read;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use windlass::models::Limits;
use windlass::session::{
    Input, Job, JobResult, Next, Notifier, Now, Peer, Progress, Service, Session, SessionContext,
};

use windlass_sys::net;

use crate::harness::{Client, Model, Options, PATIENCE, Server, is_child, spawn_self_with};
use crate::resources::cpu_ticks;
use crate::sessions::pattern;

/// What a test and a session tell each other.
#[derive(Debug, Default)]
struct Mailbox {
    /// The last number that the test told.
    told: AtomicU64,
    /// The last number that the session saw.
    seen: AtomicU64,
    advances: AtomicU64,
    dropped: AtomicBool,
    job_may_end: Mutex<bool>,
    changed: Condvar,
}

impl Mailbox {
    fn end_job(&self) {
        *self.job_may_end.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// A session that has begun to wait.
struct Waiter {
    notifier: Notifier,
    mailbox: Arc<Mailbox>,
}

impl Waiter {
    fn tell(&self, number: u64) {
        self.mailbox.told.store(number, Ordering::Release);
        self.notifier.notify();
    }

    fn wait(&self, what: &str, holds: impl Fn(&Mailbox) -> bool) {
        let begun = std::time::Instant::now();
        while !holds(&self.mailbox) {
            assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
            thread::yield_now();
        }
    }
}

struct WaitService(Sender<Waiter>);

/// Each line is a command, see [`WaitSession::run`]; it waits after each.
struct WaitSession {
    waiters: Sender<Waiter>,
    mailbox: Arc<Mailbox>,
    is_known: bool,
    /// Whether it owes an answer when it is called next.
    owes: bool,
    hoard: Hoard,
    ends: StopAnswer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hoard {
    No,
    /// Consumes nothing until it is told something; then counts what comes.
    UntilTold,
    /// Consumes nothing.
    Always,
    Counts(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopAnswer {
    Close,
    WaitOn,
    /// It was told to stop; the next notification ends it.
    Stopping,
}

type Cx<'a> = SessionContext<'a, ()>;

impl Service for WaitService {
    type Local = ();
    type Session = WaitSession;

    fn local(&self) {}

    fn open(&self, (): &mut (), _peer: &Peer, _now: Now) -> WaitSession {
        WaitSession {
            waiters: self.0.clone(),
            mailbox: Arc::default(),
            is_known: false,
            owes: false,
            hoard: Hoard::No,
            ends: StopAnswer::Close,
        }
    }
}

impl WaitSession {
    fn run(&mut self, cx: &mut Cx<'_>, command: &str) -> Next {
        match command {
            "wait" => {}
            "wait-on" => self.ends = StopAnswer::WaitOn,
            "hoard" => self.hoard = Hoard::UntilTold,
            "hoard-always" => self.hoard = Hoard::Always,
            "flood" => {
                self.owes = true;
                cx.output.push_shared(pattern(FLOOD_BYTES).into());
                return Next::Flush;
            }
            "job" => {
                self.owes = true;
                let mailbox = Arc::clone(&self.mailbox);
                return Next::Job(Job::new(move || {
                    let may_end = mailbox.job_may_end.lock().unwrap();
                    let _may_end = mailbox
                        .changed
                        .wait_timeout_while(may_end, PATIENCE, |may_end| !*may_end)
                        .unwrap();
                }));
            }
            other => panic!("no command: {other}"),
        }
        Next::Wait
    }

    fn go_on(&mut self, cx: &mut Cx<'_>, input: Input<'_>, told: u64) -> Progress {
        if self.ends == StopAnswer::Stopping && told > 0 {
            cx.output.push(b"stopped\n");
            let consumed = input.bytes.len();
            let next = Next::Close;
            return Progress { consumed, next };
        }
        match self.hoard {
            Hoard::No => self.lines(cx, input),
            Hoard::UntilTold if told > 0 => self.count(cx, input, 0),
            Hoard::Counts(before) => self.count(cx, input, before),
            Hoard::UntilTold | Hoard::Always => Progress {
                consumed: 0,
                next: Next::Wait,
            },
        }
    }

    fn lines(&mut self, cx: &mut Cx<'_>, input: Input<'_>) -> Progress {
        let mut consumed = 0;
        let mut next = Next::Wait;
        while let Some(len) = input.bytes[consumed..].iter().position(|&b| b == b'\n') {
            let line = std::str::from_utf8(&input.bytes[consumed..consumed + len]).unwrap();
            next = self.run(cx, line);
            consumed += len + 1;
            if !matches!(next, Next::Wait) || self.hoard != Hoard::No {
                break;
            }
        }
        if input.ended && matches!(next, Next::Wait) && consumed == input.bytes.len() {
            cx.output.push(b"ended\n");
            next = Next::Close;
        }
        Progress { consumed, next }
    }

    fn count(&mut self, cx: &mut Cx<'_>, input: Input<'_>, before: u64) -> Progress {
        let expected = (before..).map(|at| (at % 251) as u8);
        assert!(
            input
                .bytes
                .iter()
                .copied()
                .eq(expected.take(input.bytes.len()))
        );
        let count = before + input.bytes.len() as u64;
        self.hoard = Hoard::Counts(count);
        let mut next = Next::Wait;
        if input.ended {
            cx.output.push(format!("{count} bytes\n").as_bytes());
            next = Next::Close;
        }
        Progress {
            consumed: input.bytes.len(),
            next,
        }
    }
}

const FLOOD_BYTES: usize = 16 * 1024 * 1024;

impl Session for WaitSession {
    type Local = ();

    fn advance(&mut self, cx: &mut Cx<'_>, input: Input<'_>) -> Progress {
        self.mailbox.advances.fetch_add(1, Ordering::Relaxed);
        let told = self.mailbox.told.load(Ordering::Acquire);
        self.mailbox.seen.store(told, Ordering::Release);
        if std::mem::take(&mut self.owes) {
            cx.output.push(format!("told {told}\n").as_bytes());
        }
        let progress = self.go_on(cx, input, told);
        if !std::mem::replace(&mut self.is_known, true) {
            // Last, so that what the test does now is not seen by this call. It may have seen enough.
            let _ = self.waiters.send(Waiter {
                notifier: cx.wakeups.notifier(),
                mailbox: Arc::clone(&self.mailbox),
            });
        }
        progress
    }

    fn complete(&mut self, _cx: &mut Cx<'_>, _result: JobResult) -> Next {
        Next::Wait
    }

    fn stop(&mut self, _cx: &mut Cx<'_>) -> Next {
        if self.ends == StopAnswer::Close {
            return Next::Close;
        }
        self.ends = StopAnswer::Stopping;
        Next::Wait
    }
}

impl Drop for WaitSession {
    fn drop(&mut self) {
        self.mailbox.dropped.store(true, Ordering::Release);
    }
}

fn serve<M: Model>(limits: Limits) -> (Server, Receiver<Waiter>) {
    let (send, waiters) = mpsc::channel();
    let options = Options {
        limits,
        ..Options::default()
    };
    (Server::start::<M, _>(WaitService(send), options), waiters)
}

/// A client whose session has done the first command.
fn begin(server: &Server, waiters: &Receiver<Waiter>, command: &str) -> (Client, Waiter) {
    let mut client = server.connect();
    client.send(format!("{command}\n"));
    let waiter = waiters.recv_timeout(PATIENCE).expect("a session waits");
    (client, waiter)
}

pub(crate) fn no_notification_is_lost<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (client, waiter) = begin(&server, &waiters, "wait");
    let count = 30_000;
    for number in 1..=count {
        waiter.tell(number);
        // Now and then the loop falls asleep, and is caught at it at different points.
        if number % 8 == 0 {
            waiter.wait("it is seen", |mailbox| {
                mailbox.seen.load(Ordering::Acquire) == number
            });
            for _ in 0..number % 512 {
                std::hint::spin_loop();
            }
        }
    }
    let advances = waiter.mailbox.advances.load(Ordering::Relaxed);
    assert!(advances <= count + 1, "{advances} calls");
    drop(client);
    assert_eq!(server.stop_and_join().failed, 0);
}

pub(crate) fn a_notification_during_a_job_is_seen_after_it<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (mut client, waiter) = begin(&server, &waiters, "job");
    waiter.tell(1);
    // Whatever that made the loop do is done before this.
    let (_other, _) = begin(&server, &waiters, "wait");
    assert_eq!(waiter.mailbox.seen.load(Ordering::Acquire), 0);
    waiter.mailbox.end_job();
    assert_eq!(client.line(), "told 1");
    waiter.tell(2);
    waiter.wait("the second is seen", |mailbox| {
        mailbox.seen.load(Ordering::Acquire) == 2
    });
    server.stop_and_join();
}

pub(crate) fn a_notification_during_a_flush_is_seen_after_it<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (mut client, waiter) = begin(&server, &waiters, "flood");
    waiter.tell(1);
    assert!(client.bytes(FLOOD_BYTES) == pattern(FLOOD_BYTES));
    assert_eq!(client.line(), "told 1");
    waiter.tell(2);
    waiter.wait("the second is seen", |mailbox| {
        mailbox.seen.load(Ordering::Acquire) == 2
    });
    server.stop_and_join();
}

pub(crate) fn a_notification_for_a_connection_that_is_gone_does_nothing<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (client, gone) = begin(&server, &waiters, "wait");
    drop(client);
    gone.wait("it is gone", |mailbox| {
        mailbox.dropped.load(Ordering::Acquire)
    });
    // One that has its slot, perhaps.
    let (mut client, waiter) = begin(&server, &waiters, "wait");
    let before = waiter.mailbox.advances.load(Ordering::Relaxed);
    for number in 1..1000 {
        gone.tell(number);
    }
    assert_eq!(gone.mailbox.seen.load(Ordering::Acquire), 0);
    waiter.tell(1);
    waiter.wait("it is seen", |mailbox| {
        mailbox.seen.load(Ordering::Acquire) == 1
    });
    let calls = waiter.mailbox.advances.load(Ordering::Relaxed) - before;
    assert_eq!(calls, 1, "the other's notifications are not this one's");
    client.end();
    assert_eq!(client.rest(), b"ended\n");
    server.stop_and_join();
}

pub(crate) fn input_beyond_the_limit_waits_with_its_session<M: Model>() {
    let limits = Limits {
        input_bytes_max: 8192,
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let (mut client, waiter) = begin(&server, &waiters, "hoard");
    let sent = pattern(1024 * 1024);
    let socket = client.socket().try_clone().unwrap();
    let sender = thread::spawn(move || {
        use std::io::Write;
        (&socket).write_all(&sent).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    });
    // It is called for what comes, until the buffer is full.
    waiter.wait("input came", |mailbox| {
        mailbox.advances.load(Ordering::Relaxed) > 1
    });
    waiter.tell(1);
    assert_eq!(client.line(), format!("{} bytes", 1024 * 1024));
    sender.join().unwrap();
    assert!(client.rest().is_empty());
    assert_eq!(server.stop_and_join().failed, 0);
}

pub(crate) fn the_end_of_input_is_seen_while_waiting<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (mut client, waiter) = begin(&server, &waiters, "wait");
    client.end();
    assert_eq!(client.rest(), b"ended\n");
    waiter.wait("it is gone", |mailbox| {
        mailbox.dropped.load(Ordering::Acquire)
    });
    // Behind what the session keeps.
    let (mut client, waiter) = begin(&server, &waiters, "hoard");
    client.send(pattern(5000)).end();
    waiter.tell(1);
    assert_eq!(client.rest(), b"5000 bytes\n");
    assert_eq!(server.stop_and_join().failed, 0);
}

/// Where the back end has edges; the others learn it when the session goes on.
pub(crate) fn a_client_that_breaks_off_while_its_session_waits_is_noticed<M: Model>() {
    if std::env::var("WINDLASS_BACKEND").is_ok_and(|backend| backend != "epoll") {
        return;
    }
    let limits = Limits {
        input_bytes_max: 8192,
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let gone = |waiter: &Waiter| {
        waiter.wait("it is gone", |mailbox| {
            mailbox.dropped.load(Ordering::Acquire)
        });
    };
    // With more input than is kept, so that nothing is read.
    let (mut full, waiter) = begin(&server, &waiters, "hoard-always");
    full.send(pattern(20_000));
    net::set_linger_zero(full.socket().as_fd()).unwrap();
    drop(full);
    gone(&waiter);
    // After the end of its input was seen.
    let (mut ended, waiter) = begin(&server, &waiters, "hoard-always");
    ended.send("x").end();
    waiter.wait("its end came", |mailbox| {
        mailbox.advances.load(Ordering::Relaxed) > 1
    });
    net::set_linger_zero(ended.socket().as_fd()).unwrap();
    drop(ended);
    gone(&waiter);
    assert_eq!(server.stop_and_join().failed, 2);
}

/// In processes of its own, for the processor time, one for each back end.
pub(crate) fn a_session_that_waits_with_a_full_buffer_is_quiet<M: Model>() {
    if !is_child() {
        for &backend in M::BACKENDS {
            let claim = "a_session_that_waits_with_a_full_buffer_is_quiet";
            let variables = [("WINDLASS_BACKEND", backend)];
            let mut child = spawn_self_with::<M>(claim, 256, &variables);
            let mut output = String::new();
            let mut stdout = child.0.stdout.take().unwrap();
            stdout.read_to_string(&mut output).unwrap();
            assert!(child.0.wait().unwrap().success(), "{backend}: {output}");
        }
        return;
    }
    let limits = Limits {
        input_bytes_max: 8192,
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let (mut full, full_waiter) = begin(&server, &waiters, "hoard");
    full.send(pattern(100_000)).end();
    let (mut ended, ended_waiter) = begin(&server, &waiters, "hoard-always");
    ended.send("x").end();
    let (reset, _) = begin(&server, &waiters, "hoard-always");
    reset.socket().shutdown(Shutdown::Both).unwrap();
    let quiet = |waiter: &Waiter| {
        waiter.wait("its input came", |mailbox| {
            mailbox.advances.load(Ordering::Relaxed) > 1
        });
    };
    quiet(&full_waiter);
    quiet(&ended_waiter);
    let before = cpu_ticks(std::process::id());
    thread::park_timeout(Duration::from_millis(400));
    let ticks = cpu_ticks(std::process::id()) - before;
    assert!(ticks < 15, "{ticks} hundredths of a second in 0.4 s");
    // And it goes on from there.
    full_waiter.tell(1);
    assert_eq!(full.rest(), b"100000 bytes\n");
    server.stop_and_join();
}

pub(crate) fn a_stop_reaches_sessions_that_wait<M: Model>() {
    let limits = Limits {
        stop_deadline: PATIENCE * 2,
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let (mut client, _waiter) = begin(&server, &waiters, "wait");
    server.stop();
    assert!(client.rest().is_empty());
    drop(client);
    assert_eq!(server.join().cut, 0);
}

pub(crate) fn a_session_may_go_on_waiting_during_a_stop<M: Model>() {
    let limits = Limits {
        stop_deadline: PATIENCE * 2,
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let (mut client, waiter) = begin(&server, &waiters, "wait-on");
    let (mut idle, _) = begin(&server, &waiters, "wait");
    server.stop();
    assert!(idle.rest().is_empty());
    // The other may be in another loop: until this one's has told it.
    waiter.wait("it is told of the stop", |mailbox| {
        mailbox.advances.load(Ordering::Relaxed) > 1
    });
    waiter.tell(1);
    assert_eq!(client.rest(), b"stopped\n");
    drop((client, idle));
    assert_eq!(server.join().cut, 0);

    // It is not told anything before the deadline.
    let limits = Limits {
        stop_deadline: Duration::from_millis(50),
        ..Limits::default()
    };
    let (server, waiters) = serve::<M>(limits);
    let (mut client, waiter) = begin(&server, &waiters, "wait-on");
    server.stop();
    assert_eq!(server.join().cut, 1);
    assert!(client.rest_or_reset().0.is_empty());
    waiter.tell(1);
}

pub(crate) fn a_notifier_outlives_its_server<M: Model>() {
    let (server, waiters) = serve::<M>(Limits::default());
    let (client, waiter) = begin(&server, &waiters, "wait");
    waiter.tell(1);
    drop(client);
    server.stop_and_join();
    for number in 2..100 {
        waiter.tell(number);
    }
    assert!(waiter.mailbox.dropped.load(Ordering::Acquire));
    assert!(waiter.mailbox.seen.load(Ordering::Acquire) <= 1);
}
