//! Events over a real socket: as they happen, again after a break, filtered, and not told to whoever may not hear them.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use jobtree_protocol::{Scope, paths};
use jobtree_server::webhooks::signature;
use serde_json::{Value, json};
use support::{Client, House, NO_ID};

/// An event stream that is open.
struct Follower {
    lines: std::io::Lines<BufReader<Unchunked>>,
}

/// A body in chunks, put together.
struct Unchunked {
    stream: BufReader<TcpStream>,
    left: usize,
}

impl Read for Unchunked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            self.left = usize::from_str_radix(line.trim(), 16).expect("a chunk's length");
            if self.left == 0 {
                return Ok(0);
            }
        }
        let most = buffer.len().min(self.left);
        let count = self.stream.read(&mut buffer[..most])?;
        self.left -= count;
        if self.left == 0 {
            self.stream.read_exact(&mut [0; 2])?;
        }
        Ok(count)
    }
}

/// One event.
#[derive(Debug, Default)]
struct Event {
    id: Option<u64>,
    kind: String,
    data: Value,
}

impl Follower {
    fn open(house: &House, token: &str, query: &str, last: Option<u64>) -> Self {
        let mut stream = TcpStream::connect(house.server.addr()).unwrap();
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(60)))
            .unwrap();
        let last = last.map_or_else(String::new, |last| format!("last-event-id: {last}\r\n"));
        let request = format!(
            "GET {}{query} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n{last}\r\n",
            paths::EVENTS,
            house.server.addr()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("text/event-stream"), "{head}");
        let body = Unchunked { stream, left: 0 };
        let mut follower = Follower {
            lines: BufReader::new(body).lines(),
        };
        // The first line says that it is heard from now on.
        assert_eq!(follower.lines.next().unwrap().unwrap(), ": here");
        follower
    }

    fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(id) = line.strip_prefix("id: ") {
                event.id = Some(id.parse().unwrap());
            } else if let Some(kind) = line.strip_prefix("event: ") {
                event.kind = kind.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data = serde_json::from_str(data).unwrap();
            } else if line.is_empty() && !event.kind.is_empty() {
                return Some(event);
            }
        }
    }

    /// The next event of a job; events of the machine's load, which come at any time, are passed over.
    fn next_of_a_job(&mut self) -> Event {
        loop {
            let event = self.next().expect("the stream goes on");
            if !event.kind.starts_with("LOAD") {
                return event;
            }
        }
    }

    /// The next of a kind; what comes before is passed over.
    fn next_of(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().expect("the stream goes on");
            if event.kind == kind {
                return event;
            }
        }
    }
}

fn cancel(client: &mut Client, id: &str) {
    client.poke(&paths::at(paths::CANCEL, id)).expect(200);
}

#[test]
fn what_happens_is_told_as_it_happens_and_again_from_where_one_was() {
    let house = House::new();
    let (token, mut admin) = (house.admin_token(), house.admin());
    let before = admin.submit("photos", "index");
    let mut follower = Follower::open(&house, &token, "", None);
    let id = admin.submit("photos", "index");
    let submitted = follower.next_of("SUBMITTED");
    assert_eq!(
        submitted.data["job_id"],
        json!(id),
        "not {before}, which was before"
    );
    assert_eq!(submitted.data["addon_id"], "photos");
    assert_eq!(submitted.data["job_type"], "index");
    assert_eq!(submitted.data["cursor"], json!(submitted.id));
    cancel(&mut admin, &id);
    let canceled = follower.next_of("CANCELED");
    assert!(canceled.id > submitted.id);
    drop(follower);

    // While nobody listened:
    let meanwhile = admin.submit("mail", "send");
    let mut again = Follower::open(&house, &token, "", submitted.id);
    let first = again.next_of_a_job();
    assert_eq!(
        first.id, canceled.id,
        "the first after the one that was named"
    );
    let second = again.next_of_a_job();
    assert_eq!(second.data["job_id"], json!(meanwhile));
    // And from now on.
    let later = admin.submit("mail", "send");
    assert_eq!(again.next_of("SUBMITTED").data["job_id"], json!(later));

    // The same place can be given in the query.
    let query = format!("?after={}", submitted.id.unwrap());
    let mut asked = Follower::open(&house, &token, &query, None);
    assert_eq!(asked.next_of_a_job().id, canceled.id);
}

#[test]
fn only_what_was_asked_for_is_told() {
    let house = House::new();
    let (token, mut admin) = (house.admin_token(), house.admin());
    let query = "?event=CANCELED,FAILED&addon_id=photos&after=0";
    let mut follower = Follower::open(&house, &token, query, None);
    for addon in ["mail", "photos"] {
        let id = admin.submit(addon, "work");
        cancel(&mut admin, &id);
    }
    let first = follower.next().unwrap();
    assert_eq!(
        (first.kind.as_str(), &first.data["addon_id"]),
        ("CANCELED", &json!("photos"))
    );

    let one = admin.submit("photos", "work");
    let other = admin.submit("photos", "work");
    let mut of_one = Follower::open(&house, &token, &format!("?job_id={one}&after=0"), None);
    cancel(&mut admin, &other);
    cancel(&mut admin, &one);
    for kind in ["SUBMITTED", "CANCELED"] {
        let event = of_one.next_of(kind);
        assert_eq!(event.data["job_id"], json!(one));
    }
}

#[test]
fn an_addon_hears_of_its_own_jobs_only() {
    let house = House::new();
    let mut admin = house.admin();
    let body = json!({"name": "ears", "addon_id": "photos", "scopes": ["read"]});
    let made = admin.post(paths::TOKENS, &body).expect(201);
    let token = made["token"].as_str().unwrap().to_owned();
    let mut follower = Follower::open(&house, &token, "?after=0", None);
    admin.submit("mail", "send");
    let own = admin.submit("photos", "index");
    assert_eq!(follower.next_of("SUBMITTED").data["job_id"], json!(own));

    let mut photos = Client::new(house.server.addr(), Some(token));
    let other = format!("{}?addon_id=mail", paths::EVENTS);
    photos.get(&other).problem(403, "forbidden");
    let mut submitter = house.addon("photos", &[Scope::Submit]);
    submitter.get(paths::EVENTS).problem(403, "forbidden");
}

#[test]
fn the_load_is_told_and_kept() {
    let house = House::with(|options| {
        options.sample_every = Some(std::time::Duration::from_millis(50));
    });
    let token = house.admin_token();
    let mut follower = Follower::open(&house, &token, "?event=LOAD", None);
    let load = follower.next().unwrap();
    assert_eq!((load.kind.as_str(), load.id), ("LOAD", None));
    assert!(load.data["busy"].is_number() && load.data["capacity"].is_number());

    let mut admin = house.admin();
    let kept = admin.get(paths::LOAD).expect(200);
    assert!(!kept["samples"].as_array().unwrap().is_empty());
    admin
        .get(&format!("{}?by=minute&limit=10", paths::LOAD))
        .expect(200);
    admin
        .get(&format!("{}?by=hour", paths::LOAD))
        .problem(400, "malformed");
    admin
        .get(&format!("{}?since=yesterday", paths::LOAD))
        .problem(400, "malformed");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let house = House::with(|options| options.limits.streams = 1);
    let (token, mut admin) = (house.admin_token(), house.admin());
    for query in ["?event=NOTHING", "?after=x", "?job_id=7", "?color=red"] {
        let refused = admin.get(&format!("{}{query}", paths::EVENTS));
        refused.problem(400, "malformed");
    }
    let open = Follower::open(&house, &token, "", None);
    let refused = admin.get(paths::EVENTS);
    refused.problem(429, "too_many");
    assert!(refused.header("retry-after").is_some());
    drop(open);
    // The place is free as soon as the server has noticed.
    while admin
        .get(paths::METRICS)
        .text()
        .contains("jobtree_event_streams 1")
    {
        std::thread::yield_now();
        admin.submit("photos", "told");
    }
    Follower::open(&house, &token, "", None);
}

#[test]
fn a_stream_ends_when_the_server_stops() {
    let house = House::new();
    let mut follower = Follower::open(&house, &house.admin_token(), "", None);
    house.server.stop();
    // Events of the load may have been sent before the stop.
    let left: Vec<Event> = std::iter::from_fn(|| follower.next()).collect();
    let is_of_the_load = |event: &Event| matches!(event.kind.as_str(), "LOAD" | "LOAD_STATE");
    assert!(left.iter().all(is_of_the_load), "{left:?}");
}

/// Takes one delivery, and answers it.
fn receive(listener: &TcpListener, status: &str) -> (String, String) {
    let (stream, _) = listener.accept().unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap()
        .parse()
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    stream.get_mut().write_all(answer.as_bytes()).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// What keeps a job waiting, for programs.
fn obstacles(client: &mut Client, job: &str) -> Vec<String> {
    let explained = client.get(&paths::at(paths::EXPLAIN, job)).expect(200);
    let obstacles = explained["reasons"].as_array().unwrap().iter();
    let code = |obstacle: &Value| obstacle["code"].as_str().unwrap().to_owned();
    obstacles.map(code).collect()
}

fn in_state(client: &mut Client, addon: &str, state: &str) -> Vec<String> {
    let path = format!("{}?addon_id={addon}&state={state}", paths::JOBS);
    let jobs = client.get(&path).expect(200)["jobs"].clone();
    let ids = jobs.as_array().unwrap().iter();
    ids.map(|job| job["job_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_stream_that_names_dispatches_makes_the_types_of_its_addon_served() {
    let house = House::new();
    let (token, mut admin) = (house.admin_token(), house.admin());
    for addon in ["photos", "mail"] {
        for _ in 0..3 {
            admin.submit(addon, "index");
        }
    }
    // Of a type that is not served one job may be out, as a probe; the last one submitted is not.
    let waiting = |admin: &mut Client, addon: &str| in_state(admin, addon, "QUEUED").pop().unwrap();
    let (photo, mail) = (waiting(&mut admin, "photos"), waiting(&mut admin, "mail"));
    let unserved = |admin: &mut Client, job: &str| {
        let codes = obstacles(admin, job);
        codes.iter().any(|code| code == "unserved")
    };
    // People and dashboards that watch everything serve nothing, nor does a program that waits for one job.
    let _all = Follower::open(&house, &token, "", None);
    let one = format!("?event=DISPATCHING&job_id={photo}");
    let _one = Follower::open(&house, &token, &one, None);
    assert!(unserved(&mut admin, &photo) && unserved(&mut admin, &mail));
    let query = "?event=dispatching&addon_id=photos";
    let mut follower = Follower::open(&house, &token, query, None);
    while !in_state(&mut admin, "photos", "QUEUED").is_empty() {
        follower.next_of("DISPATCHING");
    }
    assert!(unserved(&mut admin, &mail), "of its addon, and of no other");
    // Two listen: the types stay served until both have gone.
    let second = Follower::open(&house, &token, query, None);
    drop(follower);
    let mut third = Follower::open(&house, &token, query, None);
    drop(second);
    let job = admin.submit("photos", "index");
    assert_eq!(third.next_of("DISPATCHING").data["job_id"], json!(job));
    drop(third);
    // The daemon notices in its own time that its reader has gone.
    for _ in 0..4 {
        admin.submit("photos", "other");
    }
    while !in_state(&mut admin, "photos", "QUEUED")
        .first()
        .is_some_and(|job| unserved(&mut admin, job))
    {
        admin.submit("photos", "other");
    }
}

#[test]
fn a_webhook_that_is_told_of_dispatches_makes_the_types_of_its_addon_served_until_it_is_deleted() {
    let house = House::new();
    let mut admin = house.admin();
    for addon in ["photos", "mail"] {
        for _ in 0..3 {
            admin.submit(addon, "index");
        }
    }
    // Of a type that is not served one job may be out, as a probe; the last one submitted is not.
    let waiting = |admin: &mut Client, addon: &str| in_state(admin, addon, "QUEUED").pop().unwrap();
    let (photo, mail) = (waiting(&mut admin, "photos"), waiting(&mut admin, "mail"));
    let unserved = |admin: &mut Client, job: &str| {
        let codes = obstacles(admin, job);
        codes.iter().any(|code| code == "unserved")
    };
    // Its receiver is not there, which does not matter here.
    let mut hook = json!({
        "url": "http://127.0.0.1:1/",
        "addon_id": "photos",
        "events": ["DONE", "FAILED", "CANCELED"],
        "secret": "a secret between us two",
    });
    admin.post(paths::WEBHOOKS, &hook).expect(201);
    assert!(unserved(&mut admin, &photo), "it hears of no dispatch");
    // Without events it is told of dispatches, too.
    hook["events"] = json!([]);
    let made = admin.post(paths::WEBHOOKS, &hook).expect(201);
    while !in_state(&mut admin, "photos", "QUEUED").is_empty() {
        std::thread::yield_now();
    }
    assert!(unserved(&mut admin, &mail), "of its addon, and of no other");
    let id = made["webhook_id"].as_str().unwrap();
    admin.delete(&paths::at(paths::WEBHOOK, id)).expect(204);
    // A job that is submitted before the daemon has taken it in may still be reserved.
    loop {
        let job = admin.submit("photos", "index");
        if unserved(&mut admin, &job) {
            break;
        }
    }
}

#[test]
fn a_webhook_is_told_of_ends_signed_and_again_until_it_takes_them() {
    let house = House::new();
    let mut admin = house.admin();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = "a secret between us two";
    let body = json!({
        "url": format!("http://{}/hook", listener.local_addr().unwrap()),
        "addon_id": "photos",
        // Without DISPATCHING, which is in the default: that the webhook exists makes the type served, and the job may be
        // dispatched before it is cancelled.
        "events": ["DONE", "FAILED", "CANCELED"],
        "secret": secret,
    });
    let made = admin.post(paths::WEBHOOKS, &body).expect(201);
    assert!(made.get("secret").is_none());
    for addon in ["mail", "photos"] {
        let id = admin.submit(addon, "work");
        cancel(&mut admin, &id);
    }
    let (_, refused) = receive(&listener, "503 Not Now");
    let (head, taken) = receive(&listener, "204 No Content");
    assert_eq!(refused, taken, "the same again");
    let event: Value = serde_json::from_str(&taken).unwrap();
    assert_eq!(
        (&event["event"], &event["addon_id"]),
        (&json!("CANCELED"), &json!("photos"))
    );
    let signed = head
        .lines()
        .find_map(|line| line.strip_prefix("jobtree-signature: "))
        .expect("a signature");
    let at = signed
        .strip_prefix("t=")
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    assert_eq!(
        signed,
        signature(secret, at.parse().unwrap(), taken.as_bytes())
    );

    let seen = |admin: &mut Client| admin.get(paths::WEBHOOKS).expect(200)["webhooks"][0].clone();
    while seen(&mut admin)["delivered"] != 1 {
        std::thread::yield_now();
    }
    let id = made["webhook_id"].as_str().unwrap();
    admin.delete(&paths::at(paths::WEBHOOK, id)).expect(204);
    let none = admin.get(paths::WEBHOOKS).expect(200);
    assert_eq!(none["webhooks"], json!([]));
    admin
        .delete(&paths::at(paths::WEBHOOK, id))
        .problem(404, "not_found");
}

#[test]
fn a_webhook_hears_after_a_restart_what_happened_meanwhile() {
    let folder = support::Folder::new("webhooks");
    let on_disk = || {
        let mut options = support::options(folder.path());
        options.store = jobtree_server::StoreChoice::File;
        options
    };
    let token = || {
        let text = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
        Some(text.trim_end().to_owned())
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = jobtree_server::Server::start(on_disk()).unwrap();
    let mut admin = Client::new(first.addr(), token());
    let id = admin.submit("photos", "index");
    let body = json!({
        "url": format!("http://{}", listener.local_addr().unwrap()),
        "events": ["CANCELED"],
        "secret": "a secret between us two",
    });
    admin.post(paths::WEBHOOKS, &body).expect(201);
    drop(first);

    let second = jobtree_server::Server::start(on_disk()).unwrap();
    let mut admin = Client::new(second.addr(), token());
    cancel(&mut admin, &id);
    let (_, told) = receive(&listener, "200 OK");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["job_id"], json!(id));
}

#[test]
fn webhooks_are_for_admins_and_checked() {
    let house = House::new();
    let mut photos = house.addon(
        "photos",
        &[Scope::Submit, Scope::Read, Scope::Cancel, Scope::Lease],
    );
    let sound = json!({"url": "http://127.0.0.1:1/", "secret": "sixteen letters!"});
    photos
        .post(paths::WEBHOOKS, &sound)
        .problem(403, "forbidden");
    photos.get(paths::WEBHOOKS).problem(403, "forbidden");
    let mut admin = house.admin();
    let wrong = json!({"url": "file:///etc/passwd", "secret": "short", "events": ["PROGRESS"]});
    let problem = admin.post(paths::WEBHOOKS, &wrong).problem(422, "invalid");
    assert_eq!(problem["fields"].as_array().unwrap().len(), 3, "{problem}");
    admin
        .delete(&paths::at(paths::WEBHOOK, NO_ID))
        .problem(404, "not_found");
}
