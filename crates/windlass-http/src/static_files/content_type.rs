//! The media type that a file name stands for.

/// A media type, and whether it is text. Text is taken to be UTF-8, whatever the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    name: &'static str,
    is_text: bool,
}

impl ContentType {
    /// By the extension of the last segment of `path`.
    pub(super) fn of_path(path: &[u8]) -> Self {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        // A name that only begins with a dot has no extension.
        let extension = memchr::memrchr(b'.', name)
            .filter(|dot| *dot > 0)
            .and_then(|dot| str::from_utf8(&name[dot + 1..]).ok());
        let name = extension
            .and_then(|extension| mime_guess::from_ext(extension).first_raw())
            .unwrap_or("application/octet-stream");
        // JSON is not among them: it has no such parameter (RFC 8259 section 11).
        let is_text = name.starts_with("text/")
            || matches!(
                name,
                "application/javascript" | "application/xml" | "image/svg+xml"
            );
        Self { name, is_text }
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }

    pub(super) fn parameters(self) -> &'static str {
        if self.is_text { "; charset=utf-8" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_charset_and_json_has_none() {
        for (path, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("d.x/a.CSS", "text/css; charset=utf-8"),
            ("a.min.js", "text/javascript; charset=utf-8"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.png", "image/png"),
            ("a.wasm", "application/wasm"),
            ("d.html/a", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("a.", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            let found = ContentType::of_path(path.as_bytes());
            let found = format!("{}{}", found.name(), found.parameters());
            assert_eq!(found, expected, "{path}");
        }
    }
}
