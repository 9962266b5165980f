//! The manager's numbers: what the builder says, else what the environment says, else the default.
//!
//! Reading them is a function of values alone, so that tests need no environment of their process. What the manager's
//! share of the workers is called in the environment is also what the pool reads for all its workers: a
//! deployment that limits the one limits the other.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Names of a variable: ours, and the one that older deployments set.
type Names = [&'static str; 2];
const WORKERS: Names = ["JOBTREE_WORKERS", "XR_JOB_WORKERS"];
const WORKER_CAP: Names = ["JOBTREE_WORKER_CAP", "XR_JOB_WORKER_CAP"];
const QUEUE_LIMIT: Names = ["JOBTREE_QUEUE_LIMIT", "XR_JOB_QUEUE_LIMIT"];
const QUEUE_WARNING: Names = ["JOBTREE_QUEUE_WARN", "XR_JOB_QUEUE_WARN"];

/// CPUs that are left to the rest of the program, if nothing else is said.
const RESERVED_CPUS: usize = 4;
const DEFAULT_WORKER_CAP: usize = 16;
const DEFAULT_QUEUE_LIMIT: usize = 8192;
const DEFAULT_QUEUE_WARNING: usize = 2048;
const DEFAULT_AGING: Duration = Duration::from_secs(2);
const DEFAULT_STEPS: usize = 64;

/// What the builder was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) workers: Option<usize>,
    pub(crate) worker_cap: Option<usize>,
    pub(crate) queue_limit: Option<usize>,
    pub(crate) queue_warning: Option<usize>,
    pub(crate) aging: Option<Duration>,
    pub(crate) steps_per_dispatch: Option<usize>,
}

/// The numbers a manager works with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How many of the runtime's workers run jobs of the lane `Any` at once.
    pub(crate) workers: usize,
    /// How many jobs may be scheduled and not ended; None: any number.
    pub(crate) queue_limit: Option<NonZeroUsize>,
    /// From how many jobs in one bucket on there are warnings; None: never.
    pub(crate) queue_warning: Option<NonZeroUsize>,
    /// After what time a job has turns by age.
    pub(crate) aging: Duration,
    /// How many steps a job has in one dispatch.
    pub(crate) steps_per_dispatch: usize,
}

impl Settings {
    /// The numbers, from what was asked for, the variables that `lookup` finds, how many CPUs this process may use,
    /// and how many workers the runtime has.
    pub(crate) fn resolve(
        asked: &Asked,
        lookup: impl Fn(&str) -> Option<OsString>,
        cpus: usize,
        runtime_workers: usize,
    ) -> Result<Settings, SettingsError> {
        let read = |asked: Option<usize>, names: Names, least: usize| match asked {
            Some(number) => Ok(Some(number)),
            None => read_number(&lookup, names, least),
        };
        let cap = read(asked.worker_cap, WORKER_CAP, 1)?;
        let workers = match asked.workers {
            // Who asks in the program has counted the CPUs: only a cap that somebody set holds.
            Some(workers) => workers.min(cap.unwrap_or(usize::MAX)),
            None => read_number(&lookup, WORKERS, 1)?
                .unwrap_or(cpus.saturating_sub(RESERVED_CPUS).max(1))
                .min(cap.unwrap_or(DEFAULT_WORKER_CAP)),
        };
        if workers == 0 {
            return Err(SettingsError::ZeroWorkers);
        }
        let limit = read(asked.queue_limit, QUEUE_LIMIT, 0)?.unwrap_or(DEFAULT_QUEUE_LIMIT);
        let limit = NonZeroUsize::new(limit);
        let warning = read(asked.queue_warning, QUEUE_WARNING, 0)?.unwrap_or(DEFAULT_QUEUE_WARNING);
        let warning = warning.min(limit.map_or(usize::MAX, NonZeroUsize::get));
        let steps_per_dispatch = asked.steps_per_dispatch.unwrap_or(DEFAULT_STEPS);
        if steps_per_dispatch == 0 {
            return Err(SettingsError::ZeroSteps);
        }
        Ok(Settings {
            workers: workers.min(runtime_workers.max(1)),
            queue_limit: limit,
            queue_warning: NonZeroUsize::new(warning),
            aging: asked.aging.unwrap_or(DEFAULT_AGING),
            steps_per_dispatch,
        })
    }
}

fn read_number(
    lookup: &impl Fn(&str) -> Option<OsString>,
    names: Names,
    least: usize,
) -> Result<Option<usize>, SettingsError> {
    let set = |name: &'static str| lookup(name).map(|value| (name, value));
    let Some((name, value)) = names.into_iter().find_map(set) else {
        return Ok(None);
    };
    let value = value.to_string_lossy().into_owned();
    match value.trim().parse() {
        Ok(number) if number >= least => Ok(Some(number)),
        _ => Err(SettingsError::Variable { name, value, least }),
    }
}

/// Why a manager cannot work with the numbers it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// `workers(0)` or `worker_cap(0)`.
    ZeroWorkers,
    /// `steps_per_dispatch(0)`.
    ZeroSteps,
    /// An environment variable says something else than a number that makes sense there.
    Variable {
        /// Which.
        name: &'static str,
        /// What it says.
        value: String,
        /// The least number that it may say.
        least: usize,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::ZeroWorkers => write!(
                f,
                "a job manager needs at least one worker; leave `workers` out to have one per CPU less \
                 {RESERVED_CPUS}, and `worker_cap` to have at most {DEFAULT_WORKER_CAP}"
            ),
            SettingsError::ZeroSteps => write!(
                f,
                "a job needs at least one step a dispatch; leave `steps_per_dispatch` out to have \
                 {DEFAULT_STEPS}"
            ),
            SettingsError::Variable { name, value, least } => {
                write!(
                    f,
                    "the environment variable {name} is `{value}`; write a whole number"
                )?;
                if *least > 0 {
                    write!(f, " from {least} on")?;
                } else if QUEUE_LIMIT.contains(name) {
                    write!(f, ", 0 for a queue without limit")?;
                } else {
                    write!(f, ", 0 for no warnings")?;
                }
                write!(f, ", or unset it")
            }
        }
    }
}

impl Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(
        asked: Asked,
        variables: &[(&str, &str)],
        cpus: usize,
    ) -> Result<Settings, SettingsError> {
        let lookup = |name: &str| {
            let known = variables.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| value.into())
        };
        Settings::resolve(&asked, lookup, cpus, 1000)
    }

    fn workers(workers: Option<usize>, variables: &[(&str, &str)], cpus: usize) -> usize {
        let asked = Asked {
            workers,
            ..Asked::default()
        };
        resolve(asked, variables, cpus).unwrap().workers
    }

    fn queue(variables: &[(&str, &str)]) -> (Option<usize>, Option<usize>) {
        let settings = resolve(Asked::default(), variables, 8).unwrap();
        let limit = settings.queue_limit.map(NonZeroUsize::get);
        (limit, settings.queue_warning.map(NonZeroUsize::get))
    }

    #[test]
    fn the_defaults() {
        let settings = resolve(Asked::default(), &[], 12).unwrap();
        let expected = Settings {
            workers: 8,
            queue_limit: NonZeroUsize::new(8192),
            queue_warning: NonZeroUsize::new(2048),
            aging: Duration::from_secs(2),
            steps_per_dispatch: 64,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn workers_are_cpus_less_4_at_least_1_at_most_16() {
        for (cpus, expected) in [
            (1, 1),
            (4, 1),
            (5, 1),
            (6, 2),
            (20, 16),
            (21, 16),
            (128, 16),
        ] {
            assert_eq!(workers(None, &[], cpus), expected, "{cpus} CPUs");
        }
    }

    #[test]
    fn the_environment_sets_and_caps_the_workers() {
        assert_eq!(workers(None, &[("JOBTREE_WORKERS", "3")], 64), 3);
        assert_eq!(workers(None, &[("JOBTREE_WORKERS", " 3 ")], 64), 3);
        assert_eq!(workers(None, &[("JOBTREE_WORKERS", "40")], 64), 16);
        assert_eq!(workers(None, &[("JOBTREE_WORKER_CAP", "32")], 64), 32);
        let both = [("JOBTREE_WORKERS", "40"), ("JOBTREE_WORKER_CAP", "20")];
        assert_eq!(workers(None, &both, 64), 20);
    }

    #[test]
    fn the_old_names_are_read_and_the_new_ones_win() {
        let old = [
            ("XR_JOB_WORKERS", "5"),
            ("XR_JOB_WORKER_CAP", "4"),
            ("XR_JOB_QUEUE_LIMIT", "100"),
            ("XR_JOB_QUEUE_WARN", "10"),
        ];
        assert_eq!(workers(None, &old, 64), 4);
        assert_eq!(queue(&old), (Some(100), Some(10)));
        let both = [&old[..], &[("JOBTREE_WORKERS", "2")]].concat();
        assert_eq!(workers(None, &both, 64), 2);
        let both = [&old[..], &[("JOBTREE_QUEUE_LIMIT", "200")]].concat();
        assert_eq!(queue(&both), (Some(200), Some(10)));
    }

    #[test]
    fn the_builder_wins_over_the_environment() {
        let set = [("JOBTREE_WORKERS", "3"), ("JOBTREE_QUEUE_LIMIT", "9")];
        assert_eq!(workers(Some(6), &set, 64), 6);
        assert_eq!(workers(Some(40), &[], 64), 40, "it has counted its CPUs");
        let capped = [("JOBTREE_WORKER_CAP", "4")];
        assert_eq!(workers(Some(6), &capped, 64), 4, "a cap is a cap");
        let asked = Asked {
            worker_cap: Some(8),
            queue_limit: Some(20),
            queue_warning: Some(7),
            aging: Some(Duration::from_millis(5)),
            steps_per_dispatch: Some(1),
            workers: Some(10),
        };
        let settings = resolve(asked, &[&set[..], &capped].concat(), 64).unwrap();
        let expected = Settings {
            workers: 8,
            queue_limit: NonZeroUsize::new(20),
            queue_warning: NonZeroUsize::new(7),
            aging: Duration::from_millis(5),
            steps_per_dispatch: 1,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_share_is_never_more_than_the_runtime_has() {
        let asked = Asked {
            workers: Some(8),
            ..Asked::default()
        };
        let settings = Settings::resolve(&asked, |_| None, 64, 3).unwrap();
        assert_eq!(settings.workers, 3);
    }

    #[test]
    fn a_queue_limit_of_0_is_no_limit_and_the_warning_is_clamped_to_the_limit() {
        assert_eq!(queue(&[("JOBTREE_QUEUE_LIMIT", "0")]), (None, Some(2048)));
        assert_eq!(queue(&[("XR_JOB_QUEUE_LIMIT", "0")]), (None, Some(2048)));
        assert_eq!(
            queue(&[("JOBTREE_QUEUE_LIMIT", "64")]),
            (Some(64), Some(64))
        );
        assert_eq!(queue(&[("JOBTREE_QUEUE_WARN", "0")]), (Some(8192), None));
    }

    #[test]
    fn what_is_no_number_is_an_error_that_says_what_to_write() {
        for value in ["", "many", "-1", "1.5", "0x10", "99999999999999999999999"] {
            for names in [WORKERS, WORKER_CAP, QUEUE_LIMIT, QUEUE_WARNING] {
                for name in names {
                    let error = resolve(Asked::default(), &[(name, value)], 8).unwrap_err();
                    let text = error.to_string();
                    let said = format!("{name} is `{value}`; write a whole number");
                    assert!(text.contains(&said), "{text}");
                }
            }
        }
        let zero = resolve(Asked::default(), &[("JOBTREE_WORKERS", "0")], 8).unwrap_err();
        assert!(zero.to_string().contains("from 1 on"), "{zero}");
    }

    #[test]
    fn a_manager_without_workers_or_without_steps_is_refused() {
        for (workers, cap) in [(Some(0), None), (Some(3), Some(0)), (None, Some(0))] {
            let asked = Asked {
                workers,
                worker_cap: cap,
                ..Asked::default()
            };
            assert_eq!(resolve(asked, &[], 8), Err(SettingsError::ZeroWorkers));
        }
        let asked = Asked {
            steps_per_dispatch: Some(0),
            ..Asked::default()
        };
        assert_eq!(resolve(asked, &[], 8), Err(SettingsError::ZeroSteps));
    }
}
