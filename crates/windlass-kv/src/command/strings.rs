//! Commands on values.

use super::expiry::{Unit, deadline_ms};
use super::{Answer, Call};
use crate::integer;
use crate::refusal::Refusal;
use crate::store::SetDeadline;

pub(super) fn get<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    match shard.get(key, call.now_ms) {
        Some(value) => call.reply.value(value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn mget<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let keys = call.args.from(1);
    call.access.lock_all_of(keys.clone());
    call.reply.array(call.args.len() - 1);
    for key in keys {
        let (shard, key) = call.access.shard(key);
        match shard.get(key, call.now_ms) {
            Some(value) => call.reply.value(value),
            None => call.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn strlen<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    let value = shard.get(key, call.now_ms);
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

pub(super) fn set<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    if call.args.len() > 3 {
        return set_with_options(call);
    }
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    shard.set(key, call.args.at(2), SetDeadline::Never);
    call.reply.ok();
    Ok(())
}

/// What a SET does beside setting.
#[derive(Debug, Default)]
struct SetOptions<'c> {
    gets: bool,
    keeps_deadline: bool,
    condition: Option<Condition>,
    time: Option<(Unit, &'c [u8])>,
}

/// Whether the key must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Absent,
    Present,
}

impl<'c> SetOptions<'c> {
    fn parse(mut args: impl Iterator<Item = &'c [u8]>) -> Result<Self, Refusal<'c>> {
        let mut options = Self::default();
        while let Some(option) = args.next() {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if is("nx") && options.condition != Some(Condition::Present) {
                options.condition = Some(Condition::Absent);
            } else if is("xx") && options.condition != Some(Condition::Absent) {
                options.condition = Some(Condition::Present);
            } else if is("get") {
                options.gets = true;
            } else if is("keepttl") && options.time.is_none() {
                options.keeps_deadline = true;
            } else if let Some(unit) = Unit::of_option(option)
                && !options.keeps_deadline
                && options.time.is_none_or(|(other, _)| other == unit)
            {
                // The same one may be said again, and the last time counts.
                options.time = Some((unit, args.next().ok_or(Refusal::Syntax)?));
            } else {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }
}

#[cold]
fn set_with_options<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let options = SetOptions::parse(call.args.from(3))?;
    let deadline = match options.time {
        Some((unit, text)) => {
            let number = integer::parse(text).ok_or(Refusal::NotAnInteger)?;
            SetDeadline::At(end_of_life(call, number, unit)?)
        }
        None if options.keeps_deadline => SetDeadline::Keep,
        None => SetDeadline::Never,
    };
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    let place = shard.find(key, call.now_ms);
    if options.gets {
        match place {
            Some(place) => call.reply.value(shard.value(place)),
            None => call.reply.null(),
        }
    }
    let is_met = match options.condition {
        None => true,
        Some(Condition::Absent) => place.is_none(),
        Some(Condition::Present) => place.is_some(),
    };
    if is_met {
        shard.set(key, call.args.at(2), deadline);
        if let SetDeadline::At(deadline_ms) = deadline {
            call.access.note_deadline(deadline_ms);
        }
    }
    match (options.gets, is_met) {
        (true, _) => {}
        (false, true) => call.reply.ok(),
        (false, false) => call.reply.null(),
    }
    Ok(())
}

/// When a value ends that lives for, or until, `number`, which must be positive.
fn end_of_life<'c>(call: &Call<'c, '_>, number: i64, unit: Unit) -> Result<u64, Refusal<'c>> {
    let end = (number > 0).then(|| deadline_ms(number, unit, call.now_ms));
    end.flatten()
        .and_then(|end| u64::try_from(end).ok())
        .ok_or(Refusal::InvalidExpire(call.command.name))
}

pub(super) fn setex<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_for(call, Unit::SECONDS)
}

pub(super) fn psetex<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    set_for(call, Unit::MILLISECONDS)
}

fn set_for<'c>(call: &mut Call<'c, '_>, unit: Unit) -> Answer<'c> {
    let number = call.integer(2)?;
    let deadline_ms = end_of_life(call, number, unit)?;
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    shard.set(key, call.args.at(3), SetDeadline::At(deadline_ms));
    call.access.note_deadline(deadline_ms);
    call.reply.ok();
    Ok(())
}

pub(super) fn setnx<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    let is_absent = shard.find(key, call.now_ms).is_none();
    if is_absent {
        shard.set(key, call.args.at(2), SetDeadline::Never);
    }
    call.reply.integer(i64::from(is_absent));
    Ok(())
}

pub(super) fn getset<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    match shard.get(key, call.now_ms) {
        Some(value) => call.reply.value(value),
        None => call.reply.null(),
    }
    shard.set(key, call.args.at(2), SetDeadline::Never);
    Ok(())
}

pub(super) fn getdel<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (shard, key) = call.access.shard(call.args.at(1));
    match shard.find(key, call.now_ms) {
        Some(place) => call.reply.value(&shard.remove(place)),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn mset<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let count = call.args.len();
    if count.is_multiple_of(2) {
        return Err(Refusal::WrongArity(call.command.name));
    }
    // All or nothing: each is looked at before the first is set.
    for index in (1..count).step_by(2) {
        call.new_key(index)?;
    }
    let keys = call.args.from(1).step_by(2);
    call.access.lock_all_of(keys.clone());
    for (key, value) in keys.zip(call.args.from(2).step_by(2)) {
        let (shard, key) = call.access.shard(key);
        shard.set(key, value, SetDeadline::Never);
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn append<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let (key, more) = (call.new_key(1)?, call.args.at(2));
    let len_max = call.access.store().config().bulk_bytes_max;
    let (shard, key) = call.access.shard(key);
    let len = match shard.find(key, call.now_ms) {
        Some(place) => {
            let value = shard.value_mut(place);
            if value.len() + more.len() > len_max {
                return Err(Refusal::TooLong);
            }
            value.append(more);
            value.len()
        }
        None => {
            shard.set(key, more, SetDeadline::Never);
            more.len()
        }
    };
    call.reply.count(len);
    Ok(())
}

pub(super) fn incr<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    add(call, 1)
}

pub(super) fn decr<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    add(call, -1)
}

pub(super) fn incrby<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let number = call.integer(2)?;
    add(call, number)
}

pub(super) fn decrby<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let number = call.integer(2)?;
    add(
        call,
        number.checked_neg().ok_or(Refusal::DecrementOverflow)?,
    )
}

fn add<'c>(call: &mut Call<'c, '_>, number: i64) -> Answer<'c> {
    let key = call.new_key(1)?;
    let (shard, key) = call.access.shard(key);
    let place = shard.find(key, call.now_ms);
    let before = match place {
        Some(place) => integer::parse(shard.value(place)).ok_or(Refusal::NotAnInteger)?,
        None => 0,
    };
    let sum = before.checked_add(number).ok_or(Refusal::Overflow)?;
    let mut digits = itoa::Buffer::new();
    let text = digits.format(sum).as_bytes();
    match place {
        Some(place) => shard.value_mut(place).assign(text),
        None => shard.set(key, text, SetDeadline::Never),
    }
    call.reply.integer(sum);
    Ok(())
}
