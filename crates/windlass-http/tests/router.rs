//! Routing: by path, method and parameters; against a naive matcher.

mod common;

use std::collections::BTreeMap;

use common::{Answer, Connection, answers};
use proptest::prelude::*;
use windlass_http::{
    Answered, HttpConfig, HttpService, Method, Methods, Request, Responder, Response,
    ResponseError, RouteError, Router, StaticFiles, Status,
};

/// What a router says to one request.
fn ask<L: Send + 'static>(router: Router<L>, method: &str, target: &str) -> Answer {
    Service::new(router).ask(method, target)
}

struct Service<L: Send + 'static>(HttpService<Router<L>>);

impl<L: Send + 'static> Service<L> {
    fn new(router: Router<L>) -> Self {
        Self(HttpService::new(router, HttpConfig::default()))
    }

    fn ask(&self, method: &str, target: &str) -> Answer {
        let mut connection = Connection::open(&self.0);
        let request = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        connection.feed(request.as_bytes());
        if method == "HEAD" {
            // Without the body that its length announces.
            let head = connection.text();
            let status = head[9..12].parse().expect("a status");
            let body = head.split_once("\r\n\r\n").expect("a head").1.into();
            return Answer { status, head, body };
        }
        let mut all = answers(&connection.sent);
        assert_eq!(all.len(), 1, "{}", connection.text());
        all.remove(0)
    }
}

/// Answers with `name`, the path and the parameters.
fn says(
    name: &'static str,
) -> impl Fn(&Request<'_>, Responder<'_>) -> Result<Answered, ResponseError> + Send + Sync + 'static
{
    move |request: &Request<'_>, response: Responder<'_>| {
        let mut text = format!("{name} {}", request.path());
        for (key, value) in request.params() {
            text += &format!(" {key}={value}");
        }
        Ok(response.start(Status::OK).body(text))
    }
}

fn body(answer: &Answer) -> &str {
    str::from_utf8(&answer.body).expect("UTF-8")
}

fn users() -> Result<Router, RouteError> {
    Router::new()
        .get("/", says("root"))?
        .get("/users/{id}", says("show"))?
        .delete("/users/{id}", says("delete"))?
        .get("/users/me", says("me"))?
        .route(
            Methods::from(Method::Put).with(Method::Patch),
            "/{user}/{thing}",
            says("two"),
        )?
        .get("/files/{*path}", says("files"))
}

#[test]
fn text_goes_before_parameters_and_parameters_before_the_rest() {
    let service = Service::new(users().expect("valid"));
    for (method, target, expected) in [
        ("GET", "/", "root /"),
        ("GET", "/users/7?x=y", "show /users/7 id=7"),
        ("GET", "/users/me", "me /users/me"),
        ("DELETE", "/users/7", "delete /users/7 id=7"),
        ("PUT", "/a/b", "two /a/b user=a thing=b"),
        ("PATCH", "/a/b", "two /a/b user=a thing=b"),
        ("GET", "/files/a/b.txt", "files /files/a/b.txt path=a/b.txt"),
        ("GET", "http://h/users/7", "show /users/7 id=7"),
    ] {
        let answer = service.ask(method, target);
        assert_eq!(
            (answer.status, body(&answer)),
            (200, expected),
            "{method} {target}"
        );
    }
}

#[test]
fn unknown_paths_are_404_and_slashes_count() {
    let service = Service::new(users().expect("valid"));
    for target in [
        "/users",
        "/users/",
        "/users/7/",
        "/files/",
        "//",
        "/a/b/c",
        "/Users/7/8",
    ] {
        assert_eq!(service.ask("GET", target).status, 404, "{target}");
    }
}

#[test]
fn other_methods_are_405_with_what_the_path_allows() {
    let service = Service::new(users().expect("valid"));
    for (method, target, status, allow) in [
        ("POST", "/users/7", 405, "GET, HEAD, DELETE, OPTIONS"),
        ("TRACE", "/users/7", 405, "GET, HEAD, DELETE, OPTIONS"),
        ("GET", "/a/b", 405, "PUT, PATCH, OPTIONS"),
        ("HEAD", "/a/b", 405, "PUT, PATCH, OPTIONS"),
        ("OPTIONS", "/a/b", 204, "PUT, PATCH, OPTIONS"),
        ("OPTIONS", "/users/me", 204, "GET, HEAD, OPTIONS"),
        (
            "OPTIONS",
            "*",
            204,
            "GET, HEAD, PUT, PATCH, DELETE, OPTIONS",
        ),
    ] {
        let answer = service.ask(method, target);
        assert_eq!(answer.status, status, "{method} {target}");
        assert_eq!(answer.header("allow"), Some(allow), "{method} {target}");
    }
    assert_eq!(service.ask("OPTIONS", "/nothing").status, 404);
}

#[test]
fn head_is_answered_by_get_without_the_body_unless_it_has_its_own() {
    let head = users()
        .expect("valid")
        .route(Method::Head, "/users/me", says("head"));
    let service = Service::new(head.expect("valid"));
    let answer = service.ask("HEAD", "/users/7");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert_eq!(answer.header("content-length"), Some("18"));
    let answer = service.ask("HEAD", "/users/me");
    assert_eq!(answer.header("content-length"), Some("14"));
}

#[test]
fn options_that_is_declared_is_not_answered_for_it() {
    let router = users()
        .expect("valid")
        .route(Method::Options, "/users/me", says("own"));
    let answer = ask(router.expect("valid"), "OPTIONS", "/users/me");
    assert_eq!(body(&answer), "own /users/me");
}

#[test]
fn escapes_are_decoded_once_and_do_not_hide_a_route() {
    let router = users()
        .expect("valid")
        .get("/café/{x}", says("cafe"))
        .expect("valid");
    let service = Service::new(router);
    for (target, expected) in [
        ("/%75sers/a%20b", "show /%75sers/a%20b id=a b"),
        ("/users/a%2Fb", "show /users/a%2Fb id=a/b"),
        ("/users/%2541", "show /users/%2541 id=%41"),
        ("/users/%6D%65", "me /users/%6D%65"),
        ("/users/%c3%a9", "show /users/%c3%a9 id=é"),
        ("/users/%00", "show /users/%00 id=\0"),
        ("/caf%C3%A9/1", "cafe /caf%C3%A9/1 x=1"),
        ("/files/a%20b/c%3F", "files /files/a%20b/c%3F path=a b/c?"),
    ] {
        let answer = service.ask("GET", target);
        assert_eq!((answer.status, body(&answer)), (200, expected), "{target}");
    }
    for target in [
        "/users/%",
        "/users/%4",
        "/users/%zz",
        "/users/%ff",
        "/nothing/%",
        "/%4%31",
    ] {
        assert_eq!(service.ask("GET", target).status, 400, "{target}");
    }
}

#[test]
fn conflicts_are_errors_that_name_both_routes() {
    let conflict = |pattern: &str, with: &str| RouteError::Conflict {
        pattern: pattern.into(),
        with: with.into(),
    };
    let error = users()
        .and_then(|r| r.get("/users/{name}", says("x")))
        .expect_err("a conflict");
    assert_eq!(error, conflict("/users/{name}", "/users/{id}"));
    assert_eq!(
        error.to_string(),
        "add route /users/{name}, which conflicts with /users/{id}"
    );
    let error = users()
        .and_then(|r| r.delete("/users/{id}", says("x")))
        .expect_err("twice");
    assert_eq!(error, conflict("DELETE /users/{id}", "DELETE /users/{id}"));
    let error = users()
        .and_then(|r| r.nest("/files", says("x")))
        .expect_err("a conflict");
    assert_eq!(error, conflict("/files", "/files/{*path}"));
    let nested = || Router::new().nest("/é/{a}", says("x"));
    let error = nested()
        .and_then(|r| r.get("/é/{b}/{*c}", says("x")))
        .expect_err("a conflict");
    assert_eq!(error, conflict("/é/{b}/{*c}", "/é/{a}"));
    let error = nested()
        .and_then(|r| r.get("/é/{a}", says("x")))
        .expect_err("a conflict");
    assert_eq!(error, conflict("/é/{a}", "/é/{a}"));
}

#[test]
fn what_is_no_pattern_or_no_method_is_refused() {
    for pattern in ["", "users", "/{", "/a?b", "/{a}/{a}", "/{*a}/b", "/{a}{b}"] {
        let result = Router::new().get(pattern, says("x"));
        assert!(
            matches!(result, Err(RouteError::Malformed { .. })),
            "{pattern}"
        );
    }
    assert!(Router::new().nest("/{*a}", says("x")).is_err());
    for methods in [Methods::NONE, Methods::from(Method::Connect)] {
        let result = Router::new().route(methods, "/", says("x"));
        assert!(matches!(result, Err(RouteError::Methods { .. })));
    }
}

#[test]
fn nested_handlers_see_what_is_behind_the_prefix() {
    let inner = Router::new()
        .get("/", says("list"))
        .and_then(|r| r.get("/{id}", says("show")))
        .and_then(|r| r.post("/{id}", says("change")))
        .expect("valid");
    let router = Router::new()
        .nest("/of/{id}/things", inner)
        .and_then(|r| r.nest("/links/", says("links")))
        .and_then(|r| r.get("/links/own", says("own")))
        .expect("valid");
    let service = Service::new(router);
    for (target, expected) in [
        ("/of/a/things", "list / id=a"),
        ("/of/a/things/", "list / id=a"),
        ("/of/a%2Fb/things/%63", "show /%63 id=c id=a/b"),
        ("/links/", "links /"),
        ("/links/a/b", "links /a/b"),
        ("/links//a", "links //a"),
        ("/links/own", "own /links/own"),
    ] {
        let answer = service.ask("GET", target);
        assert_eq!((answer.status, body(&answer)), (200, expected), "{target}");
    }
    let answer = service.ask("PUT", "/of/a/things/b");
    assert_eq!(answer.header("allow"), Some("GET, HEAD, POST, OPTIONS"));
    assert_eq!(
        service.ask("POST", "/links/a").header("allow"),
        Some("GET, HEAD, OPTIONS")
    );
    assert_eq!(service.ask("GET", "/of/a/things/b/c").status, 404);
    let answer = service.ask("GET", "/links?a=b");
    assert_eq!(
        (answer.status, answer.header("location")),
        (308, Some("/links/?a=b"))
    );
}

#[test]
fn redirects_do_not_lead_to_another_site() {
    let inner = Router::new().nest("/{a}/", says("x")).expect("valid");
    let service = Service::new(Router::new().nest("/", inner).expect("valid"));
    for target in ["/\\evil.example", "/%5Cevil.example"] {
        let answer = service.ask("GET", target);
        let location = answer.header("location").expect("a redirect");
        assert!(
            !location.starts_with("//") && !location.starts_with("/\\"),
            "{location}"
        );
    }
    assert_eq!(service.ask("GET", "//evil.example").status, 404);
}

#[test]
fn files_below_a_prefix_are_found_and_their_directories_redirected_there() {
    let dir = std::env::temp_dir().join(format!("windlass-router-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("sub")).expect("create");
    std::fs::write(dir.join("a.txt"), "text").expect("write");
    let files = StaticFiles::new(&dir).expect("open");
    let service = Service::new(Router::new().nest("/static/", files).expect("valid"));
    let found = service.ask("GET", "/static/a.txt");
    let redirected = service.ask("GET", "/static/sub");
    let outside = service.ask("GET", "/static/../a.txt");
    std::fs::remove_dir_all(&dir).expect("remove");
    assert_eq!((found.status, body(&found)), (200, "text"));
    assert_eq!((redirected.status, outside.status), (301, 404));
    assert_eq!(redirected.header("location"), Some("/static/sub/"));
}

#[test]
fn the_fallback_answers_what_is_not_declared_with_its_own_methods() {
    let service = Service::new(users().expect("valid").fallback(says("fallback")));
    assert_eq!(body(&service.ask("GET", "/x")), "fallback /x");
    let answer = service.ask("POST", "/x");
    assert_eq!(
        (answer.status, answer.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    assert_eq!(service.ask("POST", "/users/7").status, 405);
}

#[test]
fn handlers_of_a_thread_share_its_state_and_bodies_reach_them() {
    type Seen = BTreeMap<String, u32>;
    let count = |seen: &mut Seen, request: &Request<'_>, response: Responder<'_>| {
        let key = request.param("key").unwrap_or_default().to_owned();
        let count = seen.entry(key).or_default();
        *count += 1;
        let count = *count;
        Ok(response.collect(move |body, response| {
            Ok(response.respond(Response::new(Status::OK).body(format!("{count} {body:?}"))))
        }))
    };
    let router = Router::with_local(Seen::new)
        .route_with(Method::Post, "/{key}", count)
        .and_then(|r| r.route_with(Method::Put, "/{key}", count))
        .expect("valid");
    let service = HttpService::new(router, HttpConfig::default());
    let mut connection = Connection::open(&service);
    for method in ["POST", "PUT"] {
        let request = format!("{method} /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
        connection.feed(request.as_bytes());
    }
    let all = answers(&connection.sent);
    assert_eq!((body(&all[0]), body(&all[1])), ("1 b\"hi\"", "2 b\"hi\""));
}

/// One segment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Text(&'static str),
    Param,
    Rest,
}

/// What `pattern` takes of `path`, if they match.
fn naive_match<'a>(pattern: &[Segment], path: &'a str) -> Option<Vec<&'a str>> {
    let path = &path[1..];
    match pattern {
        [] => None,
        [Segment::Rest] => (!path.is_empty()).then(|| vec![path]),
        [first, rest @ ..] => {
            let end = path.find('/').unwrap_or(path.len());
            let (segment, behind) = path.split_at(end);
            let mut taken = match first {
                Segment::Text(text) if *text == segment => vec![],
                Segment::Param if !segment.is_empty() => vec![segment],
                _ => return None,
            };
            match (rest, behind) {
                ([], "") => {}
                ([], _) | (_, "") => return None,
                _ => taken.extend(naive_match(rest, behind)?),
            }
            Some(taken)
        }
    }
}

/// Whether one has a parameter where the other has the rest.
fn is_conflict(one: &[Segment], other: &[Segment]) -> bool {
    let differing = one.iter().zip(other).find(|(a, b)| a != b);
    matches!(
        differing,
        Some((Segment::Param, Segment::Rest) | (Segment::Rest, Segment::Param))
    )
}

fn pattern() -> impl Strategy<Value = Vec<Segment>> {
    let segment = prop_oneof![
        3 => proptest::sample::select(vec!["a", "b", "ab", ""]).prop_map(Segment::Text),
        2 => Just(Segment::Param),
    ];
    (proptest::collection::vec(segment, 1..4), any::<bool>()).prop_map(|(mut segments, rest)| {
        if rest {
            segments.push(Segment::Rest);
        }
        segments
    })
}

proptest! {
    #[test]
    fn routes_are_chosen_as_by_a_naive_matcher(
        patterns in proptest::collection::btree_set(pattern(), 1..8),
        paths in proptest::collection::vec("(/(a|b|ab|c|)){1,4}", 1..8),
    ) {
        // A parameter and the rest cannot stand at the same place.
        let mut chosen: Vec<Vec<Segment>> = Vec::new();
        for pattern in patterns {
            if !chosen.iter().any(|other| is_conflict(other, &pattern)) {
                chosen.push(pattern);
            }
        }
        let patterns = chosen;
        let mut router = Router::new();
        for (number, pattern) in patterns.iter().enumerate() {
            let mut text = String::new();
            for (position, segment) in pattern.iter().enumerate() {
                text += "/";
                match segment {
                    Segment::Text(segment) => text += segment,
                    Segment::Param => text += &format!("{{p{position}}}"),
                    Segment::Rest => text += &format!("{{*p{position}}}"),
                }
            }
            let handler = move |request: &Request<'_>, response: Responder<'_>| {
                let values: Vec<_> = request.params().map(|(_, value)| value).collect();
                let text = format!("{number} {}", values.join(" "));
                Ok(response.start(Status::OK).body(text))
            };
            router = router.get(&text, handler).expect("none is like another");
        }
        let service = Service::new(router);
        for path in paths {
            // The first pattern that matches in this order is the most specific.
            let expected = patterns.iter().enumerate().find_map(|(number, pattern)| {
                let values = naive_match(pattern, &path)?;
                Some(format!("{number} {}", values.join(" ")))
            });
            let answer = service.ask("GET", &path);
            let found = (answer.status == 200).then(|| body(&answer).to_owned());
            prop_assert_eq!(found, expected, "{} among {:?}", path, patterns);
        }
    }
}
