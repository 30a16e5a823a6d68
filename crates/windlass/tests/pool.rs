//! The worker pool, as drivers see it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "common/pools.rs"]
mod common;

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{STUCK, block, pool, submit_unwanted, told_once, wait_until};
use windlass::pool::{
    Cancel, Drain, JobHandle, Outcome, PoolConfig, ShutdownReport, SubmitErrorKind, WorkerPool,
};
use windlass::session::Job;

// Cancel and shutdown (PF-13).

#[test]
fn pf_13_queued_job_that_is_cancelled_never_runs_and_is_reported_at_once() {
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
fn pf_13_running_job_that_is_cancelled_is_reported_at_once_and_its_result_is_dropped() {
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
fn pf_13_complete_job_can_not_be_cancelled() {
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
fn pf_13_shutdown_gives_up_at_its_limit_and_reports_every_job() {
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
fn pf_13_shutdown_waits_for_the_job_that_runs() {
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
fn pf_14_lone_job_starts_when_workers_stay() {
    each_lone_job_starts(None, 100_000);
}

#[test]
fn pf_14_lone_job_starts_when_workers_end_as_soon_as_they_are_idle() {
    each_lone_job_starts(Some(Duration::ZERO), 20_000);
}

#[test]
fn pf_14_lone_job_starts_when_workers_end_about_when_it_comes() {
    each_lone_job_starts(Some(Duration::from_micros(20)), 50_000);
}

#[test]
fn pf_14_job_starts_though_all_workers_but_one_are_blocked() {
    let pool = pool(4, 8);
    let blocked = [block(&pool), block(&pool), block(&pool)];

    drop(block(&pool).gate);

    drop(blocked);
}
