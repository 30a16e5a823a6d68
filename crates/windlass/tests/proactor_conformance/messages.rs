//! Messages: datagrams, and several parts at once.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use windlass::proactor::{Address, Completion, MessageInfo, Operation, Outcome, SharedFd};

use crate::harness::{Make, Scratch, Subject, bytes, receive, shared};

fn receive_message(socket: &SharedFd, rooms: &[usize]) -> Operation {
    Operation::ReceiveMessage {
        socket: Arc::clone(socket),
        buffers: rooms.iter().map(|room| Vec::with_capacity(*room)).collect(),
    }
}

fn send_message(socket: &SharedFd, parts: &[&[u8]], address: Option<Address>) -> Operation {
    Operation::SendMessage {
        socket: Arc::clone(socket),
        payloads: parts.iter().map(|part| part.to_vec().into()).collect(),
        address,
    }
}

/// What was received, and its buffers.
fn message(completion: Completion) -> (MessageInfo, Vec<Vec<u8>>) {
    let Ok(Outcome::Message(info)) = completion.result else {
        panic!("{completion:?}");
    };
    let Some(Operation::ReceiveMessage { buffers, .. }) = completion.operation else {
        panic!("the operation does not come back");
    };
    (*info, buffers)
}

pub(crate) fn datagrams_tell_who_sent_them(make: Make) {
    let mut subject = Subject::new(make);
    let ours = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let theirs = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let (our_name, their_name) = (ours.local_addr().expect("name"), theirs.local_addr());
    let their_name = their_name.expect("name");
    let ours = shared(ours);
    let waiting = subject.start(receive_message(&ours, &[100]));
    subject.settle();
    theirs.send_to(b"hello", our_name).expect("send");
    let (info, buffers) = message(subject.next_of(waiting));
    assert_eq!((info.bytes, info.truncated), (5, false));
    assert_eq!(info.from, Some(Address::Internet(their_name)));
    assert_eq!(buffers, [b"hello"]);
    let answer = send_message(&ours, &[b"world"], Some(their_name.into()));
    assert_eq!(bytes(&subject.complete(answer)), 5);
    let mut got = [0; 9];
    assert_eq!(theirs.recv_from(&mut got).expect("receive"), (5, our_name));

    let scratch = Scratch::new();
    let path = scratch.0.join("a");
    let sender = UnixDatagram::bind(&path).expect("bind");
    let other = scratch.0.join("b");
    let receiver = shared(UnixDatagram::bind(&other).expect("bind"));
    sender.send_to(b"x", &other).expect("send");
    let (info, _) = message(subject.complete(receive_message(&receiver, &[9])));
    assert_eq!(info.from, Some(Address::Unix(path.clone())));
    let answer = send_message(&receiver, &[b"yz"], Some(Address::Unix(path)));
    assert_eq!(bytes(&subject.complete(answer)), 2);
    assert_eq!(sender.recv(&mut got).expect("receive"), 2);
}

pub(crate) fn a_message_longer_than_its_room_is_cut_and_says_so(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = UnixDatagram::pair().expect("pair");
    let ours = shared(ours);
    theirs.send(b"0123456789").expect("send");
    theirs.send(b"next").expect("send");
    let (info, buffers) = message(subject.complete(receive_message(&ours, &[3, 0, 4])));
    assert!(info.truncated);
    assert_eq!((info.bytes, buffers.concat()), (7, b"0123456".to_vec()));
    assert_eq!(subject.complete(receive(&ours, 9)).into_buffer(), b"next");
}

pub(crate) fn an_empty_message_is_a_message(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = UnixDatagram::pair().expect("pair");
    let ours = shared(ours);
    assert_eq!(bytes(&subject.complete(send_message(&ours, &[], None))), 0);
    assert_eq!(theirs.recv(&mut [0; 4]).expect("receive"), 0);
    theirs.send(b"").expect("send");
    let (info, _) = message(subject.complete(receive_message(&ours, &[3])));
    assert_eq!((info.bytes, info.from), (0, None));
}

pub(crate) fn several_parts_make_one_message(make: Make) {
    let mut subject = Subject::new(make);
    let (ours, theirs) = UnixDatagram::pair().expect("pair");
    let ours = shared(ours);
    let sent = subject.complete(send_message(&ours, &[b"ab", b"", b"cde"], None));
    assert_eq!(bytes(&sent), 5);
    let mut got = [0; 9];
    assert_eq!(theirs.recv(&mut got).expect("receive"), 5);
    assert_eq!(&got[..5], b"abcde");
    let many: Vec<&[u8]> = vec![b"x"; 1025];
    assert_eq!(
        subject.error(send_message(&ours, &many, None)),
        libc::EINVAL
    );
}

pub(crate) fn a_message_to_nobody_is_an_error(make: Make) {
    let mut subject = Subject::new(make);
    let scratch = Scratch::new();
    let ours = shared(UnixDatagram::unbound().expect("socket"));
    let missing = Some(Address::Unix(scratch.0.join("missing")));
    assert_eq!(
        subject.error(send_message(&ours, &[b"x"], missing)),
        libc::ENOENT
    );
    assert_eq!(
        subject.error(send_message(&ours, &[b"x"], None)),
        libc::ENOTCONN
    );
}
