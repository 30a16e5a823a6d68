//! What each driver of operations promises: the same, over io_uring and over the emulated driver.
//!
//! A driver joins by one more `all_on!`. Where the kernel has no io_uring its half fails, unless
//! `WINDLASS_TEST_NO_URING` is set: then it says so and is left out.
//!
//! `WINDLASS_TEST_OPERATIONS` sets how many random operations are made of each driver (default
//! 20,000; five times as many reads that may be cancelled), `WINDLASS_TEST_SEED` which.

#![expect(
    clippy::print_stdout,
    reason = "what is left out and the seed of a failure are told"
)]

#[path = "common/loops.rs"]
mod common;

#[path = "proactor_conformance/beside.rs"]
mod beside;
#[path = "proactor_conformance/cancelling.rs"]
mod cancelling;
#[path = "proactor_conformance/endings.rs"]
mod endings;
#[path = "proactor_conformance/faults.rs"]
mod faults;
#[path = "proactor_conformance/files.rs"]
mod files;
#[path = "proactor_conformance/harness.rs"]
mod harness;
#[path = "proactor_conformance/messages.rs"]
mod messages;
#[path = "proactor_conformance/moving.rs"]
mod moving;
#[path = "proactor_conformance/multishot.rs"]
mod multishot;
#[path = "proactor_conformance/pipes.rs"]
mod pipes;
#[path = "proactor_conformance/random.rs"]
mod random;
#[path = "proactor_conformance/sockets.rs"]
mod sockets;

/// Makes each claim a test over a driver.
macro_rules! on_driver {
    ($driver:ident: $($area:ident { $($claim:ident)* })*) => { $($(
        #[test]
        fn $claim() {
            if let Some(make) = crate::harness::$driver() {
                crate::harness::guarded(stringify!($claim), || crate::$area::$claim(make));
            }
        }
    )*)* };
}

/// As [`on_driver`], each alone in a process of its own.
macro_rules! alone_on_driver {
    ($driver:ident in $path:literal: $($area:ident { $($claim:ident)* })*) => { $($(
        #[test]
        fn $claim() {
            if let Some(make) = crate::harness::$driver() {
                let path = concat!($path, "::", stringify!($claim));
                crate::harness::guarded(stringify!($claim), || {
                    crate::common::in_own_process(path, || crate::$area::$claim(make));
                });
            }
        }
    )*)* };
}

/// All claims, over a driver.
macro_rules! all_on {
    ($driver:ident in $path:literal) => {
        on_driver! { $driver:
        sockets {
            a_connection_is_made_accepted_and_used
            a_connection_to_nobody_is_refused
            a_connection_over_a_path_is_made_and_a_missing_one_is_an_error
            a_full_unix_listener_is_waited_for
            a_second_connect_is_an_error
            accepting_from_what_does_not_listen_is_an_error
            a_large_send_is_complete_only_when_all_is_sent
            the_end_of_a_stream_is_zero_bytes_after_all_that_was_sent
            a_reset_is_an_error
            a_send_that_the_peer_cuts_tells_what_went
            nothing_to_send_and_no_room_are_errors
            what_is_no_socket_is_an_error
            a_shutdown_is_seen_by_the_peer
            a_zero_copy_send_gives_its_buffer_back
            blocking_sockets_do_not_block_the_loop
        }
        messages {
            datagrams_tell_who_sent_them
            a_message_longer_than_its_room_is_cut_and_says_so
            an_empty_message_is_a_message
            several_parts_make_one_message
            a_message_to_nobody_is_an_error
        }
        files {
            a_file_is_made_written_read_and_described
            opening_goes_wrong_as_open_does
            positions_are_kept_or_moved
            reading_at_the_end_is_zero_bytes
            a_descriptor_is_closed_once
            a_description_of_nothing_is_an_error
            the_wrong_access_is_an_error
        }
        pipes {
            an_empty_pipe_is_waited_for_whether_it_blocks_or_not
            a_full_pipe_is_waited_for_whether_it_blocks_or_not
            a_pipe_without_a_reader_is_an_error
            several_buffers_are_filled_one_after_the_other
            many_reads_of_one_pipe_take_each_byte_once
            readiness_is_polled_once
            an_eventfd_is_read_when_it_is_signalled
        }
        moving {
            a_file_is_sent_whole_in_part_and_not_beyond_its_end
            a_file_is_sent_to_a_slow_reader
            a_file_is_sent_to_sockets_only
            splices_move_between_pipes_sockets_and_files
            a_splice_without_a_pipe_is_an_error
        }
        multishot {
            one_accept_takes_many_connections
            a_single_accept_takes_one
            a_receive_goes_on_to_the_end_of_the_stream
            pf_21_a_burst_passes_through_a_pool_of_one
            pf_21_a_burst_passes_through_a_pool_of_two
            pf_21_many_sockets_share_a_small_pool
            a_flooded_socket_starves_no_other
            a_buffer_outlives_the_loop
            a_pool_of_another_loop_is_an_error
        }
        cancelling {
            pf_13_a_cancel_has_three_outcomes
            a_cancelled_receive_took_nothing
            a_cancelled_timeout_is_over_at_once
            a_cancelled_connect_completes
            a_cancelled_multishot_gives_what_it_took_before
            a_cancelled_send_tells_what_went
            a_cancel_of_nothing_says_so
            the_next_in_line_goes_on
            pf_22_a_cancelled_read_loses_no_byte
            pf_22_a_cancelled_accept_loses_no_connection
        }
        endings {
            pf_18_a_dropped_loop_leaves_memory_alone
            pf_18_a_removed_event_drops_what_its_operations_bring
            pf_18_a_handler_that_panics_takes_its_operations_with_it
            descriptors_stay_open_as_long_as_an_operation_is_in_flight
        }
        beside {
            an_operation_keeps_the_loop_running
            operations_that_wait_do_not_wake_the_loop
            timers_run_between_operations
            timeouts_complete_in_order_and_not_early
            posts_and_watched_descriptors_work_beside_operations
            of_a_quiet_send_failures_are_told_and_what_is_asked_for
            a_quiet_send_that_the_socket_does_not_take_is_sent_later_or_cancelled
            handlers_start_and_cancel_operations
            an_event_takes_the_completions_of_many_operations
        }
        random {
            each_operation_has_one_last_completion
        }
        faults {
            pf_19_transient_failures_lose_nothing
            pf_20_stray_completions_hit_nothing
            a_random_schedule_survives_faults
        }
        }
        alone_on_driver! { $driver in $path:
        sockets {
            a_closed_peer_is_an_error_and_no_signal
        }
        multishot {
            pf_21_an_accept_without_descriptors_ends_and_can_be_started_again
        }
        beside {
            signals_work_beside_operations
        }
        endings {
            a_child_has_operations_of_its_own
            no_descriptor_is_left_behind
        }
        }
    };
}

mod io_uring {
    all_on! { io_uring in "io_uring" }
}

mod emulated {
    all_on! { emulated in "emulated" }
    on_driver! { emulated:
        pipes {
            operations_of_one_direction_run_in_the_order_of_their_start
        }
    }
    alone_on_driver! { emulated in "emulated":
        endings {
            a_start_without_descriptors_gives_the_operation_back
        }
    }
}

/// A ring without what only newer kernels have.
mod plain_io_uring {
    on_driver! { plain_io_uring:
        sockets {
            a_connection_is_made_accepted_and_used
            a_large_send_is_complete_only_when_all_is_sent
        }
        multishot {
            one_accept_takes_many_connections
            pf_21_a_burst_passes_through_a_pool_of_one
        }
        cancelling {
            pf_22_a_cancelled_read_loses_no_byte
        }
        random {
            each_operation_has_one_last_completion
        }
    }
}

/// The emulated driver where the loop waits otherwise.
mod emulated_over_poll {
    on_driver! { emulated_over_poll:
        sockets {
            a_connection_is_made_accepted_and_used
            blocking_sockets_do_not_block_the_loop
        }
        multishot {
            pf_21_a_burst_passes_through_a_pool_of_one
        }
        beside {
            timeouts_complete_in_order_and_not_early
        }
        random {
            each_operation_has_one_last_completion
        }
    }
}

mod choice {
    use windlass::proactor::{Driver, DriverChoice, Fallback};

    use crate::harness::{Subject, emulated, emulated_over_poll, io_uring};

    #[test]
    fn a_loop_tells_its_driver_and_why() {
        if let Some(make) = io_uring() {
            let subject = Subject::new(make);
            assert_eq!(subject.event_loop.proactor_driver(), Driver::Uring);
            assert!(subject.event_loop.proactor_fallback().is_none());
        }
        for make in [emulated(), emulated_over_poll()].into_iter().flatten() {
            let subject = Subject::new(make);
            assert_eq!(subject.event_loop.proactor_driver(), Driver::Emulated);
            let fallback = subject.event_loop.proactor_fallback();
            assert!(matches!(fallback, Some(Fallback::Asked)), "{fallback:?}");
        }
    }

    #[test]
    fn a_forced_back_end_is_a_reason_to_fall_back() {
        let mut config = emulated().expect("always there")();
        config.proactor.driver = DriverChoice::Automatic;
        let subject = Subject::with(config);
        assert_eq!(subject.event_loop.proactor_driver(), Driver::Emulated);
        let fallback = subject.event_loop.proactor_fallback();
        assert!(
            matches!(fallback, Some(Fallback::BackendForced(_))),
            "{fallback:?}"
        );
    }
}
