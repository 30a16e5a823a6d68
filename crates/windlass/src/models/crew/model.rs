//! What all models whose threads share their connections have in common.

/// Makes `$Name`, which has a [`CrewServer`](super::CrewServer) in `server`, a server of its kind.
macro_rules! crew_model {
    ($Name:ident) => {
        impl<V: Service> $Name<V> {
            fn server(&self) -> &CrewServer<V> {
                &self.server
            }

            fn server_mut(&mut self) -> &mut CrewServer<V> {
                &mut self.server
            }

            /// The addresses that are listened on, with the ports that were chosen. Unix sockets
            /// have none.
            #[must_use]
            pub fn local_addrs(&self) -> &[SocketAddr] {
                self.server.local_addrs()
            }

            /// How many threads call sessions.
            #[must_use]
            pub fn threads_count(&self) -> usize {
                self.server.threads_count()
            }

            /// A handle that stops the server, from any thread or handler.
            #[must_use]
            pub fn stop_handle(&self) -> StopHandle {
                self.server.stop_handle()
            }

            /// Serves until it is stopped; answers what was done, by all threads together. A second
            /// call answers the same. The calling thread handles nothing: it cuts what is left at
            /// the deadline of a stop, and waits no longer than a second for sessions that are
            /// called then.
            ///
            /// # Errors
            ///
            /// If waiting fails, or a thread can't be started.
            ///
            /// # Panics
            ///
            /// Passes on a panic of [`Service::local`], or of a closure that was posted to a thread.
            pub fn run(&mut self) -> Result<ServerReport, RunError> {
                self.server.run()
            }

            /// What the stop cut, up to 32 connections; known when [`run`](Self::run) has returned.
            #[must_use]
            pub fn cut_connections(&self) -> Vec<CutConnection> {
                self.server.cut_connections()
            }
        }

        serve_as_its_inner!($Name);

        impl<V: Service> fmt::Debug for $Name<V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Name))
                    .field("server", &self.server)
                    .finish()
            }
        }
    };
}

pub(in crate::models) use crew_model;
