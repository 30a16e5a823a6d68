//! The table of conformance names tests that exist.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// The names of all functions in the Rust files of `folder` and below.
fn functions(folder: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            names.extend(text.lines().filter_map(|line| {
                let (name, _) = line.trim_start().strip_prefix("fn ")?.split_once('(')?;
                Some(name.to_owned())
            }));
        }
    }
}

#[test]
fn each_test_that_the_conformance_table_names_exists() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = HashSet::new();
    functions(&package.join("src"), &mut names);
    functions(&package.join("tests"), &mut names);
    let table = package.join("../../docs/http-conformance.md");
    let table = fs::read_to_string(table).expect("the table");
    let is_name = |word: &str| word.contains('_') && !word.contains(['/', ' ', '-', '=']);
    let named: Vec<_> = table
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| is_name(word))
        .collect();
    assert!(named.len() > 60, "only {} names were found", named.len());
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !names.contains(**name))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
