//! Tables of the page.

use super::escape::escape;

/// A table: a heading for each column, and rows of which the first cell is the heading.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Entry>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// More about it, shown to who points at it.
    pub(super) hint: &'static str,
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    text: String,
    /// What it is sorted by.
    value: Option<f64>,
    class: &'static str,
    hint: String,
}

impl Entry {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub(super) fn number(value: f64, show: fn(f64) -> String) -> Self {
        Self {
            text: show(value),
            value: Some(value),
            ..Self::default()
        }
    }

    /// Nothing, and why.
    pub(super) fn missing(why: impl Into<String>) -> Self {
        Self {
            text: "–".into(),
            class: "none",
            hint: why.into(),
            ..Self::default()
        }
    }

    pub(super) fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: hint.into(),
            ..self
        }
    }
}

impl Grid {
    /// The table under its caption, in a frame that scrolls if it is too wide.
    pub(super) fn html(&self, class: &str) -> String {
        let caption = escape(&self.caption);
        let mut out = format!(
            "<h4>{caption}</h4>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"{caption}\"><table class=\"{class}\" aria-label=\"{caption}\">\n\
             <thead><tr>"
        );
        for column in &self.columns {
            let hint = attribute("title", column.hint);
            out.push_str(&format!(
                "<th scope=\"col\"{hint}>{}</th>",
                escape(column.head)
            ));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (at, entry) in row.iter().enumerate() {
                out.push_str(&entry.html(at == 0));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

impl Entry {
    fn html(&self, is_head: bool) -> String {
        let (tag, scope) = match is_head {
            true => ("th", " scope=\"row\""),
            false => ("td", ""),
        };
        let class = attribute("class", self.class);
        let hint = attribute("title", &self.hint);
        let value = self.value.map(|value| format!(" data-v=\"{value}\""));
        format!(
            "<{tag}{scope}{class}{hint}{}>{}</{tag}>",
            value.unwrap_or_default(),
            escape(&self.text)
        )
    }
}

fn attribute(name: &str, value: &str) -> String {
    match value {
        "" => String::new(),
        value => format!(" {name}=\"{}\"", escape(value)),
    }
}
