//! Users and their passwords' hashes, from an htpasswd file.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use sha_crypt::{PasswordVerifier, ShaCrypt};

/// Who may have what a password protects. Hashes are bcrypt or SHA-crypt.
pub struct Users {
    hashes: HashMap<Vec<u8>, Hash>,
    /// Compared with the password of who is not listed, so that it takes as long.
    decoy: Hash,
}

#[derive(Clone)]
enum Hash {
    Bcrypt(String),
    Sha(String),
}

impl Users {
    /// Reads the text of an htpasswd file: a line `name:hash` for each user; empty lines and those
    /// that begin with `#` are skipped. How long a wrong password takes is the same for names that
    /// are not listed, if all hashes are of one kind and cost.
    ///
    /// # Errors
    ///
    /// If a line is none of these, a password stands there in clear or with a hash that is no
    /// protection, a name is listed twice, or nobody is.
    pub fn parse(text: &str) -> Result<Self, UsersError> {
        let mut hashes = HashMap::new();
        let mut decoy = None;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |entry| UsersError::Entry {
                line: at + 1,
                entry,
            };
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| error(BadEntry::NoColon))?;
            if name.is_empty() {
                return Err(error(BadEntry::NoName));
            }
            let hash = Hash::parse(hash).map_err(error)?;
            decoy.get_or_insert_with(|| hash.clone());
            if hashes.insert(name.as_bytes().to_vec(), hash).is_some() {
                return Err(error(BadEntry::Duplicate));
            }
        }
        match decoy {
            Some(decoy) => Ok(Self { hashes, decoy }),
            None => Err(UsersError::Nobody),
        }
    }

    /// How many users there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hashes.len()
    }

    /// Whether `name` is a user with this password. Takes as long as the hash demands, up to
    /// seconds.
    #[must_use]
    pub fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        match self.hashes.get(name) {
            Some(hash) => hash.verify(password),
            None => {
                // Its result does not matter, its duration does.
                std::hint::black_box(self.decoy.verify(password));
                false
            }
        }
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl Hash {
    fn parse(text: &str) -> Result<Self, BadEntry> {
        const BCRYPT: [&str; 3] = ["$2a$", "$2b$", "$2y$"];
        if BCRYPT.iter().any(|prefix| text.starts_with(prefix)) {
            return match text.parse::<bcrypt::HashParts>() {
                Ok(_) => Ok(Self::Bcrypt(text.into())),
                Err(_) => Err(BadEntry::Malformed),
            };
        }
        if text.starts_with("$5$") || text.starts_with("$6$") {
            let parts = text.split('$').count();
            let is_whole = matches!(parts, 4 | 5) && text.rsplit('$').next() != Some("");
            return match sha_crypt::PasswordHashRef::new(text) {
                Ok(_) if is_whole => Ok(Self::Sha(text.into())),
                _ => Err(BadEntry::Malformed),
            };
        }
        if text.starts_with("$apr1$") || text.starts_with("$1$") || text.starts_with("{SHA}") {
            return Err(BadEntry::Weak);
        }
        if text.starts_with('$') || text.starts_with('{') {
            return Err(BadEntry::Unknown);
        }
        Err(BadEntry::Clear)
    }

    /// Compares in constant time.
    fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Sha(hash) => ShaCrypt::default()
                .verify_password(password, hash.as_str())
                .is_ok(),
        }
    }
}

/// An htpasswd file that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsersError {
    /// A line is wrong.
    Entry {
        /// Which one, from 1.
        line: usize,
        /// What is wrong.
        entry: BadEntry,
    },
    /// No user is listed.
    Nobody,
}

/// What is wrong with a line of an htpasswd file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadEntry {
    /// The password stands in clear, or with the hash of DES crypt.
    Clear,
    /// The name stood in an earlier line.
    Duplicate,
    /// The hash is cut or damaged.
    Malformed,
    /// There is no colon after the name.
    NoColon,
    /// There is no name before the colon.
    NoName,
    /// The hash is of an unknown kind.
    Unknown,
    /// The hash is MD5 or SHA-1, which are guessed too fast.
    Weak,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { line, entry } => write!(f, "line {line}: {entry}"),
            Self::Nobody => f.write_str("no user is listed; add one with htpasswd -B FILE NAME"),
        }
    }
}

impl fmt::Display for BadEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear => {
                "the password stands in clear or with a DES hash; set it anew with htpasswd -B"
            }
            Self::Duplicate => "the name stood in an earlier line",
            Self::Malformed => "the hash is damaged; set the password anew with htpasswd -B",
            Self::NoColon => "there is no colon; a line is name:hash",
            Self::NoName => "there is no name before the colon",
            Self::Unknown => {
                "the hash is of an unknown kind; bcrypt ($2y$) and SHA-crypt are known"
            }
            Self::Weak => {
                "MD5 and SHA-1 hashes are guessed too fast; set the password anew with htpasswd -B"
            }
        })
    }
}

impl Error for UsersError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of "secret", each at its least cost.
    const BCRYPT: &str = "$2y$04$eCsh8nJfEyLV9cVO3t70eObOkj7IeseVsLHAP2Trs1w/UqVca8Wmq";
    const SHA_256: &str = "$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA";
    const SHA_512: &str = "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1";

    #[test]
    fn passwords_are_verified_against_each_kind_of_hash() {
        let text = format!("# users\n\na:{BCRYPT}\nb:{SHA_256}\r\nc:{SHA_512}\n");
        let users = Users::parse(&text).expect("good entries");
        assert_eq!(users.count(), 3);
        for name in ["a", "b", "c"] {
            assert!(users.verify(name.as_bytes(), b"secret"), "{name}");
            for wrong in [&b"Secret"[..], b"", b"secret\0", b"\xff"] {
                assert!(!users.verify(name.as_bytes(), wrong), "{name} {wrong:?}");
            }
        }
        assert!(!users.verify(b"d", b"secret"));
        assert!(!format!("{users:?}").contains("$2y$"));
    }

    #[test]
    fn entries_that_protect_nothing_or_are_none_are_refused_by_line() {
        for (line, entry) in [
            ("a:secret", BadEntry::Clear),
            ("a:rqXexS6ZhobKA", BadEntry::Clear),
            ("a:", BadEntry::Clear),
            ("a:$apr1$lZL6V/ci$eIMz/iKDkbtys/uU7LEK00", BadEntry::Weak),
            ("a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", BadEntry::Weak),
            (
                "a:$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA",
                BadEntry::Unknown,
            ),
            ("a:$2y$05$short", BadEntry::Malformed),
            ("a:$6$", BadEntry::Malformed),
            ("a:$6$salt", BadEntry::Malformed),
            ("a:$6$salt$", BadEntry::Malformed),
            ("a", BadEntry::NoColon),
            (":x", BadEntry::NoName),
        ] {
            let text = format!("z:{BCRYPT}\n\n{line}\n");
            let error = Users::parse(&text).expect_err(line);
            assert_eq!(error, UsersError::Entry { line: 3, entry }, "{line}");
            assert!(!error.to_string().contains("secret"));
        }
        let twice = format!("a:{BCRYPT}\na:{BCRYPT}\n");
        let entry = BadEntry::Duplicate;
        assert_eq!(
            Users::parse(&twice).unwrap_err(),
            UsersError::Entry { line: 2, entry }
        );
        assert_eq!(Users::parse("# nobody\n").unwrap_err(), UsersError::Nobody);
    }
}
