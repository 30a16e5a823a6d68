//! The choice of a back end: by what is required, by what is avoided, by force.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io;

use windlass_core::{EventDemultiplexer, Features};
use windlass_sys::uring::RingOptions;

use super::{EpollDemultiplexer, PollDemultiplexer, SelectDemultiplexer, UringDemultiplexer};

/// The environment variable that forces a back end by its name.
pub const ENVIRONMENT_VARIABLE: &str = "WINDLASS_BACKEND";

/// A method of waiting. The order is the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// epoll(7).
    Epoll,
    /// poll(2).
    Poll,
    /// select(2).
    Select,
    /// io_uring(7). Never picked, only forced.
    Uring,
}

impl Backend {
    /// All, the preferred first.
    pub const ALL: [Self; 4] = [Self::Epoll, Self::Poll, Self::Select, Self::Uring];

    /// The name, as [`EventDemultiplexer::name`] and the environment have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Poll => "poll",
            Self::Select => "select",
            Self::Uring => "io_uring",
        }
    }

    /// The back end of that name, if there is one. Letters are small.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// What it can do.
    #[must_use]
    pub const fn features(self) -> Features {
        Features {
            edge_triggered: matches!(self, Self::Epoll | Self::Uring),
            constant_time: matches!(self, Self::Epoll | Self::Uring),
            any_descriptor: true,
            early_close: matches!(self, Self::Epoll | Self::Poll | Self::Uring),
        }
    }

    pub(crate) fn open(self) -> Result<Box<dyn EventDemultiplexer + Send>, BackendError> {
        Ok(match self {
            Self::Epoll => {
                Box::new(
                    EpollDemultiplexer::new().map_err(|source| BackendError::Open {
                        backend: self,
                        source,
                    })?,
                )
            }
            Self::Poll => Box::new(PollDemultiplexer::new()),
            Self::Select => Box::new(SelectDemultiplexer::new()),
            Self::Uring => Box::new(UringDemultiplexer::new(RingOptions::default()).map_err(
                |reason| BackendError::Open {
                    backend: self,
                    source: reason.into(),
                },
            )?),
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether [`ENVIRONMENT_VARIABLE`] is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnvironmentUse {
    /// It is not, as in programs that run with privileges of their own.
    Ignore,
    /// If it is set and not empty, it forces the back end that it names.
    #[default]
    Use,
}

/// Which back end is wanted. By default the preferred one, whatever it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendConfig {
    /// What the back end must be able to do, even if it is forced.
    pub required: Features,
    /// Back ends that are not picked unless forced.
    pub avoid: Vec<Backend>,
    /// The only back end to be used; the environment, if it is used, has the last word.
    pub force: Option<Backend>,
    /// Whether the environment is asked.
    pub environment: EnvironmentUse,
}

/// Opens the back end that `config` and the environment ask for.
///
/// # Errors
///
/// [`BackendError::UnknownName`] and [`BackendError::Unfit`] if one is forced that does not exist
/// or cannot do what is required; [`BackendError::NoneFits`] if none is left to pick;
/// [`BackendError::Open`] if the system refuses, of which there is no falling back.
pub fn open(config: &BackendConfig) -> Result<Box<dyn EventDemultiplexer + Send>, BackendError> {
    pick(config)?.open()
}

/// As [`open`], but only tells which one it would be.
pub(crate) fn pick(config: &BackendConfig) -> Result<Backend, BackendError> {
    let value = match config.environment {
        EnvironmentUse::Ignore => None,
        EnvironmentUse::Use => env::var_os(ENVIRONMENT_VARIABLE),
    };
    choose(config, value.as_deref())
}

/// The back end that `config` or the environment forces, if either does.
pub(crate) fn forced(config: &BackendConfig) -> Result<Option<Backend>, BackendError> {
    let value = match config.environment {
        EnvironmentUse::Ignore => None,
        EnvironmentUse::Use => env::var_os(ENVIRONMENT_VARIABLE),
    };
    forced_by(config, value.as_deref()).map(|(backend, _)| backend)
}

fn forced_by(
    config: &BackendConfig,
    value: Option<&OsStr>,
) -> Result<(Option<Backend>, ForceOrigin), BackendError> {
    match value {
        Some(value) if !value.is_empty() => {
            let name = value.to_string_lossy();
            let backend = Backend::from_name(&name).ok_or_else(|| BackendError::UnknownName {
                name: name.into_owned(),
            })?;
            Ok((Some(backend), ForceOrigin::Environment))
        }
        _ => Ok((config.force, ForceOrigin::Configuration)),
    }
}

/// Picks; `value` is the environment's.
fn choose(config: &BackendConfig, value: Option<&OsStr>) -> Result<Backend, BackendError> {
    let (forced, origin) = forced_by(config, value)?;
    let required = config.required;
    if let Some(backend) = forced {
        return if backend.features().satisfy(required) {
            Ok(backend)
        } else {
            Err(BackendError::Unfit {
                backend,
                origin,
                required,
            })
        };
    }
    Backend::ALL
        .into_iter()
        .filter(|backend| *backend != Backend::Uring && !config.avoid.contains(backend))
        .find(|backend| backend.features().satisfy(required))
        .ok_or_else(|| BackendError::NoneFits {
            required,
            avoided: config.avoid.clone(),
        })
}

/// Who forced a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceOrigin {
    /// [`BackendConfig::force`].
    Configuration,
    /// [`ENVIRONMENT_VARIABLE`].
    Environment,
}

/// Why no back end could be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackendError {
    /// Each back end is avoided or lacks something.
    NoneFits {
        /// What was required.
        required: Features,
        /// What was avoided.
        avoided: Vec<Backend>,
    },
    /// The system did not open it.
    Open {
        /// Which one.
        backend: Backend,
        /// Why not.
        source: io::Error,
    },
    /// The one that is forced lacks what is required.
    Unfit {
        /// Which one.
        backend: Backend,
        /// By whom it is forced.
        origin: ForceOrigin,
        /// What was required.
        required: Features,
    },
    /// The environment names none that exists.
    UnknownName {
        /// The variable's value.
        name: String,
    },
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneFits { required, avoided } => {
                f.write_str("choose a back end")?;
                if *required != Features::default() {
                    write!(f, " with {}", FeatureNames(*required))?;
                }
                if !avoided.is_empty() {
                    write!(f, " other than {}", Names(avoided))?;
                }
                write!(f, " (there are {})", Names(&Backend::ALL))
            }
            Self::Open { backend, .. } => write!(f, "open the back end {backend}"),
            Self::Unfit {
                backend,
                origin,
                required,
            } => {
                match origin {
                    ForceOrigin::Configuration => write!(f, "force the back end {backend}")?,
                    ForceOrigin::Environment => write!(f, "use {ENVIRONMENT_VARIABLE}={backend}")?,
                }
                let fit: Vec<Backend> = Backend::ALL
                    .into_iter()
                    .filter(|backend| backend.features().satisfy(*required))
                    .collect();
                let missing = missing(backend.features(), *required);
                write!(
                    f,
                    ", which lacks {} (valid: {})",
                    FeatureNames(missing),
                    Names(&fit)
                )
            }
            Self::UnknownName { name } => write!(
                f,
                "use {ENVIRONMENT_VARIABLE}={name:?}, which names no back end (valid: {})",
                Names(&Backend::ALL)
            ),
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Open { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Prints names with commas.
struct Names<'a>(&'a [Backend]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, backend) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{backend}")?;
        }
        Ok(())
    }
}

/// Prints features with commas.
struct FeatureNames(Features);

impl fmt::Display for FeatureNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (is_there, name) in [
            (self.0.edge_triggered, "edge-triggered reports"),
            (self.0.constant_time, "waits in constant time"),
            (self.0.any_descriptor, "any kind of descriptor"),
            (self.0.early_close, "early-close reports"),
        ] {
            if is_there {
                write!(f, "{separator}{name}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

fn missing(features: Features, required: Features) -> Features {
    Features {
        edge_triggered: required.edge_triggered && !features.edge_triggered,
        constant_time: required.constant_time && !features.constant_time,
        any_descriptor: required.any_descriptor && !features.any_descriptor,
        early_close: required.early_close && !features.early_close,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requiring(required: Features) -> BackendConfig {
        BackendConfig {
            required,
            ..BackendConfig::default()
        }
    }

    #[test]
    fn the_preferred_one_that_fits_is_picked() {
        let mut config = BackendConfig::default();
        assert_eq!(choose(&config, None).expect("fits"), Backend::Epoll);
        config.avoid = vec![Backend::Epoll];
        assert_eq!(choose(&config, None).expect("fits"), Backend::Poll);
        config.avoid.push(Backend::Poll);
        assert_eq!(choose(&config, None).expect("fits"), Backend::Select);
        config.required.early_close = true;
        let error = choose(&config, None).expect_err("none");
        assert_eq!(
            error.to_string(),
            "choose a back end with early-close reports other than epoll, poll \
             (there are epoll, poll, select, io_uring)"
        );
    }

    #[test]
    fn force_beats_avoid_and_the_environment_beats_both() {
        let config = BackendConfig {
            avoid: vec![Backend::Select, Backend::Poll],
            force: Some(Backend::Select),
            ..BackendConfig::default()
        };
        assert_eq!(choose(&config, None).expect("fits"), Backend::Select);
        assert_eq!(
            choose(&config, Some(OsStr::new(""))).expect("fits"),
            Backend::Select
        );
        assert_eq!(
            choose(&config, Some(OsStr::new("poll"))).expect("fits"),
            Backend::Poll
        );
    }

    #[test]
    fn what_is_forced_must_be_fit() {
        let config = requiring(Features {
            edge_triggered: true,
            ..Features::default()
        });
        let error = choose(&config, Some(OsStr::new("poll"))).expect_err("unfit");
        assert_eq!(
            error.to_string(),
            "use WINDLASS_BACKEND=poll, which lacks edge-triggered reports (valid: epoll, io_uring)"
        );
        let config = BackendConfig {
            force: Some(Backend::Select),
            ..config
        };
        let error = choose(&config, None).expect_err("unfit");
        assert_eq!(
            error.to_string(),
            "force the back end select, which lacks edge-triggered reports (valid: epoll, io_uring)"
        );
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_valid_ones() {
        let error = choose(&BackendConfig::default(), Some(OsStr::new("kqueue"))).expect_err("no");
        assert_eq!(
            error.to_string(),
            "use WINDLASS_BACKEND=\"kqueue\", which names no back end \
             (valid: epoll, poll, select, io_uring)"
        );
    }

    #[test]
    fn names_and_features_are_those_of_the_back_ends() {
        for backend in Backend::ALL {
            let opened = match backend.open() {
                Ok(opened) => opened,
                // Some systems forbid it.
                Err(error) if backend == Backend::Uring => {
                    println!("skipped: {error}");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            assert_eq!(opened.name(), backend.name());
            assert_eq!(opened.features(), backend.features());
            assert_eq!(Backend::from_name(backend.name()), Some(backend));
        }
    }
}
