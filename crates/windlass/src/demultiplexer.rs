//! Event demultiplexers of Linux: epoll, poll, select and io_uring, and the choice between them.
//!
//! All four implement [`EventDemultiplexer`](windlass_core::EventDemultiplexer) with one meaning,
//! which one conformance suite checks:
//!
//! - Hang-up and error are reported to whatever interest is not empty; with an empty interest a
//!   handle is known and silent.
//! - Registering a number that is registered replaces the registration, and modifying one that is
//!   not registers it: numbers are reused, and the caller's view is the later one.
//! - A handle that was closed under its registration is reported at most once, as an error.
//!
//! | | epoll | poll | select | io_uring |
//! |---|---|---|---|---|
//! | cost of a wait | handles that are ready | handles registered | the largest number | handles that are ready |
//! | system calls for changes | one each | none | none | none, one for a removal |
//! | edge-triggered | yes | no | no | yes |
//! | hang-up as such, early close | yes | yes | no: a read or a write that does not block | yes |
//!
//! [`open`] picks one by [`BackendConfig`] and by the environment; io_uring only if it is forced, as
//! it is of use to those who have operations done by it ([`proactor`](crate::proactor)), and may be
//! forbidden.

mod always_ready;
mod choice;
mod epoll;
pub(crate) mod poll;
mod select;
mod uring;

pub(crate) use self::choice::forced;
pub(crate) use self::choice::pick;
pub use self::choice::{
    Backend, BackendConfig, BackendError, ENVIRONMENT_VARIABLE, EnvironmentUse, ForceOrigin, open,
};
pub use self::epoll::EpollDemultiplexer;
pub(crate) use self::epoll::{EpollRegistrar, EpollWaiter};
pub use self::poll::PollDemultiplexer;
pub(crate) use self::poll::{events_of, readiness_of};
pub use self::select::SelectDemultiplexer;
pub use self::uring::UringDemultiplexer;

use std::io;

use windlass_core::{RawHandle, Trigger};

/// Room in a table that is indexed by descriptor.
fn index_of(raw: RawHandle) -> io::Result<usize> {
    usize::try_from(raw).map_err(|_| io::Error::from_raw_os_error(windlass_sys::errno::EBADF))
}

/// Checks what the kernel of epoll checks at registration and that of poll and select does not.
fn check_handle(raw: RawHandle) -> io::Result<usize> {
    if windlass_sys::fd::is_open(raw) {
        index_of(raw)
    } else {
        Err(io::Error::from_raw_os_error(windlass_sys::errno::EBADF))
    }
}

/// Refuses edge-triggered registrations for a method that only knows levels.
fn check_trigger(trigger: Trigger, message: &'static str) -> io::Result<()> {
    match trigger {
        Trigger::Level => Ok(()),
        Trigger::Edge => Err(io::Error::new(io::ErrorKind::Unsupported, message)),
    }
}
