//! Several ranges of a file in one answer.

mod common;
mod site;

use common::Answer;
use site::{Site, get, head};

/// The parts of a `multipart/byteranges` answer: `Content-Range`, type, content.
fn parts(answer: &Answer) -> Vec<(String, String, Vec<u8>)> {
    let content_type = answer.header("content-type").expect("a type");
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("several parts");
    let (delimiter, end) = (
        format!("--{boundary}\r\n"),
        format!("\r\n--{boundary}--\r\n"),
    );
    let body = answer.body.strip_suffix(end.as_bytes()).expect("an end");
    let mut rest = body.strip_prefix(delimiter.as_bytes()).expect("a part");
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what);
    let delimiter = format!("\r\n{delimiter}");
    let mut parts = Vec::new();
    loop {
        let next = find(rest, delimiter.as_bytes());
        let part = &rest[..next.unwrap_or(rest.len())];
        let head_len = find(part, b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(part[..head_len].to_vec()).expect("ASCII");
        let field = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a field").to_owned()
        };
        let content = part[head_len + 4..].to_vec();
        parts.push((field("Content-Range: "), field("Content-Type: "), content));
        let Some(next) = next else { return parts };
        rest = &rest[next + delimiter.len()..];
    }
}

#[test]
fn parts_of_a_short_and_of_a_long_file_come_in_the_order_asked_for() {
    let site = Site::empty();
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    site.write("long.bin", &content);
    site.write("short.txt", &content[..1000]);
    let mut client = site.plain();
    for (target, len, content_type) in [
        ("/long.bin", 200_000, "application/octet-stream"),
        ("/short.txt", 1000, "text/plain; charset=utf-8"),
    ] {
        let answer = get(&mut client, target, "Range: bytes=500-599, 0-0,-10\r\n");
        assert_eq!(answer.status, 206);
        assert_eq!(answer.header("content-range"), None);
        assert!(answer.header("etag").is_some());
        let expected = [(500, 599), (0, 0), (len - 10, len - 1)].map(|(first, last)| {
            let range = format!("bytes {first}-{last}/{len}");
            (
                range,
                content_type.to_owned(),
                content[first..=last].to_vec(),
            )
        });
        assert_eq!(parts(&answer), expected, "{target}");
    }
}

#[test]
fn ranges_that_overlap_or_touch_are_one_part_and_what_is_out_of_the_file_is_left_out() {
    let site = Site::empty();
    site.write("ten.txt", "0123456789");
    let mut client = site.plain();
    for (range, content_range, body) in [
        ("0-1,2-3", "bytes 0-3/10", "0123"),
        ("0-5,3-7", "bytes 0-7/10", "01234567"),
        ("0-1,50-60", "bytes 0-1/10", "01"),
        ("-3,8-", "bytes 7-9/10", "789"),
    ] {
        let answer = get(
            &mut client,
            "/ten.txt",
            &format!("Range: bytes={range}\r\n"),
        );
        assert_eq!(answer.status, 206, "{range}");
        assert_eq!(
            answer.header("content-range"),
            Some(content_range),
            "{range}"
        );
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(answer.body, body.as_bytes(), "{range}");
    }
    let answer = get(&mut client, "/ten.txt", "Range: bytes=10-11,-0\r\n");
    assert_eq!(
        (answer.status, answer.header("content-range")),
        (416, Some("bytes */10"))
    );
}

#[test]
fn too_many_ranges_are_ignored_and_many_overlapping_ones_cost_no_more_than_the_file() {
    let site = Site::empty();
    site.write("f.bin", vec![b'x'; 1000]);
    let mut client = site.plain();
    let ranges = |count: usize, spec: fn(usize) -> String| {
        let specs: Vec<_> = (0..count).map(spec).collect();
        format!("Range: bytes={}\r\n", specs.join(","))
    };
    let apart = |n: usize| format!("{0}-{0}", n * 2);
    assert_eq!(
        parts(&get(&mut client, "/f.bin", &ranges(16, apart))).len(),
        16
    );
    let answer = get(&mut client, "/f.bin", &ranges(17, apart));
    assert_eq!((answer.status, answer.body.len()), (200, 1000));
    let answer = get(&mut client, "/f.bin", &ranges(16, |_| "0-".to_owned()));
    assert_eq!((answer.status, answer.body.len()), (206, 1000));
}

#[test]
fn boundaries_differ_from_answer_to_answer() {
    let site = Site::empty();
    site.write("ten.txt", "0123456789");
    let mut client = site.plain();
    let mut ask = || {
        let answer = get(&mut client, "/ten.txt", "Range: bytes=0-0,5-5\r\n");
        answer.header("content-type").map(str::to_owned)
    };
    assert_ne!(ask(), ask());
}

#[test]
fn head_and_a_failed_if_range_get_the_whole_and_a_matching_one_the_parts() {
    let site = Site::empty();
    site.write("ten.txt", "0123456789");
    let mut client = site.plain();
    let found = head(&mut client, "/ten.txt", "Range: bytes=0-0,5-5\r\n");
    assert_eq!(
        (found.status, found.header("content-length")),
        (200, Some("10"))
    );
    let tag = found.header("etag").expect("a tag").to_owned();
    let range = "Range: bytes=0-0,5-5\r\n";
    let answer = get(
        &mut client,
        "/ten.txt",
        &format!("{range}If-Range: {tag}\r\n"),
    );
    assert_eq!(parts(&answer).len(), 2);
    let answer = get(
        &mut client,
        "/ten.txt",
        &format!("{range}If-Range: \"x\"\r\n"),
    );
    assert_eq!((answer.status, answer.body.len()), (200, 10));
}
