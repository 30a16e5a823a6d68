//! The server of a crew: opens it, runs its threads, and sums up.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use windlass_core::Trigger;
use windlass_sys::wake::WakeFd;

use super::acceptor::CrewAcceptor;
use super::book::Book;
use super::seat::Seat;
use super::watch::{Due, Watch};
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
    /// What was answered.
    ended: Option<ServerReport>,
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
            watch: Watch::default(),
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
            ended: None,
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

    /// Serves until it is stopped; the calling thread keeps the watch. A second call answers the
    /// same.
    pub(in crate::models) fn run(&mut self) -> Result<ServerReport, RunError> {
        let members = std::mem::take(&mut self.members);
        if !members.is_empty() {
            self.serve(members)?;
        }
        let crew = &self.crew;
        Ok(*self.ended.get_or_insert_with(|| {
            let mut report: ServerReport = crew.seats.iter().map(Seat::report).sum();
            report.cut += crew.book.cuts().0;
            report
        }))
    }

    fn serve(&mut self, members: Vec<Member<Hand<V>>>) -> Result<(), RunError> {
        let crew = Arc::clone(&self.crew);
        let mut threads = Vec::with_capacity(members.len() + 1);
        let started = self.start(members, &mut threads);
        if started.is_err() {
            crew.cut();
        }
        let indices: Vec<_> = threads.iter().map(|&(index, _)| index).collect();
        // A job that was cut may never end.
        let at_job = |index| crew.seats.get(index).is_some_and(Seat::is_at_job);
        let mut panicked = None;
        while crew.watch.wait(&indices, at_job) == Due::Cut {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| crew.cut())) {
                panicked = Some(panic);
            }
        }
        crew.book.shut_down_lasting();
        let mut ended = Ok(());
        for (index, thread) in threads {
            // The others are stuck, and left to themselves.
            if crew.watch.has_ended(index) {
                let ran = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                ended = ended.and(ran);
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        ended.and(started)
    }

    /// Starts the threads: those that call sessions, by their index, then the one that waits.
    fn start(
        &mut self,
        members: Vec<Member<Hand<V>>>,
        threads: &mut Vec<(usize, JoinHandle<Result<(), RunError>>)>,
    ) -> Result<(), RunError> {
        let mut spawn = |index, name, run: Box<dyn FnOnce() -> _ + Send>| {
            let spawned = thread::Builder::new().name(name).spawn(run);
            threads.push((
                index,
                spawned.map_err(|source| RunError::Thread { source })?,
            ));
            Ok(())
        };
        for (index, member) in members.into_iter().enumerate() {
            let end = End {
                crew: Arc::clone(&self.crew),
                index,
            };
            let service = Arc::clone(&self.service);
            let name = format!("{}-{index}", self.name);
            spawn(index, name, Box::new(move || work(&end, &member, service)))?;
        }
        if let Some(dispatcher) = self.dispatcher.take() {
            let end = End {
                crew: Arc::clone(&self.crew),
                index: self.crew.seats.len(),
            };
            let run = move || {
                let _end = end;
                dispatcher.run_dispatcher()
            };
            spawn(self.crew.seats.len(), "dispatcher".into(), Box::new(run))?;
        }
        Ok(())
    }
}

/// What a thread does that calls sessions.
fn work<V: Service>(
    end: &End<V>,
    member: &Member<Hand<V>>,
    service: Arc<V>,
) -> Result<(), RunError> {
    let crew = &end.crew;
    let mut hand = Hand::new(Arc::clone(crew), end.index, service);
    let result = member.run(&mut hand, HandLife);
    hand.settle(crew.handles.clock());
    hand.seat().set_report(hand.lane.counts);
    result
}

/// Tells of a thread's end, however that comes: if by a panic, nobody would do what it did.
struct End<V: Service> {
    crew: Arc<Crew<V>>,
    index: usize,
}

impl<V: Service> Drop for End<V> {
    fn drop(&mut self) {
        self.crew.handles.stop();
        if let Some(seat) = self.crew.seats.get(self.index) {
            seat.close();
        }
        self.crew.watch.note_end(self.index);
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
