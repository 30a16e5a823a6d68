//! `windlass serve` as its users see it: pages, options, messages.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::BufRead;
use std::net::{TcpListener, TcpStream};

use common::{Client, Serve, TempDir, curl, curl_header, get, header, run, site};

#[test]
fn every_page_of_the_site_is_served_as_it_is() {
    let serve = Serve::quiet(site());
    let mut count = 0;
    for entry in fs::read_dir(site()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let content = fs::read(&path).unwrap();
        let url = serve.url(&format!("/{name}"));
        assert!(curl(&[&url]) == content, "{name}");
        let (status, len) = curl_header(&["--head", &url], "content-length");
        assert_eq!(
            (status, len),
            (200, content.len().to_string()),
            "HEAD of {name}"
        );
        let wanted = match path.extension().unwrap().to_str().unwrap() {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "json" => "application/json",
            "svg" => "image/svg+xml; charset=utf-8",
            other => panic!("what is {other}?"),
        };
        assert_eq!(
            curl_header(&[&url], "content-type"),
            (200, wanted.into()),
            "{name}"
        );
        count += 1;
    }
    assert!(count > 5, "the site has {count} files");
    assert!(curl(&[&serve.url("/")]) == fs::read(site().join("index.html")).unwrap());
    serve.stop();
}

#[test]
fn ranges_and_conditions_are_honoured() {
    let dir = TempDir::new("ranges");
    fs::write(dir.0.join("digits"), "0123456789").unwrap();
    // What was changed a moment ago may change again within the same second.
    let digits = fs::File::options()
        .write(true)
        .open(dir.0.join("digits"))
        .unwrap();
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    digits.set_modified(an_hour_ago).unwrap();
    let serve = Serve::quiet(&dir.0);
    let url = serve.url("/digits");
    assert_eq!(curl(&["--range", "3-5", &url]), b"345");
    assert_eq!(curl(&["--range", "-2", &url]), b"89");
    assert_eq!(
        curl_header(&["--range", "7-", &url], "content-range"),
        (206, "bytes 7-9/10".into())
    );
    assert_eq!(
        curl_header(&["--range", "10-", &url], "content-range"),
        (416, "bytes */10".into())
    );
    let (_, etag) = curl_header(&[&url], "etag");
    assert!(!etag.is_empty());
    let condition = format!("If-None-Match: {etag}");
    assert_eq!(
        curl_header(&["--header", &condition, &url], "etag"),
        (304, etag)
    );
    let (_, modified) = curl_header(&[&url], "last-modified");
    assert_eq!(curl_header(&["--time-cond", &modified, &url], "x").0, 304);
    serve.stop();
}

#[test]
fn what_is_not_to_be_served_is_refused() {
    let dir = TempDir::new("refused");
    fs::create_dir(dir.0.join("public")).unwrap();
    fs::create_dir(dir.0.join("public-secret")).unwrap();
    fs::create_dir(dir.0.join("public/sub")).unwrap();
    for secret in ["secret", "public-secret/secret"] {
        fs::write(dir.0.join(secret), "secret").unwrap();
    }
    std::os::unix::fs::symlink("../secret", dir.0.join("public/link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.0.join("public/passwd")).unwrap();
    let serve = Serve::quiet(dir.0.join("public"));
    for path in [
        "/missing",
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/..%5csecret",
        "/../public-secret/secret",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/%252e%252e/secret",
        "/link",
        "/passwd",
    ] {
        let body = curl(&["--path-as-is", &serve.url(path)]);
        assert!(!body.starts_with(b"secret"), "{path} gave the secret");
        let status = curl_header(&["--path-as-is", &serve.url(path)], "x").0;
        assert!([400, 403, 404].contains(&status), "{path} gave {status}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let (status, allowed) = curl_header(
            &["--request", method, "--data", "x=y", &serve.url("/")],
            "allow",
        );
        assert_eq!(status, 405, "{method}");
        assert!(
            allowed.contains("GET") && allowed.contains("HEAD"),
            "{allowed}"
        );
    }
    let (status, location) = curl_header(&[&serve.url("/sub?q")], "location");
    assert_eq!((status, location.as_str()), (301, "/sub/?q"));
    serve.stop();
}

#[test]
fn connections_are_kept_and_old_clients_are_served() {
    let serve = Serve::quiet(site());
    let url = serve.url("/data.json");
    let connects = curl(&[
        "--write-out",
        "%{num_connects}",
        "--output",
        "/dev/null",
        &url,
        "--output",
        "/dev/null",
        &url,
    ]);
    assert_eq!(connects, b"10", "one connection, then none more");
    let content = fs::read(site().join("data.json")).unwrap();
    assert!(curl(&["--http1.0", &url]) == content);
    let mut old = serve.connect();
    old.send("GET /data.json HTTP/1.0\r\n\r\n");
    let answer = old.answer();
    assert_eq!((answer.status, &answer.body), (200, &content));
    assert!(old.rest().is_empty(), "closed after the answer");
    serve.stop();
}

/// The page's script marks the document when it has run and has fetched a file.
#[test]
fn a_browser_loads_the_page_and_runs_its_script() {
    let serve = Serve::quiet(site());
    let profile = TempDir::new("chromium");
    let profile_option = format!("--user-data-dir={}", profile.0.display());
    let output = run(
        "chromium",
        &[
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &profile_option,
            "--dump-dom",
            "--virtual-time-budget=5000",
            &serve.url("/"),
        ],
    );
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let root = page
        .split('>')
        .find(|tag| tag.contains("<html"))
        .unwrap_or_default();
    assert!(root.contains("data-js=\"ran\""), "{root}");
    assert!(root.contains("data-json=\"windlass\""), "{root}");
    serve.stop();
}

#[test]
fn the_access_log_has_a_line_for_each_answer_in_the_format_asked_for() {
    for (format, tail) in [
        ("common", ""),
        ("combined", " \"http://from/\" \"agent \\\"x\\\"\""),
    ] {
        let mut serve = Serve::start(site(), &["--access-log", format]);
        let log = serve.stdout();
        let mut client = serve.connect();
        let request = "HTTP/1.1\r\nHost: h\r\nReferer: http://from/\r\nUser-Agent: agent \"x\"\r\n";
        client.send(format!(
            "GET /data.json {request}\r\nHEAD /missing?q=1 {request}\r\n"
        ));
        assert_eq!(client.answer().status, 200);
        client.send("GET /\r\n\r\n");
        let len = fs::metadata(site().join("data.json")).unwrap().len();
        drop(client.rest());
        serve.stop();
        let lines: Vec<String> = log.lines().map(Result::unwrap).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        let wanted = [
            format!("\"GET /data.json HTTP/1.1\" 200 {len}{tail}"),
            format!("\"HEAD /missing?q=1 HTTP/1.1\" 404 -{tail}"),
        ];
        for (line, wanted) in lines.iter().zip(wanted) {
            assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
            assert_eq!(line.split_once("] ").unwrap().1, wanted);
        }
        assert!(lines[2].contains("\"-\" 400 "), "{}", lines[2]);
    }
    let mut serve = Serve::quiet(site());
    let log = serve.stdout();
    assert_eq!(serve.connect().get("/").status, 200);
    serve.stop();
    assert_eq!(log.lines().count(), 0);
}

#[test]
fn several_addresses_are_served() {
    let mut arguments = vec![
        "--access-log=off",
        "--listen=127.0.0.1:0",
        "--listen=127.0.0.1:0",
    ];
    if TcpListener::bind("[::1]:0").is_ok() {
        arguments.push("--listen=[::1]:0");
    }
    let serve = Serve::start(site(), &arguments);
    assert_eq!(serve.addrs.len(), arguments.len() - 1);
    for &addr in &serve.addrs {
        assert_eq!(Client::connect(addr).get("/").status, 200, "{addr}");
    }
    serve.stop();
}

#[test]
fn what_is_wrong_is_said_and_the_exit_code_tells() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--listen={}", taken.local_addr().unwrap());
    let site = site();
    let site = site.to_str().unwrap();
    let file = format!("{site}/index.html");
    for (arguments, code, wanted) in [
        (
            &["serve", site, &taken][..],
            1,
            "another program listens there",
        ),
        (
            &["serve", "/no/such/directory"],
            1,
            "there is no such directory",
        ),
        (&["serve", &file], 1, "it is not a directory"),
        (
            &["serve", site, "--listen=192.0.2.1:0"],
            1,
            "no network interface",
        ),
        (
            &["serve", site, "--listen=localhost"],
            2,
            "invalid socket address",
        ),
        (
            &["serve", site, "--listen=127.0.0.1:99999"],
            2,
            "invalid socket address",
        ),
        (&["serve", site, "--access-log=loud"], 2, "possible values"),
        (
            &["serve", site, "--connections-max=0"],
            2,
            "connections-max",
        ),
        (&["serve", site, "--stop-deadline=soon"], 2, "stop-deadline"),
        (&["serve", site, "--nonsense"], 2, "unexpected argument"),
        (&[], 2, "Usage"),
    ] {
        let output = run(env!("CARGO_BIN_EXE_windlass"), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn help_says_what_there_is() {
    let output = run(env!("CARGO_BIN_EXE_windlass"), &["serve", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for wanted in [
        "--listen",
        "127.0.0.1:8080",
        "--access-log",
        "combined",
        "--stop-deadline",
        "--connections-max",
        "65536",
        "SIGTERM",
        "WINDLASS_BACKEND",
    ] {
        assert!(help.contains(wanted), "{wanted} is not in:\n{help}");
    }
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    for heading in [
        "Configuration",
        "Sockets",
        "TLS",
        "Threads",
        "Content",
        "Compression",
        "Watching",
        "Stopping",
        "Limits",
    ] {
        assert!(help.contains(&format!("\n{heading}:\n")), "{heading}");
    }
    let ask = |arguments: &[&str]| {
        let output = run(env!("CARGO_BIN_EXE_windlass"), arguments);
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    };
    let short = ask(&["serve", "-h"]);
    assert!(short.lines().count() * 2 < help.lines().count(), "{short}");
    assert!(!short.contains("BREACH") && help.contains("BREACH"));
    assert_eq!(ask(&["help", "serve"]), help);
    assert!(ask(&["help"]).contains("serve        Serve a directory"));
    let version = run(env!("CARGO_BIN_EXE_windlass"), &["--version"]).stdout;
    assert!(
        String::from_utf8(version)
            .unwrap()
            .starts_with("windlass 0.")
    );
}

#[test]
fn other_back_ends_are_chosen_by_the_environment_and_serve_the_same() {
    for backend in ["epoll", "poll", "select"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("serve")
            .arg(site())
            .env("WINDLASS_BACKEND", backend);
        let serve = Serve::over(command);
        let mut client = serve.connect();
        client.send(get("/data.json").repeat(3));
        for _ in 0..3 {
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{backend}");
            assert!(header(&answer.head, "date").is_some());
        }
        drop(TcpStream::connect(serve.addrs[0]).unwrap());
        serve.stop();
    }
}
