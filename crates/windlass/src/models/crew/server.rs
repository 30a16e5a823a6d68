//! The server of a crew: opens it, runs its threads, and sums up.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use windlass_core::Trigger;
use windlass_sys::wake::WakeFd;

use super::acceptor::CrewAcceptor;
use super::book::Book;
use super::seat::Seat;
use super::{Crew, Doorbell, Hand, HandLife, Stay};
use crate::event_loop::{PostError, RunError, SlowHandler};
use crate::models::builder::ServerBuilder;
use crate::models::handle::StopHandle;
use crate::models::listening::BindError;
use crate::models::report::{CutConnection, ServerReport};
use crate::models::room::Room;
use crate::models::server::ThreadHandle;
use crate::session::Service;
use crate::thread_set::{HandleOptions, Member, Rank, ThreadSet, WhenEmpty};

/// What is special to one model of this kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct CrewParts {
    /// How many threads call sessions, at least one.
    pub(in crate::models) threads: usize,
    /// Who waits: `Waits` if a thread does nothing else.
    pub(in crate::models) leader: Rank,
    pub(in crate::models) stay: Stay,
    /// What the threads are named after.
    pub(in crate::models) name: &'static str,
}

/// See the module.
pub(in crate::models) struct CrewServer<V: Service> {
    service: Arc<V>,
    crew: Arc<Crew<V>>,
    /// The members that call sessions; gone when the server has run.
    members: Vec<Member<Hand<V>>>,
    /// The one that only waits.
    dispatcher: Option<Member<Hand<V>>>,
    addrs: Vec<SocketAddr>,
    name: &'static str,
    ends: Arc<Ends>,
}

/// Which threads have ended.
#[derive(Debug, Default)]
struct Ends {
    ended: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl<V: Service> CrewServer<V> {
    /// Opens sockets and the set of threads, which start when the server [runs](Self::run).
    pub(in crate::models) fn open<M>(
        mut builder: ServerBuilder<V, M>,
        parts: CrewParts,
    ) -> Result<Self, BindError> {
        let mut opened = std::mem::take(&mut builder.listening).open(1)?;
        let sockets: Vec<_> = opened.loops.pop().unwrap_or_default();
        let sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
        let backend = &builder.config.backend;
        let set = match parts.leader {
            Rank::Handles => ThreadSet::with_config(backend, WhenEmpty::GoOn),
            Rank::Waits => ThreadSet::with_dispatcher(backend),
        }
        .map_err(BindError::Loop)?;
        let pool = match parts.stay {
            Stay::No => Some(builder.take_pool()?),
            Stay::UntilDone => None,
        };
        let handles = set.handles();
        let mut seats = Vec::with_capacity(parts.threads);
        let mut bells = Vec::new();
        let mut members = Vec::with_capacity(parts.threads);
        for _ in 0..parts.threads {
            let member = set.enlist(Rank::Handles);
            let bell = match parts.stay {
                Stay::No => None,
                Stay::UntilDone => Some(Arc::new(WakeFd::new().map_err(BindError::Register)?)),
            };
            bells.extend(bell.clone());
            seats.push(Seat::new(member.caller(), bell));
            members.push(member);
        }
        let dispatcher = (parts.leader == Rank::Waits).then(|| set.enlist(Rank::Waits));
        let features = handles.backend().features();
        let crew = Crew {
            book: Arc::new(Book::new(handles.downgrade(), bells, sockets.len())),
            room: Arc::new(Room::new(1, builder.limits.connections_max)),
            doorbell: Arc::new(Doorbell(handles.downgrade())),
            handles,
            pool,
            stay: parts.stay,
            trigger: if features.edge_triggered {
                Trigger::Edge
            } else {
                Trigger::Level
            },
            limits: Mutex::new(builder.limits),
            acceptors: Mutex::default(),
            listeners: sockets.iter().map(Arc::downgrade).collect(),
            files: opened.files.iter().map(Arc::downgrade).collect(),
            seats: seats.into_boxed_slice(),
        };
        for socket in sockets {
            let acceptor = CrewAcceptor::new(socket, Arc::clone(&crew.book));
            let event = crew
                .handles
                .register_handle(Box::new(acceptor), HandleOptions::default())
                .map_err(|error| BindError::Register(error.into()))?;
            crew.note_acceptor(event);
        }
        Ok(Self {
            service: builder.service,
            crew: Arc::new(crew),
            members,
            dispatcher,
            addrs: opened.addrs,
            name: parts.name,
            ends: Arc::default(),
        })
    }

    pub(in crate::models) fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    pub(in crate::models) fn threads_count(&self) -> usize {
        self.crew.seats.len()
    }

    pub(in crate::models) fn stop_handle(&self) -> StopHandle {
        let crew = Arc::downgrade(&self.crew);
        StopHandle::new(move || {
            crew.upgrade().ok_or(PostError)?.stop();
            Ok(())
        })
    }

    pub(in crate::models) fn threads(&self) -> Vec<ThreadHandle<V>> {
        let indices = 0..self.crew.seats.len();
        indices
            .map(|index| {
                let crew = Arc::downgrade(&self.crew);
                ThreadHandle::new(move |visit| {
                    crew.upgrade().ok_or(PostError)?.seats[index].post(visit)
                })
            })
            .collect()
    }

    pub(in crate::models) fn cut_connections(&self) -> Vec<CutConnection> {
        self.crew.book.cuts().1
    }

    /// There are no event loops.
    pub(in crate::models) fn slow_handlers(&self) -> Vec<SlowHandler> {
        Vec::new()
    }

    /// Serves until it is stopped; the calling thread waits, or takes part. A second call answers
    /// the same.
    pub(in crate::models) fn run(&mut self) -> Result<ServerReport, RunError> {
        let members = std::mem::take(&mut self.members);
        if !members.is_empty() {
            self.serve(members)?;
        }
        let mut report: ServerReport = self.crew.seats.iter().map(Seat::report).sum();
        report.cut += self.crew.book.cuts().0;
        Ok(report)
    }

    fn serve(&mut self, members: Vec<Member<Hand<V>>>) -> Result<(), RunError> {
        let mut works: Vec<_> = members
            .into_iter()
            .enumerate()
            .map(|(index, member)| Work {
                crew: Arc::clone(&self.crew),
                service: Arc::clone(&self.service),
                ends: Arc::clone(&self.ends),
                member,
                index,
            })
            .collect();
        let dispatcher = self.dispatcher.take();
        let own = dispatcher.is_none().then(|| works.remove(0));
        let mut threads = Vec::with_capacity(works.len());
        let mut started = Ok(());
        for work in works {
            let (index, name) = (work.index, format!("{}-{}", self.name, work.index));
            match thread::Builder::new().name(name).spawn(move || work.run()) {
                Ok(thread) => threads.push((index, thread)),
                Err(source) => {
                    started = Err(RunError::Thread { source });
                    self.crew.handles.stop();
                    break;
                }
            }
        }
        // Unwind safety: the server is as after any end, and is not run again.
        let ran = catch_unwind(AssertUnwindSafe(|| match (own, dispatcher) {
            (Some(work), _) => work.run(),
            (None, Some(dispatcher)) => dispatcher.run_dispatcher(),
            (None, None) => Ok(()),
        }));
        // The set has ended, or does now: by a stop there is nothing left to cut.
        self.crew.handles.stop();
        self.crew.cut();
        let joined = self.join(threads);
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        joined.and(started)
    }

    /// Waits until all threads have ended, but for those at a job that was cut: it may never end.
    fn join(
        &self,
        threads: Vec<(usize, JoinHandle<Result<(), RunError>>)>,
    ) -> Result<(), RunError> {
        let mut ended = self.ends.lock();
        let is_left = |ended: &[usize], index: usize| {
            !ended.contains(&index) && !self.crew.seats[index].is_at_job()
        };
        while threads.iter().any(|&(index, _)| is_left(&ended, index)) {
            ended = self
                .ends
                .changed
                .wait(ended)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let has_ended = ended.clone();
        drop(ended);
        let mut result = Ok(());
        for (index, thread) in threads {
            if has_ended.contains(&index) {
                let ran = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                result = result.and(ran);
            }
        }
        result
    }
}

impl Ends {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thread does.
struct Work<V: Service> {
    crew: Arc<Crew<V>>,
    service: Arc<V>,
    ends: Arc<Ends>,
    member: Member<Hand<V>>,
    index: usize,
}

impl<V: Service> Work<V> {
    fn run(self) -> Result<(), RunError> {
        // However it ends: if by a panic, nobody would do what it did.
        let _end = End(&self);
        let mut hand = Hand::new(
            Arc::clone(&self.crew),
            self.index,
            Arc::clone(&self.service),
        );
        let result = self.member.run(&mut hand, HandLife);
        hand.settle(self.crew.handles.clock());
        hand.seat().set_report(hand.lane.counts);
        result
    }
}

/// Tells of a thread's end.
struct End<'a, V: Service>(&'a Work<V>);

impl<V: Service> Drop for End<'_, V> {
    fn drop(&mut self) {
        let Work {
            crew, ends, index, ..
        } = self.0;
        crew.handles.stop();
        crew.seats[*index].close();
        ends.lock().push(*index);
        ends.changed.notify_all();
    }
}

impl<V: Service> fmt::Debug for CrewServer<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrewServer")
            .field("addrs", &self.addrs)
            .field("threads", &self.crew.seats.len())
            .finish_non_exhaustive()
    }
}
