//! A small key-value store that speaks Redis' protocol, as a [`Session`](windlass::session::Session)
//! that any model carries.
//!
//! It shows that sessions are general, and what a protocol with shared state is made of: a
//! [`Store`] that all threads share, a [`KvService`] whose sessions parse in place and write their
//! answers to the output queue, and an [`ExpiryTimer`] that has keys leave memory in time.
//!
//! ```no_run
//! use std::sync::Arc;
//! use windlass::models::SingleLoop;
//! use windlass_kv::{Config, ExpiryTimer, KvService, Store};
//!
//! let store = Arc::new(Store::new(Config::default()));
//! let service = Arc::new(KvService::new(Arc::clone(&store)));
//! let mut server = SingleLoop::builder(service).listen("127.0.0.1:6379".parse()?).build()?;
//! ExpiryTimer::attach(server.reactor(), store)?;
//! println!("{}", server.run()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it answers
//!
//! APPEND, CLIENT (GETNAME, ID, SETINFO, SETNAME), COMMAND (COUNT, DOCS, INFO, LIST), CONFIG GET,
//! DBSIZE, DECR, DECRBY, DEL, ECHO, EXISTS, EXPIRE, EXPIREAT, EXPIRETIME, FLUSHALL, FLUSHDB, GET,
//! GETDEL, GETSET, HELLO (protocol 2 and 3), INCR, INCRBY, INFO, KEYS, MGET, MSET, PERSIST, PEXPIRE,
//! PEXPIREAT, PEXPIRETIME, PING, PSETEX, PTTL, QUIT, RESET, SCAN, SELECT 0, SET (with EX, PX, EXAT,
//! PXAT, NX, XX, KEEPTTL, GET), SETEX, SETNX, STRLEN, TOUCH, TTL, TYPE, UNLINK; each byte for byte as
//! Redis 7.0, but for what tells of the server itself: COMMAND, CONFIG, HELLO, INFO. Values are
//! strings, there is one database, nothing is written to disk, and everybody may connect.
//!
//! # Guarantees
//!
//! - A command on several keys is atomic, also with several threads.
//! - SCAN returns each key that is there from its start to its end; one may come twice.
//! - Keys that nobody asks for any more leave memory when their time is over.
//! - Keys can't be chosen to collide: hashes are keyed at random (SipHash).
//! - A client may have a command of [`Config::command_bytes_max`] bytes kept before it is answered;
//!   answers beyond the output's mark stop the reading.
//!
//! # Threads
//!
//! One thread takes one lock, which nobody else wants, per read of a socket: with all that a call
//! costs beside its commands some 20 ns, so that there is no second kind of store without locks.
//! Several threads share the same store; then it is to be divided into [`Config::shards`].
//!
//! # Limits
//!
//! - When a shard's table grows it is moved at once, and its clients wait for that.
//! - An answer is queued whole. Long values are queued by reference, but an MGET of a million short
//!   ones is as long as they are together.

#![forbid(unsafe_code)]

mod client;
mod command;
mod config;
mod expiry_timer;
mod glob;
mod integer;
mod parser;
mod refusal;
mod reply;
mod session;
mod store;
mod text;

pub use self::config::Config;
pub use self::expiry_timer::ExpiryTimer;
pub use self::session::{KvLocal, KvService, KvSession};
pub use self::store::Store;
