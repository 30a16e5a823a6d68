//! A listing for programs.

use serde_json::{Value, json};

use super::{Entry, Listing, iso_date};

/// An object with `path`, `entries` and `cut`: whether there are more entries. Each entry has
/// `name` (for people: bytes that are not UTF-8 are replaced), `href` (exact), `kind` (`directory`
/// or `file`), `modified` (RFC 3339) and, for a file, `size` in bytes.
pub(super) fn write(listing: &Listing) -> String {
    let entries: Vec<Value> = listing.entries.iter().map(entry).collect();
    let path = String::from_utf8_lossy(&listing.path);
    let slash = if path.is_empty() { "" } else { "/" };
    let listing = json!({
        "path": format!("/{path}{slash}"),
        "entries": entries,
        "cut": listing.is_cut,
    });
    format!("{listing}\n")
}

fn entry(entry: &Entry) -> Value {
    let name = String::from_utf8_lossy(&entry.name);
    let modified = iso_date(entry.modified);
    if entry.is_directory {
        json!({ "name": name, "href": entry.href(), "kind": "directory", "modified": modified })
    } else {
        json!({
            "name": name,
            "href": entry.href(),
            "kind": "file",
            "modified": modified,
            "size": entry.len,
        })
    }
}
