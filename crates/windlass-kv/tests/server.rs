//! The store behind sockets: beside Redis itself, driven by Redis' programs, on every model.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]

#[path = "server/client.rs"]
mod client;
#[path = "../../windlass-http/tests/common/counting.rs"]
mod counting;
#[path = "server/cuts.rs"]
mod cuts;
#[path = "server/differential.rs"]
mod differential;
#[path = "server/expiry.rs"]
mod expiry;
#[path = "server/models.rs"]
mod models;
#[path = "server/no_allocation.rs"]
mod no_allocation;
#[path = "server/programs.rs"]
mod programs;
#[path = "server/servers.rs"]
mod servers;
#[path = "server/session.rs"]
mod session;
#[path = "common/cuts.rs"]
mod session_cuts;
