//! Tasks and futures that never wait: spawned, run, and their values asked for.
//!
//! All stand inside their own runtime, on one of its workers, as a program that spawns does: first all are spawned, then
//! all are asked for. A thousand at a time is what a scope of a program has; a million at once goes through all
//! caches. Ours belong to a scope, which ends with them; tokio's and may's belong to nobody.

use jobtree_runtime::{BoxError, future};

use super::may::{May, in_may};
use super::{Options, TOKIO, jobs, workers};
use crate::harness::{Contender, Goal, Plan, Report, Role, timed};
use crate::servant::Service;
use crate::suites::shared::{
    Spec, end, in_our_future, in_our_task, in_tokio, our_runtime, repeat, tokio_runtime,
};

const TASK: &str = "task that does not block: spawn and join";
const FUTURE: &str = "future that is ready: spawn and await";

/// How many a scope has, where it is not a million.
const FEW: u64 = 1000;
/// All at once; of these a round has one iteration.
const MANY: u64 = 1_000_000;
const MANY_IN_A_HURRY: u64 = 100_000;

pub const MAY: &[Service] = &[Service {
    name: "spawn",
    run: |iterations| in_may(move || timed(&mut (), iterations, |()| in_may_scope(FEW))),
}];

/// Adds two rows for tasks and two for futures.
pub fn run(options: &Options, report: &mut Report) {
    let many = if options.quick { MANY_IN_A_HURRY } else { MANY };
    for (name, count) in [
        (format!("{TASK}, {FEW} at a time"), FEW),
        (format!("{TASK}, {many} at once"), many),
    ] {
        tasks(options, report, &name, count);
    }
    for (name, count) in [
        (format!("{FUTURE}, {FEW} at a time"), FEW),
        (format!("{FUTURE}, {many} at once"), many),
    ] {
        futures(options, report, &name, count);
    }
}

fn plan(options: &Options, count: u64) -> Plan {
    let mut plan = options.plan.clone();
    if count > FEW {
        plan.rounds = plan.rounds.min(9);
    }
    plan
}

fn spec(options: &Options, name: &str, count: u64, at_most: f64) -> Spec {
    Spec {
        name: name.into(),
        workers: workers(options),
        unit: "task",
        units: count,
        goal: Goal::side(TOKIO, at_most),
    }
}

fn tasks(options: &Options, report: &mut Report, name: &str, count: u64) {
    if !options.wants(name) {
        return;
    }
    let ours = our_runtime(workers(options));
    let tokio = tokio_runtime(workers(options));
    // A million stacks of may's do not exist: it runs out of mappings.
    let may = (count == FEW).then(|| May::start(workers(options)));
    let in_our_scopes = |(): &mut (), iterations| {
        in_our_task(&ours, move || {
            timed(&mut (), iterations, |()| jobs::spawn::our_scope(count))
        })
    };
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, in_our_scopes),
        Contender::new("ours again", Role::Control, in_our_scopes),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, move || tokio_tasks(count)))
        }),
    ];
    contenders.extend(may.as_ref().and_then(|may| may.contender(MAY[0].name)));
    spec(options, name, count, 0.25).run(&plan(options, count), contenders, report);
    end(&ours);
}

fn futures(options: &Options, report: &mut Report, name: &str, count: u64) {
    if !options.wants(name) {
        return;
    }
    let ours = our_runtime(workers(options));
    let tokio = tokio_runtime(workers(options));
    let in_our_scopes = |(): &mut (), iterations| {
        in_our_future(&ours, repeat(iterations, move || our_futures(count)))
    };
    let contenders = vec![
        Contender::new("ours", Role::Ours, in_our_scopes),
        Contender::new("ours again", Role::Control, in_our_scopes),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, repeat(iterations, move || tokio_tasks(count)))
        }),
    ];
    spec(options, name, count, 0.6).run(&plan(options, count), contenders, report);
    end(&ours);
}

async fn our_futures(count: u64) -> u64 {
    let sum = future::nursery(async move |scope| {
        let handles: Vec<_> = (0..count)
            .map(|value| scope.spawn_future(async move { Ok(value) }))
            .collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await?;
        }
        Ok::<u64, BoxError>(sum)
    });
    sum.await.expect("no job fails")
}

async fn tokio_tasks(count: u64) -> u64 {
    let handles: Vec<_> = (0..count)
        .map(|value| tokio::spawn(async move { value }))
        .collect();
    let mut sum = 0;
    for handle in handles {
        sum += handle.await.expect("no task fails");
    }
    sum
}

fn in_may_scope(count: u64) -> u64 {
    let handles: Vec<_> = (0..count).map(|value| may::go!(move || value)).collect();
    let values = handles
        .into_iter()
        .map(|handle| handle.join().expect("no task fails"));
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_gets_every_value() {
        let expected = FEW * (FEW - 1) / 2;
        let ours = our_runtime(2);
        assert_eq!(in_our_task(&ours, || jobs::spawn::our_scope(FEW)), expected);
        assert_eq!(in_our_future(&ours, our_futures(FEW)), expected);
        end(&ours);
        assert_eq!(in_tokio(&tokio_runtime(2), tokio_tasks(FEW)), expected);
        assert_eq!(in_may(|| in_may_scope(FEW)), expected);
    }
}
