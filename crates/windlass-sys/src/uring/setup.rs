//! Opening a ring: which flags the kernel takes, what it can do, and why there is none.

use std::error::Error;
use std::{fmt, fs, io};

use io_uring::{Builder, IoUring, Probe, opcode, squeue};

/// How large a ring is, and what it must do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Entries of the submission queue (default 1024): at least 1, rounded up to a power of two, and
    /// 32,768 if more are asked for. What does not fit waits in memory.
    pub submission_entries: u32,
    /// Entries of the completion queue (default 8192): rounded up to a power of two, not fewer than
    /// of the submission queue, and 65,536 if more are asked for. What does not fit waits in the
    /// kernel.
    pub completion_entries: u32,
    /// What is used of it.
    pub modes: Modes,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            submission_entries: 1024,
            completion_entries: 8192,
            modes: Modes::All,
        }
    }
}

/// What is used of a ring: all that the kernel offers, or as if it were an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// Everything.
    All,
    /// Without deferred task work and a single issuer (before Linux 6.1), and without multishot
    /// operations.
    Plain,
}

/// Why there is no ring.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unavailable {
    /// The sysctl `kernel.io_uring_disabled` forbids it: 1, to processes that have no
    /// `CAP_SYS_ADMIN` and are not of the group `kernel.io_uring_group`; 2, to all. Whoever the value
    /// 1 does not concern was refused by a seccomp filter or a security module.
    Disabled {
        /// Its value.
        value: u8,
    },
    /// A seccomp filter or a security module forbids it (`EPERM`, `EACCES`).
    Forbidden(io::Error),
    /// The kernel is too old: it lacks this.
    Lacks(&'static str),
    /// Out of memory that may be locked (`ENOMEM`, `RLIMIT_MEMLOCK`) on a kernel before 5.12, or of
    /// memory.
    Memory(io::Error),
    /// The kernel has no io_uring, or a seccomp filter says so (`ENOSYS`).
    Missing(io::Error),
    /// Another error, such as no descriptors left.
    Other(io::Error),
}

impl Unavailable {
    fn from_setup(error: io::Error) -> Self {
        // Missing before Linux 6.6.
        let sysctl = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
        Self::classify(error, sysctl.as_deref().unwrap_or_default())
    }

    /// The reason for an error of io_uring_setup(2); `sysctl` is what the file of
    /// `kernel.io_uring_disabled` holds.
    fn classify(error: io::Error, sysctl: &str) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Self::Missing(error),
            // The sysctl is asked before any security module, which may say the same.
            Some(libc::EPERM | libc::EACCES) => match sysctl.trim().parse() {
                Ok(value @ 1..) => Self::Disabled { value },
                _ => Self::Forbidden(error),
            },
            Some(libc::ENOMEM) => Self::Memory(error),
            _ => Self::Other(error),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled { value } => {
                let whom = match value {
                    1 => "unprivileged processes outside of kernel.io_uring_group",
                    _ => "all processes",
                };
                write!(
                    f,
                    "open an io_uring: the sysctl kernel.io_uring_disabled is {value} and forbids it \
                     to {whom}"
                )
            }
            Self::Forbidden(_) => {
                f.write_str("open an io_uring: a seccomp filter or security module forbids it")
            }
            Self::Lacks(what) => write!(f, "open an io_uring: the kernel lacks {what}"),
            Self::Memory(_) => f.write_str("open an io_uring: out of (locked) memory"),
            Self::Missing(_) => f.write_str("open an io_uring: the kernel has none"),
            Self::Other(_) => f.write_str("open an io_uring"),
        }
    }
}

impl Error for Unavailable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Forbidden(error)
            | Self::Memory(error)
            | Self::Missing(error)
            | Self::Other(error) => Some(error),
            Self::Disabled { .. } | Self::Lacks(_) => None,
        }
    }
}

impl From<Unavailable> for io::Error {
    fn from(reason: Unavailable) -> Self {
        let kind = match &reason {
            Unavailable::Disabled { .. } | Unavailable::Forbidden(_) => {
                io::ErrorKind::PermissionDenied
            }
            Unavailable::Lacks(_) | Unavailable::Missing(_) => io::ErrorKind::Unsupported,
            Unavailable::Memory(_) => io::ErrorKind::OutOfMemory,
            Unavailable::Other(error) => error.kind(),
        };
        Self::new(kind, reason)
    }
}

/// What a ring can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abilities {
    /// Completions are found by a look at a flag: no system call if there are none.
    pub(super) tells_of_work: bool,
    /// Accept and receive again and again by one entry.
    pub(super) multishot: bool,
    pub(super) zero_copy_send: bool,
    pub(super) sync_cancel: bool,
}

/// Opens a ring with the best flags that the kernel takes. It is disabled until its thread enables
/// it, if that thread is to be its only one.
pub(super) fn open(options: &RingOptions) -> Result<(IoUring, Abilities), Unavailable> {
    let (io, is_single) = match options.modes {
        Modes::All => open_best(options)?,
        Modes::Plain => (build(base(options), options)?, false),
    };
    let params = io.params();
    if !params.is_feature_nodrop() {
        return Err(Unavailable::Lacks(
            "completions that are never dropped (5.5)",
        ));
    }
    if !params.is_feature_ext_arg() {
        return Err(Unavailable::Lacks("time-outs of waits (5.11)"));
    }
    if !params.is_feature_skip_cqe_on_success() {
        return Err(Unavailable::Lacks("completions of failures only (5.17)"));
    }
    let mut probe = Probe::new();
    io.submitter()
        .register_probe(&mut probe)
        .map_err(Unavailable::Other)?;
    if let Some((_, what)) = NEEDED.iter().find(|(code, _)| !probe.is_supported(*code)) {
        return Err(Unavailable::Lacks(what));
    }
    let abilities = Abilities {
        tells_of_work: is_single,
        // Both came with the same kernel; deferred task work with the next.
        multishot: options.modes == Modes::All && probe.is_supported(opcode::SendZc::CODE),
        zero_copy_send: probe.is_supported(opcode::SendZc::CODE),
        sync_cancel: probe.is_supported(opcode::SendZc::CODE),
    };
    Ok((io, abilities))
}

/// Operations that everything else relies on, and the names of their kind.
const NEEDED: [(u8, &str); 19] = [
    (opcode::Accept::CODE, "accept (5.5)"),
    (opcode::AsyncCancel::CODE, "cancel (5.5)"),
    (opcode::Close::CODE, "close (5.6)"),
    (opcode::Connect::CODE, "connect (5.5)"),
    (opcode::Fsync::CODE, "fsync (5.1)"),
    (opcode::OpenAt::CODE, "openat (5.6)"),
    (opcode::PollAdd::CODE, "poll (5.1)"),
    (opcode::Read::CODE, "read (5.6)"),
    (opcode::Readv::CODE, "readv (5.1)"),
    (opcode::Recv::CODE, "recv (5.6)"),
    (opcode::RecvMsg::CODE, "recvmsg (5.3)"),
    (opcode::Send::CODE, "send (5.6)"),
    (opcode::SendMsg::CODE, "sendmsg (5.3)"),
    (opcode::Shutdown::CODE, "shutdown (5.11)"),
    (opcode::Splice::CODE, "splice (5.7)"),
    (opcode::Statx::CODE, "statx (5.6)"),
    (opcode::Timeout::CODE, "timeout (5.4)"),
    (opcode::Write::CODE, "write (5.6)"),
    (opcode::Writev::CODE, "writev (5.1)"),
];

fn base(options: &RingOptions) -> Builder {
    let mut builder = IoUring::<squeue::Entry>::builder();
    builder
        .setup_clamp()
        .setup_cqsize(options.completion_entries.max(options.submission_entries));
    builder
}

/// The flags from the newest to the oldest kernel that has them; each is refused with `EINVAL` by
/// those before.
fn open_best(options: &RingOptions) -> Result<(IoUring, bool), Unavailable> {
    // 6.1: completions are worked on only when this thread waits for them.
    let mut deferred = base(options);
    deferred
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_r_disabled();
    // 5.19: at least they interrupt nobody.
    let mut cooperative = base(options);
    cooperative.setup_submit_all().setup_coop_taskrun();
    for (builder, is_single) in [(deferred, true), (cooperative, false)] {
        match builder.build(options.submission_entries) {
            Ok(io) => return Ok((io, is_single)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(Unavailable::from_setup(error)),
        }
    }
    Ok((build(base(options), options)?, false))
}

fn build(builder: Builder, options: &RingOptions) -> Result<IoUring, Unavailable> {
    builder
        .build(options.submission_entries)
        .map_err(Unavailable::from_setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(errno: i32, sysctl: &str) -> Unavailable {
        Unavailable::classify(io::Error::from_raw_os_error(errno), sysctl)
    }

    #[test]
    fn a_sysctl_that_forbids_is_named_and_no_filter() {
        for (content, expected, whom) in [
            ("1\n", 1, "io_uring_group"),
            ("2\n", 2, "all processes"),
            ("2", 2, "all processes"),
        ] {
            let reason = classify(libc::EPERM, content);
            assert!(
                matches!(reason, Unavailable::Disabled { value } if value == expected),
                "{content:?}: {reason:?}"
            );
            let text = reason.to_string();
            assert!(text.contains("kernel.io_uring_disabled is"), "{text}");
            assert!(text.contains(whom), "{text}");
            assert!(!text.contains("seccomp"), "{text}");
            let error = io::Error::from(reason);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn a_filter_is_named_where_the_sysctl_allows_or_does_not_exist() {
        for content in ["0\n", "", "unreadable", "-1\n"] {
            for errno in [libc::EPERM, libc::EACCES] {
                let reason = classify(errno, content);
                assert!(
                    matches!(reason, Unavailable::Forbidden(_)),
                    "{content:?}: {reason:?}"
                );
                let text = reason.to_string();
                assert!(text.contains("seccomp"), "{text}");
                assert!(!text.contains("sysctl"), "{text}");
            }
        }
    }

    #[test]
    fn other_errors_are_not_the_sysctls() {
        let missing = classify(libc::ENOSYS, "2\n");
        assert!(matches!(missing, Unavailable::Missing(_)), "{missing:?}");
        let memory = classify(libc::ENOMEM, "2\n");
        assert!(matches!(memory, Unavailable::Memory(_)), "{memory:?}");
        let other = classify(libc::EMFILE, "1\n");
        assert!(matches!(other, Unavailable::Other(_)), "{other:?}");
    }
}
