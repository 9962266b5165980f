//! What the tests of remote work share: settings, waiting, and messages made by hand, byte by byte.

#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::remote::{
    RemoteClient, RemoteError, RemoteRequest, RemoteResponse, RemoteServer, RemoteService,
    RemoteSettings, RemoteTransport,
};
use jobtree_runtime::{BoxError, Job, Runtime, sleep};
pub use watchdog::Watchdog;

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

/// A moment that does not come while a test runs.
pub const FAR: Duration = Duration::from_secs(3600);

/// Long enough for everything that is not meant to fail.
pub const LONG: Duration = Duration::from_secs(60);

/// A runtime of the test's own.
pub fn runtime() -> Runtime {
    Runtime::builder().workers(2).build().unwrap()
}

/// Ends a runtime on which nothing may be left that does not end by itself.
pub fn end(runtime: &Runtime) {
    runtime.shutdown(LONG).unwrap();
}

/// Settings that lose nobody by slowness.
pub fn patient() -> RemoteSettings {
    RemoteSettings {
        heartbeat: LONG,
        connect_timeout: LONG,
        message_timeout: LONG,
        request_timeout: Some(LONG),
        first_pause: Duration::from_millis(1),
        longest_pause: Duration::from_millis(10),
        ..RemoteSettings::default()
    }
}

/// Returns when `condition` holds.
pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A service that says what it was given, and one that never ends by itself.
pub struct Echo {
    pub service: RemoteService,
    /// Each one that does not end, as its job, when it begins.
    pub begun: mpsc::Receiver<Job>,
}

pub fn echo() -> Echo {
    let service = RemoteService::new("server");
    let (begins, begun) = mpsc::channel();
    service
        .handle("echo", |request| Ok(request.payload))
        .handle("fail", |_| Err("no such file".into()))
        .handle("wait", move |_| {
            begins.send(Job::current().expect("an operation is a job"))?;
            for_ever()
        });
    Echo { service, begun }
}

/// A body that ends by cancellation only.
pub fn for_ever<T>() -> Result<T, BoxError> {
    loop {
        sleep(FAR)?;
    }
}

/// A server on a free port.
pub fn serve(runtime: &Runtime, service: &RemoteService, settings: RemoteSettings) -> RemoteServer {
    let builder = RemoteServer::builder(service).settings(settings);
    builder.bind_tcp(runtime, "127.0.0.1:0").unwrap()
}

/// A client of such a server.
pub fn client_of(
    runtime: &Runtime,
    server: &RemoteServer,
    settings: RemoteSettings,
) -> RemoteClient {
    RemoteClient::tcp(runtime, "client", server.tcp_address().unwrap(), settings)
}

/// Waits for the answer on the calling thread.
pub fn ask(
    runtime: &Runtime,
    transport: &dyn RemoteTransport,
    request: RemoteRequest,
) -> Result<RemoteResponse, RemoteError> {
    let answer = transport.send(request);
    runtime.block_on(answer).unwrap()
}

/// Has a job wait for the answer.
pub fn ask_later(
    runtime: &Runtime,
    transport: &dyn RemoteTransport,
    request: RemoteRequest,
) -> jobtree_runtime::JobHandle<Result<RemoteResponse, RemoteError>> {
    let answer = transport.send(request);
    runtime.spawn_future(async move { Ok(answer.await) })
}

/// The transport works.
#[track_caller]
pub fn assert_echoes(runtime: &Runtime, transport: &dyn RemoteTransport, payload: &[u8]) {
    let response = ask(
        runtime,
        transport,
        RemoteRequest::new("echo").payload(payload),
    );
    assert_eq!(response.unwrap().into_payload().unwrap(), payload);
}

// Messages by hand: what is written down about the format, not what the program makes of it.

pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, kind];
    frame.extend((body.len() as u32).to_le_bytes());
    frame.extend(body);
    frame
}

pub fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

fn greeting(kind: u8, id: &str, heartbeat: Duration, max_frame: u32) -> Vec<u8> {
    let mut body = b"jobtree".to_vec();
    body.extend(text(id));
    body.extend((heartbeat.as_millis() as u32).to_le_bytes());
    body.extend(max_frame.to_le_bytes());
    frame(kind, &body)
}

pub fn hello(id: &str, heartbeat: Duration) -> Vec<u8> {
    greeting(1, id, heartbeat, 16 << 20)
}

pub fn welcome(id: &str, heartbeat: Duration) -> Vec<u8> {
    greeting(2, id, heartbeat, 16 << 20)
}

/// A call's number is what its id is and 1000 more.
pub const CALL: u64 = 1000;

pub fn request(id: u64, operation: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = (CALL + id).to_le_bytes().to_vec();
    body.extend(id.to_le_bytes());
    body.extend(text(operation));
    // Mode, priority, and no timeout, sender, target or metadata.
    body.extend([0, 2, 0, 0, 0, 0, 0, 0, 0]);
    body.extend((payload.len() as u32).to_le_bytes());
    body.extend(payload);
    frame(4, &body)
}

pub fn response(call: u64, id: u64, target: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = call.to_le_bytes().to_vec();
    body.extend(id.to_le_bytes());
    body.extend(text("server"));
    body.extend(text(target));
    body.extend([0, 0, 0, 0, 0]);
    body.extend((payload.len() as u32).to_le_bytes());
    body.extend(payload);
    frame(5, &body)
}

/// The next frame that is no sign of life: its kind and body; `None` at the end.
pub fn read_frame(from: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    loop {
        let mut header = [0; 6];
        from.read_exact(&mut header).ok()?;
        assert_eq!(header[0], 1, "the version");
        let length = u32::from_le_bytes(header[2..].try_into().unwrap());
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body).ok()?;
        if header[1] != 7 {
            return Some((header[1], body));
        }
    }
}

/// The call's number of a request or an answer.
pub fn call_of(body: &[u8]) -> u64 {
    u64::from_le_bytes(body[..8].try_into().unwrap())
}

/// The id of a request or an answer.
pub fn id_of(body: &[u8]) -> u64 {
    u64::from_le_bytes(body[8..16].try_into().unwrap())
}

/// A peer by hand that has connected and greeted.
pub fn greeted(server: &RemoteServer) -> TcpStream {
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    socket.write_all(&hello("by hand", LONG)).unwrap();
    assert_eq!(read_frame(&mut socket).unwrap().0, 2, "a welcome");
    socket
}

/// A server by hand: the next connection, greeted.
pub fn accepted(listener: &TcpListener, heartbeat: Duration) -> TcpStream {
    let (mut socket, _) = listener.accept().unwrap();
    assert_eq!(read_frame(&mut socket).unwrap().0, 1, "a hello");
    socket.write_all(&welcome("server", heartbeat)).unwrap();
    socket
}

/// A client of a server by hand.
pub fn client_by_hand(runtime: &Runtime, settings: RemoteSettings) -> (TcpListener, RemoteClient) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (
        listener,
        RemoteClient::tcp(runtime, "client", address, settings),
    )
}

#[track_caller]
pub fn assert_lost(answer: Result<RemoteResponse, RemoteError>) {
    assert!(
        matches!(answer, Err(RemoteError::ConnectionLost(_))),
        "{answer:?}"
    );
}
