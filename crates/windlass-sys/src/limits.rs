//! The limit of open descriptors, getrlimit(2) `RLIMIT_NOFILE`.

use std::io;

use rustix::process::{Resource, Rlimit};

/// How many descriptors the process may have open; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What is in force: one more than the largest number that open gives.
    pub soft: Option<u64>,
    /// How far the process itself may raise it.
    pub hard: Option<u64>,
}

/// The limit in force.
#[must_use]
pub fn descriptor_limit() -> DescriptorLimit {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    DescriptorLimit {
        soft: limit.current,
        hard: limit.maximum,
    }
}

/// Raises the soft limit to `wanted`, or to the hard limit if that is lower; never lowers it.
/// Answers the limit then in force (`u64::MAX` for none).
///
/// # Errors
///
/// setrlimit(2)'s: `EPERM`.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let DescriptorLimit { soft, hard } = descriptor_limit();
    let Some(soft) = soft else {
        return Ok(u64::MAX);
    };
    let target = hard.map_or(wanted, |hard| wanted.min(hard));
    if target <= soft {
        return Ok(soft);
    }
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(target),
            maximum: hard,
        },
    )?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_up_to_the_hard_one_and_never_lowered() {
        let before = descriptor_limit();
        let soft = before.soft.unwrap_or(u64::MAX);
        assert_eq!(raise_descriptor_limit(1).expect("no change"), soft);
        let raised = raise_descriptor_limit(u64::MAX - 1).expect("raise");
        assert_eq!(raised, before.hard.unwrap_or(raised));
        assert_eq!(descriptor_limit().soft.unwrap_or(u64::MAX), raised);
    }
}
