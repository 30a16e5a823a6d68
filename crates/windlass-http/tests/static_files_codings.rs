//! Files that were compressed beforehand, by what the client accepts.

mod common;
mod site;

use site::{Client, Site, get, head, set_modified};
use windlass_http::Precompressed;

fn site() -> (Site, Client) {
    let site = Site::empty();
    for (path, content) in [
        ("a.js", "original"),
        ("a.js.br", "brotli"),
        ("a.js.zst", "zstd"),
        ("a.js.gz", "gzip"),
        ("only.txt", "original"),
        ("g.css", "original"),
        ("g.css.gz", "gzip"),
        ("orphan.txt.gz", "gzip"),
        ("index.html", "original"),
        ("index.html.br", "brotli"),
    ] {
        set_modified(&site.write(path, content), 1000, 0);
    }
    let client = site.client(site.files().precompressed(Precompressed::Siblings));
    (site, client)
}

#[test]
fn the_coding_wanted_most_that_is_there_is_sent() {
    let (_site, mut client) = site();
    for (target, accept, status, coding, body) in [
        ("/a.js", "gzip, br, zstd", 200, Some("br"), "brotli"),
        ("/a.js", "gzip, zstd", 200, Some("zstd"), "zstd"),
        ("/a.js", "gzip;q=1, br;q=0.5", 200, Some("gzip"), "gzip"),
        ("/a.js", "*", 200, Some("br"), "brotli"),
        ("/a.js", "identity", 200, None, "original"),
        ("/a.js", "", 200, None, "original"),
        ("/a.js", "gzip;q=0", 200, None, "original"),
        ("/a.js", "identity;q=0, gzip", 200, Some("gzip"), "gzip"),
        ("/g.css", "br, gzip", 200, Some("gzip"), "gzip"),
        ("/g.css", "br", 200, None, "original"),
        ("/only.txt", "br, gzip", 200, None, "original"),
        ("/", "br", 200, Some("br"), "brotli"),
    ] {
        for _ in 0..2 {
            let header = format!("Accept-Encoding: {accept}\r\n");
            let answer = get(&mut client, target, &header);
            assert_eq!(answer.status, status, "{target} {accept}");
            assert_eq!(
                answer.header("content-encoding"),
                coding,
                "{target} {accept}"
            );
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
            assert_eq!(answer.body, body.as_bytes(), "{target} {accept}");
            let same = head(&mut client, target, &header);
            assert_eq!(same.header("content-encoding"), coding);
            assert_eq!(same.header("etag"), answer.header("etag"));
        }
    }
    let plain = get(&mut client, "/a.js", "");
    assert_eq!(
        (plain.header("content-encoding"), &plain.body[..]),
        (None, &b"original"[..])
    );
}

#[test]
fn without_any_acceptable_coding_the_answer_is_406() {
    let (_site, mut client) = site();
    let answer = get(
        &mut client,
        "/g.css",
        "Accept-Encoding: br, identity;q=0\r\n",
    );
    assert_eq!(
        (answer.status, answer.header("vary")),
        (406, Some("Accept-Encoding"))
    );
}

#[test]
fn the_type_is_that_of_the_original_and_tags_differ() {
    let (_site, mut client) = site();
    let mut tags = Vec::new();
    for accept in ["br", "zstd", "gzip", "identity"] {
        let answer = get(
            &mut client,
            "/a.js",
            &format!("Accept-Encoding: {accept}\r\n"),
        );
        let content_type = answer.header("content-type");
        assert_eq!(content_type, Some("text/javascript; charset=utf-8"));
        let tag = answer.header("etag").expect("a tag").to_owned();
        assert!(!tags.contains(&tag));
        tags.push(tag);
    }
    // The tag of one coding does not stand for another.
    let headers = format!("Accept-Encoding: br\r\nIf-None-Match: {}\r\n", tags[2]);
    assert_eq!(get(&mut client, "/a.js", &headers).status, 200);
    let headers = format!("Accept-Encoding: br\r\nIf-None-Match: {}\r\n", tags[0]);
    let answer = get(&mut client, "/a.js", &headers);
    assert_eq!(
        (answer.status, answer.header("vary")),
        (304, Some("Accept-Encoding"))
    );
    // Asked for by its own name, it is a file like any other.
    let answer = get(&mut client, "/a.js.gz", "");
    assert_eq!(
        (answer.header("content-encoding"), &answer.body[..]),
        (None, &b"gzip"[..])
    );
}

#[test]
fn ranges_are_of_the_encoded_bytes() {
    let (_site, mut client) = site();
    let headers = "Accept-Encoding: br\r\nRange: bytes=1-3\r\n";
    let answer = get(&mut client, "/a.js", headers);
    assert_eq!((answer.status, &answer.body[..]), (206, &b"rot"[..]));
    assert_eq!(answer.header("content-range"), Some("bytes 1-3/6"));
    assert_eq!(answer.header("content-encoding"), Some("br"));
}

#[test]
fn a_sibling_that_is_older_or_comes_or_goes_is_noticed_at_once() {
    let (site, mut client) = site();
    let mut ask = || get(&mut client, "/a.js", "Accept-Encoding: br, gzip\r\n").body;
    assert_eq!(ask(), b"brotli");
    set_modified(&site.root().join("a.js"), 1001, 0);
    assert_eq!(ask(), b"original");
    set_modified(&site.root().join("a.js.gz"), 1001, 0);
    assert_eq!(ask(), b"gzip");
    set_modified(&site.root().join("a.js.br"), 1002, 0);
    assert_eq!(ask(), b"brotli");
    std::fs::remove_file(site.root().join("a.js.br")).expect("remove");
    assert_eq!(ask(), b"gzip");
    site.write("a.js.br", "brotli again");
    assert_eq!(ask(), b"brotli again");
    std::fs::remove_file(site.root().join("a.js")).expect("remove");
    let answer = get(&mut client, "/a.js", "Accept-Encoding: br\r\n");
    assert_eq!(
        answer.status, 404,
        "a sibling alone is not sent in place of a file"
    );
    assert_eq!(
        get(&mut client, "/orphan.txt", "Accept-Encoding: gzip\r\n").status,
        404
    );
}

#[test]
fn without_the_option_the_header_is_not_looked_at() {
    let (site, _) = site();
    let answer = get(
        &mut site.plain(),
        "/a.js",
        "Accept-Encoding: br, identity;q=0\r\n",
    );
    assert_eq!((answer.status, answer.header("vary")), (200, None));
    assert_eq!(answer.body, b"original");
}
