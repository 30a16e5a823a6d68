//! Why a route cannot be added.

use std::error::Error;
use std::fmt;

/// Why a route cannot be added to a [`Router`](crate::Router). Patterns are given as they were
/// declared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// What it matches is matched by another route.
    Conflict {
        /// The pattern that cannot be added, behind a method if it is only about that.
        pattern: String,
        /// The one that is there.
        with: String,
    },
    /// It is not a pattern.
    Malformed {
        /// The pattern.
        pattern: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// No method was named, or `CONNECT`, which never reaches a handler.
    Methods {
        /// The pattern.
        pattern: String,
    },
}

impl RouteError {
    pub(super) fn malformed(pattern: &str, why: &'static str) -> Self {
        Self::Malformed {
            pattern: pattern.to_owned(),
            why,
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { pattern, with } => {
                write!(f, "add route {pattern}, which conflicts with {with}")
            }
            Self::Malformed { pattern, why } => {
                write!(f, "add route {pattern}, which is not a pattern: {why}")
            }
            Self::Methods { pattern } => {
                write!(f, "add route {pattern} for no method, or for CONNECT")
            }
        }
    }
}

impl Error for RouteError {}
