//! Remote work over real sockets: what each side promises the other.

mod remote_support;

use std::sync::mpsc;
use std::time::Duration;

use jobtree_lanes::remote::{
    RemoteClient, RemoteError, RemoteRequest, RemoteServer, RemoteService, RemoteSettings,
    RemoteTransport, TransferMode,
};
use jobtree_runtime::{Job, JobState, Runtime};
use remote_support::*;

#[test]
fn a_request_is_answered_over_tcp_and_both_sides_know_each_other() {
    let _watch = watch();
    let runtime = runtime();
    let service = RemoteService::new("assets");
    let (seen, sees) = mpsc::channel();
    service.handle("asset.load", move |request| {
        seen.send(request.clone())?;
        Ok(request.payload.to_ascii_uppercase())
    });
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let request = RemoteRequest::new("asset.load")
        .payload("rock")
        .metadata("format", "rgba8")
        .target("assets")
        .timeout(LONG);
    let id = request.id;
    let response = ask(&runtime, &client, request).unwrap();
    assert_eq!((response.id, response.sender.as_str()), (id, "assets"));
    assert_eq!(response.target, "client");
    assert_eq!(response.into_payload().unwrap(), b"ROCK");
    let arrived = sees.recv().unwrap();
    assert_eq!(arrived.sender.as_deref(), Some("client"));
    assert_eq!(arrived.metadata["format"], "rgba8");
    assert_eq!(arrived.timeout, Some(LONG));
    assert_eq!(client.peer().as_deref(), Some("assets"));
    assert_eq!((client.pending(), server.connections()), (0, 1));
    client.close();
    until(|| server.connections() == 0);
    drop(server);
    end(&runtime);
}

#[test]
fn many_requests_at_once_each_get_their_own_answer() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let asked: Vec<_> = (0..100_usize)
        .map(|number| {
            let payload = vec![number as u8; number * 1000];
            let request = RemoteRequest::new("echo").payload(payload.clone());
            (payload, ask_later(&runtime, &client, request))
        })
        .collect();
    for (payload, answer) in asked {
        assert!(answer.join().unwrap().unwrap().into_payload().unwrap() == payload);
    }
    drop((client, server));
    end(&runtime);
}

#[test]
fn pushed_data_are_only_acknowledged() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let push = RemoteRequest::new("echo").mode(TransferMode::PushDataToRemote);
    let response = ask(&runtime, &client, push.payload(vec![7; 100])).unwrap();
    assert_eq!(response.into_payload(), Ok(Vec::new()));
}

#[test]
fn an_unknown_operation_and_one_that_fails_or_panics_are_answered_with_an_error() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    service.handle("panic", |_| panic!("on purpose"));
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let error_of = |operation: &str| {
        let response = ask(&runtime, &client, RemoteRequest::new(operation)).unwrap();
        assert!(!response.is_success());
        response.error.unwrap()
    };
    assert_eq!(
        error_of("no.such"),
        RemoteError::UnknownOperation("no.such".to_owned())
    );
    assert_eq!(
        error_of("fail"),
        RemoteError::Remote("no such file".to_owned())
    );
    assert_eq!(
        error_of("panic"),
        RemoteError::Remote("the operation panicked".to_owned())
    );
    assert_echoes(&runtime, &client, b"and the connection is as before");
    assert_eq!((client.connections(), service.running()), (1, 0));
}

#[test]
fn a_request_for_another_target_is_answered_with_an_error() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let response = ask(
        &runtime,
        &client,
        RemoteRequest::new("echo").target("somebody"),
    );
    assert_eq!(
        response.unwrap().error,
        Some(RemoteError::WrongTarget("somebody".to_owned()))
    );
}

#[test]
fn an_id_that_waits_already_is_refused_and_free_again_afterwards() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let first = ask_later(&runtime, &client, RemoteRequest::new("wait").id(7));
    begun.recv().unwrap();
    let second = ask(&runtime, &client, RemoteRequest::new("echo").id(7));
    assert_eq!(second, Err(RemoteError::DuplicateId(7)));
    first.cancel("enough");
    until(|| first.is_finished());
    // The other side has to learn of it before the id is new there, too.
    until(|| service.running() == 0);
    let third = ask(&runtime, &client, RemoteRequest::new("echo").id(7));
    assert!(third.unwrap().is_success());
}

#[test]
fn an_id_is_taken_from_the_call_on_not_from_the_first_poll() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let unpolled = client.send(RemoteRequest::new("echo").id(7));
    let second = ask(&runtime, &client, RemoteRequest::new("echo").id(7));
    assert_eq!(second, Err(RemoteError::DuplicateId(7)));
    drop(unpolled);
    assert!(ask(&runtime, &client, RemoteRequest::new("echo").id(7)).is_ok());
}

#[test]
fn a_timeout_ends_the_wait_and_the_job_at_the_server() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    client.wait_until_connected(LONG).unwrap();
    let limited = RemoteRequest::new("wait").timeout(Duration::from_millis(30));
    assert_eq!(ask(&runtime, &client, limited), Err(RemoteError::TimedOut));
    // Unless it was cancelled even before it began.
    if let Ok(job) = begun.recv_timeout(Duration::from_secs(1)) {
        until(|| job.state() == JobState::Cancelled);
    }
    until(|| service.running() == 0);
    assert_eq!(client.pending(), 0);
    assert_echoes(&runtime, &client, b"still connected");
    assert_eq!(client.connections(), 1);
}

#[test]
fn a_cancelled_request_reaches_the_servers_job() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let asked = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    let job = begun.recv().unwrap();
    assert!(job.label().contains("wait"), "{}", job.label());
    asked.cancel("nobody wants it");
    until(|| job.state() == JobState::Cancelled);
    // A future that is dropped says the same.
    let mut dropped = client.send(RemoteRequest::new("wait"));
    let job = runtime
        .block_on(std::future::poll_fn(|context| {
            assert!(dropped.as_mut().poll(context).is_pending());
            match begun.try_recv() {
                Ok(job) => std::task::Poll::Ready(job),
                Err(_) => {
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            }
        }))
        .unwrap();
    drop(dropped);
    until(|| job.state() == JobState::Cancelled);
}

#[test]
fn the_end_of_a_connection_cancels_the_jobs_of_that_client_alone() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let (one, other) = (
        client_of(&runtime, &server, patient()),
        client_of(&runtime, &server, patient()),
    );
    let _first = ask_later(&runtime, &one, RemoteRequest::new("wait"));
    let first: Job = begun.recv().unwrap();
    let _second = ask_later(&runtime, &other, RemoteRequest::new("wait"));
    let second: Job = begun.recv().unwrap();
    one.close();
    until(|| first.state() == JobState::Cancelled);
    assert!(!second.is_cancelled());
    assert_echoes(&runtime, &other, b"still there");
}

#[test]
fn close_cancels_what_is_pending_and_what_comes_later() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let pending = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    let job = begun.recv().unwrap();
    client.close();
    assert_eq!(pending.join().unwrap(), Err(RemoteError::Cancelled));
    until(|| job.state() == JobState::Cancelled);
    assert!(!client.is_connected());
    let later = ask(&runtime, &client, RemoteRequest::new("echo"));
    assert_eq!(later, Err(RemoteError::Cancelled));
    drop(server);
    // No thread is left behind in a socket.
    end(&runtime);
}

#[test]
fn close_cancels_what_waits_for_a_connection() {
    let _watch = watch();
    let runtime = runtime();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let client = RemoteClient::tcp(&runtime, "client", address, patient());
    let waiting = ask_later(&runtime, &client, RemoteRequest::new("echo"));
    until(|| client.pending() == 1);
    client.close();
    assert_eq!(waiting.join().unwrap(), Err(RemoteError::Cancelled));
    end(&runtime);
}

#[test]
fn without_a_connection_a_request_was_surely_not_executed() {
    let _watch = watch();
    let runtime = runtime();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let client = RemoteClient::tcp(&runtime, "client", address, patient());
    let limited = RemoteRequest::new("echo").timeout(Duration::from_millis(30));
    let error = ask(&runtime, &client, limited).unwrap_err();
    assert!(matches!(error, RemoteError::NotConnected(_)), "{error:?}");
    assert!(error.surely_not_executed());
}

#[test]
fn after_a_restart_of_the_server_new_requests_go_through_and_old_ones_are_not_sent_again() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let address = server.tcp_address().unwrap();
    let client = client_of(&runtime, &server, patient());
    let lost = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    begun.recv().unwrap();
    drop(server);
    assert_lost(lost.join().unwrap());
    until(|| !client.is_connected());
    // This one waits for the server that is to come.
    let waiting = ask_later(
        &runtime,
        &client,
        RemoteRequest::new("echo").payload("later"),
    );
    until(|| client.pending() == 1);
    let again = RemoteServer::builder(&service).settings(patient());
    // The port may still be on its way out.
    let mut server = again.clone().bind_tcp(&runtime, address);
    while server.is_err() {
        std::thread::sleep(Duration::from_millis(5));
        server = again.clone().bind_tcp(&runtime, address);
    }
    let response = waiting.join().unwrap().unwrap();
    assert_eq!(response.into_payload().unwrap(), b"later");
    assert_eq!(client.connections(), 2);
    assert!(begun.try_recv().is_err(), "the old request was sent again");
}

#[test]
fn requests_and_answers_that_are_too_large_fail_alone() {
    let _watch = watch();
    let runtime = runtime();
    let small = |max_frame| RemoteSettings {
        max_frame,
        ..patient()
    };
    let Echo { service, .. } = echo();
    service.handle("much", |_| Ok(vec![0; 10_000]));
    // The server takes less than the client: the client knows from the greeting.
    let server = serve(&runtime, &service, small(5_000));
    let client = client_of(&runtime, &server, small(100_000));
    let too_large = |answer: Result<_, RemoteError>, limit: u64| match answer {
        Err(RemoteError::TooLarge { size, limit: it }) => assert!(size > limit && it == limit),
        other => panic!("{other:?}"),
    };
    let request = |size| RemoteRequest::new("echo").payload(vec![0; size]);
    too_large(ask(&runtime, &client, request(6_000)).map(drop), 5_000);
    too_large(ask(&runtime, &client, request(200_000)).map(drop), 100_000);
    // The answer is too large for the server's own limit.
    let answer = ask(&runtime, &client, RemoteRequest::new("much")).unwrap();
    too_large(answer.into_payload().map(drop), 5_000);
    assert_echoes(&runtime, &client, &[1; 4_000]);
    assert_eq!(client.connections(), 1);
    // The answer is too large for the client.
    let server = serve(&runtime, &service, small(100_000));
    let client = client_of(&runtime, &server, small(5_000));
    let answer = ask(&runtime, &client, RemoteRequest::new("much")).unwrap();
    too_large(answer.into_payload().map(drop), 5_000);
    assert_eq!(client.connections(), 1);
}

#[test]
fn a_service_does_no_more_at_a_time_than_it_may() {
    let _watch = watch();
    let runtime = runtime();
    let service = RemoteService::with_limit("server", 2);
    let (begins, begun) = mpsc::channel();
    service.handle("wait", move |_| {
        begins.send(())?;
        for_ever()
    });
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let waiting = [(); 2].map(|()| ask_later(&runtime, &client, RemoteRequest::new("wait")));
    begun.recv().unwrap();
    begun.recv().unwrap();
    let third = ask(&runtime, &client, RemoteRequest::new("wait")).unwrap();
    assert_eq!(third.error, Some(RemoteError::Busy));
    waiting[0].cancel("enough");
    until(|| service.running() == 1);
    let _fourth = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    begun.recv().unwrap();
}

#[test]
fn a_server_has_no_more_connections_than_it_may() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let builder = RemoteServer::builder(&service)
        .settings(patient())
        .max_connections(1);
    let server = builder.bind_tcp(&runtime, "127.0.0.1:0").unwrap();
    let first = client_of(&runtime, &server, patient());
    assert_echoes(&runtime, &first, b"first");
    let second = client_of(&runtime, &server, patient());
    until(|| server.refused() >= 1);
    let impatient = RemoteRequest::new("echo").timeout(Duration::from_millis(20));
    assert!(
        ask(&runtime, &second, impatient)
            .unwrap_err()
            .surely_not_executed()
    );
    assert_echoes(&runtime, &first, b"undisturbed");
    // As soon as there is room, it comes in.
    first.close();
    assert_echoes(&runtime, &second, b"second");
}

#[test]
fn a_runtime_without_free_blocking_threads_is_an_error_and_no_hang() {
    let _watch = watch();
    let serving = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&serving, &service, patient());
    // Two threads are one connection.
    let tight = Runtime::builder()
        .workers(1)
        .blocking_threads(2)
        .build()
        .unwrap();
    let hasty = RemoteSettings {
        connect_timeout: Duration::from_millis(50),
        ..patient()
    };
    let first = client_of(&tight, &server, patient());
    assert_echoes(&tight, &first, b"first");
    let second = client_of(&tight, &server, hasty.clone());
    let answer = ask(&tight, &second, RemoteRequest::new("echo"));
    assert_eq!(answer, Err(RemoteError::NoThread));
    let no_server = RemoteServer::builder(&service).settings(hasty);
    let refused = no_server.bind_tcp(&tight, "127.0.0.1:0").map(drop);
    assert_eq!(refused, Err(RemoteError::NoThread));
    // When a thread is free, all is well.
    first.close();
    until(|| second.is_connected());
    assert_echoes(&tight, &second, b"second");
    drop((first, second));
    end(&tight);
}

#[test]
fn a_server_without_free_blocking_threads_refuses_and_does_not_hang() {
    let _watch = watch();
    let hasty = RemoteSettings {
        connect_timeout: Duration::from_millis(50),
        ..patient()
    };
    // One that accepts, and one connection.
    let tight = Runtime::builder()
        .workers(1)
        .blocking_threads(3)
        .build()
        .unwrap();
    let asking = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&tight, &service, hasty);
    let first = client_of(&asking, &server, patient());
    assert_echoes(&asking, &first, b"first");
    let second = client_of(&asking, &server, patient());
    until(|| server.refused() >= 1);
    assert!(!second.is_connected());
    assert_echoes(&asking, &first, b"undisturbed");
    first.close();
    // As long as the first one's threads are not free, it is refused again.
    until(|| second.is_connected());
    assert_echoes(&asking, &second, b"second");
}

#[test]
fn a_graceful_shutdown_lets_operations_end_and_begins_no_others() {
    let _watch = watch();
    let runtime = runtime();
    let service = RemoteService::new("server");
    let (begins, begun) = mpsc::channel();
    let (go_on, may_go_on) = jobtree_runtime::channel::bounded(1);
    service.handle("slow", move |_| {
        begins.send(())?;
        may_go_on.recv()?;
        Ok(b"done".to_vec())
    });
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let slow = ask_later(&runtime, &client, RemoteRequest::new("slow"));
    begun.recv().unwrap();
    let shutdown = std::thread::spawn(move || server.shutdown(LONG));
    let refused = loop {
        // It is busy as soon as the shutdown has begun; before, the operation would begin.
        let probe = RemoteRequest::new("slow").timeout(Duration::from_millis(20));
        match ask(&runtime, &client, probe) {
            Ok(response) => break response.error.unwrap(),
            Err(error) => assert_eq!(error, RemoteError::TimedOut),
        }
    };
    assert_eq!(refused, RemoteError::Busy);
    go_on.send(()).unwrap();
    let done = slow.join().unwrap().unwrap();
    assert_eq!(done.into_payload().unwrap(), b"done");
    assert_eq!(shutdown.join().unwrap(), Ok(()));
    until(|| !client.is_connected());
    drop(client);
    end(&runtime);
}

#[test]
fn a_shutdown_whose_time_is_over_cancels_and_says_so() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    let waiting = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    let job = begun.recv().unwrap();
    let error = server.shutdown(Duration::from_millis(1)).unwrap_err();
    assert_eq!(error.operations, 1);
    until(|| job.state() == JobState::Cancelled);
    let answer = waiting.join().unwrap();
    assert!(answer.is_err() || answer.unwrap().error == Some(RemoteError::Cancelled));
}

#[test]
fn only_loopback_addresses_unless_it_is_said() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let refused = RemoteServer::builder(&service).bind_tcp(&runtime, "0.0.0.0:0");
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(error.contains("allow_non_loopback"), "{error}");
    let allowed = RemoteServer::builder(&service).allow_non_loopback();
    assert!(allowed.bind_tcp(&runtime, "0.0.0.0:0").is_ok());
}

#[test]
fn a_runtime_that_is_shut_down_takes_clients_and_servers_with_it() {
    let _watch = watch();
    let (serving, asking) = (runtime(), runtime());
    let Echo { service, begun } = echo();
    let server = serve(&serving, &service, patient());
    let client = client_of(&asking, &server, patient());
    let elsewhere = runtime();
    let waiting = ask_later(&elsewhere, &client, RemoteRequest::new("wait"));
    let job = begun.recv().unwrap();
    end(&asking);
    assert!(waiting.join().unwrap().is_err());
    until(|| job.state() == JobState::Cancelled);
    let later = ask(&elsewhere, &client, RemoteRequest::new("echo"));
    assert_eq!(later, Err(RemoteError::Cancelled));
    // Although the server is still held.
    end(&serving);
    drop(server);
}
