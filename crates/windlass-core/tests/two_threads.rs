//! The engine behind a mutex, driven by several threads that take turns to wait.
//!
//! The drivers here are a thread set and the sketch of `docs/driver-event-base.md`, as small as they
//! can be. No test sleeps: each ends after a number
//! of calls.

#![expect(
    clippy::unwrap_used,
    reason = "a lock is poisoned only when the test failed already"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use windlass_core::*;

/// A demultiplexer for threads: registrations are changed while one thread waits.
#[derive(Default)]
struct Handles {
    state: Mutex<HandlesState>,
    changed: Condvar,
}

#[derive(Default)]
struct HandlesState {
    /// By number: the id, what it is watched for, whether it is armed.
    watched: HashMap<RawHandle, (HandleId, Interest, bool)>,
    /// Bytes to read, by number.
    unread: HashMap<RawHandle, u64>,
    woken: bool,
    waiting: u32,
    waiting_max: u32,
    wakes: u64,
}

impl Handles {
    fn apply(&self, change: &Change) {
        let mut state = self.state.lock().unwrap();
        match change.kind {
            ChangeKind::Register {
                interest, notify, ..
            }
            | ChangeKind::Modify {
                interest, notify, ..
            } => {
                assert_eq!(notify, Notify::Once, "others spin while a handler runs");
                state
                    .watched
                    .insert(change.raw, (change.handle, interest, true));
            }
            ChangeKind::Remove => {
                state.watched.remove(&change.raw);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn write(&self, raw: RawHandle) {
        *self.state.lock().unwrap().unread.entry(raw).or_default() += 1;
        self.changed.notify_all();
    }

    /// Reads one byte; whether there was one.
    fn read(&self, raw: RawHandle) -> bool {
        let mut state = self.state.lock().unwrap();
        let unread = state.unread.entry(raw).or_default();
        let any = *unread > 0;
        *unread -= u64::from(any);
        any
    }

    fn wake(&self) {
        let mut state = self.state.lock().unwrap();
        state.woken = true;
        state.wakes += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// What only the leader does.
    fn wait(&self, batch: &mut Batch, wait: Wait) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state.waiting_max = state.waiting_max.max(state.waiting);
        loop {
            let HandlesState {
                watched, unread, ..
            } = &mut *state;
            for (raw, (handle, interest, armed)) in watched {
                let ready = interest.contains(Interest::READ)
                    && unread.get(raw).is_some_and(|&unread| unread > 0);
                if *armed && ready {
                    *armed = false;
                    batch.push(*handle, Readiness::READ);
                }
            }
            if !batch.is_empty() || state.woken || wait == Wait::Poll {
                break;
            }
            assert_eq!(wait, Wait::Forever, "no timers here");
            state = self.changed.wait(state).unwrap();
        }
        state.woken = false;
        state.waiting -= 1;
    }
}

/// The right to wait. There is one.
struct Leadership;

struct Shared<P> {
    state: Mutex<Locked<P>>,
    /// Followers wait for the leadership here.
    promoted: Condvar,
    handles: Handles,
}

struct Locked<P> {
    engine: Engine<P>,
    leadership: Option<Leadership>,
    /// How long the leader waits, while it does.
    waiting: Option<Wait>,
    stopped: bool,
}

type Handler = Box<dyn FnMut(&Shared<Stored>, Happened) -> Disposition + Send>;
struct Stored(Handler);

impl<P> Shared<P> {
    fn new(config: EngineConfig) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Locked {
                engine: Engine::new(config),
                leadership: Some(Leadership),
                waiting: None,
                stopped: false,
            }),
            promoted: Condvar::new(),
            handles: Handles::default(),
        })
    }

    /// Does something to the engine from any thread, and wakes the leader if that is needed.
    fn change<R>(&self, change: impl FnOnce(&mut Engine<P>) -> R) -> R {
        let mut state = self.state.lock().unwrap();
        let result = change(&mut state.engine);
        self.publish(state);
        result
    }

    /// Applies changes beside the waiting leader, and wakes it for what else ends its wait.
    fn publish(&self, mut state: MutexGuard<'_, Locked<P>>) {
        self.apply(&mut state.engine);
        if let Some(waiting) = state.waiting
            && state.engine.wake_needed(waiting)
        {
            // One wake-up per wait.
            state.waiting = None;
            self.handles.wake();
        }
    }

    fn apply(&self, engine: &mut Engine<P>) {
        let mut changes = Vec::new();
        engine.take_changes(&mut changes);
        changes.iter().for_each(|change| self.handles.apply(change));
    }
}

impl Shared<Stored> {
    /// One thread of the set.
    fn join(&self) {
        let mut batch = Batch::new();
        let mut state = self.state.lock().unwrap();
        loop {
            let leadership = loop {
                if state.stopped {
                    return;
                }
                match state.leadership.take() {
                    Some(leadership) => break leadership,
                    None => state = self.promoted.wait(state).unwrap(),
                }
            };
            let (guard, call) = self.lead(state, leadership, &mut batch);
            state = guard;
            let Some(Call {
                token,
                payload: Stored(mut handler),
                happened,
            }) = call
            else {
                continue;
            };
            drop(state);
            let disposition = handler(self, happened);
            state = self.state.lock().unwrap();
            let payload = Stored(handler);
            let settled = state
                .engine
                .settle(token, payload, disposition, Instant::ZERO);
            self.publish(state);
            // The payload of an event that is gone is dropped without the lock.
            drop(settled);
            state = self.state.lock().unwrap();
        }
    }

    /// Waits once and takes one event; the leadership is free again afterwards.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, Locked<Stored>>,
        leadership: Leadership,
        batch: &mut Batch,
    ) -> (MutexGuard<'a, Locked<Stored>>, Option<Call<Stored>>) {
        self.apply(&mut state.engine);
        let plan = match state.engine.prepare() {
            Step::Wait(plan) => plan,
            Step::Stop(_) => {
                // The stop is used up: it is for all threads of the set.
                state.stopped = true;
                state.leadership = Some(leadership);
                self.promoted.notify_all();
                return (state, None);
            }
        };
        state.waiting = Some(plan.wait());
        drop(state);
        self.handles.wait(batch, plan.wait());
        let mut state = self.state.lock().unwrap();
        state.waiting = None;
        let mut turn = state.engine.activate(plan.waited(), batch, Instant::ZERO);
        let call = state.engine.dispatch(&mut turn, Instant::ZERO);
        let end = state.engine.finish(turn);
        assert_eq!(
            end,
            TurnEnd::Again,
            "a set of threads runs until it is stopped"
        );
        // A new leader before the handler runs.
        state.leadership = Some(leadership);
        self.promoted.notify_one();
        (state, call)
    }
}

fn leader_followers() -> EngineConfig {
    EngineConfig {
        handle_sharing: HandleSharing::Exclusive,
        notify: Notify::Once,
        ..EngineConfig::default()
    }
}

fn reads(raw: RawHandle) -> EventSpec {
    let (interest, trigger) = (Interest::READ, Trigger::Level);
    EventSpec::new(Source::Handle {
        raw,
        interest,
        trigger,
    })
}

fn run_threads(shared: &Arc<Shared<Stored>>, count: usize, program: impl FnOnce()) {
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| shared.join());
        }
        program();
    });
}

/// Marks what runs, and fails if it runs already.
struct Running<'a>(&'a AtomicBool, &'static str);

impl<'a> Running<'a> {
    fn enter(flag: &'a AtomicBool, what: &'static str) -> Self {
        assert!(
            !flag.swap(true, Ordering::SeqCst),
            "{what} is handled by two threads at once"
        );
        Self(flag, what)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        assert!(self.0.swap(false, Ordering::SeqCst), "{}", self.1);
    }
}

#[test]
fn pf16_every_byte_is_read_once_by_one_thread_at_a_time_with_one_waiting() {
    const HANDLES: i32 = 6;
    const BYTES: u64 = 600;
    for threads in [2, 3, 8] {
        let shared = Shared::new(leader_followers());
        let left = Arc::new(AtomicU64::new(HANDLES as u64 * BYTES));
        for raw in 0..HANDLES {
            // Two events of one handle: only one of them runs at a time.
            let busy = Arc::new(AtomicBool::new(false));
            for _ in 0..2 {
                let (busy, left) = (Arc::clone(&busy), Arc::clone(&left));
                let handler = move |shared: &Shared<Stored>, happened: Happened| {
                    assert_eq!(happened.readiness, Readiness::READ);
                    let _running = Running::enter(&busy, "a handle");
                    if shared.handles.read(raw) && left.fetch_sub(1, Ordering::SeqCst) == 1 {
                        shared.change(Engine::break_loop);
                    }
                    Disposition::Keep
                };
                shared.change(|engine| {
                    let id = engine
                        .insert(reads(raw), Stored(Box::new(handler)))
                        .unwrap();
                    engine.enable(id, Instant::ZERO).unwrap();
                });
            }
        }
        run_threads(&shared, threads, || {
            for byte in 0..BYTES * HANDLES as u64 {
                shared.handles.write((byte % HANDLES as u64) as i32);
            }
        });
        assert_eq!(left.load(Ordering::SeqCst), 0);
        let handles = shared.handles.state.lock().unwrap();
        assert_eq!(
            (handles.waiting, handles.waiting_max),
            (0, 1),
            "exactly one waits"
        );
        let state = shared.state.lock().unwrap();
        let counters = state.engine.counters();
        assert_eq!((counters.in_flight, counters.stale_reports), (0, 0));
        // Nobody spins: a turn brought a report or followed a wake-up.
        let bound = counters.dispatched * 2 + handles.wakes + 16;
        assert!(
            counters.turns <= bound,
            "{counters:?}, {} wake-ups",
            handles.wakes
        );
    }
}

#[test]
fn every_activation_from_any_thread_is_handled() {
    const EVENTS: usize = 8;
    const ROUNDS: u32 = 500;
    for threads in [2, 5, 8] {
        let shared = Shared::new(leader_followers());
        let handled: Arc<Vec<AtomicU32>> =
            Arc::new((0..EVENTS).map(|_| AtomicU32::new(0)).collect());
        let total = Arc::new(AtomicU64::new(0));
        let ids: Vec<EventId> = (0..EVENTS)
            .map(|at| {
                let (handled, total) = (Arc::clone(&handled), Arc::clone(&total));
                let busy = AtomicBool::new(false);
                let handler = move |shared: &Shared<Stored>, happened: Happened| {
                    let _running = Running::enter(&busy, "an event");
                    assert!(happened.user && happened.count > 0);
                    handled[at].fetch_add(happened.count, Ordering::SeqCst);
                    let count = u64::from(happened.count);
                    let before = total.fetch_add(count, Ordering::SeqCst);
                    if before + count == EVENTS as u64 * u64::from(ROUNDS) {
                        shared.change(Engine::break_loop);
                    }
                    Disposition::Keep
                };
                let handler = Stored(Box::new(handler));
                shared.change(|engine| {
                    let id = engine
                        .insert(EventSpec::new(Source::User), handler)
                        .unwrap();
                    engine.enable(id, Instant::ZERO).unwrap();
                    id
                })
            })
            .collect();
        run_threads(&shared, threads, || {
            thread::scope(|scope| {
                for part in 0..2 {
                    let (shared, ids) = (&shared, &ids);
                    scope.spawn(move || {
                        for _ in 0..ROUNDS {
                            for &id in ids.iter().skip(part).step_by(2) {
                                shared.change(|engine| {
                                    engine.activate_event(id, Readiness::NONE, 1).unwrap();
                                });
                            }
                        }
                    });
                }
            });
        });
        for count in handled.iter() {
            assert_eq!(count.load(Ordering::SeqCst), ROUNDS);
        }
        let handles = shared.handles.state.lock().unwrap();
        assert_eq!(handles.waiting_max, 1);
    }
}

#[test]
fn the_set_ends_when_its_last_event_is_removed_while_the_leader_waits() {
    for threads in [2, 8] {
        let shared = Shared::new(leader_followers());
        let handler = |_: &Shared<Stored>, _| Disposition::Remove;
        shared.change(|engine| {
            let id = engine.insert(reads(1), Stored(Box::new(handler))).unwrap();
            engine.enable(id, Instant::ZERO).unwrap();
        });
        run_threads(&shared, threads, || shared.handles.write(1));
        let state = shared.state.lock().unwrap();
        assert_eq!(state.engine.counters().dispatched, 1);
        assert!(shared.handles.state.lock().unwrap().watched.is_empty());
    }
}

/// One thread runs the loop; others delete and wait until the handler is out.
struct EventBase {
    state: Mutex<BaseState>,
    handles: Handles,
    settled: Condvar,
}

struct BaseState {
    engine: Engine<Arc<dyn Fn() + Send + Sync>>,
    waiting: Option<Wait>,
    /// Which event runs, and in which thread.
    running: Option<(EventId, thread::ThreadId)>,
}

impl EventBase {
    fn new() -> Self {
        let config = EngineConfig {
            notify: Notify::Once,
            ..EngineConfig::default()
        };
        let state = BaseState {
            engine: Engine::new(config),
            waiting: None,
            running: None,
        };
        Self {
            state: Mutex::new(state),
            handles: Handles::default(),
            settled: Condvar::new(),
        }
    }

    fn publish(&self, state: &mut BaseState) {
        let mut changes = Vec::new();
        state.engine.take_changes(&mut changes);
        changes.iter().for_each(|change| self.handles.apply(change));
        if let Some(waiting) = state.waiting
            && state.engine.wake_needed(waiting)
        {
            state.waiting = None;
            self.handles.wake();
        }
    }

    fn add(&self, spec: EventSpec, handler: Arc<dyn Fn() + Send + Sync>) -> EventId {
        let mut state = self.state.lock().unwrap();
        let Ok(id) = state.engine.insert(spec, handler) else {
            panic!("it fits")
        };
        state.engine.enable(id, Instant::ZERO).unwrap();
        self.publish(&mut state);
        id
    }

    /// event_del_block: when it returns in another thread, the handler neither runs nor will.
    fn remove_and_wait(&self, id: EventId) {
        let mut state = self.state.lock().unwrap();
        // The id names nothing from here on: whatever was reported or activated is forgotten.
        let payload = state.engine.remove(id).expect("removed once");
        self.publish(&mut state);
        while state
            .running
            .is_some_and(|(which, thread)| which == id && thread != thread::current().id())
        {
            state = self.settled.wait(state).unwrap();
        }
        drop(state);
        drop(payload);
    }

    fn dispatch(&self) {
        let mut batch = Batch::new();
        let mut state = self.state.lock().unwrap();
        loop {
            self.publish(&mut state);
            let Step::Wait(plan) = state.engine.prepare() else {
                return;
            };
            state.waiting = Some(plan.wait());
            drop(state);
            self.handles.wait(&mut batch, plan.wait());
            state = self.state.lock().unwrap();
            state.waiting = None;
            let mut turn = state
                .engine
                .activate(plan.waited(), &mut batch, Instant::ZERO);
            while let Some(call) = state.engine.dispatch(&mut turn, Instant::ZERO) {
                state.running = Some((call.token.event(), thread::current().id()));
                drop(state);
                (call.payload)();
                state = self.state.lock().unwrap();
                state.running = None;
                let (token, payload) = (call.token, call.payload);
                let settled = state
                    .engine
                    .settle(token, payload, Disposition::Keep, Instant::ZERO);
                self.settled.notify_all();
                if let Settled::Released(payload) = settled {
                    drop(state);
                    drop(payload);
                    state = self.state.lock().unwrap();
                }
            }
            let TurnEnd::Again = state.engine.finish(turn) else {
                return;
            };
        }
    }
}

#[test]
fn pf11_after_a_blocking_delete_the_handler_neither_runs_nor_will() {
    const ROUNDS: u32 = 3_000;
    let base = Arc::new(EventBase::new());
    base.state.lock().unwrap().engine.hold();
    let calls = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| base.dispatch());
        for round in 0..ROUNDS {
            // What the handler uses; after the delete it must not be touched any more.
            let poisoned = Arc::new(AtomicBool::new(false));
            let handler = {
                let (poisoned, calls) = (Arc::clone(&poisoned), Arc::clone(&calls));
                move || {
                    assert!(!poisoned.load(Ordering::SeqCst), "ran after its delete");
                    calls.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    assert!(
                        !poisoned.load(Ordering::SeqCst),
                        "ran while its delete returned"
                    );
                }
            };
            let before = calls.load(Ordering::SeqCst);
            // Flooded: it is readable all the time, and the program activates it as well.
            base.handles.write(1);
            let id = base.add(reads(1), Arc::new(handler));
            if round % 2 == 0 {
                let mut state = base.state.lock().unwrap();
                state.engine.activate_event(id, Readiness::READ, 1).unwrap();
                base.publish(&mut state);
            }
            // Every fourth delete meets it certainly running or just done.
            while round % 4 == 0 && calls.load(Ordering::SeqCst) == before {
                thread::yield_now();
            }
            base.remove_and_wait(id);
            poisoned.store(true, Ordering::SeqCst);
        }
        let mut state = base.state.lock().unwrap();
        state.engine.break_loop();
        base.publish(&mut state);
    });
    assert!(calls.load(Ordering::SeqCst) >= u64::from(ROUNDS / 4));
    let state = base.state.lock().unwrap();
    assert_eq!(
        (
            state.engine.counters().inserted,
            state.engine.counters().in_flight
        ),
        (0, 0)
    );
}

#[test]
fn pf11_a_blocking_delete_inside_the_handler_itself_does_not_wait() {
    let base = Arc::new(EventBase::new());
    let own = Arc::new(Mutex::new(None));
    let handler = {
        let (base, own) = (Arc::clone(&base), Arc::clone(&own));
        move || base.remove_and_wait(own.lock().unwrap().take().expect("called once"))
    };
    let id = base.add(EventSpec::new(Source::User), Arc::new(handler));
    *own.lock().unwrap() = Some(id);
    base.state
        .lock()
        .unwrap()
        .engine
        .activate_event(id, Readiness::NONE, 1)
        .unwrap();
    base.dispatch();
    assert_eq!(base.state.lock().unwrap().engine.counters().inserted, 0);
}
