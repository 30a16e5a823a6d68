//! A seat: how one thread of a crew is reached from others.

use std::sync::{Arc, Mutex};

use windlass_sys::wake::WakeFd;

use super::connection::CrewConnection;
use super::{Hand, lock};
use crate::event_loop::PostError;
use crate::models::report::ServerReport;
use crate::models::server::Visit;
use crate::session::Service;
use crate::thread_set::Caller;

/// See the module. Locks are held for single changes.
pub(super) struct Seat<V: Service> {
    caller: Caller<Hand<V>>,
    /// Wakes a thread that stays with a connection; only such threads have one.
    bell: Option<Arc<WakeFd>>,
    inbox: Mutex<Inbox<V>>,
    work: Mutex<Work<V>>,
    /// What the thread had counted when it was last asked.
    report: Mutex<ServerReport>,
}

struct Inbox<V: Service> {
    posts: Vec<Visit<V>>,
    is_closed: bool,
}

/// What the thread is at, as far as others must know.
enum Work<V: Service> {
    /// It does the job of this connection, which may take for ever. None: that was cut.
    Job(Option<CrewConnection<V>>),
    Other,
}

impl<V: Service> Seat<V> {
    pub(super) fn new(caller: Caller<Hand<V>>, bell: Option<Arc<WakeFd>>) -> Self {
        Self {
            caller,
            bell,
            inbox: Mutex::new(Inbox {
                posts: Vec::new(),
                is_closed: false,
            }),
            work: Mutex::new(Work::Other),
            report: Mutex::default(),
        }
    }

    pub(super) fn bell(&self) -> Option<&Arc<WakeFd>> {
        self.bell.as_ref()
    }

    pub(super) fn post(&self, visit: Visit<V>) -> Result<(), PostError> {
        {
            let mut inbox = lock(&self.inbox);
            if inbox.is_closed {
                return Err(PostError);
            }
            inbox.posts.push(visit);
        }
        self.caller.call();
        if let Some(bell) = &self.bell {
            // It can't fail: it is open as long as this, and a full counter wakes too.
            let _ = bell.notify();
        }
        Ok(())
    }

    pub(super) fn take_posts(&self) -> Vec<Visit<V>> {
        std::mem::take(&mut lock(&self.inbox).posts)
    }

    /// The thread has ended: posts are dropped.
    pub(super) fn close(&self) {
        let posts = {
            let mut inbox = lock(&self.inbox);
            inbox.is_closed = true;
            std::mem::take(&mut inbox.posts)
        };
        drop(posts);
    }

    /// The thread goes to do a job of `connection`. Answers whether it is to: if connections are
    /// cut, this one is.
    pub(super) fn begin_job(
        &self,
        connection: CrewConnection<V>,
        is_cut: impl FnOnce() -> bool,
    ) -> bool {
        let cut = {
            let mut work = lock(&self.work);
            // Under the lock: whoever cuts has said so before it looks for the job.
            if is_cut() {
                Some(connection)
            } else {
                *work = Work::Job(Some(connection));
                None
            }
        };
        cut.is_none()
    }

    /// The job is done; the connection is gone if it was cut meanwhile.
    pub(super) fn end_job(&self) -> Option<CrewConnection<V>> {
        match std::mem::replace(&mut *lock(&self.work), Work::Other) {
            Work::Job(connection) => connection,
            Work::Other => None,
        }
    }

    /// Cuts the connection whose job the thread does. The job goes on.
    pub(super) fn cut_job(&self) {
        let cut = match &mut *lock(&self.work) {
            Work::Job(connection) => connection.take(),
            Work::Other => None,
        };
        drop(cut);
    }

    /// Whether the thread does a job.
    pub(super) fn is_at_job(&self) -> bool {
        matches!(*lock(&self.work), Work::Job(_))
    }

    pub(super) fn set_report(&self, report: ServerReport) {
        *lock(&self.report) = report;
    }

    pub(super) fn report(&self) -> ServerReport {
        *lock(&self.report)
    }
}
