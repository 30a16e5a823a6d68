//! A server on a loop of its own thread.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use windlass::models::{ServerReport, SingleLoop, StopHandle};
use windlass::session::Service;

pub struct Server {
    pub address: SocketAddr,
    stop: StopHandle,
    thread: JoinHandle<ServerReport>,
}

impl Server {
    pub fn start<S: Service>(service: S) -> Self {
        let (ready, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut server = SingleLoop::builder(Arc::new(service))
                .listen(([127, 0, 0, 1], 0).into())
                .build()
                .expect("build");
            let address = server.local_addrs()[0];
            ready
                .send((address, server.stop_handle()))
                .expect("listening");
            server.run().expect("run")
        });
        let (address, stop) = started.recv().expect("a server");
        Self {
            address,
            stop,
            thread,
        }
    }

    /// Begins a graceful stop.
    pub fn begin_stop(&self) {
        self.stop.stop().expect("it runs");
    }

    /// Waits for its end.
    pub fn join(self) -> ServerReport {
        self.thread.join().expect("no panic")
    }

    pub fn stop(self) -> ServerReport {
        self.begin_stop();
        self.join()
    }
}
