//! The file: what is read, what is refused and how that is said.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArguments,
}

fn flags(line: &[&str]) -> ServeArguments {
    Line::try_parse_from([&["serve"], line].concat())
        .unwrap()
        .serve
}

#[test]
fn printed_defaults_are_read_as_the_defaults() {
    let printed = to_toml(&Config::default());
    assert_eq!(
        Config::parse(&printed).ok(),
        Some(Config::default()),
        "{printed}"
    );
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let page = include_str!("../../../../../docs/serve.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (documented, _) = rest.split_once("```").unwrap();
    assert_eq!(documented, to_toml(&Config::default()));
}

#[test]
fn defaults_are_those_of_the_libraries() {
    let config = Config::default();
    let http = windlass_http::HttpConfig::default();
    assert_eq!(config.limits.head.0, http.limits.head_bytes as u64);
    assert_eq!(config.limits.header_lines.get(), http.limits.header_count);
    assert_eq!(config.limits.target.0, http.limits.target_bytes as u64);
    assert_eq!(config.limits.drain.0, http.limits.drain_bytes);
    assert_eq!(config.timeouts.header.0, http.timeouts.header);
    assert_eq!(config.timeouts.idle.0, http.timeouts.idle);
    assert_eq!(config.timeouts.body.0, http.timeouts.body);
    assert_eq!(
        config.timeouts.body_rate.get(),
        http.timeouts.body_bytes_per_second
    );
    let compression = windlass_http::Compression::default();
    let ours = &config.compression;
    assert_eq!(ours.level(Coding::Brotli), compression.brotli);
    assert_eq!(ours.level(Coding::Gzip), compression.gzip);
    assert_eq!(ours.level(Coding::Zstd), compression.zstd);
    assert_eq!(ours.bytes_min.0, compression.bytes_min);
    assert_eq!(ours.bytes_max.0, compression.bytes_max);
    let cache = windlass_http::FileCache::default();
    assert_eq!(config.files.cache.0, cache.bytes_max as u64);
    let limits = windlass::models::Limits::default();
    assert_eq!(config.limits.connections.get(), limits.connections_max);
    assert_eq!(config.timeouts.write.0, limits.write_stall_timeout);
    assert_eq!(config.timeouts.linger.0, limits.linger_timeout);
    assert_eq!(config.stop.deadline.0, limits.stop_deadline);
}

#[test]
fn the_help_names_each_default() {
    let printed = to_toml(&Config::default());
    let mut comment = String::new();
    for line in printed.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            comment = format!("{comment} {text}");
            continue;
        }
        if let Some((key, value)) = line.split_once(" = ") {
            let value = value.trim_matches(['"', '[', ']']);
            let value = if value == "false" { "off" } else { value };
            let value = value.replace("\", \"", ", ");
            let says = comment.contains(&format!("Default: {value}."));
            assert!(says || key == "dir", "{key}: {comment}");
        }
        comment.clear();
    }
}

/// A flag for each key, none of them the default.
const ALL: &[&str] = &[
    "/srv",
    "--listen=127.0.0.1:1",
    "--listen=[::1]:2",
    "--unix=/run/\"a\\b\"",
    "--unix-mode=600",
    "--proxy-protocol=required",
    "--proxy-from=10.0.0.0/8",
    "--index=home.html",
    "--listing",
    "--dotfiles=on",
    "--links=none",
    "--spa",
    "--precompressed",
    "--cache-control=no-cache",
    "--file-cache=0",
    "--compress",
    "--compress-coding=zstd:3",
    "--compress-coding=gzip:1",
    "--compress-min=1",
    "--compress-max=2KiB",
    "--tls-cert=c",
    "--tls-key=k",
    "--tls-cert=d",
    "--tls-key=l",
    "--tls-min-version=1.3",
    "--tls-client-ca=ca",
    "--tls-client-auth=optional",
    "--model=single-loop",
    "--threads=auto",
    "--slow-handler=off",
    "--basic-auth=h",
    "--basic-auth-realm=r",
    "--cors=https://a",
    "--cors=https://b",
    "--header=X-A: b",
    "--error-page=404=e",
    "--healthz",
    "--access-log=json",
    "--access-log-file=f",
    "--metrics=127.0.0.1:3",
    "--stop-delay=1s",
    "--stop-deadline=2s",
    "--restart-deadline=3s",
    "--connections-max=4",
    "--head-max=5KiB",
    "--header-lines-max=6",
    "--target-max=7",
    "--drain-max=8",
    "--header-timeout=9",
    "--idle-timeout=off",
    "--body-timeout=10ms",
    "--body-rate=11",
    "--write-timeout=12m",
    "--linger-timeout=13",
];

#[test]
fn each_flag_sets_a_key_that_is_printed() {
    let config = Config::gather(&flags(ALL)).unwrap();
    let printed = to_toml(&config);
    assert_eq!(Config::parse(&printed).ok(), Some(config), "{printed}");
    let unset = |line: &&str| line.starts_with("# ") && line.contains(" = ");
    assert_eq!(printed.lines().find(unset), None);
    let plain = to_toml(&Config::default());
    let same = printed
        .lines()
        .filter(|line| line.contains(" = "))
        .find(|line| plain.lines().any(|other| other == *line));
    assert_eq!(same, None, "a flag changed nothing");
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_defaults() {
    let mut config = Config::parse("threads = 3\n[limits]\nhead = \"12KiB\"\n")
        .ok()
        .unwrap();
    flags(&["--threads=5"]).apply(&mut config);
    assert_eq!(config.threads, Some(Threads::Count(5)));
    assert_eq!(config.limits.head, Size(12 << 10));
    assert_eq!(config.limits.target, Size(8 << 10));
}

#[test]
fn errors_name_line_key_and_what_would_be_right() {
    for (text, line, words) in [
        (
            "dir = \".\"\nthraeds = 3\n",
            2,
            &["`thraeds`", "`threads`"][..],
        ),
        ("\n[limits]\nhead = \"12 cubits\"\n", 3, &["head", "16KiB"]),
        ("[timeouts]\nidle = \"soon\"\n", 2, &["idle", "30s", "off"]),
        ("model = \"actor\"\n", 1, &["actor", "single-loop"]),
        ("threads = 0\n", 1, &["threads", "auto"]),
        ("threads = true\n", 1, &["threads", "auto"]),
        ("listen = [\"localhost\"]\n", 1, &["listen", "address"]),
        ("headers = [\"X\"]\n", 1, &["headers", "Name: value"]),
        (
            "[access_log]\nformat = \"xml\"\n",
            2,
            &["format", "`combined`", "`json`"],
        ),
        ("dir = \n", 1, &["string"]),
        (
            "[limits]\nconnections = 0\n",
            2,
            &["connections", "nonzero"],
        ),
    ] {
        let error = Config::parse(text).err().unwrap();
        assert_eq!(error.line, line, "{text:?}: {}", error.message);
        for word in words {
            assert!(error.message.contains(word), "{text:?}: {}", error.message);
        }
    }
}

#[test]
fn contradictions_are_refused() {
    for line in [
        &["--tls-cert=a"][..],
        &["--tls-key=a"],
        &["--tls-cert=a", "--tls-key=b", "--tls-cert=c"],
        &["--tls-client-ca=a"],
        &["--compress-coding=br:1", "--compress-coding=br:2"],
        &["--compress-min=2", "--compress-max=1"],
        &["--proxy-protocol=mixed"],
        &["--proxy-from=10.0.0.0/8"],
        &["--healthz=ok"],
        &["--cors=example.org"],
        &["--cors=https://example.org/"],
        &["--target-max=1MiB"],
        &["--head-max=2MiB"],
    ] {
        assert!(Config::gather(&flags(line)).is_err(), "{line:?}");
    }
}

#[test]
fn certificates_may_be_tables_and_flags_replace_them_all() {
    let mut config = Config::parse(
        "[tls]\nmin_version = \"1.3\"\n[[tls.certificates]]\ncert = \"a\"\nkey = \"b\"\n\
         [[tls.certificates]]\ncert = \"c\"\nkey = \"/d\"\n",
    )
    .ok()
    .unwrap();
    config.resolve(Path::new("/etc"));
    let pair = |cert: &str, key: &str| CertificateConfig {
        cert: cert.into(),
        key: key.into(),
    };
    let both = [pair("/etc/a", "/etc/b"), pair("/etc/c", "/d")];
    assert_eq!(config.tls.certificates, both);
    flags(&["--tls-key=k", "--tls-cert=c"]).apply(&mut config);
    assert_eq!(config.tls.certificates, [pair("c", "k")]);
    assert_eq!(config.tls.min_version, MinVersion::Tls13);
    let half = Config::parse("[[tls.certificates]]\ncert = \"a\"\n")
        .err()
        .unwrap();
    assert!(half.message.contains("`key`"), "{}", half.message);
}

#[test]
fn paths_in_a_file_are_relative_to_it() {
    let mut config = Config::parse("dir = \"a\"\nunix = [\"/b\"]\nerror_pages = [\"404=c\"]\n")
        .ok()
        .unwrap();
    config.resolve(Path::new("/etc/windlass"));
    assert_eq!(config.dir, Path::new("/etc/windlass/a"));
    assert_eq!(config.unix, [Path::new("/b")]);
    assert_eq!(config.error_pages[0].file, Path::new("/etc/windlass/c"));
}

#[test]
fn without_any_socket_the_default_address_is_taken() {
    assert_eq!(Config::default().tcp_listeners(), [DEFAULT_LISTEN]);
    let config = Config::gather(&flags(&["--unix=a"])).unwrap();
    assert!(config.tcp_listeners().is_empty());
}
