//! The descriptors that operations are on: who waits for each, and what its kernel set reports.
//!
//! # Invariants
//!
//! - `armed` is what the kernel will report of a descriptor, or less, as long as anyone is at it.
//!   When the last is gone it is forgotten: the number may be another file's by the next time.
//! - A registration stays in the set when nobody waits, disarmed or about to report once, in vain.
//!   So a descriptor that is waited for again and again costs one system call each time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use windlass_sys::epoll::{self, Epoll};
use windlass_sys::errno::{EEXIST, ENOENT};
use windlass_sys::operation::OpId;
use windlass_sys::operation::execution::Direction;

use super::Task;

/// By number: small and dense.
#[derive(Debug, Default)]
pub(super) struct Subjects {
    all: Vec<Subject>,
}

/// One descriptor.
#[derive(Debug, Default)]
pub(super) struct Subject {
    pub(super) taking: Queue,
    pub(super) putting: Queue,
    /// Operations without an order that wait for these flags.
    pub(super) singles: Vec<(OpId, u32)>,
    armed: u32,
    is_registered: bool,
}

/// Operations of one direction, in the order of their start; the first is tried.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) operations: VecDeque<OpId>,
    pub(super) state: QueueState,
}

/// What a queue's first operation waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum QueueState {
    /// There is none.
    #[default]
    Empty,
    /// Its turn.
    Due,
    /// Readiness.
    Waiting,
    /// A buffer.
    Parked,
    /// That a while has passed.
    Paused,
}

const BROKEN: u32 = epoll::ERR | epoll::HUP;
const TAKING: u32 = epoll::IN | epoll::PRI | epoll::RDHUP | BROKEN;
const PUTTING: u32 = epoll::OUT | BROKEN;

impl Subjects {
    /// The place of `fd`, which is open.
    pub(super) fn at(&mut self, fd: RawFd) -> &mut Subject {
        let index = usize::try_from(fd).unwrap_or(0);
        if index >= self.all.len() {
            self.all.resize_with(index + 1, Subject::default);
        }
        &mut self.all[index]
    }

    pub(super) fn queue(&mut self, fd: RawFd, direction: Direction) -> &mut Queue {
        let subject = self.at(fd);
        match direction {
            Direction::In => &mut subject.taking,
            Direction::Out => &mut subject.putting,
        }
    }

    /// Has the kernel report `events` of `fd`, once.
    pub(super) fn arm(&mut self, epoll: &Epoll, fd: RawFd, events: u32) -> io::Result<()> {
        let subject = self.at(fd);
        if subject.armed & events == events && subject.armed != 0 {
            return Ok(());
        }
        let wanted = subject.armed | events | epoll::ONESHOT;
        let data = u64::from(fd.unsigned_abs());
        let known = if subject.is_registered {
            epoll.modify(fd, wanted, data)
        } else {
            epoll.add(fd, wanted, data)
        };
        match known {
            // The number was closed meanwhile, and is another file's now.
            Err(error) if error.raw_os_error() == Some(ENOENT) => epoll.add(fd, wanted, data)?,
            // It was opened again while a duplicate kept the registration.
            Err(error) if error.raw_os_error() == Some(EEXIST) => epoll.modify(fd, wanted, data)?,
            other => other?,
        }
        subject.is_registered = true;
        subject.armed = wanted;
        Ok(())
    }

    /// The kernel has reported `fd`, and is silent about it from now on. Calls `due` with who can
    /// go on, and answers what the others wait for.
    pub(super) fn reported(&mut self, fd: RawFd, events: u32, mut due: impl FnMut(Task)) -> u32 {
        let subject = self.at(fd);
        subject.armed = 0;
        subject.found(fd, events, &mut due)
    }

    /// Has some descriptor go on for which nothing was reported, if one waits.
    pub(super) fn disturb(&mut self, mut due: impl FnMut(Task)) {
        for (fd, subject) in (0..).zip(&mut self.all) {
            if subject.is_waited_for() {
                subject.found(fd, u32::MAX, &mut due);
                return;
            }
        }
    }

    /// An operation is no longer at `fd`.
    pub(super) fn left(&mut self, fd: RawFd) {
        let subject = self.at(fd);
        if subject.is_empty() {
            subject.armed = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Subject {
    fn found(&mut self, fd: RawFd, events: u32, due: &mut impl FnMut(Task)) -> u32 {
        let mut others = 0;
        let directions = [
            (&mut self.taking, Direction::In, TAKING, epoll::IN),
            (&mut self.putting, Direction::Out, PUTTING, epoll::OUT),
        ];
        for (queue, direction, hits, wanted) in directions {
            if queue.state != QueueState::Waiting {
                continue;
            }
            if events & hits != 0 {
                queue.state = QueueState::Due;
                due(Task::Queue(fd, direction));
            } else {
                others |= wanted;
            }
        }
        self.singles.retain(|&(id, wanted)| {
            let is_hit = events & (wanted | BROKEN) != 0;
            if is_hit {
                due(Task::Single(id));
            } else {
                others |= wanted;
            }
            !is_hit
        });
        others
    }

    fn is_waited_for(&self) -> bool {
        self.taking.state == QueueState::Waiting
            || self.putting.state == QueueState::Waiting
            || !self.singles.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.taking.operations.is_empty()
            && self.putting.operations.is_empty()
            && self.singles.is_empty()
    }
}
