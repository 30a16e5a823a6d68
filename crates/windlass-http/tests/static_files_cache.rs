//! The open-file cache: right whenever files change, and bounded.

mod common;
mod site;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use site::{Client, Site, get, head, real_now_ms, set_modified};
use windlass_http::{FileCache, StaticFiles};

fn body(client: &mut Client, target: &str) -> Vec<u8> {
    get(client, target, "").body
}

fn cache(files_max: usize, bytes_max: usize) -> FileCache {
    let mut cache = FileCache::default();
    cache.files_max = files_max;
    cache.bytes_max = bytes_max;
    cache
}

/// How many descriptors of this process are open below `dir`, but for the directory of the root.
fn open_below(dir: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").expect("proc");
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(dir) && *path != dir.join("root"))
        .count()
}

#[test]
fn each_way_to_change_a_file_is_noticed_by_the_next_request() {
    for len in [10_usize, 50_000] {
        let site = Site::empty();
        let mut client = site.plain();
        let content = |byte: u8| vec![byte; len];
        let path = site.write("f.bin", content(b'a'));
        assert_eq!(body(&mut client, "/f.bin"), content(b'a'));
        assert_eq!(body(&mut client, "/f.bin"), content(b'a'));
        // Written in place, the length the same.
        fs::write(&path, content(b'b')).expect("write");
        assert_eq!(body(&mut client, "/f.bin"), content(b'b'));
        // And the time put back.
        set_modified(&path, 1000, 0);
        assert_eq!(body(&mut client, "/f.bin"), content(b'b'));
        fs::write(&path, content(b'c')).expect("write");
        set_modified(&path, 1000, 0);
        assert_eq!(body(&mut client, "/f.bin"), content(b'c'));
        // Replaced, the time the same.
        let other = site.write("other", content(b'd'));
        set_modified(&other, 1000, 0);
        fs::rename(&other, &path).expect("rename");
        assert_eq!(body(&mut client, "/f.bin"), content(b'd'));
        // Longer, shorter, empty.
        for len in [len + 1, len - 1, 0] {
            fs::write(&path, vec![b'e'; len]).expect("write");
            assert_eq!(body(&mut client, "/f.bin"), vec![b'e'; len]);
        }
        fs::remove_file(&path).expect("remove");
        assert_eq!(get(&mut client, "/f.bin", "").status, 404);
        fs::create_dir(&path).expect("create");
        assert_eq!(get(&mut client, "/f.bin", "").status, 301);
        fs::remove_dir(&path).expect("remove");
        symlink("g.bin", &path).expect("link");
        assert_eq!(get(&mut client, "/f.bin", "").status, 404);
        site.write("g.bin", content(b'g'));
        assert_eq!(body(&mut client, "/f.bin"), content(b'g'));
        site.write("h.bin", content(b'h'));
        fs::remove_file(&path).expect("remove");
        symlink("h.bin", &path).expect("link");
        assert_eq!(body(&mut client, "/f.bin"), content(b'h'));
    }
}

#[test]
fn conditions_head_and_ranges_see_the_change_as_well() {
    let site = Site::empty();
    let mut client = site.plain();
    let path = site.write("f.txt", "0123456789");
    let tag = |client: &mut Client| {
        let found = head(client, "/f.txt", "");
        found.header("etag").expect("a tag").to_owned()
    };
    let before = tag(&mut client);
    let if_none = format!("If-None-Match: {before}\r\n");
    assert_eq!(get(&mut client, "/f.txt", &if_none).status, 304);
    fs::write(&path, "abcdefghij").expect("write");
    assert_eq!(get(&mut client, "/f.txt", &if_none).body, b"abcdefghij");
    let after = tag(&mut client);
    assert_ne!(before, after);
    fs::write(&path, "ABCDEFGHIJ").expect("write");
    let range = format!("Range: bytes=0-1\r\nIf-Range: {after}\r\n");
    assert_eq!(get(&mut client, "/f.txt", &range).body, b"ABCDEFGHIJ");
    fs::write(&path, "xyz").expect("write");
    assert_eq!(
        get(&mut client, "/f.txt", "Range: bytes=-2\r\n").body,
        b"yz"
    );
    assert_eq!(
        head(&mut client, "/f.txt", "").header("content-length"),
        Some("3")
    );
}

#[test]
fn a_file_that_was_just_changed_has_no_validators_and_is_never_stale() {
    let site = Site::empty();
    let mut client = site.plain();
    let path = site.write("f.txt", "0");
    client.now.unix_ms = real_now_ms();
    let answer = get(&mut client, "/f.txt", "");
    assert_eq!(answer.status, 200);
    // Much of the time of a test may pass in between; but not a second ago is not now.
    assert_eq!(answer.header("last-modified"), None);
    for round in 0..300_u32 {
        let content = (round % 10).to_string();
        fs::write(&path, &content).expect("write");
        client.now.unix_ms = real_now_ms();
        assert_eq!(
            body(&mut client, "/f.txt"),
            content.as_bytes(),
            "round {round}"
        );
    }
    // Once it is settled, it has both.
    client.now.unix_ms = real_now_ms() + 10_000;
    let answer = get(&mut client, "/f.txt", "");
    assert!(answer.header("etag").is_some() && answer.header("last-modified").is_some());
}

#[test]
fn a_date_is_added_once_its_second_is_over() {
    let site = Site::empty();
    let mut client = site.plain();
    let path = site.write("f.txt", "0");
    let now_secs = client.now.unix_ms / 1000;
    set_modified(&path, now_secs, 1);
    client.now.unix_ms = now_secs * 1000 + 500;
    let early = get(&mut client, "/f.txt", "");
    assert!(early.header("etag").is_some() && early.header("last-modified").is_none());
    client.pass(Duration::from_secs(2));
    let late = get(&mut client, "/f.txt", "");
    assert_eq!(late.header("etag"), early.header("etag"));
    assert!(late.header("last-modified").is_some());
}

#[test]
fn pf40_a_directory_moved_out_and_linked_to_is_refused_within_a_second() {
    let site = Site::empty();
    site.write("d/f.txt", "0");
    let mut client = site.plain();
    assert_eq!(get(&mut client, "/d/f.txt", "").status, 200);
    fs::rename(site.root().join("d"), site.dir.join("moved")).expect("rename");
    symlink("../moved", site.root().join("d")).expect("link");
    client.pass(Duration::from_secs(1));
    assert_eq!(get(&mut client, "/d/f.txt", "").status, 404);
    assert_eq!(get(&mut client, "/d/f.txt", "").status, 404);
}

#[test]
fn a_link_that_comes_to_lead_out_is_refused_at_once() {
    let site = Site::empty();
    let path = site.write("f.txt", "0");
    fs::write(site.dir.join("secret"), "1").expect("write");
    let mut client = site.plain();
    assert_eq!(get(&mut client, "/f.txt", "").status, 200);
    fs::remove_file(&path).expect("remove");
    symlink("../secret", &path).expect("link");
    assert_eq!(get(&mut client, "/f.txt", "").status, 404);
}

#[test]
fn descriptors_are_bounded_and_short_files_keep_none() {
    let site = Site::empty();
    for n in 0..50 {
        site.write(&format!("long{n}"), vec![b'l'; 20_000]);
        site.write(&format!("short{n}"), "s");
    }
    let mut client = site.client(site.files().cache(cache(8, 1 << 20)));
    for n in 0..50 {
        assert_eq!(body(&mut client, &format!("/short{n}")), b"s");
    }
    assert_eq!(open_below(&site.dir), 0);
    for _ in 0..2 {
        for n in 0..50 {
            assert_eq!(body(&mut client, &format!("/long{n}")).len(), 20_000);
            assert!(open_below(&site.dir) <= 8);
        }
    }
    let mut client = site.client(site.files().cache(FileCache::OFF));
    assert_eq!(body(&mut client, "/long1").len(), 20_000);
    assert_eq!(body(&mut client, "/long1").len(), 20_000);
    drop(client);
}

#[test]
fn all_answers_are_the_same_with_and_without_the_cache() {
    let site = Site::empty();
    site.write("index.html", "home");
    site.write("short.txt", "0123456789");
    site.write("long.bin", vec![b'l'; 20_000]);
    let clients = |files: [StaticFiles; 2]| files.map(|files| site.client(files));
    let [mut with, mut without] = clients([site.files(), site.files().cache(FileCache::OFF)]);
    without.now = with.now;
    for target in ["/", "/short.txt", "/long.bin", "/missing", "/short.txt/"] {
        for headers in [
            "",
            "Range: bytes=1-3\r\n",
            "Range: bytes=-0\r\n",
            "If-None-Match: *\r\n",
            "If-Match: \"x\"\r\n",
            "Connection: close\r\n",
        ] {
            for round in 0..2 {
                if with.closed {
                    let now = with.now;
                    [with, without] = clients([site.files(), site.files().cache(FileCache::OFF)]);
                    (with.now, without.now) = (now, now);
                }
                let [a, b] = [&mut with, &mut without].map(|client| get(client, target, headers));
                assert_eq!(a, b, "{target} {headers} {round}");
            }
        }
    }
}

#[test]
fn http_1_0_and_closing_connections_get_their_own_line() {
    let site = Site::empty();
    site.write("f.txt", "0123456789");
    for (request, line) in [
        (
            "GET /f.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            "Connection: close",
        ),
        (
            "GET /f.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "Connection: keep-alive",
        ),
        ("GET /f.txt HTTP/1.0\r\n\r\n", "Connection: close"),
    ] {
        let sent = site::raw(&mut site.plain(), request.as_bytes());
        let text = String::from_utf8(sent).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.lines().any(|found| found == line), "{head}");
        assert_eq!(body, "0123456789");
    }
}
