//! The smallest HTTP client that keeps its connection: so that what is measured is the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

pub struct Caller {
    stream: TcpStream,
    address: SocketAddr,
    token: String,
    /// What was read and not used yet.
    buffer: Vec<u8>,
}

impl Caller {
    /// # Panics
    ///
    /// If there is no connection to be had.
    pub fn new(address: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the daemon listens");
        stream.set_nodelay(true).expect("a TCP connection");
        Self {
            stream,
            address,
            token: token.to_owned(),
            buffer: Vec::new(),
        }
    }

    /// A request as it goes over the wire.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let Self { address, token, .. } = self;
        let length = body.len();
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    pub fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).expect("the daemon reads");
    }

    /// The body of the next answer.
    ///
    /// # Panics
    ///
    /// If it is a refusal, or has no length.
    pub fn answer(&mut self) -> Vec<u8> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more();
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map(|length| length.trim().parse::<usize>().expect("a length"));
        let whole = end + length.unwrap_or_else(|| panic!("an answer without a length: {head}"));
        while self.buffer.len() < whole {
            self.read_more();
        }
        let rest = self.buffer.split_off(whole);
        let body = std::mem::replace(&mut self.buffer, rest).split_off(end);
        let refused = !head.starts_with("http/1.1 2");
        assert!(!refused, "{head}\n{}", String::from_utf8_lossy(&body));
        body
    }

    pub fn call(&mut self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let request = self.request(method, path, body);
        self.send(&request);
        self.answer()
    }

    fn read_more(&mut self) {
        let mut chunk = [0; 16 << 10];
        let count = self.stream.read(&mut chunk).expect("the daemon answers");
        assert!(count > 0, "the daemon closed the connection");
        self.buffer.extend_from_slice(&chunk[..count]);
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
