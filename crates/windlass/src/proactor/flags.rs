//! What [`Operation::Poll`](super::Operation::Poll) waits for and
//! [`Outcome::Events`](super::Outcome::Events) tells: the flags of epoll_ctl(2).

pub use windlass_sys::epoll::{ERR, HUP, IN, OUT, PRI, RDHUP};
