//! What the tests of the server share: a server on a free port of this machine, over a folder that goes with it, and a
//! client that writes every byte of a request itself, so that it can also write wrong ones.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_protocol::{Scope, paths};
use jobtree_server::{Server, ServerOptions, StoreChoice};
use serde_json::{Value, json};

#[path = "../../../scheduler/tests/support/quiet_machine.rs"]
mod quiet_machine;
#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;
use quiet_machine::{QuietMachine, default_policy};
pub use watchdog::Watchdog;

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("jobtree-server-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a new folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be deleted is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on a machine that idles, with the policy that a new user gets. It stops, and its folder goes, when it is
/// dropped; in this order.
pub struct House {
    _machine: QuietMachine,
    pub server: Server,
    pub folder: Folder,
    _watchdog: Watchdog,
}

impl House {
    /// In memory.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other options than the usual.
    pub fn with(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let folder = Folder::new("house");
        let mut options = options(folder.path());
        change(&mut options);
        let server = Server::start(options).expect("the server starts");
        let scheduler = server.scheduler().clone();
        Self {
            _machine: QuietMachine::measured_by(move |sample| scheduler.sample(sample)),
            server,
            folder,
            _watchdog: Watchdog::watching("a test of the server"),
        }
    }

    pub fn admin_token(&self) -> String {
        let file = self.folder.path().join("admin.token");
        let text = std::fs::read_to_string(file).expect("the admin's token");
        text.trim_end().to_owned()
    }

    /// Somebody with the admin's token.
    pub fn admin(&self) -> Client {
        Client::new(self.server.addr(), Some(self.admin_token()))
    }

    /// Somebody without a token.
    pub fn nobody(&self) -> Client {
        Client::new(self.server.addr(), None)
    }

    /// Somebody with a new token of an addon.
    pub fn addon(&self, addon: &str, scopes: &[Scope]) -> Client {
        let body =
            json!({"name": format!("a test's, for {addon}"), "addon_id": addon, "scopes": scopes});
        let made = self.admin().post(paths::TOKENS, &body).expect(201);
        let token = made["token"].as_str().expect("a token").to_owned();
        Client::new(self.server.addr(), Some(token))
    }
}

/// What tests start with.
pub fn options(folder: &Path) -> ServerOptions {
    let mut options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: StoreChoice::Memory,
        sample_every: None,
        threads: Some(2),
        ..ServerOptions::new(folder)
    };
    options.scheduler.policy = default_policy();
    options
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}: {}", self.status, self.text()))
    }

    /// The JSON of an answer with this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.body.is_empty() {
            return Value::Null;
        }
        self.json()
    }

    /// It is a problem of this status and code, whole and with something to read in it.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(problem["status"], status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["type"], format!("urn:jobtree:problem:{code}"));
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(problem["detail"].as_str().unwrap().len() > 10, "{problem}");
        problem
    }
}

/// A client of HTTP/1.1, with one connection that is kept.
pub struct Client {
    addr: SocketAddr,
    token: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// What it calls the server.
    pub host: String,
    connection: Option<TcpStream>,
    /// Bytes that came after the last answer.
    rest: Vec<u8>,
}

impl Client {
    pub fn new(addr: SocketAddr, token: Option<String>) -> Self {
        Self {
            addr,
            token,
            headers: Vec::new(),
            host: addr.to_string(),
            connection: None,
            rest: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.request("GET", path, None, b"")
    }

    pub fn delete(&mut self, path: &str) -> Reply {
        self.request("DELETE", path, None, b"")
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, JSON, body.to_string().as_bytes())
    }

    pub fn put(&mut self, path: &str, body: &Value) -> Reply {
        self.request("PUT", path, JSON, body.to_string().as_bytes())
    }

    /// Without a body.
    pub fn poke(&mut self, path: &str) -> Reply {
        self.request("POST", path, None, b"")
    }

    /// The answer, if there is one.
    pub fn try_post(&mut self, path: &str, body: &Value) -> Option<Reply> {
        self.try_request("POST", path, JSON, body.to_string().as_bytes())
    }

    pub fn request(&mut self, method: &str, path: &str, kind: Option<&str>, body: &[u8]) -> Reply {
        self.try_request(method, path, kind, body)
            .unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    fn try_request(
        &mut self,
        method: &str,
        path: &str,
        kind: Option<&str>,
        body: &[u8],
    ) -> Option<Reply> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.host);
        if let Some(token) = &self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(kind) = kind {
            head += &format!("content-type: {kind}\r\n");
        }
        if method != "GET" && method != "HEAD" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes, method == "HEAD")
    }

    /// Sends these bytes and reads an answer; none if the connection ends without one.
    pub fn raw(&mut self, bytes: &[u8], head_only: bool) -> Option<Reply> {
        if self.connection.is_none() {
            let stream = TcpStream::connect(self.addr).expect("a connection");
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            stream.set_nodelay(true).unwrap();
            self.connection = Some(stream);
            self.rest.clear();
        }
        let stream = self.connection.as_mut().unwrap();
        // The server may have answered and closed before all was sent: the answer is there all the same.
        let _ = stream.write_all(bytes);
        let reply = read_reply(stream, &mut self.rest, head_only);
        let closes = |reply: &Reply| reply.header("connection") == Some("close");
        if reply.as_ref().is_none_or(closes) {
            self.connection = None;
        }
        reply
    }

    /// The stream, for whoever wants to be slow.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// A job, submitted.
    pub fn submit(&mut self, addon: &str, job_type: &str) -> String {
        let body = json!({"addon_id": addon, "job_type": job_type, "cost_units": 10});
        let answer = self.post(paths::SUBMIT, &body).expect(200);
        answer["job_id"].as_str().unwrap().to_owned()
    }

    /// A lease on a job of an addon: the lease's id and the job's.
    pub fn claim(&mut self, addon: &str) -> (String, String) {
        let body = json!({
            "addon_id": addon,
            "instance_id": "00000000-0000-4000-8000-000000000001",
            "wait_sec": 30,
        });
        let answer = self.post(paths::CLAIM, &body).expect(200);
        let lease = &answer["leases"][0];
        let text = |value: &Value| value.as_str().expect("an id").to_owned();
        (text(&lease["lease_id"]), text(&lease["jobs"][0]["job_id"]))
    }
}

pub const JSON: Option<&str> = Some("application/json");
pub const TOML: Option<&str> = Some("application/toml");
/// An id that nothing has.
pub const NO_ID: &str = "019a0000-0000-7000-8000-000000000000";

/// Reads one answer; what comes behind it stays in `rest`.
pub fn read_reply(stream: &mut TcpStream, rest: &mut Vec<u8>, head_only: bool) -> Option<Reply> {
    let end = loop {
        if let Some(end) = find(rest, b"\r\n\r\n") {
            break end;
        }
        more(stream, rest)?;
    };
    let head = String::from_utf8(rest[..end].to_vec()).expect("a head of text");
    rest.drain(..end + 4);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let mut reply = Reply {
        status,
        headers,
        body: Vec::new(),
    };
    if head_only || status == 204 {
        return Some(reply);
    }
    if reply.header("transfer-encoding") == Some("chunked") {
        loop {
            let end = loop {
                if let Some(end) = find(rest, b"\r\n") {
                    break end;
                }
                more(stream, rest)?;
            };
            let size = std::str::from_utf8(&rest[..end]).ok()?;
            let size = usize::from_str_radix(size, 16).ok()?;
            while rest.len() < end + 2 + size + 2 {
                more(stream, rest)?;
            }
            reply.body.extend_from_slice(&rest[end + 2..end + 2 + size]);
            rest.drain(..end + 2 + size + 2);
            if size == 0 {
                return Some(reply);
            }
        }
    }
    let length = reply.header("content-length").map(|it| it.parse().unwrap());
    match length {
        Some(length) => {
            while rest.len() < length {
                more(stream, rest)?;
            }
            reply.body = rest.drain(..length).collect();
        }
        None => {
            while more(stream, rest).is_some() {}
            reply.body = std::mem::take(rest);
        }
    }
    Some(reply)
}

fn more(stream: &mut TcpStream, rest: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 << 10];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(count) => {
            rest.extend_from_slice(&buffer[..count]);
            Some(())
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}
