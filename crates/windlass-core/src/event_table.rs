//! Event table: what each event waits for, and its state.
//!
//! Slots are reused with the next generation. What changes with each activation is kept together;
//! the payloads (handlers) lie in an array of their own, so that a timer's re-arm does not touch
//! them.

use core::time::Duration;

use crate::engine::token::Happened;
use crate::id::{EventId, NONE, RawHandle};
use crate::interest::{Interest, Readiness, Trigger};
use crate::time::Instant;
use crate::timer_queue::CommonTimeout;

/// What an event is to wait for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct EventSpec {
    /// What makes it active.
    pub source: Source,
    /// Whether it stays pending when it becomes active.
    pub lifetime: Lifetime,
    /// Its class: 0 is the most urgent. Must be below the engine's number of priorities.
    pub priority: u8,
    /// A timeout, started when the event is enabled; on a persistent event restarted whenever it
    /// becomes active.
    pub timeout: Option<Timeout>,
    /// From when a restarted timeout counts.
    pub catch_up: CatchUp,
    /// Whether it keeps the loop running.
    pub accounting: Accounting,
}

impl EventSpec {
    /// A persistent event of priority 0 without timeout.
    pub const fn new(source: Source) -> Self {
        Self {
            source,
            lifetime: Lifetime::Persistent,
            priority: 0,
            timeout: None,
            catch_up: CatchUp::Delay,
            accounting: Accounting::Counted,
        }
    }
}

/// What makes an event active, besides its timeout and [`activate_event`](crate::Engine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Readiness of a handle. Several events may watch one handle.
    Handle {
        /// The handle's number; not negative.
        raw: RawHandle,
        /// What is waited for; nothing at all is allowed, for the moment.
        interest: Interest,
        /// Level or edge; the same for all events of a handle.
        trigger: Trigger,
    },
    /// A signal, 1 to 64.
    Signal(i32),
    /// Nothing but its timeout or deadline.
    Timer,
    /// Nothing but being activated by the program.
    User,
}

/// Whether an event stays pending when it becomes active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// It goes back to initialised before its handler runs.
    OneShot,
    /// It stays pending until disabled or removed.
    #[default]
    Persistent,
}

/// A timeout's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// This long.
    After(Duration),
    /// A length that many events share.
    Common(CommonTimeout),
}

/// From when the timeout of a persistent event counts after it fired (the missed-tick policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// From each deadline: a late timer fires once for each period missed, as fast as turns go.
    Burst,
    /// From now: the distance of two firings is never less than the period.
    #[default]
    Delay,
    /// From the last deadline, leaving out periods that are over: stays on the grid, never bunches.
    Skip,
    /// From the last deadline, or from now if a period was missed (libevent's rule): on the grid
    /// until the first miss, then on a new one.
    Steady,
}

/// Whether an event keeps the loop running and shows in the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accounting {
    /// As any event of a program.
    #[default]
    Counted,
    /// The driver's own (a wake-up channel): a loop with nothing else is empty.
    Internal,
}

/// Where an event stands. Initialised is neither pending nor active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Watched for what it waits for.
    pub pending: bool,
    /// Something happened; its handler is yet to run.
    pub active: bool,
    /// Its handler is running.
    pub in_flight: bool,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Handle,
    Signal,
    Timer,
    User,
}

/// A timeout in one word, so that a slot is one cache line: its length in nanoseconds, or the number
/// of a common timeout. A length beyond
/// 2^63 ns (292 years) is cut to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedTimeout(u64);

impl PackedTimeout {
    pub(crate) const NONE: Self = Self(u64::MAX);
    const COMMON: u64 = 1 << 63;

    pub(crate) fn pack(timeout: Option<Timeout>) -> Self {
        match timeout {
            None => Self::NONE,
            Some(Timeout::Common(common)) => Self(Self::COMMON | u64::from(common.number())),
            Some(Timeout::After(length)) => {
                let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
                Self(ns.min(Self::COMMON - 1))
            }
        }
    }

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }

    #[inline]
    pub(crate) fn unpack(self) -> Option<Timeout> {
        if self == Self::NONE {
            None
        } else if self.0 & Self::COMMON != 0 {
            // The number that was packed.
            Some(Timeout::Common(CommonTimeout::from_number(self.0 as u8)))
        } else {
            Some(Timeout::After(Duration::from_nanos(self.0)))
        }
    }
}

/// Whether an event is there, and where it stands: eight bytes, so that what a timer's re-arm must
/// look at stays in the cache when the events do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    bits: u8,
}

const _: () = assert!(size_of::<Head>() == 8);

macro_rules! head_bits {
    ($($bit:literal $is:ident $set:ident;)*) => {
        impl Head {
            $(
                #[inline]
                pub(crate) fn $is(self) -> bool {
                    self.bits >> $bit & 1 == 1
                }

                #[inline]
                pub(crate) fn $set(&mut self, yes: bool) {
                    self.bits = self.bits & !(1 << $bit) | u8::from(yes) << $bit;
                }
            )*
        }
    };
}

head_bits! {
    0 is_pending set_pending;
    1 is_active set_active;
    2 is_in_flight set_in_flight;
    3 is_internal set_internal;
}

impl Head {
    const fn free(generation: u32) -> Self {
        Self {
            generation,
            kind: Kind::Free,
            bits: 0,
        }
    }

    pub(crate) fn state(self) -> State {
        State {
            pending: self.is_pending(),
            active: self.is_active(),
            in_flight: self.is_in_flight(),
        }
    }
}

/// The rest of an event: a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// Neighbours in the ready queue; `next` also links the free list.
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// When it became active: the count of activation steps.
    pub(crate) epoch: u32,
    /// The handle's slot, or the signal's number.
    pub(crate) subject: u32,
    /// The next event of the same handle or signal.
    pub(crate) sibling: u32,
    pub(crate) priority: u8,
    pub(crate) interest: Interest,
    /// Active, but held back until another event of its handle has settled.
    pub(crate) deferred: bool,
    pub(crate) one_shot: bool,
    pub(crate) catch_up: CatchUp,
    pub(crate) timeout: PackedTimeout,
    pub(crate) happened: Pending,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What happened to an event since its handler was last called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) readiness: Readiness,
    pub(crate) timed_out: bool,
    pub(crate) signalled: bool,
    pub(crate) user: bool,
    pub(crate) count: u32,
    /// The deadline that was reached, if it timed out.
    pub(crate) deadline: u64,
}

impl Pending {
    /// Whether there is nothing to call a handler for.
    pub(crate) fn is_nothing(&self) -> bool {
        self.readiness.is_none() && !self.timed_out && !self.signalled && !self.user
    }

    /// As the handler of `event` is told.
    #[inline]
    pub(crate) fn told(&self, event: EventId) -> Happened {
        Happened {
            event,
            readiness: self.readiness,
            timed_out: self.timed_out,
            signalled: self.signalled,
            user: self.user,
            count: self.count,
            deadline: self.timed_out.then(|| Instant::from_nanos(self.deadline)),
        }
    }
}

/// All events.
#[derive(Debug)]
pub(crate) struct EventTable {
    pub(crate) heads: Vec<Head>,
    pub(crate) slots: Vec<Slot>,
    free: u32,
}

impl Default for EventTable {
    fn default() -> Self {
        Self {
            heads: Vec::new(),
            slots: Vec::new(),
            free: NONE,
        }
    }
}

impl EventTable {
    /// Takes a free slot for an event; it starts initialised, with no subject. Nothing if 2^32 - 1
    /// events exist.
    pub(crate) fn take_slot(&mut self, kind: Kind, spec: &EventSpec) -> Option<u32> {
        let index = if self.free == NONE {
            let index = u32::try_from(self.slots.len())
                .ok()
                .filter(|&index| index != NONE)?;
            self.slots.push(Slot::free());
            self.heads.push(Head::free(0));
            index
        } else {
            let index = self.free;
            self.free = self.slots[index as usize].next;
            index
        };
        let head = &mut self.heads[index as usize];
        head.kind = kind;
        head.set_internal(spec.accounting == Accounting::Internal);
        self.slots[index as usize] = Slot {
            priority: spec.priority,
            one_shot: spec.lifetime == Lifetime::OneShot,
            catch_up: spec.catch_up,
            timeout: PackedTimeout::pack(spec.timeout),
            ..Slot::free()
        };
        Some(index)
    }

    /// Frees a slot: ids of its occupant name nothing from now on.
    pub(crate) fn free_slot(&mut self, index: u32) {
        let head = &mut self.heads[index as usize];
        *head = Head::free(head.generation.wrapping_add(1));
        self.slots[index as usize] = Slot {
            next: self.free,
            ..Slot::free()
        };
        self.free = index;
    }

    /// The slot of a living event.
    #[inline]
    pub(crate) fn find(&self, id: EventId) -> Option<u32> {
        let head = self.heads.get(id.index() as usize)?;
        (head.generation == id.generation() && head.kind != Kind::Free).then_some(id.index())
    }

    pub(crate) fn id_of(&self, index: u32) -> EventId {
        EventId::new(index, self.heads[index as usize].generation)
    }

    #[inline]
    pub(crate) fn head(&self, index: u32) -> &Head {
        &self.heads[index as usize]
    }

    #[inline]
    pub(crate) fn head_mut(&mut self, index: u32) -> &mut Head {
        &mut self.heads[index as usize]
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

impl Slot {
    fn free() -> Self {
        Self {
            next: NONE,
            previous: NONE,
            epoch: 0,
            subject: NONE,
            sibling: NONE,
            priority: 0,
            interest: Interest::NONE,
            deferred: false,
            one_shot: false,
            catch_up: CatchUp::Delay,
            timeout: PackedTimeout::NONE,
            happened: Pending::default(),
        }
    }
}
