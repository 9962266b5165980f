//! Several files are fetched at the same time from a server that never answers for one of them. Each has its own
//! limit, so the others arrive all the same.
//!
//! `cargo run -p jobtree-runtime --example parallel_download`

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use jobtree_runtime::{BoxError, JobError, nursery, sleep, with_timeout};

const FILES: [(&str, usize); 4] = [
    ("readme.txt", 2_000),
    ("photo.jpg", 900_000),
    ("lost.bin", 0),
    ("song.ogg", 400_000),
];
const LIMIT: Duration = Duration::from_secs(2);

fn main() -> Result<(), BoxError> {
    let server = start_server()?;
    let received = AtomicUsize::new(0);
    let received = &received;
    let outcomes = nursery(|n| {
        let downloads = FILES.map(|(name, _)| {
            let download = move || Ok(with_timeout(LIMIT, || fetch(server, name, received)));
            (name, n.job_options().label(name).spawn(download))
        });
        let progress = n.job_options().label("progress").spawn(|| {
            let mut shown = 0;
            loop {
                sleep(Duration::from_millis(100))?;
                let so_far = received.load(Ordering::Relaxed);
                if so_far != shown {
                    println!("{so_far} bytes so far");
                    shown = so_far;
                }
            }
            #[expect(unreachable_code, reason = "says what the loop would return")]
            Ok(())
        });
        let mut outcomes = Vec::new();
        for (name, download) in downloads {
            outcomes.push((name, download.join()?));
        }
        // A child that was cancelled is no failure; without this the scope would wait for it for ever.
        progress.cancel("everything is there");
        Ok(outcomes)
    })?;

    for ((name, outcome), (_, size)) in outcomes.iter().zip(FILES) {
        match outcome {
            Ok(content) => {
                println!("{name}: {} bytes", content.len());
                assert_eq!(content.len(), size);
            }
            Err(error) => {
                println!("{name}: {error}");
                assert!(*name == "lost.bin" && matches!(error, JobError::TimedOut(_)));
            }
        }
    }
    let arrived = outcomes.iter().filter(|(_, outcome)| outcome.is_ok());
    assert_eq!(arrived.count(), FILES.len() - 1);
    Ok(())
}

/// Waits without holding a thread: a socket that has nothing yet is looked at again after a sleep, which ends as soon
/// as the job is cancelled.
fn fetch(server: SocketAddr, name: &str, received: &AtomicUsize) -> Result<Vec<u8>, BoxError> {
    let mut stream = TcpStream::connect(server)?;
    writeln!(stream, "{name}")?;
    stream.set_nonblocking(true)?;
    let mut content = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(content),
            Ok(read) => {
                content.extend_from_slice(&buffer[..read]);
                received.fetch_add(read, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                sleep(Duration::from_millis(1))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A server on this machine, with a thread for each connection; it ends with the program.
fn start_server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut name = String::new();
    BufReader::new(&stream).read_line(&mut name)?;
    match FILES.iter().find(|(file, _)| *file == name.trim_end()) {
        // Never an answer: it waits until the other side has given up.
        Some((_, 0)) => stream.read(&mut [0]).map(drop),
        Some((_, size)) => {
            let content = vec![b'x'; *size];
            for part in content.chunks(100_000) {
                stream.write_all(part)?;
                // A line that is not too fast.
                thread::sleep(Duration::from_millis(40));
            }
            Ok(())
        }
        None => Ok(()),
    }
}
