//! Basic authentication (RFC 7617).
//!
//! To verify a password takes a good part of a second, as it should, so a job in the pool does it,
//! and each driver thread remembers the credentials that were right, by a hash under a secret key
//! of the filter. Wrong ones are verified each time. Only so many wait to be verified: who sends
//! wrong passwords faster than they are verified, and may be gone before the answer, would have the
//! others wait without end.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::users::Users;
use crate::credentials::{decode_basic, name_and_password};
use crate::method::Methods;
use crate::middleware::filter::{Filter, Verdict};
use crate::request::Request;
use crate::responder::Responder;
use crate::response::{Response, ResponseError};
use crate::status::Status;
use crate::syntax::is_value;

/// A [`Filter`] that lets pass who gives a name and password of [`Users`], and answers `401` to
/// all others; `503` to those beyond 128 that wait to be verified.
///
/// The password is sent with each request, in clear text: what matters needs TLS.
pub struct BasicAuth {
    users: Arc<Users>,
    /// The value of `WWW-Authenticate`.
    challenge: String,
    /// Goes into what is remembered, so that nobody can compute it.
    secret: [u8; 32],
    /// How many passwords are being verified, or wait for it.
    waiting_count: Arc<AtomicUsize>,
}

/// The credentials that were right, of one driver thread.
#[derive(Default)]
pub struct BasicAuthLocal {
    known: HashSet<Key>,
    /// From the one that is forgotten first.
    order: VecDeque<Key>,
}

type Key = [u8; 32];

/// One of the passwords that wait to be verified, until it is dropped.
struct Waiting(Arc<AtomicUsize>);

/// What a job found out.
struct Verified {
    key: Key,
    is_right: bool,
}

/// How many credentials a thread remembers.
const KNOWN_MAX: usize = 1024;
/// How many passwords may wait to be verified.
const WAITING_MAX: usize = 128;
/// Longer passwords are wrong without a look, as some hashes take time in proportion.
const PASSWORD_BYTES_MAX: usize = 1024;

impl BasicAuth {
    /// Lets `users` pass; `realm` is what browsers show beside the question for the password.
    ///
    /// # Errors
    ///
    /// If `realm` has a byte that no header value may have.
    ///
    /// # Panics
    ///
    /// If the system has no random numbers.
    pub fn new(users: Users, realm: &str) -> Result<Self, ResponseError> {
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
        if !is_value(challenge.as_bytes()) {
            return Err(ResponseError::HeaderValue);
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system has random numbers");
        Ok(Self {
            users: Arc::new(users),
            challenge,
            secret,
            waiting_count: Arc::default(),
        })
    }

    fn refuse<'a>(&self, response: Responder<'a>) -> Result<Verdict<'a>, ResponseError> {
        let answer = Response::text(Status::UNAUTHORIZED, "a name and password are needed")
            .header("WWW-Authenticate", &self.challenge)?;
        Ok(Verdict::Answered(response.respond(answer)))
    }

    fn put_off<'a>(&self, response: Responder<'a>) -> Result<Verdict<'a>, ResponseError> {
        let detail = "too many passwords wait to be verified";
        let answer =
            Response::text(Status::SERVICE_UNAVAILABLE, detail).header("Retry-After", "5")?;
        Ok(Verdict::Answered(response.respond(answer)))
    }

    fn key(&self, credentials: &[u8]) -> Key {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(credentials);
        hash.finalize().into()
    }
}

impl Filter for BasicAuth {
    type Local = BasicAuthLocal;

    fn local(&self) -> Self::Local {
        BasicAuthLocal::default()
    }

    fn filter<'a>(
        &self,
        local: &mut Self::Local,
        request: &Request<'_>,
        _methods: Methods,
        response: Responder<'a>,
    ) -> Result<Verdict<'a>, ResponseError> {
        let mut fields = request.header_values("authorization");
        let credentials = match (fields.next(), fields.next()) {
            (Some(field), None) => decode_basic(field),
            _ => None,
        };
        let Some(credentials) = credentials else {
            return self.refuse(response);
        };
        let key = self.key(&credentials);
        if local.known.contains(&key) {
            return Ok(Verdict::Pass(response));
        }
        if let Some(verified) = request.carried::<Verified>().filter(|v| v.key == key) {
            if !verified.is_right {
                return self.refuse(response);
            }
            local.remember(key);
            return Ok(Verdict::Pass(response));
        }
        if name_and_password(&credentials).1.len() > PASSWORD_BYTES_MAX {
            return self.refuse(response);
        }
        let Some(waiting) = Waiting::begin(&self.waiting_count) else {
            return self.put_off(response);
        };
        let users = Arc::clone(&self.users);
        Ok(Verdict::Answered(response.again_after(move || {
            let _until_verified = waiting;
            let (name, password) = name_and_password(&credentials);
            Verified {
                key,
                is_right: users.verify(name, password),
            }
        })))
    }
}

impl Waiting {
    /// One more, if there is room.
    fn begin(count: &Arc<AtomicUsize>) -> Option<Self> {
        let before = count.fetch_add(1, Ordering::Relaxed);
        let waiting = Self(Arc::clone(count));
        (before < WAITING_MAX).then_some(waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BasicAuthLocal {
    fn remember(&mut self, key: Key) {
        if self.known.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > KNOWN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth")
            .field("users", &self.users)
            .field("challenge", &self.challenge)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BasicAuthLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuthLocal")
            .field("known_count", &self.known.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_credentials_are_remembered_and_the_oldest_is_forgotten() {
        let mut local = BasicAuthLocal::default();
        let key = |number: usize| {
            let mut key = Key::default();
            key[..8].copy_from_slice(&number.to_ne_bytes());
            key
        };
        for number in 0..=KNOWN_MAX {
            local.remember(key(number));
            local.remember(key(number));
        }
        assert_eq!(local.known.len(), KNOWN_MAX);
        assert_eq!(local.order.len(), KNOWN_MAX);
        assert!(!local.known.contains(&key(0)) && local.known.contains(&key(1)));
    }
}
