//! The filter and its place in front of a handler.

use crate::handler::Handler;
use crate::method::{Method, Methods};
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::ResponseError;
use crate::session::answer_other_method;

/// Looks at requests before a handler does. One is shared by all threads of a server.
///
/// Called on the driver's thread, which must not block. It sees requests of every method but
/// `CONNECT`, also of those that the handler does not serve.
pub trait Filter: Send + Sync + 'static {
    /// What the filter keeps for each driver thread.
    type Local: Send;

    /// Makes the part of one driver thread.
    fn local(&self) -> Self::Local;

    /// Answers in the place of a handler that serves `methods`, or lets the request pass.
    ///
    /// # Errors
    ///
    /// If the answer or an added header was not valid; the answer becomes `500`.
    fn filter<'a>(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        methods: Methods,
        response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError>;
}

/// What a [`Filter`] decided.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// The filter has answered.
    Answered(Answered),
    /// Others may answer.
    Pass(Responder<'a>),
}

/// A [`Handler`] behind a [`Filter`].
#[derive(Debug)]
pub struct Filtered<F, H> {
    filter: F,
    handler: H,
    methods: Methods,
}

/// What [`Filtered`] keeps for each driver thread.
#[derive(Debug)]
pub struct FilteredLocal<F, H> {
    filter: F,
    handler: H,
}

impl<F: Filter, H: Handler> Filtered<F, H> {
    /// Puts `filter` in front of `handler`.
    #[must_use]
    pub fn new(filter: F, handler: H) -> Self {
        let methods = handler.methods();
        Self {
            filter,
            handler,
            methods,
        }
    }

    /// The filter.
    #[must_use]
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &H {
        &self.handler
    }
}

impl<F: Filter, H: Handler> Handler for Filtered<F, H> {
    type Local = FilteredLocal<F::Local, H::Local>;

    fn local(&self) -> Self::Local {
        FilteredLocal {
            filter: self.filter.local(),
            handler: self.handler.local(),
        }
    }

    /// All: the filter sees them before it is said which are not served.
    fn methods(&self) -> Methods {
        Methods::ALL
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let verdict = self
            .filter
            .filter(&mut local.filter, request, self.methods, response)?;
        match verdict {
            Verdict::Answered(answered) => Ok(answered),
            Verdict::Pass(response) if self.methods.contains(request.method()) => {
                self.handler.handle(&mut local.handler, request, response)
            }
            Verdict::Pass(response) => {
                Ok(response.respond(answer_other_method(request.head, self.methods)))
            }
        }
    }
}

impl<F: Filter> Filter for Option<F> {
    type Local = Option<F::Local>;

    fn local(&self) -> Self::Local {
        self.as_ref().map(Filter::local)
    }

    fn filter<'a>(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        methods: Methods,
        response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError> {
        match (self, local) {
            (Some(filter), Some(local)) => filter.filter(local, request, methods, response),
            _ => Ok(Verdict::Pass(response)),
        }
    }
}

macro_rules! filter_of_tuple {
    ($($name:ident $at:tt),+) => {
        impl<$($name: Filter),+> Filter for ($($name,)+) {
            type Local = ($($name::Local,)+);

            fn local(&self) -> Self::Local {
                ($(self.$at.local(),)+)
            }

            fn filter<'a>(
                &self,
                local: &mut Self::Local,
                request: &Request<'_>,
                methods: Methods,
                response: Responder<'a>,
            ) -> Result<Verdict<'a>, ResponseError> {
                $(
                    let verdict = self.$at.filter(&mut local.$at, request, methods, response)?;
                    let Verdict::Pass(response) = verdict else {
                        return Ok(verdict);
                    };
                )+
                Ok(Verdict::Pass(response))
            }
        }
    };
}

filter_of_tuple!(A 0, B 1);
filter_of_tuple!(A 0, B 1, C 2);
filter_of_tuple!(A 0, B 1, C 2, D 3);
filter_of_tuple!(A 0, B 1, C 2, D 3, E 4);

/// Whether `method` asks for a representation.
pub(super) fn reads(method: Method) -> bool {
    Methods::GET_HEAD.contains(method)
}
