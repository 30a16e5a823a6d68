//! What may cross threads.

use windlass_http::{
    AccessLog, FixedResponse, HttpLocal, HttpService, HttpSession, Response, StaticFiles,
};

fn is_send<T: Send>() {}
fn is_shared<T: Send + Sync>() {}

#[test]
fn services_are_shared_and_sessions_move() {
    is_shared::<HttpService<StaticFiles>>();
    is_shared::<FixedResponse>();
    is_shared::<AccessLog>();
    is_send::<HttpSession<StaticFiles>>();
    is_send::<HttpLocal<StaticFiles>>();
    is_send::<Response>();
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<HttpSession<StaticFiles>>() <= 192);
}

#[test]
fn senders_of_streams_are_shared() {
    is_shared::<windlass_http::BodySender>();
    is_send::<windlass_http::ChannelBody>();
    is_shared::<windlass_http::EventSender>();
    is_shared::<windlass_http::Broadcast>();
    #[cfg(feature = "websocket")]
    is_shared::<windlass_http::websocket::SocketSender>();
}
