//! Safe wrappers of the system calls that Windlass makes; all of its unsafe code.
//!
//! Each function stands for one system call, named in its documentation, and adds only what makes
//! it safe and uniform: descriptors are closed on exec, an interrupted call is retried (or, in a
//! wait, reported as "nothing found"), and "would block" is the value `None` and not an error.
//! Nothing here allocates per call or knows what a handler is.
//!
//! Modules with unsafe code: [`activation`], [`clock`], [`epoll`], [`fd`], [`operation`], [`poll`],
//! [`provided`], [`select`], [`signal`], [`uring`], [`usage`], [`wake`]. The others go through rustix.

pub mod activation;
pub mod clock;
pub mod epoll;
pub mod errno;
pub mod fd;
pub mod file;
pub mod limits;
pub mod net;
pub mod operation;
#[cfg(test)]
mod own_process;
pub mod poll;
pub mod provided;
pub mod select;
pub mod signal;
mod timespec;
pub mod uring;
pub mod usage;
pub mod wake;
