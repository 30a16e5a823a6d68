//! The session against itself and against a model: stored inputs of the fuzzer, and mutations of
//! them, in any cut.

mod common;
#[path = "common/differential.rs"]
mod differential;
#[path = "common/model.rs"]
mod model;
#[path = "common/reader.rs"]
mod reader;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;

fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session");
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.clone(), fs::read(&path).expect("an input")))
        .collect();
    inputs.sort();
    assert!(inputs.len() > 20, "a corpus");
    inputs
}

#[test]
fn stored_inputs_are_answered_as_modelled_in_any_cut() {
    for (path, input) in corpus() {
        let checked = std::panic::catch_unwind(|| {
            differential::check(&input);
            model::check(&input[1..]);
        });
        assert!(checked.is_ok(), "{}", path.display());
    }
}

/// Something to do to an input.
#[derive(Clone, Debug)]
enum Edit {
    Delete(Index, usize),
    Insert(Index, Vec<u8>),
    Replace(Index, u8),
    /// Puts a part of another input there.
    Splice(Index, Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let bytes = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r".to_vec()),
        Just(b" ".to_vec()),
        Just(b"\0".to_vec()),
        Just(b"\r\n\r\n".to_vec()),
        Just(b"Content-Length: 5\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"Expect: 100-continue\r\n".to_vec()),
        Just(b"Connection: close\r\n".to_vec()),
        Just(b"0\r\n\r\n".to_vec()),
        "[ -~]{1,3}".prop_map(String::into_bytes),
    ];
    prop_oneof![
        (any::<Index>(), 1_usize..20).prop_map(|(at, len)| Edit::Delete(at, len)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
        any::<(Index, Index, Index)>().prop_map(|(at, from, to)| Edit::Splice(at, from, to)),
    ]
}

fn apply(input: &mut Vec<u8>, edit: Edit, other: &[u8]) {
    if input.is_empty() {
        return;
    }
    match edit {
        Edit::Delete(at, len) => {
            let at = at.index(input.len());
            input.drain(at..input.len().min(at + len));
        }
        Edit::Insert(at, bytes) => {
            let at = at.index(input.len());
            input.splice(at..at, bytes);
        }
        Edit::Replace(at, byte) => {
            let at = at.index(input.len());
            input[at] = byte;
        }
        Edit::Splice(at, from, to) => {
            let at = at.index(input.len());
            let (from, to) = (from.index(other.len()), to.index(other.len()));
            input.splice(at..at, other[from.min(to)..from.max(to)].iter().copied());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn mutated_inputs_are_answered_as_modelled_in_any_cut(
        pick: Index,
        other: Index,
        edits in proptest::collection::vec(edit(), 1..5),
    ) {
        thread_local! {
            static CORPUS: Vec<(PathBuf, Vec<u8>)> = corpus();
        }
        CORPUS.with(|corpus| {
            let mut input = pick.get(corpus).1.clone();
            let other = &other.get(corpus).1;
            for edit in edits {
                apply(&mut input, edit, other);
            }
            differential::check(&input);
            model::check(input.get(1..).unwrap_or_default());
        });
    }

    #[test]
    fn any_bytes_have_the_same_answers_in_any_cut(
        input in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        differential::check(&input);
    }
}
