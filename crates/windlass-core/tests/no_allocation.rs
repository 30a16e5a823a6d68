//! The hot path allocates nothing once the tables have grown. One test, alone in its process: the
//! allocator counts for all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use windlass_core::sim::SimDemultiplexer;
use windlass_core::*;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const HANDLES: i32 = 64;
const TIMERS: u64 = 100;

#[test]
fn events_and_timers_in_steady_state_allocate_nothing() {
    let (mut demultiplexer, control) = SimDemultiplexer::new();
    let mut engine = Engine::new(EngineConfig {
        priorities: 2,
        ..EngineConfig::default()
    });
    let common = engine.common_timeout(Duration::from_millis(30)).unwrap();
    for raw in 0..HANDLES {
        let (interest, trigger) = (Interest::READ, Trigger::Level);
        // Half of them have an idle timeout, which each call starts anew.
        let timeout = (raw % 2 == 0).then_some(Timeout::Common(common));
        let source = Source::Handle {
            raw,
            interest,
            trigger,
        };
        let spec = EventSpec {
            timeout,
            ..EventSpec::new(source)
        };
        let id = engine.insert(spec, ()).unwrap();
        engine.enable(id, control.now()).unwrap();
        control.set_ready(raw, Readiness::READ);
    }
    for timer in 0..TIMERS {
        let timeout = Some(Timeout::After(Duration::from_micros(900 + timer * 37)));
        let spec = EventSpec {
            timeout,
            priority: 1,
            ..EventSpec::new(Source::Timer)
        };
        let id = engine.insert(spec, ()).unwrap();
        engine.enable(id, control.now()).unwrap();
    }
    let (mut batch, mut changes) = (Batch::new(), Vec::new());
    let mut turns = |engine: &mut Engine<()>, count: u64| {
        let before = *engine.counters();
        while engine.counters().dispatched - before.dispatched < count {
            let Step::Wait(plan) = engine.prepare() else {
                panic!("a loop with events goes on")
            };
            engine.take_changes(&mut changes);
            changes
                .drain(..)
                .for_each(|change| demultiplexer.apply(&change).unwrap());
            // Every other turn only timers: less urgent than the handles, they would starve.
            let ready = engine.counters().turns.is_multiple_of(2);
            control.pass(Duration::from_micros(250));
            if ready {
                demultiplexer
                    .demultiplex(&mut batch, Some(Duration::ZERO))
                    .unwrap();
            }
            let mut turn = engine.activate(plan.waited(), &mut batch, control.now());
            while let Some(Call {
                token, payload: (), ..
            }) = engine.dispatch(&mut turn, control.now())
            {
                let Settled::Kept = engine.settle(token, (), Disposition::Keep, control.now())
                else {
                    panic!("it answered keep");
                };
            }
            assert_eq!(engine.finish(turn), TurnEnd::Again);
        }
        engine.counters().expired - before.expired
    };
    // Until each table has grown: timers of 0.9 to 4.6 ms have met every bucket.
    turns(&mut engine, 500_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let expired = turns(&mut engine, 100_000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(expired > 5_000, "only {expired} timers");
    assert_eq!(allocations, 0, "100000 calls, {expired} of them of timers");
}
