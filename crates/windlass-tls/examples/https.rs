//! HTTPS on one loop, with a certificate made on the spot.
//!
//! Try it: `cargo run -p windlass-tls --example https`, and in another terminal
//! `curl -k https://127.0.0.1:<port>/`. Ctrl-C or `kill <pid>` end it; `kill -HUP <pid>` takes a
//! new certificate for connections from then on.

#![allow(clippy::print_stdout, reason = "what it has to say is its output")]

use std::error::Error;
use std::sync::Arc;

use windlass::Disposition::Keep;
use windlass::event_loop::Signal;
use windlass::models::SingleLoop;
use windlass_http::{HttpConfig, HttpService, Request, Responder, Status};
use windlass_tls::{TlsConfig, TlsService};

fn main() -> Result<(), Box<dyn Error>> {
    let http = HttpService::new(
        |request: &Request<'_>, response: Responder<'_>| {
            let head = response.start(Status::OK);
            let head = head.header("Content-Type", "text/plain; charset=utf-8")?;
            Ok(head.body(format!(
                "You asked for {}, and nobody listened in.\n",
                request.path()
            )))
        },
        HttpConfig::default(),
    );
    let service = TlsService::new(http, self_signed()?)?;
    let tls = service.handle();
    let addr = "127.0.0.1:0".parse()?;
    let mut server = SingleLoop::builder(Arc::new(service))
        .listen(addr)
        .build()?;
    println!(
        "https://{}/, process {}",
        server.local_addrs()[0],
        std::process::id()
    );
    for signal in [Signal::INT, Signal::TERM] {
        server.reactor().on_signal(signal, |state, cx, _| {
            state.stop(cx);
            Keep
        })?;
    }
    let handle = tls.clone();
    server.reactor().on_signal(Signal::HUP, move |_, _, _| {
        // With files this is `handle.reload()`.
        match self_signed().and_then(|config| Ok(handle.replace(config)?)) {
            Ok(()) => println!("a new certificate"),
            Err(error) => println!("the old certificate stays: {error}"),
        }
        Keep
    })?;
    println!("{}", server.run()?);
    println!("{}", tls.report());
    Ok(())
}

/// A fresh certificate that nobody vouches for.
fn self_signed() -> Result<TlsConfig, Box<dyn Error>> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    let refusal = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 23\r\n\r\n\
                   This port speaks HTTPS\n";
    Ok(
        TlsConfig::from_pem(&made.cert.pem(), &made.signing_key.serialize_pem())?
            .plain_http_answer(refusal),
    )
}
