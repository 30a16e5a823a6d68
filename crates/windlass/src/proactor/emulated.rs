//! The emulated driver (the simulated proactor): the loop's own thread waits until an operation can
//! be done, does it by an ordinary call, and reports its completion.
//!
//! It waits with an epoll instance of its own, whose descriptor the loop watches: any back end can
//! wait for it, and operations never meet the program's own registrations of a descriptor.
//!
//! # How it works
//!
//! Each descriptor has a queue of operations that take from it and one of those that put into it.
//! The first of each is tried when it is its turn; if it would have to wait, the descriptor is armed
//! (once: `EPOLLONESHOT`), and reported to [`reap`](EmulatedDriver::reap), which has the queue go on.
//! Operations that are in no queue (polls, splices, time-outs, files) wait for themselves.
//!
//! # Fairness
//!
//! A visit of a queue makes at most [`VISIT_STEPS`] steps, each of at most 128 KiB, then it is the
//! turn of the next; a reap visits each queue once at most. So neither a flooded socket nor a long
//! file starves others, or the loop.
//!
//! # Cost
//!
//! An operation that can be done at once is one system call (a read or write of what may be no
//! socket, and an accept, two); one that waits is three more.
//!
//! # Limits
//!
//! Files, and Unix names that are opened, block the loop for as long as their device takes. What the
//! kernel reports as ready but does not do (a socket whose error queue nobody reads) is tried in
//! each turn.

mod deadlines;
mod subjects;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use windlass_sys::epoll::{Epoll, EventBuffer};
use windlass_sys::errno::EPERM;
use windlass_sys::operation::execution::{
    Blocked, Direction, Execution, Faults, ReportFault, Step,
};
use windlass_sys::operation::{CancelOutcome, Completion, OpId, OpTable, Operation, Outcome};
use windlass_sys::provided::{BufferPools, PoolId};

use self::deadlines::Deadlines;
use self::subjects::{QueueState, Subjects};

/// Carries out operations by readiness.
#[derive(Debug)]
pub(crate) struct EmulatedDriver {
    epoll: Arc<Epoll>,
    reports: EventBuffer,
    /// What is in it, as long as it is looked at.
    found: Vec<(RawFd, u32)>,
    flights: OpTable<Flight>,
    subjects: Subjects,
    /// Who can go on.
    due: VecDeque<Task>,
    /// Who waits for a buffer, the longest first.
    parked: Vec<(Task, PoolId)>,
    deadlines: Deadlines,
    /// What was cancelled.
    ready: VecDeque<Completion>,
    faults: Faults,
    /// Reports that come once more, by a fault.
    repeated: Vec<(RawFd, u32)>,
}

/// An operation in flight.
#[derive(Debug)]
struct Flight {
    execution: Execution,
    /// Where it waits, if it is in no queue.
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a queue, or among those that are due.
    Elsewhere,
    /// At a descriptor.
    Subject(RawFd),
    /// For its time.
    Time,
}

/// What has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// The first operations of a queue.
    Queue(RawFd, Direction),
    /// One that is in no queue.
    Single(OpId),
}

/// How many steps a queue makes at once.
const VISIT_STEPS: u32 = 16;
/// How many reports are taken at once; others wait in the kernel.
const REPORTS: usize = 256;
/// How long what nothing tells of is left alone.
const PAUSE: Duration = Duration::from_millis(2);

/// Where completions go.
type Sink<'a> = &'a mut dyn FnMut(Completion);

impl EmulatedDriver {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            epoll: Arc::new(Epoll::new()?),
            reports: EventBuffer::with_capacity(REPORTS),
            found: Vec::new(),
            flights: OpTable::new(),
            subjects: Subjects::default(),
            due: VecDeque::new(),
            parked: Vec::new(),
            deadlines: Deadlines::default(),
            ready: VecDeque::new(),
            faults: Faults::default(),
            repeated: Vec::new(),
        })
    }

    /// What the loop watches: readable when [`reap`](Self::reap) would find something.
    pub(crate) fn epoll(&self) -> Arc<Epoll> {
        Arc::clone(&self.epoll)
    }

    /// Starts an operation; its completion comes with a later [`reap`](Self::reap).
    pub(crate) fn start(&mut self, operation: Operation) -> OpId {
        let execution = Execution::new(operation);
        let queue = execution.queue();
        let id = self.flights.insert(Flight {
            execution,
            place: Place::Elsewhere,
        });
        match queue {
            Some((fd, direction)) => {
                let queue = self.subjects.queue(fd, direction);
                queue.operations.push_back(id);
                if queue.state == QueueState::Empty {
                    queue.state = QueueState::Due;
                    self.due.push_back(Task::Queue(fd, direction));
                }
            }
            None => self.due.push_back(Task::Single(id)),
        }
        id
    }

    /// Asks for an operation to be cancelled.
    pub(crate) fn cancel(&mut self, id: OpId) -> CancelOutcome {
        // Its place is kept until its completion is told.
        let Some(flight) = self.flights.take(id) else {
            return CancelOutcome::AlreadyComplete;
        };
        match (flight.execution.queue(), flight.place) {
            (Some((fd, direction)), _) => self.leave_queue(id, fd, direction),
            (None, Place::Subject(fd)) => {
                let singles = &mut self.subjects.at(fd).singles;
                singles.retain(|(single, _)| *single != id);
                self.subjects.left(fd);
            }
            (None, Place::Time) => self.forget_deadline(),
            // It is due, and will not be found.
            (None, Place::Elsewhere) => {}
        }
        let outcome = if flight.execution.has_begun() {
            CancelOutcome::Requested
        } else {
            CancelOutcome::Cancelled
        };
        let result = flight.execution.cancelled();
        self.ready.push_back(last(id, result, flight));
        outcome
    }

    /// How long a wait may take at most: zero if there is something to reap, else up to the next
    /// time-out of an operation.
    pub(crate) fn wait_limit(&self, pools: &BufferPools) -> Option<Duration> {
        let is_due = !self.ready.is_empty()
            || !self.due.is_empty()
            || !self.repeated.is_empty()
            || self.parked.iter().any(|(_, pool)| pools.has_room(*pool));
        if is_due {
            return Some(Duration::ZERO);
        }
        self.deadlines.until_next()
    }

    /// Does what can be done, and hands out what is complete. `is_ready`: the epoll instance was
    /// reported.
    pub(crate) fn reap(
        &mut self,
        pools: &BufferPools,
        is_ready: bool,
        mut sink: impl FnMut(Completion),
    ) -> io::Result<()> {
        while let Some(completion) = self.ready.pop_front() {
            self.flights.release(completion.id);
            sink(completion);
        }
        for (fd, events) in std::mem::take(&mut self.repeated) {
            self.reported(fd, events, &mut sink);
        }
        if is_ready {
            self.gather(&mut sink)?;
        }
        let (due, subjects) = (&mut self.due, &mut self.subjects);
        self.deadlines.expire(|task| {
            if resume(subjects, task, QueueState::Paused) {
                due.push_back(task);
            }
        });
        self.unpark(pools);
        // What is due again afterwards has its turn with the next.
        for _ in 0..self.due.len() {
            let Some(task) = self.due.pop_front() else {
                break;
            };
            match task {
                Task::Queue(fd, direction) => self.visit(fd, direction, pools, &mut sink),
                Task::Single(id) => self.try_single(id, pools, &mut sink),
            }
        }
        Ok(())
    }

    /// After a fork: an epoll instance of its own, of the same number; what is in flight is
    /// complete, as cancelled.
    pub(crate) fn reinit(&mut self) -> io::Result<Vec<Completion>> {
        self.epoll.renew()?;
        let mut back: Vec<Completion> = self.ready.drain(..).collect();
        for completion in &back {
            self.flights.release(completion.id);
        }
        for (id, flight) in self.flights.drain() {
            let result = flight.execution.cancelled();
            back.push(last(id, result, flight));
        }
        self.subjects.clear();
        self.due.clear();
        self.parked.clear();
        self.deadlines.clear();
        self.repeated.clear();
        Ok(back)
    }

    /// Has calls and reports go wrong, for tests.
    pub(crate) fn inject(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Takes an operation that is cancelled out of its queue, which may go on then.
    fn leave_queue(&mut self, id: OpId, fd: RawFd, direction: Direction) {
        let task = Task::Queue(fd, direction);
        let queue = self.subjects.queue(fd, direction);
        // Most often it is one of the last that were started.
        let at = queue.operations.iter().rposition(|one| *one == id);
        if let Some(at) = at {
            queue.operations.remove(at);
        }
        if at == Some(0) && queue.state != QueueState::Due {
            let before = queue.state;
            queue.state = if queue.operations.is_empty() {
                QueueState::Empty
            } else {
                self.due.push_back(task);
                QueueState::Due
            };
            match before {
                QueueState::Parked => self.parked.retain(|(parked, _)| *parked != task),
                QueueState::Paused => self.forget_deadline(),
                _ => {}
            }
        }
        self.subjects.left(fd);
    }

    fn forget_deadline(&mut self) {
        let (flights, subjects) = (&self.flights, &mut self.subjects);
        self.deadlines.note_cancelled(|task| match task {
            Task::Single(id) => flights.contains(id),
            Task::Queue(fd, direction) => subjects.queue(fd, direction).state == QueueState::Paused,
        });
    }

    /// Takes what the kernel reports.
    fn gather(&mut self, sink: Sink<'_>) -> io::Result<()> {
        self.epoll.wait(&mut self.reports, Some(Duration::ZERO))?;
        let mut found = std::mem::take(&mut self.found);
        // The data is the number, which `Subjects::arm` put in.
        let numbers = self
            .reports
            .iter()
            .map(|(events, data)| (data as RawFd, events));
        found.extend(numbers);
        for (fd, events) in found.drain(..) {
            match self.faults.next_report() {
                Some(ReportFault::Delayed) => {
                    self.repeated.push((fd, events));
                    continue;
                }
                Some(ReportFault::Duplicated) => self.repeated.push((fd, events)),
                Some(ReportFault::Spurious) => {
                    let due = &mut self.due;
                    self.subjects.disturb(|task| due.push_back(task));
                }
                None => {}
            }
            self.reported(fd, events, sink);
        }
        self.found = found;
        Ok(())
    }

    fn reported(&mut self, fd: RawFd, events: u32, sink: Sink<'_>) {
        let due = &mut self.due;
        let others = self
            .subjects
            .reported(fd, events, |task| due.push_back(task));
        if others != 0
            && let Err(error) = self.subjects.arm(&self.epoll, fd, others)
        {
            self.fail_waiting(fd, &error, sink);
        }
    }

    /// Queues that wait for buffers go on if there are any.
    fn unpark(&mut self, pools: &BufferPools) {
        let (due, subjects) = (&mut self.due, &mut self.subjects);
        self.parked.retain(|(task, pool)| {
            let has_room = pools.has_room(*pool);
            if has_room && resume(subjects, *task, QueueState::Parked) {
                due.push_back(*task);
            }
            !has_room
        });
    }

    /// Does the first operations of a queue.
    fn visit(&mut self, fd: RawFd, direction: Direction, pools: &BufferPools, sink: Sink<'_>) {
        for _ in 0..VISIT_STEPS {
            let first = self.subjects.queue(fd, direction).operations.front();
            let Some(id) = first.copied() else {
                self.subjects.queue(fd, direction).state = QueueState::Empty;
                self.subjects.left(fd);
                return;
            };
            let Some(flight) = self.flights.get_mut(id) else {
                unreachable!("who is in a queue is in flight");
            };
            match flight.execution.step(pools, &mut self.faults) {
                Step::Again => {}
                Step::Blocked(blocked) => {
                    let Err(error) = self.block_queue(fd, direction, blocked) else {
                        return;
                    };
                    if !self.can_do_without(id, &error) {
                        self.finish_first(fd, direction, Err(error), sink);
                    }
                }
                Step::Done(result) => self.finish_first(fd, direction, result, sink),
                Step::More(result) => sink(Completion {
                    id,
                    result,
                    operation: None,
                }),
            }
        }
        self.due.push_back(Task::Queue(fd, direction));
    }

    fn block_queue(&mut self, fd: RawFd, direction: Direction, blocked: Blocked) -> io::Result<()> {
        let task = Task::Queue(fd, direction);
        let state = match blocked {
            Blocked::Buffer(pool) => {
                self.parked.push((task, pool));
                QueueState::Parked
            }
            Blocked::Pause => {
                self.deadlines.push(PAUSE, task);
                QueueState::Paused
            }
            Blocked::Time(delay) => {
                self.deadlines.push(delay, task);
                QueueState::Paused
            }
            Blocked::Ready(on, events) => {
                debug_assert_eq!(on, fd, "a queue waits for its descriptor");
                self.subjects.arm(&self.epoll, fd, events)?;
                QueueState::Waiting
            }
        };
        self.subjects.queue(fd, direction).state = state;
        Ok(())
    }

    /// Does an operation that is in no queue.
    fn try_single(&mut self, id: OpId, pools: &BufferPools, sink: Sink<'_>) {
        let Some(flight) = self.flights.get_mut(id) else {
            // It was cancelled.
            return;
        };
        if let Place::Subject(fd) = std::mem::replace(&mut flight.place, Place::Elsewhere) {
            self.subjects.left(fd);
        }
        let result = match flight.execution.step(pools, &mut self.faults) {
            Step::Again => return self.due.push_back(Task::Single(id)),
            Step::Blocked(Blocked::Ready(fd, events)) => {
                flight.place = Place::Subject(fd);
                self.subjects.at(fd).singles.push((id, events));
                let Err(error) = self.subjects.arm(&self.epoll, fd, events) else {
                    return;
                };
                self.subjects.at(fd).singles.retain(|(one, _)| *one != id);
                self.subjects.left(fd);
                Err(error)
            }
            Step::Blocked(Blocked::Time(delay)) => {
                flight.place = Place::Time;
                return self.deadlines.push(delay, Task::Single(id));
            }
            Step::Blocked(Blocked::Pause | Blocked::Buffer(_)) => {
                flight.place = Place::Time;
                return self.deadlines.push(PAUSE, Task::Single(id));
            }
            Step::More(result) => {
                sink(Completion {
                    id,
                    result,
                    operation: None,
                });
                return self.due.push_back(Task::Single(id));
            }
            Step::Done(result) => result,
        };
        if let Some(flight) = self.flights.remove(id) {
            sink(last(id, result, flight));
        }
    }

    fn finish_first(
        &mut self,
        fd: RawFd,
        direction: Direction,
        result: io::Result<Outcome>,
        sink: Sink<'_>,
    ) {
        let queue = self.subjects.queue(fd, direction);
        let Some(id) = queue.operations.pop_front() else {
            return;
        };
        if let Some(flight) = self.flights.remove(id) {
            sink(last(id, result, flight));
        }
        self.subjects.left(fd);
    }

    /// Whether an operation can go on though its descriptor can't be waited for.
    fn can_do_without(&mut self, id: OpId, error: &io::Error) -> bool {
        error.raw_os_error() == Some(EPERM)
            && self
                .flights
                .get_mut(id)
                .is_some_and(|flight| flight.execution.do_without_waiting())
    }

    /// The kernel does not take back a registration (`ENOMEM`): whoever waits for it fails.
    #[cold]
    fn fail_waiting(&mut self, fd: RawFd, error: &io::Error, sink: Sink<'_>) {
        let again = || io::Error::from(error.kind());
        for (id, _) in std::mem::take(&mut self.subjects.at(fd).singles) {
            if let Some(flight) = self.flights.remove(id) {
                sink(last(id, Err(again()), flight));
            }
        }
        for direction in [Direction::In, Direction::Out] {
            let queue = self.subjects.queue(fd, direction);
            if queue.state == QueueState::Waiting {
                queue.state = QueueState::Due;
                self.due.push_back(Task::Queue(fd, direction));
                self.finish_first(fd, direction, Err(again()), sink);
            }
        }
        self.subjects.left(fd);
    }
}

/// Whether a task that was put aside goes on: a queue only if it is `from` that state.
fn resume(subjects: &mut Subjects, task: Task, from: QueueState) -> bool {
    let Task::Queue(fd, direction) = task else {
        return true;
    };
    let queue = subjects.queue(fd, direction);
    if queue.state != from {
        return false;
    }
    queue.state = QueueState::Due;
    true
}

fn last(id: OpId, result: io::Result<Outcome>, flight: Flight) -> Completion {
    Completion {
        id,
        result,
        operation: Some(flight.execution.into_operation()),
    }
}
