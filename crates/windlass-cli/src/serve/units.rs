//! Values as people write them: durations, sizes, counts, header lines, error pages.
//!
//! Each type has one text form, which flags ([`FromStr`]) and the configuration file share, and
//! prints itself in it ([`Display`](fmt::Display)).

use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use windlass::models::ModelKind;

/// A duration: `30s`, `5m`, `1h 30m`, `250ms`, or a number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// A time limit: a [`Span`], or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeLimit(pub(crate) Option<Duration>);

/// A size: `16KiB`, `1MiB`, `10kB`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// On or off: `on` and `off` in flags, `true` and `false` in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Switch {
    #[default]
    Off,
    On,
}

/// The concurrency model that serves, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) ModelKind);

/// How many threads serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One per core.
    Auto,
    /// So many, 1 to 1024.
    Count(usize),
}

/// The permission bits of a socket in the file system: `0660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMode(pub(crate) u32);

/// A header that is added to answers: `Name: value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderLine {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A page in place of the plain text of an error: `404=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorPage {
    pub(crate) status: u16,
    pub(crate) file: PathBuf,
}

/// A coding that answers are compressed with, and its level: `br:5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodingLevel {
    pub(crate) coding: Coding,
    pub(crate) level: u32,
}

/// A content coding, by the name that it has in HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Brotli,
    Gzip,
    Zstd,
}

/// The most threads that make sense on any machine.
const THREADS_MAX: usize = 1024;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let duration = match text.parse::<u32>() {
            Ok(seconds) => Duration::from_secs(seconds.into()),
            Err(_) => humantime::parse_duration(text)
                .map_err(|_| format!("{text:?} is not a duration; write 30s, 5m or 250ms"))?,
        };
        if duration > LONGEST {
            return Err(format!("{text:?} is longer than ten years"));
        }
        Ok(Self(duration))
    }
}

/// Beyond this, adding to a clock is not meant.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self(None));
        }
        match text.parse::<Span>() {
            Ok(span) => Ok(Self(Some(span.0))),
            Err(error) => Err(format!("{error}, or off")),
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(duration) => Span(duration).fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<bytesize::ByteSize>() {
            Ok(size) => Ok(Self(size.as_u64())),
            Err(_) => Err(format!("{text:?} is not a size; write 16KiB, 1MiB or 4096")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 >= unit && self.0.is_multiple_of(unit) {
                return write!(f, "{}{name}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" | "false" => Ok(Self::Off),
            "on" | "true" => Ok(Self::On),
            _ => Err(format!("{text:?} is neither on nor off")),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "false",
            Self::On => "true",
        })
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(kind) => Ok(Self(kind)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(count @ 1..=THREADS_MAX) => Ok(Self::Count(count)),
            _ => Err(format!("{text:?} is neither auto nor 1 to {THREADS_MAX}")),
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for FileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match u32::from_str_radix(text, 8) {
            Ok(mode @ 0..=0o777) if text.len() >= 3 => Ok(Self(mode)),
            _ => Err(format!(
                "{text:?} are not permission bits; write three octal digits, as in 0660"
            )),
        }
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for HeaderLine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((name, value)) = text.split_once(':') else {
            return Err(format!("{text:?} has no colon; write 'Name: value'"));
        };
        let (name, value) = (name.to_owned(), value.trim().to_owned());
        // What checks an answer's headers checks these.
        windlass_http::Response::new(windlass_http::Status::OK)
            .header(&name, &value)
            .map_err(|error| format!("{text:?} cannot be sent: {error}"))?;
        Ok(Self { name, value })
    }
}

impl fmt::Display for HeaderLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

impl FromStr for ErrorPage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('=');
        let parts = parts.map(|(status, file)| (status.parse(), file));
        match parts {
            Some((Ok(status @ 400..=599), file)) if !file.is_empty() => Ok(Self {
                status,
                file: PathBuf::from(file),
            }),
            _ => Err(format!(
                "{text:?} is not STATUS=FILE with a status of 400 to 599, as in 404=missing.html"
            )),
        }
    }
}

impl fmt::Display for ErrorPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.status, self.file.display())
    }
}

impl FromStr for CodingLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("{text:?} is not CODING:LEVEL; write br:0..11, gzip:0..9 or zstd:1..19");
        let (coding, level) = text.split_once(':').ok_or_else(wrong)?;
        let (coding, levels) = match coding {
            "br" => (Coding::Brotli, 0..=11),
            "gzip" => (Coding::Gzip, 0..=9),
            "zstd" => (Coding::Zstd, 1..=19),
            _ => return Err(wrong()),
        };
        match level.parse() {
            Ok(level) if levels.contains(&level) => Ok(Self { coding, level }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for CodingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coding = match self.coding {
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        };
        write!(f, "{coding}:{}", self.level)
    }
}

/// Takes text, and numbers as if they were text.
struct Written<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.visit_str(if value { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

macro_rules! read_as_text {
    ($($name:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(Written(PhantomData))
            }
        }
    )+};
}

read_as_text!(
    CodingLevel,
    ErrorPage,
    FileMode,
    HeaderLine,
    Model,
    Size,
    Span,
    Switch,
    Threads,
    TimeLimit
);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read is printed the same, or in the form that is given.
    fn check<T>(written: &[(&str, &str)], wrong: &[&str])
    where
        T: FromStr<Err = String> + fmt::Display + fmt::Debug,
    {
        for (text, printed) in written {
            let value: T = text.parse().unwrap();
            assert_eq!(value.to_string(), *printed, "{text}");
            let again: T = printed.parse().unwrap();
            assert_eq!(again.to_string(), *printed);
        }
        for text in wrong {
            let error = text.parse::<T>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn values_are_read_as_people_write_them_and_printed_to_be_read_again() {
        check::<Span>(
            &[
                ("30", "30s"),
                ("5m", "5m"),
                ("90s", "1m 30s"),
                ("250ms", "250ms"),
                ("0", "0s"),
            ],
            &["", "-1", "1x", "off", "4000000000000000000", "11years"],
        );
        check::<TimeLimit>(&[("off", "off"), ("2h", "2h")], &["", "never"]);
        check::<Size>(
            &[
                ("16KiB", "16KiB"),
                ("1048576", "1MiB"),
                ("10kB", "10000"),
                ("1.5 MiB", "1536KiB"),
            ],
            &["", "-1", "1x", "KiB"],
        );
        check::<Switch>(&[("on", "true"), ("false", "false")], &["", "yes"]);
        check::<Model>(
            &[("single-loop", "single-loop")],
            &["actor", "", "SingleLoop"],
        );
        check::<Threads>(
            &[("auto", "auto"), ("8", "8")],
            &["0", "-1", "many", "1025"],
        );
        check::<FileMode>(
            &[("660", "0660"), ("0777", "0777")],
            &["7", "0888", "1777", ""],
        );
        check::<HeaderLine>(
            &[("X-A: b", "X-A: b"), ("X-A:b", "X-A: b"), ("X-A:", "X-A: ")],
            &[
                "X-A",
                ": b",
                "X A: b",
                "X-A: b\r\nc: d",
                "Content-Length: 5",
            ],
        );
        check::<CodingLevel>(
            &[
                ("br:11", "br:11"),
                ("gzip:0", "gzip:0"),
                ("zstd:1", "zstd:1"),
            ],
            &[
                "",
                "br",
                "br:",
                "br:12",
                "gzip:10",
                "gzip:-1",
                "zstd:0",
                "zstd:20",
                "deflate:1",
            ],
        );
        check::<ErrorPage>(
            &[("404=a.html", "404=a.html"), ("500=/x=y", "500=/x=y")],
            &["404", "200=a", "x=a", "404="],
        );
    }
}
