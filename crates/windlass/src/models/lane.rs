//! Lanes: what each thread that calls sessions has for itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass_core::Instant;
use windlass_sys::clock;

use super::limits::Limits;
use super::report::ServerReport;
use crate::session::{Now, Output, Peer, Service};

/// The service's shared part of one thread, the buffers through which all connections pass that the
/// thread handles, and what it counted.
pub(super) struct Lane<V: Service> {
    pub(super) service: Arc<V>,
    pub(super) local: V::Local,
    pub(super) limits: Limits,
    /// Input is read into this, after what the connection had left over.
    pub(super) input: Box<[u8]>,
    /// Output is written to this; empty between two calls.
    pub(super) output: Output,
    pub(super) counts: ServerReport,
    wall: WallClock,
}

/// The wall clock, read once a second and counted on by the monotonic one in between.
#[derive(Clone, Copy, Debug, Default)]
struct WallClock {
    read_at: Instant,
    unix_ms: u64,
}

const WALL_CLOCK_MAX_AGE_NS: u64 = 1_000_000_000;
/// A smaller buffer for input would cost more calls than it saves memory.
const INPUT_BYTES_MIN: usize = 4096;

impl<V: Service> Lane<V> {
    /// To be called by the thread that the lane is for.
    pub(super) fn new(service: Arc<V>, limits: Limits) -> Self {
        let local = service.local();
        Self {
            service,
            local,
            limits,
            input: vec![0; limits.input_bytes_max.max(INPUT_BYTES_MIN)].into_boxed_slice(),
            output: Output::new(limits.output),
            counts: ServerReport::default(),
            wall: WallClock::default(),
        }
    }

    /// The time of calls at `monotonic`.
    #[inline]
    pub(super) fn now(&mut self, monotonic: Instant) -> Now {
        let age_ns = monotonic
            .as_nanos()
            .saturating_sub(self.wall.read_at.as_nanos());
        if age_ns >= WALL_CLOCK_MAX_AGE_NS || self.wall.unix_ms == 0 {
            self.wall = WallClock {
                read_at: monotonic,
                unix_ms: clock::realtime_unix_ms(),
            };
            return Now {
                monotonic,
                unix_ms: self.wall.unix_ms,
            };
        }
        Now {
            monotonic,
            unix_ms: self.wall.unix_ms + age_ns / 1_000_000,
        }
    }

    /// Makes the session of a connection that was just accepted. None if the service panicked, which
    /// is counted.
    pub(super) fn open(&mut self, peer: &Peer, now: Now) -> Option<V::Session> {
        // Unwind safety: the shared part is the service's, as with a session's panic.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            self.service.open(&mut self.local, peer, now)
        }));
        self.counts.panics += u64::from(opened.is_err());
        opened.ok()
    }

    /// Lets the service settle. A panic is counted, and the next turn's is tried all the same.
    pub(super) fn settle(&mut self, now: Now) {
        // Unwind safety: the shared part is the service's, as with a session's panic.
        let settled = catch_unwind(AssertUnwindSafe(|| {
            self.service.settle(&mut self.local, now);
        }));
        self.counts.panics += u64::from(settled.is_err());
    }

    /// Opens coming connections with `service`. The old one settles first, if it does.
    pub(super) fn replace_service(&mut self, service: Arc<V>, now: Now) {
        let local = service.local();
        if self.service.settles() {
            self.settle(now);
        }
        self.service = service;
        self.local = local;
    }

    /// Obeys other limits from now on, but for those that connections rely on.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        if limits.input_bytes_max > self.input.len() {
            self.input = vec![0; limits.input_bytes_max].into_boxed_slice();
        }
        self.limits = Limits {
            output: self.limits.output,
            input_bytes_max: self.input.len(),
            ..limits
        };
    }
}
