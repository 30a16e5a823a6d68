//! Where there is no ring, and what a fork leaves.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use windlass::demultiplexer::{Backend, BackendConfig, EnvironmentUse};
use windlass::event_loop::{Context, EventLoop, LoopConfig, OpenError};
use windlass::proactor::{
    Completion, Driver, DriverChoice, DriverError, Fallback, ProactorConfig, Unavailable,
};

use super::basics::{config, pair, receive};
use crate::common::{has_io_uring, in_own_process};

fn choosing(driver: DriverChoice, force: Option<Backend>) -> LoopConfig {
    LoopConfig {
        backend: BackendConfig {
            environment: EnvironmentUse::Ignore,
            force,
            ..BackendConfig::default()
        },
        proactor: ProactorConfig {
            driver,
            ..ProactorConfig::default()
        },
        ..LoopConfig::default()
    }
}

#[test]
fn the_driver_is_told_with_the_reason_if_it_is_not_a_ring() {
    let plain = EventLoop::<()>::with_config(choosing(DriverChoice::ByBackend, None));
    let plain = plain.expect("open");
    assert_eq!(
        (plain.proactor_driver(), plain.backend()),
        (Driver::Emulated, "epoll")
    );
    assert!(matches!(
        plain.proactor_fallback(),
        Some(Fallback::NotAsked)
    ));
    let forced = choosing(DriverChoice::Automatic, Some(Backend::Poll));
    let forced = EventLoop::<()>::with_config(forced).expect("open");
    assert!(matches!(
        forced.proactor_fallback(),
        Some(Fallback::BackendForced(Backend::Poll))
    ));
    let both = choosing(DriverChoice::Uring, Some(Backend::Epoll));
    let error = EventLoop::<()>::with_config(both).expect_err("contradictory");
    assert!(matches!(error, OpenError::Driver(_)), "{error:?}");
    if has_io_uring() {
        let automatic = EventLoop::<()>::with_config(choosing(DriverChoice::Automatic, None));
        assert_eq!(automatic.expect("open").proactor_driver(), Driver::Uring);
    }
}

/// Has io_uring_setup(2) fail with `errno` in this process from now on.
fn forbid_io_uring(errno: i32) {
    let statement = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Load the number; is it the call's? Then fail, else allow.
    let mut filter = [
        statement(0x20, 0, 0, 0),
        statement(0x15, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(0x06, 0x0005_0000 | errno as u32, 0, 0),
        statement(0x06, 0x7fff_0000, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    // SAFETY: the program and its filter are locals that the kernel copies.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn a_filter_that_forbids_io_uring_is_named_as_the_reason() {
    let path = "ring::processes::a_filter_that_forbids_io_uring_is_named_as_the_reason";
    if !has_io_uring() {
        return;
    }
    in_own_process(path, || {
        forbid_io_uring(libc::EPERM);
        let config = choosing(DriverChoice::Automatic, None);
        let event_loop = EventLoop::<()>::with_config(config).expect("falls back");
        assert_eq!(event_loop.proactor_driver(), Driver::Emulated);
        let reason = event_loop.proactor_fallback().expect("a reason");
        assert!(matches!(
            reason,
            Fallback::Unavailable(Unavailable::Forbidden(_))
        ));
        assert!(reason.to_string().contains("seccomp"), "{reason}");
        let config = choosing(DriverChoice::Uring, None);
        let error = EventLoop::<()>::with_config(config).expect_err("no fall-back");
        assert!(matches!(
            error,
            OpenError::Driver(DriverError::Fallback(Fallback::Unavailable(_)))
        ));
    });
}

fn record(seen: &mut Vec<Vec<u8>>, _cx: &mut Context<'_, 'static, Vec<Vec<u8>>>, done: Completion) {
    seen.push(if done.is_cancelled() {
        b"cancelled".to_vec()
    } else {
        done.into_buffer()
    });
}

#[test]
fn after_a_fork_the_child_has_its_own_ring_and_the_parent_goes_on() {
    let path = "ring::processes::after_a_fork_the_child_has_its_own_ring_and_the_parent_goes_on";
    if !has_io_uring() {
        return;
    }
    in_own_process(path, || {
        let (socket, mut peer) = pair();
        let mut event_loop = EventLoop::<Vec<Vec<u8>>>::with_config(config()).expect("open");
        event_loop
            .start(receive(&socket, 64), record)
            .expect("start");
        let mut seen = Vec::new();
        event_loop.run_nonblocking(&mut seen).expect("run");
        // SAFETY: this process has no other thread that holds a lock now.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(60) };
            let child = std::panic::AssertUnwindSafe(|| {
                let early = event_loop.run_nonblocking(&mut seen);
                let error = early.expect_err("the ring is the parent's");
                let cause = error.source().expect("a cause").to_string();
                assert!(cause.contains("after a fork"), "{cause}");
                event_loop.reinit().expect("reinit");
                event_loop.run(&mut seen).expect("run");
                let (own, mut own_peer) = pair();
                own_peer.write_all(b"child").expect("write");
                event_loop.start(receive(&own, 64), record).expect("start");
                event_loop.run(&mut seen).expect("run");
                assert_eq!(seen, [b"cancelled".to_vec(), b"child".to_vec()]);
            });
            let failed = std::panic::catch_unwind(child).is_err();
            // SAFETY: ends the process; what the parent has is not to be dropped here.
            unsafe { libc::_exit(i32::from(failed)) };
        }
        let mut status = 0;
        // SAFETY: `status` is a local to be filled.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!((ended, status), (pid, 0), "the child failed");
        peer.write_all(b"parent").expect("write");
        event_loop.run(&mut seen).expect("run");
        assert_eq!(seen, [b"parent".to_vec()]);
        assert_eq!(Arc::strong_count(&socket), 1);
    });
}
