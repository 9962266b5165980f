//! What a person or a program is told: why something failed, where, and what a program that does not end waits for.

mod support;

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Barrier};
use std::task::Poll;

use jobtree_pool::{CountLatch, OnceLatch, join};
use jobtree_runtime::{
    BoxError, Job, JobError, JobHandle, JobState, WaitingFor, nursery, supervisor,
};
use serde_json::Value;
use support::{FAR, end, for_ever, rounds, runtime, until, until_it_waits, watch};

#[derive(Debug)]
struct Chain(&'static str, Option<BoxError>);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Chain {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|source| source as _)
    }
}

fn connection_error() -> BoxError {
    let route = Chain("no route to host", None);
    let socket = Chain("cannot open a socket", Some(route.into()));
    Chain("cannot fetch the page", Some(socket.into())).into()
}

#[test]
fn the_report_of_a_failing_grandchild_names_its_path_and_what_lies_behind() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.job_options().label("server").launch(|| {
            nursery(|n| {
                let request = n.job_options().label("request");
                request.launch(|| Err(connection_error()));
                Ok(())
            })?;
            Ok(())
        });
        Ok(())
    });
    let error = outcome.unwrap_err();
    let report = error.report().to_string();
    let lines: Vec<&str> = report.lines().collect();
    assert!(lines[0].starts_with("root/"), "{report}");
    assert!(lines[0].contains("/server"), "{report}");
    assert!(lines[0].contains("/request failed: "), "{report}");
    assert!(lines[0].ends_with("cannot fetch the page"), "{report}");
    assert!(
        report.contains("\n  because: cannot open a socket\n"),
        "{report}"
    );
    assert!(report.contains("\n  because: no route to host"), "{report}");
    // And for programs.
    assert!(error.path().unwrap().contains("/server"), "{error:?}");
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    let mut deepest = String::new();
    while let Some(error) = source {
        deepest = error.to_string();
        source = error.source();
    }
    assert_eq!(deepest, "no route to host");
}

#[test]
fn errors_after_the_first_are_told_and_their_number_is_bounded() {
    let _watch = watch();
    let children: usize = 20;
    let all_run = CountLatch::new(children);
    let all_run = &all_run;
    let outcome = nursery(|n| {
        for number in 0..children {
            n.job_options()
                .label(format!("child {number}"))
                .launch(move || {
                    all_run.count_down();
                    all_run.wait();
                    Err(format!("error {number}").into())
                });
        }
        Ok(())
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, JobError::Failed(_)));
    assert_eq!(error.more(), children - 1);
    let kept = error.secondary().len();
    assert!((1..children - 1).contains(&kept), "{kept} were kept");
    // Each of another child.
    let mut paths: Vec<&str> = error
        .secondary()
        .iter()
        .filter_map(JobError::path)
        .collect();
    paths.extend(error.path());
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), kept + 1);
    let report = error.report().to_string();
    assert_eq!(report.matches("\n  then: root/").count(), kept, "{report}");
    let rest = children - 1 - kept;
    assert!(
        report.ends_with(&format!("\n  and {rest} more errors")),
        "{report}"
    );
}

/// `handle.join()?` is what nearly every body does. Whether the body or the scope hears of the failure first is
/// chance; what the caller is told must not be.
#[test]
fn the_error_of_a_child_that_the_body_returns_is_told_once() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(100) {
        let outcome = runtime.nursery(|n| {
            let child = n
                .job_options()
                .label("child")
                .spawn(|| Err::<(), _>("broke".into()));
            Ok(child.join()?)
        });
        let error = outcome.unwrap_err();
        let report = error.report().to_string();
        assert_eq!(report.matches("broke").count(), 1, "{report}");
        assert_eq!(error.more(), 0, "{report}");
        assert!(error.path().unwrap().ends_with("/child"), "{report}");
    }
    end(&runtime);
}

#[test]
fn the_report_of_a_panic_carries_its_message_and_place() {
    const LINE: u32 = line!() + 2;
    fn careless(index: usize) -> Result<(), BoxError> {
        panic!("index {index} is out");
    }
    let _watch = watch();
    let outcome = nursery(|n| {
        n.job_options().label("careless").launch(|| careless(7));
        Ok(())
    });
    let error = outcome.unwrap_err();
    let JobError::Panicked(panic) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(panic.message(), "index 7 is out");
    assert!(panic.path().ends_with("/careless"));
    let place = panic.location().unwrap();
    let file_and_line = format!("reports.rs:{LINE}:");
    assert!(place.contains(&file_and_line), "{place}");
    let report = error.report().to_string();
    assert!(
        report.contains("/careless panicked: index 7 is out"),
        "{report}"
    );
    assert!(report.contains(&file_and_line), "{report}");
}

#[test]
fn a_panic_in_a_stolen_fork_is_told_with_its_place() {
    let _watch = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(5) {
        // Which side is stolen is the pool's business: so each panics once.
        for panics_left in [true, false] {
            let line = line!() + 6;
            let job = runtime.spawn(move || {
                let both = Barrier::new(2);
                let side = |panics: bool| {
                    both.wait();
                    if panics {
                        panic!("in a fork");
                    }
                };
                join(|| side(panics_left), || side(!panics_left));
                Ok(())
            });
            match job.join() {
                Err(JobError::Panicked(panic)) => {
                    assert_eq!(panic.message(), "in a fork");
                    let place = panic.location().expect("the hook has seen it");
                    assert!(place.contains(&format!("reports.rs:{line}:")), "{place}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    end(&runtime);
}

#[test]
fn the_payload_of_a_panic_goes_on_where_one_asks_for_it() {
    let _watch = watch();
    let outcome = nursery(|n| {
        n.launch(|| std::panic::panic_any(42_u64));
        Ok(())
    });
    let Err(JobError::Panicked(panic)) = outcome else {
        panic!("{outcome:?}");
    };
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| panic.resume())).unwrap_err();
    assert_eq!(caught.downcast_ref::<u64>(), Some(&42));
}

/// A dump of one job, found by its label.
fn line_of<'a>(picture: &'a str, label: &str) -> &'a str {
    let mut lines = picture.lines().filter(|line| line.contains(label));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("no {label}: {picture}"));
    assert!(lines.next().is_none(), "{picture}");
    line
}

fn find<'a>(tree: &'a Value, label: &str) -> Option<&'a Value> {
    if tree["label"] == label {
        return Some(tree);
    }
    tree["children"]
        .as_array()?
        .iter()
        .find_map(|child| find(child, label))
}

#[test]
fn a_dump_of_a_blocked_program_shows_who_waits_for_what() {
    let _watch = watch();
    let runtime = runtime(2);
    let release = Arc::new(OnceLatch::new());
    let wait = release.clone();
    let program = runtime.spawn(move || {
        supervisor(|n| {
            let label = |label: &'static str| n.job_options().label(label);
            let deaf = label("deaf").spawn(move || {
                wait.wait();
                Ok(())
            });
            let deaf_id = deaf.job().id();
            let _joiner = label("joiner").spawn(move || Ok(deaf.join()?));
            let _sleeper = label("sleeper").spawn(|| Ok(jobtree_runtime::sleep(FAR)?));
            let _awaiter = label("awaiter")
                .spawn(|| Ok(jobtree_runtime::block_on(std::future::pending::<()>())?));
            let _parent = label("pa\"rent\t").spawn(|| {
                nursery(|n| {
                    n.job_options().label("leaf").launch(for_ever);
                    Ok(())
                })?;
                Ok(())
            });
            Ok(deaf_id)
        })?;
        Ok(())
    });
    let job_called = |label: &str| -> Option<Job> {
        let mut below = vec![runtime.root().clone()];
        while let Some(job) = below.pop() {
            if job.label() == label {
                return Some(job);
            }
            below.extend(job.children());
        }
        None
    };
    for label in ["joiner", "sleeper", "awaiter", "pa\"rent\t", "leaf"] {
        until(|| job_called(label).is_some());
        until_it_waits(&job_called(label).unwrap());
    }
    until(|| job_called("deaf").is_some_and(|deaf| deaf.state() == JobState::Active));
    // The program itself: its body has ended, so what it opened waits for children.
    until(|| {
        let scope = program.job().children().pop();
        scope.is_some_and(|scope| scope.waiting_for() == Some(WaitingFor::Children))
    });
    let dump = runtime.dump_tree();
    let picture = dump.to_string();
    let deaf = job_called("deaf").unwrap().id();
    assert!(
        line_of(&picture, "joiner").ends_with(&format!("waiting for job {deaf}")),
        "{picture}"
    );
    assert!(
        line_of(&picture, "sleeper").ends_with("waiting for a time"),
        "{picture}"
    );
    assert!(
        line_of(&picture, "awaiter").ends_with("waiting for a future"),
        "{picture}"
    );
    assert!(
        line_of(&picture, "leaf").ends_with("waiting for a time"),
        "{picture}"
    );
    assert!(
        line_of(&picture, "deaf").contains(": active, "),
        "{picture}"
    );
    assert!(picture.contains(": completing, "), "{picture}");
    assert_eq!(
        dump.jobs().len(),
        picture.lines().filter(|l| l.contains(" old")).count()
    );

    let tree: Value = serde_json::from_str(&dump.to_json()).expect("a dump is valid JSON");
    assert_eq!(tree["label"], "root");
    let joiner = find(&tree, "joiner").unwrap();
    assert_eq!(joiner["waiting_for"], format!("job {deaf}"));
    assert_eq!(joiner["state"], "active");
    assert!(joiner["age_ms"].is_u64() && joiner["id"].is_u64());
    let parent = find(&tree, "pa\"rent\t").expect("labels are escaped");
    assert!(find(parent, "leaf").is_some());
    assert_eq!(find(&tree, "deaf").unwrap()["waiting_for"], Value::Null);
    let count = count_jobs(&tree);
    assert_eq!(count, dump.jobs().len());

    release.set();
    program.cancel("seen enough");
    assert!(program.join().unwrap_err().is_cancelled());
    end(&runtime);
    assert_eq!(runtime.root().state(), JobState::Cancelled);
}

fn count_jobs(tree: &Value) -> usize {
    let below = tree["children"].as_array().unwrap();
    1 + below.iter().map(count_jobs).sum::<usize>()
}

/// The dump is taken while everything moves, and is a tree all the same.
#[test]
fn a_dump_of_a_busy_program_is_a_tree() {
    let _watch = watch();
    let runtime = runtime(2);
    let busy = runtime.spawn(|| {
        loop {
            nursery(|n| {
                let handles: Vec<JobHandle<()>> = (0..4)
                    .map(|_| {
                        n.spawn(|| {
                            Ok(nursery(|n| {
                                n.launch(|| Ok(()));
                                Ok(())
                            })?)
                        })
                    })
                    .collect();
                for handle in handles {
                    handle.join()?;
                }
                Ok(())
            })?;
        }
    });
    let busy: JobHandle<()> = busy;
    for _ in 0..rounds(50) {
        let dump = runtime.dump_tree();
        let tree: Value = serde_json::from_str(&dump.to_json()).unwrap();
        assert_eq!(count_jobs(&tree), dump.jobs().len());
        let depths: Vec<usize> = dump.jobs().iter().map(|job| job.depth).collect();
        assert!(
            depths.windows(2).all(|pair| pair[1] <= pair[0] + 1),
            "{depths:?}"
        );
    }
    busy.cancel("seen enough");
    assert!(busy.join().unwrap_err().is_cancelled());
    end(&runtime);
}

/// Two forks of one job can wait at the same time; when both have gone on, the job waits for nothing.
#[test]
fn a_job_whose_forks_have_waited_is_not_shown_as_waiting() {
    let _watch = watch();
    let runtime = runtime(2);
    #[derive(Default)]
    struct Fork {
        waits: OnceLatch,
        go_on: OnceLatch,
        gone_on: OnceLatch,
    }
    impl Fork {
        fn wait(&self) {
            let ready = poll_fn(|context| {
                self.waits.set();
                if self.go_on.is_set() {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            });
            jobtree_runtime::block_on(ready).unwrap();
            self.gone_on.set();
        }
    }
    let forks: Arc<[Fork; 2]> = Arc::default();
    let over = Arc::new(OnceLatch::new());
    let (inside, wait) = (forks.clone(), over.clone());
    let job = runtime.spawn(move || {
        let second = || {
            inside[0].waits.wait();
            inside[1].wait();
        };
        join(|| inside[0].wait(), second);
        wait.wait();
        Ok(())
    });
    // The one that began to wait first goes on first.
    forks[1].waits.wait();
    for fork in &*forks {
        fork.go_on.set();
        fork.gone_on.wait();
    }
    assert_eq!(job.job().waiting_for(), None);
    over.set();
    job.join().unwrap();
    end(&runtime);
}
