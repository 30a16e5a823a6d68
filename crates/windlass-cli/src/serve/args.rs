//! The flags of `windlass serve`. A flag that is given wins over the configuration file.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;
use ipnet::IpNet;

use super::config::{
    AccessLogFormat, CertificateConfig, ClientAuth, Config, LinkMode, MinVersion, ProxyMode,
};
use super::units::{
    CodingLevel, ErrorPage, FileMode, HeaderLine, Model, Size, Span, Switch, Threads, TimeLimit,
};

/// What `windlass serve` is told. The help texts are also the comments of `--print-config`.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ServeArguments {
    /// The directory to serve, if not the working directory.
    pub(super) dir: Option<PathBuf>,

    /// Read the configuration from this TOML file; flags win over it.
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub(super) config: Option<PathBuf>,

    /// Print the configuration that flags and file add up to, as TOML, and end.
    #[arg(long, help_heading = "Configuration")]
    pub(super) print_config: bool,

    /// Check the configuration and the files that it names, and end: 0 if all is well, else 1.
    #[arg(long, help_heading = "Configuration", conflicts_with = "print_config")]
    pub(super) check: bool,

    /// Where to listen: a numeric address. Without any socket it is 127.0.0.1:8080.
    ///
    /// An IPv6 address is in square brackets; port 0 takes a free one. May be given several times.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Sockets")]
    pub(super) listen: Vec<SocketAddr>,

    /// Listen on a Unix socket at this path.
    ///
    /// One that a dead server left behind is replaced. May be given several times.
    #[arg(long, value_name = "PATH", help_heading = "Sockets")]
    pub(super) unix: Vec<PathBuf>,

    /// The permission bits of Unix sockets. Default: 0660.
    #[arg(long, value_name = "OCTAL", help_heading = "Sockets")]
    pub(super) unix_mode: Option<FileMode>,

    /// Whether connections begin with a PROXY header (version 1 or 2). Default: off.
    ///
    /// By it a load balancer tells the client's address. Whoever can connect can claim any: see
    /// --proxy-from.
    #[arg(long, value_name = "MODE", value_enum, help_heading = "Sockets")]
    pub(super) proxy_protocol: Option<ProxyMode>,

    /// Take connections with a PROXY header from this network only, as in 10.0.0.0/8. May be given
    /// several times.
    #[arg(long, value_name = "NETWORK", help_heading = "Sockets")]
    pub(super) proxy_from: Vec<IpNet>,

    /// Serve HTTPS with this certificate chain, a PEM file.
    ///
    /// May be given several times, each with its --tls-key: clients get the one for the name that
    /// they ask for, and the first if none is.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(super) tls_cert: Vec<PathBuf>,

    /// The private key of the certificate, a PEM file; of several, in the same order.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(super) tls_key: Vec<PathBuf>,

    /// The oldest version of TLS that is spoken. Default: 1.2.
    #[arg(long, value_name = "VERSION", value_enum, help_heading = "TLS")]
    pub(super) tls_min_version: Option<MinVersion>,

    /// Verify clients: their certificates must be signed by one in this PEM file.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// Whether clients must have a certificate, if they are verified. Default: required.
    #[arg(long, value_name = "WHETHER", value_enum, help_heading = "TLS")]
    pub(super) tls_client_auth: Option<ClientAuth>,

    /// The concurrency model that serves: who waits, who reads and writes, who computes. One of the
    /// names that `windlass compare` shows side by side. Default: multi-loop.
    #[arg(long, value_name = "NAME", help_heading = "Threads")]
    pub(super) model: Option<Model>,

    /// How many threads the model has, of those that it can have several of: loops, workers,
    /// followers; auto is one per core. Default: 1 for multi-loop, the model's own for others.
    ///
    /// Each loop of multi-loop is on a thread of its own, with listening sockets of its own
    /// (SO_REUSEPORT).
    #[arg(long, alias = "loops", value_name = "N", help_heading = "Threads")]
    pub(super) threads: Option<Threads>,

    /// A handler that holds up its loop for longer is reported at the end and counted. Default:
    /// 100ms.
    #[arg(long, value_name = "TIME", help_heading = "Threads")]
    pub(super) slow_handler: Option<TimeLimit>,

    /// What is sent for a directory: the first of these files that is there. May be given several
    /// times. Default: index.html.
    #[arg(long, value_name = "NAME", help_heading = "Content")]
    pub(super) index: Vec<String>,

    /// List directories that have no index file, as pages or as JSON. Default: off.
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        help_heading = "Content"
    )]
    pub(super) listing: Option<Switch>,

    /// Serve names that begin with a dot, too. Default: off.
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        help_heading = "Content"
    )]
    pub(super) dotfiles: Option<Switch>,

    /// Which symbolic links are followed. Default: inside.
    #[arg(long, value_name = "WHICH", value_enum, help_heading = "Content")]
    pub(super) links: Option<LinkMode>,

    /// Send this file of the directory for pages that are not there, as single-page applications
    /// need it.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "index.html",
        help_heading = "Content"
    )]
    pub(super) spa: Option<String>,

    /// Send NAME.br, NAME.zst or NAME.gz in place of NAME to clients that take it. Default: off.
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        help_heading = "Content"
    )]
    pub(super) precompressed: Option<Switch>,

    /// Compress answers for clients that take it; not for pages with secrets. Default: off.
    ///
    /// Where a page holds a secret beside something that others choose, its length tells of the
    /// secret, also through TLS (BREACH). With --precompressed, a sibling that is compressed already
    /// is sent first.
    #[arg(
        long,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        help_heading = "Compression"
    )]
    pub(super) compress: Option<Switch>,

    /// Compress with this coding and level. Default: br:5, zstd:6, gzip:6.
    ///
    /// Levels are 0 to 11 for br, 0 to 9 for gzip, 1 to 19 for zstd. May be given several times; the
    /// client's wish decides which is used.
    #[arg(long, value_name = "CODING:LEVEL", help_heading = "Compression")]
    pub(super) compress_coding: Vec<CodingLevel>,

    /// Send shorter answers as they are. Default: 1KiB.
    #[arg(long, value_name = "SIZE", help_heading = "Compression")]
    pub(super) compress_min: Option<Size>,

    /// Send longer answers as they are. Default: 8MiB.
    #[arg(long, value_name = "SIZE", help_heading = "Compression")]
    pub(super) compress_max: Option<Size>,

    /// The Cache-Control header of all files.
    #[arg(long, value_name = "VALUE", help_heading = "Content")]
    pub(super) cache_control: Option<String>,

    /// How much memory each loop may use for small files; 0 opens each file for each request.
    /// Default: 16MiB.
    #[arg(long, value_name = "SIZE", help_heading = "Content")]
    pub(super) file_cache: Option<Size>,

    /// Require a name and password from this htpasswd file, of bcrypt or SHA-crypt entries.
    #[arg(long, value_name = "FILE", help_heading = "Content")]
    pub(super) basic_auth: Option<PathBuf>,

    /// What browsers show beside the question for the password. Default: windlass.
    #[arg(long, value_name = "TEXT", help_heading = "Content")]
    pub(super) basic_auth_realm: Option<String>,

    /// Let pages of this origin, scheme://host or scheme://host:port, read the answers; * for all.
    /// May be given several times.
    #[arg(long, value_name = "ORIGIN", help_heading = "Content")]
    pub(super) cors: Vec<String>,

    /// Add this header to each answer. May be given several times.
    #[arg(long, value_name = "NAME: VALUE", help_heading = "Content")]
    pub(super) header: Vec<HeaderLine>,

    /// Answer errors of this status with the content of a file. May be given several times.
    #[arg(long, value_name = "STATUS=FILE", help_heading = "Content")]
    pub(super) error_page: Vec<ErrorPage>,

    /// Answer requests for this path with 200 and "ok", with 503 while stopping; they are not
    /// logged and need no password.
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/healthz",
        help_heading = "Watching"
    )]
    pub(super) healthz: Option<String>,

    /// How each request is logged. Default: common.
    #[arg(long, value_name = "FORMAT", value_enum, help_heading = "Watching")]
    pub(super) access_log: Option<AccessLogFormat>,

    /// Append the access log to this file, opened anew at SIGHUP; otherwise it goes to standard
    /// output.
    #[arg(long, value_name = "FILE", help_heading = "Watching")]
    pub(super) access_log_file: Option<PathBuf>,

    /// Serve metrics for Prometheus at this address, path /metrics.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Watching")]
    pub(super) metrics: Option<SocketAddr>,

    /// How long a graceful stop goes on serving all the same while the health check already fails,
    /// so that load balancers turn away. Default: 0s.
    #[arg(long, value_name = "TIME", help_heading = "Stopping")]
    pub(super) stop_delay: Option<Span>,

    /// How long a graceful stop waits for connections before it cuts them. Default: 10s.
    #[arg(long, value_name = "TIME", help_heading = "Stopping")]
    pub(super) stop_deadline: Option<Span>,

    /// How long a restart waits for the new program to be ready before it is given up. Default:
    /// 30s.
    #[arg(long, value_name = "TIME", help_heading = "Stopping")]
    pub(super) restart_deadline: Option<Span>,

    /// The most connections at once; fewer if the limit of descriptors leaves too little for files.
    /// Default: 65536.
    #[arg(long, value_name = "COUNT", help_heading = "Limits")]
    pub(super) connections_max: Option<NonZeroUsize>,

    /// The longest request head: request line and header lines. Default: 16KiB.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(super) head_max: Option<Size>,

    /// The most header lines of a request, up to 128. Default: 100.
    #[arg(long, value_name = "COUNT", help_heading = "Limits")]
    pub(super) header_lines_max: Option<NonZeroUsize>,

    /// The longest request target. Default: 8KiB.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(super) target_max: Option<Size>,

    /// How much of a body that nobody wants is read and dropped to keep the connection. Default:
    /// 1MiB.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(super) drain_max: Option<Size>,

    /// How long a client may take for a request head. Default: 30s.
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(super) header_timeout: Option<TimeLimit>,

    /// How long a connection may be idle between two requests. Default: 1m 15s.
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(super) idle_timeout: Option<TimeLimit>,

    /// How long a client may take for a body, beside a second more for each --body-rate bytes.
    /// Default: 1m.
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(super) body_timeout: Option<TimeLimit>,

    /// The rate in bytes per second below which a body runs into its time-out in the end. Default:
    /// 4096.
    #[arg(long, value_name = "BYTES", help_heading = "Limits")]
    pub(super) body_rate: Option<NonZeroU32>,

    /// How long a client may take nothing of an answer. Default: 30s.
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(super) write_timeout: Option<TimeLimit>,

    /// How long what a client still sends is read after the last answer, before the connection is
    /// closed. Default: 5s.
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(super) linger_timeout: Option<Span>,
}

const AFTER_HELP: &str = "\
Times are written 30s, 5m, 250ms or as a number of seconds; sizes 16KiB, 1MiB or as a number of \
bytes. Time limits may be off.

Signals:
  SIGINT, SIGTERM  Stop gracefully: no new connections, answers that are under way are finished.
                   Again: stop at once.
  SIGHUP           Read configuration, certificates, passwords and error pages again, and open the
                   access log's file anew. What does not work is reported, and the old stays.
  SIGUSR1          Write all events of all loops to standard error.
  SIGUSR2          Restart without a lost connection: start the program anew on the same sockets,
                   and stop gracefully when it is ready.

Sockets that systemd passes (LISTEN_FDS) take the place of --listen and --unix. The environment \
variable WINDLASS_BACKEND forces the method that waits for events: epoll, poll or select.

Exit status:
  0  Stopped as asked for, whether or not connections had to be cut at the deadline.
  1  Could not start or failed; standard error says why.
  2  The command line is wrong.";

impl ServeArguments {
    /// Whether each certificate has its key.
    pub(super) fn pairs_are_whole(&self) -> bool {
        self.tls_cert.len() == self.tls_key.len()
    }

    fn certificates(&self) -> Vec<CertificateConfig> {
        let pairs = self.tls_cert.iter().zip(&self.tls_key);
        pairs
            .map(|(cert, key)| CertificateConfig {
                cert: cert.clone(),
                key: key.clone(),
            })
            .collect()
    }

    /// Puts what is given in the place of what `config` has.
    pub(super) fn apply(&self, config: &mut Config) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(value) = from {
                to.clone_from(value);
            }
        }
        fn set_some<T: Clone>(to: &mut Option<T>, from: &Option<T>) {
            if from.is_some() {
                to.clone_from(from);
            }
        }
        fn set_list<T: Clone>(to: &mut Vec<T>, from: &[T]) {
            if !from.is_empty() {
                *to = from.to_vec();
            }
        }
        set(&mut config.dir, &self.dir);
        set_list(&mut config.listen, &self.listen);
        set_list(&mut config.unix, &self.unix);
        set(&mut config.unix_mode, &self.unix_mode);
        set(&mut config.proxy_protocol, &self.proxy_protocol);
        set_list(&mut config.proxy_from, &self.proxy_from);
        set_list(&mut config.tls.certificates, &self.certificates());
        set(&mut config.tls.min_version, &self.tls_min_version);
        set_some(&mut config.tls.client_ca, &self.tls_client_ca);
        set(&mut config.tls.client_auth, &self.tls_client_auth);
        set(&mut config.model, &self.model);
        set_some(&mut config.threads, &self.threads);
        set(&mut config.slow_handler, &self.slow_handler);
        set_some(&mut config.basic_auth.file, &self.basic_auth);
        set(&mut config.basic_auth.realm, &self.basic_auth_realm);
        set_list(&mut config.cors, &self.cors);
        set_list(&mut config.headers, &self.header);
        set_list(&mut config.error_pages, &self.error_page);
        set_some(&mut config.healthz, &self.healthz);
        set(&mut config.access_log.format, &self.access_log);
        set_some(&mut config.access_log.file, &self.access_log_file);
        set_some(&mut config.metrics, &self.metrics);
        set(&mut config.stop.delay, &self.stop_delay);
        set(&mut config.stop.deadline, &self.stop_deadline);
        set(&mut config.stop.restart_deadline, &self.restart_deadline);
        let files = &mut config.files;
        set_list(&mut files.index, &self.index);
        set(&mut files.listing, &self.listing);
        set(&mut files.dotfiles, &self.dotfiles);
        set(&mut files.links, &self.links);
        set_some(&mut files.spa, &self.spa);
        set(&mut files.precompressed, &self.precompressed);
        set_some(&mut files.cache_control, &self.cache_control);
        set(&mut files.cache, &self.file_cache);
        let compression = &mut config.compression;
        set(&mut compression.enabled, &self.compress);
        set_list(&mut compression.codings, &self.compress_coding);
        set(&mut compression.bytes_min, &self.compress_min);
        set(&mut compression.bytes_max, &self.compress_max);
        let limits = &mut config.limits;
        set(&mut limits.connections, &self.connections_max);
        set(&mut limits.head, &self.head_max);
        set(&mut limits.header_lines, &self.header_lines_max);
        set(&mut limits.target, &self.target_max);
        set(&mut limits.drain, &self.drain_max);
        let timeouts = &mut config.timeouts;
        set(&mut timeouts.header, &self.header_timeout);
        set(&mut timeouts.idle, &self.idle_timeout);
        set(&mut timeouts.body, &self.body_timeout);
        set(&mut timeouts.body_rate, &self.body_rate);
        set(&mut timeouts.write, &self.write_timeout);
        set(&mut timeouts.linger, &self.linger_timeout);
    }
}
