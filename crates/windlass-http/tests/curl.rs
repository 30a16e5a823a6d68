//! Real servers, asked by curl.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// What curl prints for these arguments.
fn curl(args: &[&str]) -> String {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--noproxy",
            "*",
        ])
        .args(args)
        .output()
        .expect("curl runs");
    assert!(output.status.success(), "curl {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A process that is ended when the test is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

#[test]
fn example_of_the_router_keeps_a_list() {
    let test = std::env::current_exe().expect("a path");
    let target = test
        .ancestors()
        .nth(2)
        .expect("target/<profile>/deps/<test>");
    let child = Command::new(target.join("examples/router"))
        .arg("0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example is built with the tests");
    let mut example = Running(child);
    let stdout = example.0.stdout.take().expect("it is piped");
    let mut url = String::new();
    BufReader::new(stdout)
        .read_line(&mut url)
        .expect("its first line");
    let url = url.trim();
    let one = format!("{url}/1");
    let code = [
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %header{location}%header{allow}",
    ];
    assert_eq!(
        curl(&[&code[..], &["-d", "water the plants", url]].concat()),
        "201 /todos/1"
    );
    assert_eq!(curl(&["-d", "read", url]), "");
    assert_eq!(curl(&[&one]), "water the plants\n");
    assert_eq!(curl(&["-X", "DELETE", &one]), "");
    assert_eq!(curl(&[url]), "2 read\n");
    assert_eq!(curl(&[&code[..], &[&one]].concat()), "404 ");
    let put = [&code[..], &["-X", "PUT", &one]].concat();
    assert_eq!(curl(&put), "405 GET, HEAD, DELETE, OPTIONS");
}

#[cfg(feature = "compression")]
#[test]
fn curl_decompresses_what_a_real_server_compresses() {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::{Arc, mpsc};

    use windlass::models::SingleLoop;
    use windlass_http::{
        BodyWriter, Compression, HttpConfig, HttpService, Produced, Request, Responder, Router,
        Status,
    };

    const LINE: &str = "All work and no play makes Jack a dull boy.\n";
    let whole = |_: &Request<'_>, response: Responder<'_>| {
        let head = response
            .start(Status::OK)
            .header("Content-Type", "text/plain")?;
        Ok(head.body(LINE.repeat(1000)))
    };
    let stream = |_: &Request<'_>, response: Responder<'_>| {
        let mut lines = 0;
        let head = response
            .start(Status::OK)
            .header("Content-Type", "text/plain")?;
        Ok(head.stream(move |body: &mut BodyWriter<'_, '_>| {
            while lines < 100_000 && !body.is_full() {
                body.push(LINE.as_bytes());
                lines += 1;
            }
            if lines < 100_000 {
                Produced::More
            } else {
                Produced::End
            }
        }))
    };
    let router = Router::new()
        .get("/whole", whole)
        .and_then(|r| r.get("/stream", stream));
    let mut config = HttpConfig::default();
    config.compression = Some(Compression::default());
    let service = Arc::new(HttpService::new(router.expect("valid"), config));
    let (send, started) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = SingleLoop::builder(service)
            .listen(addr)
            .build()
            .expect("build");
        send.send((server.local_addrs()[0], server.stop_handle()))
            .expect("the test waits");
        server.run().expect("run")
    });
    let (addr, stop) = started.recv().expect("it starts");
    for (path, lines) in [("whole", 1000), ("stream", 100_000)] {
        let url = format!("http://{addr}/{path}");
        assert!(
            curl(&["--compressed", &url]) == LINE.repeat(lines),
            "{path}"
        );
        assert!(curl(&[&url]) == LINE.repeat(lines), "{path}");
        let gzip = ["-H", "Accept-Encoding: gzip", "-o", "/dev/null", "-w"];
        let sent = curl(&[&gzip[..], &["%{size_download}", &url]].concat());
        assert!(
            sent.parse::<usize>().expect("a size") < LINE.len() * lines / 20,
            "{sent}"
        );
        let coding = curl(&[&gzip[..], &["%header{content-encoding}", &url]].concat());
        assert_eq!(coding, "gzip");
    }
    stop.stop().expect("it runs");
    server.join().expect("no panic");
}
