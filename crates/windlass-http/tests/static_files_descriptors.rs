//! When descriptors run out, the open-file cache gives its own back.

mod common;
mod site;

use std::fs::File;
use std::process::Command;

use site::{Site, get};

#[test]
#[ignore = "is run by the test below, in a process with few descriptors"]
fn inner() {
    let site = Site::empty();
    for n in 0..10 {
        site.write(&format!("long{n}"), vec![b'l'; 20_000]);
    }
    let mut client = site.plain();
    for n in 0..8 {
        assert_eq!(get(&mut client, &format!("/long{n}"), "").status, 200);
    }
    // Something else takes all the others.
    let mut others: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(others.len() < 64, "the limit is not in force");
    assert_eq!(get(&mut client, "/long8", "").status, 200);
    // The cache has given back eight, of which one is taken again.
    let count_before = others.len();
    others.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    assert_eq!(others.len() - count_before, 7);
    others.clear();
    assert_eq!(get(&mut client, "/long0", "").status, 200);
}

#[test]
fn a_file_is_served_although_the_cache_has_the_last_descriptors() {
    let program = std::env::current_exe().expect("a path");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 48 && exec \"$0\" --exact inner --ignored"])
        .arg(program)
        .output()
        .expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
