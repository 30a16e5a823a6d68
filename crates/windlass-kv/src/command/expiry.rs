//! Commands on deadlines.

use super::{Answer, Call};
use crate::refusal::Refusal;

/// What a number of an expiry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    ms: i64,
    /// Whether it is a time, counted since 1970.
    is_absolute: bool,
}

impl Unit {
    pub(super) const SECONDS: Self = Self::new(1000, false);
    pub(super) const MILLISECONDS: Self = Self::new(1, false);
    const UNIX_SECONDS: Self = Self::new(1000, true);
    const UNIX_MILLISECONDS: Self = Self::new(1, true);

    const fn new(ms: i64, is_absolute: bool) -> Self {
        Self { ms, is_absolute }
    }

    /// Of an option of SET.
    pub(super) fn of_option(name: &[u8]) -> Option<Self> {
        let options = [
            ("ex", Self::SECONDS),
            ("px", Self::MILLISECONDS),
            ("exat", Self::UNIX_SECONDS),
            ("pxat", Self::UNIX_MILLISECONDS),
        ];
        let mut options = options.into_iter();
        let found = options.find(|(option, _)| name.eq_ignore_ascii_case(option.as_bytes()));
        found.map(|(_, unit)| unit)
    }
}

/// The deadline in milliseconds since 1970, unless it is out of range; may be in the past.
pub(super) fn deadline_ms(number: i64, unit: Unit, now_ms: u64) -> Option<i64> {
    let base = if unit.is_absolute {
        0
    } else {
        i64::try_from(now_ms).ok()?
    };
    number.checked_mul(unit.ms)?.checked_add(base)
}

pub(super) fn expire<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_deadline(call, Unit::SECONDS)
}

pub(super) fn expireat<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_deadline(call, Unit::UNIX_SECONDS)
}

pub(super) fn pexpire<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_deadline(call, Unit::MILLISECONDS)
}

pub(super) fn pexpireat<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_deadline(call, Unit::UNIX_MILLISECONDS)
}

/// Under which conditions a deadline is changed.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    is_absent: bool,
    is_present: bool,
    is_later: bool,
    is_earlier: bool,
}

impl Conditions {
    fn parse<'c>(args: impl Iterator<Item = &'c [u8]>) -> Result<Self, Refusal<'c>> {
        let mut conditions = Self::default();
        for option in args {
            let condition = match &option.to_ascii_lowercase()[..] {
                b"nx" => &mut conditions.is_absent,
                b"xx" => &mut conditions.is_present,
                b"gt" => &mut conditions.is_later,
                b"lt" => &mut conditions.is_earlier,
                _ => return Err(Refusal::UnknownExpireOption(option)),
            };
            *condition = true;
        }
        let has_others = conditions.is_present || conditions.is_later || conditions.is_earlier;
        if conditions.is_absent && has_others {
            return Err(Refusal::ExpireOptionsExclude("NX and XX, GT or LT"));
        }
        if conditions.is_later && conditions.is_earlier {
            return Err(Refusal::ExpireOptionsExclude("GT and LT"));
        }
        Ok(conditions)
    }

    /// Whether they allow `after` in place of `before`. No deadline is later than any.
    fn allow(self, before: Option<i64>, after: i64) -> bool {
        !(self.is_absent && before.is_some()
            || self.is_present && before.is_none()
            || self.is_later && before.is_none_or(|before| after <= before)
            || self.is_earlier && before.is_some_and(|before| after >= before))
    }
}

fn set_deadline<'c>(call: &mut Call<'c, '_>, unit: Unit) -> Answer<'c> {
    let conditions = Conditions::parse(call.args.from(3))?;
    let number = call.integer(2)?;
    let after =
        deadline_ms(number, unit, call.now_ms).ok_or(Refusal::InvalidExpire(call.command.name))?;
    let (shard, key) = call.access.shard(call.args.at(1));
    let Some(place) = shard.find(key, call.now_ms) else {
        call.reply.integer(0);
        return Ok(());
    };
    // A deadline was made of a signed number.
    let before = shard.deadline_ms(place).map(|before| before as i64);
    if !conditions.allow(before, after) {
        call.reply.integer(0);
        return Ok(());
    }
    match u64::try_from(after) {
        Ok(deadline_ms) if deadline_ms > call.now_ms => {
            shard.set_deadline(place, Some(deadline_ms));
            call.access.note_deadline(deadline_ms);
        }
        // It is over.
        _ => drop(shard.remove(place)),
    }
    call.reply.integer(1);
    Ok(())
}

pub(super) fn persist<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    let place = shard.find(key, call.now_ms);
    let place = place.filter(|&place| shard.deadline_ms(place).is_some());
    if let Some(place) = place {
        shard.set_deadline(place, None);
    }
    call.reply.integer(i64::from(place.is_some()));
    Ok(())
}

pub(super) fn ttl<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let now_ms = call.now_ms;
    tell_deadline(call, |deadline_ms| to_seconds(deadline_ms - now_ms))
}

pub(super) fn pttl<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let now_ms = call.now_ms;
    tell_deadline(call, |deadline_ms| deadline_ms - now_ms)
}

pub(super) fn expiretime<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    tell_deadline(call, to_seconds)
}

pub(super) fn pexpiretime<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    tell_deadline(call, |deadline_ms| deadline_ms)
}

/// Rounded to the nearest.
fn to_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}

/// Answers what `tell` makes of a key's deadline, which is not over.
fn tell_deadline<'c>(call: &mut Call<'c, '_>, tell: impl FnOnce(u64) -> u64) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    let number = match shard.find(key, call.now_ms) {
        None => -2,
        Some(place) => match shard.deadline_ms(place) {
            None => -1,
            Some(deadline_ms) => i64::try_from(tell(deadline_ms)).unwrap_or(i64::MAX),
        },
    };
    call.reply.integer(number);
    Ok(())
}
