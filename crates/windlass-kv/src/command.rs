//! Commands: the table of names, and the call of one.

mod connection;
mod expiry;
mod keys;
mod server;
mod strings;
mod table;

use crate::client::Client;
use crate::parser::Args;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::store::Access;

pub(crate) use self::table::COMMANDS;

/// A command that is known.
#[derive(Debug)]
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// How many arguments it has, the name included; negative: at least so many.
    pub(crate) arity: i32,
    /// As Redis tells them.
    pub(crate) flags: &'static [&'static str],
    /// Its first key, its last one (from the end, if negative), and the step between them.
    pub(crate) keys: [i64; 3],
    pub(crate) group: &'static str,
    pub(crate) since: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) run: Run,
}

/// Does a command, and answers it unless it is refused.
pub(crate) type Run = for<'c, 's> fn(&mut Call<'c, 's>) -> Answer<'c>;

/// What a command comes to.
pub(crate) type Answer<'c> = Result<(), Refusal<'c>>;

/// What a command works on.
pub(crate) struct Call<'c, 's> {
    pub(crate) args: Args<'c>,
    pub(crate) access: &'c mut Access<'s>,
    pub(crate) client: &'c mut Client,
    pub(crate) reply: Reply<'c>,
    pub(crate) command: &'static Command,
    pub(crate) now_ms: u64,
}

impl Command {
    /// Finds a command by its name, in any case. `last` is a guess: clients repeat themselves.
    #[inline]
    pub(crate) fn find(name: &[u8], last: &'static Self) -> Option<&'static Self> {
        if name.eq_ignore_ascii_case(last.name.as_bytes()) {
            return Some(last);
        }
        Self::look_up(name)
    }

    fn look_up(name: &[u8]) -> Option<&'static Self> {
        let mut place = [0; 16];
        let lower = place.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower));
        at.ok().map(|at| &COMMANDS[at])
    }

    /// Whether it takes so many arguments.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            count >= wanted
        } else {
            count == wanted
        }
    }
}

impl<'c> Call<'c, '_> {
    /// A number among the arguments.
    fn integer(&self, index: usize) -> Result<i64, Refusal<'c>> {
        crate::integer::parse(self.args.at(index)).ok_or(Refusal::NotAnInteger)
    }

    /// A key that may be stored.
    #[inline]
    fn new_key(&self, index: usize) -> Result<&'c [u8], Refusal<'c>> {
        let key = self.args.at(index);
        if key.len() > self.access.store().config().key_bytes_max {
            return Err(Refusal::KeyTooLong);
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_every_name_is_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|one, other| one.name < other.name));
        for command in COMMANDS {
            for name in [command.name.to_owned(), command.name.to_ascii_uppercase()] {
                let found = Command::find(name.as_bytes(), &COMMANDS[0]).expect("known");
                assert_eq!(found.name, command.name);
            }
        }
        for name in ["", "ge", "gett", "a name that is too long"] {
            assert!(Command::find(name.as_bytes(), &COMMANDS[0]).is_none());
        }
    }
}
