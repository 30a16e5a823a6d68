//! Error pages: what is sent in place of the plain text of an error answer.

use bytes::Bytes;

use crate::response::{Body, Response, ResponseError, TEXT_TYPE, write_header};
use crate::status::Status;

/// Pages by status. They replace the answers that were made by [`Response::text`], the session's
/// own included; status and headers stay as they are.
#[derive(Clone, Debug, Default)]
pub struct ErrorPages {
    pages: Vec<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    status: Status,
    type_line: Vec<u8>,
    content: Bytes,
}

impl ErrorPages {
    /// Sets the page for `status`.
    ///
    /// # Errors
    ///
    /// If `content_type` is not a valid header value.
    pub fn set(
        &mut self,
        status: Status,
        content_type: &str,
        content: impl Into<Bytes>,
    ) -> Result<(), ResponseError> {
        let mut type_line = Vec::new();
        write_header(&mut type_line, "Content-Type", content_type.as_bytes())?;
        self.pages.retain(|page| page.status != status);
        self.pages.push(Page {
            status,
            type_line,
            content: content.into(),
        });
        Ok(())
    }

    /// Puts the page for its status into a notice.
    pub(crate) fn dress(&self, mut response: Response) -> Response {
        if self.pages.is_empty() || !response.is_notice {
            return response;
        }
        let Some(page) = self.pages.iter().find(|p| p.status == response.status) else {
            return response;
        };
        if let Some(other_lines) = response.header_lines.strip_prefix(TEXT_TYPE) {
            response.header_lines = [&page.type_line, other_lines].concat();
            response.body = Body::Bytes(page.content.clone());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_replaces_a_notice_and_keeps_its_other_headers() {
        let mut pages = ErrorPages::default();
        for content in ["old", "<h1>gone</h1>"] {
            pages
                .set(Status::NOT_FOUND, "text/html", content)
                .expect("valid");
        }
        assert!(pages.set(Status::NOT_FOUND, "a\nb", "").is_err());
        let notice = Response::text(Status::NOT_FOUND, "no").header("A", "b");
        let dressed = pages.dress(notice.expect("valid"));
        assert_eq!(dressed.header_lines, b"Content-Type: text/html\r\nA: b\r\n");
        assert_eq!(dressed.body.len(), 13);

        let own = Response::new(Status::NOT_FOUND).body("mine");
        assert_eq!(pages.dress(own).body.len(), 4);
        let other = Response::text(Status::FORBIDDEN, "no");
        assert!(pages.dress(other).header_lines.starts_with(TEXT_TYPE));
    }
}
