//! A daemon that says what the test says, over a real socket.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::Value;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What is answered.
pub enum Answer {
    Json(u16, Value),
    Text(u16, String),
    /// Bytes as they are; then the connection is closed.
    Raw(Vec<u8>),
    /// A stream of chunks, as they come; it ends when the sender is gone.
    Stream(mpsc::Receiver<String>),
    /// The connection is closed without a word.
    Nothing,
    /// Nothing is said until the server is gone.
    Silence,
}

impl Answer {
    pub fn ok(value: Value) -> Answer {
        Answer::Json(200, value)
    }

    pub fn problem(status: u16, code: &str, detail: &str) -> Answer {
        Answer::Json(
            status,
            serde_json::json!({
                "type": format!("urn:jobtree:problem:{code}"), "title": "No", "status": status, "code": code,
                "detail": detail,
            }),
        )
    }
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

pub struct Fake {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    handler: Box<Handler>,
    asked: Mutex<Vec<Asked>>,
    open: Mutex<Vec<TcpStream>>,
    connections: Mutex<usize>,
    closed: Mutex<bool>,
}

impl Fake {
    pub fn new(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Fake {
        Fake::at("127.0.0.1:0".parse().unwrap(), handler)
    }

    pub fn at(
        addr: SocketAddr,
        handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Fake {
        // Another that was here before may be about to close.
        let listener = loop {
            match TcpListener::bind(addr) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => std::thread::yield_now(),
                bound => break bound.unwrap(),
            }
        };
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            asked: Mutex::default(),
            open: Mutex::default(),
            connections: Mutex::default(),
            closed: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if *accepting.closed.lock().unwrap() {
                    return;
                }
                *accepting.connections.lock().unwrap() += 1;
                accepting
                    .open
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Fake { addr, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// All that was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        *self.shared.connections.lock().unwrap()
    }

    /// Closes all connections, as a daemon that is killed does. It still listens.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        *self.shared.closed.lock().unwrap() = true;
        // So that the accepting thread looks.
        let _ = TcpStream::connect(self.addr);
        self.cut();
    }
}

fn serve(shared: &Shared, mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let asked = read(&mut reader)?;
        shared.asked.lock().unwrap().push(asked.clone());
        match (shared.handler)(&asked) {
            Answer::Json(status, value) => {
                let kind = if status < 400 {
                    "application/json"
                } else {
                    "application/problem+json"
                };
                write(&mut stream, status, kind, &value.to_string())?;
            }
            Answer::Text(status, text) => write(&mut stream, status, "text/plain", &text)?,
            Answer::Raw(bytes) => {
                stream.write_all(&bytes).ok()?;
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Answer::Stream(chunks) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).ok()?;
                for chunk in chunks {
                    let text = format!("{:x}\r\n{chunk}\r\n", chunk.len());
                    stream.write_all(text.as_bytes()).ok()?;
                }
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Answer::Nothing => {
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Answer::Silence => loop {
                std::thread::sleep(Duration::from_millis(20));
                if *shared.closed.lock().unwrap() {
                    return None;
                }
            },
        }
    }
}

fn write(stream: &mut TcpStream, status: u16, kind: &str, body: &str) -> Option<()> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} Some Phrase\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).ok()
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let mut asked = Asked {
        method,
        path,
        headers,
        body: Vec::new(),
    };
    let length = asked
        .header("Content-Length")
        .and_then(|length| length.parse().ok());
    asked.body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut asked.body).ok()?;
    Some(asked)
}
