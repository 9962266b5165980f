//! Two processes over the remote lane: this program starts itself a second time, as a server of assets, and has a manager
//! load some of them from there, over a real socket.
//!
//! ```text
//! cargo run -p jobtree-lanes --example two_processes
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobtree_lanes::remote::{
    RemoteClient, RemoteError, RemoteRequest, RemoteServer, RemoteService, RemoteSettings,
    TransferMode,
};
use jobtree_lanes::{JobManager, Priority};
use jobtree_runtime::{Runtime, sleep};

/// What the second process is started with.
const SERVE: &str = "serve";

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some(SERVE) => serve(),
        _ => load(),
    }
}

/// The second process: serves until its input ends, which is when the first one has gone.
fn serve() -> Result<(), Box<dyn Error>> {
    let service = RemoteService::new("assets");
    service
        .handle("asset.load", |request| {
            let name = String::from_utf8(request.payload)?;
            if name.ends_with(".missing") {
                return Err(format!("there is no asset {name}").into());
            }
            Ok(format!("<{name}, read by process {}>", std::process::id()).into_bytes())
        })
        .handle("asset.store", |request| {
            assert!(!request.payload.is_empty());
            Ok(Vec::new())
        })
        .handle("asset.bake", |_| {
            // For an hour, unless the one who asked does not want it any more.
            sleep(Duration::from_secs(3600))?;
            Ok(Vec::new())
        });
    let server = RemoteServer::builder(&service).bind_tcp(Runtime::global(), "127.0.0.1:0")?;
    println!(
        "{}",
        server.tcp_address().ok_or("a TCP server has an address")?
    );
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(server.shutdown(Duration::from_secs(5))?)
}

/// Ends the second process with the first, however that ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn start_server() -> Result<(Server, SocketAddr), Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("it was piped")?;
    let server = Server(child);
    let mut address = String::new();
    BufReader::new(output).read_line(&mut address)?;
    Ok((server, address.trim().parse()?))
}

/// The first process.
fn load() -> Result<(), Box<dyn Error>> {
    let (server, address) = start_server()?;
    println!("process {} serves assets on {address}", server.0.id());
    let runtime = Runtime::global();
    let client = RemoteClient::tcp(runtime, "editor", address, RemoteSettings::default());
    let manager = JobManager::builder()
        .runtime(runtime)
        .remote(client.clone())
        .build()?;

    // Several at once; the workers do other things meanwhile.
    let names = ["rock.png", "tree.png", "river.png"];
    let loads = names.map(|name| {
        let request = RemoteRequest::new("asset.load")
            .payload(name)
            .priority(Priority::High)
            .timeout(Duration::from_secs(30));
        manager.schedule_remote(request)
    });
    for (name, load) in names.into_iter().zip(loads) {
        let asset = String::from_utf8(load.join()?.into_payload()?)?;
        println!("{name}: {asset}");
        assert_eq!(
            asset,
            format!("<{name}, read by process {}>", server.0.id())
        );
    }

    // Data go the other way, too.
    let store = RemoteRequest::new("asset.store").mode(TransferMode::PushDataToRemote);
    let stored = manager
        .schedule_remote(store.payload(vec![7; 100_000]))
        .join()?;
    assert!(stored.is_success() && stored.payload.is_empty());
    println!("stored 100000 bytes");

    // What fails there is told here.
    let missing = RemoteRequest::new("asset.load").payload("moon.missing");
    let answer = manager.schedule_remote(missing).join()?;
    println!(
        "moon.missing: {}",
        answer.error.as_ref().ok_or("it is missing")?
    );
    assert!(matches!(answer.error, Some(RemoteError::Remote(_))));
    let unknown = manager
        .schedule_remote(RemoteRequest::new("asset.melt"))
        .join()?;
    let expected = RemoteError::UnknownOperation("asset.melt".to_owned());
    assert_eq!(unknown.error, Some(expected));

    // What takes too long is cancelled, here and there.
    let bake = RemoteRequest::new("asset.bake").timeout(Duration::from_millis(50));
    let baked = manager.schedule_remote(bake);
    assert!(baked.wait().is_err() && baked.is_faulted());
    println!("baking took too long, and was cancelled");

    manager.shutdown(Duration::from_secs(5))?;
    println!("done");
    Ok(())
}
