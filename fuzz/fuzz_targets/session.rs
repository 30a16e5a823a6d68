//! The whole HTTP session against itself, in different cuts: first byte is the choice of cuts, the
//! rest is what a client sends.

#![no_main]

#[path = "../../crates/windlass-http/tests/common/mod.rs"]
mod common;
#[path = "../../crates/windlass-http/tests/common/differential.rs"]
mod differential;
#[path = "../../crates/windlass-http/tests/common/reader.rs"]
mod reader;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| differential::check(data));
