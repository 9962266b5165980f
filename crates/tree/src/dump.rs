//! A picture of the live tree, for the one who asks why a program does not end.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use crate::error::JobId;
use crate::job::Job;
use crate::path::printable;
use crate::waiting::WaitingFor;
use crate::word::JobState;

/// One job in a [`TreeDump`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// The depth of the job below the top of the dump.
    pub depth: usize,
    /// The job's id.
    pub id: JobId,
    /// The job's label; without one, its id.
    pub label: String,
    /// The job's state.
    pub state: JobState,
    /// The time since the job was made.
    pub age: Duration,
    /// The thing that the job's body waits for, as far as it is known.
    pub waiting_for: Option<WaitingFor>,
}

/// A job and all below it that have not ended, each before those below it.
///
/// The jobs go on while the picture is taken: each line is true of some moment, not all of one. Printed, it is a
/// tree for people; [`TreeDump::to_json`] is the same for programs.
#[derive(Clone, Debug)]
pub struct TreeDump {
    jobs: Vec<JobInfo>,
    notes: Vec<String>,
}

impl Job {
    /// A picture of this job and all below it.
    ///
    /// ```
    /// use jobtree_tree::{JobOptions, Tree};
    ///
    /// let tree = Tree::new();
    /// let (server, _body) = tree.root().attach(JobOptions::new().label("server").started())?;
    /// let (_request, _request_body) = server.attach(JobOptions::new().label("request"))?;
    /// let picture = tree.root().dump_tree().to_string();
    /// assert!(picture.contains("└─ server"), "{picture}");
    /// assert!(picture.contains("   └─ request"), "{picture}");
    /// # Ok::<(), jobtree_tree::ParentEnded>(())
    /// ```
    pub fn dump_tree(&self) -> TreeDump {
        let mut jobs = Vec::new();
        let mut to_visit = vec![(0, self.clone())];
        while let Some((depth, job)) = to_visit.pop() {
            jobs.push(JobInfo {
                depth,
                id: job.id(),
                label: job.label(),
                state: job.state(),
                age: job.age(),
                waiting_for: job.waiting_for(),
            });
            let children = job.children().into_iter().rev();
            to_visit.extend(children.map(|child| (depth + 1, child)));
        }
        TreeDump {
            jobs,
            notes: Vec::new(),
        }
    }
}

impl TreeDump {
    /// The jobs, each before those below it.
    pub fn jobs(&self) -> &[JobInfo] {
        &self.jobs
    }

    /// Adds a line about what runs the jobs.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> TreeDump {
        self.notes.push(note.into());
        self
    }

    /// Returns what is wrong with the runtime that runs the jobs, one line each; usually none.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The picture as one JSON object: `id`, `label`, `state`, `age_ms`, `waiting_for`, `children`; and, if there are
    /// [notes](TreeDump::notes), `notes`.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        let mut open = 0;
        for job in &self.jobs {
            while open > job.depth {
                json.push_str("]}");
                open -= 1;
            }
            if json.ends_with('}') {
                json.push(',');
            }
            let _ = write!(
                json,
                r#"{{"id":{},"label":{},"state":"{}","age_ms":{},"waiting_for":{},"children":["#,
                job.id.as_u64(),
                Quoted(&job.label),
                job.state,
                job.age.as_millis(),
                Optional(job.waiting_for),
            );
            open = job.depth + 1;
        }
        for _ in 1..open {
            json.push_str("]}");
        }
        json.push(']');
        for (index, note) in self.notes.iter().enumerate() {
            json.push_str(if index == 0 { r#","notes":["# } else { "," });
            let _ = write!(json, "{}", Quoted(note));
        }
        json.push_str(if self.notes.is_empty() { "}" } else { "]}" });
        json
    }
}

impl fmt::Display for TreeDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whether a job at each depth is followed by another one at that depth, from the end backwards.
        let mut more_at: Vec<bool> = Vec::new();
        let mut is_last = vec![true; self.jobs.len()];
        for (index, job) in self.jobs.iter().enumerate().rev() {
            more_at.resize(job.depth + 1, false);
            is_last[index] = !more_at[job.depth];
            more_at[job.depth] = true;
        }
        let mut bars: Vec<bool> = Vec::new();
        for (job, is_last) in self.jobs.iter().zip(is_last) {
            bars.truncate(job.depth.saturating_sub(1));
            for bar in &bars {
                f.write_str(if *bar { "│  " } else { "   " })?;
            }
            if job.depth > 0 {
                f.write_str(if is_last { "└─ " } else { "├─ " })?;
                bars.push(!is_last);
            }
            writeln!(f, "{job}")?;
        }
        for note in &self.notes {
            writeln!(f, "! {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for JobInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.id.to_string();
        f.write_str(&printable(&self.label))?;
        if self.label != number {
            write!(f, " {number}")?;
        }
        write!(f, ": {}, {:?} old", self.state, self.age)?;
        match self.waiting_for {
            Some(waiting) => write!(f, ", waiting for {waiting}"),
            None => Ok(()),
        }
    }
}

/// A string as JSON.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                control if control < ' ' => write!(f, "\\u{:04x}", control as u32)?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

struct Optional(Option<WaitingFor>);

impl fmt::Display for Optional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(waiting) => Quoted(&waiting.to_string()).fmt(f),
            None => f.write_str("null"),
        }
    }
}
