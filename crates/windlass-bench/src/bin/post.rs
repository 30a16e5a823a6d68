//! Cross-thread posts: `post -m messages [--latency]`.
//!
//! A second thread posts closures that add their argument to a sum in the loop's thread. Prints
//! `ns_per_post`, or with `--latency` (one at a time, the loop asleep in between) `ns_per_wake`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use windlass::event_loop::{EventLoop, Poster};
use windlass_bench::{arg_flag, arg_num, median, ns_each};
use windlass_sys::clock::monotonic_ns;

static HANDLED: AtomicU64 = AtomicU64::new(0);
static GO: AtomicBool = AtomicBool::new(false);

fn main() -> Result<(), Box<dyn Error>> {
    let latency = arg_flag("--latency");
    let count = arg_num("-m", if latency { 20_000 } else { 1_000_000 });
    let mut event_loop = EventLoop::<u64>::new()?;
    // The loop must not be empty while it waits for posts.
    event_loop.hold();
    let poster = event_loop.poster();
    pin(0);
    let producer = thread::spawn(move || produce(&poster, count, latency));
    thread::sleep(Duration::from_millis(20));
    let mut sum = 0;
    let start = monotonic_ns();
    GO.store(true, Ordering::SeqCst);
    while HANDLED.load(Ordering::Relaxed) < count {
        event_loop.run_once(&mut sum)?;
    }
    let per_post = ns_each(start, count);
    let mut delays = producer.join().map_err(|_| "the producer panicked")?;
    if sum != count * (count - 1) / 2 {
        return Err("messages lost".into());
    }
    if latency {
        println!("ns_per_wake: {:.0}", median(&mut delays));
    } else {
        println!("ns_per_post: {per_post:.1}");
    }
    Ok(())
}

fn produce(poster: &Poster<'static, u64>, count: u64, latency: bool) -> Vec<f64> {
    pin(1);
    while !GO.load(Ordering::SeqCst) {
        spin_loop();
    }
    let mut delays = Vec::with_capacity(count as usize);
    for number in 0..count {
        let start = if latency { monotonic_ns() } else { 0 };
        let posted = poster.post(move |sum: &mut u64, _| {
            *sum += number;
            HANDLED.store(HANDLED.load(Ordering::Relaxed) + 1, Ordering::Release);
        });
        if posted.is_err() || !latency {
            continue;
        }
        while HANDLED.load(Ordering::Acquire) <= number {
            spin_loop();
        }
        let end = monotonic_ns();
        delays.push((end - start) as f64);
        // Lets the loop fall asleep again.
        while monotonic_ns() < end + 20_000 {
            spin_loop();
        }
    }
    delays
}

/// Keeps this thread on one CPU; with a single one it stays where it is.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}
