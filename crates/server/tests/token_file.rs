//! The admin's token: in a file that nobody else can read at any moment, and that is whole whenever it is there.
#![cfg(unix)]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_protocol::paths;
use jobtree_server::{ServeError, Server};
use support::{Client, Folder, Watchdog, options};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_racing_reader_never_sees_it_open_or_half() {
    let _watchdog = Watchdog::watching("the token's file");
    for round in 0..8 {
        let folder = Folder::new(&format!("race-{round}"));
        let data = folder.path().join("data");
        let done = AtomicBool::new(false);
        let (seen, server) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                loop {
                    let last = done.load(Ordering::Acquire);
                    // Whatever lies there, under whichever name.
                    for entry in std::fs::read_dir(&data).into_iter().flatten().flatten() {
                        let Ok(known) = entry.metadata() else {
                            continue;
                        };
                        let name = entry.file_name().into_string().unwrap();
                        if name.starts_with("admin.token") {
                            assert_eq!(known.mode() & 0o7777, 0o600, "{name}");
                        }
                        if name == "admin.token" {
                            let text = std::fs::read_to_string(entry.path()).unwrap();
                            assert_eq!(text.len(), "jt_".len() + 32 + 1 + 64 + 1, "{text:?}");
                            seen += 1;
                        }
                    }
                    if last {
                        return seen;
                    }
                }
            });
            let server = Server::start(options(&data)).unwrap();
            done.store(true, Ordering::Release);
            (reader.join().unwrap(), server)
        });
        assert!(seen > 0, "the reader saw it at least at the end");
        assert_eq!(mode(&data), 0o700);
        let left: Vec<_> = std::fs::read_dir(&data)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["admin.token"], "nothing is left behind");
        server.stop();
    }
}

#[test]
fn two_that_start_at_once_have_the_same_token() {
    let _watchdog = Watchdog::watching("two servers");
    let folder = Folder::new("twins");
    let start = || Server::start(options(folder.path())).unwrap();
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(start);
        let other = scope.spawn(start);
        (one.join().unwrap(), other.join().unwrap())
    });
    let token = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
    for server in [&one, &other] {
        let mut admin = Client::new(server.addr(), Some(token.trim_end().to_owned()));
        admin.get(paths::STATUS).expect(200);
    }
}

#[test]
fn a_file_that_others_can_read_is_not_trusted() {
    let folder = Folder::new("open");
    let file = folder.path().join("admin.token");
    Server::start(options(folder.path())).unwrap().stop();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = Server::start(options(folder.path())).unwrap_err();
    assert!(
        matches!(refused, ServeError::OpenToAll { mode: 0o640, .. }),
        "{refused}"
    );
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "hello\n").unwrap();
    let refused = Server::start(options(folder.path())).unwrap_err();
    assert!(matches!(refused, ServeError::NoToken { .. }), "{refused}");
    std::fs::remove_file(&file).unwrap();
    Server::start(options(folder.path())).unwrap().stop();
    assert_eq!(mode(&file), 0o600);
}
