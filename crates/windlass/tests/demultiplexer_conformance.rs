//! One suite that every demultiplexer passes: what a driver may rely on, whatever the method.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use windlass::demultiplexer::{
    Backend, BackendConfig, ENVIRONMENT_VARIABLE, EnvironmentUse, open as open_backend,
};
use windlass_core::{
    Batch, EventDemultiplexer, HandleId, Interest, Notify, RawHandle, Readiness, Trigger,
};
use windlass_sys::errno;
use windlass_sys::fd::duplicate_from;
use windlass_sys::limits::raise_descriptor_limit;
use windlass_sys::signal::{SignalChannel, ThreadId, send_to_thread};
use windlass_sys::uring::{Ring, RingOptions};
use windlass_sys::wake::WakeFd;

type Subject = Box<dyn EventDemultiplexer + Send>;

const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;
const NOW: Option<Duration> = Some(Duration::ZERO);

/// SIGUSR1 on the platforms that we build for.
const USR1: i32 = 10;

macro_rules! on_each_backend {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name(&mut super::open(super::Backend::Epoll)) })*
        }
        mod poll {
            $(#[test] fn $name() { super::$name(&mut super::open(super::Backend::Poll)) })*
        }
        mod select {
            $(#[test] fn $name() { super::$name(&mut super::open(super::Backend::Select)) })*
        }
        mod io_uring {
            $(#[test] fn $name() {
                if super::has_io_uring() {
                    super::$name(&mut super::open(super::Backend::Uring))
                }
            })*
        }
    };
}

on_each_backend! {
    a_bad_descriptor_is_refused
    a_closed_handle_does_not_spin
    a_duplicate_of_a_closed_handle_does_not_spin
    a_handle_is_silent_with_an_empty_interest
    a_late_report_is_no_orphan
    a_modified_interest_replaces_the_old_one
    a_pipe_is_readable_when_written_to
    a_removed_handle_is_silent
    a_reused_number_reports_as_its_last_registration
    a_socket_is_writable_until_full
    a_thousand_handles_are_all_reported
    a_timeout_is_not_early
    a_wait_is_ended_by_another_thread
    a_zero_timeout_does_not_block
    an_edge_is_reported_once_or_refused
    an_error_is_reported
    an_interruption_is_no_error
    any_id_is_reported_as_given
    hang_up_is_reported
    half_close_is_reported_or_refused
    large_numbers_are_watched
    modifying_an_unknown_handle_registers_it
    once_is_once_until_modified
    registering_again_replaces
    regular_files_and_devices_are_always_ready
    reinit_starts_empty
    a_level_is_reported_while_it_lasts
}

/// Whether this system lets us have one: some forbid it.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn has_io_uring() -> bool {
    Ring::open(RingOptions::default())
        .inspect_err(|reason| println!("skipped: {reason}"))
        .is_ok()
}

fn open(backend: Backend) -> Subject {
    let config = BackendConfig {
        force: Some(backend),
        environment: EnvironmentUse::Ignore,
        ..BackendConfig::default()
    };
    let subject = open_backend(&config).expect("open");
    assert_eq!(subject.name(), backend.name());
    subject
}

fn register(subject: &mut Subject, fd: &impl AsRawFd, id: u64, interest: Interest) {
    subject
        .register_event(
            fd.as_raw_fd(),
            HandleId::from_bits(id),
            interest,
            Trigger::Level,
            Notify::Always,
        )
        .expect("register");
}

fn modify(subject: &mut Subject, fd: &impl AsRawFd, id: u64, interest: Interest, notify: Notify) {
    subject
        .modify_event(
            fd.as_raw_fd(),
            HandleId::from_bits(id),
            interest,
            Trigger::Level,
            notify,
        )
        .expect("modify");
}

fn wait(subject: &mut Subject, timeout: Option<Duration>) -> Vec<(u64, Readiness)> {
    let mut batch = Batch::new();
    subject
        .demultiplex(&mut batch, timeout)
        .expect("demultiplex");
    batch
        .reports()
        .iter()
        .map(|report| (report.handle.to_bits(), report.readiness))
        .collect()
}

/// Errors and hang-ups have no name in select.
fn names_hang_up(subject: &Subject) -> bool {
    subject.features().early_close
}

/// Moves `fd` to a number that no other test's thread opens meanwhile, to be closed by the test.
fn at_own_number(fd: impl Into<OwnedFd>) -> OwnedFd {
    static NEXT: AtomicI32 = AtomicI32::new(6000);
    allow_many_descriptors();
    let lowest = NEXT.fetch_add(1, Ordering::Relaxed);
    let own = duplicate_from(fd.into().as_fd(), lowest).expect("duplicate");
    assert_eq!(own.as_raw_fd(), lowest);
    own
}

fn allow_many_descriptors() {
    assert!(
        raise_descriptor_limit(8000).expect("raise") >= 8000,
        "needs 8000 descriptors"
    );
}

fn readable_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().expect("pipe");
    writer.write_all(b"x").expect("write");
    (reader, writer)
}

fn a_pipe_is_readable_when_written_to(subject: &mut Subject) {
    let (mut reader, mut writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, READ);
    assert_eq!(wait(subject, NOW), []);
    writer.write_all(b"x").expect("write");
    assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    reader.read_exact(&mut [0]).expect("read");
    assert_eq!(wait(subject, NOW), []);
}

fn a_socket_is_writable_until_full(subject: &mut Subject) {
    let (mut left, _right) = UnixStream::pair().expect("pair");
    register(subject, &left, 7, READ | WRITE);
    assert_eq!(wait(subject, None), [(7, Readiness::WRITE)]);
    left.set_nonblocking(true).expect("nonblocking");
    while left.write(&[0; 4096]).is_ok() {}
    assert_eq!(wait(subject, NOW), []);
}

fn a_level_is_reported_while_it_lasts(subject: &mut Subject) {
    let (mut reader, _writer) = readable_pipe();
    register(subject, &reader, 7, READ);
    for _ in 0..3 {
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    }
    reader.read_exact(&mut [0]).expect("read");
    assert_eq!(wait(subject, NOW), []);
}

fn an_edge_is_reported_once_or_refused(subject: &mut Subject) {
    let (reader, mut writer) = readable_pipe();
    let (raw, id) = (reader.as_raw_fd(), HandleId::from_bits(7));
    let result = subject.register_event(raw, id, READ, Trigger::Edge, Notify::Always);
    if subject.features().edge_triggered {
        result.expect("register");
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
        assert_eq!(wait(subject, NOW), []);
        writer.write_all(b"y").expect("write");
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    } else {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains(subject.name()), "{error}");
        assert_eq!(wait(subject, NOW), []);
    }
}

fn once_is_once_until_modified(subject: &mut Subject) {
    let (reader, _writer) = readable_pipe();
    let (raw, id) = (reader.as_raw_fd(), HandleId::from_bits(7));
    subject
        .register_event(raw, id, READ, Trigger::Level, Notify::Once)
        .expect("register");
    for _ in 0..2 {
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
        assert_eq!(wait(subject, NOW), []);
        modify(subject, &reader, 7, READ, Notify::Once);
    }
    modify(subject, &reader, 7, READ, Notify::Always);
    assert_eq!(wait(subject, None).len() + wait(subject, None).len(), 2);
}

fn hang_up_is_reported(subject: &mut Subject) {
    let (reader, writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, READ);
    drop(writer);
    let expected = if names_hang_up(subject) {
        Readiness::HANG_UP
    } else {
        Readiness::READ
    };
    for _ in 0..2 {
        assert_eq!(wait(subject, None), [(7, expected)]);
    }
}

fn an_error_is_reported(subject: &mut Subject) {
    let (reader, writer) = io::pipe().expect("pipe");
    drop(reader);
    register(subject, &writer, 7, WRITE);
    let expected = if names_hang_up(subject) {
        Readiness::ERROR | Readiness::WRITE
    } else {
        Readiness::WRITE
    };
    assert_eq!(wait(subject, None), [(7, expected)]);
}

fn half_close_is_reported_or_refused(subject: &mut Subject) {
    let (left, right) = UnixStream::pair().expect("pair");
    let (raw, id) = (left.as_raw_fd(), HandleId::from_bits(7));
    let interest = Interest::PEER_CLOSED;
    let result = subject.register_event(raw, id, interest, Trigger::Level, Notify::Always);
    if subject.features().early_close {
        result.expect("register");
        assert_eq!(wait(subject, NOW), []);
        right.shutdown(Shutdown::Write).expect("shutdown");
        assert_eq!(wait(subject, None), [(7, Readiness::PEER_CLOSED)]);
        modify(subject, &left, 7, READ, Notify::Always);
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
        // What is not asked for neither ends a wait nor is told.
        let mut left = left;
        left.set_nonblocking(true).expect("nonblocking");
        while left.write(&[0; 4096]).is_ok() {}
        modify(subject, &left, 7, WRITE, Notify::Always);
        let start = Instant::now();
        assert_eq!(wait(subject, Some(Duration::from_millis(20))), []);
        assert!(start.elapsed() >= Duration::from_millis(20));
        let mut right = right;
        right.set_nonblocking(true).expect("nonblocking");
        for _ in 0..3 {
            while right.read(&mut [0; 65536]).is_ok_and(|count| count > 0) {}
            assert_eq!(wait(subject, None), [(7, Readiness::WRITE)]);
            while left.write(&[0; 4096]).is_ok() {}
            assert_eq!(wait(subject, NOW), []);
        }
    } else {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains(subject.name()), "{error}");
    }
}

fn a_modified_interest_replaces_the_old_one(subject: &mut Subject) {
    let (left, mut right) = UnixStream::pair().expect("pair");
    right.write_all(b"x").expect("write");
    register(subject, &left, 7, READ);
    assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    modify(subject, &left, 8, WRITE, Notify::Always);
    assert_eq!(wait(subject, None), [(8, Readiness::WRITE)]);
    modify(subject, &left, 9, READ | WRITE, Notify::Always);
    assert_eq!(
        wait(subject, None),
        [(9, Readiness::READ | Readiness::WRITE)]
    );
}

fn a_handle_is_silent_with_an_empty_interest(subject: &mut Subject) {
    let (reader, writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, Interest::NONE);
    drop(writer);
    assert_eq!(wait(subject, NOW), []);
    modify(subject, &reader, 7, READ, Notify::Always);
    assert_eq!(wait(subject, None).len(), 1);
    modify(subject, &reader, 7, Interest::NONE, Notify::Always);
    assert_eq!(wait(subject, NOW), []);
    subject.remove_event(reader.as_raw_fd()).expect("remove");
}

fn a_removed_handle_is_silent(subject: &mut Subject) {
    let handles: Vec<_> = (0..5).map(|_| readable_pipe()).collect();
    for (id, (reader, _)) in (0..).zip(&handles) {
        register(subject, reader, id, READ);
    }
    for at in [0, 4, 2] {
        subject
            .remove_event(handles[at].0.as_raw_fd())
            .expect("remove");
        subject
            .remove_event(handles[at].0.as_raw_fd())
            .expect("remove again, quietly");
    }
    let left: BTreeSet<u64> = wait(subject, None).iter().map(|&(id, _)| id).collect();
    assert_eq!(left, BTreeSet::from([1, 3]));
    subject
        .remove_event(RawHandle::MAX)
        .expect("never registered nor open");
}

fn registering_again_replaces(subject: &mut Subject) {
    let (left, mut right) = UnixStream::pair().expect("pair");
    right.write_all(b"x").expect("write");
    register(subject, &left, 7, READ);
    register(subject, &left, 8, WRITE);
    assert_eq!(wait(subject, None), [(8, Readiness::WRITE)]);
}

fn modifying_an_unknown_handle_registers_it(subject: &mut Subject) {
    let (reader, _writer) = readable_pipe();
    modify(subject, &reader, 7, READ, Notify::Always);
    assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
}

fn a_bad_descriptor_is_refused(subject: &mut Subject) {
    for raw in [-1, RawHandle::MAX] {
        for interest in [READ, Interest::NONE] {
            let id = HandleId::from_bits(7);
            let error = subject
                .register_event(raw, id, interest, Trigger::Level, Notify::Always)
                .expect_err("refused");
            assert_eq!(error.raw_os_error(), Some(errno::EBADF));
        }
    }
    assert_eq!(wait(subject, NOW), []);
}

/// What the kernel's set forgets by itself is never heard of; elsewhere it is an error, once.
fn a_closed_handle_does_not_spin(subject: &mut Subject) {
    let (reader, _writer) = readable_pipe();
    let (other, _other_writer) = readable_pipe();
    let closed = at_own_number(reader);
    let raw = closed.as_raw_fd();
    register(subject, &closed, 7, READ);
    register(subject, &other, 8, READ);
    drop(closed);
    let reports: Vec<_> = (0..4).flat_map(|_| wait(subject, NOW)).collect();
    let of_closed: Vec<_> = reports.iter().filter(|(id, _)| *id == 7).collect();
    assert!(of_closed.len() <= 1 && of_closed.iter().all(|(_, what)| *what == Readiness::ERROR));
    assert!(reports.iter().filter(|(id, _)| *id == 8).count() >= 3);
    subject.remove_event(raw).expect("remove");
    assert_eq!(wait(subject, NOW), [(8, Readiness::READ)]);
}

/// PF-01: the number is closed behind the library's back while a duplicate lives.
fn a_duplicate_of_a_closed_handle_does_not_spin(subject: &mut Subject) {
    let (reader, mut writer) = io::pipe().expect("pipe");
    let duplicate = reader.try_clone().expect("duplicate");
    let (other, mut other_writer) = io::pipe().expect("pipe");
    let closed = at_own_number(reader);
    let raw = closed.as_raw_fd();
    register(subject, &closed, 7, READ);
    register(subject, &other, 8, READ);
    drop(closed);
    subject.remove_event(raw).expect("the removal is quiet");
    writer.write_all(b"x").expect("write");

    // The caller knows 8 only.
    let mut orphan_reports = 0;
    for _ in 0..5 {
        for (id, _) in wait(subject, NOW) {
            assert_eq!(id, 7);
            orphan_reports += 1;
            if subject
                .forget_orphan(HandleId::from_bits(id))
                .expect("forget")
            {
                register(subject, &other, 8, READ);
            }
        }
    }
    assert!(
        orphan_reports <= 1,
        "{orphan_reports} reports for a handle that is gone"
    );
    other_writer.write_all(b"x").expect("write");
    assert_eq!(wait(subject, None), [(8, Readiness::READ)]);
    drop(duplicate);
}

fn a_late_report_is_no_orphan(subject: &mut Subject) {
    let (reader, _writer) = readable_pipe();
    let (other, _other_writer) = readable_pipe();
    register(subject, &reader, 7, READ);
    register(subject, &other, 8, READ);
    subject.remove_event(reader.as_raw_fd()).expect("remove");
    assert!(
        !subject
            .forget_orphan(HandleId::from_bits(7))
            .expect("forget")
    );
    assert_eq!(wait(subject, None), [(8, Readiness::READ)]);
    // One that the caller forgot without removing it is removed by its number.
    assert!(
        !subject
            .forget_orphan(HandleId::from_bits(9))
            .expect("forget")
    );
}

/// The number is closed and names another pipe before the removal is asked for.
fn a_reused_number_reports_as_its_last_registration(subject: &mut Subject) {
    let (first, _first_writer) = readable_pipe();
    let duplicate = first.try_clone().expect("duplicate");
    let own = at_own_number(first);
    let raw = own.as_raw_fd();
    register(subject, &own, 7, READ);
    drop(own);
    let (second, mut second_writer) = io::pipe().expect("pipe");
    let reused = duplicate_from(second.as_fd(), raw).expect("duplicate");
    assert_eq!(reused.as_raw_fd(), raw);
    register(subject, &reused, 8, READ);
    for _ in 0..5 {
        for (id, _) in wait(subject, NOW) {
            assert_eq!(id, 7);
            if subject
                .forget_orphan(HandleId::from_bits(id))
                .expect("forget")
            {
                register(subject, &reused, 8, READ);
            }
        }
    }
    second_writer.write_all(b"x").expect("write");
    assert_eq!(wait(subject, None), [(8, Readiness::READ)]);
    subject.remove_event(raw).expect("remove");
    assert_eq!(wait(subject, NOW), []);
    drop(duplicate);
}

fn regular_files_and_devices_are_always_ready(subject: &mut Subject) {
    assert!(subject.features().any_descriptor);
    let file = File::open(std::env::current_exe().expect("the test binary")).expect("open");
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("open");
    let directory = File::open("/").expect("open");
    let (reader, _writer) = readable_pipe();
    register(subject, &file, 1, READ);
    register(subject, &device, 2, READ | WRITE);
    register(subject, &reader, 3, READ);
    register(subject, &directory, 4, Interest::NONE);
    let all = BTreeSet::from([
        (1, Readiness::READ.bits()),
        (2, (Readiness::READ | Readiness::WRITE).bits()),
        (3, Readiness::READ.bits()),
    ]);
    for _ in 0..2 {
        let got = wait(subject, None);
        assert_eq!(
            got.iter()
                .map(|(id, what)| (*id, what.bits()))
                .collect::<BTreeSet<_>>(),
            all
        );
    }
    modify(subject, &file, 1, READ, Notify::Once);
    subject.remove_event(device.as_raw_fd()).expect("remove");
    subject.remove_event(reader.as_raw_fd()).expect("remove");
    assert_eq!(wait(subject, None), [(1, Readiness::READ)]);
    assert_eq!(wait(subject, NOW), []);
    modify(subject, &directory, 4, READ, Notify::Always);
    assert_eq!(wait(subject, None), [(4, Readiness::READ)]);
    subject.remove_event(directory.as_raw_fd()).expect("remove");
    subject.remove_event(file.as_raw_fd()).expect("remove");
    assert_eq!(wait(subject, NOW), []);
}

fn large_numbers_are_watched(subject: &mut Subject) {
    let (reader, mut writer) = io::pipe().expect("pipe");
    let large = at_own_number(reader);
    assert!(large.as_raw_fd() >= 1024);
    register(subject, &large, 7, READ);
    assert_eq!(wait(subject, NOW), []);
    writer.write_all(b"x").expect("write");
    assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    subject.remove_event(large.as_raw_fd()).expect("remove");
    assert_eq!(wait(subject, NOW), []);
}

fn a_timeout_is_not_early(subject: &mut Subject) {
    let (reader, _writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, READ);
    for timeout_us in [1, 50, 300, 1000, 1500, 2700, 10_000] {
        let timeout = Duration::from_micros(timeout_us);
        let start = Instant::now();
        assert_eq!(wait(subject, Some(timeout)), []);
        let took = start.elapsed();
        assert!(took >= timeout, "{took:?} instead of {timeout:?}");
    }
}

fn a_zero_timeout_does_not_block(subject: &mut Subject) {
    assert_eq!(wait(subject, NOW), []);
    let (reader, _writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, READ);
    assert_eq!(wait(subject, NOW), []);
}

fn a_wait_is_ended_by_another_thread(subject: &mut Subject) {
    let wake = WakeFd::new().expect("eventfd");
    register(subject, &wake.as_fd(), 7, READ);
    std::thread::scope(|scope| {
        scope.spawn(|| wake.notify().expect("notify"));
        assert_eq!(wait(subject, None), [(7, Readiness::READ)]);
    });
    assert_eq!(wake.drain().expect("drain"), 1);
    assert_eq!(wait(subject, NOW), []);
}

fn an_interruption_is_no_error(subject: &mut Subject) {
    let (reader, _writer) = io::pipe().expect("pipe");
    register(subject, &reader, 7, READ);
    let mut channel = SignalChannel::new().expect("channel");
    channel.watch(USR1).expect("watch");
    let is_over = AtomicBool::new(false);
    let waiting = ThreadId::current();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Again until one hits the wait itself.
            while !is_over.load(Ordering::SeqCst) {
                send_to_thread(waiting, USR1).expect("tgkill");
                std::thread::yield_now();
            }
        });
        // Without an end of its own, so that only the interruption ends it.
        for timeout in [None, Some(Duration::from_secs(3600))] {
            assert_eq!(wait(subject, timeout), []);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

fn any_id_is_reported_as_given(subject: &mut Subject) {
    let ids = [0, 1, 1 << 32, 1 << 63, u64::MAX];
    let pipes: Vec<_> = ids.iter().map(|_| readable_pipe()).collect();
    for (&id, (reader, _)) in ids.iter().zip(&pipes) {
        register(subject, reader, id, READ);
    }
    let got: BTreeSet<u64> = wait(subject, None).iter().map(|&(id, _)| id).collect();
    assert_eq!(got, BTreeSet::from(ids));
}

fn reinit_starts_empty(subject: &mut Subject) {
    let (reader, _writer) = readable_pipe();
    let file = File::open("/dev/null").expect("open");
    register(subject, &reader, 7, READ);
    register(subject, &file, 8, READ);
    subject.reinit().expect("reinit");
    assert_eq!(wait(subject, NOW), []);
    register(subject, &reader, 9, READ);
    assert_eq!(wait(subject, None), [(9, Readiness::READ)]);
}

fn a_thousand_handles_are_all_reported(subject: &mut Subject) {
    const COUNT: u64 = 1000;
    allow_many_descriptors();
    let handles: Vec<WakeFd> = (0..COUNT)
        .map(|_| WakeFd::new().expect("eventfd"))
        .collect();
    for (id, handle) in (0..).zip(&handles) {
        register(subject, &handle.as_fd(), id, READ);
    }
    assert_eq!(wait(subject, NOW), []);
    for handle in &handles {
        handle.notify().expect("notify");
    }
    // The kernel hands out what a ring has found in portions of 20 and more.
    let is_portioned = subject.name() == "io_uring";
    let waits_max = if is_portioned { COUNT / 20 } else { 5 };
    let mut seen = BTreeSet::new();
    for _ in 0..waits_max {
        seen.extend(wait(subject, None).iter().map(|&(id, _)| id));
    }
    assert_eq!(seen, (0..COUNT).collect());
    if !is_portioned {
        // By now the array has grown to fit.
        assert_eq!(wait(subject, None).len(), handles.len());
    }
    for handle in &handles {
        subject
            .remove_event(handle.as_fd().as_raw_fd())
            .expect("remove");
    }
    assert_eq!(wait(subject, NOW), []);
}

#[test]
fn a_demultiplexer_moves_between_threads() {
    for backend in Backend::ALL {
        if backend == Backend::Uring && !has_io_uring() {
            continue;
        }
        let (reader, _writer) = readable_pipe();
        let mut subject = open(backend);
        register(&mut subject, &reader, 7, READ);
        let (send, receive) = mpsc::channel::<Subject>();
        let thread = std::thread::spawn(move || {
            let mut subject = receive.recv().expect("receive");
            wait(&mut subject, None)
        });
        send.send(subject).expect("send");
        assert_eq!(
            thread.join().expect("join"),
            [(7, Readiness::READ)],
            "{backend}"
        );
    }
}

/// Runs itself again with the variable set: the environment of this process is shared by tests.
#[test]
fn the_environment_forces_the_back_end() {
    const RESULT: &str = "opened: ";
    if std::env::var_os("WINDLASS_TEST_INNER").is_some() {
        match open_backend(&BackendConfig::default()) {
            Ok(subject) => println!("{RESULT}{}", subject.name()),
            Err(error) => println!("{RESULT}{error}"),
        }
        return;
    }
    for (value, expected) in [
        ("", "epoll"),
        ("poll", "poll"),
        ("select", "select"),
        ("io_uring", "io_uring"),
        ("devpoll", "valid: epoll, poll, select, io_uring"),
    ] {
        let output = Command::new(std::env::current_exe().expect("the test binary"))
            .args([
                "--exact",
                "the_environment_forces_the_back_end",
                "--nocapture",
            ])
            .env("WINDLASS_TEST_INNER", "1")
            .env(ENVIRONMENT_VARIABLE, value)
            .output()
            .expect("run");
        let out = String::from_utf8(output.stdout).expect("text");
        let line = out
            .lines()
            .find_map(|line| Some(line.split_once(RESULT)?.1));
        assert!(
            line.is_some_and(|line| line.contains(expected)),
            "{value}: {out}"
        );
    }
}
