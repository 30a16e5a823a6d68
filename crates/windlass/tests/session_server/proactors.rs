//! The proactors.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use windlass::models::{EmulatedProactor, UringProactor};
use windlass::proactor::DriverChoice;
use windlass::session::Service;

use crate::harness::{Model, Options, Started, start};

const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();

/// io_uring, and nobody else.
#[derive(Debug)]
pub(crate) struct Uring;

impl Model for Uring {
    const NAME: &str = "uring_proactor";
    const BACKENDS: &[&str] = &["io_uring"];

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = UringProactor::builder(service).driver(DriverChoice::Uring);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// io_uring before workers.
#[derive(Debug)]
pub(crate) struct UringAndWorkers;

impl Model for UringAndWorkers {
    const NAME: &str = "uring_proactor_and_workers";
    const BACKENDS: &[&str] = &["io_uring"];

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = UringProactor::builder(service)
            .driver(DriverChoice::Uring)
            .workers(FOUR);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// What the model falls back to.
#[derive(Debug)]
pub(crate) struct FallenBack;

impl Model for FallenBack {
    const NAME: &str = "fallen_back_proactor";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = UringProactor::builder(service).driver(DriverChoice::Emulated);
        start(builder, listeners, options, |builder| builder.build())
    }
}

/// The simulated proactor.
#[derive(Debug)]
pub(crate) struct Emulated;

impl Model for Emulated {
    const NAME: &str = "emulated_proactor";

    fn start<V: Service>(service: Arc<V>, listeners: Vec<OwnedFd>, options: Options) -> Started {
        let builder = EmulatedProactor::builder(service).workers(FOUR);
        start(builder, listeners, options, |builder| builder.build())
    }
}
