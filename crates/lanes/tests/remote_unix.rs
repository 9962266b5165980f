//! Remote work over Unix sockets, and the files these are.
#![cfg(unix)]

mod remote_support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use jobtree_lanes::remote::{RemoteClient, RemoteServer, RemoteService, RemoteTransport};
use jobtree_runtime::Runtime;
use remote_support::*;

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("jobtree-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// All that is there.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bind(
    runtime: &Runtime,
    service: &RemoteService,
    path: &Path,
) -> Result<RemoteServer, jobtree_lanes::remote::RemoteError> {
    let builder = RemoteServer::builder(service).settings(patient());
    builder.bind_unix(runtime, path)
}

#[test]
fn a_request_is_answered_over_a_unix_socket_that_only_its_owner_may_use() {
    let _watch = watch();
    let place = Place::new("answered");
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = bind(&runtime, &service, &place.socket()).unwrap();
    let metadata = fs::symlink_metadata(place.socket()).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(place.names(), ["socket"], "nothing else is left there");
    let client = RemoteClient::unix(&runtime, "client", place.socket(), patient());
    assert_echoes(&runtime, &client, b"hello");
    assert_eq!(server.tcp_address(), None);
    client.close();
    drop(server);
    // The file goes with the server, and nothing hangs in `accept`.
    end(&runtime);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let _watch = watch();
    let place = Place::new("no-socket");
    fs::write(place.socket(), "precious").unwrap();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let error = bind(&runtime, &service, &place.socket())
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "precious");
    assert_eq!(place.names(), ["socket"]);
}

#[test]
fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
    let _watch = watch();
    let place = Place::new("stale");
    // Nobody removes the file of a listener that is dropped.
    drop(UnixListener::bind(place.socket()).unwrap());
    assert!(UnixStream::connect(place.socket()).is_err());
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = bind(&runtime, &service, &place.socket()).unwrap();
    let client = RemoteClient::unix(&runtime, "client", place.socket(), patient());
    assert_echoes(&runtime, &client, b"hello");
    let second = bind(&runtime, &service, &place.socket()).map(drop);
    assert!(
        second
            .unwrap_err()
            .to_string()
            .contains("somebody listens there")
    );
    assert_echoes(&runtime, &client, b"undisturbed");
    drop(server);
}

#[test]
fn a_server_that_ends_does_not_remove_the_socket_of_another() {
    let _watch = watch();
    let place = Place::new("another");
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let first = bind(&runtime, &service, &place.socket()).unwrap();
    // Somebody cleans up, and somebody else listens there.
    fs::remove_file(place.socket()).unwrap();
    let second = bind(&runtime, &service, &place.socket()).unwrap();
    first.shutdown(LONG).unwrap();
    let client = RemoteClient::unix(&runtime, "client", place.socket(), patient());
    assert_echoes(&runtime, &client, b"the second one");
    drop((client, second));
    end(&runtime);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn a_client_comes_back_after_a_restart_over_a_unix_socket() {
    let _watch = watch();
    let place = Place::new("restart");
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = bind(&runtime, &service, &place.socket()).unwrap();
    let client = RemoteClient::unix(&runtime, "client", place.socket(), patient());
    assert_echoes(&runtime, &client, b"before");
    drop(server);
    until(|| !client.is_connected() && !place.socket().exists());
    let _server = bind(&runtime, &service, &place.socket()).unwrap();
    assert_echoes(&runtime, &client, b"after");
    assert_eq!(client.connections(), 2);
}
