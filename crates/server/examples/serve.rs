//! A server in memory on a machine that seems to idle, for programs that try the interface. It prints where it is, and
//! serves until its input ends; without a folder for its files it only shows that it starts.
//!
//! `cargo run -p jobtree-server --example serve -- DATA_DIR`

use std::io::Read;

use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_server::{Server, ServerOptions, StoreChoice};

/// Whoever tries the interface sets this one again, and the like of it.
const POLICY: &str = r#"
[quiet]
enter_after = "0s"
[ramp]
units_per_sample = 0
[busy]
stale_after = "1h"
[caps]
leases = 1000
addon_leases = 1000
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().nth(1);
    let own = std::env::temp_dir().join(format!("jobtree-serve-{}", std::process::id()));
    let folder = given.as_ref().map_or(own.clone(), Into::into);
    let mut options = ServerOptions {
        listen: "127.0.0.1:0".parse()?,
        store: StoreChoice::Memory,
        sample_every: None,
        ..ServerOptions::new(folder)
    };
    options.scheduler.policy = Policy::from_toml(POLICY)?;
    let server = Server::start(options)?;
    server.scheduler().sample(Sample::idle());
    println!("{}", server.url());
    match given {
        Some(_) => std::io::stdin().read_to_end(&mut Vec::new()).map(drop)?,
        None => std::fs::remove_dir_all(own)?,
    }
    server.stop();
    Ok(())
}
