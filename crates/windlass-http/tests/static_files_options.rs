//! Index, fallback, hidden files, `Cache-Control`.

mod common;
mod site;

use site::{Site, get, head};
use windlass_http::{Dotfiles, FileOptionError};

#[test]
fn the_first_index_that_is_there_is_sent() {
    let site = Site::empty();
    site.write("a/default.htm", "default");
    site.write("b/default.htm", "default");
    site.write("b/home.html", "home");
    site.write("c/home.html/x", "a directory of that name is no index");
    site.write("c/default.htm", "default");
    site.write("d/other", "");
    let files = site.files().index(["home.html", "default.htm"]);
    let mut client = site.client(files.expect("names"));
    for (target, body) in [("/a/", "default"), ("/b/", "home"), ("/c/", "default")] {
        assert_eq!(
            get(&mut client, target, "").body,
            body.as_bytes(),
            "{target}"
        );
    }
    assert_eq!(get(&mut client, "/d/", "").status, 404);
    let files = site.files().index::<&str>([]).expect("none is allowed");
    assert_eq!(get(&mut site.client(files), "/b/", "").status, 404);
}

#[test]
fn options_that_cannot_be_used_are_errors() {
    let site = Site::empty();
    for name in ["", ".", "..", "a/b", "/a", "a\0"] {
        let error = site.files().index([name]).err();
        assert_eq!(error, Some(FileOptionError::IndexName), "{name:?}");
    }
    for path in ["", "/index.html", "../x", "a/../b", "a//b", "a/", "a\0"] {
        let error = site.files().spa(path).err();
        assert_eq!(error, Some(FileOptionError::FallbackPath), "{path:?}");
    }
    for value in ["", " a", "a\r\nb: c"] {
        let error = site.files().cache_control(value).err();
        assert_eq!(error, Some(FileOptionError::CacheControl), "{value:?}");
    }
}

#[test]
fn a_page_that_is_not_there_falls_back_and_anything_else_does_not() {
    let site = Site::empty();
    site.write("index.html", "app");
    site.write("real.txt", "real");
    site.write("assets/a.js", "1");
    let mut client = site.client(site.files().spa("index.html").expect("a path"));
    let html = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (target, accept, status) in [
        ("/users/7", html, 200),
        ("/users/", html, 200),
        ("/users/7?tab=1.2", html, 200),
        ("/v1.2/users", html, 200),
        ("/real.txt/x", html, 200),
        ("/missing.js", html, 404),
        ("/users/7", "Accept: application/json\r\n", 404),
        ("/users/7", "Accept: */*\r\n", 404),
        ("/users/7", "Accept: text/html;q=0, */*\r\n", 404),
        ("/users/7", "", 404),
        ("/.git/config", html, 404),
        ("/../users", html, 404),
        ("/users%00", html, 400),
        ("/assets", html, 301),
    ] {
        let answer = get(&mut client, target, accept);
        assert_eq!(answer.status, status, "{target} {accept}");
        assert_eq!(head(&mut client, target, accept).status, status);
        if status == 200 {
            assert_eq!(answer.body, b"app", "{target}");
            assert_eq!(
                answer.header("content-type"),
                Some("text/html; charset=utf-8")
            );
            assert_eq!(answer.header("vary"), Some("Accept"), "{target}");
        }
    }
    let answer = get(&mut client, "/missing.js", "");
    assert_eq!(
        (answer.status, answer.header("vary")),
        (404, Some("Accept"))
    );
    let answer = get(&mut client, "/real.txt", html);
    assert_eq!(
        (answer.body, &answer.head.contains("Vary")),
        (b"real".to_vec(), &false)
    );
    assert!(
        !get(&mut client, "/", html).head.contains("Vary"),
        "found without falling back"
    );
}

#[test]
fn a_fallback_that_is_not_there_is_404() {
    let site = Site::empty();
    site.write("dir/x", "");
    for path in ["index.html", "dir"] {
        let mut client = site.client(site.files().spa(path).expect("a path"));
        assert!(
            get(&mut client, "/a", "Accept: text/html\r\n").status >= 404,
            "{path}"
        );
    }
}

#[test]
fn dotfiles_are_served_if_told_and_well_known_always() {
    let site = Site::empty();
    site.write(".env", "dot");
    site.write("a/.b/c", "dot");
    site.write(".well-known/security.txt", "known");
    site.write(".well-known/.x", "dot");
    for (dotfiles, status) in [(Dotfiles::Hide, 404), (Dotfiles::Serve, 200)] {
        let mut client = site.client(site.files().dotfiles(dotfiles));
        for target in ["/.env", "/%2eenv", "/a/.b/c", "/.well-known/.x"] {
            assert_eq!(get(&mut client, target, "").status, status, "{target}");
        }
        assert_eq!(
            get(&mut client, "/.well-known/security.txt", "").status,
            200
        );
        for target in ["/.", "/..", "/a/..", "/a/./.b/c", "/a/%2e%2e/.env"] {
            assert_eq!(get(&mut client, target, "").status, 404, "{target}");
        }
    }
}

#[test]
fn cache_control_goes_with_200_206_and_304() {
    let site = Site::empty();
    site.write("a.txt", "0123456789");
    let files = site
        .files()
        .cache_control("public, max-age=60")
        .expect("valid");
    let mut client = site.client(files);
    let tag = get(&mut client, "/a.txt", "")
        .header("etag")
        .expect("a tag")
        .to_owned();
    for (headers, status) in [
        (String::new(), 200),
        ("Range: bytes=0-1\r\n".to_owned(), 206),
        ("Range: bytes=0-1,5-6\r\n".to_owned(), 206),
        (format!("If-None-Match: {tag}\r\n"), 304),
    ] {
        let answer = get(&mut client, "/a.txt", &headers);
        let value = answer.header("cache-control");
        assert_eq!((answer.status, value), (status, Some("public, max-age=60")));
    }
    assert_eq!(get(&mut client, "/b.txt", "").header("cache-control"), None);
}
