//! Tests of what is a whole process's: signal dispositions, forks.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use rustix::process::{Pid, WaitOptions};

/// Runs `body` in a process, and on a main thread, of its own, which is this test binary with only
/// the test `path`.
pub(crate) fn alone(path: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "WINDLASS_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some_and(|value| value == path) {
        body();
        return;
    }
    let output = Command::new(std::env::current_exe().expect("the test binary"))
        .args(["--exact", path, "--test-threads=1", "--nocapture"])
        .env(VARIABLE, path)
        .output()
        .expect("run");
    let (out, err) = (&output.stdout, &output.stderr);
    assert!(
        output.status.success(),
        "{path}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err),
    );
    assert!(
        String::from_utf8_lossy(out).contains("1 passed"),
        "{path} did not run"
    );
}

/// Runs `child` in a fork, for at most a minute, and waits for it. The process must have one
/// thread, as it has within [`alone`].
pub(crate) fn in_fork(child: impl FnOnce()) {
    let pid = fork(child);
    must_end_well(pid);
}

/// Runs `parent` while a fork has its memory, and does nothing. As [`in_fork`].
pub(crate) fn beside_a_fork(parent: impl FnOnce()) {
    let (mut end, held) = io::pipe().expect("pipe");
    let mut held = Some(held);
    let pid = fork(|| {
        // The parent's is then the only one.
        drop(held.take());
        assert_eq!(end.read(&mut [0]).expect("read"), 0);
    });
    parent();
    drop(held);
    must_end_well(pid);
}

fn fork(child: impl FnOnce()) -> Pid {
    // SAFETY: `alone` runs on the process's one thread, so that no lock is left held.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(60) };
        let outcome = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the process; takes a number.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    Pid::from_raw(pid).expect("fork")
}

fn must_end_well(pid: Pid) {
    let (_, status) = loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.expect("waitpid").expect("the child ended"),
        }
    };
    assert_eq!(status.exit_status(), Some(0), "the child failed");
}
