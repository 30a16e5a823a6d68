//! A to-do list behind a router: paths with parameters, bodies, and a state that all threads share.
//!
//! Try it: `cargo run -p windlass-http --example router`, then
//! `curl -d 'water the plants' http://127.0.0.1:8080/todos`, `curl http://127.0.0.1:8080/todos/1`,
//! `curl -X DELETE http://127.0.0.1:8080/todos/1`. It ends on Ctrl-C; its argument is a port.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use windlass::models::SingleLoop;
use windlass_http::{HttpConfig, HttpService, Request, Responder, Response, RouteError};
use windlass_http::{Router, Status};

/// Texts by number.
type Todos = BTreeMap<u64, String>;

/// Calls `use_it` with the list, which is never locked for long.
fn with<R>(todos: &Mutex<Todos>, use_it: impl FnOnce(&mut Todos) -> R) -> R {
    use_it(&mut todos.lock().unwrap_or_else(PoisonError::into_inner))
}

fn number(request: &Request<'_>) -> Option<u64> {
    request.param("n")?.parse().ok()
}

fn routes() -> Result<Router, RouteError> {
    let todos = Arc::new(Mutex::new(Todos::new()));
    let (all, added, one, done) = (todos.clone(), todos.clone(), todos.clone(), todos);
    Router::new()
        .get("/todos", move |_: &Request<'_>, response: Responder<'_>| {
            let line = |(number, text): (&u64, &String)| format!("{number} {text}\n");
            let text: String = with(&all, |todos| todos.iter().map(line).collect());
            Ok(response
                .start(Status::OK)
                .header("Content-Type", "text/plain")?
                .body(text))
        })?
        .post("/todos", move |_: &Request<'_>, response: Responder<'_>| {
            let todos = Arc::clone(&added);
            Ok(response.body_limit(1024).collect(move |body, response| {
                let text = String::from_utf8_lossy(&body).trim().replace('\n', " ");
                let number = with(&todos, |todos| {
                    let number = 1 + todos.last_key_value().map_or(0, |(last, _)| *last);
                    todos.insert(number, text);
                    number
                });
                let head = response.start(Status::CREATED);
                Ok(head.header("Location", format!("/todos/{number}"))?.empty())
            }))
        })?
        .get(
            "/todos/{n}",
            move |request: &Request<'_>, response: Responder<'_>| {
                let text = number(request).and_then(|n| with(&one, |todos| todos.get(&n).cloned()));
                Ok(response.respond(match text {
                    Some(text) => Response::new(Status::OK).body(text + "\n"),
                    None => Response::text(Status::NOT_FOUND, "there is no such to-do"),
                }))
            },
        )?
        .delete(
            "/todos/{n}",
            move |request: &Request<'_>, response: Responder<'_>| {
                let removed = number(request).and_then(|n| with(&done, |todos| todos.remove(&n)));
                let status = removed.map_or(Status::NOT_FOUND, |_| Status::NO_CONTENT);
                Ok(response.respond(Response::new(status)))
            },
        )
}

fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args()
        .nth(1)
        .map_or(Ok(8080), |port| port.parse())?;
    let service = Arc::new(HttpService::new(routes()?, HttpConfig::default()));
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut server = SingleLoop::builder(service).listen(addr).build()?;
    println!("http://{}/todos", server.local_addrs()[0]);
    server.run()?;
    Ok(())
}
