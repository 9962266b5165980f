//! Remote work between processes that are killed in the midst of it.
#![cfg(unix)]

mod remote_support;

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use jobtree_lanes::remote::{RemoteClient, RemoteRequest, RemoteTransport};
use jobtree_runtime::JobState;
use remote_support::*;

/// Set in the process that is to be killed: the address of the peer, or nothing.
const CHILD: &str = "JOBTREE_TEST_REMOTE_CHILD";

/// What a child says begins with this, unlike what the test harness says.
const SAYS: &str = "child says: ";

fn say(what: &str) {
    println!("\n{SAYS}{what}");
}

/// The calling test again, in a process of its own.
struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(told: &str) -> Other {
        let thread = std::thread::current();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", thread.name().unwrap(), "--nocapture"])
            .env(CHILD, told)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Other { process, lines }
    }

    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("it lives").unwrap();
            if let Some(said) = line.strip_prefix(SAYS) {
                return said.to_owned();
            }
        }
    }

    fn kill(&mut self) {
        // By the signal that nobody can handle.
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_killed_amid_a_request_is_a_lost_connection_and_the_next_one_is_found() {
    if std::env::var_os(CHILD).is_some() {
        let runtime = runtime();
        let Echo { service, begun } = echo();
        let server = serve(&runtime, &service, patient());
        say(&server.tcp_address().unwrap().to_string());
        begun.recv().unwrap();
        say("begun");
        loop {
            std::thread::park();
        }
    }
    let _watch = watch();
    let runtime = runtime();
    let mut server = Other::start("serve");
    let address: SocketAddr = server.hear().parse().unwrap();
    let client = RemoteClient::tcp(&runtime, "client", address, patient());
    let lost = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    assert_eq!(server.hear(), "begun");
    assert!(!lost.is_finished());
    server.kill();
    assert_lost(lost.join().unwrap());
    until(|| !client.is_connected());
    // Another server in its place.
    let Echo { service, begun } = echo();
    let builder = jobtree_lanes::remote::RemoteServer::builder(&service).settings(patient());
    let _server = builder.bind_tcp(&runtime, address).unwrap();
    assert_echoes(&runtime, &client, b"a new one");
    assert!(begun.try_recv().is_err(), "the lost request was sent again");
}

#[test]
fn a_client_killed_amid_a_request_has_its_jobs_cancelled() {
    if let Ok(address) = std::env::var(CHILD) {
        let runtime = runtime();
        let client = RemoteClient::tcp(&runtime, "child", address.parse().unwrap(), patient());
        let _waiting = client.send(RemoteRequest::new("wait"));
        let _ = ask(&runtime, &client, RemoteRequest::new("wait"));
        unreachable!("it is killed before");
    }
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let mut client = Other::start(&server.tcp_address().unwrap().to_string());
    let job = begun.recv().unwrap();
    assert!(!job.is_cancelled());
    client.kill();
    until(|| job.state() == JobState::Cancelled);
    until(|| server.connections() == 0);
    assert_eq!(service.running(), 0);
}
