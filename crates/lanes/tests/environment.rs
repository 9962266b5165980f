//! The variables of the environment, as a process really has them: this program starts itself again, with some set.

mod support;

use std::env;
use std::process::Command;

use jobtree_lanes::{JobManager, LaneJob};
use jobtree_runtime::Runtime;
use support::watch;

/// What tells the second process that it is one.
const ASKED: &str = "JOBTREE_TEST_ASKED";

/// The second process: prints what a manager made of its environment.
fn answer() {
    let runtime = Runtime::builder().workers(9).build().unwrap();
    match JobManager::builder().runtime(&runtime).build() {
        Ok(manager) => {
            let many = (0..9000).map(|_| manager.try_schedule(LaneJob::action(|| Ok(()))));
            let refused = many.filter(Result::is_err).count();
            // With a limit this depends on how fast jobs end; without one there are none.
            let refused = manager.slots().capacity.map_or(refused, |_| 0);
            println!(
                "answer: {} workers, capacity {:?}, {refused} refused",
                manager.workers(),
                manager.slots().capacity
            );
        }
        Err(error) => println!("answer: {error}"),
    }
}

fn ask(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    for name in ["WORKERS", "WORKER_CAP", "QUEUE_LIMIT", "QUEUE_WARN"] {
        command.env_remove(format!("JOBTREE_{name}"));
        command.env_remove(format!("XR_JOB_{name}"));
    }
    let name = "the_environment_sets_workers_cap_and_queue_limit_by_old_and_new_names";
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(ASKED, "yes").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.lines().find_map(|line| line.split_once("answer: "));
    match answer {
        Some((_, answer)) => answer.to_owned(),
        None => panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn the_environment_sets_workers_cap_and_queue_limit_by_old_and_new_names() {
    let _watchdog = watch();
    if env::var_os(ASKED).is_some() {
        return answer();
    }
    for prefix in ["JOBTREE", "XR_JOB"] {
        let names = ["WORKERS", "WORKER_CAP", "QUEUE_LIMIT"].map(|name| format!("{prefix}_{name}"));
        let [workers, cap, limit] = &names;
        assert_eq!(
            ask(&[(workers, "5"), (limit, "100")]),
            "5 workers, capacity Some(100), 0 refused"
        );
        assert_eq!(
            ask(&[(workers, "5"), (cap, "3"), (limit, "0")]),
            "3 workers, capacity None, 0 refused",
            "0 is no limit"
        );
        let error = ask(&[(limit, "many")]);
        assert!(error.contains(limit) && error.contains("many"), "{error}");
    }
}
