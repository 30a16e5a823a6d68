//! The client on a loop, against our own server: pools, queues, redirects, lifetimes.

mod client_support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use client_support::{Client, Loop, OK, OwnServer, Server, State, ask, get, pool, run};
use http::HeaderMap;
use windlass::event_loop::{Context, EventLoop};
use windlass_http::client::{
    ClientConfig, ClientError, ClientErrorKind, ClientRequest, Flow, HttpClient, RedirectFault,
    RequestError, ResponseHandler, ResponseHead,
};
use windlass_http::{Method, Methods, Request, Responder, Response, ResponseError, Status};

fn site(request: &Request<'_>) -> Result<Response, ResponseError> {
    let redirect = |code: u16, to: &str| {
        let status = Status::new(code).expect("final");
        Response::text(status, "elsewhere").header("Location", to)
    };
    match request.path() {
        "/moved" => redirect(301, "/target"),
        "/other" => redirect(303, "target?q"),
        "/keep" => redirect(307, "/target"),
        "/loop" => redirect(302, "/loop"),
        "/nowhere" => redirect(302, "ftp://x/"),
        "/plain" => Ok(Response::text(Status::FOUND, "no location")),
        "/big" => Ok(Response::new(Status::OK).body(vec![b'x'; 300_000])),
        path => {
            let text = format!("{} {path}", request.method());
            Ok(Response::new(Status::OK).body(text))
        }
    }
}

struct Site;

impl windlass_http::Handler for Site {
    type Local = ();

    fn local(&self) {}

    fn handle(
        &self,
        (): &mut (),
        request: &Request<'_>,
        responder: Responder<'_>,
    ) -> Result<windlass_http::Answered, ResponseError> {
        Ok(responder.respond(site(request)?))
    }

    fn methods(&self) -> Methods {
        Methods::GET_HEAD.with(Method::Post).with(Method::Put)
    }
}

fn own_server() -> OwnServer {
    OwnServer::start(Site)
}

fn text(result: &Result<windlass_http::client::ClientResponse, ClientError>) -> String {
    let response = result.as_ref().expect("a response");
    String::from_utf8(response.body.to_vec()).expect("text")
}

/// Asks `left` more times, one after the other.
fn ask_in_turn(
    client: &Client<'static>,
    cx: &mut windlass::event_loop::Reactor<'static, State>,
    url: &str,
    left: usize,
) {
    let (next, again) = (client.clone(), url.to_owned());
    client
        .get(cx, url, move |state, cx, result| {
            state.results.push(result);
            if left > 0 {
                ask_in_turn(&next, cx, &again, left - 1);
            }
        })
        .expect("sent");
}

#[test]
fn requests_in_turn_share_a_kept_connection() {
    let server = own_server();
    let url = server.url("/a");
    let state = run(ClientConfig::default(), |client, event_loop| {
        ask_in_turn(client, event_loop, &url, 19);
    });
    assert_eq!(state.results.len(), 20);
    assert!(state.results.iter().all(|result| text(result) == "GET /a"));
    assert_eq!(server.stop().accepted, 1);
}

#[test]
fn requests_beyond_the_limit_of_an_origin_wait_in_order() {
    let server = own_server();
    let mut config = ClientConfig::default();
    config.connections_per_origin = 2;
    let state = run(config, |client, event_loop| {
        for number in 0..50 {
            ask(client, event_loop, &server.url(&format!("/{number}")));
        }
        assert_eq!(client.pending_count(), 50);
    });
    let mut bodies: Vec<String> = state.results.iter().map(text).collect();
    assert_eq!(bodies.len(), 50);
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 50);
    assert!(server.stop().accepted <= 2);
}

#[test]
fn too_long_a_queue_is_refused() {
    let server = own_server();
    let mut config = ClientConfig::default();
    config.connections_per_origin = 1;
    config.queue_max = 1;
    let state = run(config, |client, event_loop| {
        ask(client, event_loop, &server.url("/1"));
        ask(client, event_loop, &server.url("/2"));
        let refused = client
            .get(event_loop, &server.url("/3"), |_, _, _| panic!("dropped"))
            .expect_err("the queue is full");
        assert!(matches!(
            refused.kind(),
            ClientErrorKind::Busy { queue_max: 1 }
        ));
    });
    assert_eq!(state.results.len(), 2);
    server.stop();
}

#[test]
fn idle_connections_are_limited_and_do_not_keep_the_loop_running() {
    let server = own_server();
    let mut event_loop = Loop::new().expect("open");
    let mut config = ClientConfig::default();
    config.idle_connections_max = 3;
    let client = HttpClient::new(config, pool());
    for _ in 0..8 {
        ask(&client, &mut event_loop, &server.url("/"));
    }
    let mut state = State::default();
    event_loop.run(&mut state).expect("run");
    assert_eq!(state.results.len(), 8);
    assert_eq!(client.idle_count(), 3);
    client.close_idle(&mut event_loop);
    assert_eq!(client.idle_count(), 0);
    server.stop();
}

#[test]
fn a_kept_connection_is_closed_in_time_or_when_the_client_is_dropped() {
    let server = Server::start(2, |_, mut connection| {
        connection.answer(OK);
        connection.wait_for_end();
    });
    let mut config = ClientConfig::default();
    config.timeouts.keep = Some(Duration::from_millis(20));
    let client_of = |config| HttpClient::<State>::new(config, pool());
    let mut event_loop = Loop::new().expect("open");
    let mut state = State::default();
    let client = client_of(config);
    ask(&client, &mut event_loop, &server.url("/"));
    event_loop.run(&mut state).expect("run");
    assert_eq!(client.idle_count(), 1);
    event_loop.hold();
    while client.idle_count() > 0 {
        event_loop
            .after(Duration::from_millis(5), |_, _| ())
            .expect("room");
        event_loop.run_once(&mut state).expect("run");
    }
    event_loop.release();

    let client = client_of(ClientConfig::default());
    ask(&client, &mut event_loop, &server.url("/"));
    event_loop.run(&mut state).expect("run");
    drop(client);
    server.join();
}

#[test]
fn redirects_are_followed_with_the_right_method() {
    let server = own_server();
    for (method, path, expected) in [
        (Method::Get, "/moved", "GET /target"),
        (Method::Post, "/moved", "GET /target"),
        (Method::Put, "/moved", "PUT /target"),
        (Method::Post, "/other", "GET /target"),
        (Method::Post, "/keep", "POST /target"),
        (Method::Get, "/plain", "302 Found: no location\n"),
    ] {
        let state = run(ClientConfig::default(), |client, event_loop| {
            let request = ClientRequest::new(method, &server.url(path)).expect("valid");
            let done = |state: &mut State, _: &mut Context<'_, 'static, State>, result| {
                state.results.push(result);
            };
            client
                .send(event_loop, request.body("x"), done)
                .expect("sent");
        });
        assert_eq!(text(&state.results[0]), expected, "{method} {path}");
    }
    let response = get(ClientConfig::default(), &server.url("/other#f")).expect("a response");
    assert_eq!(response.url.as_str(), server.url("/target?q#f"));
    server.stop();
}

#[test]
fn redirects_end_at_their_limit_or_are_left_to_the_program() {
    let server = own_server();
    let fault = |result: Result<_, ClientError>| match result
        .map(|_: windlass_http::client::ClientResponse| ())
        .expect_err("no response")
        .kind()
    {
        ClientErrorKind::Redirect(fault) => fault.clone(),
        other => panic!("{other:?}"),
    };
    let looped = get(ClientConfig::default(), &server.url("/loop"));
    assert_eq!(fault(looped), RedirectFault::TooMany);
    let nowhere = get(ClientConfig::default(), &server.url("/nowhere"));
    assert_eq!(
        fault(nowhere),
        RedirectFault::Location(RequestError::Scheme)
    );
    let mut config = ClientConfig::default();
    config.redirects_max = 0;
    let response = get(config, &server.url("/loop")).expect("a response");
    assert_eq!(response.status, Status::FOUND);
    assert_eq!(response.header("location"), Some("/loop"));
    server.stop();
}

#[test]
fn a_host_name_is_resolved_and_its_addresses_are_tried() {
    let server = own_server();
    let url = format!("http://localhost:{}/a", server.addr.port());
    let response = get(ClientConfig::default(), &url).expect("a response");
    assert_eq!(&response.body[..], b"GET /a");
    server.stop();
    let error = get(ClientConfig::default(), "http://nobody.invalid/").expect_err("no such host");
    assert!(matches!(error.kind(), ClientErrorKind::Resolve(_)));
    assert_eq!(
        error.to_string(),
        "ask http://nobody.invalid: resolve the host's name"
    );
}

#[test]
fn a_refused_connection_is_an_error_that_names_the_origin() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let addr = listener.local_addr().expect("bound");
    drop(listener);
    let error = get(ClientConfig::default(), &format!("http://{addr}/")).expect_err("refused");
    let ClientErrorKind::Connect {
        addr: tried,
        source,
    } = error.kind()
    else {
        panic!("{error:?}");
    };
    assert_eq!(*tried, addr);
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(
        error.origin().expect("known").to_string(),
        format!("http://{addr}")
    );
}

#[test]
fn what_cannot_be_sent_is_refused_at_once() {
    let state = run(ClientConfig::default(), |client, event_loop| {
        for (url, expected) in [
            ("http://u:p@h/", RequestError::UserInfo),
            ("gopher://h/", RequestError::Scheme),
        ] {
            let error = client.get(event_loop, url, |_, _, _| ()).expect_err(url);
            assert!(matches!(error.kind(), ClientErrorKind::Request(error) if *error == expected));
        }
        let connect = ClientRequest::new(Method::Connect, "http://h/").expect("valid");
        let error = client
            .send(event_loop, connect, |_, _, _| ())
            .expect_err("CONNECT");
        assert!(matches!(
            error.kind(),
            ClientErrorKind::Request(RequestError::Method)
        ));
    });
    assert!(state.results.is_empty());
}

/// How long the server may be silent while the response is not paused.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Pauses after the head for longer than a server may be silent, and a moment after each piece.
struct Slow {
    client: Rc<RefCell<Option<Client<'static>>>>,
    id: Rc<Cell<Option<windlass_http::client::RequestId>>>,
    received: usize,
}

impl Slow {
    fn pause(&self, cx: &mut Context<'_, 'static, State>, time: Duration) -> Flow {
        let (client, id) = (Rc::clone(&self.client), Rc::clone(&self.id));
        cx.after(time, move |_, cx| {
            let client = client.borrow().clone().expect("set");
            client.resume(cx, id.get().expect("set"));
        })
        .expect("room");
        Flow::Pause
    }
}

impl ResponseHandler<'static, State> for Slow {
    fn head(
        &mut self,
        state: &mut State,
        cx: &mut Context<'_, 'static, State>,
        head: &ResponseHead<'_>,
    ) -> Flow {
        state.log.push(format!("head {}", head.status()));
        self.pause(cx, IDLE_TIMEOUT * 5 / 4)
    }

    fn body(
        &mut self,
        state: &mut State,
        cx: &mut Context<'_, 'static, State>,
        piece: &[u8],
    ) -> Flow {
        self.received += piece.len();
        state.log.push("piece".to_owned());
        self.pause(cx, Duration::from_millis(1))
    }

    fn end(
        self: Box<Self>,
        state: &mut State,
        _cx: &mut Context<'_, 'static, State>,
        result: Result<HeaderMap, ClientError>,
    ) {
        result.expect("complete");
        state.log.push(format!("end after {}", self.received));
    }
}

#[test]
fn a_streamed_response_waits_for_its_handler() {
    let server = own_server();
    let mut config = ClientConfig::default();
    // A paused response is not an idle one.
    config.timeouts.idle = Some(IDLE_TIMEOUT);
    let state = run(config, |client, event_loop| {
        let id = Rc::new(Cell::new(None));
        let handler = Slow {
            client: Rc::new(RefCell::new(Some(client.clone()))),
            id: Rc::clone(&id),
            received: 0,
        };
        let request = ClientRequest::get(&server.url("/big")).expect("valid");
        id.set(Some(
            client.stream(event_loop, request, handler).expect("sent"),
        ));
    });
    assert_eq!(state.log.first().map(String::as_str), Some("head 200 OK"));
    assert_eq!(
        state.log.last().map(String::as_str),
        Some("end after 300000")
    );
    assert!(state.log.len() > 4, "in pieces");
    server.stop();
}

/// Does something to its request when the head comes.
struct OnHead<F>(F);

impl<F> ResponseHandler<'static, State> for OnHead<F>
where
    F: FnMut(&mut Context<'_, 'static, State>),
{
    fn head(
        &mut self,
        _state: &mut State,
        cx: &mut Context<'_, 'static, State>,
        _head: &ResponseHead<'_>,
    ) -> Flow {
        (self.0)(cx);
        Flow::Continue
    }

    fn body(
        &mut self,
        state: &mut State,
        _cx: &mut Context<'_, 'static, State>,
        _piece: &[u8],
    ) -> Flow {
        state.log.push("piece".to_owned());
        Flow::Continue
    }

    fn end(
        self: Box<Self>,
        state: &mut State,
        _cx: &mut Context<'_, 'static, State>,
        _result: Result<HeaderMap, ClientError>,
    ) {
        state.log.push("end".to_owned());
    }
}

#[test]
fn a_request_can_be_cancelled_at_any_stage_also_by_its_own_handler() {
    let server = own_server();
    let mut config = ClientConfig::default();
    config.connections_per_origin = 1;
    let state = run(config, |client, event_loop| {
        let never = |_: &mut State, _: &mut Context<'_, 'static, State>, _| panic!("cancelled");
        // While it connects; while it waits; while its host is resolved.
        let first = client
            .get(event_loop, &server.url("/"), never)
            .expect("sent");
        let second = client
            .get(event_loop, &server.url("/"), never)
            .expect("sent");
        let name = format!("http://localhost:{}/", server.addr.port());
        let third = client.get(event_loop, &name, never).expect("sent");
        for id in [second, first, third] {
            assert!(client.cancel(event_loop, id));
            assert!(!client.cancel(event_loop, id));
        }
        // By its own handler, which then asks again.
        let id = Rc::new(Cell::new(None));
        let (own, own_id, url) = (client.clone(), Rc::clone(&id), server.url("/after"));
        let handler = OnHead(move |cx: &mut Context<'_, 'static, State>| {
            assert!(own.cancel(cx, own_id.get().expect("set")));
            ask(&own, cx, &url);
        });
        let request = ClientRequest::get(&server.url("/big")).expect("valid");
        id.set(Some(
            client.stream(event_loop, request, handler).expect("sent"),
        ));
    });
    assert!(state.log.is_empty(), "nothing after the cancellation");
    assert_eq!(text(&state.results[0]), "GET /after");
    server.stop();
}

#[test]
fn the_client_can_be_dropped_by_a_handler_and_requests_go_on() {
    let server = own_server();
    let mut event_loop = Loop::new().expect("open");
    let client = Rc::new(RefCell::new(Some(HttpClient::new(
        ClientConfig::default(),
        pool(),
    ))));
    let held = client.borrow().clone().expect("set");
    let dropped = Rc::clone(&client);
    let handler = OnHead(move |_: &mut Context<'_, 'static, State>| {
        dropped.borrow_mut().take();
    });
    let request = ClientRequest::get(&server.url("/big")).expect("valid");
    held.stream(&mut event_loop, request, handler)
        .expect("sent");
    ask(&held, &mut event_loop, &server.url("/a"));
    drop(held);
    let mut state = State::default();
    event_loop.run(&mut state).expect("run");
    assert_eq!(state.log.last().map(String::as_str), Some("end"));
    assert_eq!(text(&state.results[0]), "GET /a");
    server.stop();
}

#[test]
fn a_loop_that_is_dropped_drops_requests_and_handlers() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        connection.wait_for_end();
    });
    let witness = Rc::new(());
    let mut event_loop = EventLoop::<()>::new().expect("open");
    let client = HttpClient::new(ClientConfig::default(), pool());
    for _ in 0..2 {
        let held = Rc::clone(&witness);
        client
            .get(&mut event_loop, &server.url("/"), move |(), _, _| {
                drop(held)
            })
            .expect("sent");
    }
    drop(event_loop);
    drop(client);
    assert_eq!(Rc::strong_count(&witness), 1);
}

#[test]
fn a_handler_that_panics_ends_its_request_only() {
    let server = own_server();
    let mut event_loop = Loop::new().expect("open");
    let mut config = ClientConfig::default();
    config.connections_per_origin = 1;
    let client = HttpClient::new(config, pool());
    let handler = OnHead(|_: &mut Context<'_, 'static, State>| panic!("on purpose"));
    let request = ClientRequest::get(&server.url("/big")).expect("valid");
    client
        .stream(&mut event_loop, request, handler)
        .expect("sent");
    ask(&client, &mut event_loop, &server.url("/next"));
    let mut state = State::default();
    let run = std::panic::AssertUnwindSafe(|| event_loop.run(&mut state).map(drop));
    std::panic::catch_unwind(run).expect_err("the panic passes through the loop");
    event_loop.run(&mut state).expect("the loop goes on");
    assert_eq!(text(&state.results[0]), "GET /next");
    assert_eq!(client.pending_count(), 0);
    server.stop();
}

/// Looks at the client when it is dropped.
struct LooksBack(Client<'static>);

impl Drop for LooksBack {
    fn drop(&mut self) {
        let _ = self.0.pending_count();
    }
}

#[test]
fn what_a_cancelled_request_owns_may_use_the_client_when_it_is_dropped() {
    let server = own_server();
    let mut config = ClientConfig::default();
    config.connections_per_origin = 1;
    let state = run(config, |client, event_loop| {
        // The first connects, the second waits.
        for _ in 0..2 {
            let held = LooksBack(client.clone());
            let source = move |_: &mut Vec<u8>| {
                let _ = &held;
                Ok(windlass_http::client::Pulled::End)
            };
            let request = ClientRequest::post(&server.url("/")).expect("valid");
            let held = LooksBack(client.clone());
            let request = request.body_stream(source, None);
            let id = client
                .send(event_loop, request, move |_, _, _| drop(held))
                .expect("sent");
            event_loop
                .defer({
                    let client = client.clone();
                    move |_, cx| assert!(client.cancel(cx, id))
                })
                .expect("room");
        }
    });
    assert!(state.results.is_empty());
    server.stop();
}
