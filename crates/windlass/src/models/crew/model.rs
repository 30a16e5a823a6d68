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

            /// How many threads call sessions.
            #[must_use]
            pub fn threads_count(&self) -> usize {
                self.server.threads_count()
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
