use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::fd::{Blocking, blocking};
use crate::poll::{self, PollFd};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn wait_for(fd: BorrowedFd<'_>, events: i16) {
    use std::os::fd::AsRawFd;
    let mut fds = [PollFd::new(fd.as_raw_fd(), events)];
    while poll::poll(&mut fds, None).expect("poll") == 0 {}
}

fn connected() -> (OwnedFd, OwnedFd) {
    let listener = listen(&LOCALHOST, ListenOptions::default()).expect("listen");
    let addr = local_addr(listener.as_fd())
        .expect("name")
        .expect("an Internet address");
    let (client, _) = connect(&addr).expect("connect");
    wait_for(listener.as_fd(), poll::IN);
    let (server, peer) = accept(listener.as_fd())
        .expect("accept")
        .expect("a connection");
    assert_eq!(peer, local_addr(client.as_fd()).expect("name"));
    wait_for(client.as_fd(), poll::OUT);
    assert!(take_socket_error(client.as_fd()).expect("option").is_none());
    (client, server)
}

#[test]
fn an_idle_listener_would_block() {
    let listener = listen(&LOCALHOST, ListenOptions::default()).expect("listen");
    assert!(accept(listener.as_fd()).expect("accept").is_none());
}

#[test]
fn sockets_are_nonblocking_and_bytes_pass() {
    let (client, server) = connected();
    assert_eq!(
        blocking(client.as_fd()).expect("get"),
        Blocking::Nonblocking
    );
    assert_eq!(
        blocking(server.as_fd()).expect("get"),
        Blocking::Nonblocking
    );
    set_nodelay(server.as_fd()).expect("option");
    let mut buf = [0; 16];
    assert_eq!(recv(client.as_fd(), &mut buf).expect("recv"), None);
    assert_eq!(
        send(server.as_fd(), b"ab", More::Follows).expect("send"),
        Some(2)
    );
    let slices = [IoSlice::new(b"cd"), IoSlice::new(b"e")];
    assert_eq!(
        send_slices(server.as_fd(), &slices, More::Flush).expect("send"),
        Some(3)
    );
    shutdown_write(server.as_fd()).expect("shutdown");
    let mut got = Vec::new();
    loop {
        wait_for(client.as_fd(), poll::IN);
        match recv(client.as_fd(), &mut buf).expect("recv") {
            Some(0) => break,
            Some(count) => got.extend_from_slice(&buf[..count]),
            None => {}
        }
    }
    assert_eq!(got, b"abcde");
}

#[test]
fn more_slices_than_the_kernel_takes_are_left_for_later() {
    let (client, _server) = connected();
    let slices = [IoSlice::new(b"x"); SLICES_MAX + 10];
    let sent = send_slices(client.as_fd(), &slices, More::Flush).expect("send");
    assert_eq!(sent, Some(SLICES_MAX));
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_no_signal() {
    let (left, right) = UnixStream::pair().expect("pair");
    drop(right);
    let error = send(left.as_fd(), b"x", More::Flush).expect_err("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn zero_linger_resets_the_peer() {
    let (client, server) = connected();
    set_linger_zero(server.as_fd()).expect("option");
    drop(server);
    wait_for(client.as_fd(), poll::IN);
    let error = recv(client.as_fd(), &mut [0; 4]).expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_refused_connection_is_found_by_its_pending_error() {
    let listener = listen(&LOCALHOST, ListenOptions::default()).expect("listen");
    let addr = local_addr(listener.as_fd())
        .expect("name")
        .expect("an Internet address");
    drop(listener);
    let error = match connect(&addr) {
        Err(error) => error,
        Ok((fd, _)) => {
            wait_for(fd.as_fd(), poll::OUT);
            take_socket_error(fd.as_fd())
                .expect("option")
                .expect("refused")
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn listeners_share_a_port_only_if_both_agree() {
    let shared = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = listen(&LOCALHOST, shared).expect("listen");
    let addr = local_addr(first.as_fd())
        .expect("name")
        .expect("an Internet address");
    listen(&addr, shared).expect("the second listener");
    let error = listen(&addr, ListenOptions::default()).expect_err("not shared");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn a_v6_listener_takes_v4_only_if_told_so() {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    for (only_v6, reachable) in [(false, true), (true, false)] {
        let options = ListenOptions {
            only_v6: Some(only_v6),
            ..ListenOptions::default()
        };
        let Ok(listener) = listen(&any, options) else {
            return;
        };
        let bound = local_addr(listener.as_fd())
            .expect("name")
            .expect("an Internet address");
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, bound.port()));
        let outcome = match connect(&v4) {
            Err(error) => Some(error),
            Ok((fd, _)) => {
                wait_for(fd.as_fd(), poll::OUT);
                take_socket_error(fd.as_fd()).expect("option")
            }
        };
        assert_eq!(outcome.is_none(), reachable);
    }
}

#[test]
fn accept_errors_are_sorted_by_what_to_do() {
    for error in [
        Errno::CONNABORTED,
        Errno::PROTO,
        Errno::PERM,
        Errno::NETDOWN,
    ] {
        assert!(matches!(
            AcceptError::from_errno(error),
            AcceptError::Connection(_)
        ));
    }
    for error in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
        assert!(matches!(
            AcceptError::from_errno(error),
            AcceptError::Exhausted(_)
        ));
    }
    for error in [Errno::INVAL, Errno::BADF, Errno::NOTSOCK, Errno::OPNOTSUPP] {
        assert!(matches!(
            AcceptError::from_errno(error),
            AcceptError::Listener(_)
        ));
    }
    let (stream, _peer) = UnixStream::pair().expect("pair");
    let error = accept(stream.as_fd()).expect_err("does not listen");
    assert!(matches!(error, AcceptError::Listener(_)));
    assert!(Error::source(&error).is_some());
}

#[test]
fn a_group_shares_one_address_and_keeps_others_out() {
    let options = ListenOptions::default();
    let group = listen_group(&LOCALHOST, 3, options).expect("listen");
    let addr = local_addr(group[0].as_fd())
        .expect("name")
        .expect("an Internet address");
    for fd in &group {
        assert_eq!(local_addr(fd.as_fd()).expect("name"), Some(addr));
    }
    for other in [
        listen_group(&addr, 3, options),
        listen_group(&addr, 1, options),
        listen(&addr, options).map(|fd| vec![fd]),
    ] {
        let error = other.expect_err("the address is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
    let _clients: Vec<_> = (0..200).map(|_| connect(&addr).expect("connect")).collect();
    let mut accepted = [0_usize; 3];
    while accepted.iter().sum::<usize>() < 200 {
        for (fd, count) in group.iter().zip(&mut accepted) {
            while accept(fd.as_fd()).expect("accept").is_some() {
                *count += 1;
            }
        }
    }
    assert!(accepted.iter().all(|&count| count > 0), "{accepted:?}");
}
