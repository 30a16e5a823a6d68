//! A fixed answer of 64 bytes to `GET /`, through the real HTTP server:
//! `hello --port PORT [--model NAME] [--threads N]`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;

use windlass::models::ModelKind;
use windlass_bench::{arg_num, arg_text};
use windlass_http::{FixedResponse, HttpConfig, HttpService, Request, Responder, Response, Status};

const BODY: &str = "Hello! This body is 64 bytes long, the same from every peer...\r\n";

fn main() -> Result<(), Box<dyn Error>> {
    // With fewer it accepts fewer.
    let _ = windlass_sys::limits::raise_descriptor_limit(65_536);
    let port = u16::try_from(arg_num("--port", 8080))?;
    let hello = Response::new(Status::OK)
        .header("Content-Type", "text/plain")?
        .body(BODY);
    let hello = FixedResponse::new(hello);
    let handler = move |request: &Request<'_>, response: Responder<'_>| {
        if request.path() == "/" {
            Ok(response.fixed(&hello))
        } else {
            Ok(response.respond(Response::text(Status::NOT_FOUND, "no such page")))
        }
    };
    let service = Arc::new(HttpService::new(handler, HttpConfig::default()));
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let model = arg_text("--model").map_or(Ok(ModelKind::SingleLoop), |name| name.parse())?;
    let mut builder = model.builder(service).listen(addr);
    if let Some(threads) = NonZeroUsize::new(usize::try_from(arg_num("--threads", 0))?) {
        builder = builder.threads(threads);
    }
    builder.build()?.run()?;
    Ok(())
}
