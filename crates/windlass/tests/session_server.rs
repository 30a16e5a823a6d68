//! What every model promises about the connections that it drives. A model joins by implementing
//! [`harness::Model`] and one more `on_model!`.

#![expect(clippy::unwrap_used, reason = "what is missing fails the test")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a child speaks to its parent, and a hang is reported"
)]

#[path = "session_server/blocking.rs"]
mod blocking;
#[path = "session_server/crews.rs"]
mod crews;
#[path = "session_server/endings.rs"]
mod endings;
#[path = "session_server/half_sync.rs"]
mod half_sync;
#[path = "session_server/harness.rs"]
mod harness;
#[path = "session_server/one_turn.rs"]
mod one_turn;
#[path = "session_server/proactors.rs"]
mod proactors;
#[path = "session_server/resources.rs"]
mod resources;
#[path = "session_server/sessions.rs"]
mod sessions;
#[path = "session_server/several_loops.rs"]
mod several_loops;
#[path = "session_server/stopping.rs"]
mod stopping;
#[path = "session_server/stress.rs"]
mod stress;
#[path = "session_server/stuck.rs"]
mod stuck;
#[path = "session_server/traffic.rs"]
mod traffic;
#[path = "session_server/waiting.rs"]
mod waiting;

/// Makes each claim a test over a model.
macro_rules! on_model {
    ($model:path: $($area:ident { $($claim:ident)* })*) => { $($(
        #[test]
        fn $claim() {
            crate::harness::guarded(stringify!($claim), crate::$area::$claim::<$model>);
        }
    )*)* };
}

/// All claims, over a model.
macro_rules! all_on {
    ($model:path) => {
        on_model! { $model:
        traffic {
            answers_come_whole_and_in_order_however_the_input_is_cut
            many_clients_are_served_at_once
            pipelined_input_beyond_the_input_limit_is_answered
            input_that_is_never_consumed_ends_the_connection_at_the_limit
            jobs_keep_the_order_of_answers
            a_job_holds_up_no_other_connection
            more_jobs_than_the_pool_takes_are_all_done
            a_job_that_panics_is_its_sessions_business
            a_job_whose_client_is_gone_disturbs_nobody
            output_may_go_on_after_a_job
            output_of_a_slow_reader_is_bounded_and_goes_on
            a_flood_starves_nobody
            a_file_is_sent_between_other_output
            a_file_that_is_replaced_or_deleted_is_sent_as_it_was_opened
            a_file_that_gets_shorter_ends_the_connection
            a_client_that_breaks_off_is_no_file_that_gets_shorter
            a_unix_socket_is_served_in_small_pieces
        }
        endings {
            the_answer_survives_unread_input
            a_large_answer_survives_unread_input
            lingering_ends_at_its_limits
            a_client_that_closed_its_sending_side_gets_its_answer
            an_incomplete_command_at_the_end_of_input_gets_no_answer
            a_deadline_is_kept_and_put_off
            output_may_go_on_after_a_deadline
            a_deadline_after_the_end_of_input_ends_the_connection
            a_peer_that_takes_nothing_is_cut
            a_slow_but_steady_reader_is_not_cut
            a_panic_ends_one_connection_and_leaks_nothing
            an_abort_resets_the_connection
            a_reset_by_the_peer_ends_the_session_in_every_state
        }
        stopping {
            a_stop_closes_idle_connections_and_finishes_busy_ones
            a_stop_does_not_wait_for_idle_clients_to_close
            a_stop_closes_every_listener_first
            a_stop_gives_up_at_its_deadline
            a_second_stop_cuts
            a_stop_under_load_loses_no_byte_of_an_answer
        }
        waiting {
            no_notification_is_lost
            a_notification_during_a_job_is_seen_after_it
            a_notification_during_a_flush_is_seen_after_it
            a_notification_for_a_connection_that_is_gone_does_nothing
            input_beyond_the_limit_waits_with_its_session
            the_end_of_input_is_seen_while_waiting
            a_client_that_breaks_off_while_its_session_waits_is_noticed
            a_session_that_waits_with_a_full_buffer_is_quiet
            a_stop_reaches_sessions_that_wait
            a_session_may_go_on_waiting_during_a_stop
            a_notifier_outlives_its_server
        }
        resources {
            no_more_connections_than_the_limit
            accepting_pauses_without_descriptors_and_resumes
            no_descriptor_is_left_behind
        }
        }
    };
}

mod single_loop {
    all_on! { crate::harness::Single }
}

mod multi_loop {
    all_on! { crate::harness::Multi }
}

mod leader_followers {
    all_on! { crate::crews::Followers }
    on_model! { crate::crews::Followers:
        stress {
            random_clients_leave_nothing_behind
            a_stop_among_random_clients_ends_them_all
        }
    }
}

mod reactor_workers {
    all_on! { crate::crews::Workers }
    on_model! { crate::crews::Workers:
        stress {
            random_clients_leave_nothing_behind
            a_stop_among_random_clients_ends_them_all
        }
    }
}

mod thread_pool {
    all_on! { crate::crews::Pool }
    on_model! { crate::crews::Pool:
        stress {
            random_clients_leave_nothing_behind
            a_stop_among_random_clients_ends_them_all
        }
    }
}

/// What depends on who accepts.
mod one_acceptor {
    on_model! { crate::harness::Dealt:
        traffic {
            many_clients_are_served_at_once
            jobs_keep_the_order_of_answers
        }
        stopping {
            a_stop_closes_idle_connections_and_finishes_busy_ones
            a_stop_does_not_wait_for_idle_clients_to_close
            a_stop_closes_every_listener_first
            a_stop_gives_up_at_its_deadline
            a_second_stop_cuts
            a_stop_under_load_loses_no_byte_of_an_answer
        }
        resources {
            no_more_connections_than_the_limit
            no_descriptor_is_left_behind
        }
    }
}

mod half_sync_shared_queue {
    all_on! { crate::half_sync::SharedQueue }
}

mod half_sync_round_robin {
    all_on! { crate::half_sync::RoundRobin }
}

mod half_sync_own_loops {
    all_on! { crate::half_sync::OwnLoops }
}

mod hybrid {
    all_on! { crate::half_sync::LoopsAndPool }
}

mod thread_per_connection {
    all_on! { crate::half_sync::OwnThreads }
}

/// All that does not need another thread for a job that waits for the test.
mod jobs_in_loop {
    on_model! { crate::half_sync::JobsInLoop:
        traffic {
            jobs_keep_the_order_of_answers
            a_job_that_panics_is_its_sessions_business
            output_may_go_on_after_a_job
        }
        endings {
            a_panic_ends_one_connection_and_leaks_nothing
        }
        stopping {
            a_stop_under_load_loses_no_byte_of_an_answer
        }
        resources {
            no_descriptor_is_left_behind
        }
    }
}

mod uring_proactor {
    all_on! { crate::proactors::Uring }
}

mod uring_proactor_and_workers {
    all_on! { crate::proactors::UringAndWorkers }
}

mod fallen_back_proactor {
    all_on! { crate::proactors::FallenBack }
}

mod emulated_proactor {
    all_on! { crate::proactors::Emulated }
}

/// What threads that may block are for: with all of them stuck the server ends.
macro_rules! ends_while_stuck {
    ($($name:ident: $model:path;)*) => { $(
        mod $name {
            on_model! { $model:
                stuck {
                    calls_that_do_not_end_keep_no_server_that_is_cut
                    jobs_that_do_not_end_keep_no_server_that_is_cut
                }
            }
        }
    )* };
}

ends_while_stuck! {
    stuck_leader_followers: crate::crews::Followers;
    stuck_reactor_workers: crate::crews::Workers;
    stuck_thread_pool: crate::crews::Pool;
    stuck_half_sync_shared_queue: crate::half_sync::SharedQueue;
    stuck_half_sync_round_robin: crate::half_sync::RoundRobin;
    stuck_thread_per_connection: crate::half_sync::OwnThreads;
    stuck_uring_proactor_and_workers: crate::proactors::UringAndWorkers;
}
