//! The client against servers that do not do what they should, and against time.

mod client_support;

use std::io::Read;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use client_support::{OK, Server, State, ask, fault, get, run};
use windlass::event_loop::Context;
use windlass_http::Method;
use windlass_http::client::{
    ClientConfig, ClientError, ClientErrorKind, ClientRequest, ClientResponse, Pulled,
    ResponseFault,
};

fn keep(
    state: &mut State,
    _cx: &mut Context<'_, 'static, State>,
    result: Result<ClientResponse, ClientError>,
) {
    state.results.push(result);
}

fn first(state: State) -> Result<ClientResponse, ClientError> {
    state.results.into_iter().next().expect("a result")
}

fn send(
    config: ClientConfig,
    request: ClientRequest<'static>,
) -> Result<ClientResponse, ClientError> {
    first(run(config, |client, event_loop| {
        client.send(event_loop, request, keep).expect("sent");
    }))
}

/// A client that forgets connections without a request does not hold up a test's server.
fn config() -> ClientConfig {
    let mut config = ClientConfig::default();
    config.idle_connections_max = 0;
    config
}

#[test]
fn answers_that_are_cut_short_or_garbage_are_errors() {
    for (answer, expected) in [
        ("", ResponseFault::Closed),
        ("HTTP/1.1 200 OK\r\nConte", ResponseFault::Truncated),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            ResponseFault::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            ResponseFault::Truncated,
        ),
        ("SSH-2.0-OpenSSH\r\n", ResponseFault::NotHttp),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            ResponseFault::ContentLength,
        ),
    ] {
        let server = Server::once(answer);
        assert_eq!(
            fault(get(config(), &server.url("/"))),
            expected,
            "{answer:?}"
        );
        server.join();
    }
}

#[test]
fn a_close_delimited_answer_is_complete_and_interim_ones_are_skipped() {
    let server = Server::once(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\nall",
    );
    let response = get(config(), &server.url("/")).expect("a response");
    assert_eq!(&response.body[..], b"all");
    assert!(response.headers.is_empty());
    server.join();
}

#[test]
fn a_flood_of_interim_answers_is_an_error() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1000);
        connection.send(&interim);
        connection.wait_for_end();
    });
    assert_eq!(
        fault(get(config(), &server.url("/"))),
        ResponseFault::TooManyInterim
    );
    server.join();
}

#[test]
fn a_reset_is_an_error() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        connection.reset();
    });
    let error = get(config(), &server.url("/")).expect_err("reset");
    assert!(
        matches!(error.kind(), ClientErrorKind::Socket(_)),
        "{error:?}"
    );
    assert!(std::error::Error::source(&error).is_some());
    server.join();
}

#[test]
fn a_body_beyond_the_limit_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890",
        "HTTP/1.1 200 OK\r\n\r\n01234567890",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n",
    ] {
        let server = Server::once(answer);
        let mut config = config();
        config.collected_bytes_max = 10;
        let expected = ResponseFault::BodyTooLarge { limit_bytes: 10 };
        assert_eq!(fault(get(config, &server.url("/"))), expected);
        server.join();
    }
}

#[test]
fn trailers_are_kept_apart() {
    let server = Server::once(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSum: 1\r\n\r\n",
    );
    let response = get(config(), &server.url("/")).expect("a response");
    assert_eq!(response.header("sum"), None);
    assert_eq!(response.trailers.get("sum").expect("a trailer"), "1");
    server.join();
}

/// Asks twice in turn on a server whose first connection closes when the second request comes.
fn ask_twice(method: Method, server: &Server) -> State {
    let url = server.url("/");
    run(ClientConfig::default(), |client, event_loop| {
        let again = client.clone();
        let second = ClientRequest::new(method, &url).expect("valid");
        client
            .get(event_loop, &url, move |state, cx, result| {
                state.results.push(result);
                again.send(cx, second, keep).expect("sent");
            })
            .expect("sent");
    })
}

fn closes_at_second_request() -> Server {
    Server::start(2, |number, mut connection| {
        connection.answer(OK);
        if number == 0 {
            connection.head();
        }
    })
}

#[test]
fn an_idempotent_request_on_a_kept_connection_that_closes_is_sent_again() {
    let server = closes_at_second_request();
    let state = ask_twice(Method::Put, &server);
    assert!(
        state.results.iter().all(Result::is_ok),
        "{:?}",
        state.results
    );
    server.join();
}

#[test]
fn a_request_that_is_not_idempotent_is_not_sent_again() {
    let server = Server::start(1, |_, mut connection| {
        connection.answer(OK);
        connection.head();
    });
    let state = ask_twice(Method::Post, &server);
    let mut results = state.results.into_iter();
    results.next().expect("first").expect("a response");
    assert_eq!(
        fault(results.next().expect("second")),
        ResponseFault::Closed
    );
    server.join();
}

#[test]
fn a_request_is_sent_again_once_and_not_after_an_answer_began() {
    // The second connection is fresh: its close is final.
    let server = Server::start(2, |number, mut connection| {
        if number == 0 {
            connection.answer(OK);
        }
        connection.head();
    });
    let state = ask_twice(Method::Get, &server);
    assert_eq!(
        fault(state.results.into_iter().nth(1).expect("second")),
        ResponseFault::Closed
    );
    server.join();

    let server = Server::start(1, |_, mut connection| {
        connection.answer(OK);
        connection.answer("HTTP/1.1 ");
    });
    let state = ask_twice(Method::Get, &server);
    assert_eq!(
        fault(state.results.into_iter().nth(1).expect("second")),
        ResponseFault::Truncated
    );
    server.join();
}

#[test]
fn a_post_does_not_go_to_a_kept_connection_that_was_closed_meanwhile() {
    let (closed, is_closed) = mpsc::channel();
    let server = Server::start(2, move |_, mut connection| {
        connection.answer(OK);
        drop(connection);
        // The first time somebody waits for it.
        let _ = closed.send(());
    });
    let url = server.url("/");
    let state = run(ClientConfig::default(), |client, event_loop| {
        let again = client.clone();
        client
            .get(event_loop, &url.clone(), move |state, cx, result| {
                state.results.push(result);
                // The loop does not see the end before the request is on its way.
                is_closed.recv().expect("it closes");
                let post = ClientRequest::post(&url).expect("valid");
                again.send(cx, post.body("x"), keep).expect("sent");
            })
            .expect("sent");
    });
    assert!(
        state.results.iter().all(Result::is_ok),
        "{:?}",
        state.results
    );
    server.join();
}

#[test]
fn bytes_that_came_before_a_request_was_sent_are_not_its_answer() {
    let (go, may_go) = mpsc::channel();
    let (gone, is_gone) = mpsc::channel();
    let server = Server::start(2, move |number, mut connection| {
        connection.answer(OK);
        if number == 0 {
            may_go.recv().expect("the client has the first answer");
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            gone.send(()).expect("the client waits");
        }
        connection.wait_for_end();
    });
    let url = server.url("/");
    let state = run(ClientConfig::default(), |client, event_loop| {
        let again = client.clone();
        client
            .get(event_loop, &url.clone(), move |state, cx, result| {
                state.results.push(result);
                go.send(()).expect("the server waits");
                // The loop does not see them before the request is on its way.
                is_gone.recv().expect("they are sent");
                again.get(cx, &url, keep).expect("sent");
            })
            .expect("sent");
    });
    let bodies: Vec<_> = state
        .results
        .into_iter()
        .map(|result| result.expect("a response").body)
        .collect();
    assert_eq!(bodies, ["ok", "ok"]);
    server.join();
}

#[test]
fn bytes_that_nobody_asked_for_end_a_kept_connection() {
    let server = Server::start(2, |_, mut connection| {
        connection.answer(&format!(
            "{OK}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        ));
        connection.wait_for_end();
    });
    let state = ask_twice(Method::Get, &server);
    let bodies: Vec<_> = state
        .results
        .into_iter()
        .map(|result| result.expect("a response").body)
        .collect();
    assert_eq!(bodies, ["ok", "ok"]);
}

#[test]
fn a_silent_server_runs_into_the_idle_timeout_a_slow_one_into_that_of_the_request() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        connection.wait_for_end();
    });
    let mut silent = config();
    silent.timeouts.idle = Some(Duration::from_millis(30));
    let error = get(silent, &server.url("/")).expect_err("silence");
    assert!(
        matches!(error.kind(), ClientErrorKind::IdleTimeout),
        "{error:?}"
    );
    server.join();

    let server = Server::start(1, |_, mut connection| {
        connection.answer("HTTP/1.1 200 OK\r\n\r\n");
        // Each write comes before the idle time-out, which therefore never runs out.
        let (_never, tick) = mpsc::channel::<()>();
        while std::io::Write::write_all(&mut connection.stream, b"x").is_ok() {
            let _ = tick.recv_timeout(Duration::from_millis(5));
        }
    });
    let mut slow = config();
    slow.timeouts.idle = Some(Duration::from_secs(10));
    slow.timeouts.request = Some(Duration::from_millis(60));
    let error = get(slow, &server.url("/")).expect_err("too slow");
    assert!(
        matches!(error.kind(), ClientErrorKind::RequestTimeout),
        "{error:?}"
    );
    server.join();
}

#[test]
fn the_time_of_a_request_counts_while_it_waits() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        connection.wait_for_end();
    });
    let mut config = config();
    config.connections_per_origin = 1;
    config.timeouts.request = Some(Duration::from_millis(400));
    let began = Instant::now();
    let state = run(config, |client, event_loop| {
        ask(client, event_loop, &server.url("/"));
        let request = ClientRequest::get(&server.url("/")).expect("valid");
        let request = request.timeout(Duration::from_millis(40));
        client
            .send(event_loop, request, move |state, _, result| {
                assert!(began.elapsed() >= Duration::from_millis(40));
                assert!(state.results.is_empty(), "the one that waits is over first");
                state.results.push(result);
            })
            .expect("sent");
    });
    for result in state.results {
        let error = result.expect_err("no answer");
        assert!(
            matches!(error.kind(), ClientErrorKind::RequestTimeout),
            "{error:?}"
        );
    }
    server.join();
}

/// Gives `count` pieces of 16 KiB.
fn pieces(
    mut count: usize,
) -> impl FnMut(&mut Vec<u8>) -> Result<Pulled, Box<dyn std::error::Error + Send + Sync>> {
    move |piece| {
        if count == 0 {
            return Ok(Pulled::End);
        }
        count -= 1;
        piece.resize(16 * 1024, b'x');
        Ok(Pulled::More)
    }
}

#[test]
fn a_long_body_is_streamed_in_chunks_to_a_slow_reader() {
    let server = Server::start(1, |_, mut connection| {
        let head = connection.head();
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        let body = connection.until(b"\r\n0\r\n\r\n");
        let data = body.matches('x').count();
        let text = data.to_string();
        connection.send(&format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ));
    });
    let request = ClientRequest::post(&server.url("/")).expect("valid");
    let response = send(config(), request.body_stream(pieces(100), None)).expect("a response");
    assert_eq!(&response.body[..], (100 * 16 * 1024).to_string().as_bytes());
    server.join();
}

#[test]
fn pf30_an_early_answer_to_a_long_body_is_not_lost() {
    for streamed in [true, false] {
        let server = Server::start(1, |_, mut connection| {
            connection.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
            // Unread bytes make the close a reset.
        });
        let request = ClientRequest::post(&server.url("/")).expect("valid");
        let request = if streamed {
            request.body_stream(pieces(4096), None)
        } else {
            request.body(vec![b'x'; 64 * 1024 * 1024])
        };
        let response = send(config(), request).expect("what came before the reset counts");
        let body = &response.body[..];
        assert_eq!((response.status.code(), body), (413, &b"no!"[..]));
        server.join();
    }
}

#[test]
fn an_early_answer_stops_the_upload_if_the_server_waits_politely() {
    let server = Server::start(1, |_, mut connection| {
        connection.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        let mut read = 0;
        let mut buf = [0; 65536];
        while let Ok(count @ 1..) = connection.stream.read(&mut buf) {
            read += count;
        }
        assert!(read < 32 * 1024 * 1024, "the upload went on: {read}");
    });
    let request = ClientRequest::post(&server.url("/")).expect("valid");
    let request = request.body_stream(pieces(4096), None);
    let response = send(config(), request).expect("a response");
    assert_eq!(response.status.code(), 413);
    server.join();
}

#[test]
fn a_source_that_fails_or_miscounts_ends_the_request() {
    type Source =
        Box<dyn FnMut(&mut Vec<u8>) -> Result<Pulled, Box<dyn std::error::Error + Send + Sync>>>;
    let long: Source = Box::new(|piece| {
        piece.extend_from_slice(b"too long");
        Ok(Pulled::More)
    });
    let short: Source = Box::new(|_| Ok(Pulled::End));
    let failing: Source = Box::new(|_| Err("the disk is gone".into()));
    for (source, length) in [(long, Some(3)), (short, Some(3)), (failing, None)] {
        let server = Server::start(1, |_, mut connection| {
            connection.head();
            connection.wait_for_end();
        });
        let request = ClientRequest::post(&server.url("/")).expect("valid");
        let error = send(config(), request.body_stream(source, length)).expect_err("no body");
        assert!(
            matches!(error.kind(), ClientErrorKind::UploadSource(_)),
            "{error:?}"
        );
        server.join();
    }
}

#[test]
fn a_source_that_has_nothing_is_asked_again_after_resume() {
    let server = Server::start(1, |_, mut connection| {
        connection.head();
        let body = connection.until(b"0\r\n\r\n");
        assert_eq!(body, "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
        connection.send(OK);
    });
    let mut config = config();
    // Nobody is slow but the program.
    config.timeouts.idle = Some(Duration::from_secs(1));
    let state = run(config, |client, event_loop| {
        let mut asked = 0;
        let source = move |piece: &mut Vec<u8>| {
            asked += 1;
            match asked {
                1 => piece.extend_from_slice(b"abc"),
                2 => return Ok(Pulled::Pending),
                _ => {
                    piece.extend_from_slice(b"def");
                    return Ok(Pulled::End);
                }
            }
            Ok(Pulled::More)
        };
        let request = ClientRequest::post(&server.url("/")).expect("valid");
        let request = request.body_stream(source, None);
        let id = client.send(event_loop, request, keep).expect("sent");
        let own = client.clone();
        event_loop
            .after(Duration::from_millis(1250), move |_, cx| {
                assert!(own.resume(cx, id));
            })
            .expect("room");
    });
    first(state).expect("a response");
    server.join();
}

#[test]
fn pf32_no_descriptor_left_is_an_error_unless_idle_connections_make_room() {
    let server = Server::start(1, |_, mut connection| {
        connection.answer(OK);
        connection.wait_for_end();
    });
    // In a process of its own, other tests do not suffer.
    let status = std::process::Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "out_of_descriptors", "--ignored", "--nocapture"])
        .env("CLIENT_TEST_SERVER", server.addr.to_string())
        .status()
        .expect("it runs");
    assert!(status.success());
    server.join();
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn out_of_descriptors() {
    let Ok(addr) = std::env::var("CLIENT_TEST_SERVER") else {
        return;
    };
    let mut held = Vec::new();
    let mut event_loop = client_support::Loop::new().expect("open");
    let client =
        windlass_http::client::HttpClient::new(ClientConfig::default(), client_support::pool());
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    let mut state = State::default();
    let url = format!("http://{addr}/");
    ask(&client, &mut event_loop, &url);
    event_loop.run(&mut state).expect("run");
    // One for a connection.
    held.pop();
    ask(&client, &mut event_loop, &url);
    event_loop.run(&mut state).expect("run");
    assert_eq!(client.idle_count(), 1);
    // Nobody listens there; what matters is that a socket could be had.
    ask(
        &client,
        &mut event_loop,
        &url.replace("127.0.0.1", "127.0.0.2"),
    );
    event_loop.run(&mut state).expect("run");
    assert_eq!(client.idle_count(), 0);
    drop(held);
    let mut results = state.results.into_iter();
    let mut next = || results.next().expect("a result");
    let connect_error = |result: Result<ClientResponse, ClientError>| {
        let error = result.expect_err("no connection");
        match error.kind() {
            ClientErrorKind::Connect { source, .. } => source.raw_os_error(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(connect_error(next()), Some(windlass_sys::errno::EMFILE));
    next().expect("a response");
    let refused = connect_error(next());
    assert!(refused.is_some() && refused != Some(windlass_sys::errno::EMFILE));
}
