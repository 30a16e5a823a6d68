//! Patterns of key names: `*`, `?`, `[abc]`, `[a-z]`, `[^a]`, `\` before a literal byte.
//!
//! A star only ever needs to be tried again from the last one, so the time is at most the product
//! of the two lengths.

/// Whether all of `name` matches `pattern`.
pub(crate) fn matches(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // Behind the last star, and the rest of the name it was tried with.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            star = Some((rest, name));
            continue;
        }
        let step = match name.split_first() {
            None if pattern.is_empty() => return true,
            // A longer share for the star leaves even less.
            None => return false,
            Some((&byte, rest)) => match_one(pattern, byte).map(|pattern| (pattern, rest)),
        };
        if let Some(step) = step {
            (pattern, name) = step;
        } else if let Some((behind, [_, rest @ ..])) = star {
            star = Some((behind, rest));
            (pattern, name) = (behind, rest);
        } else {
            return false;
        }
    }
}

/// Whether the first element of the pattern, not a star, matches `byte`; answers what is behind it.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', set @ ..] => match_set(set, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// As [`match_one`], for what follows a bracket. A set that is not closed goes to the end.
fn match_set(set: &[u8], byte: u8) -> Option<&[u8]> {
    let (mut set, is_negated) = match set {
        [b'^', rest @ ..] => (rest, true),
        _ => (set, false),
    };
    let mut is_in = false;
    loop {
        set = match set {
            [] => break,
            [b']', rest @ ..] => {
                set = rest;
                break;
            }
            [b'\\', literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
            [one, b'-', other, rest @ ..] => {
                let (low, high) = (one.min(other), one.max(other));
                is_in |= (low..=high).contains(&&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_in |= *literal == byte;
                rest
            }
        };
    }
    (is_in != is_negated).then_some(set)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_element_matches_what_it_says() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("\\", "\\", true),
            ("[ab", "b", true),
            ("[^", "b", true),
            ("*[0-9]", "key:12", true),
            ("*:*:*", "a:b", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(2_000).as_bytes()));
    }

    /// Tries every share for every star.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => (0..=name.len()).any(|share| naive(rest, &name[share..])),
            _ => name.split_first().is_some_and(|(&byte, left)| {
                match_one(pattern, byte).is_some_and(|rest| naive(rest, left))
            }),
        }
    }

    proptest! {
        #[test]
        fn as_when_every_share_is_tried(pattern in "[ab*?\\[\\]^\\\\-]{0,8}", name in "[ab]{0,8}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(pattern, name), naive(pattern, name));
        }
    }
}
