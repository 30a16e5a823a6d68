//! Request methods (RFC 9110 section 9, RFC 5789) and sets of them.

use std::fmt;

/// A known request method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// RFC 9110 section 9.3.6. Never handed to a handler.
    Connect,
    /// RFC 9110 section 9.3.5.
    Delete,
    /// RFC 9110 section 9.3.1.
    Get,
    /// RFC 9110 section 9.3.2. Answered as `GET`, without the body.
    Head,
    /// RFC 9110 section 9.3.7.
    Options,
    /// RFC 5789.
    Patch,
    /// RFC 9110 section 9.3.3.
    Post,
    /// RFC 9110 section 9.3.4.
    Put,
    /// RFC 9110 section 9.3.8.
    Trace,
}

impl Method {
    pub(crate) const ALL: [Self; 9] = [
        Self::Get,
        Self::Head,
        Self::Post,
        Self::Put,
        Self::Patch,
        Self::Delete,
        Self::Options,
        Self::Connect,
        Self::Trace,
    ];

    /// The method called `name`, if it is known. Names are case-sensitive.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "CONNECT" => Self::Connect,
            "TRACE" => Self::Trace,
            _ => return None,
        })
    }

    /// The method that `input` begins with, followed by a blank, and the length of its name, if it
    /// is one of those that nearly all requests have.
    #[inline]
    pub(crate) fn at_start_of(input: &[u8]) -> Option<(Self, usize)> {
        match input {
            [b'G', b'E', b'T', b' ', ..] => Some((Self::Get, 3)),
            [b'H', b'E', b'A', b'D', b' ', ..] => Some((Self::Head, 4)),
            [b'P', b'O', b'S', b'T', b' ', ..] => Some((Self::Post, 4)),
            [b'D', b'E', b'L', b'E', b'T', b'E', b' ', ..] => Some((Self::Delete, 6)),
            _ => None,
        }
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Delete => "DELETE",
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Trace => "TRACE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u16);

impl Methods {
    /// No method.
    pub const NONE: Self = Self(0);
    /// `GET` and `HEAD`.
    pub const GET_HEAD: Self = Self::NONE.with(Method::Get).with(Method::Head);

    /// Every known method.
    pub const ALL: Self = Self((1 << Method::ALL.len()) - 1);

    /// This set and `method`.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method as u16)
    }

    /// Whether `method` is in it.
    #[must_use]
    pub const fn contains(self, method: Method) -> bool {
        self.0 & 1 << method as u16 != 0
    }

    /// The methods of this set and of `other`.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The methods in it.
    pub(crate) fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.into_iter().filter(move |m| self.contains(*m))
    }

    /// The value of an `Allow` header (RFC 9110 section 10.2.1).
    pub(crate) fn allow_value(self) -> String {
        let names: Vec<_> = self.iter().map(Method::name).collect();
        names.join(", ")
    }
}

impl From<Method> for Methods {
    /// The set of one method.
    fn from(method: Method) -> Self {
        Self::NONE.with(method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_found_by_its_name_and_case_matters() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
            assert_eq!(Method::from_name(&method.name().to_lowercase()), None);
        }
    }

    #[test]
    fn allow_value_lists_the_members() {
        assert!(
            Method::ALL
                .into_iter()
                .all(|method| Methods::ALL.contains(method))
        );
        assert_eq!(
            Methods::GET_HEAD.with(Method::Post).allow_value(),
            "GET, HEAD, POST"
        );
        assert!(!Methods::GET_HEAD.contains(Method::Put));
    }
}
