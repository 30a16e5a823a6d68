//! What the flags of `windlass serve` do, one by one, and what the program says when they are wrong.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::BufRead;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::time::Instant;

use common::{
    Client, HaProxy, PATIENCE, Serve, TempDir, certificate, curl, curl_header, get, header, run,
    site,
};
use rustix::process::Signal;

fn windlass(arguments: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_windlass"), arguments)
}

/// Runs the program, which must end with `status`; answers what it said on standard error.
fn refused(status: i32, arguments: &[&str]) -> String {
    let output = windlass(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    said
}

#[test]
fn errors_say_what_failed_where_and_what_to_do() {
    let dir = TempDir::new("errors");
    let path = |name: &str| dir.0.join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "text").unwrap();
    fs::write(path("clear"), "# users\nann:secret\n").unwrap();
    fs::write(path("bad.toml"), "dir = \".\"\nthreads = 0\n").unwrap();
    certificate(&dir.0, "localhost");
    fs::rename(path("key.pem"), path("other.pem")).unwrap();
    certificate(&dir.0, "localhost");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let with = |flag: &str, value: &str| format!("--{flag}={value}");
    for (arguments, words) in [
        (vec![path("missing")], &["no such directory"][..]),
        (vec![path("file")], &["not a directory"]),
        (
            vec![with("listen", &taken)],
            &["another program listens there", "--listen"],
        ),
        (
            vec![with("metrics", &taken)],
            &["another program listens there", "--metrics"],
        ),
        (
            vec![with("listen", "192.0.2.1:80")],
            &["no network interface"],
        ),
        (
            vec![with("unix", &path("no/socket"))],
            &["no such directory"],
        ),
        (vec![with("tls-cert", &path("file"))], &["--tls-key"]),
        (
            vec![
                with("tls-cert", &path("file")),
                with("tls-key", &path("file")),
            ],
            &["file"],
        ),
        (
            vec![
                with("tls-cert", &path("cert.pem")),
                with("tls-key", &path("other.pem")),
            ],
            &["other.pem does not belong", "cert.pem"],
        ),
        (
            vec![
                with("tls-cert", &path("cert.pem")),
                with("tls-key", &path("file")),
            ],
            &["no private key in", "file"],
        ),
        (
            vec![
                with("tls-cert", &path("cert.pem")),
                with("tls-key", &path("key.pem")),
                with("tls-cert", &path("missing")),
                with("tls-key", &path("key.pem")),
            ],
            &["read", "missing"],
        ),
        (
            vec![
                with("tls-cert", &path("cert.pem")),
                with("tls-key", &path("key.pem")),
                with("tls-client-ca", &path("file")),
            ],
            &["no certificate in", "file"],
        ),
        (
            vec![with("tls-client-ca", &path("cert.pem"))],
            &["--tls-cert"],
        ),
        (
            vec![with("config", &path("bad.toml"))],
            &["bad.toml:2: ", "threads"],
        ),
        (
            vec![
                "--compress-coding=br:1".into(),
                "--compress-coding=br:2".into(),
            ],
            &["twice"],
        ),
        (
            vec![with("basic-auth", &path("missing"))],
            &["htpasswd -cB"],
        ),
        (
            vec![with("basic-auth", &path("clear"))],
            &["clear: line 2:", "htpasswd -B"],
        ),
        (
            vec![with("error-page", &format!("404={}", path("missing")))],
            &["page for 404", "no such file"],
        ),
        (
            vec![with("access-log-file", &path("no/log"))],
            &["access log", "no/log"],
        ),
        (
            vec![with("config", &path("missing"))],
            &["read the configuration"],
        ),
        (vec![with("cors", "example.org")], &["scheme://host"]),
        (vec![with("cache-control", "a\u{1}b")], &["Cache-Control"]),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let listen = ["--listen=127.0.0.1:0"];
        let all = [&["serve"], &arguments[..], &listen].concat();
        let said = refused(1, &all);
        for word in words {
            assert!(said.contains(word) && !said.contains("secret"), "{said}");
        }
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_wrong_command_line_is_status_2_and_says_what_would_be_right() {
    for (argument, word) in [
        ("--listen=localhost:80", "invalid socket address"),
        ("--head-max=much", "16KiB"),
        ("--idle-timeout=never", "30s"),
        ("--threads=0", "auto"),
        ("--model=actor", "single-loop"),
        ("--header=X", "Name: value"),
        ("--error-page=200=x", "404=missing.html"),
        ("--access-log=xml", "combined"),
        ("--proxy-from=nobody", "--proxy-from"),
        ("--lisen=1", "--listen"),
        ("--compress-coding=br:12", "br:0..11"),
        ("--tls-min-version=1.1", "1.2"),
        ("--tls-client-auth=maybe", "optional"),
    ] {
        let said = refused(2, &["serve", argument]);
        assert!(said.contains(word), "{argument}: {said}");
    }
}

#[test]
fn a_low_port_takes_privileges_and_that_is_said() {
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let start: u16 = start.trim().parse().unwrap();
    if rustix::process::geteuid().is_root() || start < 2 {
        common::report(format_args!("nothing: this user may listen on any port"));
        return;
    }
    let said = refused(1, &["serve", "--listen=127.0.0.1:1"]);
    assert!(said.contains("ports below 1024 need privileges"), "{said}");
}

#[test]
fn a_check_reads_all_files_and_opens_no_socket() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--listen={}", taken.local_addr().unwrap());
    let dir = site();
    let fine = windlass(&["serve", dir.to_str().unwrap(), "--check", &listen]);
    assert_eq!(fine.status.code(), Some(0));
    assert_eq!(fine.stdout, b"the configuration is fine\n");
    refused(1, &["serve", "--check", "--basic-auth=/nonexistent"]);
}

#[test]
fn the_printed_configuration_can_be_served_from() {
    let dir = TempDir::new("printed");
    let printed = windlass(&["serve", "--print-config", "--cors=*", "--threads=2", "/srv"]);
    let file = dir.0.join("windlass.toml");
    fs::write(&file, &printed.stdout).unwrap();
    let again = windlass(&[
        "serve",
        "--print-config",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert_eq!(
        String::from_utf8(printed.stdout).unwrap(),
        String::from_utf8(again.stdout).unwrap()
    );
}

#[test]
fn the_manual_page_and_the_completions_are_well_formed() {
    let manual = windlass(&["man"]);
    assert!(manual.status.success());
    let dir = TempDir::new("manual");
    let page = dir.0.join("windlass.1");
    fs::write(&page, &manual.stdout).unwrap();
    let text = String::from_utf8(manual.stdout).unwrap();
    for word in [".TH windlass 1", "SIGUSR2", "\\-\\-listen", "Exit status"] {
        assert!(text.contains(word), "{word}");
    }
    let checked = run(
        "groff",
        &["-man", "-Tutf8", "-ww", "-z", page.to_str().unwrap()],
    );
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{checked:?}"
    );
    let script = dir.0.join("windlass.bash");
    fs::write(&script, windlass(&["completions", "bash"]).stdout).unwrap();
    assert!(
        run("bash", &["-n", script.to_str().unwrap()])
            .status
            .success()
    );
    for shell in ["elvish", "fish", "powershell", "zsh"] {
        let script = windlass(&["completions", shell]);
        assert!(script.status.success());
        assert!(
            String::from_utf8(script.stdout)
                .unwrap()
                .contains("basic-auth-realm"),
            "{shell}"
        );
    }
}

#[test]
fn headers_cors_and_error_pages_are_as_told() {
    let dir = TempDir::new("pages");
    let page = dir.0.join("missing.html");
    fs::write(&page, "<h1>gone").unwrap();
    let page = format!("--error-page=404={}", page.display());
    let flags = [
        "--access-log=off",
        "--header=X-A: b",
        "--cors=https://a.example",
        &page,
    ];
    let serve = Serve::start(site(), &flags);
    let origin = ["-H", "Origin: https://a.example"];
    let ask = |name: &str, path: &str| {
        let url = serve.url(path);
        curl_header(&[&origin[..], &[&url]].concat(), name)
    };
    assert_eq!(ask("x-a", "/data.json"), (200, "b".into()));
    assert_eq!(
        ask("access-control-allow-origin", "/"),
        (200, "https://a.example".into())
    );
    assert_eq!(
        ask("content-type", "/missing"),
        (404, "text/html; charset=utf-8".into())
    );
    assert_eq!(curl(&[&serve.url("/missing")]), b"<h1>gone");
    serve.stop();
}

#[test]
fn passwords_are_asked_for_and_users_logged() {
    let dir = TempDir::new("passwords");
    let file = dir.0.join("htpasswd");
    let path = file.to_str().unwrap();
    assert!(
        run("htpasswd", &["-cbB", "-C", "5", path, "ann", "one"])
            .status
            .success()
    );
    assert!(
        run("htpasswd", &["-b5", path, "bob", "two"])
            .status
            .success()
    );
    let flag = format!("--basic-auth={path}");
    let mut serve = Serve::start(site(), &[&flag, "--healthz"]);
    let mut stdout = serve.stdout();
    let url = serve.url("/data.json");
    let ask = |user: &str| curl_header(&["--user", user, &url], "www-authenticate");
    assert_eq!(ask("ann:one"), (200, String::new()));
    assert_eq!(ask("bob:two"), (200, String::new()));
    let challenge = "Basic realm=\"windlass\", charset=\"UTF-8\"".to_owned();
    for wrong in ["ann:two", "bob:", "cat:one"] {
        assert_eq!(ask(wrong), (401, challenge.clone()));
    }
    assert_eq!(curl(&[&serve.url("/healthz")]), b"ok\n");
    for user in ["ann", "bob", "-", "-", "-"] {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line.split(' ').nth(2), Some(user), "{line}");
    }
    // A new password is in force after a reload, and the old one no more.
    assert!(
        run("htpasswd", &["-bB", "-C", "5", path, "ann", "new"])
            .status
            .success()
    );
    serve.signal(Signal::HUP);
    serve.line_with("reloaded");
    while ask("ann:new").0 != 200 {}
    assert_eq!(ask("ann:one").0, 401);
    serve.stop();
}

#[test]
fn behind_haproxy_the_log_names_the_client() {
    for form in ["send-proxy", "send-proxy-v2"] {
        let mut serve = Serve::start(
            site(),
            &[
                "--proxy-protocol=required",
                "--proxy-from=127.0.0.0/8",
                "--access-log=json",
            ],
        );
        let mut stdout = serve.stdout();
        let haproxy = HaProxy::start(&serve.addrs[0].to_string(), form);
        let url = format!("http://{}/data.json", haproxy.addr);
        let client = ["--interface", "127.0.0.2", "--output", "/dev/null", &url];
        curl(&client);
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert!(line.contains("\"remote\":\"127.0.0.2\""), "{line}");
        // Without a header nobody is served.
        let mut direct = serve.connect();
        direct.send(get("/"));
        assert!(direct.rest().is_empty());
        serve.stop();
    }
}

#[test]
fn static_file_options_reach_the_files() {
    let dir = TempDir::new("files");
    fs::write(dir.0.join("home.html"), "home").unwrap();
    fs::write(dir.0.join(".hidden"), "hidden").unwrap();
    fs::create_dir(dir.0.join("sub")).unwrap();
    let flags = [
        "--access-log=off",
        "--index=home.html",
        "--listing",
        "--dotfiles",
        "--spa=home.html",
        "--cache-control=no-cache",
    ];
    let serve = Serve::start(&dir.0, &flags);
    let mut client = serve.connect();
    let home = client.get("/");
    assert_eq!(home.body, b"home");
    assert_eq!(header(&home.head, "cache-control"), Some("no-cache"));
    assert_eq!(client.get("/.hidden").body, b"hidden");
    assert_eq!(client.get("/sub/").status, 200);
    let html = "GET /some/page HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n";
    assert_eq!(client.send(html).answer().body, b"home");
    serve.stop();
}

#[test]
fn answers_are_compressed_when_asked_for_and_siblings_come_first() {
    let dir = TempDir::new("compressed");
    let text = "windlass ".repeat(1000);
    for name in ["plain.txt", "sibling.txt"] {
        fs::write(dir.0.join(name), &text).unwrap();
    }
    fs::write(dir.0.join("short.txt"), "short").unwrap();
    fs::write(dir.0.join("sibling.txt.br"), "not really brotli").unwrap();
    let ask = |serve: &Serve, path: &str, accepted: &str| {
        let host = "Host: h\r\nAccept-Encoding: ";
        let request = format!("GET {path} HTTP/1.1\r\n{host}{accepted}\r\n\r\n");
        let answer = serve.connect().send(request).answer();
        assert_eq!(answer.status, 200);
        answer
    };
    let coding =
        |answer: &common::Answer| header(&answer.head, "content-encoding").map(str::to_owned);

    // Not unless it is asked for.
    let serve = Serve::quiet(&dir.0);
    let answer = ask(&serve, "/plain.txt", "br, gzip, zstd");
    assert!(coding(&answer).is_none() && answer.body == text.as_bytes());
    serve.stop();

    let flags = ["--access-log=off", "--compress", "--precompressed"];
    let serve = Serve::start(&dir.0, &flags);
    // What was changed just now may change again unseen, and has no ETag yet.
    let begun = Instant::now();
    while header(&ask(&serve, "/plain.txt", "identity").head, "etag").is_none() {
        assert!(begun.elapsed() < PATIENCE, "no ETag");
    }
    for accepted in ["br", "gzip", "zstd"] {
        let answer = ask(&serve, "/plain.txt", accepted);
        assert_eq!(coding(&answer).as_deref(), Some(accepted));
        assert!(answer.body.len() < text.len() / 10);
        let vary = header(&answer.head, "vary").unwrap();
        assert!(vary.eq_ignore_ascii_case("accept-encoding"), "{vary}");
        assert!(header(&answer.head, "etag").unwrap().starts_with("W/\""));
        assert!(header(&answer.head, "accept-ranges").is_none());
    }
    let plain = ask(&serve, "/plain.txt", "identity");
    assert!(coding(&plain).is_none() && plain.body == text.as_bytes());
    assert!(header(&plain.head, "vary").is_some());
    assert!(header(&plain.head, "etag").unwrap().starts_with('"'));
    let answer = ask(&serve, "/sibling.txt", "br, gzip");
    assert_eq!(answer.body, b"not really brotli");
    assert!(coding(&ask(&serve, "/short.txt", "gzip")).is_none());
    let url = serve.url("/plain.txt");
    assert_eq!(curl(&["--compressed", &url]), text.as_bytes());
    serve.stop();

    // One coding, with bounds.
    let few = ["--compress", "--compress-coding=gzip:1", "--compress-min=0"];
    let flags = [&["--access-log=off", "--compress-max=1000"], &few[..]].concat();
    let serve = Serve::start(&dir.0, &flags);
    let answer = ask(&serve, "/short.txt", "br, gzip");
    assert_eq!(coding(&answer).as_deref(), Some("gzip"));
    assert!(coding(&ask(&serve, "/plain.txt", "br, gzip")).is_none());
    serve.stop();
}

#[test]
fn limits_and_timeouts_are_kept() {
    let flags = [
        "--access-log=off",
        "--head-max=1KiB",
        "--target-max=100",
        "--header-timeout=300ms",
    ];
    let serve = Serve::start(site(), &flags);
    let long = |len: usize| format!("/{}", "x".repeat(len));
    assert_eq!(serve.connect().get(&long(200)).status, 414);
    let big = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "x".repeat(2000)
    );
    assert_eq!(serve.connect().send(big).answer().status, 431);
    let mut slow = serve.connect();
    assert_eq!(slow.send("GET / HT").answer().status, 408);
    assert!(Client::connect(serve.addrs[0]).rest().is_empty());
    serve.stop();
}

#[test]
fn several_loops_serve_h2load_in_http_1() {
    let serve = Serve::start(
        site(),
        &["--access-log=off", "--threads=2", "--listen=127.0.0.1:0"],
    );
    let url = serve.url("/data.json");
    let output = run(
        "h2load",
        &["--h1", "-n", "5000", "-c", "50", "-t", "1", &url],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("5000 succeeded, 0 failed, 0 errored"),
        "{text}"
    );
    serve.stop();
}

#[test]
fn a_proactor_says_by_which_driver() {
    for (driver, said) in [
        (
            "emulated",
            "emulated driver: the emulated driver was asked for",
        ),
        ("io_uring", "io_uring driver"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let arguments = ["--model=uring-proactor", "--access-log=off"];
        command.arg("serve").arg(site()).args(arguments);
        command.env_remove("WINDLASS_BACKEND");
        // Some systems forbid io_uring: then nobody is to be told that it is used.
        match driver {
            "io_uring" => command.env_remove("WINDLASS_PROACTOR"),
            _ => command.env("WINDLASS_PROACTOR", driver),
        };
        let serve = Serve::over(command);
        let line = serve.line_with("operations are done by");
        let is_forbidden =
            driver == "io_uring" && line.contains("emulated driver: open an io_uring");
        assert!(line.contains(said) || is_forbidden, "{line}");
        let (status, _) = curl_header(&[&format!("http://{}/", serve.addrs[0])], "server");
        assert_eq!(status, 200);
    }
}
