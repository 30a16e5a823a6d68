//! Event dispatch: `disp -n pipes -a active -w writes -r runs [--level] [--anew] [--checked]`.
//!
//! Each handler reads one byte and writes one to the next pipe. Prints `ns_per_event` and
//! `ns_per_register` (one deregistration and one registration). Edge-triggered unless `--level`.
//! A registration is taken back and made again by disabling and enabling its event, as other
//! loops do it with an event that stays allocated; with `--anew` the event is removed and watched
//! anew. The check of handlers that run too long is off unless `--checked`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;

use windlass::Disposition::Keep;
use windlass::event_loop::{EventLoop, IoOptions, LoopConfig};
use windlass::{EventId, Trigger};
use windlass_bench::{arg_flag, arg_num, median, ns_each};
use windlass_sys::clock::monotonic_ns;
use windlass_sys::fd;

struct Ring {
    writers: Vec<PipeWriter>,
    left: u64,
    seen: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    // Two descriptors a pipe; without them pipe() below says so.
    let _ = windlass_sys::limits::raise_descriptor_limit(65_536);
    let count = arg_num("-n", 1000);
    let active = arg_num("-a", 100).min(count);
    let (writes, runs) = (arg_num("-w", 100_000), arg_num("-r", 9));
    let trigger = if arg_flag("--level") {
        Trigger::Level
    } else {
        Trigger::Edge
    };
    let mut ring = Ring {
        writers: Vec::new(),
        left: 0,
        seen: 0,
    };
    let mut readers = Vec::new();
    for _ in 0..count {
        let (reader, writer) = pipe()?;
        fd::set_blocking(reader.as_fd(), fd::Blocking::Nonblocking)?;
        readers.push(reader);
        ring.writers.push(writer);
    }
    let mut config = LoopConfig::default();
    if !arg_flag("--checked") {
        // The other loops have no such check.
        config.slow_handler_limit = None;
    }
    let mut event_loop = EventLoop::<Ring>::with_config(config)?;
    let mut events = Vec::new();
    for (at, reader) in readers.iter().enumerate() {
        events.push(add(&mut event_loop, at, reader, trigger)?);
    }
    let (mut per_event, mut per_register) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let start = monotonic_ns();
        for (at, event) in events.iter_mut().enumerate() {
            if arg_flag_anew() {
                event_loop.remove(*event);
                *event = add(&mut event_loop, at, &readers[at], trigger)?;
            } else {
                event_loop.disable(*event)?;
                event_loop.enable(*event)?;
            }
        }
        event_loop.run_nonblocking(&mut ring)?;
        per_register.push(ns_each(start, count));
        (ring.left, ring.seen) = (writes, 0);
        for at in 0..active {
            fd::write(ring.writers[(at * count / active) as usize].as_fd(), b"e")?;
        }
        let start = monotonic_ns();
        while ring.seen < writes + active {
            event_loop.run_nonblocking(&mut ring)?;
        }
        per_event.push(ns_each(start, writes + active));
    }
    println!("ns_per_event: {:.1}", median(&mut per_event));
    println!("ns_per_register: {:.1}", median(&mut per_register));
    Ok(())
}

fn arg_flag_anew() -> bool {
    use std::sync::LazyLock;
    static ANEW: LazyLock<bool> = LazyLock::new(|| arg_flag("--anew"));
    *ANEW
}

fn add<'l>(
    event_loop: &mut EventLoop<'l, Ring>,
    at: usize,
    reader: &'l PipeReader,
    trigger: Trigger,
) -> Result<EventId, Box<dyn Error>> {
    let options = IoOptions {
        trigger,
        ..IoOptions::default()
    };
    Ok(
        event_loop.watch(reader, options, move |ring: &mut Ring, _, reader, _| {
            let mut byte = [0];
            if matches!(fd::read(reader.as_fd(), &mut byte), Ok(Some(1))) {
                ring.seen += 1;
            }
            if ring.left > 0 {
                ring.left -= 1;
                let next = if at + 1 == ring.writers.len() {
                    0
                } else {
                    at + 1
                };
                // A pipe that holds a few bytes takes one more.
                let _ = fd::write(ring.writers[next].as_fd(), b"e");
            }
            Keep
        })?,
    )
}
