use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use super::*;
use crate::own_process::{self, in_fork};
use crate::poll::{self, PollFd};

const USR1: i32 = libc::SIGUSR1;
const USR2: i32 = libc::SIGUSR2;

/// Dispositions and forks are the process's: runs `body` in one of its own.
fn alone(name: &str, body: fn()) {
    own_process::alone(&format!("signal::tests::{name}"), body);
}

/// Delivered before it returns: the signal goes to the calling thread.
fn raise(signo: i32) {
    send_to_thread(ThreadId::current(), signo).expect("tgkill");
}

fn watching(signals: &[i32]) -> SignalChannel {
    let mut channel = SignalChannel::new().expect("channel");
    for &signo in signals {
        channel.watch(signo).expect("watch");
    }
    channel
}

fn read(channel: &SignalChannel) -> Vec<SignalInfo> {
    let mut signals = Vec::new();
    channel.read(&mut signals).expect("read");
    signals
}

fn read_numbers(channel: &SignalChannel) -> Vec<i32> {
    read(channel).iter().map(|info| info.signo).collect()
}

fn is_readable(channel: &SignalChannel) -> bool {
    let mut fds = [PollFd::new(channel.as_fd().as_raw_fd(), poll::IN)];
    poll::poll(&mut fds, Some(Duration::ZERO)).expect("poll") > 0
}

/// The signal itself may interrupt the wait.
fn wait_until_readable(channel: &SignalChannel) {
    let mut fds = [PollFd::new(channel.as_fd().as_raw_fd(), poll::IN)];
    while poll::poll(&mut fds, None).expect("poll") == 0 {}
}

/// Without `SA_RESTORER`, which the C library adds whenever it sets a disposition.
fn disposition_of(signo: i32) -> (usize, i32) {
    let action = disposition::query(signo).expect("sigaction");
    (action.sa_sigaction, action.sa_flags & !0x0400_0000)
}

#[test]
fn each_channel_that_watches_gets_the_signal() {
    alone("each_channel_that_watches_gets_the_signal", || {
        let first = watching(&[USR1, USR2]);
        let second = watching(&[USR1]);
        raise(USR1);
        raise(USR2);
        wait_until_readable(&second);
        assert_eq!(read_numbers(&first), [USR1, USR2]);
        let got = read(&second);
        let (pid, uid) = (process_id(), rustix::process::getuid().as_raw());
        assert_eq!(
            got,
            [SignalInfo {
                signo: USR1,
                code: libc::SI_TKILL,
                pid,
                uid
            }]
        );
        assert!(!is_readable(&first));
        assert_eq!(read_numbers(&first), []);
    });
}

#[test]
fn the_last_unwatch_restores_what_was_there() {
    alone("the_last_unwatch_restores_what_was_there", || {
        disposition::ignore(USR2).expect("ignore");
        let before = [disposition_of(USR1), disposition_of(USR2)];
        let mut first = watching(&[USR1, USR2]);
        let second = watching(&[USR1, USR2]);
        first.watch(USR1).expect("watching twice counts once");
        first.unwatch(USR1).expect("unwatch");
        raise(USR1);
        assert_eq!(read_numbers(&second), [USR1]);
        drop(second);
        first.unwatch(USR1).expect("unwatching what is not watched");
        assert_eq!(disposition_of(USR1), before[0]);
        assert_ne!(disposition_of(USR2), before[1]);
        drop(first);
        assert_eq!(disposition_of(USR2), before[1]);
    });
}

#[test]
fn a_handler_installed_meanwhile_stays() {
    alone("a_handler_installed_meanwhile_stays", || {
        let channel = watching(&[USR1]);
        disposition::ignore(USR1).expect("ignore");
        drop(channel);
        assert_eq!(disposition_of(USR1).0, libc::SIG_IGN);
    });
}

#[test]
fn a_full_pipe_loses_no_signal() {
    alone("a_full_pipe_loses_no_signal", || {
        let channel = watching(&[USR1, USR2]);
        for _ in 0..5000 {
            raise(USR1);
        }
        raise(USR2);
        wait_until_readable(&channel);
        let mut got = read_numbers(&channel);
        got.extend(read_numbers(&channel));
        assert!(got.len() > 4000 && got.iter().filter(|&&signo| signo == USR2).count() == 1);
        assert!(!is_readable(&channel));
        raise(USR1);
        assert_eq!(read_numbers(&channel), [USR1]);
    });
}

#[test]
fn what_was_not_read_is_dropped_by_unwatch() {
    alone("what_was_not_read_is_dropped_by_unwatch", || {
        let mut channel = watching(&[USR1, USR2]);
        raise(USR1);
        raise(USR2);
        channel.unwatch(USR1).expect("unwatch");
        assert_eq!(read_numbers(&channel), [USR2]);
        channel.watch(USR1).expect("watch");
        assert_eq!(read_numbers(&channel), []);
    });
}

#[test]
fn what_cannot_be_watched_is_refused_by_name() {
    let mut channel = SignalChannel::new().expect("channel");
    for signo in [libc::SIGKILL, libc::SIGSTOP] {
        let error = channel.watch(signo).expect_err("refused");
        assert!(matches!(error, SignalError::Uncatchable { signo: number } if number == signo));
    }
    for signo in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        let error = channel.watch(signo).expect_err("refused");
        assert!(matches!(error, SignalError::Synchronous { signo: number } if number == signo));
    }
    // 32 is kept by the C library for thread cancellation.
    for signo in [0, -1, 65, i32::MAX, 32] {
        let error = channel.watch(signo).expect_err("refused");
        assert!(matches!(error, SignalError::NotASignal { signo: number } if number == signo));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
        assert!(!channel.slot.is_watching(signo));
    }
}

#[test]
fn channels_are_limited_and_reused() {
    alone("channels_are_limited_and_reused", || {
        let mut channels: Vec<_> = (0..CHANNELS_MAX).map(|_| watching(&[USR1])).collect();
        let error = SignalChannel::new().expect_err("one too many");
        assert!(matches!(error, SignalError::ChannelsExhausted));
        raise(USR1);
        for channel in &channels {
            assert_eq!(read_numbers(channel), [USR1]);
        }
        channels.pop();
        SignalChannel::new().expect("a slot is free again");
    });
}

#[test]
fn a_signal_to_a_thread_started_before_is_seen() {
    alone("a_signal_to_a_thread_started_before_is_seen", || {
        let (tell, told) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(ThreadId::current()).expect("send");
            // Ends when `release` is dropped.
            let _ = wait.recv();
        });
        let id = told.recv().expect("receive");
        let channel = watching(&[USR1]);
        send_to_thread(id, USR1).expect("tgkill");
        wait_until_readable(&channel);
        assert_eq!(read_numbers(&channel), [USR1]);
        drop(release);
        thread.join().expect("join");
    });
}

#[test]
fn the_handler_keeps_errno() {
    alone("the_handler_keeps_errno", || {
        let channel = watching(&[USR1]);
        for _ in 0..5000 {
            raise(USR1);
        }
        // SAFETY: this thread's errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = 77 };
        // The pipe is full, so that the handler's write fails. raise itself keeps errno as well.
        // SAFETY: takes a number.
        unsafe { libc::raise(USR1) };
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, 77);
        drop(channel);
    });
}

#[test]
fn spawned_programs_see_the_original_mask_and_dispositions() {
    alone(
        "spawned_programs_see_the_original_mask_and_dispositions",
        || {
            let look = || {
                let output = Command::new("grep")
                    .args(["^Sig", "/proc/self/status"])
                    .output();
                let text = String::from_utf8(output.expect("run grep").stdout).expect("text");
                text.lines()
                    .filter(|line| !line.starts_with("SigQ"))
                    .map(str::to_owned)
                    .collect()
            };
            let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, USR1];
            for signo in signals {
                // A job in the background starts with SIGINT ignored.
                // SAFETY: a signal gets its default; no handler is involved.
                unsafe { libc::signal(signo, libc::SIG_DFL) };
            }
            let before: Vec<String> = look();
            let _channel = watching(&signals);
            assert_eq!(look(), before);
        },
    );
}

#[test]
fn the_end_of_a_child_is_told_with_its_id() {
    alone("the_end_of_a_child_is_told_with_its_id", || {
        let channel = watching(&[libc::SIGCHLD]);
        let mut child = Command::new("true").spawn().expect("spawn");
        wait_until_readable(&channel);
        let got = read(&channel);
        assert_eq!(got[0].code, libc::CLD_EXITED);
        assert_eq!(u32::try_from(got[0].pid).ok(), Some(child.id()));
        child.wait().expect("wait");
    });
}

#[test]
fn a_forked_child_gets_its_own_signals_and_the_parent_its_own() {
    alone(
        "a_forked_child_gets_its_own_signals_and_the_parent_its_own",
        || {
            let mut channel = watching(&[USR1, USR2]);
            raise(USR2);
            in_fork(|| {
                assert_eq!(read_numbers(&channel), [], "the parent's stays in its pipe");
                raise(USR1);
                channel.reinit().expect("reinit");
                wait_until_readable(&channel);
                assert_eq!(read_numbers(&channel), [USR1]);
                raise(USR2);
                assert_eq!(read_numbers(&channel), [USR2]);
                channel.unwatch(USR1).expect("unwatch");
                channel.watch(libc::SIGTERM).expect("watch");
                raise(libc::SIGTERM);
                assert_eq!(read_numbers(&channel), [libc::SIGTERM]);
                drop(channel);
            });
        },
    );
}

#[test]
fn nothing_that_a_child_does_disturbs_the_parent() {
    alone("nothing_that_a_child_does_disturbs_the_parent", || {
        let mut channel = watching(&[USR1, USR2]);
        raise(USR2);
        let number = channel.as_fd().as_raw_fd();
        let reference = &mut channel;
        in_fork(move || {
            raise(USR1);
            reference.reinit().expect("reinit");
            reference.unwatch(USR1).expect("unwatch");
            reference.unwatch(USR2).expect("unwatch");
            assert_eq!(disposition_of(USR1).0, libc::SIG_DFL);
        });
        let got = read(&channel);
        assert_eq!(
            got.iter().map(|info| info.signo).collect::<Vec<_>>(),
            [USR2]
        );
        assert_eq!(got[0].pid, process_id());
        raise(USR1);
        assert_eq!(read_numbers(&channel), [USR1]);
        channel
            .reinit()
            .expect("no new pipe in the process that has one");
        assert_eq!(channel.as_fd().as_raw_fd(), number);
    });
}

#[test]
fn a_pending_signal_of_the_parent_is_not_replayed_in_the_child() {
    alone(
        "a_pending_signal_of_the_parent_is_not_replayed_in_the_child",
        || {
            let mut channel = watching(&[USR1, USR2]);
            for _ in 0..5000 {
                raise(USR1);
            }
            raise(USR2);
            let reference = &mut channel;
            in_fork(move || {
                reference.reinit().expect("reinit");
                assert_eq!(read_numbers(reference), []);
            });
            assert!(read_numbers(&channel).contains(&USR2));
        },
    );
}

#[test]
fn signals_sent_to_parent_and_child_do_not_mix() {
    alone("signals_sent_to_parent_and_child_do_not_mix", || {
        let mut channel = watching(&[USR1]);
        let (mut ready, mut tell_ready) = io::pipe().expect("pipe");
        let (mut go, mut tell_go) = io::pipe().expect("pipe");
        let parent = rustix::process::getpid();
        let reference = &mut channel;
        in_fork(move || {
            reference.reinit().expect("reinit");
            // To the parent first: it must not show up here.
            rustix::process::kill_process(parent, Signal::USR1).expect("kill");
            tell_ready.write_all(b"r").expect("tell");
            tell_go.write_all(b"g").expect("tell");
            go.read_exact(&mut [0]).expect("wait");
            assert!(!is_readable(reference));
            raise(USR1);
            assert_eq!(read_numbers(reference), [USR1]);
        });
        ready.read_exact(&mut [0]).expect("wait");
        wait_until_readable(&channel);
        let got = read(&channel);
        assert_eq!(got.len(), 1);
        assert_ne!(got[0].pid, process_id());
    });
}

/// A handler that looked up the pipe's number must not write to what has that number later.
#[test]
fn a_closing_channel_writes_to_no_other_file() {
    alone("a_closing_channel_writes_to_no_other_file", || {
        let keeper = watching(&[USR1]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        raise(USR1);
                    }
                });
            }
            for _ in 0..3000 {
                drop(watching(&[USR1]));
                let reused: Vec<_> = (0..2).map(|_| open_pipe().expect("pipe")).collect();
                for (reader, _writer) in &reused {
                    let got = rustix::io::read(reader, &mut [0; 64]);
                    assert_eq!(
                        got,
                        Err(rustix::io::Errno::AGAIN),
                        "a record in a foreign pipe"
                    );
                }
                read(&keeper);
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn errors_say_what_was_tried() {
    let error = SignalError::Uncatchable { signo: 9 };
    assert_eq!(error.to_string(), "watch signal 9, which cannot be caught");
    let error = SignalError::System {
        source: io::Error::from_raw_os_error(libc::EMFILE),
    };
    assert!(error.source().is_some());
    assert_eq!(io::Error::from(error).raw_os_error(), Some(libc::EMFILE));
}
