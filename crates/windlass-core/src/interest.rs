//! Interest and readiness: what is wanted of a handle, and what happened to it.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign};

macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        impl $name {
            /// Nothing.
            pub const NONE: Self = Self(0);
            $($(#[$item_doc])* pub const $item: Self = Self($bit);)*

            /// The set as bits, in the order of the constants.
            #[must_use]
            pub const fn bits(self) -> u8 { self.0 }

            /// The set with these bits; bits that have no name are dropped.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self { Self(bits & (0 $(| $bit)*)) }

            /// Whether nothing is in it.
            #[must_use]
            pub const fn is_none(self) -> bool { self.0 == 0 }

            /// Whether all of `other` is in it.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }

            /// Whether anything of `other` is in it.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool { self.0 & other.0 != 0 }

            /// What is in either.
            #[must_use]
            pub const fn union(self, other: Self) -> Self { Self(self.0 | other.0) }

            /// What is in it and not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self { Self(self.0 & !other.0) }
        }

        impl BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self { self.union(other) }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) { *self = self.union(other); }
        }

        impl BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self { Self(self.0 & other.0) }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut separator = "";
                $(if self.contains(Self::$item) {
                    write!(f, "{separator}{}", stringify!($item))?;
                    separator = "|";
                })*
                if separator.is_empty() { f.write_str("NONE") } else { Ok(()) }
            }
        }
    };
}

bit_set! {
    /// What an event wants to hear of its handle.
    ///
    /// Hang-up and error are not asked for: they are delivered to every event of the handle.
    Interest {
        /// A read would not block.
        READ = 1;
        /// A write would not block.
        WRITE = 2;
        /// The peer closed its sending side (early close, `EPOLLRDHUP`).
        PEER_CLOSED = 4;
        /// Urgent data (`EPOLLPRI`).
        PRIORITY = 8;
    }
}

bit_set! {
    /// What happened to a handle.
    Readiness {
        /// A read would not block.
        READ = 1;
        /// A write would not block.
        WRITE = 2;
        /// The peer closed its sending side.
        PEER_CLOSED = 4;
        /// Urgent data.
        PRIORITY = 8;
        /// Both directions are shut (`EPOLLHUP`).
        HANG_UP = 16;
        /// An error is pending on the handle (`EPOLLERR`).
        ERROR = 32;
    }
}

impl Readiness {
    /// Hang-up and error: what is delivered whether it was asked for or not.
    pub(crate) const UNASKED: Self = Self::HANG_UP.union(Self::ERROR);

    /// The part of `self` that an event with `interest` is told.
    ///
    /// With a hang-up or an error a read and a write no longer block, so the events that wait for
    /// them are told so, and find the end of the stream or the error by reading or writing.
    #[inline]
    pub(crate) fn told_to(self, interest: Interest) -> Self {
        if interest.is_none() {
            return Self::NONE;
        }
        let mut told = Self(self.0 & interest.bits());
        let unasked = self & Self::UNASKED;
        if !unasked.is_none() {
            told = told | unasked | Self(interest.bits() & (Interest::READ.0 | Interest::WRITE.0));
        }
        told
    }
}

/// When a ready handle is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// While it is ready: a handler that leaves data is called again.
    #[default]
    Level,
    /// When it becomes ready: a handler must go on until the call would block.
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hang_up_is_told_to_readers_and_writers_as_ready() {
        let told = Readiness::HANG_UP.told_to(Interest::READ);
        assert_eq!(told, Readiness::HANG_UP | Readiness::READ);
        let told = Readiness::ERROR.told_to(Interest::WRITE);
        assert_eq!(told, Readiness::ERROR | Readiness::WRITE);
        assert_eq!(
            Readiness::HANG_UP.told_to(Interest::PEER_CLOSED),
            Readiness::HANG_UP
        );
        assert_eq!(Readiness::HANG_UP.told_to(Interest::NONE), Readiness::NONE);
    }

    #[test]
    fn an_event_is_told_only_what_it_asked_for() {
        let both = Readiness::READ | Readiness::WRITE;
        assert_eq!(both.told_to(Interest::WRITE), Readiness::WRITE);
        assert_eq!(Readiness::READ.told_to(Interest::WRITE), Readiness::NONE);
    }

    #[test]
    fn sets_print_their_members() {
        assert_eq!(
            format!("{:?}", Interest::READ | Interest::WRITE),
            "READ|WRITE"
        );
        assert_eq!(format!("{:?}", Readiness::NONE), "NONE");
    }
}
