//! `RUSTFLAGS="--cfg loom" cargo test -p windlass --lib --release loom`
//!
//! The kernel as it is, with its engine, under all interleavings of a few threads. What is modelled
//! is the demultiplexer. A wake-up that is lost shows as a deadlock: waits have no limit, and only
//! the standby's nap ends by itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Batch, Change, ChangeKind, Disposition, EventId, EventSpec, HandleId, Instant, Interest,
    Readiness, RunMode, Source, Trigger,
};

use super::kernel::{Done, Kernel, Poller, Rested, Role, Roles, Taken, Work};
use crate::sync::{Condvar, Mutex, lock};

/// One handle, that is ready for edges, and the wake-up channel.
#[derive(Default)]
struct SimPoller {
    state: Mutex<Sim>,
    changed: Condvar,
}

#[derive(Default)]
struct Sim {
    registered: Option<HandleId>,
    is_ready: bool,
    is_woken: bool,
    waiting: usize,
    wakes: usize,
}

impl SimPoller {
    fn set_ready(&self) {
        lock(&self.state).is_ready = true;
        self.changed.notify_all();
    }
}

impl Poller for SimPoller {
    type Waiter = ();
    type Registrar = ();

    fn registers_beside(&self) -> bool {
        true
    }

    fn apply(&self, (): &mut (), _waiter: Option<&mut ()>, change: &Change) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.registered = (change.kind != ChangeKind::Remove).then_some(change.handle);
        self.changed.notify_all();
        Ok(())
    }

    fn is_armed(&self, (): &()) -> bool {
        false
    }

    fn report(&self, (): &mut (), _batch: &mut Batch) {}

    fn wait(&self, (): &mut (), batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.waiting += 1;
        assert_eq!(state.waiting, 1, "exactly one waits");
        loop {
            if let Some(handle) = state.registered
                && std::mem::take(&mut state.is_ready)
            {
                batch.push(handle, Readiness::READ);
            }
            if !batch.is_empty() || state.is_woken || timeout.is_some() {
                break;
            }
            state = self.changed.wait(state).expect("no panic");
        }
        state.is_woken = false;
        state.waiting -= 1;
        Ok(())
    }

    fn wake(&self) {
        let mut state = lock(&self.state);
        state.is_woken = true;
        state.wakes += 1;
        drop(state);
        self.changed.notify_all();
    }

    fn forget_orphan(&self, (): &mut (), (): &mut (), _handle: HandleId) -> io::Result<bool> {
        Ok(false)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(1)
    }
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Happens again while it is handled; the second time it ends the set.
    Again,
    /// Ends the set.
    Stop,
    /// Blocks until an [`Opens`](Self::Opens) has run.
    Blocks,
    /// Lets those go on that block, and ends the set.
    Opens,
}

type ModelKernel = Kernel<Does, SimPoller>;

struct Model {
    kernel: ModelKernel,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Model {
    fn new(roles: Roles, processors: usize) -> Arc<Self> {
        let mode = RunMode {
            no_exit_on_empty: true,
            ..RunMode::default()
        };
        let kernel = Kernel::new(SimPoller::default(), (), (), roles, processors, mode);
        Arc::new(Self {
            kernel,
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn insert(&self, source: Source, does: Does) -> EventId {
        self.kernel
            .register(EventSpec::new(source), does, None)
            .expect("it fits")
    }

    fn activate(&self, event: EventId) {
        self.kernel
            .change(|engine, _| engine.activate_event(event, Readiness::NONE, 1))
            .expect("it exists");
    }

    /// The life of a thread; answers how often it was called.
    fn join(&self, role: Role) -> usize {
        let me = self.kernel.add_member(role);
        self.kernel.begin(me);
        let mut done = None;
        let mut calls = 0;
        loop {
            match self.kernel.next(me, done.take(), Rested::Yes) {
                Work::Call(taken) => {
                    calls += 1;
                    done = Some(self.carry_out(taken));
                }
                Work::Called | Work::Rest => {}
                Work::Over => return calls,
            }
        }
    }

    /// The short life of a thread that leaves before the set ends.
    fn take_one_and_leave(&self) -> usize {
        let me = self.kernel.add_member(Role::Follower);
        self.kernel.begin(me);
        let (done, calls) = match self.kernel.next(me, None, Rested::Yes) {
            Work::Call(taken) => (Some(self.carry_out(taken)), 1),
            _ => (None, 0),
        };
        self.kernel.leave(me, done);
        calls
    }

    fn carry_out(&self, taken: Taken<Does>) -> Done<Does> {
        self.kernel.promote(taken.promotion);
        let call = taken.call;
        self.handle(call.token.event(), call.payload);
        Done {
            token: call.token,
            payload: call.payload,
            answer: Some(Disposition::Keep),
        }
    }

    fn handle(&self, event: EventId, does: Does) {
        match does {
            Does::Again if std::mem::replace(&mut *lock(&self.is_open), true) => self.kernel.stop(),
            Does::Again => self.activate(event),
            Does::Stop => self.kernel.stop(),
            Does::Blocks => {
                let mut is_open = lock(&self.is_open);
                while !*is_open {
                    is_open = self.opened.wait(is_open).expect("no panic");
                }
            }
            Does::Opens => {
                *lock(&self.is_open) = true;
                self.opened.notify_all();
                self.kernel.stop();
            }
        }
    }
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

fn spawn(model: &Arc<Model>, role: Role) -> loom::thread::JoinHandle<usize> {
    let model = Arc::clone(model);
    loom::thread::spawn(move || model.join(role))
}

/// Two followers, and a post from a third thread: it is handled, once, and all end.
fn check_post(processors: usize) {
    check(2, move || {
        let model = Model::new(Roles::Followers, processors);
        let event = model.insert(Source::User, Does::Stop);
        let threads = [(); 2].map(|()| spawn(&model, Role::Follower));
        model.activate(event);
        let calls: usize = threads
            .map(|thread| thread.join().expect("no panic"))
            .iter()
            .sum();
        assert_eq!(calls, 1);
        let counters = model.kernel.counters();
        let wakes = counters.follower_wakes + counters.leader_wakes;
        // For the post, and to take the place of whoever handles it.
        assert!(wakes <= 2, "{counters:?}");
    });
}

#[test]
fn loom_a_post_is_handled_whoever_sleeps() {
    check_post(2);
}

#[test]
fn loom_a_post_is_handled_on_one_processor() {
    check_post(1);
}

/// A handle becomes ready while the two take turns.
#[test]
fn loom_readiness_is_handled_by_one_thread() {
    check(2, || {
        let model = Model::new(Roles::Followers, 2);
        let source = Source::Handle {
            raw: 3,
            interest: Interest::READ,
            trigger: Trigger::Edge,
        };
        model.insert(source, Does::Stop);
        let threads = [(); 2].map(|()| spawn(&model, Role::Follower));
        model.kernel.poller.set_ready();
        let calls: usize = threads
            .map(|thread| thread.join().expect("no panic"))
            .iter()
            .sum();
        assert_eq!(calls, 1);
    });
}

/// One handler blocks until the other has run: the hand-over must come before the handler.
fn check_stuck(processors: usize) {
    check(2, move || {
        let model = Model::new(Roles::Followers, processors);
        let blocks = model.insert(Source::User, Does::Blocks);
        let opens = model.insert(Source::User, Does::Opens);
        let threads = [(); 2].map(|()| spawn(&model, Role::Follower));
        model.activate(blocks);
        model.activate(opens);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn loom_a_handler_that_is_stuck_holds_up_no_other() {
    check_stuck(2);
}

#[test]
fn loom_a_handler_that_is_stuck_is_found_by_the_standby() {
    check_stuck(1);
}

/// A dispatcher and two workers, of which one gets stuck; the dispatcher may have paused.
fn check_dispatcher(processors: usize) {
    check(2, move || {
        let model = Model::new(Roles::Dispatcher, processors);
        let blocks = model.insert(Source::User, Does::Blocks);
        let source = Source::Handle {
            raw: 3,
            interest: Interest::READ,
            trigger: Trigger::Edge,
        };
        model.insert(source, Does::Opens);
        let threads =
            [Role::Dispatcher, Role::Worker, Role::Worker].map(|role| spawn(&model, role));
        model.activate(blocks);
        model.kernel.poller.set_ready();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn loom_a_dispatcher_brings_what_is_ready_to_a_free_worker() {
    check_dispatcher(2);
}

#[test]
fn loom_a_dispatcher_that_paused_goes_on_when_a_worker_is_stuck() {
    check_dispatcher(1);
}

/// A thread that is called comes back, wherever it sleeps.
#[test]
fn loom_a_thread_that_is_called_comes() {
    check(2, || {
        let model = Model::new(Roles::Followers, 2);
        let other = spawn(&model, Role::Follower);
        let me = model.kernel.add_member(Role::Follower);
        let called = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || {
                model.kernel.begin(me);
                match model.kernel.next(me, None, Rested::Yes) {
                    Work::Called => model.kernel.stop(),
                    other => panic!("nobody did anything else: {other:?}"),
                }
            })
        };
        model.kernel.call(me);
        called.join().expect("no panic");
        other.join().expect("no panic");
    });
}

/// A thread leaves the set when an event has happened again that it handled: another one handles
/// that.
fn check_leave(processors: usize) {
    check(2, move || {
        let model = Model::new(Roles::Followers, processors);
        let event = model.insert(Source::User, Does::Again);
        let other = spawn(&model, Role::Follower);
        let leaves = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || model.take_one_and_leave())
        };
        model.activate(event);
        let calls = leaves.join().expect("no panic") + other.join().expect("no panic");
        assert_eq!(calls, 2);
    });
}

#[test]
fn loom_a_thread_that_leaves_leaves_nothing_behind() {
    check_leave(2);
}

#[test]
fn loom_a_thread_that_leaves_the_processor_leaves_nothing_behind() {
    check_leave(1);
}
