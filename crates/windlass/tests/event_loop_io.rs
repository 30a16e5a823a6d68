//! I/O events of the loop, over each back end: what a handler is told of its handle, and when.

#[path = "common/loops.rs"]
mod common;

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use common::{config, drain, on_each_backend, open, pipe, readable_pipe};
use windlass::Disposition::{self, Disable, Keep, Rearm, Remove};
use windlass::demultiplexer::Backend;
use windlass::event_loop::{Context, EventLoop, IoOptions};
use windlass::{Interest, Lifetime, Readiness, StopReason, Timeout, Trigger};

on_each_backend! {
    a_borrowed_source_outlives_the_loop
    a_disabled_handle_is_silent_until_enabled
    a_hang_up_is_told_to_readers_and_writers
    a_level_is_told_again_while_data_is_left
    a_one_shot_event_runs_once_per_enabling
    a_peer_that_closes_its_side_is_told_or_refused
    a_readers_timeout_restarts_with_each_report
    a_regular_file_and_dev_null_are_always_ready
    a_shared_source_is_open_until_its_last_event_is_gone
    an_edge_is_told_once_or_refused
    an_error_is_told_to_a_writer
    interest_can_be_changed_from_inside_the_handler
    reader_and_writer_of_one_handle_each_get_their_own
    rearm_watches_a_one_shot_handle_again
    state_reaches_each_handler_without_a_cell
}

fn a_level_is_told_again_while_data_is_left(backend: Backend) {
    let mut event_loop = open::<Vec<u8>>(backend);
    let (reader, mut writer) = pipe();
    writer.write_all(b"abc").expect("write");
    event_loop
        .on_readable(reader, |bytes, cx, mut reader| {
            let mut one = [0];
            reader.read_exact(&mut one).expect("read");
            bytes.push(one[0]);
            if bytes.len() == 3 {
                cx.stop();
            }
            Keep
        })
        .expect("register");
    let mut bytes = Vec::new();
    assert_eq!(event_loop.run(&mut bytes).expect("run"), StopReason::Exit);
    assert_eq!(bytes, b"abc");
}

fn an_edge_is_told_once_or_refused(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, mut writer) = pipe();
    let options = IoOptions {
        trigger: Trigger::Edge,
        ..IoOptions::default()
    };
    let registered = event_loop.watch(reader, options, |calls, _, _, _| {
        *calls += 1;
        Keep
    });
    if !event_loop.features().edge_triggered {
        let error = registered.expect_err("refused");
        assert!(error.to_string().contains(backend.name()), "{error}");
        return;
    }
    registered.expect("register");
    let mut calls = 0;
    for expected in 1..=3 {
        writer.write_all(b"x").expect("write");
        // Nothing is read, so that a level would be reported again and again.
        for _ in 0..3 {
            event_loop.run_nonblocking(&mut calls).expect("run");
        }
        assert_eq!(calls, expected);
    }
}

fn a_one_shot_event_runs_once_per_enabling(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, _writer) = readable_pipe();
    let options = IoOptions {
        lifetime: Lifetime::OneShot,
        ..IoOptions::default()
    };
    let event = event_loop
        .watch(reader, options, |calls, _, _, _| {
            *calls += 1;
            Keep
        })
        .expect("register");
    let mut calls = 0;
    for expected in 1..=3 {
        let reason = event_loop.run(&mut calls).expect("run");
        assert_eq!((reason, calls), (StopReason::Empty, expected));
        event_loop.enable(event).expect("enable");
    }
}

fn rearm_watches_a_one_shot_handle_again(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, _writer) = readable_pipe();
    let options = IoOptions {
        lifetime: Lifetime::OneShot,
        ..IoOptions::default()
    };
    event_loop
        .watch(reader, options, |calls: &mut u32, _, _, _| {
            *calls += 1;
            if *calls < 3 { Rearm } else { Keep }
        })
        .expect("register");
    let mut calls = 0;
    event_loop.run(&mut calls).expect("run");
    assert_eq!(calls, 3);
}

fn reader_and_writer_of_one_handle_each_get_their_own(backend: Backend) {
    let (near, mut far) = UnixStream::pair().expect("socket pair");
    let near = Rc::new(near);
    let mut event_loop = open::<Vec<&'static str>>(backend);
    let reader = event_loop
        .on_readable(Rc::clone(&near), |seen: &mut Vec<_>, cx, near| {
            assert_eq!((&**near).read(&mut [0; 8]).expect("read"), 1);
            seen.push("read");
            if seen.len() > 3 {
                cx.stop();
            }
            Keep
        })
        .expect("reader");
    let writer = event_loop
        .watch(
            Rc::clone(&near),
            IoOptions {
                interest: Interest::WRITE,
                ..IoOptions::default()
            },
            |seen, _, _, happened| {
                assert_eq!(happened.readiness, Readiness::WRITE);
                seen.push("write");
                Disable
            },
        )
        .expect("writer");
    let mut seen = Vec::new();
    event_loop.run_once(&mut seen).expect("run");
    assert_eq!(seen, ["write"], "nothing was to read");
    far.write_all(b"x").expect("write");
    event_loop.run_once(&mut seen).expect("run");
    assert_eq!(seen, ["write", "read"], "the writer is disabled");
    event_loop.enable(writer).expect("enable");
    event_loop.disable(reader).expect("disable");
    far.write_all(b"y").expect("write");
    event_loop.run(&mut seen).expect("run");
    assert_eq!(seen, ["write", "read", "write"]);
    event_loop.enable(reader).expect("enable");
    let reason = event_loop.run(&mut seen).expect("run");
    assert_eq!((reason, seen.len()), (StopReason::Exit, 4));
}

fn a_shared_source_is_open_until_its_last_event_is_gone(backend: Backend) {
    let (reader, mut writer) = readable_pipe();
    let reader = Rc::new(reader);
    let mut event_loop = open::<u32>(backend);
    fn count(calls: &mut u32, _: &mut Context<'_, '_, u32>, _: &Rc<PipeReader>) -> Disposition {
        *calls += 1;
        Keep
    }
    let first = event_loop
        .on_readable(Rc::clone(&reader), count)
        .expect("first");
    let second = event_loop.on_readable(reader, count).expect("second");
    let mut calls = 0;
    event_loop.run_once(&mut calls).expect("run");
    assert_eq!(calls, 2, "both are told");
    assert!(event_loop.remove(first));
    event_loop.run_once(&mut calls).expect("run");
    assert_eq!(calls, 3, "the other one goes on");
    assert!(event_loop.remove(second) && !event_loop.remove(second));
    let error = writer.write(b"x").expect_err("nobody reads");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

fn a_disabled_handle_is_silent_until_enabled(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (reader, _writer) = readable_pipe();
    let event = event_loop
        .on_readable(reader, |calls, _, _| {
            *calls += 1;
            Keep
        })
        .expect("register");
    let mut calls = 0;
    event_loop.disable(event).expect("disable");
    event_loop.run_nonblocking(&mut calls).expect("run");
    assert_eq!(calls, 0);
    event_loop.enable(event).expect("enable");
    event_loop.run_once(&mut calls).expect("run");
    assert_eq!(calls, 1);
    // Active already, then disabled: what was collected is taken back.
    event_loop.activate(event, 1).expect("activate");
    event_loop.disable(event).expect("disable");
    event_loop.run_nonblocking(&mut calls).expect("run");
    assert_eq!(calls, 1);
}

fn a_hang_up_is_told_to_readers_and_writers(backend: Backend) {
    let mut event_loop = open::<(u32, u32)>(backend);
    let (reader, writer) = pipe();
    drop(writer);
    event_loop
        .on_readable(reader, |(ends, _), _, mut reader| {
            assert_eq!(reader.read(&mut [0; 8]).expect("read"), 0);
            *ends += 1;
            Remove
        })
        .expect("reader");
    let (near, far) = UnixStream::pair().expect("socket pair");
    drop(far);
    event_loop
        .on_writable(near, |(_, errors), _, mut near| {
            near.write_all(b"x").expect_err("nobody reads");
            *errors += 1;
            Remove
        })
        .expect("writer");
    let mut seen = (0, 0);
    let reason = event_loop.run(&mut seen).expect("run");
    assert_eq!((reason, seen), (StopReason::Empty, (1, 1)));
}

fn an_error_is_told_to_a_writer(backend: Backend) {
    let mut event_loop = open::<Option<Readiness>>(backend);
    let (reader, writer) = pipe();
    drop(reader);
    let options = IoOptions {
        interest: Interest::WRITE,
        ..IoOptions::default()
    };
    event_loop
        .watch(writer, options, |told, _, _, happened| {
            *told = Some(happened.readiness);
            Remove
        })
        .expect("register");
    let mut told = None;
    event_loop.run(&mut told).expect("run");
    let told = told.expect("called");
    assert!(told.contains(Readiness::WRITE), "{told:?}");
    if backend != Backend::Select {
        assert!(told.contains(Readiness::ERROR), "{told:?}");
    }
}

fn a_peer_that_closes_its_side_is_told_or_refused(backend: Backend) {
    let mut event_loop = open::<u32>(backend);
    let (near, far) = UnixStream::pair().expect("socket pair");
    let near = Rc::new(near);
    let reader = event_loop
        .on_readable(Rc::clone(&near), |_, _, near| {
            drain(&**near);
            Disable
        })
        .expect("reader");
    let options = IoOptions {
        interest: Interest::PEER_CLOSED,
        label: Some("half-close".into()),
        ..IoOptions::default()
    };
    let registered = event_loop.watch(near, options, |closed, cx, _, happened| {
        assert_eq!(happened.readiness, Readiness::PEER_CLOSED);
        *closed += 1;
        cx.stop();
        Remove
    });
    let mut closed = 0;
    if event_loop.features().early_close {
        registered.expect("register");
        event_loop.disable(reader).expect("disable");
        far.shutdown(Shutdown::Write).expect("shutdown");
        event_loop.run(&mut closed).expect("run");
        assert_eq!(closed, 1);
    } else {
        registered.expect_err("refused");
        assert_eq!(event_loop.counters().inserted, 1, "the reader alone");
        far.shutdown(Shutdown::Write).expect("shutdown");
        event_loop
            .run_once(&mut closed)
            .expect("the reader is well");
    }
}

fn a_regular_file_and_dev_null_are_always_ready(backend: Backend) {
    let path = std::env::temp_dir().join(format!(
        "windlass-io-{}-{}",
        std::process::id(),
        backend.name()
    ));
    std::fs::write(&path, b"content").expect("write");
    let mut event_loop = open::<Vec<usize>>(backend);
    for file in [
        File::open(&path).expect("open"),
        File::open("/dev/null").expect("open"),
    ] {
        event_loop
            .on_readable(file, |counts, _, mut file| {
                let count = file.read(&mut [0; 64]).expect("read");
                counts.push(count);
                if count == 0 { Remove } else { Keep }
            })
            .expect("register");
    }
    let null = File::create("/dev/null").expect("open");
    event_loop
        .on_writable(null, |_, _, mut null| {
            null.write_all(b"x").expect("write");
            Remove
        })
        .expect("register");
    let mut counts = Vec::new();
    let reason = event_loop.run(&mut counts).expect("run");
    counts.sort_unstable();
    assert_eq!((reason, &counts[..]), (StopReason::Empty, &[0, 0, 7][..]));
    std::fs::remove_file(&path).expect("remove");
}

fn a_readers_timeout_restarts_with_each_report(backend: Backend) {
    let mut event_loop = open::<Vec<&'static str>>(backend);
    let (reader, mut writer) = readable_pipe();
    let options = IoOptions {
        timeout: Some(Timeout::After(Duration::from_millis(30))),
        ..IoOptions::default()
    };
    let event = event_loop
        .watch(reader, options, |told, cx, reader, happened| {
            if happened.timed_out {
                assert!(happened.readiness.is_none());
                told.push("timeout");
                cx.stop();
            } else {
                drain(reader);
                told.push("read");
            }
            Keep
        })
        .expect("register");
    let mut told = Vec::new();
    let first = event_loop.deadline(event).expect("armed");
    event_loop.run_once(&mut told).expect("run");
    let second = event_loop.deadline(event).expect("armed");
    assert!(second > first, "the report restarted it");
    event_loop.run(&mut told).expect("run");
    assert_eq!(told, ["read", "timeout"]);
    assert!(event_loop.fresh_now() >= second);
    // It is persistent: the timeout runs again, and so does the reader.
    writer.write_all(b"x").expect("write");
    event_loop.run(&mut told).expect("run");
    assert_eq!(told, ["read", "timeout", "read", "timeout"]);
}

fn interest_can_be_changed_from_inside_the_handler(backend: Backend) {
    let (near, mut far) = UnixStream::pair().expect("socket pair");
    let mut event_loop = open::<Vec<Readiness>>(backend);
    let options = IoOptions {
        interest: Interest::WRITE,
        ..IoOptions::default()
    };
    event_loop
        .watch(near, options, |told, cx, _, happened| {
            told.push(happened.readiness);
            let next = if happened.readiness.contains(Readiness::WRITE) {
                Interest::READ
            } else {
                cx.stop();
                Interest::NONE
            };
            let event = cx.event();
            cx.set_interest(event, next).expect("it is this one");
            Keep
        })
        .expect("register");
    let mut told = Vec::new();
    event_loop.run_once(&mut told).expect("run");
    far.write_all(b"x").expect("write");
    event_loop.run(&mut told).expect("run");
    event_loop.run_nonblocking(&mut told).expect("run");
    assert_eq!(told, [Readiness::WRITE, Readiness::READ]);
}

fn a_borrowed_source_outlives_the_loop(backend: Backend) {
    let (reader, writer) = readable_pipe();
    let text = String::from("borrowed");
    {
        let mut event_loop: EventLoop<'_, Vec<&str>> =
            EventLoop::with_config(config(backend)).expect("open");
        event_loop
            .on_readable(&reader, |seen, _, reader: &&PipeReader| {
                assert_eq!(drain(*reader), b"x");
                seen.push(text.as_str());
                Remove
            })
            .expect("register");
        let mut seen = Vec::new();
        event_loop.run(&mut seen).expect("run");
        assert_eq!(seen, ["borrowed"]);
    }
    drop::<(PipeReader, PipeWriter)>((reader, writer));
}

fn state_reaches_each_handler_without_a_cell(backend: Backend) {
    #[derive(Default)]
    struct App {
        log: Vec<String>,
    }
    fn note(app: &mut App, what: &str) -> Disposition {
        app.log.push(what.into());
        Remove
    }
    let mut event_loop = open::<App>(backend);
    let (reader, _writer) = readable_pipe();
    event_loop
        .on_readable(reader, |app, _, _| note(app, "reader"))
        .expect("register");
    event_loop
        .every(Duration::from_millis(1), |app, _| note(app, "timer"))
        .expect("register");
    event_loop
        .defer(|app, _| app.log.push("deferred".into()))
        .expect("register");
    let mut app = App::default();
    event_loop.run(&mut app).expect("run");
    app.log.sort();
    assert_eq!(app.log, ["deferred", "reader", "timer"]);
}
