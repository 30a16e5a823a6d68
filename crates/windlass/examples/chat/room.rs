//! The room: who is there, and what is to be told to whom. No I/O, no lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use windlass::session::{Notifier, Output};

/// Messages that wait for one member; more are lost to it.
const MAIL_MAX: usize = 256;
const NAME_CHARS_MAX: usize = 16;

/// A place in the room, used again when its member has left.
pub(crate) type Place = usize;

/// Everybody who has a name.
#[derive(Debug, Default)]
pub(crate) struct Room {
    members: Vec<Option<Member>>,
    free: Vec<Place>,
    names: BTreeMap<String, Place>,
}

#[derive(Debug)]
struct Member {
    name: String,
    mail: VecDeque<Arc<str>>,
    /// Messages that were lost since the mailbox was full.
    missed: u64,
    notifier: Notifier,
}

impl Room {
    /// Takes a new member in, and tells the others; or says why not.
    pub(crate) fn join(&mut self, name: &str, notifier: Notifier) -> Result<Place, &'static str> {
        self.check_name(name)?;
        let member = Member {
            name: name.to_owned(),
            mail: VecDeque::new(),
            missed: 0,
            notifier,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        self.members[place] = Some(member);
        self.names.insert(name.to_owned(), place);
        self.tell_others(place, &format!("* {name} joined"));
        Ok(place)
    }

    /// Lets a member go, and tells the others.
    pub(crate) fn leave(&mut self, place: Place) {
        if let Some(member) = self.members[place].take() {
            self.names.remove(&member.name);
            self.free.push(place);
            self.tell_others(place, &format!("* {} left", member.name));
        }
    }

    /// Gives a member another name, and tells all; or says why not.
    pub(crate) fn rename(&mut self, place: Place, name: &str) -> Result<(), &'static str> {
        self.check_name(name)?;
        let Some(member) = &mut self.members[place] else {
            return Ok(());
        };
        let before = std::mem::replace(&mut member.name, name.to_owned());
        self.names.remove(&before);
        self.names.insert(name.to_owned(), place);
        self.tell_others(place, &format!("* {before} is now {name}"));
        Ok(())
    }

    /// Tells all others what a member says.
    pub(crate) fn say(&mut self, place: Place, text: &str) {
        if let Some(member) = &self.members[place] {
            let line = format!("<{}> {text}", member.name);
            self.tell_others(place, &line);
        }
    }

    /// Tells one member what another one says; answers whether there is one of that name.
    pub(crate) fn whisper(&mut self, place: Place, to: &str, text: &str) -> bool {
        let (Some(member), Some(&to)) = (&self.members[place], self.names.get(to)) else {
            return false;
        };
        let line = format!("[{}] {text}\n", member.name).into();
        if let Some(member) = &mut self.members[to] {
            member.post(line);
        }
        true
    }

    /// The names of all, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Moves a member's mail to its output, as far as there is room; answers whether that was all.
    pub(crate) fn deliver(&mut self, place: Place, output: &mut Output) -> bool {
        let Some(member) = &mut self.members[place] else {
            return true;
        };
        while !output.is_full() {
            if let Some(line) = member.mail.pop_front() {
                output.push(line.as_bytes());
            } else if member.missed > 0 {
                output.push(format!("* you missed {} messages\n", member.missed).as_bytes());
                member.missed = 0;
            } else {
                return true;
            }
        }
        member.mail.is_empty() && member.missed == 0
    }

    fn tell_others(&mut self, place: Place, line: &str) {
        // One text for all of them.
        let line: Arc<str> = format!("{line}\n").into();
        for (other, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member
                && other != place
            {
                member.post(Arc::clone(&line));
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<(), &'static str> {
        let is_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        if !(1..=NAME_CHARS_MAX).contains(&name.chars().count()) || !name.chars().all(is_name) {
            return Err("a name has 1 to 16 letters, digits, - or _");
        }
        if self.names.contains_key(name) {
            return Err("that name is taken");
        }
        Ok(())
    }
}

impl Member {
    /// Puts a line into the mailbox, and has the session called. Once one was lost, the next ones
    /// are too until the gap was told: so it is told in its place.
    fn post(&mut self, line: Arc<str>) {
        if self.missed > 0 || self.mail.len() == MAIL_MAX {
            self.missed += 1;
        } else {
            self.mail.push_back(line);
        }
        self.notifier.notify();
    }
}
