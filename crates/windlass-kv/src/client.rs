//! Client: what a connection told about itself.

use crate::command::{COMMANDS, Command};
use crate::reply::Version;

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// Counted from 1, for the whole server.
    pub(crate) id: u64,
    pub(crate) name: Option<Box<[u8]>>,
    pub(crate) version: Version,
    /// What it asked for last.
    pub(crate) last: &'static Command,
    /// Whether the connection ends with the answers so far.
    pub(crate) quits: bool,
}

impl Client {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            name: None,
            version: Version::default(),
            last: &COMMANDS[0],
            quits: false,
        }
    }

    /// Sets its name, or none if it is empty; answers whether it is one.
    pub(crate) fn set_name(&mut self, name: &[u8]) -> bool {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            return false;
        }
        self.name = (!name.is_empty()).then(|| name.into());
        true
    }
}
