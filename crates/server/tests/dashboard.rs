//! The dashboard's files, and how a browser signs in: headers, links for one use, cookies, calls from other pages.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use jobtree_protocol::{Scope, paths};
use jobtree_server::{Auth, Server};
use serde_json::{Value, json};
use support::{Client, Folder, House, Reply, options};

/// A browser that goes to a page.
fn browser(house: &House) -> Client {
    let client = house.nobody().header("accept", "text/html,*/*;q=0.8");
    client.header("accept-encoding", "gzip, deflate, br, zstd")
}

#[test]
fn every_screen_is_the_page_and_its_files_are_found_below_any_prefix() {
    let house = House::new();
    let mut browser = browser(&house);
    for (path, base) in [
        ("/", "./"),
        ("/jobs", "./"),
        ("/jobs?q=state:FAILED", "./"),
        ("/enter", "./"),
        ("/jobs/019a0000-0000-7000-8000-000000000000", "../"),
        ("/a/b/c/", "../../../"),
        ("/no/such/screen", "../../"),
    ] {
        let page = browser.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(page.header("cache-control"), Some("no-cache"));
        let text = page.text();
        assert!(
            text.contains(&format!("<base href=\"{base}\" />")),
            "{path}: {text}"
        );
        // As the browser resolves them, against the base.
        let files: Vec<_> = text
            .split(['"'])
            .filter(|part| part.starts_with("./assets/"))
            .collect();
        assert!(files.len() >= 2, "{text}");
        for file in files {
            let file = browser.get(&file[1..]);
            assert_eq!(file.status, 200);
            let cached = file.header("cache-control").unwrap();
            assert_eq!(cached, "public, max-age=31536000, immutable");
            assert_eq!(file.header("content-encoding"), Some("br"));
            assert_eq!(file.header("vary"), Some("accept-encoding"));
            assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
        }
    }
    assert_eq!(
        browser.get("/favicon.svg").header("content-type"),
        Some("image/svg+xml")
    );
    assert_eq!(browser.request("HEAD", "/jobs", None, b"").status, 200);
}

#[test]
fn programs_and_old_files_get_no_page() {
    let house = House::new();
    // A program asks for anything, or says nothing.
    house.nobody().get("/jobs").problem(401, "unauthorized");
    house.admin().get("/jobs").problem(404, "not_found");
    let mut browser = browser(&house);
    // A script of an older page: HTML in its place would be taken for one.
    for path in [
        "/assets/index-old.js",
        "/robots.txt",
        "/index.html.br",
        "/assets/../index.html",
    ] {
        browser.get(path).problem(401, "unauthorized");
    }
    // The API is the API, whatever is accepted.
    for path in [paths::STATUS, paths::METRICS, "/api/nothing"] {
        browser.get(path).problem(401, "unauthorized");
    }
    browser.get(paths::HEALTH).expect(200);
    browser.get(paths::OPENAPI).expect(200);
    browser
        .request("POST", "/jobs", None, b"")
        .problem(401, "unauthorized");
    // Those who read no brotli get the same file plain.
    let page = browser.get("/").text();
    let script = page.split('"').find(|part| part.ends_with(".js")).unwrap();
    let mut plain = house.nobody().header("accept-encoding", "gzip, br;q=0");
    let plain = plain.get(&script[1..]);
    assert_eq!(
        (plain.status, plain.header("content-encoding")),
        (200, None)
    );
    let compressed = browser.get(&script[1..]);
    assert!(plain.body.len() > 2 * compressed.body.len());
}

#[test]
fn the_page_may_load_only_our_files_and_stands_in_no_frame() {
    let house = House::new();
    let mut browser = browser(&house);
    let page = browser.get("/");
    let policy = page.header("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.split("; ").any(|it| it == rule), "{rule}: {policy}");
    }
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let text = page.text();
    assert!(
        !text.contains("style=") && !text.contains("<style"),
        "{text}"
    );
    let scripts = text.matches("<script").count();
    assert_eq!(
        scripts,
        text.matches("<script type=\"module\" crossorigin src=\"./assets/")
            .count(),
        "{text}"
    );
    // A page of somebody else's does not get to read it, but a link may lead here.
    let mut other = house.nobody().header("sec-fetch-site", "cross-site");
    other.get("/").problem(403, "forbidden");
    let mut link = house.nobody().header("sec-fetch-site", "cross-site");
    link = link
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document");
    assert_eq!(link.header("accept", "text/html").get("/jobs").status, 200);
}

/// A browser that has signed in.
struct SignedIn {
    view: Value,
    set_cookie: String,
    cookie: String,
    client: Client,
}

fn code(client: &mut Client) -> String {
    let link = client.poke(paths::SIGN_IN_LINKS).expect(201);
    link["code"].as_str().unwrap().to_owned()
}

fn exchange(client: &mut Client, code: &str) -> Reply {
    client.post(paths::SIGN_IN, &json!({"code": code}))
}

fn sign_in(house: &House, with: &mut Client) -> SignedIn {
    let reply = exchange(&mut house.nobody(), &code(with));
    let view = reply.expect(200);
    let set_cookie = reply.header("set-cookie").expect("a cookie").to_owned();
    let cookie = set_cookie.split(';').next().unwrap().to_owned();
    let client = house
        .nobody()
        .header("cookie", &format!("other=1; {cookie}"));
    SignedIn {
        view,
        set_cookie,
        cookie,
        client,
    }
}

impl SignedIn {
    /// The same browser on a page of ours, which sends the header.
    fn page(&self, house: &House) -> Client {
        let client = house.nobody().header("cookie", &self.cookie);
        let client = client.header("sec-fetch-site", "same-origin");
        client.header("x-jobtree-csrf", self.view["csrf"].as_str().unwrap())
    }
}

#[test]
fn a_link_signs_in_one_browser_once() {
    let house = House::new();
    let mut admin = house.admin();
    let code = code(&mut admin);
    let reply = exchange(&mut house.nobody(), &code);
    let view = reply.expect(200);
    assert_eq!(view["kind"], "session");
    assert_eq!(view["scopes"], json!(["admin"]));
    let again = exchange(&mut house.nobody(), &code);
    again.problem(401, "unauthorized");
    assert_eq!(again.header("set-cookie"), None);
    for wrong in ["", "0", &code[1..], &house.admin_token()] {
        exchange(&mut house.nobody(), wrong).problem(401, "unauthorized");
    }
    // Not with a query, not as a form.
    let asked = format!("{}?code={code}", paths::SIGN_IN);
    house.nobody().poke(&asked).problem(400, "malformed");
    let form = format!("code={code}");
    let form = house.nobody().request(
        "POST",
        paths::SIGN_IN,
        Some("application/x-www-form-urlencoded"),
        form.as_bytes(),
    );
    assert_eq!(form.status, 415);
}

#[test]
fn a_link_holds_for_its_time() {
    let house = House::with(|options| options.limits.sign_in_link = Duration::ZERO);
    let code = code(&mut house.admin());
    exchange(&mut house.nobody(), &code).problem(401, "unauthorized");
    let usual = jobtree_server::HttpLimits::default();
    assert_eq!(usual.sign_in_link, Duration::from_secs(60));
    assert_eq!(usual.session, Duration::from_secs(12 * 3600));
}

#[test]
fn a_cookie_is_for_no_script_and_for_our_pages_alone() {
    let house = House::new();
    let mut admin = house.admin();
    let mut browser = sign_in(&house, &mut admin);
    let (name, rest) = browser.set_cookie.split_once('=').unwrap();
    assert_eq!(
        name,
        format!("jobtree_session_{}", house.server.addr().port())
    );
    let (_, attributes) = rest.split_once("; ").unwrap();
    // Without a path it goes to the folder of the call: the API, below any prefix. Without a domain, to this host alone.
    assert_eq!(attributes, "Max-Age=43200; HttpOnly; SameSite=Strict");
    browser.client.get(paths::STATUS).expect(200);
    let who = browser.client.get(paths::SESSION).expect(200);
    assert_eq!(who, browser.view);
    assert_eq!(admin.get(paths::SESSION).expect(200)["kind"], "token");
    house
        .nobody()
        .get(paths::SESSION)
        .problem(401, "unauthorized");
    // Behind TLS, ours or a proxy's, as the browser names it.
    let origin = format!("https://{}", house.server.addr());
    let mut proxied = house.nobody().header("origin", &origin);
    let reply = exchange(&mut proxied, &code(&mut admin));
    assert!(reply.header("set-cookie").unwrap().ends_with("; Secure"));
    // A cookie is no token, and a token no cookie.
    let (_, secret) = browser.cookie.split_once('=').unwrap();
    let mut bearer = Client::new(house.server.addr(), Some(secret.to_owned()));
    bearer.get(paths::STATUS).problem(401, "unauthorized");
    let mut cookie = house
        .nobody()
        .header("cookie", &format!("{name}={}", house.admin_token()));
    cookie.get(paths::STATUS).problem(401, "unauthorized");
    for wrong in [
        &browser.cookie[..browser.cookie.len() - 1],
        &format!("{}0", browser.cookie),
        &format!("{name}="),
    ] {
        house
            .nobody()
            .header("cookie", wrong)
            .get(paths::STATUS)
            .problem(401, "unauthorized");
    }
}

#[test]
fn a_session_changes_nothing_without_its_header() {
    let house = House::new();
    let mut browser = sign_in(&house, &mut house.admin());
    let job = json!({"addon_id": "a", "job_type": "t", "cost_units": 1});
    // What a form or a script of another page would send: the cookie and no header.
    browser
        .client
        .post(paths::SUBMIT, &job)
        .problem(403, "forbidden");
    browser
        .client
        .delete(paths::SESSION)
        .problem(403, "forbidden");
    browser
        .client
        .put(paths::POLICY, &job)
        .problem(403, "forbidden");
    let other = sign_in(&house, &mut house.admin());
    for wrong in ["", "null", "0", other.view["csrf"].as_str().unwrap()] {
        let mut client = house.nobody().header("cookie", &browser.cookie);
        client = client.header("x-jobtree-csrf", wrong);
        client.post(paths::SUBMIT, &job).problem(403, "forbidden");
    }
    let mut page = browser.page(&house);
    page.post(paths::SUBMIT, &job).expect(200);
    // With both, but from another page.
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://localhost:3000"),
        ("origin", "null"),
    ] {
        let mut client = browser.page(&house);
        client.headers.retain(|(given, _)| given != name);
        client
            .header(name, value)
            .post(paths::SUBMIT, &job)
            .problem(403, "forbidden");
    }
    // A token needs no header: no browser sends it by itself.
    house.admin().post(paths::SUBMIT, &job).expect(200);
    // Nobody is signed in by another page, either.
    let code = code(&mut house.admin());
    let mut other = house.nobody().header("sec-fetch-site", "cross-site");
    exchange(&mut other, &code).problem(403, "forbidden");
    let count = house.admin().get(paths::JOBS).expect(200);
    assert_eq!(count["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_session_may_what_its_token_may() {
    let house = House::new();
    let mut admin = house.admin();
    let theirs = admin.submit("music", "t");
    let job = admin.submit("photos", "t");
    let mut reader = house.addon("photos", &[Scope::Read]);
    let browser = sign_in(&house, &mut reader);
    assert_eq!(browser.view["scopes"], json!(["read"]));
    assert_eq!(browser.view["addon_id"], "photos");
    let mut page = browser.page(&house);
    page.get(&paths::at(paths::JOB, &job)).expect(200);
    page.get(&paths::at(paths::JOB, &theirs))
        .problem(404, "not_found");
    page.poke(&paths::at(paths::CANCEL, &job))
        .problem(403, "forbidden");
    page.get(paths::TOKENS).problem(403, "forbidden");
    // It cannot make itself another, which would never end.
    page.poke(paths::SIGN_IN_LINKS).problem(409, "conflict");
}

#[test]
fn a_session_ends_by_signing_out_and_with_its_token_and_its_time() {
    let house = House::new();
    let mut admin = house.admin();
    let browser = sign_in(&house, &mut admin);
    let other = sign_in(&house, &mut admin);
    let out = browser.page(&house).delete(paths::SESSION);
    out.expect(204);
    let gone = out.header("set-cookie").unwrap();
    assert!(
        gone.ends_with("=; Max-Age=0; HttpOnly; SameSite=Strict"),
        "{gone}"
    );
    browser
        .page(&house)
        .get(paths::STATUS)
        .problem(401, "unauthorized");
    other.page(&house).get(paths::STATUS).expect(200);
    // A token is not signed out.
    admin.delete(paths::SESSION).expect(204);
    admin.get(paths::STATUS).expect(200);

    // One that signs in again has the new session alone.
    let mut again = house.nobody().header("cookie", &other.cookie);
    exchange(&mut again, &code(&mut admin)).expect(200);
    other
        .page(&house)
        .get(paths::STATUS)
        .problem(401, "unauthorized");

    // A removed token ends its sessions, and the links that were made with it.
    let body = json!({"name": "wall", "scopes": ["read"]});
    let made = admin.post(paths::TOKENS, &body).expect(201);
    let mut wall = Client::new(house.server.addr(), made["token"].as_str().map(Into::into));
    let browser = sign_in(&house, &mut wall);
    let unused = code(&mut wall);
    browser.page(&house).get(paths::STATUS).expect(200);
    let stream = stream_of(&house, &browser);
    admin
        .delete(&paths::at(paths::TOKEN, made["token_id"].as_str().unwrap()))
        .expect(204);
    browser
        .page(&house)
        .get(paths::STATUS)
        .problem(401, "unauthorized");
    exchange(&mut house.nobody(), &unused).problem(401, "unauthorized");
    // What was open is closed.
    ends(stream);

    let house = House::with(|options| options.limits.session = Duration::ZERO);
    let browser = sign_in(&house, &mut house.admin());
    assert!(
        browser.set_cookie.contains("; Max-Age=0;"),
        "{}",
        browser.set_cookie
    );
    browser
        .page(&house)
        .get(paths::STATUS)
        .problem(401, "unauthorized");
}

/// An event stream that has begun.
fn stream_of(house: &House, browser: &SignedIn) -> TcpStream {
    let mut stream = house.nobody().connect();
    let (path, cookie) = (paths::EVENTS, &browser.cookie);
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncookie: {cookie}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 1024];
    while !seen.windows(6).any(|it| it == b": here") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
    stream
}

fn ends(mut stream: TcpStream) {
    let mut rest = Vec::new();
    stream
        .read_to_end(&mut rest)
        .expect("it ends, and not by a time limit");
    assert!(
        rest.ends_with(b"0\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&rest)
    );
}

#[test]
fn a_stream_ends_with_the_session_it_was_opened_by() {
    let house = House::new();
    let mut admin = house.admin();
    let (leaves, stays) = (sign_in(&house, &mut admin), sign_in(&house, &mut admin));
    let (closed, mut open) = (stream_of(&house, &leaves), stream_of(&house, &stays));
    leaves.page(&house).delete(paths::SESSION).expect(204);
    ends(closed);
    admin.submit("photos", "t");
    let mut buffer = [0; 1024];
    assert!(open.read(&mut buffer).unwrap() > 0);
}

#[test]
fn a_session_outlives_a_restart_and_no_secret_is_kept() {
    let folder = Folder::new("sessions");
    let start = |port: u16| {
        let mut options = options(folder.path());
        options.store = jobtree_server::StoreChoice::File;
        options.listen = ([127, 0, 0, 1], port).into();
        Server::start(options).unwrap()
    };
    let server = start(0);
    let addr = server.addr();
    let token = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
    let mut admin = Client::new(addr, Some(token.trim().to_owned()));
    let used = code(&mut admin);
    let reply = exchange(&mut Client::new(addr, None), &used);
    let csrf = reply.expect(200)["csrf"].as_str().unwrap().to_owned();
    let cookie = reply
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let unused = code(&mut admin);
    server.stop();
    let (_, secret) = cookie.rsplit_once('_').unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for secret in [secret, &used, &unused] {
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|part| part == secret.as_bytes())
            );
        }
    }
    let server = start(addr.port());
    let browser = || {
        let client = Client::new(addr, None).header("cookie", &cookie);
        client.header("x-jobtree-csrf", &csrf)
    };
    browser().get(paths::STATUS).expect(200);
    browser().delete(paths::SESSION).expect(204);
    exchange(&mut Client::new(addr, None), &unused).problem(401, "unauthorized");
    server.stop();
    let server = start(addr.port());
    browser().get(paths::STATUS).problem(401, "unauthorized");
    server.stop();
}

#[test]
fn who_needs_no_token_needs_no_session() {
    let house = House::with(|options| options.auth = Auth::Open);
    let mut client = house.nobody().header("cookie", "jobtree_session_1=x");
    let who = client.get(paths::SESSION).expect(200);
    assert_eq!((&who["kind"], &who["csrf"]), (&json!("open"), &Value::Null));
    client.poke(paths::SIGN_IN_LINKS).problem(409, "conflict");
    client.submit("photos", "t");
    client.delete(paths::SESSION).expect(204);
}
