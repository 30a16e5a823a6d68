//! Headers that each answer has.

use crate::method::Methods;
use crate::middleware::filter::{Filter, Verdict};
use crate::request::Request;
use crate::responder::Responder;
use crate::response::{ResponseError, write_header};

/// A [`Filter`] that adds headers to the answers of all that comes behind it. Answers to what is
/// no request, which no handler sees, are without.
#[derive(Clone, Debug, Default)]
pub struct FixedHeaders {
    /// Checked lines.
    lines: Vec<u8>,
}

impl FixedHeaders {
    /// Adds a header; one that is added twice is sent twice.
    ///
    /// # Errors
    ///
    /// As [`ResponseHead::header`](crate::ResponseHead::header).
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), ResponseError> {
        write_header(&mut self.lines, name, value.as_ref())
    }
}

impl Filter for FixedHeaders {
    type Local = ();

    fn local(&self) -> Self::Local {}

    fn filter<'a>(
        &self,
        (): &mut Self::Local,
        _request: &Request<'_>,
        _methods: Methods,
        response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError> {
        response.extra.extend_from_slice(&self.lines);
        Ok(Verdict::Pass(response))
    }
}
