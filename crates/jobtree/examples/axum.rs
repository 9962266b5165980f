//! A server of axum whose handler computes on all cores, and stops when its client leaves.
//!
//! `cargo run --features tokio --example axum` serves two requests of its own: one waits for its answer, the other leaves.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use jobtree::par;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What the main program is told: that a computation has begun, and that it has ended.
#[derive(Clone, Default)]
struct News {
    begun: Arc<Notify>,
    ended: Arc<Notify>,
}

/// Tells the end on every way out.
struct TellsEnd(Arc<Notify>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Counts the primes below a bound.
async fn primes(Path(bound): Path<u64>, State(news): State<News>) -> String {
    let primes = jobtree::tokio::compute(move || {
        let _tells_end = TellsEnd(news.ended);
        news.begun.notify_one();
        // Between two blocks of the loop the job notices that it is cancelled.
        Ok(par::over(2..bound)
            .filter(|number| is_prime(*number))
            .count())
    });
    match primes.await {
        Ok(count) => format!("{count} primes\n"),
        Err(error) => format!("{error}\n"),
    }
}

fn is_prime(number: u64) -> bool {
    (2..)
        .take_while(|divisor| divisor * divisor <= number)
        .all(|divisor| !number.is_multiple_of(divisor))
}

async fn request(address: std::net::SocketAddr, bound: u64) -> std::io::Result<TcpStream> {
    let mut client = TcpStream::connect(address).await?;
    let text = format!("GET /primes/{bound} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    client.write_all(text.as_bytes()).await?;
    Ok(client)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let news = News::default();
    let router = Router::new()
        .route("/primes/{bound}", get(primes))
        .with_state(news.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });

    let mut answer = String::new();
    request(address, 10_000)
        .await?
        .read_to_string(&mut answer)
        .await?;
    println!("{}", answer.lines().last().unwrap_or_default());
    news.begun.notified().await;
    news.ended.notified().await;

    // This one would take for days, each of its numbers some milliseconds at most: a loop that is cancelled ends the number it is at.
    let client = request(address, 1 << 40).await?;
    news.begun.notified().await;
    drop(client);
    tokio::time::timeout(Duration::from_secs(60), news.ended.notified()).await?;
    println!("the client has left, and so has the computation");
    Ok(())
}
