//! Timers: `timer -t timers -r rearms`.
//!
//! Inserts all (due in 1 to 10 s), re-arms random ones, cancels all in random order; then arms all
//! for the next 100 ms, waits until they are due, and fires them. Prints nanoseconds of each.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::error::Error;
use std::time::Duration;

use windlass::Disposition::Keep;
use windlass::EventId;
use windlass::event_loop::EventLoop;
use windlass_bench::{Random, arg_num};
use windlass_sys::clock::monotonic_ns;

fn main() -> Result<(), Box<dyn Error>> {
    let count = arg_num("-t", 100_000);
    let rearms = arg_num("-r", 3);
    let rounds = if count < 200_000 { 200_000 / count } else { 1 };
    let mut random = Random::default();
    let mut order: Vec<usize> = (0..count as usize).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, (random.next_number() % (at as u64 + 1)) as usize);
    }
    let mut event_loop = EventLoop::<u64>::new()?;
    let mut timers: Vec<EventId> = Vec::new();
    for _ in 0..count {
        timers.push(event_loop.timer(|fired: &mut u64, _| {
            *fired += 1;
            Keep
        })?);
    }
    let mut far = {
        let mut random = Random::default();
        move || Duration::from_micros(1_000_000 + random.next_number() % 9_000_000)
    };
    let (mut insert, mut rearm, mut cancel, mut fire) = (0, 0, 0, 0);
    for _ in 0..rounds {
        let now = event_loop.fresh_now();
        let start = monotonic_ns();
        for &timer in &timers {
            event_loop.arm_at(timer, now + far())?;
        }
        insert += monotonic_ns() - start;
        let start = monotonic_ns();
        for _ in 0..count * rearms {
            let at = (random.next_number() % count) as usize;
            event_loop.arm_at(timers[at], now + far())?;
        }
        rearm += monotonic_ns() - start;
        let start = monotonic_ns();
        for &at in &order {
            event_loop.disarm(timers[at])?;
        }
        cancel += monotonic_ns() - start;
    }
    let fire_rounds = if count < 50_000 { 3 } else { 1 };
    for _ in 0..fire_rounds {
        let mut fired = 0;
        let now = event_loop.fresh_now();
        for &timer in &timers {
            let deadline = now + Duration::from_micros(random.next_number() % 100_000);
            event_loop.arm_at(timer, deadline)?;
        }
        let until = monotonic_ns() + 130_000_000;
        while monotonic_ns() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = monotonic_ns();
        while fired < count {
            event_loop.run_nonblocking(&mut fired)?;
        }
        fire += monotonic_ns() - start;
    }
    let each = |ns: u64, n: u64| ns as f64 / n as f64;
    println!("ns_per_insert: {:.1}", each(insert, count * rounds));
    println!("ns_per_rearm: {:.1}", each(rearm, count * rearms * rounds));
    println!("ns_per_cancel: {:.1}", each(cancel, count * rounds));
    println!("ns_per_fire: {:.1}", each(fire, count * fire_rounds));
    Ok(())
}
