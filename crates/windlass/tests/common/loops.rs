//! What the tests of the event loop share: a loop over each back end, a limit on how long a test
//! may hang, and pipes.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::print_stdout,
    reason = "each test binary uses a part of it; what a helper process prints is its report"
)]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse};
use windlass::event_loop::{EventLoop, LoopConfig};
use windlass_sys::fd::{Blocking, set_blocking};

/// A test that takes so long hangs: generous, as machines are loaded.
const HANG_LIMIT: Duration = Duration::from_secs(120);

/// Makes each claim a test over each back end.
macro_rules! on_each_backend {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { crate::common::guarded(stringify!($name), || super::$name(windlass::demultiplexer::Backend::Epoll)) })*
        }
        mod poll {
            $(#[test] fn $name() { crate::common::guarded(stringify!($name), || super::$name(windlass::demultiplexer::Backend::Poll)) })*
        }
        mod select {
            $(#[test] fn $name() { crate::common::guarded(stringify!($name), || super::$name(windlass::demultiplexer::Backend::Select)) })*
        }
        mod io_uring {
            $(#[test] fn $name() {
                if crate::common::has_io_uring() {
                    crate::common::guarded(stringify!($name), || super::$name(windlass::demultiplexer::Backend::Uring))
                }
            })*
        }
    };
}
pub(crate) use on_each_backend;

/// Makes each claim a test over each back end, alone in a process of its own.
macro_rules! alone_on_each_backend {
    ($($name:ident)*) => {
        mod alone {
            $(pub(crate) fn $name(backend: windlass::demultiplexer::Backend) {
                let path = format!("alone::{backend}::{}", stringify!($name));
                crate::common::in_own_process(&path, || super::$name(backend));
            })*

            crate::common::on_each_backend! { $($name)* }
        }
    };
}
pub(crate) use alone_on_each_backend;

/// Whether this system lets us have one: some forbid it.
pub(crate) fn has_io_uring() -> bool {
    use windlass_sys::uring::{Ring, RingOptions};
    Ring::open(RingOptions::default())
        .inspect_err(|reason| println!("skipped: {reason}"))
        .is_ok()
}

/// Runs a test; a hang ends the process with the test's name.
pub(crate) fn guarded(name: &str, test: impl FnOnce()) {
    let (done, is_done) = mpsc::channel::<()>();
    let name = name.to_owned();
    let guard = thread::spawn(move || {
        if is_done.recv_timeout(HANG_LIMIT) == Err(RecvTimeoutError::Timeout) {
            // Past the capture of a test's output, which is lost in an abort.
            let _ = writeln!(io::stderr(), "{name} hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
    guard.join().expect("guard");
}

pub(crate) fn config(backend: Backend) -> LoopConfig {
    LoopConfig {
        backend: BackendConfig {
            force: Some(backend),
            environment: EnvironmentUse::Ignore,
            ..BackendConfig::default()
        },
        ..LoopConfig::default()
    }
}

pub(crate) fn open<'l, S: 'l>(backend: Backend) -> EventLoop<'l, S> {
    let event_loop = EventLoop::with_config(config(backend)).expect("open");
    assert_eq!(event_loop.backend(), backend.name());
    event_loop
}

/// A pipe whose ends do not block.
pub(crate) fn pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().expect("pipe");
    set_blocking(reader.as_fd(), Blocking::Nonblocking).expect("reader");
    set_blocking(writer.as_fd(), Blocking::Nonblocking).expect("writer");
    (reader, writer)
}

/// A pipe with a byte in it.
pub(crate) fn readable_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe();
    writer.write_all(b"x").expect("write");
    (reader, writer)
}

/// Takes all that can be read.
pub(crate) fn drain(mut reader: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    match reader.read_to_end(&mut all) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("read: {error}"),
        _ => all,
    }
}

/// The numbers of the process's open descriptors.
pub(crate) fn open_descriptors() -> Vec<i32> {
    let mut all: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .expect("/proc/self/fd")
        .map(|entry| entry.expect("entry").file_name())
        .filter_map(|name| name.to_str()?.parse().ok())
        .filter(|&fd| windlass_sys::fd::is_open(fd))
        .collect();
    all.sort_unstable();
    all
}

const HELPER: &str = "WINDLASS_TEST_HELPER";

/// Runs a part of a test alone in a process: this test binary again, with only `test` (its path
/// in the binary). For what concerns the whole process: signals, forks, descriptors.
pub(crate) fn in_own_process(test: &str, body: impl FnOnce()) {
    if std::env::var_os(HELPER).is_some() {
        body();
        println!("{DONE}");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("current_exe"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(HELPER, "1")
        .output()
        .expect("spawn");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(DONE),
        "{test} in its own process: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

const DONE: &str = "the helper has done it all";
