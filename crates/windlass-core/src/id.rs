//! Identifiers of handles and events: an index and a generation in 64 bits.
//!
//! A slot is reused after its occupant is gone, with the next generation; an id kept by anyone
//! from before then names nothing. A generation comes round after 2^32 reuses of one slot.

use core::fmt;

/// The operating system's number of a handle: on Linux a file descriptor. The engine never uses
/// it but as an index and in messages.
pub type RawHandle = i32;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            pub(crate) const fn new(index: u32, generation: u32) -> Self {
                Self((generation as u64) << 32 | index as u64)
            }

            /// Restores an id from [`to_bits`](Self::to_bits). Any number is accepted: one that
            /// names nothing is treated as stale.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The id as one word, for a demultiplexer's user data.
            #[must_use]
            pub const fn to_bits(self) -> u64 {
                self.0
            }

            /// The slot that it lies in: small, dense, and reused; for tables beside the engine's.
            #[must_use]
            pub const fn slot(self) -> usize {
                self.index() as usize
            }

            pub(crate) const fn index(self) -> u32 {
                (self.0 & 0xffff_ffff) as u32
            }

            pub(crate) const fn generation(self) -> u32 {
                (self.0 >> 32) as u32
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}.{}"), self.index(), self.generation())
            }
        }
    };
}

id_type! {
    /// Names one registration of a handle; carried through the demultiplexer as user data.
    HandleId, "h"
}
id_type! {
    /// Names one event: one wish (interest, signal, timeout) and its handler.
    EventId, "e"
}

/// No slot: the end of a list, or an event without a handle.
pub(crate) const NONE: u32 = u32::MAX;
