//! Configuration of an event loop.

use std::any::Any;
use std::time::Duration;

use windlass_core::EngineConfig;

use crate::demultiplexer::BackendConfig;
use crate::event_loop::golden_rule::Origin;
use crate::proactor::ProactorConfig;

/// How a loop behaves; fixed for its life.
#[derive(Clone, Debug)]
pub struct LoopConfig {
    /// Priorities, dispatch limit, starvation bound (default: one priority).
    pub engine: EngineConfig,
    /// Which back end is used, and what is required of it.
    pub backend: BackendConfig,
    /// Who carries out operations ([`proactor`](crate::proactor)); default: the emulated driver,
    /// unless io_uring is forced as back end.
    pub proactor: ProactorConfig,
    /// A handler that runs longer than this is counted and remembered
    /// ([`slow_handlers`](super::Reactor::slow_handlers)); `None` switches the check off (default
    /// 100 ms). Measured with the coarse clock, so with a resolution of one kernel tick (1 to 10 ms).
    pub slow_handler_limit: Option<Duration>,
    /// Whether it is measured how long each handler takes
    /// ([`handler_times`](super::Reactor::handler_times); default: no). Costs a look at the clock
    /// per handler, some tens of nanoseconds.
    pub handler_times: HandlerTimes,
    /// What a panic in a handler does.
    pub panic_policy: PanicPolicy,
    /// The longest line that [`on_line`](super::Reactor::on_line) gathers, in bytes; longer ones
    /// come in pieces (default 64 KiB).
    pub line_bytes_max: usize,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            backend: BackendConfig::default(),
            proactor: ProactorConfig::default(),
            slow_handler_limit: Some(Duration::from_millis(100)),
            handler_times: HandlerTimes::default(),
            panic_policy: PanicPolicy::default(),
            line_bytes_max: 64 * 1024,
        }
    }
}

/// Whether the durations of handlers are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlerTimes {
    /// Each one, with the precise clock; the check for slow handlers is then as precise.
    Measured,
    /// None; the check for slow handlers uses the coarse clock.
    #[default]
    Unmeasured,
}

/// What a panic in a handler does. In either case the handler is removed, and the loop and all
/// other handlers are intact.
#[derive(Clone, Copy, Debug, Default)]
pub enum PanicPolicy {
    /// It is reported to this function and the loop goes on.
    Contain(fn(&PanicReport<'_>)),
    /// It leaves [`run`](super::EventLoop::run); the loop may be run again.
    #[default]
    Propagate,
}

/// A panic that was contained.
#[derive(Debug)]
pub struct PanicReport<'a> {
    /// Whose handler it was.
    pub origin: &'a Origin,
    /// What it panicked with.
    pub payload: &'a (dyn Any + Send),
}

impl PanicReport<'_> {
    /// The message, if it is text.
    #[must_use]
    pub fn message(&self) -> &str {
        self.payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| self.payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("(no text)")
    }
}
