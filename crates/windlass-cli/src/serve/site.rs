//! What is served: the handler and its filters, and the settings of its HTTP service, made from the
//! configuration. All files that it names are read here, at the start and at each reload.

use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use windlass::files::Links;
use windlass::session::{OtherPeers, ProxyPolicy, ProxyProtocol, ProxyReport, Service};
use windlass_http::middleware::{
    BasicAuth, Cors, Filtered, FixedHeaders, Health, HealthState, Users,
};
use windlass_http::{
    AccessLog, Compression, Dotfiles, ErrorPages, FileCache, HttpConfig, HttpLocal, HttpService,
    Listing, LogFormat, Precompressed, StaticFiles, Status, UserNames,
};
use windlass_tls::{ClientCertificates, TlsConfig, TlsReport, TlsService, TlsVersions};

use super::config::{AccessLogFormat, ClientAuth, Config, LinkMode, MinVersion, ProxyMode};
use super::log_sink::SharedLog;
use super::units::{Coding, Switch};

/// The files, behind all that looks at a request before.
pub(super) type Site = Filtered<Filters, StaticFiles>;

/// Headers come first, to be on all answers; a health check and a browser's question before a
/// cross-origin request need no password.
type Filters = (
    FixedHeaders,
    Option<Health>,
    Option<Cors>,
    Option<BasicAuth>,
);

/// What the site shares with the rest of the program.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) health: HealthState,
    pub(super) log: Option<SharedLog>,
}

/// The service in each form that is served.
pub(super) trait Served: Service {
    /// Makes it from the configuration.
    fn make(config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>>
    where
        Self: Sized;
    /// Makes it anew from the configuration, to take the place of this one: what is shared by all
    /// connections of the program's life, such as counts and the secret of TLS session tickets, goes
    /// on. Nothing changes if it fails.
    fn renewed(&self, config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>>
    where
        Self: Sized;
    /// The part of one loop that counts answers.
    fn http(local: &Self::Local) -> &HttpLocal<Site>;
    /// As [`http`](Self::http).
    fn http_mut(local: &mut Self::Local) -> &mut HttpLocal<Site>;
    /// What TLS has done, if there is any.
    fn tls_report(&self) -> Option<TlsReport> {
        None
    }
    /// What became of PROXY headers, if there are any.
    fn proxy_report(&self) -> Option<ProxyReport> {
        None
    }
}

impl Served for HttpService<Site> {
    fn make(config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        Ok(Self::new(
            site(config, around)?,
            http_config(config, around)?,
        ))
    }

    fn renewed(&self, config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        Self::make(config, around)
    }

    fn http(local: &Self::Local) -> &HttpLocal<Site> {
        local
    }

    fn http_mut(local: &mut Self::Local) -> &mut HttpLocal<Site> {
        local
    }
}

impl Served for TlsService<HttpService<Site>> {
    fn make(config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        let inner = HttpService::make(config, around)?;
        Ok(Self::new(inner, tls_config(config)?)?)
    }

    fn renewed(&self, config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        let inner = self.inner().renewed(config, around)?;
        // Last: it is in force at once.
        self.handle().replace(tls_config(config)?)?;
        Ok(self.with_inner(inner))
    }

    fn http(local: &Self::Local) -> &HttpLocal<Site> {
        local.inner()
    }

    fn http_mut(local: &mut Self::Local) -> &mut HttpLocal<Site> {
        local.inner_mut()
    }

    fn tls_report(&self) -> Option<TlsReport> {
        Some(self.handle().report())
    }
}

impl<V: Served> Served for ProxyProtocol<V> {
    fn make(config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        Ok(Self::new(V::make(config, around)?, proxy_policy(config)))
    }

    fn renewed(&self, config: &Config, around: &Surroundings) -> Result<Self, Box<dyn Error>> {
        let inner = self.inner().renewed(config, around)?;
        Ok(self.successor(inner, proxy_policy(config)))
    }

    fn http(local: &Self::Local) -> &HttpLocal<Site> {
        V::http(local.inner())
    }

    fn http_mut(local: &mut Self::Local) -> &mut HttpLocal<Site> {
        V::http_mut(local.inner_mut())
    }

    fn tls_report(&self) -> Option<TlsReport> {
        self.inner().tls_report()
    }

    fn proxy_report(&self) -> Option<ProxyReport> {
        Some(self.report())
    }
}

fn tls_config(config: &Config) -> Result<TlsConfig, Box<dyn Error>> {
    let mut pairs = config.tls.certificates.iter();
    let Some(first) = pairs.next() else {
        return Err("without a certificate there is no TLS: give --tls-cert".into());
    };
    let mut tls = TlsConfig::from_pem_files(&first.cert, &first.key)?
        .input_bytes_max(config.input_bytes_max());
    for pair in pairs {
        tls = tls.add(&pair.cert, &pair.key)?;
    }
    if let Some(roots) = &config.tls.client_ca {
        let demand = match config.tls.client_auth {
            ClientAuth::Optional => ClientCertificates::Optional,
            ClientAuth::Required => ClientCertificates::Required,
        };
        tls = tls.client_certificates(roots, demand)?;
    }
    Ok(tls.versions(match config.tls.min_version {
        MinVersion::Tls12 => TlsVersions::Tls12AndTls13,
        MinVersion::Tls13 => TlsVersions::Tls13,
    }))
}

fn proxy_policy(config: &Config) -> ProxyPolicy {
    let networks = config.proxy_from.clone();
    let others = match config.proxy_protocol {
        ProxyMode::Mixed => OtherPeers::Direct,
        ProxyMode::Off | ProxyMode::Required => OtherPeers::Refused,
    };
    if networks.is_empty() {
        ProxyPolicy::Required
    } else {
        ProxyPolicy::RequiredFrom { networks, others }
    }
}

fn site(config: &Config, around: &Surroundings) -> Result<Site, Box<dyn Error>> {
    let files = static_files(config)?;
    let mut headers = FixedHeaders::default();
    for header in &config.headers {
        headers.add(&header.name, &header.value)?;
    }
    let health = config.healthz.as_ref();
    let health = health.map(|path| Health::new(path, around.health.clone()));
    let cors = match &config.cors[..] {
        [] => None,
        origins => Some(Cors::new(origins)?),
    };
    let auth = match &config.basic_auth.file {
        Some(file) => Some(BasicAuth::new(users(file)?, &config.basic_auth.realm)?),
        None => None,
    };
    Ok(Filtered::new((headers, health, cors, auth), files))
}

fn static_files(config: &Config) -> Result<StaticFiles, Box<dyn Error>> {
    let files = StaticFiles::new(&config.dir).map_err(|error| {
        let tried = format!("serve {}", config.dir.display());
        explain(&error, &tried, "there is no such directory")
    })?;
    let chosen = &config.files;
    let mut cache = FileCache::default();
    cache.bytes_max = usize::try_from(chosen.cache.0).unwrap_or(usize::MAX);
    if cache.bytes_max == 0 {
        cache = FileCache::OFF;
    }
    let mut files = files
        .links(match chosen.links {
            LinkMode::Anywhere => Links::Anywhere,
            LinkMode::Inside => Links::WithinRoot,
            LinkMode::None => Links::Refuse,
        })
        .listing(match chosen.listing {
            Switch::On => Listing::On,
            Switch::Off => Listing::Off,
        })
        .dotfiles(match chosen.dotfiles {
            Switch::On => Dotfiles::Serve,
            Switch::Off => Dotfiles::Hide,
        })
        .precompressed(match chosen.precompressed {
            Switch::On => Precompressed::Siblings,
            Switch::Off => Precompressed::Off,
        })
        .cache(cache)
        .index(&chosen.index)?;
    if let Some(page) = &chosen.spa {
        files = files.spa(page)?;
    }
    if let Some(value) = &chosen.cache_control {
        files = files.cache_control(value)?;
    }
    Ok(files)
}

/// A restart under load meets connections that were accepted just now.
const FIRST_REQUEST_AT_STOP: Duration = Duration::from_millis(500);

fn http_config(config: &Config, around: &Surroundings) -> Result<HttpConfig, Box<dyn Error>> {
    let mut http = HttpConfig::default();
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    http.limits.head_bytes = bytes(config.limits.head.0);
    http.limits.header_count = config.limits.header_lines.get();
    http.limits.target_bytes = bytes(config.limits.target.0);
    http.limits.drain_bytes = config.limits.drain.0;
    http.timeouts.header = config.timeouts.header.0;
    http.timeouts.idle = config.timeouts.idle.0;
    http.timeouts.body = config.timeouts.body.0;
    http.timeouts.body_bytes_per_second = config.timeouts.body_rate.get();
    http.timeouts.first_request_at_stop = FIRST_REQUEST_AT_STOP;
    http.error_pages = error_pages(config)?;
    http.compression = compression(config);
    let format = match config.access_log.format {
        AccessLogFormat::Combined => Some(LogFormat::Combined),
        AccessLogFormat::Common => Some(LogFormat::Common),
        AccessLogFormat::Json => Some(LogFormat::Json),
        AccessLogFormat::Off => None,
    };
    if let (Some(format), Some(sink)) = (format, &around.log) {
        let names = match config.basic_auth.file {
            Some(_) => UserNames::Basic,
            None => UserNames::None,
        };
        http.access_log = Some(AccessLog::new(sink.clone() as _, format).user_names(names));
    }
    Ok(http)
}

fn compression(config: &Config) -> Option<Compression> {
    let chosen = &config.compression;
    if chosen.enabled == Switch::Off {
        return None;
    }
    let mut compression = Compression::default();
    compression.brotli = chosen.level(Coding::Brotli);
    compression.gzip = chosen.level(Coding::Gzip);
    compression.zstd = chosen.level(Coding::Zstd);
    compression.bytes_min = chosen.bytes_min.0;
    compression.bytes_max = chosen.bytes_max.0;
    Some(compression)
}

/// A page is kept in memory.
const ERROR_PAGE_BYTES_MAX: u64 = 1 << 20;

fn error_pages(config: &Config) -> Result<ErrorPages, Box<dyn Error>> {
    let mut pages = ErrorPages::default();
    for page in &config.error_pages {
        let file = page.file.display();
        let tried = format!("read the page for {} from {file}", page.status);
        let read = fs::metadata(&page.file).and_then(|found| match found.len() {
            0..=ERROR_PAGE_BYTES_MAX => fs::read(&page.file),
            _ => Err(ErrorKind::FileTooLarge.into()),
        });
        let content = read.map_err(|error| explain(&error, &tried, "there is no such file"))?;
        let name = mime_guess::from_path(&page.file).first_raw();
        let name = name.unwrap_or("text/html");
        let charset = if name.starts_with("text/") {
            "; charset=utf-8"
        } else {
            ""
        };
        let status = Status::new(page.status).ok_or("a page's status is 400 to 599")?;
        pages.set(status, &format!("{name}{charset}"), content)?;
    }
    Ok(pages)
}

fn users(file: &Path) -> Result<Users, Box<dyn Error>> {
    let tried = format!("read the passwords in {}", file.display());
    let hint = "there is no such file; make one with htpasswd -cB FILE NAME";
    let text = fs::read_to_string(file).map_err(|error| explain(&error, &tried, hint))?;
    Users::parse(&text).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// An error that says what was tried, and what to do about it where that is known.
fn explain(error: &io::Error, tried: &str, missing: &str) -> Box<dyn Error> {
    let hint = match error.kind() {
        ErrorKind::NotFound => missing,
        ErrorKind::NotADirectory => "it is not a directory",
        ErrorKind::IsADirectory => "it is a directory",
        ErrorKind::PermissionDenied => "it may not be read by this user",
        ErrorKind::FileTooLarge => "it is larger than 1 MiB",
        ErrorKind::InvalidData => "it is not text",
        _ => return format!("{tried}: {error}").into(),
    };
    format!("{tried}: {hint}").into()
}
