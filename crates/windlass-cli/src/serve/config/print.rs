//! The configuration as TOML, with the help texts of the flags as comments.

use std::fmt::{Display, Write};
use std::path::Path;

use clap::{Args, Command, ValueEnum};

use super::{CertificateConfig, Config, DEFAULT_LISTEN};
use crate::serve::args::ServeArguments;
use crate::serve::units::Threads;

/// Prints `config` so that reading it gives the same. Keys that are not set are commented out.
pub(crate) fn to_toml(config: &Config) -> String {
    let mut page = Page::new();
    page.set("dir", "dir", path(&config.dir));
    page.list("listen", "listen", &config.listen, &DEFAULT_LISTEN);
    let unix = config.unix.iter().map(|path| path.display());
    page.list("unix", "unix", unix, &"/run/windlass/http.sock");
    page.set("unix_mode", "unix_mode", quote(config.unix_mode));
    page.set(
        "proxy_protocol",
        "proxy_protocol",
        variant(config.proxy_protocol),
    );
    page.list(
        "proxy_from",
        "proxy_from",
        &config.proxy_from,
        &"10.0.0.0/8",
    );
    page.set("model", "model", quote(config.model));
    let threads = config.threads.map(|threads| match threads {
        Threads::Auto => quote("auto"),
        Threads::Count(count) => count.to_string(),
    });
    page.option("threads", "threads", threads, "auto");
    page.set("slow_handler", "slow_handler", quote(config.slow_handler));
    page.list("cors", "cors", &config.cors, &"https://example.org");
    page.list(
        "headers",
        "header",
        &config.headers,
        &"X-Content-Type-Options: nosniff",
    );
    page.list(
        "error_pages",
        "error_page",
        &config.error_pages,
        &"404=404.html",
    );
    page.option(
        "healthz",
        "healthz",
        config.healthz.as_ref().map(quote),
        "/healthz",
    );
    page.option(
        "metrics",
        "metrics",
        config.metrics.map(quote),
        "127.0.0.1:9100",
    );

    page.section("files");
    let files = &config.files;
    page.list("index", "index", &files.index, &"index.html");
    page.set("listing", "listing", files.listing);
    page.set("dotfiles", "dotfiles", files.dotfiles);
    page.set("links", "links", variant(files.links));
    page.option("spa", "spa", files.spa.as_ref().map(quote), "index.html");
    page.set("precompressed", "precompressed", files.precompressed);
    let cache_control = files.cache_control.as_ref().map(quote);
    page.option(
        "cache_control",
        "cache_control",
        cache_control,
        "max-age=3600",
    );
    page.set("cache", "file_cache", quote(files.cache));

    page.section("compression");
    let compression = &config.compression;
    page.set("enabled", "compress", compression.enabled);
    page.list("codings", "compress_coding", &compression.codings, &"br:5");
    page.set("bytes_min", "compress_min", quote(compression.bytes_min));
    page.set("bytes_max", "compress_max", quote(compression.bytes_max));

    page.section("tls");
    let paths = |path: &Option<_>| path.as_deref().map(self::path);
    let tls = &config.tls;
    page.certificates(&tls.certificates);
    page.set("min_version", "tls_min_version", variant(tls.min_version));
    page.option(
        "client_ca",
        "tls_client_ca",
        paths(&tls.client_ca),
        "clients.pem",
    );
    page.set("client_auth", "tls_client_auth", variant(tls.client_auth));

    page.section("basic_auth");
    page.option(
        "file",
        "basic_auth",
        paths(&config.basic_auth.file),
        "htpasswd",
    );
    page.set("realm", "basic_auth_realm", quote(&config.basic_auth.realm));

    page.section("access_log");
    page.set("format", "access_log", variant(config.access_log.format));
    let file = paths(&config.access_log.file);
    page.option(
        "file",
        "access_log_file",
        file,
        "/var/log/windlass/access.log",
    );

    page.section("stop");
    page.set("delay", "stop_delay", quote(config.stop.delay));
    page.set("deadline", "stop_deadline", quote(config.stop.deadline));
    page.set(
        "restart_deadline",
        "restart_deadline",
        quote(config.stop.restart_deadline),
    );

    page.section("limits");
    let limits = &config.limits;
    page.set("connections", "connections_max", limits.connections);
    page.set("head", "head_max", quote(limits.head));
    page.set("header_lines", "header_lines_max", limits.header_lines);
    page.set("target", "target_max", quote(limits.target));
    page.set("drain", "drain_max", quote(limits.drain));

    page.section("timeouts");
    let timeouts = &config.timeouts;
    page.set("header", "header_timeout", quote(timeouts.header));
    page.set("idle", "idle_timeout", quote(timeouts.idle));
    page.set("body", "body_timeout", quote(timeouts.body));
    page.set("body_rate", "body_rate", timeouts.body_rate);
    page.set("write", "write_timeout", quote(timeouts.write));
    page.set("linger", "linger_timeout", quote(timeouts.linger));
    page.text
}

struct Page {
    text: String,
    flags: Command,
}

/// Comments are broken here.
const WIDTH: usize = 96;

impl Page {
    fn new() -> Self {
        Self {
            text: String::new(),
            flags: ServeArguments::augment_args(Command::new("serve")),
        }
    }

    fn section(&mut self, name: &str) {
        self.line(format_args!("\n[{name}]"));
    }

    fn set(&mut self, key: &str, flag: &str, value: impl Display) {
        self.comment(flag);
        self.line(format_args!("{key} = {value}"));
    }

    fn option(&mut self, key: &str, flag: &str, value: Option<String>, example: &str) {
        match value {
            Some(value) => self.set(key, flag, value),
            None => {
                self.comment(flag);
                self.line(format_args!("# {key} = {}", quote(example)));
            }
        }
    }

    fn list<T: Display>(
        &mut self,
        key: &str,
        flag: &str,
        values: impl IntoIterator<Item = T>,
        example: &dyn Display,
    ) {
        let values: Vec<String> = values.into_iter().map(quote).collect();
        if values.is_empty() {
            self.comment(flag);
            self.line(format_args!("# {key} = [{}]", quote(example)));
        } else {
            self.set(key, flag, format_args!("[{}]", values.join(", ")));
        }
    }

    /// Pairs, each an inline table.
    fn certificates(&mut self, pairs: &[CertificateConfig]) {
        self.comment("tls_cert");
        if pairs.is_empty() {
            self.line(format_args!(
                "# certificates = [{{ cert = \"cert.pem\", key = \"key.pem\" }}]"
            ));
            return;
        }
        let pairs = pairs.iter().map(|pair| {
            let (cert, key) = (path(&pair.cert), path(&pair.key));
            format!("{{ cert = {cert}, key = {key} }}")
        });
        let pairs: Vec<_> = pairs.collect();
        self.line(format_args!("certificates = [{}]", pairs.join(", ")));
    }

    /// The flag's help, and the choices that it has.
    fn comment(&mut self, flag: &str) {
        let mut found = self.flags.get_arguments();
        let argument = found
            .find(|argument| argument.get_id() == flag)
            .expect("each key has its flag");
        let mut help = argument
            .get_long_help()
            .or_else(|| argument.get_help())
            .map_or_else(String::new, ToString::to_string);
        if !help.ends_with('.') {
            help.push('.');
        }
        let choices = argument.get_possible_values();
        if !choices.is_empty() {
            let names: Vec<_> = choices.iter().map(|choice| choice.get_name()).collect();
            help.push_str(&format!(" One of {}.", names.join(", ")));
        }
        let mut line = String::from("#");
        for word in help.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                let full = std::mem::replace(&mut line, String::from("#"));
                self.text.push_str(&full);
                self.text.push('\n');
            }
            line.push(' ');
            line.push_str(word);
        }
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{text}").expect("writing to a String does not fail");
    }
}

/// A TOML string.
fn quote(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

fn path(path: &Path) -> String {
    quote(path.display())
}

/// The name of a choice.
fn variant(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    quote(value.expect("no choice is hidden").get_name())
}
