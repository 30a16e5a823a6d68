//! One event and its form on the wire (WHATWG HTML, section 9.2.5).

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// An event to be sent.
///
/// ```
/// let event = windlass_http::Event::new("21.5 °C").event("temperature").id("42");
/// assert_eq!(event.encode()?.as_ref(), "event: temperature\nid: 42\ndata: 21.5 °C\n\n".as_bytes());
/// # Ok::<(), windlass_http::EventError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    data: Option<&'a str>,
    event: Option<&'a str>,
    id: Option<&'a str>,
    retry: Option<Duration>,
}

/// An event in the form in which it is sent. Cheap to clone: the bytes are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedEvent(Bytes);

/// Why an event can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventError {
    /// The name of the event has a line end.
    Event,
    /// The id has a line end or a NUL, with which a client would ignore it.
    Id,
}

impl<'a> Event<'a> {
    /// An event with `data`, which may have several lines. Each of CR, LF and CR LF ends one; the
    /// client sees LF.
    #[must_use]
    pub fn new(data: &'a str) -> Self {
        Self {
            data: Some(data),
            ..Self::default()
        }
    }

    /// Sets the name of the event: for which listeners of the client it is. Without one it is
    /// `message`.
    #[must_use]
    pub fn event(self, event: &'a str) -> Self {
        Self {
            event: Some(event),
            ..self
        }
    }

    /// Sets the id, which the client tells when it connects again. An empty one has it tell none.
    #[must_use]
    pub fn id(self, id: &'a str) -> Self {
        Self {
            id: Some(id),
            ..self
        }
    }

    /// Sets how long the client waits before it connects again; whole milliseconds.
    #[must_use]
    pub fn retry(self, retry: Duration) -> Self {
        Self {
            retry: Some(retry),
            ..self
        }
    }

    /// Writes the event. One without data ([`Event::default`]) is not dispatched by the client, but
    /// its id and its retry count.
    ///
    /// # Errors
    ///
    /// If name or id has a byte that it can't have.
    pub fn encode(&self) -> Result<EncodedEvent, EventError> {
        let mut text = String::new();
        if let Some(event) = self.event {
            if event.contains(['\r', '\n']) {
                return Err(EventError::Event);
            }
            push_field(&mut text, "event", event);
        }
        if let Some(id) = self.id {
            if id.contains(['\r', '\n', '\0']) {
                return Err(EventError::Id);
            }
            push_field(&mut text, "id", id);
        }
        if let Some(retry) = self.retry {
            push_field(&mut text, "retry", &retry.as_millis().to_string());
        }
        let mut rest = self.data;
        while let Some(data) = rest {
            let (line, next) = split_line(data);
            push_field(&mut text, "data", line);
            rest = next;
        }
        text.push('\n');
        Ok(EncodedEvent(text.into()))
    }
}

impl EncodedEvent {
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl AsRef<[u8]> for EncodedEvent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "write an event whose name has a line end",
            Self::Id => "write an event whose id has a line end or a NUL",
        })
    }
}

impl Error for EventError {}

fn push_field(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    // The client drops one blank, so that a value may begin with one.
    text.push_str(": ");
    text.push_str(value);
    text.push('\n');
}

/// The first line of `data`, and what follows if it ended with a line end.
fn split_line(data: &str) -> (&str, Option<&str>) {
    let Some(at) = data.find(['\r', '\n']) else {
        return (data, None);
    };
    let (line, end) = data.split_at(at);
    let rest = end.strip_prefix("\r\n").unwrap_or_else(|| &end[1..]);
    (line, Some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: Event<'_>) -> String {
        let encoded = event.encode().expect("valid");
        String::from_utf8(encoded.as_ref().to_vec()).expect("UTF-8")
    }

    /// What a client makes of a stream: the fields of each event, by the rules of section 9.2.6.
    fn parse(stream: &str) -> Vec<(String, String)> {
        let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
        let mut found = Vec::new();
        let (mut event, mut data) = (String::new(), String::new());
        for line in stream.split('\n') {
            if line.is_empty() {
                if !data.is_empty() {
                    data.pop();
                    found.push((event.clone(), data.clone()));
                }
                (event, data) = (String::new(), String::new());
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => event = value.to_owned(),
                "data" => data = data + value + "\n",
                _ => {}
            }
        }
        found
    }

    #[test]
    fn each_line_of_the_data_is_a_field_and_arrives_as_it_was() {
        for (data, seen) in [
            ("", ""),
            ("a", "a"),
            (" a ", " a "),
            ("a\nb", "a\nb"),
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("\n\n", "\n\n"),
            ("\r\r\n\n", "\n\n\n"),
            ("event: x", "event: x"),
            ("a\n\ndata: forged\n\n", "a\n\ndata: forged\n\n"),
            (":", ":"),
            ("ä\u{2028}b\0", "ä\u{2028}b\0"),
        ] {
            let event = Event::new(data).event("e");
            assert_eq!(
                parse(&text(event)),
                [("e".to_owned(), seen.to_owned())],
                "{data:?}"
            );
        }
    }

    #[test]
    fn all_fields_have_this_form() {
        let event = Event::new("x\ny")
            .event("e")
            .id("")
            .retry(Duration::from_secs(2));
        assert_eq!(
            text(event),
            "event: e\nid: \nretry: 2000\ndata: x\ndata: y\n\n"
        );
        assert_eq!(text(Event::default().id("1")), "id: 1\n\n");
    }

    #[test]
    fn line_ends_in_name_and_id_are_errors() {
        for bad in ["a\nb", "a\rb", "\r\n", "a\ndata: forged"] {
            assert_eq!(Event::new("").event(bad).encode(), Err(EventError::Event));
            assert_eq!(Event::new("").id(bad).encode(), Err(EventError::Id));
        }
        assert_eq!(Event::new("").id("a\0").encode(), Err(EventError::Id));
    }
}
