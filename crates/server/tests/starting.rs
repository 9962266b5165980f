//! A server starts, tells who it is, is asked the simplest things, and stops.

mod support;

use std::net::TcpStream;

use jobtree_protocol::paths;
use jobtree_server::{Auth, ServeError, Server};
use serde_json::json;
use support::{Folder, House, options};

#[test]
fn it_is_alive_and_ready_for_everybody() {
    let house = House::new();
    let mut nobody = house.nobody();
    assert_eq!(nobody.get(paths::HEALTH).expect(200)["status"], "ok");
    assert_eq!(nobody.get(paths::READY).expect(200)["status"], "ready");
    nobody.get(paths::STATUS).problem(401, "unauthorized");
}

#[test]
fn a_job_is_submitted_seen_listed_and_canceled() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("visuals", "indexing");
    let job = admin.get(&paths::at(paths::JOB, &id)).expect(200);
    assert_eq!(job["state"], "QUEUED");
    let query = format!("{}?state=QUEUED&limit=50", paths::JOBS);
    let list = admin.get(&query).expect(200);
    assert_eq!(list["jobs"][0]["job_id"], json!(id));
    let canceled = admin.poke(&paths::at(paths::CANCEL, &id)).expect(200);
    assert_eq!(canceled, json!({"job_id": id, "state": "CANCELED"}));
    let status = admin.get(paths::STATUS).expect(200);
    assert_eq!(status["jobs"]["CANCELED"], 1);
}

#[test]
fn every_error_is_a_problem() {
    let house = House::new();
    let mut admin = house.admin();
    admin.get("/nowhere").problem(404, "not_found");
    let other = admin.delete(paths::SUBMIT);
    other.problem(405, "malformed");
    assert_eq!(other.header("allow"), Some("POST"));
    admin.poke(paths::SUBMIT).problem(415, "malformed");
}

#[test]
fn jobs_and_the_token_outlive_it() {
    let folder = Folder::new("restart");
    let on_disk = || {
        let mut options = options(folder.path());
        options.store = jobtree_server::StoreChoice::File;
        options
    };
    let house = |server: &Server| {
        let token = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
        support::Client::new(server.addr(), Some(token.trim_end().to_owned()))
    };
    let first = Server::start(on_disk()).unwrap();
    let id = house(&first).submit("visuals", "indexing");
    let in_use = Server::start(on_disk()).unwrap_err();
    assert!(matches!(in_use, ServeError::OpenFile { .. }), "{in_use}");
    let addr = first.addr();
    first.stop();
    assert!(TcpStream::connect(addr).is_err());
    let second = Server::start(on_disk()).unwrap();
    let job = house(&second).get(&paths::at(paths::JOB, &id)).expect(200);
    assert_eq!(job["state"], "QUEUED");
}

#[test]
fn an_address_that_others_reach_needs_tokens_and_tls() {
    let folder = Folder::new("exposed");
    let mut exposed = options(folder.path());
    exposed.listen = "0.0.0.0:0".parse().unwrap();
    let refused = Server::start(exposed.clone()).unwrap_err();
    assert!(matches!(
        refused,
        ServeError::Exposed {
            without_tokens: false,
            without_tls: true,
            ..
        }
    ));
    assert!(refused.to_string().contains("needs TLS"), "{refused}");
    exposed.auth = Auth::Open;
    let refused = Server::start(exposed).unwrap_err().to_string();
    assert!(refused.contains("needs tokens and TLS"), "{refused}");
}

#[test]
fn without_authentication_everybody_here_is_the_admin() {
    let house = House::with(|options| options.auth = Auth::Open);
    let mut nobody = house.nobody();
    nobody.submit("visuals", "indexing");
    assert!(!house.folder.path().join("admin.token").exists());
}
