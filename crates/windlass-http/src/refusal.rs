//! Why a request was refused before a handler saw it.

use crate::status::Status;

/// An error answer: the status, and in words what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) why: &'static str,
}

impl Refusal {
    pub(crate) const fn new(status: Status, why: &'static str) -> Self {
        Self { status, why }
    }

    /// `400`.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self::new(Status::BAD_REQUEST, why)
    }
}
