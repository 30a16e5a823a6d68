//! The HTTP session against a model: which requests, with which bodies, a client's bytes are.

#![no_main]

#[path = "../../crates/windlass-http/tests/common/mod.rs"]
mod common;
#[path = "../../crates/windlass-http/tests/common/model.rs"]
mod model;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| model::check(data));
