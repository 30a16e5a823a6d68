//! The configuration of `windlass serve`: what a file and the flags add up to.
//!
//! Unknown keys are errors, so that a misspelt limit is not silently the default. Relative paths
//! in a file are relative to the file's directory, those in flags to the working directory.

mod print;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use clap::ValueEnum;
use ipnet::IpNet;
use serde::Deserialize;
use windlass::models::{Limits, ModelKind};

pub(super) use self::print::to_toml;
use super::args::ServeArguments;
use super::units::{
    Coding, CodingLevel, ErrorPage, FileMode, HeaderLine, Model, Size, Span, Switch, Threads,
    TimeLimit,
};

/// Where it is served if nothing says so.
pub(super) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(super) dir: PathBuf,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) unix: Vec<PathBuf>,
    pub(super) unix_mode: FileMode,
    pub(super) proxy_protocol: ProxyMode,
    pub(super) proxy_from: Vec<IpNet>,
    pub(super) model: Model,
    #[serde(alias = "loops")]
    pub(super) threads: Option<Threads>,
    pub(super) slow_handler: TimeLimit,
    pub(super) cors: Vec<String>,
    pub(super) headers: Vec<HeaderLine>,
    pub(super) files: FileConfig,
    pub(super) compression: CompressionConfig,
    pub(super) error_pages: Vec<ErrorPage>,
    pub(super) healthz: Option<String>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) tls: TlsConfig,
    pub(super) basic_auth: BasicAuthConfig,
    pub(super) access_log: AccessLogConfig,
    pub(super) stop: StopConfig,
    pub(super) limits: LimitConfig,
    pub(super) timeouts: TimeoutConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("."),
            listen: Vec::new(),
            unix: Vec::new(),
            unix_mode: FileMode(0o660),
            proxy_protocol: ProxyMode::Off,
            proxy_from: Vec::new(),
            model: Model(ModelKind::MultiLoop),
            threads: None,
            slow_handler: TimeLimit(Some(Duration::from_millis(100))),
            cors: Vec::new(),
            headers: Vec::new(),
            files: FileConfig::default(),
            compression: CompressionConfig::default(),
            error_pages: Vec::new(),
            healthz: None,
            metrics: None,
            tls: TlsConfig::default(),
            basic_auth: BasicAuthConfig::default(),
            access_log: AccessLogConfig::default(),
            stop: StopConfig::default(),
            limits: LimitConfig::default(),
            timeouts: TimeoutConfig::default(),
        }
    }
}

/// Whether the PROXY protocol is spoken before HTTP.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProxyMode {
    /// Connections come from clients.
    #[default]
    Off,
    /// Each connection begins with a PROXY header; without one it ends.
    Required,
    /// Connections from --proxy-from begin with a PROXY header, others come from clients.
    Mixed,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FileConfig {
    pub(super) index: Vec<String>,
    pub(super) listing: Switch,
    pub(super) dotfiles: Switch,
    pub(super) links: LinkMode,
    pub(super) spa: Option<String>,
    pub(super) precompressed: Switch,
    pub(super) cache_control: Option<String>,
    pub(super) cache: Size,
}

impl Default for FileConfig {
    fn default() -> Self {
        Self {
            index: vec!["index.html".into()],
            listing: Switch::Off,
            dotfiles: Switch::Off,
            links: LinkMode::Inside,
            spa: None,
            precompressed: Switch::Off,
            cache_control: None,
            cache: Size(16 << 20),
        }
    }
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LinkMode {
    /// Wherever they lead.
    Anywhere,
    /// Those that stay within the directory that is served; absolute ones do not.
    #[default]
    Inside,
    /// None.
    None,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsConfig {
    pub(super) certificates: Vec<CertificateConfig>,
    pub(super) min_version: MinVersion,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) client_auth: ClientAuth,
}

/// A certificate chain and its key, for the names in the certificate.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinVersion {
    /// 1.2 and 1.3.
    #[default]
    #[serde(rename = "1.2")]
    #[value(name = "1.2")]
    Tls12,
    /// 1.3 only.
    #[serde(rename = "1.3")]
    #[value(name = "1.3")]
    Tls13,
}

/// Whether clients must have a certificate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientAuth {
    /// They may; one that is shown must be valid.
    Optional,
    /// They must.
    #[default]
    Required,
}

impl TlsConfig {
    pub(super) fn is_on(&self) -> bool {
        !self.certificates.is_empty()
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompressionConfig {
    pub(super) enabled: Switch,
    pub(super) codings: Vec<CodingLevel>,
    pub(super) bytes_min: Size,
    pub(super) bytes_max: Size,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        let at = |coding, level| CodingLevel { coding, level };
        Self {
            enabled: Switch::Off,
            codings: vec![
                at(Coding::Brotli, 5),
                at(Coding::Zstd, 6),
                at(Coding::Gzip, 6),
            ],
            bytes_min: Size(1 << 10),
            bytes_max: Size(8 << 20),
        }
    }
}

impl CompressionConfig {
    /// The level for `coding`, if it is used.
    pub(super) fn level(&self, coding: Coding) -> Option<u32> {
        let found = self.codings.iter().find(|one| one.coding == coding);
        found.map(|one| one.level)
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BasicAuthConfig {
    pub(super) file: Option<PathBuf>,
    pub(super) realm: String,
}

impl Default for BasicAuthConfig {
    fn default() -> Self {
        Self {
            file: None,
            realm: "windlass".into(),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AccessLogConfig {
    pub(super) format: AccessLogFormat,
    pub(super) file: Option<PathBuf>,
}

/// How requests are logged.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AccessLogFormat {
    /// The combined log format: with referrer and user agent.
    Combined,
    /// The common log format.
    #[default]
    Common,
    /// A JSON object per line.
    Json,
    /// No log.
    Off,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StopConfig {
    pub(super) delay: Span,
    pub(super) deadline: Span,
    pub(super) restart_deadline: Span,
}

impl Default for StopConfig {
    fn default() -> Self {
        Self {
            delay: Span(Duration::ZERO),
            deadline: Span(Duration::from_secs(10)),
            restart_deadline: Span(Duration::from_secs(30)),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitConfig {
    pub(super) connections: NonZeroUsize,
    pub(super) head: Size,
    pub(super) header_lines: NonZeroUsize,
    pub(super) target: Size,
    pub(super) drain: Size,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::MIN.saturating_add(65_535),
            head: Size(16 << 10),
            header_lines: NonZeroUsize::MIN.saturating_add(99),
            target: Size(8 << 10),
            drain: Size(1 << 20),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TimeoutConfig {
    pub(super) header: TimeLimit,
    pub(super) idle: TimeLimit,
    pub(super) body: TimeLimit,
    pub(super) body_rate: NonZeroU32,
    pub(super) write: TimeLimit,
    pub(super) linger: Span,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        let seconds = |count| TimeLimit(Some(Duration::from_secs(count)));
        Self {
            header: seconds(30),
            idle: seconds(75),
            body: seconds(60),
            body_rate: NonZeroU32::MIN.saturating_add(4095),
            write: seconds(30),
            linger: Span(Duration::from_secs(5)),
        }
    }
}

impl Config {
    /// How much input a connection may leave unconsumed, in each layer: a head must fit.
    pub(super) fn input_bytes_max(&self) -> usize {
        let head = usize::try_from(self.limits.head.0).unwrap_or(usize::MAX);
        Limits::default().input_bytes_max.max(head)
    }

    /// Reads the file that `arguments` name, if any, and puts the flags over it.
    pub(super) fn gather(arguments: &ServeArguments) -> Result<Self, ConfigError> {
        let mut config = match &arguments.config {
            Some(path) => Self::read(path)?,
            None => Self::default(),
        };
        if !arguments.pairs_are_whole() {
            let what = "each certificate needs its key: give as many --tls-key as --tls-cert";
            return Err(ConfigError::Contradiction(what));
        }
        arguments.apply(&mut config);
        config.check()?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut config = Self::parse(&text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            line: error.line,
            message: error.message,
        })?;
        config.resolve(path.parent().unwrap_or_else(|| Path::new("")));
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, BadText> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let before = text.get(..at).unwrap_or(text);
            let key = key_at(text, at);
            let message = match key {
                Some(key) if !error.message().contains(&format!("`{key}`")) => {
                    format!("{key}: {}", error.message())
                }
                _ => error.message().to_owned(),
            };
            BadText {
                line: before.matches('\n').count() + 1,
                message,
            }
        })
    }

    /// Makes paths relative to `base`.
    fn resolve(&mut self, base: &Path) {
        let singles = [
            Some(&mut self.dir),
            self.tls.client_ca.as_mut(),
            self.basic_auth.file.as_mut(),
            self.access_log.file.as_mut(),
        ];
        let pages = self.error_pages.iter_mut().map(|page| &mut page.file);
        let certificates = self.tls.certificates.iter_mut();
        let certificates = certificates.flat_map(|pair| [&mut pair.cert, &mut pair.key]);
        for path in singles
            .into_iter()
            .flatten()
            .chain(&mut self.unix)
            .chain(pages)
            .chain(certificates)
        {
            // An absolute path stays.
            *path = base.join(&path);
        }
    }

    /// What no single value shows.
    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what| Err(ConfigError::Contradiction(what));
        if self.tls.client_ca.is_some() && !self.tls.is_on() {
            return wrong("--tls-client-ca needs a certificate of the server: give --tls-cert");
        }
        let codings = &self.compression.codings;
        let is_twice = |at: usize, one: &CodingLevel| {
            codings[..at].iter().any(|other| other.coding == one.coding)
        };
        if codings
            .iter()
            .enumerate()
            .any(|(at, one)| is_twice(at, one))
        {
            return wrong("--compress-coding names a coding twice");
        }
        if codings.is_empty() && self.compression.enabled == Switch::On {
            return wrong("--compress needs a coding: give --compress-coding");
        }
        if self.compression.bytes_min.0 > self.compression.bytes_max.0 {
            return wrong("--compress-min is beyond --compress-max");
        }
        if self
            .healthz
            .as_ref()
            .is_some_and(|path| !path.starts_with('/'))
        {
            return wrong("the path of --healthz begins with a slash");
        }
        let origin_is_fine = |origin: &String| {
            *origin == "*"
                || (origin.contains("://") && !origin.ends_with('/') && origin.is_ascii())
        };
        if !self.cors.iter().all(origin_is_fine) {
            return wrong("an origin of --cors is * or scheme://host[:port], without a path");
        }
        if self.proxy_protocol == ProxyMode::Mixed && self.proxy_from.is_empty() {
            return wrong("--proxy-protocol mixed needs the proxies' networks: give --proxy-from");
        }
        if self.proxy_protocol == ProxyMode::Off && !self.proxy_from.is_empty() {
            return wrong("--proxy-from is for --proxy-protocol required or mixed");
        }
        if self.limits.target.0 > self.limits.head.0 {
            return wrong("a target is a part of the head: --target-max is beyond --head-max");
        }
        if self.limits.head.0 > HEAD_MAX {
            return wrong("--head-max is at most 1MiB");
        }
        Ok(())
    }

    /// Where to listen for connections over TCP.
    pub(super) fn tcp_listeners(&self) -> &[SocketAddr] {
        if self.listen.is_empty() && self.unix.is_empty() {
            return &[DEFAULT_LISTEN];
        }
        &self.listen
    }
}

/// A head is kept in memory, for each connection.
const HEAD_MAX: u64 = 1 << 20;

/// The key of the line that byte `at` of `text` is in.
fn key_at(text: &str, at: usize) -> Option<&str> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let (key, _) = text[start..].lines().next()?.split_once('=')?;
    Some(key.trim())
}

struct BadText {
    line: usize,
    message: String,
}

/// A configuration that cannot be used.
#[derive(Debug)]
pub(crate) enum ConfigError {
    Contradiction(&'static str),
    Parse {
        path: PathBuf,
        line: usize,
        message: String,
    },
    Read {
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction(what) => f.write_str(what),
            Self::Parse {
                path,
                line,
                message,
            } => {
                let message = message.trim_end().replace('\n', ", ");
                write!(f, "{}:{line}: {message}", path.display())
            }
            Self::Read { path, .. } => write!(f, "read the configuration {}", path.display()),
        }
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Contradiction(_) | Self::Parse { .. } => None,
        }
    }
}
