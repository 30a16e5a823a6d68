//! Metrics of the process, under the names that Prometheus' clients use, from proc(5).

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use windlass_sys::limits::descriptor_limit;

use super::page::{Kind, Page};

/// Appends what can be found out.
pub(super) fn write(page: &mut Page) {
    if let Ok(entries) = fs::read_dir("/proc/self/fd") {
        // The directory that is read is one of them.
        let open = entries.count().saturating_sub(1);
        page.single(
            "process_open_fds",
            Kind::Gauge,
            "Descriptors that are open.",
            open,
        );
    }
    if let Some(limit) = descriptor_limit().soft {
        page.single(
            "process_max_fds",
            Kind::Gauge,
            "Descriptors that may be open.",
            limit,
        );
    }
    let Some(stat) = fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| Stat::parse(&text))
    else {
        return;
    };
    // Ticks are far below 2^53.
    let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
    page.single(
        "process_cpu_seconds_total",
        Kind::Counter,
        "Processor time, of user and system.",
        seconds(stat.cpu_ticks),
    );
    page.single(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Memory that is resident.",
        stat.resident_pages * page_size() as u64,
    );
    page.single(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "Memory that is mapped.",
        stat.virtual_bytes,
    );
    page.single("process_threads", Kind::Gauge, "Threads.", stat.threads);
    if let Some(boot) = fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| boot_time(&text))
    {
        page.single(
            "process_start_time_seconds",
            Kind::Gauge,
            "When the process started, since 1970.",
            boot as f64 + seconds(stat.start_ticks),
        );
    }
}

/// Fields of /proc/self/stat.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may have blanks in it; the third field follows.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the system started, in seconds since 1970.
fn boot_time(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_blanks() {
        let text =
            "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 3 0 1234 9000 56 18\n";
        let expected = Stat {
            cpu_ticks: 12,
            threads: 3,
            start_ticks: 1234,
            virtual_bytes: 9000,
            resident_pages: 56,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        assert_eq!(Stat::parse("42 (a"), None);
        assert_eq!(boot_time("cpu 1\nbtime 17\n"), Some(17));
    }
}
