//! `windlass serve` over TLS: certificates, clients, reload and restart; also behind HAProxy.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

mod common;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{
    Client, HaProxy, Load, Serve, TempDir, certificate, curl, metric, metrics_addr, pid_in, run,
    send_signal, site,
};
use rustix::process::Signal;

/// The flags for a certificate and its key.
fn flags_of([cert, key]: &[String; 2]) -> [String; 2] {
    [format!("--tls-cert={cert}"), format!("--tls-key={key}")]
}

/// Serves the site with these flags over TLS.
fn serve_tls(pairs: &[&[String; 2]], more: &[&str]) -> Serve {
    let flags: Vec<String> = pairs.iter().flat_map(|pair| flags_of(pair)).collect();
    let flags = flags.iter().map(String::as_str);
    let flags: Vec<&str> = flags
        .chain(["--access-log=off"])
        .chain(more.iter().copied())
        .collect();
    Serve::start(site(), &flags)
}

/// Runs s_client; answers all that it printed, or nothing if it fails. It sends a request, and
/// ends when the server has answered.
fn s_client(addr: SocketAddr, args: &[&str]) -> Option<String> {
    let mut child = Command::new("timeout")
        .args(["60", "openssl", "s_client", "-ign_eof", "-connect"])
        .arg(addr.to_string())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = b"GET /data.json HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    // It has ended already, if the handshake fails.
    let _ = child.stdin.take().unwrap().write_all(request);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

#[test]
fn https_is_served_and_a_new_certificate_is_in_force_after_a_reload() {
    let dir = TempDir::new("tls");
    let [cert, key] = certificate(&dir.0, "first");
    let flags = [format!("--tls-cert={cert}"), format!("--tls-key={key}")];
    let serve = Serve::start(site(), &["--access-log=off", &flags[0], &flags[1]]);
    let url = format!("https://{}/data.json", serve.addrs[0]);
    let content = fs::read(site().join("data.json")).unwrap();
    assert_eq!(curl(&["--cacert", &cert, &url]), content);
    let old = dir.0.join("old.pem");
    fs::copy(&cert, &old).unwrap();

    fs::write(&key, "no key").unwrap();
    serve.signal(Signal::HUP);
    serve.line_with("all stays as it was");
    assert_eq!(curl(&["--cacert", &cert, &url]), content);

    certificate(&dir.0, "second");
    serve.signal(Signal::HUP);
    serve.line_with("reloaded");
    assert_eq!(
        curl(&[
            "--retry",
            "5",
            "--retry-all-errors",
            "--cacert",
            &cert,
            &url
        ]),
        content
    );
    let distrusted = run(
        "curl",
        &["--silent", "--cacert", old.to_str().unwrap(), &url],
    );
    assert!(!distrusted.status.success());
    serve.stop();
}

#[test]
fn the_certificate_is_the_one_for_the_name_that_is_asked_for() {
    let (one, two) = (TempDir::new("tls-one"), TempDir::new("tls-two"));
    let pairs = [
        certificate(&one.0, "one.test"),
        certificate(&two.0, "two.test"),
    ];
    let serve = serve_tls(&[&pairs[0], &pairs[1]], &[]);
    for (args, name) in [
        (&["-servername", "one.test"][..], "one.test"),
        (&["-servername", "two.test"], "two.test"),
        (&["-servername", "other.test"], "one.test"),
        (&["-noservername"], "one.test"),
    ] {
        let shown = s_client(serve.addrs[0], args).unwrap();
        assert!(shown.contains(&format!("subject=CN = {name}\n")), "{shown}");
    }
    serve.stop();
}

/// A client's certificate, signed by `authority`, and its key.
fn signed(dir: &Path, authority: &[String; 2]) -> [String; 2] {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let [request, cert, key, extensions] =
        ["client.csr", "client.pem", "client.key", "extensions"].map(path);
    fs::write(&extensions, "basicConstraints=CA:FALSE\n").unwrap();
    let [ca, ca_key] = authority;
    let asked = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=client";
    let mut asked: Vec<&str> = asked.split(' ').collect();
    asked.extend(["-keyout", &key, "-out", &request]);
    let mut signed = vec![
        "x509",
        "-req",
        "-days",
        "2",
        "-CAcreateserial",
        "-in",
        &request,
    ];
    signed.extend([
        "-CA",
        ca,
        "-CAkey",
        ca_key,
        "-extfile",
        &extensions,
        "-out",
        &cert,
    ]);
    for arguments in [asked, signed] {
        let made = run("openssl", &arguments);
        assert!(made.status.success(), "{made:?}");
    }
    [cert, key]
}

#[test]
fn clients_need_the_certificate_and_the_version_that_are_asked_for() {
    let (ours, theirs) = (TempDir::new("tls-server"), TempDir::new("tls-client"));
    let [server, authority] = [
        certificate(&ours.0, "server"),
        certificate(&theirs.0, "authority"),
    ];
    let client = signed(&theirs.0, &authority);
    // Signed by another one.
    let stranger = signed(&ours.0, &server);
    let ca = format!("--tls-client-ca={}", authority[0]);
    let shows = |pair: &'_ [String; 2]| {
        [
            "-cert".into(),
            pair[0].clone(),
            "-key".into(),
            pair[1].clone(),
        ]
    };
    let ask = |serve: &Serve, pair: Option<&[String; 2]>, version: &str| {
        let shown = pair.map(shows);
        let mut args: Vec<&str> = shown.iter().flatten().map(String::as_str).collect();
        args.push(version);
        let text = s_client(serve.addrs[0], &args);
        text.is_some_and(|text| text.contains("HTTP/1.1 200 OK"))
    };
    let serve = serve_tls(&[&server], &[&ca]);
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(ask(&serve, Some(&client), version));
        assert!(!ask(&serve, None, version));
        assert!(!ask(&serve, Some(&stranger), version));
    }
    serve.stop();
    let serve = serve_tls(
        &[&server],
        &[&ca, "--tls-client-auth=optional", "--tls-min-version=1.3"],
    );
    assert!(ask(&serve, Some(&client), "-tls1_3"));
    assert!(ask(&serve, None, "-tls1_3"));
    assert!(!ask(&serve, None, "-tls1_2"));
    serve.stop();
}

#[test]
fn sessions_resume_and_counts_go_on_after_a_reload() {
    let dir = TempDir::new("tls-resume");
    let pair = certificate(&dir.0, "localhost");
    let serve = serve_tls(&[&pair], &["--metrics=127.0.0.1:0", "--listen=127.0.0.1:0"]);
    let page = metrics_addr(&serve);
    let mut resumed = 0.0;
    for version in ["-tls1_2", "-tls1_3"] {
        let ticket = dir.0.join(version);
        let ticket = ticket.to_str().unwrap();
        let first = s_client(serve.addrs[0], &[version, "-sess_out", ticket]).unwrap();
        assert!(first.contains("New, TLSv1"), "{first}");
        // The certificate is another one, too.
        certificate(&dir.0, "localhost");
        serve.signal(Signal::HUP);
        serve.line_with("reloaded");
        let second = s_client(serve.addrs[0], &[version, "-sess_in", ticket]).unwrap();
        assert!(
            second.contains("Reused, TLSv1") && second.contains("HTTP/1.1 200 OK"),
            "{second}"
        );
        resumed += 1.0;
        let count = |name: &str| metric(page, name);
        assert!((count("windlass_tls_resumptions_total") - resumed).abs() < 0.1);
        assert!((count("windlass_tls_handshakes_total") - 2.0 * resumed).abs() < 0.1);
    }
    // What is no TLS is counted.
    let mut noise = Client::connect(serve.addrs[0]);
    noise.send("GET / HTTP/1.1\r\n\r\n");
    noise.rest();
    assert!((metric(page, "windlass_tls_failed_handshakes_total") - 1.0).abs() < 0.1);
    serve.stop();
}

#[test]
fn a_restart_under_load_fails_no_request_over_tls() {
    let dir = TempDir::new("tls-restart");
    let pair = certificate(&dir.0, "localhost");
    let serve = serve_tls(&[&pair], &["--threads=2", "--listen=127.0.0.1:0"]);
    let url = format!("https://{}/data.json", serve.addrs[0]);
    let load = Load::of(move || {
        curl(&[
            "--fail",
            "--output",
            "/dev/null",
            "--cacert",
            &pair[0],
            &url,
        ]);
    });
    let mut pid = serve.pid();
    for _ in 0..2 {
        load.wait_for(20);
        send_signal(pid, Signal::USR2);
        pid = pid_in(&serve.line_with("has taken over"));
        serve.line_with("stopped:");
        load.wait_for(20);
    }
    load.end();
    send_signal(pid, Signal::TERM);
    let said = serve.end();
    assert!(!said.contains("cut at the stop"), "{said}");
}

/// Restarts and reloads while clients ask through HAProxy, over TCP and over a Unix socket.
#[test]
fn a_rolling_restart_behind_haproxy_fails_no_request() {
    let dir = TempDir::new("rolling");
    let path = dir.0.join("socket");
    let unix = format!("--unix={}", path.display());
    let more = [
        "--listen=127.0.0.1:0",
        &unix,
        "--threads=2",
        "--metrics=127.0.0.1:0",
    ];
    let serve = Serve::start(
        site(),
        &[
            &["--access-log=off", "--proxy-protocol=required"][..],
            &more,
        ]
        .concat(),
    );
    let page = metrics_addr(&serve);
    let tcp = HaProxy::start(&serve.addrs[0].to_string(), "send-proxy-v2");
    let local = HaProxy::start(&format!("unix@{}", path.display()), "send-proxy-v2");
    let loads = [Load::start(tcp.addr), Load::start(local.addr)];
    let mut pid = serve.pid();
    for _ in 0..2 {
        loads.iter().for_each(|load| load.wait_for(100));
        send_signal(pid, Signal::HUP);
        serve.line_with("reloaded");
        loads.iter().for_each(|load| load.wait_for(100));
        assert!(metric(page, "windlass_proxy_headers_total") >= 100.0);
        send_signal(pid, Signal::USR2);
        pid = pid_in(&serve.line_with("has taken over"));
        serve.line_with("stopped:");
        loads.iter().for_each(|load| load.wait_for(100));
    }
    for load in loads {
        load.end();
    }
    // What is no header is counted.
    UnixStream::connect(&path)
        .unwrap()
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .unwrap();
    let mut noise = serve.connect();
    noise.send("GET / HTTP/1.1\r\n\r\n");
    noise.rest();
    assert!(metric(page, "windlass_proxy_malformed_total") >= 1.0);
    send_signal(pid, Signal::TERM);
    let said = serve.end();
    assert!(!said.contains("cut at the stop"), "{said}");
}
