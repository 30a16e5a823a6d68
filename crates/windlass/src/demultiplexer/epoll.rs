//! The epoll back end, epoll(7).
//!
//! The kernel keeps the set; a wait costs what is ready. Beside it are kept: what epoll refuses
//! because it never blocks ([`AlwaysReady`]), and by descriptor the id that was registered last.
//!
//! Epoll watches open file descriptions: if a number is closed while a duplicate lives, the
//! registration goes on reporting and cannot be removed by its number any more. A removal that
//! found nothing is therefore remembered; if its id is reported later, the whole kernel set is
//! made anew ([`forget_orphan`](EventDemultiplexer::forget_orphan)).
//!
//! # Threads
//!
//! Who waits and who registers are two parts, as epoll_ctl(2) is safe beside epoll_wait(2): an
//! event loop has both in one, [`EpollDemultiplexer`]; of a set of threads the leader has the
//! [`EpollWaiter`], and the [`EpollRegistrar`] lies behind the set's lock.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{
    Batch, Change, ChangeKind, EventDemultiplexer, Features, HandleId, Interest, Notify, RawHandle,
    Readiness, Trigger,
};
use windlass_sys::epoll::{self, Epoll, EventBuffer};
use windlass_sys::errno;

use super::always_ready::AlwaysReady;
use super::{check_handle, index_of};

const REPORTS_START: usize = 256;
const REPORTS_MAX: usize = 1024;

/// So many removals that found nothing are remembered one by one.
const SUSPECTS_MAX: usize = 1024;

/// Waits by epoll_pwait2(2).
#[derive(Debug)]
pub struct EpollDemultiplexer {
    waiter: EpollWaiter,
    registrar: EpollRegistrar,
}

/// The part that waits.
#[derive(Debug)]
pub(crate) struct EpollWaiter {
    epoll: Arc<Epoll>,
    buffer: EventBuffer,
}

/// The part that registers, while another thread waits.
#[derive(Debug)]
pub(crate) struct EpollRegistrar {
    epoll: Arc<Epoll>,
    always_ready: AlwaysReady,
    /// By descriptor: the id that the kernel's set was last given for it.
    ids: Vec<Option<HandleId>>,
    suspects: Suspects,
}

impl EpollDemultiplexer {
    /// Opens an empty set, epoll_create1(2).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new()?);
        Ok(Self {
            waiter: EpollWaiter {
                epoll: Arc::clone(&epoll),
                buffer: EventBuffer::with_capacity(REPORTS_START),
            },
            registrar: EpollRegistrar {
                epoll,
                always_ready: AlwaysReady::default(),
                ids: Vec::new(),
                suspects: Suspects::default(),
            },
        })
    }

    /// Divides who waits from who registers.
    pub(crate) fn into_parts(self) -> (EpollWaiter, EpollRegistrar) {
        (self.waiter, self.registrar)
    }
}

impl EpollWaiter {
    /// As [`EventDemultiplexer::demultiplex`], for what the kernel watches.
    #[inline]
    pub(crate) fn wait(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let count = self.epoll.wait(&mut self.buffer, timeout)?;
        for (events, data) in self.buffer.iter() {
            batch.push(HandleId::from_bits(data), readiness_of(events));
        }
        if count == self.buffer.capacity() && count < REPORTS_MAX {
            self.buffer.grow((count * 2).min(REPORTS_MAX));
        }
        Ok(())
    }

    /// Waits for the registrar's set from now on: that was made anew.
    pub(crate) fn adopt(&mut self, registrar: &EpollRegistrar) {
        self.epoll = Arc::clone(&registrar.epoll);
    }
}

impl EpollRegistrar {
    /// Carries out one change; whoever waits goes on.
    ///
    /// # Errors
    ///
    /// As [`EventDemultiplexer::apply`].
    pub(crate) fn apply(&mut self, change: &Change) -> io::Result<()> {
        let (raw, handle) = (change.raw, change.handle);
        match change.kind {
            ChangeKind::Register {
                interest,
                trigger,
                notify,
            } => {
                let wish = Wish {
                    raw,
                    handle,
                    interest,
                    trigger,
                    notify,
                };
                self.put(First::Add, wish)
            }
            ChangeKind::Modify {
                interest,
                trigger,
                notify,
            } => {
                let wish = Wish {
                    raw,
                    handle,
                    interest,
                    trigger,
                    notify,
                };
                self.put(First::Modify, wish)
            }
            ChangeKind::Remove => self.remove(raw),
        }
    }

    /// Watches a wake-up channel for edges.
    pub(crate) fn watch_wake(&mut self, raw: RawHandle, handle: HandleId) -> io::Result<()> {
        let wish = Wish {
            raw,
            handle,
            interest: Interest::READ,
            trigger: Trigger::Edge,
            notify: Notify::Always,
        };
        self.put(First::Add, wish)
    }

    /// Whether something is registered that is ready and that the kernel does not watch: then
    /// nobody may wait, and [`report`](Self::report) adds it.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.always_ready.is_armed()
    }

    /// Adds to `batch` what is ready and not watched by the kernel.
    pub(crate) fn report(&mut self, batch: &mut Batch) {
        self.always_ready.report(batch);
    }

    fn rebuild(&mut self) -> io::Result<()> {
        self.epoll = Arc::new(Epoll::new()?);
        self.always_ready.clear();
        self.ids.clear();
        self.suspects = Suspects::default();
        Ok(())
    }

    /// Adds or modifies, whichever `first` says, and the other if the kernel's view differs.
    fn put(&mut self, first: First, wish: Wish) -> io::Result<()> {
        if wish.interest.is_none() {
            return self.silence(wish.raw);
        }
        if self.always_ready.remove(wish.raw) {
            // It may be another file by now.
            return self.put(First::Add, wish);
        }
        let (raw, events, data) = (wish.raw, wish.events(), wish.handle.to_bits());
        let result = match first {
            First::Add => match self.epoll.add(raw, events, data) {
                // The number and what it names are registered: its removal was not carried out.
                Err(error) if is(&error, errno::EEXIST) => self.epoll.modify(raw, events, data),
                other => other,
            },
            First::Modify => match self.epoll.modify(raw, events, data) {
                // The number was closed, which removed it, and names something else.
                Err(error) if is(&error, errno::ENOENT) => self.epoll.add(raw, events, data),
                other => other,
            },
        };
        match result {
            Ok(()) => self.remember(raw, wish.handle),
            Err(error) if is(&error, errno::EPERM) => {
                let Wish {
                    raw,
                    handle,
                    interest,
                    trigger,
                    notify,
                } = wish;
                self.always_ready
                    .insert(raw, handle, interest, trigger, notify);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Watches `raw` for nothing, not even hang-up, which the kernel reports unasked.
    fn silence(&mut self, raw: RawHandle) -> io::Result<()> {
        check_handle(raw)?;
        self.remove(raw)
    }

    fn remember(&mut self, raw: RawHandle, handle: HandleId) -> io::Result<()> {
        let index = index_of(raw)?;
        if index >= self.ids.len() {
            self.ids.resize(index + 1, None);
        }
        if let Some(earlier) = self.ids[index].replace(handle)
            && earlier != handle
        {
            // Never removed: a duplicate of what the number named may report it still.
            self.suspects.add(earlier);
        }
        Ok(())
    }

    fn take_id(&mut self, raw: RawHandle) -> Option<HandleId> {
        self.ids.get_mut(index_of(raw).ok()?)?.take()
    }

    /// As [`EventDemultiplexer::remove_event`].
    pub(crate) fn remove(&mut self, raw: RawHandle) -> io::Result<()> {
        let id = self.take_id(raw);
        let was_in_kernel = if self.always_ready.remove(raw) {
            false
        } else {
            match self.epoll.delete(raw) {
                Ok(()) => true,
                // EPERM: the number names a regular file by now.
                Err(error) if is_absence(&error) => false,
                Err(error) => return Err(error),
            }
        };
        if let Some(id) = id
            && !was_in_kernel
        {
            self.suspects.add(id);
        }
        Ok(())
    }

    /// As [`EventDemultiplexer::forget_orphan`]. If the set was made anew, the waiter
    /// [adopts](EpollWaiter::adopt) it.
    pub(crate) fn forget_orphan(&mut self, handle: HandleId) -> io::Result<bool> {
        if let Some(at) = self.ids.iter().position(|&id| id == Some(handle)) {
            // Registered by a number that may be open still: then it can be removed by it.
            let raw = RawHandle::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
            self.remove(raw)?;
        }
        // An id that was removed in good order is a late report of an earlier wait, no orphan.
        let must_rebuild = self.suspects.contain(handle);
        if must_rebuild {
            self.rebuild()?;
        }
        Ok(must_rebuild)
    }
}

impl EventDemultiplexer for EpollDemultiplexer {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn features(&self) -> Features {
        Features {
            edge_triggered: true,
            constant_time: true,
            any_descriptor: true,
            early_close: true,
        }
    }

    fn register_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.registrar.put(
            First::Add,
            Wish {
                raw,
                handle,
                interest,
                trigger,
                notify,
            },
        )
    }

    fn modify_event(
        &mut self,
        raw: RawHandle,
        handle: HandleId,
        interest: Interest,
        trigger: Trigger,
        notify: Notify,
    ) -> io::Result<()> {
        self.registrar.put(
            First::Modify,
            Wish {
                raw,
                handle,
                interest,
                trigger,
                notify,
            },
        )
    }

    fn remove_event(&mut self, raw: RawHandle) -> io::Result<()> {
        self.registrar.remove(raw)
    }

    fn demultiplex(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<()> {
        let is_armed = self.registrar.is_armed();
        let timeout = if is_armed {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        self.waiter.wait(batch, timeout)?;
        if is_armed {
            self.registrar.report(batch);
        }
        Ok(())
    }

    fn forget_orphan(&mut self, handle: HandleId) -> io::Result<bool> {
        let is_rebuilt = self.registrar.forget_orphan(handle)?;
        self.waiter.adopt(&self.registrar);
        Ok(is_rebuilt)
    }

    fn reinit(&mut self) -> io::Result<()> {
        self.registrar.rebuild()?;
        self.waiter.adopt(&self.registrar);
        Ok(())
    }
}

impl AsFd for EpollDemultiplexer {
    /// The epoll instance: readable when something is ready, for embedding in another loop.
    /// Handles that are always ready do not show there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.epoll.as_fd()
    }
}

/// Which call is right if the kernel's set is as the caller thinks.
#[derive(Clone, Copy, Debug)]
enum First {
    Add,
    Modify,
}

/// What is to be registered.
#[derive(Clone, Copy, Debug)]
struct Wish {
    raw: RawHandle,
    handle: HandleId,
    interest: Interest,
    trigger: Trigger,
    notify: Notify,
}

impl Wish {
    fn events(&self) -> u32 {
        let mut events = events_of(self.interest);
        if self.trigger == Trigger::Edge {
            events |= epoll::ET;
        }
        if self.notify == Notify::Once {
            events |= epoll::ONESHOT;
        }
        events
    }
}

/// Ids whose removal found nothing in the kernel: most are gone, some may report still.
#[derive(Debug, Default)]
struct Suspects {
    ids: Vec<HandleId>,
    /// There were too many to keep: any unknown id may be one.
    overflowed: bool,
}

impl Suspects {
    fn add(&mut self, id: HandleId) {
        if self.ids.len() == SUSPECTS_MAX {
            self.ids.clear();
            self.overflowed = true;
        }
        self.ids.push(id);
    }

    fn contain(&self, id: HandleId) -> bool {
        self.overflowed || self.ids.contains(&id)
    }
}

/// The flags that ask for `interest`.
pub(super) fn events_of(interest: Interest) -> u32 {
    let mut events = 0;
    for (part, event) in [
        (Interest::READ, epoll::IN),
        (Interest::WRITE, epoll::OUT),
        (Interest::PEER_CLOSED, epoll::RDHUP),
        (Interest::PRIORITY, epoll::PRI),
    ] {
        if interest.contains(part) {
            events |= event;
        }
    }
    events
}

#[inline]
pub(super) fn readiness_of(events: u32) -> Readiness {
    // Each term is the bit of one flag, or zero: no branch per flag.
    let bit = |event: u32, readiness: Readiness| u8::from(events & event != 0) * readiness.bits();
    Readiness::from_bits(
        bit(epoll::IN, Readiness::READ)
            | bit(epoll::OUT, Readiness::WRITE)
            | bit(epoll::RDHUP, Readiness::PEER_CLOSED)
            | bit(epoll::PRI, Readiness::PRIORITY)
            | bit(epoll::HUP, Readiness::HANG_UP)
            | bit(epoll::ERR, Readiness::ERROR),
    )
}

/// Whether a removal found nothing to remove.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(errno::ENOENT | errno::EBADF | errno::EPERM)
    )
}

fn is(error: &io::Error, errno: i32) -> bool {
    error.raw_os_error() == Some(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_translated_both_ways() {
        let wish = Wish {
            raw: 0,
            handle: HandleId::from_bits(0),
            interest: Interest::from_bits(0xf),
            trigger: Trigger::Edge,
            notify: Notify::Once,
        };
        let asked = epoll::IN | epoll::OUT | epoll::RDHUP | epoll::PRI;
        assert_eq!(wish.events(), asked | epoll::ET | epoll::ONESHOT);
        let all = readiness_of(asked | epoll::HUP | epoll::ERR);
        assert_eq!(all, Readiness::from_bits(0x3f));
        assert_eq!(readiness_of(epoll::HUP), Readiness::HANG_UP);
        assert_eq!(readiness_of(0), Readiness::NONE);
    }

    #[test]
    fn many_suspects_take_bounded_memory_and_none_is_missed() {
        let mut suspects = Suspects::default();
        for bits in 0..5000 {
            suspects.add(HandleId::from_bits(bits));
        }
        assert!(suspects.ids.len() <= SUSPECTS_MAX);
        assert!((0..5000).all(|bits| suspects.contain(HandleId::from_bits(bits))));
    }
}
