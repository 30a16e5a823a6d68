//! Directories without an index, listed.

mod common;
mod site;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::Value;
use site::{Client, Site, get, head, set_modified};
use windlass_http::{Dotfiles, Listing};

fn listed(site: &Site) -> Client {
    site.client(site.files().listing(Listing::On))
}

fn json(client: &mut Client, target: &str) -> Value {
    let answer = get(client, target, "Accept: application/json\r\n");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn names(listing: &Value) -> Vec<&str> {
    let entries = listing["entries"].as_array().expect("an array");
    entries
        .iter()
        .map(|entry| entry["name"].as_str().expect("a name"))
        .collect()
}

/// The targets of all links of a page.
fn hrefs(page: &str) -> Vec<&str> {
    let mut parts = page.split("href=\"");
    parts.next();
    parts
        .map(|part| part.split('"').next().expect("an end"))
        .collect()
}

#[test]
fn what_would_be_served_is_listed_and_nothing_else() {
    let site = Site::empty();
    let root = site.root();
    site.write("b.txt", "0123456789");
    site.write("sub/x", "");
    site.write(".hidden", "");
    site.write(".well-known/x", "");
    site.write("back\\slash", "");
    fs::write(site.dir.join("secret"), "SECRET").expect("write");
    symlink("b.txt", root.join("inside")).expect("link");
    symlink("../secret", root.join("outside")).expect("link");
    symlink("nowhere", root.join("dangling")).expect("link");
    symlink("sub", root.join("linked-sub")).expect("link");
    let made = std::process::Command::new("mkfifo")
        .arg(root.join("pipe"))
        .status();
    assert!(made.expect("mkfifo runs").success());
    let listing = json(&mut listed(&site), "/");
    let expected = [".well-known", "linked-sub", "sub", "b.txt", "inside"];
    assert_eq!(names(&listing), expected);
    assert_eq!(
        (&listing["path"], &listing["cut"]),
        (&"/".into(), &false.into())
    );
    let entries = &listing["entries"];
    assert_eq!(entries[2]["href"], "sub/");
    assert_eq!(entries[2]["kind"], "directory");
    assert_eq!(entries[3]["size"], 10);
    assert_eq!(entries[4]["size"], 10);

    let files = site.files().listing(Listing::On).dotfiles(Dotfiles::Serve);
    let all = json(&mut site.client(files), "/");
    assert!(names(&all).contains(&".hidden"));
    let files = site
        .files()
        .listing(Listing::On)
        .links(windlass::files::Links::Refuse);
    let unlinked = json(&mut site.client(files), "/");
    assert_eq!(names(&unlinked), [".well-known", "sub", "b.txt"]);
    let files = site
        .files()
        .listing(Listing::On)
        .links(windlass::files::Links::Anywhere);
    let linked = json(&mut site.client(files), "/");
    assert!(names(&linked).contains(&"outside"));
}

#[test]
fn every_name_is_escaped_and_its_link_leads_to_the_file() {
    let site = Site::empty();
    let odd: [&[u8]; 8] = [
        b"<script>alert(1)</script>".split_at(8).0,
        b"a&b\"c'd",
        b"100%.txt",
        b"new\nline",
        b"not \xff utf8",
        b"javascript:alert(1)",
        b"q?x#y;z",
        "ä ü".as_bytes(),
    ];
    for (n, name) in odd.iter().enumerate() {
        let path = site.root().join("d").join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().expect("a parent")).expect("create");
        fs::write(path, n.to_string()).expect("write");
    }
    let mut client = listed(&site);
    let answer = get(&mut client, "/d/", "");
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    let page = String::from_utf8(answer.body).expect("UTF-8");
    assert!(!page.contains("<script") && !page.contains("c'd") && !page.contains("new\nline"));
    assert!(page.contains("&lt;script&gt;") && page.contains("a&amp;b&quot;c&#39;d"));
    let mut contents = Vec::new();
    for href in hrefs(&page)
        .iter()
        .filter(|href| !href.contains('/') && !href.starts_with('?'))
    {
        let answer = get(&mut client, &format!("/d/{href}"), "");
        assert_eq!(answer.status, 200, "{href}");
        contents.push(String::from_utf8(answer.body).expect("a number"));
    }
    contents.sort();
    assert_eq!(contents.concat(), "01234567");
    let listing = json(&mut client, "/d/");
    assert_eq!(names(&listing).len(), odd.len());
    for entry in listing["entries"].as_array().expect("an array") {
        let href = entry["href"].as_str().expect("a link");
        assert_eq!(
            get(&mut client, &format!("/d/{href}"), "").status,
            200,
            "{href}"
        );
    }
}

#[test]
fn a_directory_whose_own_name_is_odd_cannot_break_the_page() {
    let site = Site::empty();
    site.write("<b>&\"/x", "");
    let answer = get(&mut listed(&site), "/%3Cb%3E%26%22/", "");
    let page = String::from_utf8(answer.body).expect("UTF-8");
    assert!(
        page.contains("<title>/&lt;b&gt;&amp;&quot;/</title>"),
        "{page}"
    );
    assert!(!page.contains("<b>"));
}

#[test]
fn columns_are_sorted_by_links() {
    let site = Site::empty();
    for (name, len, secs) in [("b", 10, 3000), ("a", 30, 2000), ("c", 20, 1000)] {
        set_modified(&site.write(name, vec![b'x'; len]), secs, 0);
    }
    let mut client = listed(&site);
    for (query, expected) in [
        ("", ["a", "b", "c"]),
        ("?sort=name&order=desc", ["c", "b", "a"]),
        ("?sort=size", ["b", "c", "a"]),
        ("?sort=size&order=desc", ["a", "c", "b"]),
        ("?sort=modified&order=asc", ["c", "a", "b"]),
        ("?sort=%22%3E%3Cscript%3E", ["a", "b", "c"]),
    ] {
        assert_eq!(
            names(&json(&mut client, &format!("/{query}"))),
            expected,
            "{query}"
        );
        let page = get(&mut client, &format!("/{query}"), "").body;
        let page = String::from_utf8(page).expect("UTF-8");
        assert!(!page.contains("script"));
        let links = hrefs(&page)
            .into_iter()
            .filter(|href| expected.contains(href));
        assert!(links.eq(expected), "{query}");
    }
    let page = String::from_utf8(get(&mut client, "/?sort=size", "").body).expect("UTF-8");
    assert!(page.contains("aria-sort=\"ascending\"><a href=\"?sort=size&amp;order=desc\">"));
    assert!(page.contains("aria-sort=\"none\"><a href=\"?sort=name&amp;order=asc\">"));
}

#[test]
fn the_form_is_the_one_accepted_best() {
    let site = Site::empty();
    let mut client = listed(&site);
    for (accept, content_type) in [
        ("", "text/html; charset=utf-8"),
        ("Accept: */*\r\n", "text/html; charset=utf-8"),
        (
            "Accept: text/html, application/json;q=0.9\r\n",
            "text/html; charset=utf-8",
        ),
        (
            "Accept: text/html;q=0.5, application/json\r\n",
            "application/json",
        ),
        ("Accept: application/*\r\n", "application/json"),
        ("Accept: application/json\r\n", "application/json"),
    ] {
        let answer = get(&mut client, "/", accept);
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{accept}"
        );
        assert_eq!(answer.header("vary"), Some("Accept"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let same = head(&mut client, "/", accept);
        assert_eq!(
            same.header("content-length"),
            answer.header("content-length")
        );
    }
}

#[test]
fn an_index_is_preferred_and_other_paths_are_answered_as_without_listings() {
    let site = Site::empty();
    site.write("a/index.html", "index");
    site.write("b/x", "");
    let mut client = listed(&site);
    assert_eq!(get(&mut client, "/a/", "").body, b"index");
    assert_eq!(get(&mut client, "/b", "").header("location"), Some("/b/"));
    assert_eq!(get(&mut client, "/b/", "").status, 200);
    assert_eq!(get(&mut client, "/b/x/", "").status, 404);
    assert_eq!(get(&mut client, "/c/", "").status, 404);
    assert_eq!(get(&mut site.plain(), "/b/", "").status, 404);
}

#[test]
fn a_very_long_directory_is_cut_and_says_so() {
    let site = Site::empty();
    for n in 0..10_050 {
        fs::write(site.root().join(format!("{n}")), "").expect("write");
    }
    let mut client = listed(&site);
    let listing = json(&mut client, "/");
    assert_eq!(
        (names(&listing).len(), &listing["cut"]),
        (10_000, &true.into())
    );
    let page = String::from_utf8(get(&mut client, "/", "").body).expect("UTF-8");
    assert!(page.contains("Only 10000 names were read"));
}
