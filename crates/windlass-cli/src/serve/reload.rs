//! Reload: what SIGHUP does.
//!
//! Everything is read and checked before anything changes. The loops take the new service one after
//! the other; connections that are open go on with it.

use std::error::Error;
use std::sync::{Arc, Mutex};

use windlass::models::Limits;
use windlass_sys::clock;

use super::config::{AccessLogFormat, Config, ProxyMode};
use super::control::{Control, tell_manager};
use super::limits;
use super::log_sink::{LogSink, Target, redirect};
use super::site::{Served, Surroundings};
use crate::{chain, say};

impl<V: Served> Control<V> {
    /// Reads the configuration and all files that it names again, and opens the log's file anew.
    pub(super) fn reload(&mut self) {
        let now_us = clock::monotonic_ns() / 1000;
        tell_manager(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
        match self.read_again() {
            Ok((config, around, service)) => {
                self.reopen_log(Target::of(config.access_log.file.as_deref()));
                self.replace(service, limits(&config));
                self.around = around;
                say(format_args!("reloaded"));
                for key in needs_restart(&self.config, &config) {
                    say(format_args!(
                        "{key} has changed, which takes a restart (SIGUSR2)"
                    ));
                }
                self.config = config;
            }
            Err(error) => {
                // The log is rotated all the same.
                self.reopen_log(Target::of(self.config.access_log.file.as_deref()));
                say(format_args!(
                    "reload: {}: all stays as it was",
                    chain(&*error)
                ));
            }
        }
        tell_manager("READY=1");
    }

    /// Reads everything that a reload changes.
    fn read_again(&self) -> Result<(Config, Surroundings, V), Box<dyn Error>> {
        let config = Config::gather(&self.arguments)?;
        check_form(&self.config, &config)?;
        let around = self.surroundings(&config);
        let service = self.service.renewed(&config, &around)?;
        Ok((config, around, service))
    }

    /// The log's sink for `config`, which may be the first that there is.
    fn surroundings(&self, config: &Config) -> Surroundings {
        let mut around = self.around.clone();
        if around.log.is_none() && config.access_log.format != AccessLogFormat::Off {
            match LogSink::open(&Target::of(config.access_log.file.as_deref())) {
                Ok(sink) => around.log = Some(Arc::new(Mutex::new(sink))),
                Err(error) => say(format_args!("open the access log: {error}: there is none")),
            }
        }
        around
    }

    fn reopen_log(&self, target: Target) {
        let Some(log) = &self.around.log else { return };
        if let Err(error) = redirect(log, &target) {
            say(format_args!(
                "open the access log anew: {error}: the old file stays"
            ));
        }
    }

    /// Has all loops serve with `service` under `limits`. Counts go on.
    fn replace(&mut self, service: V, limits: Limits) {
        let service = Arc::new(service);
        self.service = Arc::clone(&service);
        for handle in &self.loops.handles {
            let service = Arc::clone(&service);
            // It is gone if the server stops.
            let _ = handle.post(move |thread| {
                let counts: Vec<_> = V::http(thread.local()).answers().collect();
                thread.replace_service(service);
                thread.set_limits(limits);
                V::http_mut(thread.local()).add_answers(counts);
            });
        }
    }
}

/// What lies around HTTP can't be put on or taken off while connections are open.
fn check_form(old: &Config, new: &Config) -> Result<(), Box<dyn Error>> {
    if old.tls.is_on() != new.tls.is_on() {
        return Err("to begin or end with TLS takes a restart (SIGUSR2)".into());
    }
    let has_proxy = |config: &Config| config.proxy_protocol != ProxyMode::Off;
    if has_proxy(old) != has_proxy(new) {
        return Err("to begin or end with PROXY headers takes a restart (SIGUSR2)".into());
    }
    Ok(())
}

/// The keys that differ and that a reload does not touch.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let differs = [
        ("listen", old.listen != new.listen),
        ("unix", old.unix != new.unix),
        ("unix_mode", old.unix_mode != new.unix_mode),
        ("model", old.model != new.model),
        ("threads", old.threads != new.threads),
        ("slow_handler", old.slow_handler != new.slow_handler),
        ("metrics", old.metrics != new.metrics),
    ];
    let changed = differs.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(key, _)| key).collect()
}
