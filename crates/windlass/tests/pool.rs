//! The worker pool, as drivers and loops see it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::cell::Cell;
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use windlass::Disposition::{Keep, Remove};
use windlass::StopReason;
use windlass::event_loop::{EventLoop, LoopConfig, PanicPolicy};
use windlass::pool::{
    Cancel, Drain, JobHandle, Outcome, PoolConfig, ShutdownReport, SubmitErrorKind, WorkerPool,
};
use windlass::session::Job;

/// After so long something is stuck; nothing is measured by it.
const STUCK: Duration = Duration::from_secs(60);

fn pool(threads: usize, queue_max: usize) -> WorkerPool {
    WorkerPool::new(PoolConfig {
        threads,
        queue_max,
        ..PoolConfig::default()
    })
    .unwrap()
}

/// A job that runs until its gate is dropped or opened.
struct Blocked {
    gate: Sender<()>,
    handle: JobHandle,
    outcome: Receiver<Outcome<&'static str>>,
}

/// Submits a job that blocks, and returns when it runs.
fn block(pool: &WorkerPool) -> Blocked {
    let (gate, closed) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let (sender, outcome) = mpsc::channel();
    let job = move || {
        started.send(()).unwrap();
        // Opened, or its owner is gone.
        let _ = closed.recv();
        "unblocked"
    };
    let handle = pool
        .submit(job, move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    running.recv_timeout(STUCK).unwrap();
    Blocked {
        gate,
        handle,
        outcome,
    }
}

/// A job that must not run.
fn submit_unwanted(pool: &WorkerPool) -> (JobHandle, Receiver<Outcome<()>>) {
    let (sender, outcome) = mpsc::channel();
    let job = || panic!("a cancelled job ran");
    let handle = pool
        .submit(job, move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    (handle, outcome)
}

fn told_once<T>(outcome: &Receiver<Outcome<T>>) -> Outcome<T> {
    let first = outcome.recv_timeout(STUCK).unwrap();
    // The completion was used up, and its sender with it, or will be in a moment.
    assert!(matches!(
        outcome.recv_timeout(STUCK),
        Err(mpsc::RecvTimeoutError::Disconnected)
    ));
    first
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < STUCK, "waited for: {what}");
        thread::yield_now();
    }
}

// Cancel and shutdown (PF-13).

#[test]
fn queued_job_that_is_cancelled_never_runs_and_is_reported_at_once() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let (handle, outcome) = submit_unwanted(&pool);

    assert_eq!(handle.cancel(), Cancel::Prevented);

    assert!(matches!(outcome.try_recv(), Ok(Outcome::Cancelled)));
    assert_eq!(handle.cancel(), Cancel::Complete);
    assert_eq!(pool.counters().waiting, 0);
    drop(blocked.gate);
    assert!(matches!(
        told_once(&blocked.outcome),
        Outcome::Done("unblocked")
    ));
}

#[test]
fn running_job_that_is_cancelled_is_reported_at_once_and_its_result_is_dropped() {
    let pool = pool(1, 8);
    let blocked = block(&pool);

    assert_eq!(blocked.handle.cancel(), Cancel::Running);

    assert!(matches!(blocked.outcome.try_recv(), Ok(Outcome::Cancelled)));
    assert_eq!(blocked.handle.cancel(), Cancel::Complete);
    assert_eq!(pool.counters().running, 1);
    drop(blocked.gate);
    wait_until("the job's end", || pool.counters().finished == 1);
    assert!(blocked.outcome.try_recv().is_err());
}

#[test]
fn complete_job_can_not_be_cancelled() {
    let pool = pool(1, 8);
    let (sender, outcome) = mpsc::channel();
    let handle = pool
        .submit(|| 5, move |outcome| sender.send(outcome).unwrap())
        .unwrap();
    assert!(matches!(told_once(&outcome), Outcome::Done(5)));

    assert_eq!(handle.cancel(), Cancel::Complete);
}

#[test]
fn cancelled_job_frees_its_place_before_its_completion_is_called() {
    let pool = pool(1, 1);
    let blocked = block(&pool);
    let (sender, receiver) = mpsc::channel();
    let again = pool.clone();
    let handle = pool
        .submit(
            || (),
            move |_| {
                let result = again.submit(|| (), |_| ()).map(drop);
                sender.send(result.map_err(|error| error.kind)).unwrap();
            },
        )
        .unwrap();

    assert_eq!(handle.cancel(), Cancel::Prevented);

    assert_eq!(receiver.try_recv(), Ok(Ok(())));
    drop(blocked.gate);
}

#[test]
fn shutdown_gives_up_at_its_limit_and_reports_every_job() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let queued = [submit_unwanted(&pool), submit_unwanted(&pool)];
    let start = Instant::now();

    let report = pool.shutdown(Duration::from_millis(200));

    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200));
    assert!(took < Duration::from_secs(20), "took {took:?}");
    assert_eq!(
        report,
        ShutdownReport {
            finished: 0,
            cancelled: 2,
            abandoned: 1
        }
    );
    assert!(matches!(blocked.outcome.try_recv(), Ok(Outcome::Cancelled)));
    for (handle, outcome) in &queued {
        assert!(matches!(outcome.try_recv(), Ok(Outcome::Cancelled)));
        assert_eq!(handle.cancel(), Cancel::Complete);
    }
    assert_eq!(
        pool.submit(|| (), |_| ()).unwrap_err().kind,
        SubmitErrorKind::Closed
    );
    // The thread that was let go ends when its job does.
    drop(blocked.gate);
    wait_until("the thread's end", || pool.counters().threads == 0);
    assert!(blocked.outcome.try_recv().is_err());
}

#[test]
fn shutdown_waits_for_the_job_that_runs() {
    let pool = pool(2, 8);
    let blocked = block(&pool);
    let gate = blocked.gate;
    let opener = thread::spawn({
        let pool = pool.clone();
        move || {
            wait_until("the shutdown's begin", || pool.is_closed());
            drop(gate);
        }
    });

    let report = pool.shutdown(Duration::MAX);

    assert_eq!((report.finished, report.abandoned), (1, 0));
    assert!(matches!(
        blocked.outcome.try_recv(),
        Ok(Outcome::Done("unblocked"))
    ));
    assert_eq!(pool.counters().threads, 0);
    opener.join().unwrap();
    assert_eq!(pool.shutdown(Duration::MAX), ShutdownReport::default());
}

#[test]
fn shutdown_that_drains_runs_what_waits() {
    let pool = pool(1, 100);
    let blocked = block(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let ran = Arc::clone(&ran);
        pool.submit(move || ran.fetch_add(1, Ordering::Relaxed), |_| ())
            .unwrap();
    }
    drop(blocked.gate);

    let report = pool.shutdown_with(Drain::Run, STUCK);

    assert_eq!((report.cancelled, report.abandoned), (0, 0));
    assert_eq!(ran.load(Ordering::Relaxed), 100);
}

#[test]
fn shutdown_that_drains_cancels_what_did_not_start_within_the_limit() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let (_, outcome) = submit_unwanted(&pool);

    let report = pool.shutdown_with(Drain::Run, Duration::ZERO);

    assert_eq!((report.cancelled, report.abandoned), (1, 1));
    assert!(matches!(told_once(&outcome), Outcome::Cancelled));
    drop(blocked.gate);
}

#[test]
fn drop_of_the_last_handle_cancels_what_waits_and_lets_what_runs_go_on() {
    let pool = pool(1, 8);
    let clone = pool.clone();
    let blocked = block(&pool);
    let (_handle, outcome) = submit_unwanted(&pool);
    drop(pool);
    assert!(outcome.try_recv().is_err());

    drop(clone);

    assert!(matches!(outcome.try_recv(), Ok(Outcome::Cancelled)));
    drop(blocked.gate);
    assert!(matches!(
        told_once(&blocked.outcome),
        Outcome::Done("unblocked")
    ));
}

#[test]
fn last_handle_may_be_dropped_by_a_job() {
    let pool = pool(1, 8);
    let blocked = block(&pool);
    let (sender, outcome) = mpsc::channel();
    let mine = pool.clone();
    pool.submit(
        move || drop(mine),
        move |outcome| sender.send(outcome).unwrap(),
    )
    .unwrap();

    drop(blocked.gate);
    drop(pool);

    // It ran, or was cancelled by the drop above: no dead-lock, and one report.
    told_once(&outcome);
}

#[test]
fn completion_is_called_once_whatever_races() {
    for seed in 0..2_000_u32 {
        let pool = pool(2, 8);
        let told = Arc::new(AtomicUsize::new(0));
        let handles = (0..6).map(|_| {
            let told = Arc::clone(&told);
            let done = move |_| {
                told.fetch_add(1, Ordering::Relaxed);
            };
            pool.submit(thread::yield_now, done).unwrap()
        });
        let handles = handles.collect::<Vec<_>>();
        let canceller = thread::spawn(move || {
            let cancels = handles.iter().skip(seed as usize % 3).step_by(2);
            cancels.map(JobHandle::cancel).collect::<Vec<_>>()
        });

        let report = pool.shutdown(STUCK);

        let cancels = canceller.join().unwrap();
        let prevented = cancels
            .iter()
            .filter(|&&cancel| cancel == Cancel::Prevented);
        assert_eq!(told.load(Ordering::Relaxed), 6, "round {seed}");
        assert_eq!(report.abandoned, 0, "round {seed}");
        let started = pool.counters().finished + report.cancelled + prevented.count() as u64;
        assert_eq!(started, 6, "round {seed}");
    }
}

// Bounds.

#[test]
fn full_pool_gives_the_closures_back() {
    let pool = pool(1, 2);
    let blocked = block(&pool);
    let queued = [submit_unwanted(&pool), submit_unwanted(&pool)];

    let error = pool.submit(|| "job", |_| ()).unwrap_err();

    assert_eq!(error.kind, SubmitErrorKind::Full { queue_max: 2 });
    assert_eq!(
        error.to_string(),
        "submit a job: 2 wait already, the most that may"
    );
    assert_eq!((error.rejected.0)(), "job");
    let (sender, outcome) = mpsc::channel();
    let job = Job::new(|| 7);
    let error = pool
        .submit_job(job, move |outcome| sender.send(outcome).unwrap())
        .unwrap_err();
    let (job, done) = error.rejected;
    let _ = queued[0].0.cancel();
    let _ = queued[1].0.cancel();
    pool.submit_job(job, done).unwrap();
    drop(blocked.gate);
    let Outcome::Done(value) = told_once(&outcome) else {
        panic!("it was not cancelled");
    };
    assert_eq!(value.downcast_ref(), Some(&7));
}

#[test]
fn burst_as_large_as_the_bound_is_accepted_before_any_worker_woke_up() {
    let pool = pool(4, 4);
    let barrier = Arc::new(Barrier::new(5));

    let handles = (0..8).map(|_| {
        let barrier = Arc::clone(&barrier);
        pool.submit(move || barrier.wait(), |_| ()).unwrap()
    });

    // All of these run at once, four by four.
    assert_eq!(handles.count(), 8);
    barrier.wait();
    barrier.wait();
}

#[test]
fn idle_threads_end_and_come_back() {
    let pool = WorkerPool::new(PoolConfig {
        threads: 3,
        idle_timeout: Some(Duration::from_millis(1)),
        ..PoolConfig::default()
    })
    .unwrap();
    for _ in 0..3 {
        let blocked = [block(&pool), block(&pool), block(&pool)];
        assert_eq!(pool.counters().threads, 3);
        drop(blocked);

        wait_until("the idle threads' end", || pool.counters().threads == 1);
    }
}

#[test]
fn threads_carry_the_pools_name() {
    let pool = WorkerPool::new(PoolConfig {
        name: "digest".into(),
        ..PoolConfig::default()
    })
    .unwrap();
    let (sender, outcome) = mpsc::channel();
    pool.submit(
        || thread::current().name().map(str::to_owned),
        move |outcome| sender.send(outcome).unwrap(),
    )
    .unwrap();

    let name = told_once(&outcome).done().flatten();

    assert_eq!(name.as_deref(), Some("digest-1"));
}

#[test]
fn ten_thousand_jobs_are_all_reported_in_order_of_one_worker() {
    let pool = pool(1, 10_000);
    let (sender, outcomes) = mpsc::channel();
    for number in 0..10_000 {
        let sender = sender.clone();
        pool.submit(
            move || number,
            move |outcome| sender.send(outcome.done()).unwrap(),
        )
        .unwrap();
    }
    drop(sender);

    assert!(outcomes.iter().eq((0..10_000).map(Some)));
}

// Panics.

#[test]
fn job_that_panics_is_reported_and_its_worker_lives_on() {
    let pool = pool(1, 8);
    let (sender, outcome) = mpsc::channel::<Outcome<()>>();
    pool.submit(
        || panic_any("on purpose"),
        move |outcome| sender.send(outcome).unwrap(),
    )
    .unwrap();

    let Outcome::Panicked(payload) = told_once(&outcome) else {
        panic!("it did not panic");
    };

    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    drop(block(&pool).gate);
    assert_eq!(pool.counters().contained_panics, 0);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic_any("dropped, on purpose");
    }
}

#[test]
fn panics_in_completions_and_drops_are_contained_and_counted() {
    let pool = pool(1, 8);
    pool.submit(|| (), |_| panic_any("completion, on purpose"))
        .unwrap();
    pool.submit(|| PanicsWhenDropped, drop).unwrap();
    pool.submit(|| panic_any(PanicsWhenDropped), |_: Outcome<()>| ())
        .unwrap();
    let blocked = block(&pool);
    assert_eq!(pool.counters().contained_panics, 3);
    let (sender, outcome) = mpsc::channel();
    let guard = PanicsWhenDropped;
    let handle = pool
        .submit(
            move || drop(guard),
            move |outcome| sender.send(outcome).unwrap(),
        )
        .unwrap();

    assert_eq!(handle.cancel(), Cancel::Prevented);

    assert!(matches!(told_once(&outcome), Outcome::Cancelled));
    assert_eq!(pool.counters().contained_panics, 4);
    drop(blocked.gate);
    assert_eq!(pool.shutdown(STUCK).abandoned, 0);
}

#[test]
fn pool_whose_threads_can_not_be_started_is_an_error() {
    let config = PoolConfig {
        stack_bytes: Some(1 << 60),
        ..PoolConfig::default()
    };

    assert!(WorkerPool::new(config).is_err());
}

#[test]
#[should_panic(expected = "a worker pool has at least one thread")]
fn pool_without_threads_is_refused() {
    pool(0, 1);
}

// A job that was accepted starts (PF-14).

/// Each of several submitters submits one job and waits for it, over and over.
fn each_lone_job_starts(idle_timeout: Option<Duration>, rounds: usize) {
    const SUBMITTERS: usize = 3;
    let pool = WorkerPool::new(PoolConfig {
        threads: 2,
        idle_timeout,
        ..PoolConfig::default()
    })
    .unwrap();
    let submitters = (0..SUBMITTERS).map(|_| {
        let pool = pool.clone();
        thread::spawn(move || {
            let (sender, outcomes) = mpsc::channel();
            for round in 0..rounds / SUBMITTERS {
                let sender = sender.clone();
                pool.submit(move || round, move |outcome| sender.send(outcome).unwrap())
                    .unwrap();
                let outcome = outcomes.recv_timeout(STUCK).unwrap();
                assert!(matches!(outcome, Outcome::Done(same) if same == round));
            }
        })
    });

    for submitter in submitters.collect::<Vec<_>>() {
        submitter.join().unwrap();
    }
}

#[test]
fn lone_job_starts_when_workers_stay() {
    each_lone_job_starts(None, 100_000);
}

#[test]
fn lone_job_starts_when_workers_end_as_soon_as_they_are_idle() {
    each_lone_job_starts(Some(Duration::ZERO), 20_000);
}

#[test]
fn lone_job_starts_when_workers_end_about_when_it_comes() {
    each_lone_job_starts(Some(Duration::from_micros(20)), 50_000);
}

#[test]
fn job_starts_though_all_workers_but_one_are_blocked() {
    let pool = pool(4, 8);
    let blocked = [block(&pool), block(&pool), block(&pool)];

    drop(block(&pool).gate);

    drop(blocked);
}

// Through a loop.

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
            assert!(report.origin.place.file().ends_with("tests/pool.rs"));
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
