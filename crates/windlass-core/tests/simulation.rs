//! Whole loops in simulated time, against a plain model: thousands of random schedules.
//!
//! Every call goes to the engine and to the model; after every step both must agree on every
//! event, on the order and the content of every call, and on how long the driver may wait.
//! `WINDLASS_SEED=n` replays one seed and prints what it does; `WINDLASS_SEEDS=n` sets how many are
//! run. A seed that fails goes to `simulation_seeds.txt` and is run ever after.

#![expect(
    clippy::unwrap_used,
    reason = "what is missing in the model fails the test"
)]
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a seed is replayed aloud"
)]

#[path = "simulation/check.rs"]
mod check;
#[path = "simulation/model.rs"]
mod model;
#[path = "simulation/program.rs"]
mod program;
#[path = "simulation/world.rs"]
mod world;

use world::{Random, World};

const SEEDS: u64 = 20_000;
const TURNS_MAX: u64 = 50;

fn run(seed: u64, verbose: bool) -> (u64, u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, verbose, &mut random);
    let turns = 5 + random.below(TURNS_MAX);
    for _ in 0..turns {
        world.turn(&mut random);
    }
    world.quiesce();
    (world.calls(), turns)
}

#[test]
fn engine_equals_the_plain_model() {
    if let Ok(seed) = std::env::var("WINDLASS_SEED") {
        let seed = seed.parse().expect("WINDLASS_SEED is a number");
        let (calls, turns) = run(seed, true);
        println!("seed {seed}: {turns} turns, {calls} calls");
        return;
    }
    let seeds = std::env::var("WINDLASS_SEEDS").map_or(SEEDS, |count| {
        count.parse().expect("WINDLASS_SEEDS is a number")
    });
    let calls = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || {
                let seeds = (0..seeds).filter(|seed| seed % 2 == half);
                seeds.map(|seed| run(seed, false).0).sum::<u64>()
            })
        });
        halves
            .map(|half| half.join().expect("a seed failed, see above"))
            .iter()
            .sum::<u64>()
    });
    // A schedule that calls nobody tests nothing.
    assert!(calls > 10 * seeds, "{calls} calls in {seeds} seeds");
}

#[test]
fn seeds_that_failed_once_pass() {
    for line in include_str!("simulation_seeds.txt").lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            run(line.parse().expect("a seed is a number"), false);
        }
    }
}
