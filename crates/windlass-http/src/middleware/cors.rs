//! Cross-origin sharing: which other sites' pages may read the answers (the Fetch standard, HTTP
//! extensions, CORS protocol).

use std::error::Error;
use std::fmt;

use crate::method::{Method, Methods};
use crate::middleware::filter::{Filter, Verdict};
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::ResponseError;
use crate::status::Status;
use crate::syntax::is_value_bytes;

/// A [`Filter`] that lets pages of other origins read the answers, and answers the browser's
/// question before other requests than simple ones (the preflight).
///
/// Such requests are without cookies and passwords: `Access-Control-Allow-Credentials` is never
/// sent.
#[derive(Clone, Debug)]
pub struct Cors {
    origins: Origins,
}

#[derive(Clone, Debug)]
enum Origins {
    Any,
    Listed(Vec<String>),
}

/// What is no origin: given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsError(pub String);

/// Headers of answers that pages may see beside the few that they always may.
const EXPOSED: &str = "Accept-Ranges, Content-Encoding, Content-Range, ETag";
/// How long a browser keeps the answer to its question, in seconds.
const MAX_AGE: &str = "600";

impl Cors {
    /// Lets pages of `origins` read: `scheme://host` or `scheme://host:port` in lower case and
    /// without a default port, as browsers write them; `*` is all.
    ///
    /// # Errors
    ///
    /// Gives back an origin that is none.
    pub fn new<S: Into<String>>(origins: impl IntoIterator<Item = S>) -> Result<Self, CorsError> {
        let origins: Vec<String> = origins.into_iter().map(Into::into).collect();
        if let Some(bad) = origins.iter().find(|origin| !is_origin(origin)) {
            return Err(CorsError(bad.clone()));
        }
        let origins = if origins.iter().any(|origin| origin == "*") {
            Origins::Any
        } else {
            Origins::Listed(origins)
        };
        Ok(Self { origins })
    }

    /// The origin that the answer may be read by, if this request's may.
    fn allowed<'a>(&self, origin: Option<&'a [u8]>) -> Option<&'a [u8]> {
        let origin = origin?;
        match &self.origins {
            Origins::Any => Some(b"*"),
            Origins::Listed(listed) => listed
                .iter()
                .any(|listed| listed.as_bytes() == origin)
                .then_some(origin),
        }
    }
}

impl Filter for Cors {
    type Local = ();

    fn local(&self) -> Self::Local {}

    fn filter<'a>(
        &self,
        (): &mut Self::Local,
        request: &Request<'_>,
        methods: Methods,
        mut response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError> {
        let origin = request.header("origin");
        let asked = request.header("access-control-request-method");
        let asks = request.method() == Method::Options && origin.is_some() && asked.is_some();
        if matches!(self.origins, Origins::Listed(_)) {
            // A cache must not give the answer for one origin to another.
            response.with_header("Vary", "Origin")?;
        }
        let allowed = self.allowed(origin);
        if let Some(allowed) = allowed {
            response.with_header("Access-Control-Allow-Origin", allowed)?;
        }
        if asks {
            let answered = answer_question(request, allowed.is_some(), methods, response)?;
            return Ok(Verdict::Answered(answered));
        }
        if allowed.is_some() {
            response.with_header("Access-Control-Expose-Headers", EXPOSED)?;
        }
        Ok(Verdict::Pass(response))
    }
}

/// Answers a preflight: without the headers below, the browser goes no further.
fn answer_question(
    request: &Request<'_>,
    is_allowed: bool,
    methods: Methods,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let mut head = response.start(Status::NO_CONTENT);
    if is_allowed {
        head = head
            .header("Access-Control-Allow-Methods", methods.allow_value())?
            .header("Access-Control-Max-Age", MAX_AGE)?;
        // Which headers a request has is of no consequence to who may read the answer.
        if let Some(names) = request.header("access-control-request-headers")
            && is_value_bytes(names)
        {
            head = head.header("Access-Control-Allow-Headers", names)?;
        }
    }
    Ok(head.empty())
}

fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let is_plain = |text: &str, more: &[u8]| {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte);
        !text.is_empty() && text.bytes().all(fits)
    };
    is_plain(scheme, b"+-.") && is_plain(authority, b"-._:[]")
}

impl fmt::Display for CorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(origin) = self;
        write!(
            f,
            "{origin:?} is no origin; write scheme://host or scheme://host:port in lower case, or *"
        )
    }
}

impl Error for CorsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_checked() {
        for good in [
            "*",
            "https://a.example",
            "http://[::1]:8080",
            "chrome-extension://abc",
        ] {
            assert!(Cors::new([good]).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a.example",
            "https://",
            "https://a/",
            "https://A",
            "://a",
            "https://a b",
        ] {
            assert_eq!(Cors::new([bad]).unwrap_err(), CorsError(bad.into()));
        }
    }
}
