//! TCP's congestion control, the same on every machine.
//!
//! Some systems' default paces what is sent (`bbr`). Over loopback a connection then sends by timers,
//! at a rate that it has guessed: what a file of 1 MiB costs differs by a factor of two from run to
//! run, and hides what the models differ in. `reno` does not pace, each kernel has it, and any
//! program may choose it: tcp(7).

use std::io;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType, socket, sockopt};

/// What both sides use.
const PREFERRED: &str = "reno";

/// Has a socket use it, or, if it listens, those that are accepted from it. What refuses keeps the
/// system's default, which is what [`in_use`] says.
pub(super) fn prefer(socket: impl AsFd) {
    let _ = sockopt::set_tcp_congestion(socket, PREFERRED);
}

/// What the sockets of a run use.
pub(super) fn in_use() -> io::Result<String> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    prefer(&socket);
    Ok(sockopt::tcp_congestion(&socket)?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_accepted_uses_what_the_listener_was_told() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        prefer(&listener);
        let addr = listener.local_addr().expect("it is bound");
        let _client = TcpStream::connect(addr).expect("it listens");
        let (accepted, _) = listener.accept().expect("one has connected");
        let used = sockopt::tcp_congestion(&accepted).expect("it is TCP");
        assert_eq!(used, in_use().expect("a socket can be opened"));
    }
}
