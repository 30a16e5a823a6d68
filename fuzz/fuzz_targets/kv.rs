//! The session of the key-value store against itself, in different cuts: first byte is the choice of
//! cuts, the rest is what a client sends.

#![no_main]

#[path = "../../crates/windlass-kv/tests/common/cuts.rs"]
mod cuts;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| cuts::check(data));
