//! The proactor over io_uring: what only a ring can get wrong.

#[path = "common/loops.rs"]
mod common;

mod ring {
    pub(crate) mod basics;
    pub(crate) mod buffers;
    pub(crate) mod limits;
    pub(crate) mod processes;
}
