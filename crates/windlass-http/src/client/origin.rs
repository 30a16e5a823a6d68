//! Origins (RFC 9110 section 4.3.1): whom a connection can be used for.

use std::fmt;

use url::{Host, Url};

use crate::client::error::RequestError;

/// A scheme that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`, port 80.
    Http,
    /// `https`, port 443.
    Https,
}

impl Scheme {
    /// As in a URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Scheme, host and port of a URL. Connections are shared by the requests to one origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Scheme,
    host: Host<String>,
    port: u16,
}

impl Origin {
    /// The origin of `url`.
    ///
    /// # Errors
    ///
    /// [`Scheme`](RequestError::Scheme), [`NoHost`](RequestError::NoHost),
    /// [`UserInfo`](RequestError::UserInfo), [`TlsUnavailable`](RequestError::TlsUnavailable).
    pub fn new(url: &Url) -> Result<Self, RequestError> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" if cfg!(feature = "client-tls") => Scheme::Https,
            "https" => return Err(RequestError::TlsUnavailable),
            _ => return Err(RequestError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RequestError::UserInfo);
        }
        let host = url.host().ok_or(RequestError::NoHost)?.to_owned();
        Ok(Self {
            scheme,
            host,
            port: url.port().unwrap_or_else(|| scheme.default_port()),
        })
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host: a name in ASCII, or an address.
    #[must_use]
    pub fn host(&self) -> &Host<String> {
        &self.host
    }

    /// The port, also if it is the scheme's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The value of `Host` (RFC 9110 section 7.2): the port only if it is not the scheme's, an
    /// IPv6 address in brackets.
    #[must_use]
    pub fn host_value(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.host_value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Result<Origin, RequestError> {
        Origin::new(&Url::parse(url).map_err(RequestError::Url)?)
    }

    #[test]
    fn default_ports_are_left_out_and_ipv6_is_bracketed() {
        for (url, host) in [
            ("http://a/b", "a"),
            ("http://a:80/", "a"),
            ("http://A.Example:8080/", "a.example:8080"),
            ("http://[::1]/", "[::1]"),
            ("http://[::1]:81/", "[::1]:81"),
            ("http://127.0.0.1:443/", "127.0.0.1:443"),
        ] {
            assert_eq!(origin(url).expect(url).host_value(), host, "{url}");
        }
    }

    #[test]
    fn urls_that_cannot_be_asked_are_refused() {
        for (url, error) in [
            ("ftp://a/", RequestError::Scheme),
            ("http://u@a/", RequestError::UserInfo),
            ("http://u:p@a/", RequestError::UserInfo),
            ("http://:p@a/", RequestError::UserInfo),
            ("http://", RequestError::Url(url::ParseError::EmptyHost)),
            (
                "/a",
                RequestError::Url(url::ParseError::RelativeUrlWithoutBase),
            ),
            ("mailto:a", RequestError::Scheme),
        ] {
            assert_eq!(origin(url), Err(error), "{url}");
        }
    }

    #[test]
    #[cfg(not(feature = "client-tls"))]
    fn https_needs_the_feature() {
        assert_eq!(origin("https://a/"), Err(RequestError::TlsUnavailable));
    }
}
