//! One thread of one connection: waits for its socket and for what wakes it, steps the connection, and
//! does its session's jobs.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_core::{EventId, Happened, Instant, Interest, Readiness, Trigger};
use windlass_sys::net;
use windlass_sys::poll::{self, PollFd};
use windlass_sys::wake::WakeFd;

use super::lanes::{Taken, now};
use super::threads::{ConnectionThreads, Phase};
use crate::demultiplexer::{events_of, readiness_of};
use crate::models::connection::{Connection, Gone, Host, JobRefused, JobSlot};
use crate::models::report::CutConnection;
use crate::models::room::Place;
use crate::session::{Job, Notifier, Peer, Service};

/// A thread's place on the roll; ends with the thread.
pub(super) struct Attendance<V: Service> {
    threads: Arc<ConnectionThreads<V>>,
    id: u64,
}

impl<V: Service> Attendance<V> {
    pub(super) fn new(threads: Arc<ConnectionThreads<V>>, id: u64) -> Self {
        Self { threads, id }
    }
}

impl<V: Service> Drop for Attendance<V> {
    fn drop(&mut self) {
        self.threads.note_end(self.id);
    }
}

/// Notes that the connection is closed.
struct Open<'a, V: Service>(&'a ConnectionThreads<V>);

impl<V: Service> Drop for Open<'_, V> {
    fn drop(&mut self) {
        self.0.note_closed();
    }
}

/// The life of the thread.
pub(super) fn serve<V: Service>(
    attendance: Attendance<V>,
    socket: Arc<OwnedFd>,
    peer: Peer,
    place: Place,
) {
    let threads = &*attendance.threads;
    // Dropped in the reverse order: the socket is closed by then, and its room free.
    let _open = Open(threads);
    let _place = place;
    // Not a TCP socket, or gone already: it works without, or the first read says so.
    let _ = net::set_nodelay(socket.as_fd());
    if let Some((thread, taken)) = ConnectionThread::open(threads, attendance.id, socket, &peer) {
        thread.run(taken);
    }
}

struct ConnectionThread<'a, V: Service> {
    threads: &'a ConnectionThreads<V>,
    id: u64,
    /// Before the connection, so that its descriptor is closed when the session is dropped.
    wake: OnceCell<Arc<Wake>>,
    connection: Connection<V, Arc<OwnedFd>>,
    /// How far the stop had come when this thread last looked.
    known: Phase,
    /// Whether the connection, which asks for nothing, was told that it is broken: it would be told
    /// again and again.
    told_broken: bool,
    opened_at: Instant,
}

/// What a wait, or a job, has brought.
enum Wait {
    Cut,
    Failed,
    Happened(Happened),
}

/// How often a thread looks after notifications that found no descriptor to be told by.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl<'a, V: Service> ConnectionThread<'a, V> {
    /// Opens the session; none if the service panicked.
    fn open(
        threads: &'a ConnectionThreads<V>,
        id: u64,
        socket: Arc<OwnedFd>,
        peer: &Peer,
    ) -> Option<(Self, Taken<V>)> {
        let mut taken = threads.lanes.take();
        let lane = &mut *taken.lane;
        let time = lane.now(now());
        let Some(session) = lane.open(peer, time) else {
            threads.lanes.put(taken);
            return None;
        };
        let thread = Self {
            threads,
            id,
            wake: OnceCell::new(),
            connection: Connection::new(socket, session, peer, Trigger::Level),
            known: Phase::Serving,
            told_broken: false,
            opened_at: time.monotonic,
        };
        Some((thread, taken))
    }

    fn run(mut self, mut taken: Taken<V>) {
        // A request often comes with the connection: it is looked for before anything is waited for.
        let mut what = Happened {
            readiness: Readiness::READ,
            ..NOTHING
        };
        loop {
            let (stepped, wanted) = self.step(&mut taken, what);
            self.threads.lanes.put(taken);
            if stepped.is_err() {
                return;
            }
            let waited = match wanted {
                Wanted::Again => Wait::Happened(by_itself()),
                Wanted::Job(job, slot) => self.do_job(job, &slot),
                Wanted::Nothing => self.wait(),
            };
            taken = self.threads.lanes.take();
            match waited {
                Wait::Happened(happened) => what = happened,
                Wait::Cut => {
                    self.threads.lanes.put(taken);
                    self.note_cut();
                    return;
                }
                Wait::Failed => {
                    taken.lane.counts.failed += 1;
                    self.threads.lanes.put(taken);
                    return;
                }
            }
        }
    }

    /// Steps the connection, and lets the service settle, as this thread waits next.
    fn step(&mut self, taken: &mut Taken<V>, what: Happened) -> (Result<(), Gone>, Wanted) {
        let lane = &mut *taken.lane;
        let time = lane.now(now());
        let mut host = ThreadHost {
            wake: &self.wake,
            ends_connections: self.threads.phase() != Phase::Serving,
            wanted: Wanted::Nothing,
        };
        let stepped = self.connection.step(lane, &mut host, what, time);
        let wanted = host.wanted;
        if lane.service.settles() {
            lane.settle(time);
        }
        (stepped, wanted)
    }

    fn do_job(&self, job: Job, slot: &JobSlot) -> Wait {
        self.threads.in_job(self.id, || {
            // Unwind safety: a job is; its panic is told.
            slot.put(job.run_contained());
        });
        if self.threads.phase() == Phase::Cut {
            return Wait::Cut;
        }
        Wait::Happened(by_itself())
    }

    /// Waits for what the connection waits for, a notification, or the next step of a stop.
    fn wait(&mut self) -> Wait {
        loop {
            let interest = self.connection.interest();
            self.told_broken &= interest.is_none();
            let socket = self.connection.transport().as_raw_fd();
            let wake = self.wake.get();
            let mut fds = [
                PollFd::new(numbered(socket, !self.told_broken), events_of(interest)),
                PollFd::new(self.threads.bell_after(self.known).as_raw_fd(), poll::IN),
                PollFd::new(wake.map_or(SKIPPED, |wake| wake.number()), poll::IN),
            ];
            let deadline = self.connection.deadline();
            let Ok(count) = poll::poll(&mut fds, self.timeout(deadline)) else {
                return Wait::Failed;
            };
            let mut happened = NOTHING;
            if count > 0 {
                let [socket, bell, wake_up] = fds.map(|fd| fd.found());
                if bell != 0 {
                    self.known = self.threads.phase();
                    if self.known == Phase::Cut {
                        return Wait::Cut;
                    }
                    happened.user = true;
                }
                if wake_up != 0
                    && let Some(wake) = wake
                {
                    happened.user |= wake.hear();
                }
                happened.readiness = readiness_of(socket);
                self.told_broken = socket != 0 && interest.is_none();
            }
            happened.user |= wake.is_some_and(|wake| wake.take());
            happened.timed_out = deadline != Instant::FAR && deadline <= now();
            if happened != NOTHING {
                return Wait::Happened(happened);
            }
        }
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        let left = (deadline != Instant::FAR).then(|| deadline.saturating_since(now()));
        if self.wake.get().is_some_and(|wake| wake.fd.is_none()) {
            return Some(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)));
        }
        left
    }

    fn note_cut(&self) {
        let (peer, phase, queued_bytes) = self.connection.summary();
        self.threads.note_cut(
            self.id,
            CutConnection {
                peer,
                phase,
                age: now().saturating_since(self.opened_at),
                queued_bytes,
            },
        );
    }
}

/// Of a descriptor that is not waited for.
const SKIPPED: RawFd = -1;

fn numbered(number: RawFd, is_wanted: bool) -> RawFd {
    if is_wanted { number } else { SKIPPED }
}

/// No engine's event.
const NOTHING: Happened = Happened::nothing(EventId::from_bits(u32::MAX as u64));

fn by_itself() -> Happened {
    Happened {
        user: true,
        ..NOTHING
    }
}

/// What wakes a thread beside its socket; made when its session first asks for a notifier.
struct Wake {
    /// None if there was no descriptor left: the thread looks from time to time.
    fd: Option<WakeFd>,
    rung: AtomicBool,
}

impl Wake {
    fn new() -> Self {
        Self {
            fd: WakeFd::new().ok(),
            rung: AtomicBool::new(false),
        }
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        if let Some(fd) = &self.fd {
            // It can't fail: it is open.
            let _ = fd.notify();
        }
    }

    /// Hears the descriptor, which was found readable. That is so too if a ring was
    /// [taken](Self::take) between its mark and its write.
    fn hear(&self) -> bool {
        if let Some(fd) = &self.fd {
            // Before the mark is taken: what rings after it is heard.
            let _ = fd.drain();
        }
        self.take();
        true
    }

    /// Takes the ring, if there was one.
    fn take(&self) -> bool {
        self.rung.load(Ordering::Relaxed) && self.rung.swap(false, Ordering::AcqRel)
    }

    fn number(&self) -> RawFd {
        self.fd
            .as_ref()
            .map_or(SKIPPED, |fd| fd.as_fd().as_raw_fd())
    }
}

/// What the connection wants of its thread after a step.
enum Wanted {
    Again,
    Job(Job, JobSlot),
    Nothing,
}

/// The thread, as the connection's driver. It looks itself what the connection waits for.
struct ThreadHost<'a> {
    wake: &'a OnceCell<Arc<Wake>>,
    ends_connections: bool,
    wanted: Wanted,
}

impl Host for ThreadHost<'_> {
    fn notifier(&self) -> Notifier {
        let wake = self.wake.get_or_init(|| Arc::new(Wake::new()));
        // Weak: a notifier that outlives the connection keeps no descriptor.
        let wake = Arc::downgrade(wake);
        Notifier::new(move || {
            if let Some(wake) = wake.upgrade() {
                wake.ring();
            }
        })
    }

    fn call_again(&mut self) {
        if matches!(self.wanted, Wanted::Nothing) {
            self.wanted = Wanted::Again;
        }
    }

    fn watch(&mut self, _interest: Interest) {}

    fn arm(&mut self, _deadline: Instant) {}

    fn start_job(&mut self, job: Job, slot: JobSlot) -> Result<(), JobRefused> {
        self.wanted = Wanted::Job(job, slot);
        Ok(())
    }

    fn ends_connections(&self) -> bool {
        self.ends_connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_taken_before_its_write_leaves_nothing_to_be_heard_for_ever() {
        let wake = Wake::new();
        let fd = wake.fd.as_ref().expect("a descriptor");
        let is_heard = || {
            let mut fds = [PollFd::new(wake.number(), poll::IN)];
            poll::poll(&mut fds, Some(Duration::ZERO)).expect("poll") > 0
        };
        // The first half of a ring, a look, and the second half.
        wake.rung.store(true, Ordering::Release);
        assert!(wake.take() && !wake.take());
        fd.notify().expect("notify");
        assert!(is_heard() && wake.hear());
        assert!(!is_heard() && !wake.take());
        wake.ring();
        assert!(is_heard() && wake.hear() && !is_heard());
    }
}
