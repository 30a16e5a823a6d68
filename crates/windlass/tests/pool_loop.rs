//! The worker pool, as loops see it: results come back as events.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "common/pools.rs"]
mod common;

use std::cell::Cell;
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{STUCK, block, pool};
use windlass::Disposition::{Keep, Remove};
use windlass::StopReason;
use windlass::event_loop::{EventLoop, LoopConfig, PanicPolicy};
use windlass::pool::{Cancel, Drain, JobHandle, Outcome, SubmitErrorKind, WorkerPool};
use windlass::session::Job;

#[derive(Default)]
struct App {
    log: Vec<u32>,
    handles: Vec<JobHandle>,
}

#[test]
fn result_comes_back_to_the_loop_which_waits_for_it() {
    let pool = pool(1, 8);
    let here = thread::current().id();
    // Borrowed and not `Send`, which is fine for the completion.
    let (told, shared) = (Cell::new(None), Rc::new(()));
    let mut app = App::default();
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let job = || thread::current().id();
    event_loop
        .submit(&pool, job, |app: &mut App, _cx, outcome| {
            drop(shared);
            told.set(outcome.done());
            assert_eq!(thread::current().id(), here);
            app.log.push(1);
        })
        .unwrap();

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert_eq!(app.log, [1]);
    assert!(told.get().is_some_and(|id| id != here));
    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);
}

#[test]
fn job_may_be_submitted_from_the_completion_of_another() {
    fn again(app: &mut App, cx: &mut windlass::event_loop::Context<'_, '_, App>, pool: WorkerPool) {
        let length = app.log.len() as u32;
        app.log.push(length);
        if length < 100 {
            let next = pool.clone();
            cx.submit(
                &pool,
                || (),
                move |app: &mut App, cx, _| again(app, cx, next),
            )
            .unwrap();
        }
    }
    let pool = pool(2, 8);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    event_loop
        .defer(move |app: &mut App, cx| again(app, cx, pool))
        .unwrap();
    let mut app = App::default();

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert!(app.log.into_iter().eq(0..=100));
}

#[test]
fn ten_thousand_jobs_are_all_reported_to_the_loop() {
    const JOBS: usize = 10_000;
    let pool = pool(4, JOBS);
    let mut event_loop = EventLoop::<Vec<bool>>::new().unwrap();
    for number in 0..JOBS {
        event_loop
            .submit(
                &pool,
                move || number,
                move |seen: &mut Vec<bool>, _cx, outcome| {
                    assert!(matches!(outcome, Outcome::Done(same) if same == number));
                    assert!(!std::mem::replace(&mut seen[number], true));
                },
            )
            .unwrap();
    }
    let mut seen = vec![false; JOBS];

    assert_eq!(event_loop.run(&mut seen).unwrap(), StopReason::Empty);

    assert!(seen.into_iter().all(|seen| seen));
}

#[test]
fn completions_run_by_priority_then_in_order_of_their_jobs_ends() {
    let pool = pool(1, 8);
    let mut config = LoopConfig::default();
    config.engine.priorities = 2;
    let mut event_loop = EventLoop::<App>::with_config(config).unwrap();
    for (number, priority) in [(0, 1), (1, 0), (2, 1), (3, 0)] {
        let (event, _) = event_loop
            .submit(
                &pool,
                || (),
                move |app: &mut App, _cx, _| app.log.push(number),
            )
            .unwrap();
        event_loop.set_priority(event, priority).unwrap();
    }
    // All have reported before the loop looks.
    assert_eq!(pool.shutdown_with(Drain::Run, STUCK).cancelled, 0);
    let mut app = App::default();

    event_loop.run(&mut app).unwrap();

    assert_eq!(app.log, [1, 3, 0, 2]);
}

#[test]
fn handler_cancels_a_queued_and_a_running_job_and_the_loop_ends() {
    let pool = pool(1, 8);
    let (_gate, closed) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let mut app = App::default();
    let job = move || {
        started.send(()).unwrap();
        let _ = closed.recv();
    };
    let (_, first) = event_loop
        .submit(&pool, job, |app: &mut App, _cx, outcome| {
            assert!(matches!(outcome, Outcome::Cancelled));
            app.log.push(1);
        })
        .unwrap();
    let (_, second) = event_loop
        .submit(
            &pool,
            || panic!("a cancelled job ran"),
            |app: &mut App, _cx, outcome: Outcome<()>| {
                assert!(matches!(outcome, Outcome::Cancelled));
                app.log.push(2);
            },
        )
        .unwrap();
    app.handles = vec![first, second];
    event_loop
        .defer(move |app: &mut App, _cx| {
            running.recv_timeout(STUCK).unwrap();
            assert_eq!(app.handles[0].cancel(), Cancel::Running);
            assert_eq!(app.handles[1].cancel(), Cancel::Prevented);
            assert!(app.log.is_empty(), "not within the cancel");
        })
        .unwrap();

    // The first job never ends.
    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert_eq!(app.log, [1, 2]);
    assert_eq!(pool.shutdown(Duration::ZERO).abandoned, 1);
}

#[test]
fn job_that_panics_is_reported_to_the_loop() {
    let pool = pool(1, 8);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    event_loop
        .submit(
            &pool,
            || panic_any(17_u32),
            |app: &mut App, _cx, outcome: Outcome<()>| {
                let Outcome::Panicked(payload) = outcome else {
                    panic!("it did not panic");
                };
                app.log.extend(payload.downcast_ref::<u32>());
            },
        )
        .unwrap();
    let mut app = App::default();

    event_loop.run(&mut app).unwrap();

    assert_eq!(app.log, [17]);
}

#[test]
fn completion_that_panics_in_the_loop_leaves_it_whole_and_its_place_is_told() {
    let pool = pool(1, 8);
    let config = LoopConfig {
        panic_policy: PanicPolicy::Contain(|report| {
            assert!(report.origin.place.file().ends_with("tests/pool_loop.rs"));
            assert_eq!(report.origin.label.as_deref(), Some("checksum"));
            assert_eq!(report.message(), "completion, on purpose");
        }),
        ..LoopConfig::default()
    };
    let mut event_loop = EventLoop::<App>::with_config(config).unwrap();
    let (event, _) = event_loop
        .submit(
            &pool,
            || (),
            |_: &mut App, _cx, _| panic!("completion, on purpose"),
        )
        .unwrap();
    event_loop.set_label(event, "checksum");
    event_loop
        .submit(&pool, || (), |app: &mut App, _cx, _| app.log.push(2))
        .unwrap();
    let mut app = App::default();

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert_eq!(app.log, [2]);
}

#[test]
fn refused_job_leaves_nothing_in_the_loop_and_comes_back() {
    let pool = pool(1, 0);
    let blocked = block(&pool);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let before = event_loop.counters().inserted;

    let full = event_loop
        .submit(&pool, || 3, |app: &mut App, _cx, _| app.log.push(1))
        .unwrap_err();

    assert_eq!(full.kind, SubmitErrorKind::Full { queue_max: 0 });
    assert_eq!(event_loop.counters().inserted, before);
    assert_eq!((full.rejected.0)(), 3);
    let mut app = App::default();
    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);
    drop(blocked.gate);
    let _ = pool.shutdown(STUCK);
    let closed = event_loop
        .submit_job(&pool, Job::new(|| 4), full_completion)
        .unwrap_err();
    assert_eq!(closed.kind, SubmitErrorKind::Closed);
    assert_eq!(closed.rejected.0.run().downcast_ref(), Some(&4));
}

fn full_completion(
    _: &mut App,
    _: &mut windlass::event_loop::Context<'_, '_, App>,
    _: Outcome<windlass::session::JobResult>,
) {
}

#[test]
fn session_job_goes_through_the_loop() {
    let pool = pool(1, 8);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    event_loop
        .submit_job(&pool, Job::new(|| 9_u32), |app: &mut App, _cx, outcome| {
            app.log
                .extend(outcome.done().unwrap().downcast_ref::<u32>());
        })
        .unwrap();
    let mut app = App::default();

    event_loop.run(&mut app).unwrap();

    assert_eq!(app.log, [9]);
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn loop_that_is_dropped_first_drops_the_completion_and_the_result_follows() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let (results, completions) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let result = Counted(Arc::clone(&results));
    let completion = Counted(Arc::clone(&completions));
    event_loop
        .submit(
            &pool,
            move || result,
            move |_: &mut App, _cx, _| drop(completion),
        )
        .unwrap();

    drop(event_loop);

    assert_eq!(completions.load(Ordering::Relaxed), 1);
    assert_eq!(results.load(Ordering::Relaxed), 0);
    drop(blocked.gate);
    assert_eq!(pool.shutdown_with(Drain::Run, STUCK).cancelled, 0);
    assert_eq!(results.load(Ordering::Relaxed), 1);
}

#[test]
fn event_that_is_removed_is_not_waited_for_and_hits_no_successor() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let ran = Arc::new(AtomicBool::new(false));
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let job = {
        let ran = Arc::clone(&ran);
        move || ran.store(true, Ordering::Relaxed)
    };
    let (event, _) = event_loop
        .submit(&pool, job, |app: &mut App, _cx, _| app.log.push(1))
        .unwrap();
    let mut app = App::default();

    assert!(event_loop.remove(event));

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);
    let successor = event_loop
        .user_event(|app: &mut App, _cx, _| {
            app.log.push(2);
            Keep
        })
        .unwrap();
    drop(blocked.gate);
    let _ = pool.shutdown_with(Drain::Run, STUCK);
    event_loop.run_nonblocking(&mut app).unwrap();
    assert!(app.log.is_empty());
    assert!(ran.load(Ordering::Relaxed), "the job itself is done");
    assert!(event_loop.remove(successor));
}

#[test]
fn loop_does_not_wait_for_a_completion_that_is_disabled() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let (event, _) = event_loop
        .submit(&pool, || (), |app: &mut App, _cx, _| app.log.push(1))
        .unwrap();
    event_loop.disable(event).unwrap();
    let mut app = App::default();

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert!(app.log.is_empty());
    drop(blocked.gate);
    let _ = pool.shutdown_with(Drain::Run, STUCK);
    event_loop
        .every(Duration::from_millis(1), |app: &mut App, _cx| {
            if app.log.is_empty() { Keep } else { Remove }
        })
        .unwrap();
    event_loop.run(&mut app).unwrap();
    assert_eq!(app.log, [1]);
}

#[test]
fn completion_that_is_activated_by_hand_waits_on_for_its_job() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let mut event_loop = EventLoop::<App>::new().unwrap();
    let (event, _) = event_loop
        .submit(&pool, || (), |app: &mut App, _cx, _| app.log.push(1))
        .unwrap();
    event_loop.activate(event, 1).unwrap();
    let mut gate = Some(blocked.gate);
    event_loop
        .after(Duration::from_millis(1), move |_: &mut App, _cx| {
            drop(gate.take());
        })
        .unwrap();
    let mut app = App::default();

    assert_eq!(event_loop.run(&mut app).unwrap(), StopReason::Empty);

    assert_eq!(app.log, [1]);
}

#[test]
fn timers_go_on_while_a_job_is_out() {
    let pool = pool(1, 8);
    let (gate, closed) = mpsc::channel::<()>();
    let mut event_loop = EventLoop::<App>::new().unwrap();
    event_loop
        .submit(
            &pool,
            move || closed.recv(),
            |app: &mut App, cx, _| {
                app.log.push(9);
                cx.stop();
            },
        )
        .unwrap();
    let mut gate = Some(gate);
    event_loop
        .every(Duration::from_millis(1), move |app: &mut App, _cx| {
            app.log.push(1);
            if app.log.len() == 3 {
                drop(gate.take());
                return Remove;
            }
            Keep
        })
        .unwrap();
    let mut app = App::default();

    event_loop.run(&mut app).unwrap();

    assert_eq!(app.log, [1, 1, 1, 9]);
}

// Types.

#[test]
fn handles_are_send_and_sync() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<WorkerPool>();
    shared::<JobHandle>();
}
