//! Commands on the server: what it is, and what it can do.

use std::fmt::{self, Write};
use std::process;
use std::sync::atomic::Ordering;

use super::{Answer, COMMANDS, Call, Command};
use crate::glob;
use crate::refusal::Refusal;
use crate::reply::Reply;

pub(super) fn command<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let Some(name) = call.args.get(1) else {
        tell_all(&mut call.reply);
        return Ok(());
    };
    let names = call.args.from(2);
    match &name.to_ascii_lowercase()[..] {
        b"count" if call.args.len() == 2 => call.reply.count(COMMANDS.len()),
        b"count" => return Err(Refusal::WrongArity("command|count")),
        b"docs" if call.args.len() == 2 => {
            call.reply.map(COMMANDS.len());
            for command in COMMANDS {
                tell_docs(&mut call.reply, command);
            }
        }
        b"docs" => {
            let known = names.filter_map(look_up);
            call.reply.map(known.clone().count());
            for command in known {
                tell_docs(&mut call.reply, command);
            }
        }
        b"info" if call.args.len() == 2 => tell_all(&mut call.reply),
        b"info" => {
            call.reply.array(call.args.len() - 2);
            for name in names {
                match look_up(name) {
                    Some(command) => tell_command(&mut call.reply, command),
                    None => call.reply.null(),
                }
            }
        }
        b"list" if call.args.len() == 2 => {
            call.reply.set(COMMANDS.len());
            for command in COMMANDS {
                call.reply.bulk(command.name.as_bytes());
            }
        }
        b"list" => return Err(Refusal::Syntax),
        _ => return Err(Refusal::UnknownSubcommand(call.command.name, name)),
    }
    Ok(())
}

fn look_up(name: &[u8]) -> Option<&'static Command> {
    Command::find(name, &COMMANDS[0])
}

fn tell_all(reply: &mut Reply<'_>) {
    reply.array(COMMANDS.len());
    for command in COMMANDS {
        tell_command(reply, command);
    }
}

fn tell_command(reply: &mut Reply<'_>, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply.set(command.flags.len());
    for flag in command.flags {
        reply.simple(flag);
    }
    for number in command.keys {
        reply.integer(number);
    }
    // Access classes and tips: there are none here.
    reply.set(0);
    reply.set(0);
    // Key specifications and subcommands: as little.
    reply.set(0);
    reply.set(0);
}

fn tell_docs(reply: &mut Reply<'_>, command: &Command) {
    reply.bulk(command.name.as_bytes());
    reply.map(3);
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

pub(super) fn config<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let name = call.args.at(1);
    if !name.eq_ignore_ascii_case(b"get") {
        return Err(Refusal::UnknownSubcommand(call.command.name, name));
    }
    if call.args.len() < 3 {
        return Err(Refusal::WrongArity("config|get"));
    }
    let mut digits = itoa::Buffer::new();
    let bulk_bytes_max = digits.format(call.access.store().config().bulk_bytes_max);
    let parameters = [
        ("appendonly", "no"),
        ("databases", "1"),
        ("maxmemory", "0"),
        ("proto-max-bulk-len", bulk_bytes_max),
        ("save", ""),
    ];
    let found: Vec<_> = parameters
        .iter()
        .filter_map(|&(name, value)| {
            let mut patterns = call.args.from(2);
            Some((
                patterns.find_map(|pattern| asked_name(pattern, name))?,
                value,
            ))
        })
        .collect();
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name);
        call.reply.bulk(value.as_bytes());
    }
    Ok(())
}

/// The name under which a parameter is told to who asked for it by `pattern`, if it was meant: as it
/// was spelled, if it was.
fn asked_name<'c>(pattern: &'c [u8], name: &'static str) -> Option<&'c [u8]> {
    if pattern.eq_ignore_ascii_case(name.as_bytes()) {
        return Some(pattern);
    }
    let pattern = pattern.to_ascii_lowercase();
    glob::matches(&pattern, name.as_bytes()).then_some(name.as_bytes())
}

/// One part of INFO.
struct Section {
    name: &'static str,
    write: fn(&mut Call<'_, '_>, &mut String) -> fmt::Result,
}

const SECTIONS: &[Section] = &[
    Section {
        name: "Server",
        write: write_server,
    },
    Section {
        name: "Clients",
        write: write_clients,
    },
    Section {
        name: "Stats",
        write: write_stats,
    },
    Section {
        name: "Keyspace",
        write: write_keyspace,
    },
];

pub(super) fn info<'c>(call: &mut Call<'c, '_>) -> Answer<'c> {
    let mut wanted = call.args.from(1);
    let takes_all = call.args.len() == 1
        || wanted.any(|name| {
            [&b"all"[..], b"default", b"everything"].contains(&&*name.to_ascii_lowercase())
        });
    let mut text = String::new();
    for section in SECTIONS {
        let mut wanted = call.args.from(1);
        if takes_all || wanted.any(|name| name.eq_ignore_ascii_case(section.name.as_bytes())) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // A string takes everything.
            let _ = write!(text, "# {}\r\n", section.name);
            let _ = (section.write)(call, &mut text);
        }
    }
    call.reply.verbatim(&text);
    Ok(())
}

fn write_server(call: &mut Call<'_, '_>, text: &mut String) -> fmt::Result {
    let since_ms = call
        .access
        .store()
        .counters
        .started_ms
        .load(Ordering::Relaxed);
    let uptime = call.now_ms.saturating_sub(since_ms) / 1000;
    // Clients ask for the version to know which commands there are.
    write!(
        text,
        "redis_version:7.0.0\r\nwindlass_version:{}\r\nredis_mode:standalone\r\n\
         arch_bits:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{uptime}\r\n",
        env!("CARGO_PKG_VERSION"),
        usize::BITS,
        process::id(),
    )
}

fn write_clients(call: &mut Call<'_, '_>, text: &mut String) -> fmt::Result {
    let clients = call.access.store().counters.clients.load(Ordering::Relaxed);
    write!(text, "connected_clients:{clients}\r\n")
}

fn write_stats(call: &mut Call<'_, '_>, text: &mut String) -> fmt::Result {
    let totals = call.access.totals();
    let commands = call.access.command_count();
    let connections = &call.access.store().counters.connections;
    write!(
        text,
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\n\
         expired_keys:{}\r\nkeyspace_hits:{}\r\nkeyspace_misses:{}\r\n",
        connections.load(Ordering::Relaxed),
        commands,
        totals.expired,
        totals.hits,
        totals.misses,
    )
}

fn write_keyspace(call: &mut Call<'_, '_>, text: &mut String) -> fmt::Result {
    let totals = call.access.totals();
    if totals.keys == 0 {
        return Ok(());
    }
    write!(
        text,
        "db0:keys={},expires={},avg_ttl=0\r\n",
        totals.keys, totals.keys_with_deadline
    )
}
