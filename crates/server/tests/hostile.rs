//! Requests that are meant to harm: from other pages, for other names, too large, too slow, crooked.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use jobtree_protocol::paths;
use jobtree_server::Auth;
use serde_json::json;
use support::{Client, House, JSON, NO_ID, read_reply};

#[test]
fn a_name_that_was_rebound_is_refused() {
    // Without tokens, this is all that stands between a page and the queue.
    let house = House::with(|options| {
        options.auth = Auth::Open;
        options.allowed_hosts = vec!["queue.example".to_owned()];
    });
    let port = house.server.addr().port();
    let at = |host: String| {
        let mut client = house.nobody();
        client.host = host;
        client
    };
    for good in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        "LocalHost".to_owned(),
        format!("[::1]:{port}"),
        "queue.example:8443".to_owned(),
    ] {
        at(good).get(paths::STATUS).expect(200);
    }
    for evil in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1.evil.example".to_owned(),
        "localhost.evil.example".to_owned(),
        "evil.example#localhost".to_owned(),
        format!("169.254.169.254:{port}"),
    ] {
        let refused = at(evil.clone()).get(paths::STATUS);
        assert!(
            [421, 400].contains(&refused.status),
            "{evil}: {}",
            refused.status
        );
        // Probes, too: whether we are here is nobody's business.
        let refused = at(evil).get(paths::HEALTH);
        assert!([421, 400].contains(&refused.status));
    }
    let raw = |text: String| house.nobody().raw(text.as_bytes(), false).unwrap();
    let path = paths::STATUS;
    raw(format!("GET {path} HTTP/1.1\r\n\r\n")).problem(400, "malformed");
    raw(format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"
    ))
    .problem(400, "malformed");
    raw(format!(
        "GET http://evil.example{path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
    ))
    .problem(421, "forbidden");
}

#[test]
fn a_page_of_another_origin_can_do_nothing() {
    let house = House::with(|options| options.auth = Auth::Open);
    let own = format!("http://{}", house.server.addr());
    let submission = br#"{"addon_id":"a","job_type":"t","cost_units":1}"#;
    let form = Some("application/x-www-form-urlencoded");
    let crossed: &[&[(&str, &str)]] = &[
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:1")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", &own)],
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ],
    ];
    for headers in crossed {
        for kind in [form, Some("text/plain"), JSON] {
            let mut page = house.nobody();
            for (name, value) in *headers {
                page = page.header(name, value);
            }
            let refused = page.request("POST", paths::SUBMIT, kind, submission);
            refused.problem(403, "forbidden");
        }
    }
    // A form alone can send no JSON, whatever else it does.
    house
        .nobody()
        .request("POST", paths::SUBMIT, form, submission)
        .problem(415, "malformed");
    // Looking from another page is refused, following a link is not.
    let reading = house
        .nobody()
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "no-cors")
        .get(paths::JOBS);
    reading.problem(403, "forbidden");
    let link = house
        .nobody()
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document")
        .get(paths::JOBS);
    assert_eq!(link.expect(200)["jobs"], json!([]));
    // A preflight is told nothing that a browser would take for leave.
    let mut page = house
        .nobody()
        .header("origin", "http://evil.example")
        .header("access-control-request-method", "POST");
    let preflight = page.request("OPTIONS", paths::SUBMIT, None, b"");
    assert!(preflight.status >= 400);
    let allows = |name: &String| name.to_lowercase().starts_with("access-control");
    assert!(!preflight.headers.iter().any(|(name, _)| allows(name)));
    // Pages of ours may do what they are for.
    let mut page = house
        .nobody()
        .header("origin", &own)
        .header("sec-fetch-site", "same-origin");
    let answer = page.request("POST", paths::SUBMIT, JSON, submission);
    answer.expect(200);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[test]
fn a_body_that_is_too_large_is_not_read() {
    let house = House::with(|options| options.limits.body_bytes = 10_000);
    let mut admin = house.admin();
    let fits =
        json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "payload": "x".repeat(9_000)});
    admin.post(paths::SUBMIT, &fits).expect(200);
    let large =
        json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "payload": "x".repeat(20_000)});
    admin.post(paths::SUBMIT, &large).problem(413, "too_large");
    // By its announcement alone: nothing of it is ever sent.
    let token = house.admin_token();
    let head = |more: &str| {
        let path = paths::SUBMIT;
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\n{more}\r\n\r\n"
        )
    };
    let announced = head("content-length: 1000000000000");
    house
        .nobody()
        .raw(announced.as_bytes(), false)
        .unwrap()
        .problem(413, "too_large");
    // In pieces, without an announcement.
    let mut pieces = head("transfer-encoding: chunked").into_bytes();
    for _ in 0..20 {
        pieces.extend_from_slice(b"400\r\n");
        pieces.extend_from_slice(&[b'x'; 1024]);
        pieces.extend_from_slice(b"\r\n");
    }
    house
        .nobody()
        .raw(&pieces, false)
        .unwrap()
        .problem(413, "too_large");
    // Two lengths that differ are how one request is smuggled inside another.
    let smuggled = head("content-length: 5\r\ncontent-length: 50");
    let refused = house.nobody().raw(smuggled.as_bytes(), false);
    assert!(refused.is_none_or(|reply| reply.status == 400));
    // With both, the pieces count, and the connection ends there.
    let both = head("content-length: 3\r\ntransfer-encoding: chunked") + "0\r\n\r\n";
    let mut client = house.nobody();
    let answered = client.raw(both.as_bytes(), false);
    assert!(answered.is_none_or(|reply| reply.status == 400));
}

#[test]
fn deep_json_is_refused() {
    let house = House::new();
    let deep = "[".repeat(100_000);
    let body = format!(r#"{{"addon_id":"a","job_type":"t","cost_units":1,"payload":{deep}"#);
    let refused = house
        .admin()
        .request("POST", paths::SUBMIT, JSON, body.as_bytes());
    refused.problem(400, "malformed");
    let nested = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let body = format!(r#"{{"addon_id":"a","job_type":"t","cost_units":1,"payload":{nested}}}"#);
    let refused = house
        .admin()
        .request("POST", paths::SUBMIT, JSON, body.as_bytes());
    refused.problem(422, "invalid");
}

#[test]
fn header_bombs_do_not_go_off() {
    let house = House::new();
    let head = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n", paths::HEALTH);
    let many: String = (0..1000)
        .map(|number| format!("x-{number}: y\r\n"))
        .collect();
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    for bomb in [many, long] {
        let told = house
            .nobody()
            .raw(format!("{head}{bomb}\r\n").as_bytes(), false);
        assert!(told.is_none_or(|reply| reply.status == 431), "it went off");
    }
    let path = format!("{}?{}", paths::JOBS, "x".repeat(1 << 20));
    let told = house.nobody().raw(
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes(),
        false,
    );
    assert!(told.is_none_or(|reply| [414, 431].contains(&reply.status)));
    for crooked in [
        "GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: local\0host\r\n\r\n",
        "GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03",
    ] {
        let mut stream = house.nobody().connect();
        stream.write_all(crooked.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let told = read_reply(&mut stream, &mut Vec::new(), false);
        assert!(
            told.is_none_or(|reply| [400, 404, 401].contains(&reply.status)),
            "{crooked:?}"
        );
    }
    house.admin().get(paths::STATUS).expect(200);
}

#[test]
fn crooked_paths_lead_nowhere() {
    let house = House::new();
    let base = paths::BASE;
    let id = house.admin().submit("a", "t");
    let crooked = [
        format!("/healthz/..{base}/status"),
        format!("{base}/../../../healthz"),
        "/./healthz".to_owned(),
        "//healthz".to_owned(),
        "/healthz/".to_owned(),
        "/healthz%00".to_owned(),
        "/healthz%2f..%2freadyz".to_owned(),
        "/HEALTHZ".to_owned(),
        "/healthz;x=1".to_owned(),
        "/%68ealthz".to_owned(),
        format!("{base}/status/"),
        format!("{base}//status"),
        format!("{base}/%73tatus"),
        format!("{base}/status%00"),
        format!("{base}/status%2f"),
        format!("{base}%2fstatus"),
        format!("{base}/queue/jobs/{id}%2fcancel"),
        format!("{base}/queue/jobs/..%2f..%2fstatus"),
        format!("{base}/queue/jobs/%2e%2e/jobs"),
        format!("{base}/queue/jobs/{id}%00"),
        format!("{base}/queue/jobs/{id}%20"),
        format!("{base}/queue/jobs/%ff"),
        format!("{base}/queue/jobs/{id}/../{id}"),
        format!("{base}/queue\\jobs"),
        "/..%2f..%2f..%2fetc/passwd".to_owned(),
        "/../../../etc/passwd".to_owned(),
        "*".to_owned(),
    ];
    for path in crooked {
        // None of them is one of the few that need no token…
        let stranger = house.nobody().request("GET", &path, None, b"");
        assert!(
            [400, 401].contains(&stranger.status),
            "{path}: {}",
            stranger.status
        );
        // …nor another name of one that does.
        let told = house.admin().request("GET", &path, None, b"");
        assert!(
            [400, 404].contains(&told.status),
            "{path}: {} {}",
            told.status,
            told.text()
        );
    }
    let job = house.admin().get(&paths::at(paths::JOB, &id)).expect(200);
    assert_eq!(job["state"], "QUEUED");
}

/// Reads until the server closes. That it does is what is tested; a watchdog ends what does not.
fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn the_slow_are_left_behind() {
    let house = House::with(|options| {
        options.limits.head_timeout = Duration::from_millis(200);
        options.limits.body_timeout = Duration::from_millis(200);
    });
    let mut slow: Vec<TcpStream> = (0..20).map(|_| house.nobody().connect()).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        // Some say nothing, some begin.
        let begun = &b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: "[..number * 2];
        stream.write_all(begun).unwrap();
    }
    // Meanwhile others are served.
    house.admin().get(paths::STATUS).expect(200);
    for stream in &mut slow {
        let told = String::from_utf8(closed(stream)).unwrap();
        assert!(
            told.is_empty() || told.starts_with("HTTP/1.1 408"),
            "{told}"
        );
    }
    // A head that comes, and a body that does not.
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        paths::SUBMIT,
        house.admin_token()
    );
    let mut client = house.nobody();
    let told = client.raw(head.as_bytes(), false).unwrap();
    told.problem(408, "unavailable");
}

#[test]
fn one_that_drips_is_no_better_than_one_that_is_silent() {
    let house = House::with(|options| options.limits.head_timeout = Duration::from_millis(300));
    let mut stream = house.nobody().connect();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
        .unwrap();
    // The time is for the whole head: bytes that come in between do not prolong it. The server's end makes writing fail.
    while stream.write_all(b"y").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn who_does_not_read_is_not_waited_for() {
    let house = House::with(|options| options.limits.write_timeout = Duration::from_millis(200));
    let mut stream = house.nobody().connect();
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
        paths::OPENAPI,
        house.admin_token()
    );
    // Megabytes are asked for and never read. Until the server ends the connection, writing goes on or waits.
    while stream.write_all(request.as_bytes()).is_ok() {}
    house.admin().get(paths::STATUS).expect(200);
}

#[test]
fn places_are_limited_and_come_free() {
    let house = House::with(|options| options.limits.connections = 2);
    let mut first = house.nobody();
    let mut second = house.nobody();
    first.get(paths::HEALTH).expect(200);
    second.get(paths::HEALTH).expect(200);
    let mut stream = house.nobody().connect();
    let told = read_reply(&mut stream, &mut Vec::new(), false).unwrap();
    told.problem(503, "too_many");
    assert_eq!(told.header("retry-after"), Some("1"));
    drop(first);
    // Its place is free when the server has seen it go.
    while house
        .nobody()
        .raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", false)
        .is_none_or(|it| it.status != 200)
    {
        std::thread::yield_now();
    }
    second.get(paths::HEALTH).expect(200);
}

#[test]
fn a_client_that_leaves_gives_back_what_it_waited_for() {
    // One that leaves at the very moment of its answer keeps it, until the lease runs out: not long here.
    let house = House::with(|options| {
        options.scheduler.policy.dispatch.lease_ttl = Duration::from_secs(2);
    });
    let body = json!({"addon_id": "a", "instance_id": NO_ID, "wait_sec": 600}).to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        paths::CLAIM,
        house.admin_token(),
        body.len()
    );
    for _ in 0..10 {
        let mut stream = house.nobody().connect();
        stream.write_all(request.as_bytes()).unwrap();
        drop(stream);
    }
    // None of them gets the job for good: somebody who is there does.
    let id = house.admin().submit("a", "t");
    assert_eq!(house.admin().claim("a").1, id);
}

#[test]
fn what_is_answered_names_no_secrets() {
    let house = House::new();
    let token = house.admin_token();
    let mut admin = house.admin();
    let replies = [
        admin.get("/nowhere"),
        admin.get(&format!("{}?x={token}", paths::JOBS)),
        admin.get(&format!("{}?{token}=1", paths::JOBS)),
        admin.post(
            paths::SUBMIT,
            &json!({"addon_id": "a", "job_type": "t", "cost_units": 0, "payload": "hush"}),
        ),
        Client::new(house.server.addr(), Some(format!("{token}x"))).get(paths::JOBS),
    ];
    for reply in &replies[3..] {
        assert!(reply.status >= 400);
        assert!(!reply.text().contains(&token) && !reply.text().contains("hush"));
    }
    let told = replies.iter().flat_map(|reply| &reply.headers);
    assert!(!told.into_iter().any(|(_, value)| value.contains(&token)));
}
