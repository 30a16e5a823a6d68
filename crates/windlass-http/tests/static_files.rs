//! Files from a directory: what is served, and that nothing else is.

mod common;
mod site;

use std::fs;
use std::os::unix::fs::symlink;

use common::{Answer, answers};
use windlass::files::Links;

/// A site with something of each kind in it.
struct Site {
    site: site::Site,
    links: Links,
}

impl Site {
    fn new() -> Self {
        let site = site::Site::empty();
        let (dir, root) = (&site.dir, site.root());
        fs::create_dir_all(root.join("sub/deep")).expect("create");
        fs::create_dir_all(root.join("evil.example")).expect("create");
        fs::create_dir_all(dir.join("root-secret")).expect("create");
        fs::write(dir.join("root-secret/s.txt"), "SECRET").expect("write");
        site.write("index.html", "<p>home");
        site.write("sub/index.html", "<p>sub");
        site.write("ten.txt", "0123456789");
        site.write("empty.bin", "");
        site.write("a b.js", "1");
        site.write(".hidden", "SECRET");
        site.write("large.bin", vec![b'l'; 100_000]);
        symlink("ten.txt", root.join("inside.txt")).expect("link");
        symlink("../root-secret/s.txt", root.join("outside.txt")).expect("link");
        symlink("../root-secret", root.join("outside")).expect("link");
        symlink("/etc", root.join("etc")).expect("link");
        let made = std::process::Command::new("mkfifo")
            .arg(root.join("pipe"))
            .status();
        assert!(made.expect("mkfifo runs").success());
        Self {
            site,
            links: Links::WithinRoot,
        }
    }

    fn raw(&self, request: &[u8]) -> Vec<u8> {
        let files = self.site.files().links(self.links);
        site::raw(&mut self.site.client(files), request)
    }

    fn get(&self, target: &str, headers: &str) -> Answer {
        let files = self.site.files().links(self.links);
        site::get(&mut self.site.client(files), target, headers)
    }

    fn status(&self, target: &str, headers: &str) -> u16 {
        self.get(target, headers).status
    }
}

#[test]
fn files_are_served_with_type_length_and_validators() {
    let site = Site::new();
    for (target, content_type, body) in [
        ("/", "text/html; charset=utf-8", "<p>home"),
        ("/sub/", "text/html; charset=utf-8", "<p>sub"),
        ("/ten.txt?query", "text/plain; charset=utf-8", "0123456789"),
        (
            "http://h/ten.txt",
            "text/plain; charset=utf-8",
            "0123456789",
        ),
        ("/a%20b.js", "text/javascript; charset=utf-8", "1"),
        ("/empty.bin", "application/octet-stream", ""),
        ("/inside.txt", "text/plain; charset=utf-8", "0123456789"),
        ("//sub///index.html", "text/html; charset=utf-8", "<p>sub"),
    ] {
        let answer = site.get(target, "");
        assert_eq!(answer.status, 200, "{target}");
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{target}"
        );
        assert_eq!(answer.body, body.as_bytes(), "{target}");
        assert!(
            answer
                .header("etag")
                .is_some_and(|tag| tag.starts_with('"'))
        );
        assert!(
            answer
                .header("last-modified")
                .is_some_and(|date| date.ends_with("GMT"))
        );
        assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    }
    assert_eq!(site.get("/large.bin", "").body.len(), 100_000);
}

#[test]
fn pf36_head_has_the_fields_of_get_and_no_body() {
    let site = Site::new();
    for target in [
        "/",
        "/large.bin",
        "/empty.bin",
        "/missing",
        "/sub",
        "/..",
        "/%00",
    ] {
        let [get, head] = ["GET", "HEAD"].map(|method| {
            site.raw(format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())
        });
        let end = get
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a head")
            + 4;
        assert_eq!(&get[..end], head, "{target}");
    }
}

#[test]
fn pf40_nothing_outside_of_the_root_is_served() {
    let site = Site::new();
    for (target, status) in [
        ("/../root-secret/s.txt", 404),
        ("/sub/../../root-secret/s.txt", 404),
        ("/%2e%2e/root-secret/s.txt", 404),
        ("/..%2froot-secret/s.txt", 404),
        ("/%2e%2e%2froot-secret%2fs.txt", 404),
        ("/%252e%252e/root-secret/s.txt", 404),
        ("/..%c0%afroot-secret/s.txt", 404),
        ("/..\\root-secret\\s.txt", 400),
        ("/..%5croot-secret/s.txt", 400),
        ("http://h/../root-secret/s.txt", 404),
        ("//etc/passwd", 404),
        ("/%2fetc/passwd", 404),
        ("/etc/passwd", 404),
        ("/outside.txt", 404),
        ("/outside/s.txt", 404),
        ("/outside/", 404),
        ("/-secret/s.txt", 404),
        ("/.hidden", 404),
        ("/%2ehidden", 404),
        ("/ten.txt%00.html", 400),
        ("/ten.txt%", 400),
        ("/ten.txt/", 404),
        ("/ten.txt/x", 404),
        ("/pipe", 404),
        ("/sub/deep/", 404),
        ("/missing", 404),
    ] {
        let answer = site.get(target, "");
        assert_eq!(answer.status, status, "{target}");
        let shown = String::from_utf8_lossy(&answer.body);
        assert!(
            !shown.contains("SECRET") && !shown.contains("root"),
            "{target}: {shown}"
        );
    }
    let name = "n".repeat(300);
    assert_eq!(site.status(&format!("/{name}"), ""), 404);
}

#[test]
fn links_can_be_refused_altogether() {
    let mut site = Site::new();
    site.links = Links::Refuse;
    assert_eq!(site.status("/inside.txt", ""), 404);
    assert_eq!(site.status("/ten.txt", ""), 200);
}

#[test]
fn links_out_of_the_root_are_followed_only_where_that_is_allowed() {
    let mut site = Site::new();
    assert_eq!(site.status("/outside.txt", ""), 404);
    site.links = Links::Anywhere;
    assert_eq!(site.get("/outside.txt", "").body, b"SECRET");
    assert_eq!(site.get("/outside/s.txt", "").body, b"SECRET");
    assert_eq!(site.status("/../root-secret/s.txt", ""), 404);
    assert_eq!(site.status("/%2fetc/passwd", ""), 404);
}

#[test]
fn directory_without_slash_is_redirected_within_the_site() {
    let site = Site::new();
    for (target, location) in [
        ("/sub", "/sub/"),
        ("/sub?a=b", "/sub/?a=b"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example", "/evil.example/"),
        ("//evil.example?//x", "/evil.example/?//x"),
        ("http://h//evil.example", "/evil.example/"),
        ("/%73ub", "/%73ub/"),
    ] {
        let answer = site.get(target, "");
        assert_eq!(
            (answer.status, answer.header("location")),
            (301, Some(location)),
            "{target}"
        );
    }
    for target in [
        "//evil.example/..",
        "//evil.example/%2e%2e",
        "/.//evil.example",
        "/x//evil.example/..",
    ] {
        assert_eq!(site.status(target, ""), 404, "{target}");
    }
    assert_eq!(site.status("/\\evil.example", ""), 400);
    assert_eq!(site.status("/\\/evil.example", ""), 400);
    assert_eq!(site.status("/%5cevil.example", ""), 400);
}

#[test]
fn pf38_bytes_range_and_length_agree() {
    let site = Site::new();
    for (range, status, content_range, body) in [
        ("bytes=-3", 206, Some("bytes 7-9/10"), "789"),
        ("bytes=-99", 206, Some("bytes 0-9/10"), "0123456789"),
        ("bytes=2-4", 206, Some("bytes 2-4/10"), "234"),
        ("bytes=9-", 206, Some("bytes 9-9/10"), "9"),
        (
            "bytes=0-99999999999999999999",
            206,
            Some("bytes 0-9/10"),
            "0123456789",
        ),
        ("bytes=10-", 416, Some("bytes */10"), ""),
        ("bytes=-0", 416, Some("bytes */10"), ""),
        ("bytes=18446744073709551615-", 416, Some("bytes */10"), ""),
        ("bytes=5-2", 200, None, "0123456789"),
        ("bytes=0-1,2-3", 206, Some("bytes 0-3/10"), "0123"),
        ("rows=0-1", 200, None, "0123456789"),
    ] {
        let answer = site.get("/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!(answer.status, status, "{range}");
        assert_eq!(answer.header("content-range"), content_range, "{range}");
        assert_eq!(
            answer.header("content-length"),
            Some(&*body.len().to_string()),
            "{range}"
        );
        assert_eq!(answer.body, body.as_bytes(), "{range}");
    }
    assert_eq!(site.status("/empty.bin", "Range: bytes=0-\r\n"), 200);
    assert_eq!(
        site.get("/large.bin", "Range: bytes=50000-99999\r\n")
            .body
            .len(),
        50_000
    );
    let head = site.raw(b"HEAD /ten.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200"), "ranges are for GET only");
}

#[test]
fn conditions_are_evaluated_in_their_order() {
    let site = Site::new();
    let first = site.get("/ten.txt", "");
    let tag = first.header("etag").expect("a tag").to_owned();
    let date = first.header("last-modified").expect("a date").to_owned();
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (headers, status) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: W/{tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", {tag}\r\n"), 304),
        (
            format!("If-None-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"),
            304,
        ),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {date}\r\n"), 304),
        (format!("If-Modified-Since: {old}\r\n"), 200),
        ("If-Modified-Since: nonsense\r\n".to_owned(), 200),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n"),
            200,
        ),
        (format!("If-Match: {tag}\r\n"), 200),
        ("If-Match: *\r\n".to_owned(), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        (format!("If-Match: W/{tag}\r\n"), 412),
        (format!("If-Unmodified-Since: {date}\r\n"), 200),
        (format!("If-Unmodified-Since: {old}\r\n"), 412),
        (format!("Range: bytes=0-1\r\nIf-Range: {tag}\r\n"), 206),
        ("Range: bytes=0-1\r\nIf-Range: \"x\"\r\n".to_owned(), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: W/{tag}\r\n"), 200),
        (format!("Range: bytes=0-1\r\nIf-Range: {old}\r\n"), 200),
        (format!("Range: bytes=0-1\r\nIf-None-Match: {tag}\r\n"), 304),
        (format!("Range: bytes=0-1\r\nIf-Range: {date}\r\n"), 206),
        (format!("If-Range: {tag}\r\n"), 200),
        // An If-Match that holds makes the date irrelevant, one that fails all else.
        (
            format!("If-Match: {tag}\r\nIf-Unmodified-Since: {old}\r\n"),
            200,
        ),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"), 412),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304),
        (
            format!("If-Match: {tag}\r\nIf-Modified-Since: {date}\r\n"),
            304,
        ),
        (
            format!("If-Unmodified-Since: {old}\r\nIf-None-Match: {tag}\r\n"),
            412,
        ),
        (
            format!("If-None-Match: {tag}\r\nIf-Modified-Since: {old}\r\n"),
            304,
        ),
        ("Range: bytes=0-1\r\nIf-Match: \"x\"\r\n".to_owned(), 412),
        (format!("Range: bytes=99-\r\nIf-None-Match: {tag}\r\n"), 304),
        (format!("Range: bytes=99-\r\nIf-Range: {tag}\r\n"), 416),
        ("Range: bytes=99-\r\nIf-Range: \"x\"\r\n".to_owned(), 200),
        ("Range: bytes=0-1\r\nRange: bytes=2-3\r\n".to_owned(), 200),
        (format!("IF-NONE-MATCH: {tag}\r\n"), 304),
    ] {
        let answer = site.get("/ten.txt", &headers);
        assert_eq!(answer.status, status, "{headers}");
        if status == 304 {
            assert_eq!(answer.header("etag"), Some(&*tag));
            assert_eq!(
                (answer.header("content-length"), answer.body.len()),
                (None, 0)
            );
        }
    }
}

#[test]
fn entity_tag_changes_with_the_content_within_one_second() {
    let site = Site::new();
    let path = site.site.root().join("ten.txt");
    let before = site.get("/ten.txt", "").header("etag").map(str::to_owned);
    let file = fs::File::options().write(true).open(&path).expect("open");
    let modified = file
        .metadata()
        .and_then(|meta| meta.modified())
        .expect("a time");
    // The same length, one nanosecond later.
    file.set_modified(modified + std::time::Duration::from_nanos(1))
        .expect("set");
    let after = site.get("/ten.txt", "").header("etag").map(str::to_owned);
    assert_ne!(before, after);
}

#[test]
fn pf39_replaced_file_is_sent_as_opened_and_lengths_stay_true() {
    let site = Site::new();
    let path = site.site.root().join("large.bin");
    let answer = site.get("/large.bin", "");
    fs::rename(site.site.root().join("ten.txt"), &path).expect("rename");
    assert_eq!(answer.body.len(), 100_000);
    assert_eq!(site.get("/large.bin", "").body, b"0123456789");
}

#[test]
fn post_is_405() {
    let site = Site::new();
    let found = answers(&site.raw(b"POST /ten.txt HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert_eq!(
        (found[0].status, found[0].header("allow")),
        (405, Some("GET, HEAD"))
    );
}
