//! Handlers that speak the types of the `http` crate.

mod common;

use bytes::Bytes;
use common::{AllMethods, Connection, answers};
use windlass_http::{Handler, HttpConfig, HttpService, Request, Responder, Response, Status};

/// Answers by a function that knows nothing of ours.
fn foreign(answer: fn(http::Request<Bytes>) -> http::Response<Vec<u8>>) -> impl Handler {
    AllMethods(move |request: &Request<'_>, response: Responder<'_>| {
        let Ok(request) = request.to_http() else {
            return Ok(response.respond(Response::text(Status::BAD_REQUEST, "no URI")));
        };
        Ok(response.collect(move |body, response| {
            let answer = answer(request.map(|()| body)).try_into();
            let failed = |error| Response::text(Status::INTERNAL_SERVER_ERROR, error);
            Ok(response.respond(answer.unwrap_or_else(failed)))
        }))
    })
}

fn describe(request: http::Request<Bytes>) -> http::Response<Vec<u8>> {
    let values: Vec<_> = request.headers().get_all("x-a").iter().collect();
    let text = format!(
        "{} {} {:?} {values:?} {:?}",
        request.method(),
        request.uri(),
        request.version(),
        request.body()
    );
    http::Response::new(text.into_bytes())
}

#[test]
fn request_and_body_arrive_and_the_connection_goes_on() {
    let service = HttpService::new(foreign(describe), HttpConfig::default());
    let mut connection = Connection::open(&service);
    connection.feed(
        b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\nhi",
    );
    connection.feed(b"GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n");
    connection.feed(b"GET /\"{}| HTTP/1.1\r\nHost: h\r\n\r\n");
    let all = answers(&connection.sent);
    let text = |index: usize| str::from_utf8(&all[index].body).expect("UTF-8");
    assert_eq!(text(0), "POST /a?b=c HTTP/1.1 [\"1\", \"2\"] b\"hi\"");
    assert_eq!(text(1), "GET http://h/ HTTP/1.1 [] b\"\"");
    assert!(matches!(all[2].status, 200 | 400), "{}", text(2));
}

#[test]
fn answer_without_counterpart_is_500() {
    let service = HttpService::new(
        foreign(|_| {
            let mut response = http::Response::new(vec![]);
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response
        }),
        HttpConfig::default(),
    );
    let mut connection = Connection::open(&service);
    connection.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.statuses(), [500]);
}
