//! The workers: threads that call sessions, each with its lane, and that may block.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use windlass_sys::clock;

use super::trip::{self, Errand, Queue};
use crate::models::lane::Lane;
use crate::models::lane_thread::LaneThread;
use crate::models::limits::{END_PATIENCE, Limits};
use crate::models::listening::BindError;
use crate::models::report::ServerReport;
use crate::models::server::Visit;
use crate::models::work_queue::{Dispatch, Taken};
use crate::session::{Now, Service};

/// See the module. When it is dropped, they end.
pub(in crate::models) struct Workers<V: Service> {
    queue: Arc<Queue<V>>,
    threads: Vec<JoinHandle<()>>,
    /// What those counted that have ended.
    report: Arc<Mutex<ServerReport>>,
}

/// A worker that has had no pause lets its service settle after so many errands.
const ERRANDS_PER_SETTLE: u32 = 64;

impl<V: Service> Workers<V> {
    /// Starts so many workers, and waits until each has its lane.
    ///
    /// # Panics
    ///
    /// Passes on the panic of a service that makes its shared part.
    pub(in crate::models) fn start(
        count: usize,
        dispatch: Dispatch,
        service: &Arc<V>,
        limits: Limits,
    ) -> Result<Self, BindError> {
        let mut workers = Self {
            queue: Arc::new(Queue::new(count, dispatch)),
            threads: Vec::with_capacity(count),
            report: Arc::default(),
        };
        let (tell, ready) = mpsc::channel();
        for index in 0..count {
            let ended = End(Arc::clone(&workers.queue));
            let (service, report) = (Arc::clone(service), Arc::clone(&workers.report));
            let tell = tell.clone();
            let name = format!("worker-{index}");
            let spawned = thread::Builder::new().name(name).spawn(move || {
                let ended = ended;
                let worker = Worker::new(index, Lane::new(service, limits));
                // The builder waits for it.
                let _ = tell.send(());
                drop(tell);
                let counts = worker.work(&ended.0);
                *report.lock().unwrap_or_else(PoisonError::into_inner) += counts;
            });
            match spawned {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    // Nor will those be that come after it.
                    for _ in index + 1..count {
                        workers.queue.note_end();
                    }
                    return Err(BindError::Thread(error));
                }
            }
        }
        drop(tell);
        if ready.iter().count() < count {
            workers.queue.close();
            for thread in workers.threads.drain(..) {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        }
        Ok(workers)
    }

    pub(in crate::models) fn queue(&self) -> &Arc<Queue<V>> {
        &self.queue
    }

    /// Has them end, and waits for that; but for no job, and not for long. Answers what they
    /// counted. Those that are stuck end when they can.
    pub(in crate::models) fn end(&mut self) -> ServerReport {
        let left = self.queue.close();
        // It is the program's, for connections that are gone.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(left)));
        let deadline = Instant::now().checked_add(END_PATIENCE);
        let ended = self.queue.wait_for_workers(deadline);
        let threads = self.threads.drain(..);
        if ended {
            for thread in threads {
                // Its panic, if any, was a session's drop: nobody's any more.
                let _ = thread.join();
            }
        }
        let mut report = *self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.panics += u64::from(dropped.is_err());
        report
    }
}

impl<V: Service> Drop for Workers<V> {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end();
        }
    }
}

/// Notes the end of a worker, however that comes; or that it could not be started.
struct End<V: Service>(Arc<Queue<V>>);

impl<V: Service> Drop for End<V> {
    fn drop(&mut self) {
        self.0.note_end();
    }
}

struct Worker<V: Service> {
    index: usize,
    lane: Lane<V>,
    /// The time of all trips that began in one turn of the loop.
    now: Now,
    turn: windlass_core::Instant,
    /// Errands since the service settled.
    unsettled: u32,
}

impl<V: Service> Worker<V> {
    fn new(index: usize, lane: Lane<V>) -> Self {
        Self {
            index,
            lane,
            now: Now::default(),
            turn: windlass_core::Instant::ZERO,
            unsettled: 0,
        }
    }

    /// The life of a worker; answers what it counted.
    fn work(mut self, queue: &Queue<V>) -> ServerReport {
        loop {
            let taken = queue.try_take(self.index).unwrap_or_else(|| {
                self.settle();
                queue.take(self.index)
            });
            match taken {
                Taken::End => break,
                Taken::Post(visit) => self.visit(visit),
                Taken::Task(Errand::Trip(trip)) => self.call(trip),
                Taken::Task(Errand::Job(job, done)) => {
                    // It may take long.
                    self.settle();
                    queue.unbound(|| trip::do_job(job, done));
                }
            }
            if self.unsettled >= ERRANDS_PER_SETTLE {
                self.settle();
            }
        }
        self.settle();
        self.lane.counts
    }

    fn call(&mut self, trip: Box<trip::Trip<V::Session>>) {
        if trip.is_idle() {
            self.contain(|_| drop(trip));
            return;
        }
        if trip.turn != self.turn || self.unsettled == 0 {
            self.turn = trip.turn;
            self.now = self.lane.now(now());
        }
        self.unsettled += 1;
        let now = self.now;
        // What the session panics with is told to the loop; a drop may panic too.
        self.contain(|lane| trip.make(&mut lane.local, now));
    }

    fn visit(&mut self, visit: Visit<V>) {
        let now = self.lane.now(now());
        self.contain(|lane| visit(&mut LaneThread { lane, now }));
        self.unsettled = 1;
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.unsettled) > 0 && self.lane.service.settles() {
            let now = self.lane.now(now());
            self.lane.settle(now);
        }
    }

    /// Calls what is the program's and must not end a worker.
    fn contain(&mut self, run: impl FnOnce(&mut Lane<V>)) {
        // Unwind safety: the lane's shared part is the service's, as with a session's panic.
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut self.lane)));
        self.lane.counts.panics += u64::from(ran.is_err());
    }
}

fn now() -> windlass_core::Instant {
    windlass_core::Instant::from_nanos(clock::monotonic_ns())
}
