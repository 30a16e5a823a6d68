//! Commands on the connection.

use super::{Answer, Call};
use crate::client::Client;
use crate::integer;
use crate::refusal::Refusal;
use crate::reply::{Reply, Version};

pub(super) fn ping<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    match call.args.get(1) {
        None => call.reply.simple("PONG"),
        Some(text) if call.args.len() == 2 => call.reply.bulk(text),
        Some(_) => return Err(Refusal::WrongArity(call.command.name)),
    }
    Ok(())
}

pub(super) fn echo<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    call.reply.bulk(call.args.at(1));
    Ok(())
}

pub(super) fn quit<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    call.client.quits = true;
    call.reply.ok();
    Ok(())
}

pub(super) fn reset<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    *call.client = Client::new(call.client.id);
    call.reply.simple("RESET");
    Ok(())
}

pub(super) fn select<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    if call.integer(1)? != 0 {
        return Err(Refusal::DatabaseOutOfRange);
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn client<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let name = call.args.at(1);
    let (full_name, count): (_, usize) = match &name.to_ascii_lowercase()[..] {
        b"getname" => ("client|getname", 2),
        b"id" => ("client|id", 2),
        b"setinfo" => ("client|setinfo", 4),
        b"setname" => ("client|setname", 3),
        _ => return Err(Refusal::UnknownSubcommand(call.command.name, name)),
    };
    if call.args.len() != count {
        return Err(Refusal::WrongArity(full_name));
    }
    match full_name {
        "client|getname" => match &call.client.name {
            Some(name) => call.reply.bulk(name),
            None => call.reply.null(),
        },
        // From 1 on, one by one.
        "client|id" => call.reply.integer(call.client.id as i64),
        "client|setname" => set_name(call, 2)?,
        // The name and version of a library: nobody asks for them here.
        _ => call.reply.ok(),
    }
    Ok(())
}

fn set_name<'c>(call: &mut Call<'c, '_>, index: usize) -> Answer<'c> {
    if !call.client.set_name(call.args.at(index)) {
        return Err(Refusal::BadClientName);
    }
    call.reply.ok();
    Ok(())
}

pub(super) fn hello<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let mut version = call.client.version;
    if let Some(text) = call.args.get(1) {
        version = match integer::parse(text).ok_or(Refusal::NotAVersion)? {
            2 => Version::Resp2,
            3 => Version::Resp3,
            _ => return Err(Refusal::BadVersion),
        };
    }
    let mut options = call.args.from(2);
    let mut name = None;
    while let Some(option) = options.next() {
        name = match options.next() {
            Some(name) if option.eq_ignore_ascii_case(b"setname") => Some(name),
            _ => return Err(Refusal::BadHelloOption(option)),
        };
    }
    if name.is_some_and(|name| !call.client.set_name(name)) {
        return Err(Refusal::BadClientName);
    }
    call.client.version = version;
    call.reply.version = version;
    tell_server(call, version);
    Ok(())
}

fn tell_server(call: &mut Call<'_, '_>, version: Version) {
    let id = call.client.id;
    let reply = &mut call.reply;
    let text = |name: &str, value: &str, reply: &mut Reply<'_>| {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    };
    reply.map(7);
    text("server", "windlass-kv", reply);
    text("version", env!("CARGO_PKG_VERSION"), reply);
    reply.bulk(b"proto");
    reply.integer(match version {
        Version::Resp2 => 2,
        Version::Resp3 => 3,
    });
    reply.bulk(b"id");
    reply.integer(id as i64);
    text("mode", "standalone", reply);
    text("role", "master", reply);
    reply.bulk(b"modules");
    reply.array(0);
}
