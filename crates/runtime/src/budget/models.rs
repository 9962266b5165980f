//! Loom models of recharging: a fiber that waits for more against its supervisor, other fibers of its job, and the
//! cancellation of the job.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_pool::raw::fuel::Turn;
use jobtree_tree::{Body, BodyResult, Job, JobOptions, Tree};

use super::account::{Account, Lack, Terms};
use super::supervise::{Decision, Handler, Supervision, Waiting};
use super::{Budget, Capabilities, Profile};
use crate::block::{Either, FirstOf};
use crate::modelling::{Crew, Failure, block, check, claim};
use crate::step::Step;

const OP: Turn = Turn {
    ops: 1,
    ..Turn::EMPTY
};

/// What one recharge gives.
const ONE_OP: Budget = Budget {
    ops: 1,
    ..Budget::NONE
};

/// A job with an account that has nothing left, and its supervisor.
struct Scene {
    account: Arc<Account>,
    supervision: Arc<Supervision>,
    job: Job,
    body: Option<Body>,
    tree: Tree,
}

impl Scene {
    fn new() -> Scene {
        let tree = Tree::new();
        let (job, body) = tree
            .root()
            .attach(JobOptions::new().started())
            .expect("the root has not ended");
        let supervision = Arc::new(Supervision::new(Arc::default()));
        let terms = Terms {
            profile: Profile::Cluster,
            budget: Budget {
                memory: u64::MAX,
                ..Budget::NONE
            },
            capabilities: Capabilities::ALL,
        };
        let account = Account::outermost(&terms, &supervision);
        account.enter_body(Some(job.clone()));
        Scene {
            account,
            supervision,
            job,
            body: Some(body),
            tree,
        }
    }

    /// Ends the job, and checks that nothing of its fibers is left.
    fn finish(mut self) {
        claim(
            self.account.lacking().is_none(),
            "the account lacks nothing",
        );
        claim(
            self.supervision.listed() == 0,
            "the supervisor does not know the job any more",
        );
        self.account.close_body();
        if let Some(body) = self.body.take() {
            body.end(BodyResult::Value);
        }
        drop(self.tree);
    }
}

fn lack(account: &Account) -> Lack {
    match account.draw(OP, Turn::EMPTY) {
        Err(lack) => lack,
        Ok(_) => panic!("there was nothing to draw"),
    }
}

/// Draws one operation as a fiber does; waits for recharges until it can.
fn pay(account: &Arc<Account>) {
    while let Err(lack) = account.draw(OP, Turn::EMPTY) {
        let waiting = Waiting::begin(account, &lack);
        block(pin!(waiting.recharged(&lack)), false);
    }
}

/// A fiber runs out while a handler is set that recharges: before the fiber says so, while it does, or when it waits
/// already. In each case it goes on.
#[test]
fn loom_a_handler_set_while_a_fiber_runs_out_recharges_it() {
    const NEEDS: &[(Step, Failure)] = &[
        (Step::ExhaustedListedFirst, Failure::Deadlock),
        (Step::HandlerSeesListed, Failure::Deadlock),
        (Step::LackIsNumbered, Failure::Deadlock),
        (Step::RechargeCounts, Failure::Deadlock),
        (Step::RechargeWakes, Failure::Deadlock),
        (Step::RechargeEnters, Failure::Deadlock),
        (Step::WaitingEnds, Failure::Assertion),
    ];
    check(3, NEEDS, || {
        let scene = Scene::new();
        let crew = Crew::new();
        let supervision = Arc::clone(&scene.supervision);
        crew.spawn(move || supervision.set_handler(Handler::new(|_| Decision::Recharge(ONE_OP))));
        pay(&scene.account);
        crew.wait();
        scene.finish();
    });
}

/// A fiber was recharged and leaves while another one of the same job runs out: the supervisor still knows the job.
#[test]
fn loom_a_fiber_that_leaves_does_not_hide_another_that_waits() {
    const NEEDS: &[(Step, Failure)] = &[
        (Step::UnlistLooks, Failure::Assertion),
        (Step::WaitingEnds, Failure::Assertion),
    ];
    check(4, NEEDS, || {
        let scene = Scene::new();
        let first = lack(&scene.account);
        let crew = Crew::new();
        let account = Arc::clone(&scene.account);
        crew.spawn(move || {
            let waiting = Waiting::begin(&account, &first);
            // Not enough for the other fiber.
            let given = account.recharge(ONE_OP).expect("it is exhausted");
            claim(given == ONE_OP, "there is no limit to the supervisor");
            drop(waiting);
        });
        let two = Turn {
            ops: 2,
            ..Turn::EMPTY
        };
        let Err(second) = scene.account.draw(two, Turn::EMPTY) else {
            panic!("there is one at most");
        };
        let waiting = Waiting::begin(&scene.account, &second);
        crew.wait();
        // If the other fiber's recharge came later, this one has to look again, which it does.
        let has_to_wait = scene.account.lacking().is_some();
        claim(
            scene.supervision.exhausted().len() == usize::from(has_to_wait),
            "a job that lacks something is shown to its supervisor",
        );
        drop(waiting);
        scene.finish();
    });
}

/// A fiber waits for a supervisor that ignores it and then recharges, while its job is cancelled: it ends its wait once,
/// by either, and leaves nothing behind.
#[test]
fn loom_a_recharge_against_a_cancellation() {
    const NEEDS: &[(Step, Failure)] = &[(Step::WaitingEnds, Failure::Assertion)];
    check(2, NEEDS, || {
        let scene = Scene::new();
        scene
            .supervision
            .set_handler(Handler::new(|_| Decision::Ignore));
        let crew = Crew::new();
        let job = scene.job.clone();
        crew.spawn(move || claim(job.cancel("stop"), "the job runs until then"));
        let was_given = Arc::new(AtomicBool::new(false));
        let (account, given) = (Arc::clone(&scene.account), Arc::clone(&was_given));
        crew.spawn(move || given.store(account.recharge(ONE_OP).is_ok(), Ordering::Relaxed));
        let lack = lack(&scene.account);
        let is_recharged = {
            let waiting = Waiting::begin(&scene.account, &lack);
            let cancelled = scene.job.cancel_requested();
            let either = FirstOf(waiting.recharged(&lack), cancelled);
            matches!(block(pin!(either), false), Either::First(()))
        };
        crew.wait();
        claim(
            !is_recharged || was_given.load(Ordering::Relaxed),
            "a recharge was made up",
        );
        scene.finish();
    });
}
