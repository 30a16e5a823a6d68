//! Routing: which handler answers, by path and method.
//!
//! Patterns are those of [`matchit`]: `/users/{id}` takes one segment, `/files/{*rest}` the rest of
//! the path, which is not empty; `{{` and `}}` stand for braces. Text goes before parameters, so
//! the order of declarations does not matter; two patterns that could not be told apart are an error
//! when the second is added, as are a parameter and a rest at the same place.
//!
//! A path is compared in one normal form ([`pattern`]), so `/%75sers` is `/users`; a slash that is
//! encoded is part of its segment. Dot segments are not resolved, and slashes count, at the end of
//! a path as well. Parameters are decoded, once.
//!
//! Each handler of a router keeps its own [`Handler::Local`] for each thread, and a state of the
//! thread's can be shared by all ([`Router::with_local`]).
//!
//! Cost: one walk down a tree over the bytes of the path; nothing is allocated unless the path has
//! escapes or many parameters.

mod erased;
mod error;
mod pattern;

use std::any::Any;
use std::fmt;

use self::erased::{Erased, Own, Sharing};
pub use self::error::RouteError;
use self::pattern::{DecodedParams, PARAMS_MAX, Pattern, normalize, skip_segments};
use crate::handler::Handler;
use crate::method::{Method, Methods};
use crate::request::{Request, Route};
use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// A [`Handler`] that gives each request to the handler for its path and method.
///
/// `HEAD` is answered by what is declared for `GET`; a method that is not declared for a path gets
/// `405`, and `OPTIONS` gets `204`, both with the `Allow` of that path; a path that is not
/// declared, `404`; one with a malformed escape, or one that a parameter cannot hold because it is
/// not UTF-8, `400`.
///
/// ```
/// use windlass_http::{HttpConfig, HttpService, Request, Responder, RouteError, Router, Status};
///
/// fn routes() -> Result<Router, RouteError> {
///     Router::new()
///         .get("/users/{id}", |request: &Request<'_>, response: Responder<'_>| {
///             let id = request.param("id").unwrap_or_default();
///             Ok(response.start(Status::OK).body(format!("user {id}\n")))
///         })?
///         .delete("/users/{id}", |_: &Request<'_>, response: Responder<'_>| {
///             Ok(response.start(Status::NO_CONTENT).empty())
///         })
/// }
/// # fn run() -> Result<(), RouteError> {
/// let service = HttpService::new(routes()?, HttpConfig::default());
/// # let _ = service;
/// # Ok(())
/// # }
/// # run().expect("the patterns are valid");
/// ```
pub struct Router<L = ()> {
    tree: matchit::Router<usize>,
    places: Vec<Place>,
    handlers: Vec<Box<dyn Erased<L>>>,
    fallback: Option<Target>,
    make_local: Box<dyn Fn() -> L + Send + Sync>,
}

/// What a [`Router`] keeps for each driver thread.
pub struct RouterLocal<L> {
    shared: L,
    /// Of each handler.
    own: Vec<Box<dyn Any + Send>>,
    /// The normal form of a path that has escapes.
    normal: String,
    params: DecodedParams,
}

/// What is declared for a pattern.
#[derive(Debug)]
struct Place {
    /// As it was declared.
    pattern: String,
    kind: PlaceKind,
    /// The handler for each method.
    by_method: [Option<usize>; Method::ALL.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    /// The handler sees what is behind so many segments of the path.
    Nested {
        segments: usize,
    },
    /// The prefix of a nested handler, without the slash that it ends in.
    Redirect,
    Route,
}

/// A handler, and what it serves.
#[derive(Clone, Copy, Debug)]
struct Target {
    handler: usize,
    methods: Methods,
}

/// The name that no pattern can declare of what is behind a prefix.
const REST: &str = "?";

impl Router {
    /// A router without routes, which answers `404` to everything.
    #[must_use]
    pub fn new() -> Self {
        Self::with_local(|| ())
    }
}

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Send + 'static> Router<L> {
    /// A router whose handlers share what `make_local` makes for each driver thread
    /// ([`route_with`](Self::route_with)).
    ///
    /// ```
    /// use windlass_http::{Method, Request, Responder, Router, Status};
    ///
    /// # fn run() -> Result<(), windlass_http::RouteError> {
    /// // Each thread counts for itself: no lock.
    /// let count = |seen: &mut u64, _: &Request<'_>, response: Responder<'_>| {
    ///     *seen += 1;
    ///     Ok(response.start(Status::OK).body(format!("{seen}\n")))
    /// };
    /// let router = Router::with_local(|| 0_u64).route_with(Method::Get, "/count", count)?;
    /// # let _ = router;
    /// # Ok(())
    /// # }
    /// # run().expect("the patterns are valid");
    /// ```
    #[must_use]
    pub fn with_local(make_local: impl Fn() -> L + Send + Sync + 'static) -> Self {
        Self {
            tree: matchit::Router::new(),
            places: Vec::new(),
            handlers: Vec::new(),
            fallback: None,
            make_local: Box::new(make_local),
        }
    }

    /// Has `handler` answer `methods` on paths that match `pattern`, whatever
    /// [`Handler::methods`] says.
    ///
    /// # Errors
    ///
    /// [`RouteError::Conflict`] if the pattern matches the same as another that is declared, with
    /// other names of parameters, or is declared for one of the methods;
    /// [`RouteError::Malformed`] if it is not a pattern; [`RouteError::Methods`] if there is no
    /// method, or `CONNECT`.
    pub fn route(
        self,
        methods: impl Into<Methods>,
        pattern: &str,
        handler: impl Handler,
    ) -> Result<Self, RouteError> {
        self.add(methods.into(), pattern, Box::new(Own(handler)))
    }

    /// As [`route`](Self::route), for a function that is given what the thread's handlers share.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn route_with<F>(
        self,
        methods: impl Into<Methods>,
        pattern: &str,
        handler: F,
    ) -> Result<Self, RouteError>
    where
        F: Fn(&mut L, &Request<'_>, Responder<'_>) -> Result<Answered, ResponseError>
            + Send
            + Sync
            + 'static,
    {
        self.add(methods.into(), pattern, Box::new(Sharing(handler)))
    }

    /// Has `handler` answer `GET` and `HEAD` on paths that match `pattern`.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn get(self, pattern: &str, handler: impl Handler) -> Result<Self, RouteError> {
        self.route(Method::Get, pattern, handler)
    }

    /// Has `handler` answer `POST` on paths that match `pattern`.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn post(self, pattern: &str, handler: impl Handler) -> Result<Self, RouteError> {
        self.route(Method::Post, pattern, handler)
    }

    /// Has `handler` answer `PUT` on paths that match `pattern`.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn put(self, pattern: &str, handler: impl Handler) -> Result<Self, RouteError> {
        self.route(Method::Put, pattern, handler)
    }

    /// Has `handler` answer `PATCH` on paths that match `pattern`.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn patch(self, pattern: &str, handler: impl Handler) -> Result<Self, RouteError> {
        self.route(Method::Patch, pattern, handler)
    }

    /// Has `handler` answer `DELETE` on paths that match `pattern`.
    ///
    /// # Errors
    ///
    /// As [`route`](Self::route).
    pub fn delete(self, pattern: &str, handler: impl Handler) -> Result<Self, RouteError> {
        self.route(Method::Delete, pattern, handler)
    }

    /// Has `handler`, with its own [`Handler::methods`], answer on all paths below `prefix`, which
    /// may have parameters. [`Request::path`] is what is behind the prefix, and begins with a
    /// slash. Routes that are declared below the prefix go before.
    ///
    /// `/api` itself is given to the handler of `/api`, as the path `/`. A prefix that ends in a
    /// slash is for handlers whose links are relative: `/files` is redirected to `/files/` (308).
    ///
    /// ```
    /// use windlass_http::{Request, Responder, Router, Status};
    ///
    /// let show = |request: &Request<'_>, response: Responder<'_>| {
    ///     let (tenant, id) = (request.param("tenant"), request.param("id"));
    ///     Ok(response.start(Status::OK).body(format!("{tenant:?} {id:?} {}", request.path())))
    /// };
    /// # fn run(
    /// #     show: impl windlass_http::Handler,
    /// # ) -> Result<Router, windlass_http::RouteError> {
    /// let users = Router::new().get("/users/{id}", show)?;
    /// let router = Router::new().nest("/of/{tenant}", users)?;
    /// # Ok(router)
    /// # }
    /// # run(show).expect("the patterns are valid");
    /// ```
    ///
    /// # Errors
    ///
    /// [`RouteError::Conflict`] and [`RouteError::Malformed`] as [`route`](Self::route), the
    /// latter also if the prefix takes the rest of a path.
    pub fn nest(mut self, prefix: &str, handler: impl Handler) -> Result<Self, RouteError> {
        let pattern = Pattern::parse(prefix)?;
        if pattern.takes_rest {
            return Err(RouteError::malformed(prefix, "a prefix takes no rest"));
        }
        let methods = handler.methods();
        let handler = self.push(Box::new(Own(handler)));
        let target = Target { handler, methods };
        let bare = pattern.normal.trim_end_matches('/');
        let segments = bare.matches('/').count();
        let place = self.push_place(prefix, PlaceKind::Nested { segments }, target);
        let without_slash = if pattern.normal.ends_with('/') {
            self.push_place(prefix, PlaceKind::Redirect, target)
        } else {
            place
        };
        if !bare.is_empty() {
            self.insert(prefix, bare.to_owned(), without_slash)?;
        }
        self.insert(prefix, format!("{bare}/"), place)?;
        self.insert(prefix, format!("{bare}/{{*{REST}}}"), place)?;
        Ok(self)
    }

    /// Has `handler`, with its own [`Handler::methods`], answer on all paths that are not declared.
    /// The last one counts.
    #[must_use]
    pub fn fallback(mut self, handler: impl Handler) -> Self {
        let methods = handler.methods();
        let handler = self.push(Box::new(Own(handler)));
        self.fallback = Some(Target { handler, methods });
        self
    }

    fn add(
        mut self,
        methods: Methods,
        declared: &str,
        handler: Box<dyn Erased<L>>,
    ) -> Result<Self, RouteError> {
        if methods == Methods::NONE || methods.contains(Method::Connect) {
            return Err(RouteError::Methods {
                pattern: declared.to_owned(),
            });
        }
        let pattern = Pattern::parse(declared)?;
        let handler = self.push(handler);
        let target = Target { handler, methods };
        // Patterns in normal form, so the same place is declared by the same text.
        let same = |place: &Place| {
            place.kind == PlaceKind::Route
                && Pattern::parse(&place.pattern).is_ok_and(|other| other.normal == pattern.normal)
        };
        let Some(index) = self.places.iter().position(same) else {
            let place = self.push_place(declared, PlaceKind::Route, target);
            self.insert(declared, pattern.normal, place)?;
            return Ok(self);
        };
        let place = &mut self.places[index];
        for method in methods.iter() {
            if place.by_method[method as usize].replace(handler).is_some() {
                return Err(RouteError::Conflict {
                    pattern: format!("{method} {declared}"),
                    with: format!("{method} {}", place.pattern),
                });
            }
        }
        Ok(self)
    }

    fn push(&mut self, handler: Box<dyn Erased<L>>) -> usize {
        self.handlers.push(handler);
        self.handlers.len() - 1
    }

    fn push_place(&mut self, declared: &str, kind: PlaceKind, target: Target) -> usize {
        let mut by_method = [None; Method::ALL.len()];
        for method in target.methods.iter() {
            by_method[method as usize] = Some(target.handler);
        }
        self.places.push(Place {
            pattern: declared.to_owned(),
            kind,
            by_method,
        });
        self.places.len() - 1
    }

    fn insert(&mut self, declared: &str, normal: String, place: usize) -> Result<(), RouteError> {
        match self.tree.insert(normal, place) {
            Ok(()) => Ok(()),
            Err(matchit::InsertError::Conflict { with }) => Err(RouteError::Conflict {
                pattern: declared.to_owned(),
                with: self.declared(&with),
            }),
            Err(_) => Err(RouteError::malformed(
                declared,
                "its parameters cannot be told apart",
            )),
        }
    }

    /// How the pattern with this normal form was declared.
    fn declared(&self, normal: &str) -> String {
        let bare = normal.strip_suffix(&format!("{{*{REST}}}"));
        let bare = bare.unwrap_or(normal).trim_end_matches('/');
        let same = |place: &&Place| {
            Pattern::parse(&place.pattern)
                .is_ok_and(|other| other.normal.trim_end_matches('/') == bare)
        };
        let place = self.places.iter().find(same);
        place.map_or_else(|| normal.to_owned(), |place| place.pattern.clone())
    }

    /// The answer for the target `*` (RFC 9110 section 9.3.7): all that is declared anywhere.
    fn all_methods(&self) -> Methods {
        let fallback = self.fallback.map_or(Methods::NONE, |target| target.methods);
        self.places
            .iter()
            .fold(fallback, |all, place| all.union(place.methods()))
    }

    /// Answers a path that is not declared.
    fn fall_back(
        &self,
        local: &mut RouterLocal<L>,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        match self.fallback {
            Some(Target { handler, methods }) if methods.contains(request.method()) => {
                let own = &mut *local.own[handler];
                self.handlers[handler].handle(&mut local.shared, own, request, response)
            }
            Some(Target { methods, .. }) => answer_other_method(methods, request, response),
            None => {
                let why = "there is nothing at this path";
                Ok(response.respond(Response::text(Status::NOT_FOUND, why)))
            }
        }
    }
}

impl Place {
    /// The handler for `method`; that of `GET` for `HEAD`, unless it has its own.
    fn handler(&self, method: Method) -> Option<usize> {
        let instead = match method {
            Method::Head => self.by_method[Method::Get as usize],
            _ => None,
        };
        self.by_method[method as usize].or(instead)
    }

    fn methods(&self) -> Methods {
        Method::ALL
            .into_iter()
            .filter(|method| self.handler(*method).is_some())
            .fold(Methods::NONE, Methods::with)
    }
}

impl<L: Send + 'static> Handler for Router<L> {
    type Local = RouterLocal<L>;

    fn local(&self) -> Self::Local {
        RouterLocal {
            shared: (self.make_local)(),
            own: self
                .handlers
                .iter()
                .map(|handler| handler.local())
                .collect(),
            normal: String::new(),
            params: DecodedParams::default(),
        }
    }

    /// All but `CONNECT`: which are served depends on the path.
    fn methods(&self) -> Methods {
        Method::ALL
            .into_iter()
            .filter(|method| *method != Method::Connect)
            .fold(Methods::NONE, Methods::with)
    }

    fn handle(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        response: Responder<'_>,
    ) -> Result<Answered, ResponseError> {
        let raw = request.path();
        if raw == "*" {
            return answer_other_method(self.all_methods(), request, response);
        }
        let path = if memchr::memchr(b'%', raw.as_bytes()).is_none() {
            raw
        } else if normalize(raw, &mut local.normal).is_ok() {
            &*local.normal
        } else {
            return Ok(response.respond(bad_path("the path has a malformed escape")));
        };
        let Ok(found) = self.tree.at(path) else {
            return self.fall_back(local, request, response);
        };
        let place = &self.places[*found.value];
        if place.kind == PlaceKind::Redirect {
            return redirect(request, response);
        }
        let Some(handler) = place.handler(request.method()) else {
            return answer_other_method(place.methods(), request, response);
        };
        let mut params = [("", ""); PARAMS_MAX];
        let declared = found.params.iter().filter(|(name, _)| *name != REST);
        let count = params
            .iter_mut()
            .zip(declared)
            .map(|(slot, param)| *slot = param)
            .count();
        let params = &mut params[..count];
        if local.params.decode(params).is_err() {
            return Ok(response.respond(bad_path("the path is not UTF-8")));
        }
        let route = Route {
            path: match place.kind {
                PlaceKind::Nested { segments } => skip_segments(raw, segments),
                PlaceKind::Redirect | PlaceKind::Route => raw,
            },
            params,
            outer: request.route,
        };
        let request = request.routed(&route);
        let own = &mut *local.own[handler];
        self.handlers[handler].handle(&mut local.shared, own, &request, response)
    }
}

impl<L> fmt::Debug for Router<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.places.iter().map(|place| &*place.pattern);
        f.debug_struct("Router")
            .field("patterns", &patterns.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<L> fmt::Debug for RouterLocal<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterLocal").finish_non_exhaustive()
    }
}

/// Answers a method that is not declared for a path: `OPTIONS` by telling which are.
fn answer_other_method(
    methods: Methods,
    request: &Request<'_>,
    response: Responder<'_>,
) -> Result<Answered, ResponseError> {
    let answer = if request.method() == Method::Options {
        Response::new(Status::NO_CONTENT)
    } else {
        let detail = format_args!("{} is not served at this path", request.method());
        Response::text(Status::METHOD_NOT_ALLOWED, detail)
    };
    let allow = methods.with(Method::Options).allow_value();
    Ok(response.respond(answer.header("Allow", allow)?))
}

/// Redirects to the same path with a slash. What stands before its first segment is made one
/// slash: browsers take `//host` and `/\host` for another site.
fn redirect(request: &Request<'_>, response: Responder<'_>) -> Result<Answered, ResponseError> {
    let path = request.full_path().trim_start_matches(['/', '\\']);
    let (mark, query) = request.query().map_or(("", ""), |query| ("?", query));
    Ok(response
        .start(Status::PERMANENT_REDIRECT)
        .header_fmt("Location", format_args!("/{path}/{mark}{query}"))?
        .empty())
}

fn bad_path(why: &str) -> Response {
    Response::text(Status::BAD_REQUEST, why)
}
