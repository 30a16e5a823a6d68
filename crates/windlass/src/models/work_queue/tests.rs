use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::{Dispatch, Taken, WorkQueue};

const PATIENCE: Duration = Duration::from_secs(60);

type Numbers = WorkQueue<u32, u32>;

/// Workers that tell which of them did what.
fn start(dispatch: Dispatch, workers: usize) -> (Arc<Numbers>, mpsc::Receiver<(usize, u32)>) {
    let queue = Arc::new(WorkQueue::new(workers, dispatch));
    let (tell, told) = mpsc::channel();
    for worker in 0..workers {
        let (queue, tell) = (Arc::clone(&queue), tell.clone());
        thread::spawn(move || {
            while let Taken::Task(number) | Taken::Post(number) = queue.take(worker) {
                tell.send((worker, number)).expect("the test waits");
            }
            queue.note_end();
        });
    }
    (queue, told)
}

#[test]
fn pf_14_every_task_is_done_without_another() {
    for dispatch in [Dispatch::SharedQueue, Dispatch::RoundRobin] {
        let (queue, told) = start(dispatch, 3);
        for round in 0..30_000 {
            if round % 2 == 0 {
                queue.push(round).expect("open");
            } else {
                queue.push_batch(&mut vec![round]);
            }
            let (_, number) = told.recv_timeout(PATIENCE).expect("it is not left behind");
            assert_eq!(number, round);
        }
        queue.close();
        queue.wait_for_workers(None);
    }
}

#[test]
fn turns_go_round() {
    let (queue, told) = start(Dispatch::RoundRobin, 3);
    let mut tasks: Vec<u32> = (0..7).collect();
    queue.push_batch(&mut tasks);
    queue.push(7).expect("open");
    queue.push_batch(&mut vec![8]);
    let mut done: Vec<_> = (0..9)
        .map(|_| told.recv_timeout(PATIENCE).expect("all are done"))
        .collect();
    done.sort_by_key(|&(_, number)| number);
    for (worker, number) in done {
        assert_eq!(worker, number as usize % 3);
    }
    queue.close();
    queue.wait_for_workers(None);
}

#[test]
fn posts_reach_each_worker_also_when_idle() {
    for dispatch in [Dispatch::SharedQueue, Dispatch::RoundRobin] {
        let (queue, told) = start(dispatch, 4);
        for worker in 0..4 {
            queue.post(worker, worker as u32).expect("open");
        }
        for _ in 0..4 {
            let (worker, number) = told.recv_timeout(PATIENCE).expect("all are told");
            assert_eq!(worker, number as usize);
        }
        queue.close();
        queue.wait_for_workers(None);
    }
}

#[test]
fn a_closed_queue_gives_back_what_it_gets() {
    let queue: WorkQueue<u32, u32> = WorkQueue::new(2, Dispatch::RoundRobin);
    queue.push_batch(&mut vec![1, 2, 3]);
    queue.post(1, 4).expect("open");
    let (mut tasks, posts) = queue.close();
    tasks.sort_unstable();
    assert_eq!((tasks, posts), (vec![1, 2, 3], vec![4]));
    let mut late = vec![5, 6, 7];
    queue.push_batch(&mut late);
    assert_eq!(late, [5, 6, 7]);
    assert_eq!(queue.push(8), Err(8));
    assert_eq!(queue.post(0, 9), Err(9));
    assert_eq!(queue.try_take(0), Some(Taken::End));
}

#[test]
fn a_wait_for_workers_leaves_out_those_in_work_that_may_not_end() {
    let queue: Arc<WorkQueue<u32, u32>> = Arc::new(WorkQueue::new(1, Dispatch::SharedQueue));
    let gate = Arc::new(Barrier::new(2));
    let worker = {
        let (queue, gate) = (Arc::clone(&queue), Arc::clone(&gate));
        thread::spawn(move || {
            queue.unbound(|| gate.wait());
            assert_eq!(queue.take(0), Taken::End);
            queue.note_end();
        })
    };
    queue.close();
    queue.wait_for_workers(None);
    gate.wait();
    worker.join().expect("no panic");
    queue.wait_for_workers(None);
}
