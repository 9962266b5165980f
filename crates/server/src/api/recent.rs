//! Jobs newest first, and jobs by a part of their id, over a store that lists jobs by id, oldest first.
//!
//! Ids are of version 7, so their order is that of submission. The newest jobs are found by looking at ranges of ids from the
//! end: the last second, the last eight, the last minute, and so on. A range with more jobs than one page is halved, its later
//! half first. So a list of a few jobs reads a few pages, however many jobs there are and however they are spread over time.
//!
//! The beginning of an id is a range of ids. Its end is random and has no index: all jobs are read, page by page.
//!
//! A page ends with an id, and the next one begins below it. New jobs have greater ids, so that they move nothing in the pages
//! that follow.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::operations::{DEFAULT_ROWS, ListRecentJobs, RecentQuery};
use jobtree_protocol::{JobId, JobList, JobQuery, JobView};
use uuid::Uuid;

use super::route::Call;
use crate::daemon::Daemon;
use crate::problem::Answered;

/// Jobs that one page of a search reads.
const PAGE: u32 = 500;
/// The hexadecimal digits of an id.
const DIGITS: usize = 32;

pub(super) async fn list_recent_jobs(
    daemon: Arc<Daemon>,
    call: Call<ListRecentJobs>,
) -> Answered<JobList> {
    let RecentQuery {
        id,
        state,
        addon_id,
        job_type,
        tag,
        text,
        quarantined,
        ended_since,
        before,
        limit,
    } = call.query;
    let Some(addon_id) = call.caller.narrowed(addon_id) else {
        return Ok(JobList::default());
    };
    let limit = limit.unwrap_or(DEFAULT_ROWS);
    let Some(last) = before.map_or(Some(LAST), preceding) else {
        return Ok(JobList::default());
    };
    let query = JobQuery {
        state,
        addon_id,
        job_type,
        tag,
        text,
        quarantined,
        ended_since,
        after: None,
        limit: None,
    };
    let fetch = |after: JobId, limit: u32| {
        let (after, limit) = (Some(after), Some(limit));
        let query = JobQuery {
            after,
            limit,
            ..query.clone()
        };
        let page = daemon.scheduler.jobs(query);
        async { Ok(page.await?) }
    };
    let part = id.map(|id| id.replace('-', "").to_ascii_lowercase());
    // One more than asked for, to know whether there is another page.
    let mut jobs = match part {
        None => newest(fetch, recent_ranges(Timestamp::now(), last), limit + 1).await?,
        Some(part) => by_part(fetch, &part, last, limit + 1).await?,
    };
    let is_more = jobs.len() > limit as usize;
    jobs.truncate(limit as usize);
    let next = jobs.last().map(|job| job.job_id).filter(|_| is_more);
    Ok(JobList { jobs, next })
}

/// A range of ids: after the first, up to and with the second.
pub(super) type Range = (JobId, JobId);

const FIRST: JobId = JobId(Uuid::nil());
pub(super) const LAST: JobId = JobId(Uuid::max());

/// Returns the id right before another; none before the first of all.
fn preceding(id: JobId) -> Option<JobId> {
    let number = id.0.as_u128().checked_sub(1)?;
    Some(JobId(Uuid::from_u128(number)))
}

/// Splits all ids up to `last` into ranges, latest last: each begins eight times as long ago as the one behind it. What has a
/// time in the future, by a clock that was wrong, is the last range.
pub(super) fn recent_ranges(now: Timestamp, last: JobId) -> Vec<Range> {
    // The ages of a later page are measured from its end, so that it is found in as few reads as the first.
    let millis = i64::try_from(last.0.as_u128() >> 80).unwrap_or(i64::MAX);
    let now = Timestamp::from_millisecond(millis).map_or(now, |end| end.min(now));
    let mut bounds = vec![LAST, JobId::from_parts(now, [0xff; 10])];
    let mut ago = SignedDuration::from_secs(1);
    // The eighth power of eight seconds is half a year.
    for _ in 0..9 {
        let Ok(begin) = now.checked_sub(ago) else {
            break;
        };
        bounds.push(JobId::from_parts(begin, [0; 10]));
        ago = ago.saturating_mul(8);
    }
    bounds.push(FIRST);
    let ranges = bounds.windows(2).map(|pair| (pair[1], pair[0].min(last)));
    let mut ranges: Vec<Range> = ranges.filter(|(begin, end)| begin < end).collect();
    ranges.reverse();
    ranges
}

/// Returns the newest jobs of the ranges, newest first. The last of the ranges is the latest.
pub(super) async fn newest<F, Page>(
    fetch: F,
    ranges: Vec<Range>,
    limit: u32,
) -> Answered<Vec<JobView>>
where
    F: Fn(JobId, u32) -> Page,
    Page: Future<Output = Answered<JobList>>,
{
    let most = limit as usize;
    let mut found = Vec::new();
    // Each with the end of its first page, if that is known.
    let mut ranges: Vec<_> = ranges.into_iter().map(|range| (range, None)).collect();
    while let Some(((begin, end), known)) = ranges.pop() {
        if found.len() >= most {
            break;
        }
        let page = match known.filter(|next| *next < end) {
            // It was halved before, and there is more in it than a page.
            Some(_) => JobList {
                next: known,
                ..JobList::default()
            },
            None => fetch(begin, limit.saturating_mul(2).min(PAGE)).await?,
        };
        match page.next {
            Some(next) if next < end => {
                ranges.push(((begin, middle(next, end)), Some(next)));
                ranges.push(((middle(next, end), end), None));
            }
            _ => {
                let within = page.jobs.into_iter().filter(|job| job.job_id <= end);
                let mut within: Vec<_> = within.collect();
                within.reverse();
                found.append(&mut within);
            }
        }
    }
    found.truncate(most);
    Ok(found)
}

/// The id half way between two.
fn middle(low: JobId, high: JobId) -> JobId {
    let (low, high) = (low.0.as_u128(), high.0.as_u128());
    JobId(Uuid::from_u128(low + (high - low) / 2))
}

/// Returns jobs up to `last` whose ids begin or end with these digits, newest first.
async fn by_part<F, Page>(fetch: F, part: &str, last: JobId, limit: u32) -> Answered<Vec<JobView>>
where
    F: Fn(JobId, u32) -> Page,
    Page: Future<Output = Answered<JobList>>,
{
    let Some((begin, end)) = beginning(part) else {
        return Ok(Vec::new());
    };
    let range = Some((begin, end.min(last))).filter(|(begin, end)| begin < end);
    let mut found = newest(&fetch, range.into_iter().collect(), limit).await?;
    let most = limit as usize;
    // Ids that end so, oldest first. All are read, since the newest are the last; no more than those are kept.
    let mut ending = VecDeque::new();
    let mut next = Some(FIRST);
    while let Some(after) = next.filter(|after| *after < last) {
        let page = fetch(after, PAGE).await?;
        next = page.next;
        let ends = |job: &JobView| {
            let digits = job.job_id.0.simple().to_string();
            job.job_id <= last && digits.ends_with(part) && !digits.starts_with(part)
        };
        ending.extend(page.jobs.into_iter().filter(ends));
        ending.drain(..ending.len().saturating_sub(most));
    }
    found.extend(ending);
    found.sort_unstable_by_key(|job| std::cmp::Reverse(job.job_id));
    found.truncate(most);
    Ok(found)
}

/// The range of ids that begin with these digits. None if there are more digits than an id has.
fn beginning(part: &str) -> Option<Range> {
    let digits = part.len();
    let number = u128::from_str_radix(part, 16).ok()?;
    let free = 4 * u32::try_from(DIGITS.checked_sub(digits)?).ok()?;
    let low = number.checked_shl(free)?;
    let high = low | u128::MAX.checked_shr(128 - free).unwrap_or(0);
    let id = |number| JobId(Uuid::from_u128(number));
    // The range does not hold its first id. No job has the nil id, which is not of version 7.
    Some((id(low.saturating_sub(1)), id(high)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use super::*;

    /// Jobs of these ids in pages, and how many pages were read.
    struct Shelf {
        jobs: Vec<JobView>,
        pages: Cell<usize>,
    }

    impl Shelf {
        fn of(ids: impl IntoIterator<Item = JobId>) -> Self {
            let job = |id: JobId| -> JobView {
                let text = format!(
                    r#"{{"job_id":"{id}","addon_id":"a","job_type":"t","cost_units":1,"priority":"NORMAL","constraints":{{}},
                    "expected_duration_sec":null,"created_at":"2026-01-01T00:00:00Z","state":"QUEUED","attempts":0,
                    "max_attempts":1,"rescues":0,"next_earliest_start_at":null,"lease_id":null,"node_id":null,
                    "time_sensitive":false,"deadline_at":null,"max_runtime_sec":null,"started_at":null,"ended_at":null}}"#
                );
                serde_json::from_str(&text).expect("a job")
            };
            let mut jobs: Vec<_> = ids.into_iter().map(job).collect();
            jobs.sort_by_key(|job| job.job_id);
            Self {
                jobs,
                pages: Cell::new(0),
            }
        }

        fn fetch(&self, after: JobId, limit: u32) -> std::future::Ready<Answered<JobList>> {
            self.pages.set(self.pages.get() + 1);
            let from = self.jobs.partition_point(|job| job.job_id <= after);
            let rest = &self.jobs[from..];
            let jobs = rest[..rest.len().min(limit as usize)].to_vec();
            let more = jobs.len() < rest.len();
            let next = jobs.last().map(|job| job.job_id).filter(|_| more);
            ready(Ok(JobList { jobs, next }))
        }
    }

    fn run<T>(future: impl Future<Output = Answered<T>>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let answer = runtime.expect("a runtime").block_on(future);
        answer.expect("nothing refuses")
    }

    fn at(second: i64, number: u32) -> JobId {
        let mut random = [0; 10];
        random[6..].copy_from_slice(&number.to_be_bytes());
        let at = Timestamp::from_second(1_700_000_000 + second).expect("a time");
        JobId::from_parts(at, random)
    }

    #[test]
    fn the_newest_are_found_in_few_pages_however_jobs_are_spread() {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let spread: Vec<_> = (0..20_000).map(|n| at(-i64::from(n) * 50, n)).collect();
        let burst: Vec<_> = (0..20_000).map(|n| at(-4000, n)).collect();
        let tomorrow: Vec<_> = (0..3).map(|n| at(86_400, n)).collect();
        for ids in [spread, burst, tomorrow, Vec::new()] {
            let shelf = Shelf::of(ids.clone());
            let fetch = |after, limit| shelf.fetch(after, limit);
            let found = run(newest(fetch, recent_ranges(now, LAST), 10));
            let found: Vec<_> = found.iter().map(|job| job.job_id).collect();
            let mut expected = ids;
            expected.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
            expected.truncate(10);
            assert_eq!(found, expected);
            let pages = shelf.pages.get();
            assert!(pages < 150, "{pages} pages");
        }
    }

    #[test]
    fn pages_follow_each_other_without_a_gap_or_a_double_while_jobs_come() {
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let spread: Vec<_> = (0..700).map(|n| at(-i64::from(n) * 50, n)).collect();
        let burst: Vec<_> = (0..700).map(|n| at(-4000, n)).collect();
        for part in [None, Some("7")] {
            for ids in [spread.clone(), burst.clone()] {
                let mut expected: Vec<_> = ids
                    .iter()
                    .filter(|id| part.is_none_or(|part| id.0.simple().to_string().ends_with(part)))
                    .copied()
                    .collect();
                expected.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
                let (mut all, mut found, mut last) = (ids, Vec::new(), LAST);
                for round in 0.. {
                    let shelf = Shelf::of(all.clone());
                    let fetch = |after, limit| shelf.fetch(after, limit);
                    let page = match part {
                        None => run(newest(fetch, recent_ranges(now, last), 50)),
                        Some(part) => run(by_part(fetch, part, last, 50)),
                    };
                    let pages = shelf.pages.get();
                    assert!(pages < 150, "{pages} pages were read for page {round}");
                    found.extend(page.iter().map(|job| job.job_id));
                    match page.last().and_then(|job| preceding(job.job_id)) {
                        Some(end) if page.len() == 50 => last = end,
                        _ => break,
                    }
                    // They are newer than all that was read.
                    all.extend((0..40).map(|n| at(60 + round, n)));
                }
                assert_eq!(found, expected);
            }
        }
        assert_eq!(preceding(FIRST), None);
    }

    #[test]
    fn ids_are_found_by_their_beginning_and_their_end() {
        let ids: Vec<_> = (0..1200).map(|n| at(i64::from(n), n * 7919)).collect();
        let shelf = Shelf::of(ids.clone());
        let find = |part: &str| {
            let fetch = |after, limit| shelf.fetch(after, limit);
            let found = run(by_part(fetch, part, LAST, 10));
            found.iter().map(|job| job.job_id).collect::<Vec<_>>()
        };
        let digits = |id: JobId| id.0.simple().to_string();
        for id in [ids[0], ids[700], ids[1199]] {
            assert_eq!(find(&digits(id)[24..]), [id], "its end");
            assert_eq!(find(&digits(id)[..12]), [id], "its beginning");
            assert_eq!(find(&digits(id)), [id], "all of it");
        }
        let shared = find(&digits(ids[0])[..6]);
        let mut latest = ids[1190..].to_vec();
        latest.reverse();
        assert_eq!(shared, latest, "the newest of many");
        assert!(find("ffffffffffff").is_empty());
        assert!(find(&"0".repeat(33)).is_empty());
    }
}
