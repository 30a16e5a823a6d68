//! Figures for people: times, counts and sizes with three digits or so.

/// A whole number, in groups of three digits.
pub(super) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        let left = digits.len() - at;
        if at > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three digits, or all of a larger one.
pub(super) fn number(value: f64) -> String {
    let decimals = decimals(value);
    if value.abs() >= 1000.0 {
        count(value)
    } else {
        format!("{value:.decimals$}")
    }
}

fn decimals(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        // What would be rounded to the next power of ten has its decimals.
        size if size < 0.9995 => 3,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    }
}

/// A time in seconds.
pub(super) fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds <= 0.0 => return "0".to_owned(),
        // What would be rounded to 1000 is one of the next unit.
        seconds if seconds < 999.5e-6 => (seconds * 1e6, "µs"),
        seconds if seconds < 999.5e-3 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    format!("{} {unit}", number(value))
}

/// A size, in MiB.
pub(super) fn mib(bytes: f64) -> String {
    number(bytes / (1024.0 * 1024.0))
}

/// How many times as much.
pub(super) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        let all = [0.0, 999.4, 1000.0, 123_456.7, 1_234_567.0, -1234.0].map(count);
        assert_eq!(all, ["0", "999", "1,000", "123,457", "1,234,567", "-1,234"]);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let all = [0.0, 9.3e-6, 294e-6, 999.7e-6, 8.36e-3, 0.0836, 1.2].map(time);
        let expected = [
            "0", "9.30 µs", "294 µs", "1.00 ms", "8.36 ms", "83.6 ms", "1.20 s",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn numbers_have_three_digits() {
        let all = [0.0, 0.123, 4.0, 12.34, 123.4, 1234.5].map(number);
        assert_eq!(all, ["0", "0.123", "4.00", "12.3", "123", "1,234"]);
        assert_eq!(mib(12.0 * 1024.0 * 1024.0), "12.0");
        assert_eq!(ratio(0.5), "0.50");
    }
}
