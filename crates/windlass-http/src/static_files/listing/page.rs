//! A listing for people: one table, sorted by links, without a script.

use std::fmt::{self, Display, Write};

use super::{Column, Direction, Entry, Listing, Order, iso_date};

/// The page needs its own style and nothing else; what a name may smuggle in does not run.
pub(super) const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.25rem;font-weight:600;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th,td{padding:.25rem .75rem;text-align:left;border-bottom:1px solid #8884}\
th:nth-child(2),td:nth-child(2){text-align:right}\
td:nth-child(2),td:nth-child(3){font-variant-numeric:tabular-nums;white-space:nowrap}\
td:first-child{overflow-wrap:anywhere}\
tbody tr:hover{background:#8881}\
a{text-decoration:none}a:hover{text-decoration:underline}\
th a{color:inherit}";

pub(super) fn write(listing: &Listing, order: Order) -> String {
    let mut page = String::with_capacity(2048 + listing.entries.len() * 256);
    write_page(&mut page, listing, order).expect("writing to a String does not fail");
    page
}

fn write_page(page: &mut String, listing: &Listing, order: Order) -> fmt::Result {
    let path = String::from_utf8_lossy(&listing.path);
    let slash = if path.is_empty() { "" } else { "/" };
    let title = Escaped(&path);
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>/{title}{slash}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )?;
    write_heading(page, &path)?;
    page.push_str("<table>\n<thead>\n<tr>");
    for column in Column::ALL {
        write_column(page, column, order)?;
    }
    page.push_str("</tr>\n</thead>\n<tbody>\n");
    if !listing.path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in &listing.entries {
        write_entry(page, entry)?;
    }
    page.push_str("</tbody>\n</table>\n");
    if listing.is_cut {
        let count = super::ENTRIES_MAX;
        writeln!(
            page,
            "<p>Only {count} names were read: the directory has more.</p>"
        )?;
    }
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

/// The path, each directory on the way a link.
fn write_heading(page: &mut String, path: &str) -> fmt::Result {
    page.push_str("<h1>");
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let up = |page: &mut String, count: usize| {
        page.push_str("<a href=\"");
        page.push_str(if count == 0 { "./" } else { "" });
        (0..count).for_each(|_| page.push_str("../"));
        page.push_str("\">");
    };
    up(page, names.len());
    page.push_str("/</a>");
    for (at, name) in names.iter().enumerate() {
        up(page, names.len() - 1 - at);
        write!(page, "<bdi>{}</bdi>/</a>", Escaped(name))?;
    }
    page.push_str("</h1>\n");
    Ok(())
}

/// A column's head, which sorts by it; once it does, the other way round.
fn write_column(page: &mut String, column: Column, order: Order) -> fmt::Result {
    let (aria, arrow, next) = match (column == order.column, order.direction) {
        (false, _) => ("none", "", "asc"),
        (true, Direction::Ascending) => ("ascending", " \u{25b2}", "desc"),
        (true, Direction::Descending) => ("descending", " \u{25bc}", "asc"),
    };
    let title = match column {
        Column::Modified => "Modified (UTC)",
        Column::Name => "Name",
        Column::Size => "Size",
    };
    let name = column.name();
    write!(
        page,
        "<th scope=\"col\" aria-sort=\"{aria}\">\
         <a href=\"?sort={name}&amp;order={next}\">{title}{arrow}</a></th>"
    )
}

fn write_entry(page: &mut String, entry: &Entry) -> fmt::Result {
    let name = String::from_utf8_lossy(&entry.name);
    let slash = if entry.is_directory { "/" } else { "" };
    write!(
        page,
        "<tr><td><a href=\"{}\"><bdi>{}</bdi>{slash}</a></td>",
        entry.href(),
        Escaped(&name)
    )?;
    if entry.is_directory {
        page.push_str("<td></td>");
    } else {
        write!(
            page,
            "<td title=\"{} bytes\">{}</td>",
            entry.len,
            Size(entry.len)
        )?;
    }
    let date = iso_date(entry.modified);
    // To the minute, which is what people look for.
    let (day, minute) = (&date[..10], &date[11..16]);
    writeln!(
        page,
        "<td><time datetime=\"{date}\">{day} {minute}</time></td></tr>"
    )
}

/// Text for any place in a page, within quotes too. Control characters, which a page cannot hold
/// or would not show, are replaced by their pictures.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\0'..='\x1f' => {
                    let picture = char::from_u32(0x2400 + u32::from(character));
                    f.write_char(picture.unwrap_or(char::REPLACEMENT_CHARACTER))?;
                }
                '\x7f'..='\u{9f}' => f.write_char(char::REPLACEMENT_CHARACTER)?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A length in the unit that suits it: `999 B`, `1.5 KiB`, `12 MiB`.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].iter();
        let mut unit = units.next().copied().unwrap_or_default();
        // What would be shown as 1024 is one of the next unit.
        while size >= 1023.5 {
            let Some(next) = units.next() else { break };
            size /= 1024.0;
            unit = next;
        }
        if size < 9.95 {
            write!(f, "{size:.1} {unit}")
        } else {
            write!(f, "{size:.0} {unit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_place() {
        let escaped = Escaped("<a href=\"x\" class='y'>&\n\x7f\u{80}ä").to_string();
        assert_eq!(
            escaped,
            "&lt;a href=&quot;x&quot; class=&#39;y&#39;&gt;&amp;\u{240a}\u{fffd}\u{fffd}ä"
        );
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_188, "9.9 KiB"),
            (10_240, "10 KiB"),
            (1_048_000, "1023 KiB"),
            (1_048_575, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), expected);
        }
    }

    #[test]
    fn headings_lead_up_step_by_step() {
        let mut page = String::new();
        write_heading(&mut page, "a/b").expect("written");
        assert_eq!(
            page,
            "<h1><a href=\"../../\">/</a><a href=\"../\"><bdi>a</bdi>/</a>\
             <a href=\"./\"><bdi>b</bdi>/</a></h1>\n"
        );
    }

    #[test]
    fn a_cut_listing_says_so() {
        let order = Order::of_query("");
        let mut listing = Listing::default();
        assert!(!write(&listing, order).contains("has more"));
        listing.is_cut = true;
        assert!(write(&listing, order).contains("10000 names were read: the directory has more"));
    }
}
