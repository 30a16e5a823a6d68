//! Integers as the protocol writes them: one spelling each.

/// Reads a signed number in its only spelling: no sign but a minus, no leading zero, no space.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        // Towards the sign, as the smallest number has no positive counterpart.
        value = if is_negative {
            value.checked_sub(digit)?
        } else {
            value.checked_add(digit)?
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_spellings_are_none() {
        for text in [
            "", "-", "+1", "01", "-0", " 1", "1 ", "1a", "--1", "1-", "00",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"9223372036854775808"), None);
        assert_eq!(parse(b"-9223372036854775809"), None);
        assert_eq!(parse(b"99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn every_number_is_read_back(number: i64) {
            prop_assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn what_is_read_is_spelled_so(text in "[-+ 0-9]{0,21}") {
            if let Some(number) = parse(text.as_bytes()) {
                prop_assert_eq!(number.to_string(), text);
            }
        }
    }
}
