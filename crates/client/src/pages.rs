//! Lists that are longer than one answer.

use std::vec;

use jobtree_protocol::{JobQuery, JobView};

use crate::call::Result;
use crate::client::Client;

/// All jobs that a query finds, page by page, asked for as they are taken.
#[derive(Debug)]
pub struct Jobs {
    client: Client,
    /// What to ask next; none behind the last page.
    query: Option<JobQuery>,
    page: vec::IntoIter<JobView>,
}

impl Client {
    /// All jobs that a query finds. Its `limit` is the size of a page, not of the whole. An error ends it.
    ///
    /// ```no_run
    /// # let client = jobtree_client::Client::new("http://127.0.0.1:7717")?;
    /// for job in client.all_jobs(Default::default()) {
    ///     println!("{}", job?.job_id);
    /// }
    /// # Ok::<(), jobtree_client::ClientError>(())
    /// ```
    pub fn all_jobs(&self, query: JobQuery) -> Jobs {
        Jobs {
            client: self.clone(),
            query: Some(query),
            page: Vec::new().into_iter(),
        }
    }
}

impl Iterator for Jobs {
    type Item = Result<JobView>;

    fn next(&mut self) -> Option<Result<JobView>> {
        loop {
            if let Some(job) = self.page.next() {
                return Some(Ok(job));
            }
            let mut query = self.query.take()?;
            match self.client.jobs(&query) {
                Err(error) => return Some(Err(error)),
                Ok(list) => {
                    self.page = list.jobs.into_iter();
                    if list.next.is_some() {
                        query.after = list.next;
                        self.query = Some(query);
                    }
                }
            }
        }
    }
}
