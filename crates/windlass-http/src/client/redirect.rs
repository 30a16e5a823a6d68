//! Redirects (RFC 9110 section 15.4): what the next request is.

use http::header;

use crate::client::config::Downgrade;
use crate::client::error::{RedirectFault, RequestError};
use crate::client::origin::{Origin, Scheme};
use crate::client::request::{ClientRequest, RequestBody};
use crate::method::Method;
use crate::status::Status;

/// Whether `status` sends the client elsewhere if there is a `Location`.
pub(super) fn is_redirect(status: Status) -> bool {
    matches!(status.code(), 301 | 302 | 303 | 307 | 308)
}

/// Turns `request`, which was answered with `status` and `location`, into the one that follows.
pub(super) fn follow(
    request: &mut ClientRequest<'_>,
    status: Status,
    location: &[u8],
    downgrade: Downgrade,
) -> Result<(), RedirectFault> {
    let location =
        str::from_utf8(location).map_err(|_| RedirectFault::Location(RequestError::HeaderValue))?;
    let mut url = request
        .url
        .join(location)
        .map_err(|error| RedirectFault::Location(RequestError::Url(error)))?;
    if url.fragment().is_none() {
        url.set_fragment(request.url.fragment());
    }
    let origin = Origin::new(&url).map_err(RedirectFault::Location)?;
    let is_downgrade = request.origin.scheme() == Scheme::Https && origin.scheme() == Scheme::Http;
    if is_downgrade && downgrade == Downgrade::Refuse {
        return Err(RedirectFault::Downgrade);
    }
    if becomes_get(status, request.method) {
        request.method = Method::Get;
        drop_content(request);
    } else if status == Status::SEE_OTHER {
        // HEAD and GET stay what they are, but what is fetched now is another resource.
        drop_content(request);
    } else if matches!(request.body, RequestBody::Taken { .. }) {
        return Err(RedirectFault::BodyIsGone);
    }
    if origin != request.origin {
        // What was meant for one server is not told to another.
        for name in [
            header::AUTHORIZATION,
            header::COOKIE,
            header::HOST,
            header::PROXY_AUTHORIZATION,
        ] {
            request.headers.remove(name);
        }
    }
    request.origin = origin;
    request.url = url;
    Ok(())
}

/// 303 asks for it; with 301 and 302 it is what all clients do to POST (section 15.4.2 and 3).
fn becomes_get(status: Status, method: Method) -> bool {
    match status {
        Status::SEE_OTHER => !matches!(method, Method::Get | Method::Head),
        Status::MOVED_PERMANENTLY | Status::FOUND => method == Method::Post,
        _ => false,
    }
}

fn drop_content(request: &mut ClientRequest<'_>) {
    request.body = RequestBody::None;
    for name in [
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_LOCATION,
        header::CONTENT_TYPE,
    ] {
        request.headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method) -> ClientRequest<'static> {
        ClientRequest::new(method, "http://a/x/y?q#f")
            .and_then(|request| request.header("Authorization", "secret"))
            .and_then(|request| request.header("Cookie", "c"))
            .and_then(|request| request.header("Content-Type", "t"))
            .expect("valid")
            .body("body")
    }

    fn followed(method: Method, code: u16, location: &str) -> ClientRequest<'static> {
        let mut request = request(method);
        let status = Status::new(code).expect("final");
        let result = follow(&mut request, status, location.as_bytes(), Downgrade::Refuse);
        assert_eq!(result, Ok(()));
        request
    }

    #[test]
    fn locations_are_resolved_against_the_url() {
        for (location, url) in [
            ("/z", "http://a/z#f"),
            ("z?r", "http://a/x/z?r#f"),
            ("../z#g", "http://a/z#g"),
            ("//b:81/", "http://b:81/#f"),
            ("?r", "http://a/x/y?r#f"),
            ("http://c", "http://c/#f"),
        ] {
            assert_eq!(followed(Method::Get, 302, location).url.as_str(), url);
        }
    }

    #[test]
    fn method_and_body_are_kept_or_dropped_by_status() {
        for (method, code, next) in [
            (Method::Post, 301, Method::Get),
            (Method::Post, 302, Method::Get),
            (Method::Post, 303, Method::Get),
            (Method::Put, 303, Method::Get),
            (Method::Head, 303, Method::Head),
            (Method::Put, 302, Method::Put),
            (Method::Post, 307, Method::Post),
            (Method::Post, 308, Method::Post),
            (Method::Delete, 301, Method::Delete),
        ] {
            let request = followed(method, code, "/z");
            assert_eq!(request.method, next, "{method} {code}");
            let has_body = matches!(request.body, RequestBody::Bytes(_));
            assert_eq!(has_body, method == next && code != 303, "{method} {code}");
            assert_eq!(request.headers.contains_key("content-type"), has_body);
        }
    }

    #[test]
    fn secrets_stay_with_their_origin() {
        assert!(
            followed(Method::Get, 302, "/z")
                .headers
                .contains_key("authorization")
        );
        for other in ["http://b/", "http://a:81/"] {
            let request = followed(Method::Get, 302, other);
            assert!(!request.headers.contains_key("authorization"));
            assert!(!request.headers.contains_key("cookie"));
        }
    }

    #[test]
    fn locations_that_cannot_be_asked_are_faults() {
        for location in ["ftp://a/", "http://u:p@a/", "http://[", "mailto:x"] {
            let mut request = request(Method::Get);
            let result = follow(
                &mut request,
                Status::FOUND,
                location.as_bytes(),
                Downgrade::Refuse,
            );
            assert!(
                matches!(result, Err(RedirectFault::Location(_))),
                "{location}"
            );
        }
        let mut streamed = request(Method::Post);
        streamed.body = RequestBody::Taken { length: None };
        let result = follow(
            &mut streamed,
            Status::TEMPORARY_REDIRECT,
            b"/",
            Downgrade::Refuse,
        );
        assert_eq!(result, Err(RedirectFault::BodyIsGone));
    }

    #[test]
    #[cfg(feature = "client-tls")]
    fn a_downgrade_is_refused_unless_allowed() {
        let request = || ClientRequest::get("https://a/").expect("valid");
        let go = |downgrade| follow(&mut request(), Status::FOUND, b"http://a/", downgrade);
        assert_eq!(go(Downgrade::Refuse), Err(RedirectFault::Downgrade));
        assert_eq!(go(Downgrade::Allow), Ok(()));
    }
}
