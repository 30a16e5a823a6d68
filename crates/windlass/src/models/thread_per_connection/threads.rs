//! The threads of all connections, as their acceptor sees them.
//!
//! # Stop
//!
//! ```text
//! Serving ──▶ Ending (the stop bell rings: each thread tells its connection) ──▶ Cut (the cut bell
//! rings: each thread ends; sockets of threads that do a job are shut down for them)
//! ```
//!
//! Each thread waits for its socket and for the next bell. A bell is an eventfd that is rung once and
//! never emptied.
//!
//! # Threads
//!
//! A thread that ends is joined by the next one that does, the last one by the server: nobody has to
//! be woken for it. Whoever does a job is not waited for.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use windlass_core::Instant;
use windlass_sys::net;
use windlass_sys::wake::WakeFd;

use super::connection_thread::{self, Attendance};
use super::lanes::{Lanes, now};
use crate::models::carrier::{Arrival, Carrier};
use crate::models::limits::END_PATIENCE;
use crate::models::report::{ConnectionPhase, CutConnection};
use crate::session::{Peer, Service};

/// See the module.
pub(super) struct ConnectionThreads<V: Service> {
    /// Itself, for its threads.
    me: Weak<Self>,
    pub(super) lanes: Lanes<V>,
    stack_bytes: usize,
    phase: AtomicU8,
    stop_bell: WakeFd,
    cut_bell: WakeFd,
    /// Connections that are open. With the phase it decides who looks after the end: both are
    /// sequentially consistent, so that at least one side sees the other.
    open: AtomicUsize,
    roll: Mutex<Roll>,
    /// A thread ended, or began a job.
    left: Condvar,
    /// Has the acceptor's loop look after its end.
    wake_acceptor: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Who is there.
#[derive(Default)]
struct Roll {
    members: HashMap<u64, Member>,
    next: u64,
    /// Of these, such as do a job, which may never end.
    in_job: usize,
    /// The last thread that ended, to be joined.
    last: Option<JoinHandle<()>>,
    cuts: Vec<CutConnection>,
}

struct Member {
    socket: Weak<OwnedFd>,
    peer: Peer,
    opened_at: Instant,
    in_job: bool,
    /// Whether the cut has said for it what it was at.
    is_told: bool,
    /// Given in once it is started.
    thread: Option<JoinHandle<()>>,
    has_ended: bool,
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    Ending,
    Cut,
}

const ENDING: u8 = 1;
const CUT: u8 = 2;
/// So many of those that are cut are written down.
const CUTS_MAX: usize = 32;

impl<V: Service> ConnectionThreads<V> {
    pub(super) fn new(lanes: Lanes<V>, stack_bytes: usize) -> io::Result<Arc<Self>> {
        let (stop_bell, cut_bell) = (WakeFd::new()?, WakeFd::new()?);
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            lanes,
            stack_bytes,
            phase: AtomicU8::new(0),
            stop_bell,
            cut_bell,
            open: AtomicUsize::new(0),
            roll: Mutex::default(),
            left: Condvar::new(),
            wake_acceptor: OnceLock::new(),
        }))
    }

    /// Says how the acceptor's loop is woken; once, before it runs.
    pub(super) fn set_acceptor(&self, wake: impl Fn() + Send + Sync + 'static) {
        let set = self.wake_acceptor.set(Box::new(wake));
        debug_assert!(set.is_ok(), "there is one acceptor");
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Serving,
            ENDING => Phase::Ending,
            _ => Phase::Cut,
        }
    }

    /// What tells of the phase after `known`: readable when that has come.
    pub(super) fn bell_after(&self, known: Phase) -> BorrowedFd<'_> {
        match known {
            Phase::Serving => self.stop_bell.as_fd(),
            Phase::Ending | Phase::Cut => self.cut_bell.as_fd(),
        }
    }

    fn go_to(&self, phase: u8, bell: &WakeFd) {
        self.phase.fetch_max(phase, Ordering::SeqCst);
        // It can't fail: it is open, and a full counter rings too.
        let _ = bell.notify();
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `job`, which may take for ever, for member `id`; not if it is cut.
    pub(super) fn in_job(&self, id: u64, job: impl FnOnce()) {
        self.note_job(id, true);
        // A cut that comes after this finds it in its job.
        if self.phase() != Phase::Cut {
            job();
        }
        self.note_job(id, false);
    }

    fn note_job(&self, id: u64, begins: bool) {
        let mut roll = self.roll();
        if begins {
            roll.in_job += 1;
        } else {
            roll.in_job -= 1;
        }
        if let Some(member) = roll.members.get_mut(&id) {
            member.in_job = begins;
        }
        drop(roll);
        if begins && self.phase() == Phase::Cut {
            self.left.notify_all();
        }
    }

    /// Writes down what a connection was at that is cut, by its own thread.
    pub(super) fn note_cut(&self, id: u64, cut: CutConnection) {
        let mut roll = self.roll();
        let is_told = roll.members.get(&id).is_some_and(|member| member.is_told);
        if !is_told && roll.cuts.len() < CUTS_MAX {
            roll.cuts.push(cut);
        }
    }

    /// The connection of a thread is closed.
    pub(super) fn note_closed(&self) {
        let was_last = self.open.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last
            && self.phase() != Phase::Serving
            && let Some(wake) = self.wake_acceptor.get()
        {
            wake();
        }
    }

    /// Thread `id` ends: joins the one that ended before it, and leaves its own handle to the next.
    pub(super) fn note_end(&self, id: u64) {
        let mut roll = self.roll();
        let before = match roll.members.get_mut(&id) {
            // It is being started: whoever does that keeps the handle.
            Some(member) if member.thread.is_none() => {
                member.has_ended = true;
                None
            }
            _ => roll.end(id),
        };
        let nobody_is_left = roll.members.is_empty();
        drop(roll);
        if nobody_is_left || self.phase() == Phase::Cut {
            self.left.notify_all();
        }
        if let Some(thread) = before {
            // It contains its panics.
            let _ = thread.join();
        }
    }

    /// Waits until all threads have ended that are not in a job; not for long if they are stuck.
    pub(super) fn wait_for_end(&self) -> Vec<CutConnection> {
        let deadline = std::time::Instant::now() + END_PATIENCE;
        let mut roll = self.roll();
        while roll.members.len() > roll.in_job {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            (roll, _) = self
                .left
                .wait_timeout(roll, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // Those that are stuck.
        roll.members.values().for_each(Member::shut_down);
        let last = roll.last.take();
        let cuts = std::mem::take(&mut roll.cuts);
        drop(roll);
        if let Some(thread) = last {
            let _ = thread.join();
        }
        cuts
    }

    fn spawn(&self, arrival: Arrival) -> Result<(), Arrival> {
        let me = self.me.upgrade().expect("whoever calls holds it");
        let Arrival {
            socket,
            peer,
            place,
        } = arrival;
        let socket = Arc::new(socket);
        let id = {
            let mut roll = self.roll();
            roll.next += 1;
            let id = roll.next;
            roll.members.insert(id, Member::new(&socket, peer));
            id
        };
        self.open.fetch_add(1, Ordering::SeqCst);
        // A thread that can't be started drops its closure; the connection must outlive that.
        let luggage = Arc::new(Mutex::new(Some((socket, place))));
        let theirs = Arc::clone(&luggage);
        let builder = thread::Builder::new()
            .name("connection".into())
            .stack_size(self.stack_bytes);
        let spawned = builder.spawn(move || {
            let taken = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(theirs);
            if let Some((socket, place)) = taken {
                connection_thread::serve(Attendance::new(me, id), socket, peer, place);
            }
        });
        match spawned {
            Ok(thread) => {
                let before = self.roll().give_in(id, thread);
                if let Some(before) = before {
                    // It ended before this one did, which has.
                    let _ = before.join();
                }
                Ok(())
            }
            Err(_) => {
                self.roll().members.remove(&id);
                self.open.fetch_sub(1, Ordering::SeqCst);
                let taken = luggage
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let (socket, place) = taken.expect("no thread has taken it");
                let socket = Arc::into_inner(socket).expect("nobody else has it");
                Err(Arrival {
                    socket,
                    peer,
                    place,
                })
            }
        }
    }
}

impl Member {
    fn new(socket: &Arc<OwnedFd>, peer: Peer) -> Self {
        Self {
            socket: Arc::downgrade(socket),
            peer,
            opened_at: now(),
            in_job: false,
            is_told: false,
            thread: None,
            has_ended: false,
        }
    }

    /// Ends its connection for its peer.
    fn shut_down(&self) {
        if let Some(socket) = self.socket.upgrade() {
            // It fails if the peer has ended it.
            let _ = net::shutdown_both(socket.as_fd());
        }
    }

    /// What is cut, said for a thread that can't: it does a job.
    fn cut(&self, time: Instant) -> CutConnection {
        CutConnection {
            peer: self.peer,
            phase: ConnectionPhase::WaitingForJob,
            age: time.saturating_since(self.opened_at),
            queued_bytes: 0,
        }
    }
}

impl Roll {
    /// Takes the handle of a thread that was started. If that has ended already, answers the one
    /// that ended before it.
    fn give_in(&mut self, id: u64, thread: JoinHandle<()>) -> Option<JoinHandle<()>> {
        let member = self.members.get_mut(&id)?;
        member.thread = Some(thread);
        if member.has_ended { self.end(id) } else { None }
    }

    /// Strikes a thread off; answers the one that ended before it.
    fn end(&mut self, id: u64) -> Option<JoinHandle<()>> {
        let thread = self.members.remove(&id)?.thread;
        std::mem::replace(&mut self.last, thread)
    }
}

impl<V: Service> Carrier for ConnectionThreads<V> {
    fn carry(&self, arrival: Arrival) -> Result<(), Arrival> {
        self.spawn(arrival)
    }

    fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn end_connections(&self) {
        self.go_to(ENDING, &self.stop_bell);
    }

    fn cut(&self, time: Instant) -> (usize, Vec<CutConnection>) {
        // Before they know of it.
        let count = self.open_connections();
        // Those that wait for the stop first must be woken too.
        self.go_to(CUT, &self.cut_bell);
        self.go_to(CUT, &self.stop_bell);
        let mut list = Vec::new();
        let mut roll = self.roll();
        for member in roll.members.values_mut().filter(|member| member.in_job) {
            member.shut_down();
            // A second cut has nothing new to tell.
            if list.len() < CUTS_MAX && !std::mem::replace(&mut member.is_told, true) {
                list.push(member.cut(time));
            }
        }
        (count, list)
    }
}
