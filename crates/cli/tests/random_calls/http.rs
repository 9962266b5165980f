//! HTTP by hand: a client library repeats calls and hides lost connections, and here both are what is tested.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take. A daemon that stands still answers when it goes on, so this is longer than any stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon's address and its token.
#[derive(Clone)]
pub struct Endpoint {
    pub address: String,
    pub token: String,
}

/// A request that was sent whole and is not answered yet. If it is dropped, its answer is lost.
pub struct Sent(TcpStream);

impl Endpoint {
    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Sent> {
        let address = self.address.parse().map_err(Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        Ok(Sent(stream))
    }
}

impl Sent {
    /// Waits for the answer: its status and its body.
    pub fn answer(mut self) -> Result<(u16, Value)> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        let cut_off = || Error::new(ErrorKind::UnexpectedEof, "the answer was cut off");
        let text = String::from_utf8(bytes).map_err(Error::other)?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut_off)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(cut_off)?;
        if body.is_empty() {
            return Ok((status, Value::Null));
        }
        let body = serde_json::from_str(body).map_err(|_| cut_off())?;
        Ok((status, body))
    }
}
