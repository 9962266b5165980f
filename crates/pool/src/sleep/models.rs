//! loom models of the sleep protocol. A worker that sleeps although there is work shows as a deadlock:
//! then no thread of the model can go on.
//!
//! The loops here make the same calls in the same order as those of `worker.rs`, `wait.rs` and
//! `search.rs`; what they look for is one flag for each piece of work instead of a pool's queues.

use std::sync::Arc;

use super::Sleep;
use super::roster::Roster;
use crate::modelling::{Crew, Failure, Meeting, Model, claim, find_work};
use crate::sync::step::Step;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

pub(crate) const MODELS: &[&Model] = &[
    &ONE_POST,
    &TWO_POSTS,
    &TWO_WORKERS,
    &PASSED_ON,
    &NOTICE,
    &NOTICE_ALONE,
    &POST_TO_ALONE,
    &NOTICE_AND_POST,
    &ROSTER,
];

/// Pieces of work, each of which one worker takes.
struct Posted<const N: usize>([AtomicBool; N]);

impl<const N: usize> Posted<N> {
    fn new() -> Posted<N> {
        Posted(std::array::from_fn(|_| AtomicBool::new(false)))
    }

    /// Relaxed, as in the weakest of the queues: the rest is up to the fences.
    fn post(&self, number: usize) {
        self.0[number].store(true, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        self.0.iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<usize> {
        let is_taken =
            |flag: &AtomicBool| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::AcqRel);
        self.0.iter().position(is_taken)
    }
}

/// The state after many posts: the event counter says that no worker is sleepy.
fn awake_pool(workers: usize) -> Sleep {
    let sleep = Sleep::new(workers);
    sleep.new_work();
    sleep
}

fn claim_nobody_is_counted(sleep: &Sleep) {
    let counters = sleep.snapshot();
    claim(counters.sleeping() == 0, "no sleeper is counted at the end");
    claim(
        counters.inactive() == 0,
        "no searcher is counted at the end",
    );
    claim(sleep.roster.take_one().is_none(), "no name is left over");
}

/// One worker falls asleep while work is posted.
const ONE_POST: Model = Model {
    name: "sleep: one post",
    preemptions: None,
    needs: &[
        (Step::SleepAnnounce, Failure::Deadlock),
        (Step::SleepAnnounceFence, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::SleepRecheck, Failure::Deadlock),
        (Step::SleepEventCheck, Failure::Deadlock),
        (Step::SleepRosterFirst, Failure::Deadlock),
        (Step::SleeperDrowsy, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((awake_pool(1), Posted::<1>::new()));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, posted) = &*worker;
            find_work(sleep, 0, || posted.take(), || posted.is_there());
        });
        let (sleep, posted) = &*scene;
        posted.post(0);
        sleep.new_work();
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// Two posts one after the other: the second meets a worker that is awake, searching, sleepy or asleep.
const TWO_POSTS: Model = Model {
    name: "sleep: two posts",
    preemptions: Some(4),
    needs: &[
        (Step::SleepAnnounce, Failure::Deadlock),
        (Step::SleepAnnounceFence, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::SleepEventCheck, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((Sleep::new(1), Posted::<2>::new()));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, posted) = &*worker;
            for _ in 0..2 {
                find_work(sleep, 0, || posted.take(), || posted.is_there());
            }
        });
        let (sleep, posted) = &*scene;
        posted.post(0);
        sleep.new_work();
        posted.post(1);
        sleep.new_work();
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// Two pieces of work that end only when both have begun: each post must get a worker of its own, be it
/// from the poster or from the worker that leaves the search.
const TWO_WORKERS: Model = Model {
    name: "sleep: two workers",
    preemptions: Some(3),
    needs: &[
        (Step::SleepCascade, Failure::Deadlock),
        (Step::SleepCascadeFence, Failure::Deadlock),
    ],
    body: || {
        struct Scene {
            sleep: Sleep,
            posted: Posted<2>,
            both_have_begun: Meeting,
        }
        let scene = Arc::new(Scene {
            sleep: awake_pool(2),
            posted: Posted::new(),
            both_have_begun: Meeting::new(),
        });
        let crew = Crew::new();
        for index in [0, 1] {
            let scene = scene.clone();
            crew.spawn(move || {
                let Scene { sleep, posted, .. } = &*scene;
                find_work(sleep, index, || posted.take(), || posted.is_there());
                scene.both_have_begun.arrive();
            });
        }
        for number in [0, 1] {
            scene.posted.post(number);
            scene.sleep.new_work();
        }
        crew.wait();
        claim_nobody_is_counted(&scene.sleep);
    },
};

/// A poster has picked whom to wake, but the one it has picked is woken by a notice and then sleeps alone,
/// until the posted work is done. It has left the search, so it must have passed the wake on.
const PASSED_ON: Model = Model {
    name: "sleep: passed on",
    preemptions: Some(2),
    needs: &[(Step::SleepCascade, Failure::Deadlock)],
    body: || {
        struct Scene {
            sleep: Sleep,
            mail: Posted<1>,
            posted: Posted<1>,
            is_done: AtomicBool,
        }
        const RECIPIENT: usize = 0;
        const OTHER: usize = 1;
        let scene = Arc::new(Scene {
            sleep: awake_pool(2),
            mail: Posted::new(),
            posted: Posted::new(),
            is_done: AtomicBool::new(false),
        });
        let run_posted = |scene: &Scene| {
            scene.is_done.store(true, Ordering::Release);
            scene.sleep.notify(RECIPIENT);
            scene.sleep.notify(OTHER);
        };
        let crew = Crew::new();
        let recipient = scene.clone();
        crew.spawn(move || {
            let Scene {
                sleep,
                posted,
                mail,
                is_done,
            } = &*recipient;
            let look = || {
                mail.take()
                    .map(|_| true)
                    .or_else(|| posted.take().map(|_| false))
            };
            let is_mail = find_work(sleep, RECIPIENT, look, || posted.is_there());
            if is_mail {
                let is_done = || is_done.load(Ordering::Acquire);
                while !is_done() {
                    sleep.sleep_alone(RECIPIENT, is_done, None);
                }
            } else {
                run_posted(&recipient);
            }
        });
        let other = scene.clone();
        crew.spawn(move || {
            let Scene {
                sleep,
                posted,
                is_done,
                ..
            } = &*other;
            let done = || is_done.load(Ordering::Acquire).then_some(false);
            let look = || posted.take().map(|_| true).or_else(done);
            if find_work(sleep, OTHER, look, || posted.is_there()) {
                run_posted(&other);
            }
        });
        let sender = scene.clone();
        crew.spawn(move || {
            sender.mail.post(0);
            sender.sleep.notify(RECIPIENT);
        });
        scene.posted.post(0);
        scene.sleep.new_work();
        crew.wait();
    },
};

/// A notice for a worker that falls asleep: what came for it alone is a flag that it looks at.
const NOTICE: Model = Model {
    name: "sleep: notice",
    preemptions: None,
    needs: &[
        (Step::SleeperNotice, Failure::Deadlock),
        (Step::InboxNotify, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((awake_pool(1), Posted::<1>::new()));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, mail) = &*worker;
            find_work(sleep, 0, || mail.take(), || false);
        });
        let (sleep, mail) = &*scene;
        mail.post(0);
        sleep.notify(0);
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// The same for a worker that sleeps alone, as inside `isolate`.
const NOTICE_ALONE: Model = Model {
    name: "sleep: notice for one who sleeps alone",
    preemptions: None,
    needs: &[
        (Step::SleeperNotice, Failure::Deadlock),
        (Step::InboxNotify, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((awake_pool(1), AtomicBool::new(false)));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, is_set) = &*worker;
            while !is_set.load(Ordering::Relaxed) {
                sleep.sleep_alone(0, || is_set.load(Ordering::Relaxed), None);
            }
        });
        let (sleep, is_set) = &*scene;
        is_set.store(true, Ordering::Relaxed);
        sleep.notify(0);
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// Work that a worker which sleeps alone takes is posted while it falls asleep.
const POST_TO_ALONE: Model = Model {
    name: "sleep: a post to a worker that sleeps alone",
    preemptions: Some(3),
    needs: &[
        (Step::SleepAloneFence, Failure::Deadlock),
        (Step::SleepAlonePostFence, Failure::Deadlock),
        (Step::SleeperDrowsyAlone, Failure::Deadlock),
        (Step::SleeperNotice, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((Sleep::new(1), Posted::<2>::new()));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, posted) = &*worker;
            for _ in 0..2 {
                while posted.take().is_none() {
                    sleep.sleep_alone(0, || posted.is_there(), None);
                }
            }
        });
        let (sleep, posted) = &*scene;
        posted.post(0);
        sleep.wake_alone();
        posted.post(1);
        sleep.wake_alone();
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// A notice and a post meet at one worker: both are seen, and it is counted out once.
const NOTICE_AND_POST: Model = Model {
    name: "sleep: notice and post",
    preemptions: Some(3),
    needs: &[
        (Step::SleeperNotice, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
    ],
    body: || {
        let scene = Arc::new((awake_pool(1), Posted::<1>::new(), Posted::<1>::new()));
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            let (sleep, mail, posted) = &*worker;
            for _ in 0..2 {
                find_work(
                    sleep,
                    0,
                    || mail.take().or_else(|| posted.take()),
                    || posted.is_there(),
                );
            }
        });
        let sender = scene.clone();
        crew.spawn(move || {
            let (sleep, mail, _) = &*sender;
            mail.post(0);
            sleep.notify(0);
        });
        let (sleep, _, posted) = &*scene;
        posted.post(0);
        sleep.new_work();
        crew.wait();
        claim_nobody_is_counted(sleep);
    },
};

/// A name is entered while another thread clears the summary of a word that was empty.
const ROSTER: Model = Model {
    name: "sleep: roster",
    preemptions: None,
    needs: &[(Step::RosterLookAgain, Failure::Assertion)],
    body: || {
        let scene = Arc::new((Roster::new(2), Mutex::new(None)));
        let (roster, taken) = &*scene;
        roster.enter(0);
        roster.leave(0);
        let crew = Crew::new();
        let poster = scene.clone();
        crew.spawn(move || {
            let name = poster.0.take_one();
            *lock(&poster.1) = name;
        });
        roster.enter(1);
        crew.wait();
        let taken: Option<usize> = lock(taken).take();
        let mut names = taken.into_iter().chain(roster.take_one());
        claim(names.next() == Some(1), "a name that was entered is found");
        claim(names.next().is_none(), "it is found once");
    },
};

#[test]
fn loom_a_post_finds_its_worker() {
    ONE_POST.check();
}

#[test]
fn loom_two_posts_find_their_worker() {
    TWO_POSTS.check();
}

#[test]
fn loom_each_of_two_posts_finds_a_worker_of_its_own() {
    TWO_WORKERS.check();
}

#[test]
fn loom_a_worker_that_leaves_the_search_passes_the_wake_on() {
    PASSED_ON.check();
}

#[test]
fn loom_a_notice_finds_its_worker() {
    NOTICE.check();
}

#[test]
fn loom_a_notice_finds_a_worker_that_sleeps_alone() {
    NOTICE_ALONE.check();
}

#[test]
fn loom_a_post_finds_a_worker_that_sleeps_alone() {
    POST_TO_ALONE.check();
}

#[test]
fn loom_a_notice_and_a_post_wake_a_worker_once() {
    NOTICE_AND_POST.check();
}

#[test]
fn loom_an_entered_name_is_found() {
    ROSTER.check();
}
