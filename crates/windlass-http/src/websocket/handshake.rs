//! The opening handshake (RFC 6455 section 4.2).

use data_encoding::BASE64;
use sha1::{Digest, Sha1};

use super::session::SocketSession;
use super::{Origins, SocketHandler, WebSocketConfig};
use crate::method::Method;
use crate::request::Request;
use crate::responder::{Answered, Responder};
use crate::response::{Response, ResponseError};
use crate::status::Status;

/// Accepts a WebSocket, if that is what `request` asks for; else answers why not.
///
/// A request for something else, or for another version of the protocol, is answered `426` with the
/// version that is spoken (section 4.4); a broken handshake `400`; one from a page of a site that is
/// not [allowed](WebSocketConfig::origins) `403`. The handler then hears nothing.
///
/// # Errors
///
/// None that a request can cause; the type is that of handlers.
pub fn accept(
    request: &Request<'_>,
    response: Responder<'_>,
    config: &WebSocketConfig,
    handler: impl SocketHandler,
) -> Result<Answered, ResponseError> {
    let key = match check(request, &config.origins) {
        Ok(key) => key,
        Err(refused) => return Ok(response.respond(refused.response())),
    };
    let accept = accept_value(key);
    let protocol = choose_protocol(request, &config.protocols);
    let headers = [
        ("Sec-WebSocket-Accept", accept.as_str()),
        ("Sec-WebSocket-Protocol", protocol.unwrap_or_default()),
    ];
    let headers = &headers[..1 + usize::from(protocol.is_some())];
    let session = SocketSession::new(handler, config, protocol);
    response.upgrade("websocket", headers, session)
}

/// Why a handshake is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Key,
    NoUpgrade,
    Origin,
    Version,
}

impl Refused {
    fn response(self) -> Response {
        let (status, why) = match self {
            Self::Key => (
                Status::BAD_REQUEST,
                "Sec-WebSocket-Key is not 16 bytes in base64",
            ),
            Self::NoUpgrade => (Status::UPGRADE_REQUIRED, "this is a WebSocket"),
            Self::Origin => (
                Status::FORBIDDEN,
                "pages of that site may not open a WebSocket here",
            ),
            Self::Version => (
                Status::UPGRADE_REQUIRED,
                "only version 13 of WebSocket is spoken",
            ),
        };
        let mut response = Response::text(status, why);
        if status == Status::UPGRADE_REQUIRED {
            // A page that is configured for this status would not have the headers.
            response.is_notice = false;
            // RFC 9110 section 15.5.22, RFC 6455 section 4.4.
            response.header_lines.extend_from_slice(
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            );
        }
        response
    }
}

/// Answers the client's key, if the handshake is right.
fn check<'a>(request: &Request<'a>, origins: &Origins) -> Result<&'a [u8], Refused> {
    let offers = request.upgrade().unwrap_or_default();
    let offered = list(offers).any(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    if request.method() != Method::Get || !offered {
        return Err(Refused::NoUpgrade);
    }
    if only_value(request, "sec-websocket-version") != Some(b"13") {
        return Err(Refused::Version);
    }
    let key = only_value(request, "sec-websocket-key").ok_or(Refused::Key)?;
    if !BASE64.decode(key).is_ok_and(|key| key.len() == 16) {
        return Err(Refused::Key);
    }
    if !allows(origins, request) {
        return Err(Refused::Origin);
    }
    Ok(key)
}

fn allows(origins: &Origins, request: &Request<'_>) -> bool {
    let mut sent = request.header_values("origin");
    let Some(origin) = sent.next() else {
        return true;
    };
    if sent.next().is_some() {
        return *origins == Origins::Any;
    }
    match origins {
        Origins::Any => true,
        Origins::Listed(origins) => origins
            .iter()
            .any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin)),
        Origins::SameHost => {
            let host = str::from_utf8(origin)
                .ok()
                .and_then(|origin| origin.split_once("://"))
                .map(|(_scheme, host)| host);
            match (host, request.authority()) {
                (Some(host), Some(authority)) => host.eq_ignore_ascii_case(authority),
                _ => false,
            }
        }
    }
}

/// The first of the client's protocols that is spoken, as it is written in `spoken`.
fn choose_protocol<'c>(request: &Request<'_>, spoken: &'c [String]) -> Option<&'c str> {
    request
        .header_values("sec-websocket-protocol")
        .filter_map(|value| str::from_utf8(value).ok())
        .flat_map(list)
        .find_map(|offered| spoken.iter().find(|spoken| *spoken == offered))
        .map(String::as_str)
}

/// The members of a list (RFC 9110 section 5.6.1).
fn list(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|member| !member.is_empty())
}

/// The value of a header that must be there once.
fn only_value<'a>(request: &Request<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = request.header_values(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// The value of `Sec-WebSocket-Accept` (section 4.2.2, item 5.4).
fn accept_value(key: &[u8]) -> String {
    const SALT: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = Sha1::new().chain_update(key).chain_update(SALT).finalize();
    BASE64.encode(&digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_value_is_that_of_the_example() {
        assert_eq!(
            accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
            "RFC 6455 section 1.3"
        );
    }

    #[test]
    fn lists_may_have_blanks_and_holes() {
        let found: Vec<_> = list(" a,b ,\t, c").collect();
        assert_eq!(found, ["a", "b", "c"]);
    }
}
