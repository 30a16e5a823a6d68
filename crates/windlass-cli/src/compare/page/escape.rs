//! Text within HTML and SVG.

/// `text` as text or within a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Neither is allowed in a page, whatever a terminal or a file name holds.
            control if control.is_control() && control != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        let text = "<script>alert('x' & \"y\")</script>\u{1b}[0m\n";
        let expected =
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;\u{fffd}[0m\n";
        assert_eq!(escape(text), expected);
        assert_eq!(escape("99.9 % of µs"), "99.9 % of µs");
    }
}
