use super::*;

fn judge(head: &str) -> Result<Head<'_>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut raw = httparse::Request::new(&mut headers);
    match raw.parse(head.as_bytes()) {
        Ok(httparse::Status::Complete(len)) => Head::new(
            &head.as_bytes()[..len],
            &raw,
            100,
            &mut KnownHost::default(),
        ),
        Ok(httparse::Status::Partial) => panic!("incomplete: {head:?}"),
        Err(error) => Err(refuse_syntax(error, head.as_bytes())),
    }
}

fn status(head: &str) -> u16 {
    judge(head).expect_err(head).status.code()
}

#[test]
fn targets_of_all_forms_are_understood() {
    for (line, path, query, authority) in [
        ("GET /a?b?c HTTP/1.1", "/a", Some("b?c"), Some("h:1")),
        (
            "GET http://x.y:80/a?b HTTP/1.1",
            "/a",
            Some("b"),
            Some("x.y:80"),
        ),
        ("GET HTTP://x HTTP/1.1", "/", None, Some("x")),
        ("GET http://x?q HTTP/1.1", "/", Some("q"), Some("x")),
        ("OPTIONS * HTTP/1.1", "*", None, Some("h:1")),
        ("CONNECT x.y:443 HTTP/1.1", "", None, Some("x.y:443")),
    ] {
        let text = format!("{line}\r\nHost: h:1\r\n\r\n");
        let target = judge(&text).expect(line).target;
        assert_eq!(
            (target.path, target.query, target.authority),
            (path, query, authority.map(str::as_bytes))
        );
    }
}

#[test]
fn targets_of_no_form_are_refused() {
    for target in [
        "a",
        "*",
        "ftp://x/",
        "http:///a",
        "http://u@h/",
        "//",
        "/#a",
        "/\u{e9}",
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        // Two slashes are a path with an empty segment, not an authority.
        assert_eq!(judge(&text).is_err(), target != "//", "{target}");
    }
    assert_eq!(
        status(&format!(
            "GET /{} HTTP/1.1\r\nHost: h\r\n\r\n",
            "a".repeat(100)
        )),
        414
    );
}

#[test]
fn connection_options_rule_persistence() {
    for (version, connection, persistent) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo, CLOSE ,bar\r\n", false),
        ("1.1", "Connection: foo\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
        assert_eq!(
            judge(&text).expect("valid").persistent,
            persistent,
            "{version} {connection}"
        );
    }
}

#[test]
fn expectations_are_read_with_their_body() {
    let with = |rest: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{rest}\r\n");
    let expects = |rest: &str| judge(&with(rest)).expect(rest).expects_continue;
    assert!(expects("Expect: 100-Continue\r\nContent-Length: 1\r\n"));
    assert!(expects(
        "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"
    ));
    assert!(
        !expects("Expect: 100-continue\r\n"),
        "no body, nothing to wait for"
    );
    assert_eq!(status(&with("Expect: tea\r\n")), 417);
}

#[test]
fn pf26_framing_that_disagrees_is_refused() {
    for (framing, expected) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 1, 1\r\n", 400),
        ("Content-Length: +1\r\n", 400),
        ("Content-Length: 0x1\r\n", 400),
        ("Content-Length: \r\n", 400),
        ("Content-Length: 18446744073709551616\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 400),
        ("Transfer-Encoding: identity\r\n", 400),
        ("Transfer-Encoding: chunked, gzip\r\n", 400),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: \r\n", 400),
        ("Transfer-Encoding: xchunked\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{framing}\r\n");
        assert_eq!(status(&text), expected, "{framing:?}");
    }
    assert_eq!(
        status("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        400
    );
    let chunked = judge("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert_eq!(chunked.expect("valid").framing, Framing::Chunked);
}
