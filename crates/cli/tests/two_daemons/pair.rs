//! Two daemon processes on one PostgreSQL of the test's own, and what is asked of both.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_client::Client;
use jobtree_protocol::{NodeStatus, StatusView};

use crate::support::{self, ALWAYS, Daemon};
pub use postgres::Server;

#[path = "../../../store/tests/support/postgres.rs"]
pub mod postgres;

/// A folder by the names that the server's support uses.
struct Folder(support::Folder);

impl Folder {
    fn new(_: &str) -> Self {
        Self(support::Folder::new())
    }

    fn path(&self) -> &Path {
        &self.0.0
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// The time that a node has to hear of what happened at the other one: by a notification it is milliseconds, by the periodic
/// read of the store some seconds.
pub const HEARD: Duration = Duration::from_secs(12);

/// The daemons n1 and n2, and the database that they share. The daemons end before the database.
pub struct Pair {
    pub daemons: [Daemon; 2],
    pub database: Server,
    /// Where the daemons' tables are.
    pub url: String,
}

impl Pair {
    /// Starts both, with the policy that a new user gets but for what goes by the load of the machine.
    pub fn start() -> Self {
        Self::with_policy(ALWAYS)
    }

    /// Starts both with another policy, of a file.
    pub fn with_policy(policy: &str) -> Self {
        let (database, url) = database();
        let daemon = |node| Daemon::with(&["--store", &url, "--policy", policy, "--node", node]);
        Self {
            daemons: [daemon("n1"), daemon("n2")],
            database,
            url,
        }
    }

    /// Returns a client of each daemon.
    pub fn clients(&self) -> [Client; 2] {
        [&self.daemons[0], &self.daemons[1]].map(client_of)
    }

    /// Waits until nothing is in use on either machine, as each one counts itself.
    #[track_caller]
    pub fn is_idle(&self) {
        let clients = self.clients();
        let begun = Instant::now();
        loop {
            let nodes = clients.each_ref().map(own_status);
            let is_idle =
                |node: &NodeStatus| node.used == 0 && node.reserved == 0 && node.active_leases == 0;
            if nodes.iter().all(is_idle) {
                return;
            }
            assert!(
                begun.elapsed() < HEARD,
                "in use on an idle machine: {nodes:#?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns a client of a daemon.
pub fn client_of(daemon: &Daemon) -> Client {
    let client = Client::builder(&daemon.url).token(daemon.token());
    client.build().expect("a client")
}

/// Returns how the machine of a client's daemon stands.
pub fn own_status(client: &Client) -> NodeStatus {
    let StatusView { nodes, .. } = client.status().expect("the daemon answers");
    nodes.into_iter().next().expect("its own machine is first")
}

/// Starts a database, with the URL of an empty place in it.
pub fn database() -> (Server, String) {
    let database = Server::start();
    let url = url_of(&[&database], &database.new_place());
    (database, url)
}

/// Returns the URL for the connection string of a place, on whichever of these servers can be written to.
pub fn url_of(servers: &[&Server], place: &str) -> String {
    let mut words = place.split([' ', '\'']);
    let schema = words.find_map(|word| word.strip_prefix("search_path="));
    let schema = schema.unwrap_or_else(|| panic!("no schema in {place}"));
    let hosts = servers.iter().map(|it| format!("127.0.0.1:{}", it.port()));
    format!(
        "postgres://postgres@{}/postgres?options=-c%20search_path%3D{schema}&target_session_attrs=read-write",
        hosts.collect::<Vec<_>>().join(",")
    )
}
