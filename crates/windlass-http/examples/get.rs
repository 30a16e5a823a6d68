//! Fetches a URL and shows the response: `get http://example.com/`. Without a URL it asks a small
//! server that it starts itself. With the feature `client-tls` it takes https URLs too.

#![allow(clippy::print_stdout, reason = "an example that shows something")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use windlass::event_loop::EventLoop;
use windlass::models::SingleLoop;
use windlass::pool::{PoolConfig, WorkerPool};
use windlass_http::client::{ClientConfig, ClientError, ClientResponse, HttpClient};
use windlass_http::{HttpConfig, HttpService, Request, Responder, Response, Status};

/// What the loop's handlers share.
#[derive(Default)]
struct Fetch {
    result: Option<Result<ClientResponse, ClientError>>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let url = match std::env::args().nth(1) {
        Some(url) => url,
        None => format!("http://{}/hello?from=get", start_server()?),
    };
    let mut event_loop = EventLoop::<Fetch>::new()?;
    let pool = WorkerPool::new(PoolConfig::default())?;
    let client = HttpClient::new(ClientConfig::default(), pool);
    client.get(&mut event_loop, &url, |fetch: &mut Fetch, _cx, result| {
        fetch.result = Some(result);
    })?;
    // The loop ends when the request has: connections that are kept do not keep it running.
    let mut fetch = Fetch::default();
    event_loop.run(&mut fetch)?;
    Ok(match fetch.result {
        Some(Ok(response)) => {
            show(&response);
            ExitCode::SUCCESS
        }
        Some(Err(error)) => return Err(error.into()),
        None => ExitCode::FAILURE,
    })
}

fn show(response: &ClientResponse) {
    println!("{} from {}", response.status, response.url);
    for (name, value) in &response.headers {
        println!("{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    println!("\n{}", String::from_utf8_lossy(&response.body));
}

/// Serves in a thread that ends with the program.
fn start_server() -> Result<SocketAddr, Box<dyn Error>> {
    let service = HttpService::new(
        |request: &Request<'_>, response: Responder<'_>| {
            let body = format!("You asked for {}\n", request.target());
            Ok(response.respond(Response::new(Status::OK).body(body)))
        },
        HttpConfig::default(),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    // A loop stays in its thread, so it is made there.
    thread::spawn(move || {
        let builder = SingleLoop::builder(Arc::new(service)).listener(listener);
        match builder.build() {
            Ok(mut server) => server.run().map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    });
    Ok(addr)
}
