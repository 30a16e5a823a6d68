//! A worker pool beside the loop: what computes or blocks goes to threads, its result comes back
//! as an event, and the loop ticks on meanwhile.
//!
//! Try it: `cargo run --example worker_pool`. It ends by itself when all results are there.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::time::Duration;

use windlass::Disposition::{Keep, Remove};
use windlass::event_loop::EventLoop;
use windlass::pool::{Outcome, PoolConfig, WorkerPool};

const JOBS: u64 = 8;

#[derive(Default)]
struct App {
    ticks: u32,
    results: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = WorkerPool::new(PoolConfig::default())?;
    let mut event_loop = EventLoop::<App>::new()?;
    for job in 1..=JOBS {
        let limit = job * 50_000;
        event_loop.submit(
            &pool,
            move || primes_below(limit),
            move |app: &mut App, _, outcome| {
                app.results += 1;
                match outcome {
                    Outcome::Done(count) => println!("{count} primes below {limit}"),
                    other => println!("primes below {limit}: {other:?}"),
                }
            },
        )?;
    }
    event_loop.every(Duration::from_millis(10), |app, _| {
        app.ticks += 1;
        if app.results < JOBS { Keep } else { Remove }
    })?;
    let mut app = App::default();
    // Ends when neither a job nor the timer is left.
    event_loop.run(&mut app)?;
    println!("{} results; the loop ticked on meanwhile", app.results);
    Ok(())
}

/// Slowly, on purpose.
fn primes_below(limit: u64) -> usize {
    let is_prime = |&number: &u64| {
        (2..)
            .take_while(|d| d * d <= number)
            .all(|d| number % d != 0)
    };
    (2..limit).filter(is_prime).count()
}
