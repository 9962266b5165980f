//! Peers that do not behave: whatever they send or do not send, the other side stays bounded, and says what happened.

mod remote_support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use jobtree_lanes::remote::{RemoteError, RemoteRequest, RemoteSettings, RemoteTransport};
use jobtree_runtime::JobState;
use remote_support::*;

/// Settings with short limits for whatever a peer does slowly.
fn strict() -> RemoteSettings {
    RemoteSettings {
        message_timeout: Duration::from_millis(100),
        ..patient()
    }
}

#[track_caller]
fn assert_refused(mut socket: TcpStream, expected: &str) {
    let (kind, body) = read_frame(&mut socket).expect("a reason");
    let told = String::from_utf8_lossy(&body).into_owned();
    assert_eq!(kind, 3, "a refusal: {told}");
    assert!(told.contains(expected), "{told:?}");
    assert_eq!(read_frame(&mut socket), None, "nothing follows");
}

// A server and peers by hand.

#[test]
fn what_is_written_down_about_the_format_is_what_a_server_speaks() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = greeted(&server);
    socket.write_all(&request(5, "echo", b"by hand")).unwrap();
    let (kind, body) = read_frame(&mut socket).unwrap();
    let expected = response(CALL + 5, 5, "by hand", b"by hand");
    assert_eq!((kind, &*body), (5, &expected[6..]));
}

#[test]
fn garbage_is_refused_and_ends_that_connection_alone() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let client = client_of(&runtime, &server, patient());
    assert_echoes(&runtime, &client, b"before");
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_refused(socket, "version 71");
    // Garbage after a proper greeting.
    let mut socket = greeted(&server);
    socket.write_all(&[0xFF; 64]).unwrap();
    assert_refused(socket, "version 255");
    until(|| server.connections() == 1);
    assert_echoes(&runtime, &client, b"after");
}

#[test]
fn another_version_is_refused() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    let mut hello = hello("from the future", LONG);
    hello[0] = 2;
    socket.write_all(&hello).unwrap();
    assert_refused(socket, "version 2");
}

#[test]
fn whoever_does_not_greet_first_is_refused() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    socket.write_all(&request(1, "echo", b"")).unwrap();
    assert_refused(socket, "no hello");
    assert_eq!(service.running(), 0);
}

#[test]
fn whoever_connects_and_says_nothing_is_cut_off() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let hasty = RemoteSettings {
        connect_timeout: Duration::from_millis(50),
        ..patient()
    };
    let server = serve(&runtime, &service, hasty);
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0);
    until(|| server.connections() == 0);
}

#[test]
fn an_oversize_frame_of_a_client_ends_its_connection_without_memory_for_it() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = greeted(&server);
    socket.write_all(&request(1, "wait", b"")).unwrap();
    let job = begun.recv().unwrap();
    // 4 GiB are promised.
    socket.write_all(&[1, 4, 0xFF, 0xFF, 0xFF, 0xFF]).unwrap();
    let (kind, body) = read_frame(&mut socket).unwrap();
    assert_eq!((kind, body[0]), (3, 8), "too large");
    until(|| job.state() == JobState::Cancelled);
    until(|| server.connections() == 0);
}

#[test]
fn an_oversize_greeting_is_refused_even_if_messages_may_be_as_large() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    socket.write_all(&[1, 1, 0, 0, 1, 0]).unwrap();
    let (kind, body) = read_frame(&mut socket).unwrap();
    assert_eq!((kind, body[0]), (3, 8), "too large");
}

#[test]
fn a_partial_frame_of_a_client_begins_nothing_and_its_end_cancels_what_runs() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = greeted(&server);
    socket.write_all(&request(1, "wait", b"")).unwrap();
    let job = begun.recv().unwrap();
    let partial = request(2, "wait", b"more");
    socket.write_all(&partial[..partial.len() - 1]).unwrap();
    socket.shutdown(Shutdown::Both).unwrap();
    until(|| job.state() == JobState::Cancelled);
    until(|| server.connections() == 0);
    assert!(begun.try_recv().is_err(), "half a request was carried out");
}

#[test]
fn a_client_that_sends_a_frame_byte_by_byte_is_cut_off() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, strict());
    let mut socket = greeted(&server);
    let slow = request(1, "echo", &[0; 100_000]);
    // Each byte is a sign of life, but the whole takes too long.
    for byte in slow {
        if socket.write_all(&[byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    until(|| server.connections() == 0);
    assert_eq!(service.running(), 0);
}

#[test]
fn a_client_that_does_not_take_its_answers_is_cut_off_and_its_operations_end() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    service.handle("much", |_| Ok(vec![0; 1 << 20]));
    let narrow = RemoteSettings {
        outgoing: 1 << 20,
        ..strict()
    };
    let server = serve(&runtime, &service, narrow);
    let other = client_of(&runtime, &server, patient());
    let mut socket = greeted(&server);
    // Far more than the system's buffers hold.
    for id in 0..64 {
        if socket.write_all(&request(id, "much", b"")).is_err() {
            break;
        }
    }
    until(|| server.connections() == 1 && service.running() == 0);
    assert_echoes(&runtime, &other, b"undisturbed");
    drop(socket);
}

#[test]
fn an_id_that_runs_already_is_refused_by_the_server_too() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = greeted(&server);
    socket.write_all(&request(9, "wait", b"")).unwrap();
    let job = begun.recv().unwrap();
    socket.write_all(&request(9, "echo", b"")).unwrap();
    let (kind, body) = read_frame(&mut socket).unwrap();
    let expected = {
        let mut body = (CALL + 9).to_le_bytes().to_vec();
        body.extend(9_u64.to_le_bytes());
        body.extend(text("server"));
        body.extend(text("by hand"));
        // An error: a duplicate id, which is 9.
        body.extend([1, 3]);
        body.extend(9_u64.to_le_bytes());
        body.extend([0; 8 + 4]);
        body.extend([0; 4 + 4]);
        body
    };
    assert_eq!((kind, body), (5, expected));
    assert!(!job.is_cancelled(), "the first one is not disturbed");
}

#[test]
fn a_message_that_only_a_server_sends_is_refused() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut socket = greeted(&server);
    socket.write_all(&response(1, 1, "server", b"")).unwrap();
    assert_refused(socket, "only a server sends");
}

#[test]
fn a_client_that_is_silent_for_its_heartbeats_is_lost_and_one_that_pings_is_not() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, begun } = echo();
    let server = serve(&runtime, &service, patient());
    let beating = RemoteSettings {
        heartbeat: Duration::from_millis(20),
        silent_heartbeats: 1000,
        ..patient()
    };
    let client = client_of(&runtime, &server, beating);
    let waiting = ask_later(&runtime, &client, RemoteRequest::new("wait"));
    let alive = begun.recv().unwrap();
    let mut socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    // It promises a word every 50 ms.
    socket
        .write_all(&hello("by hand", Duration::from_millis(50)))
        .unwrap();
    socket.write_all(&request(1, "wait", b"")).unwrap();
    let silent = begun.recv().unwrap();
    until(|| silent.state() == JobState::Cancelled);
    assert!(!alive.is_cancelled() && !waiting.is_finished());
    assert_eq!(client.connections(), 1);
}

// A client and servers by hand.

#[test]
fn what_is_written_down_about_the_format_is_what_a_client_speaks() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let mut asked = RemoteRequest::new("echo").id(5).payload("by hand");
    asked.sender = None;
    let answer = ask_later(&runtime, &client, asked);
    let mut socket = accepted(&listener, LONG);
    let (kind, body) = read_frame(&mut socket).unwrap();
    let call = call_of(&body);
    let expected = {
        let mut body = call.to_le_bytes().to_vec();
        body.extend(5_u64.to_le_bytes());
        body.extend(text("echo"));
        body.extend([0, 2, 0, 1]);
        body.extend(text("client"));
        body.extend([0, 0, 0, 0, 0]);
        body.extend(text("by hand"));
        body
    };
    assert_eq!((kind, body), (4, expected));
    socket
        .write_all(&response(call, 5, "client", b"well"))
        .unwrap();
    let answer = answer.join().unwrap().unwrap();
    assert_eq!(answer.into_payload().unwrap(), b"well");
}

#[test]
fn answers_for_another_target_and_for_nobody_are_ignored_and_counted() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo").id(5));
    let mut socket = accepted(&listener, LONG);
    let asked = read_frame(&mut socket).unwrap().1;
    assert_eq!(id_of(&asked), 5);
    let call = call_of(&asked);
    let wrong = [
        response(call, 5, "somebody else", b"not for you"),
        response(call + 1, 6, "client", b"never asked"),
        response(call + 1, 5, "client", b"of another call"),
    ];
    for wrong in wrong {
        socket.write_all(&wrong).unwrap();
    }
    until(|| client.ignored() == 3);
    assert!(!answer.is_finished());
    let right = response(call, 5, "client", b"right");
    socket.write_all(&right).unwrap();
    let answer = answer.join().unwrap().unwrap();
    assert_eq!(answer.into_payload().unwrap(), b"right");
    assert_eq!(client.connections(), 1);
}

#[test]
fn a_partial_frame_of_a_server_is_a_lost_connection() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo").id(5));
    let mut socket = accepted(&listener, LONG);
    let asked = read_frame(&mut socket).unwrap().1;
    let partial = response(call_of(&asked), 5, "client", b"almost");
    socket.write_all(&partial[..partial.len() - 1]).unwrap();
    drop(socket);
    assert_lost(answer.join().unwrap());
    // It comes back, and the request does not.
    let mut socket = accepted(&listener, LONG);
    let next = ask_later(&runtime, &client, RemoteRequest::new("echo").id(6));
    assert_eq!(id_of(&read_frame(&mut socket).unwrap().1), 6);
    drop(next);
}

#[test]
fn an_oversize_frame_of_a_server_is_a_lost_connection() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo"));
    let mut socket = accepted(&listener, LONG);
    read_frame(&mut socket).unwrap();
    socket.write_all(&[1, 5, 0xFF, 0xFF, 0xFF, 0xFF]).unwrap();
    match answer.join().unwrap() {
        Err(RemoteError::ConnectionLost(why)) => assert!(why.contains("4294967301 bytes"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(read_frame(&mut socket), None);
}

#[test]
fn a_server_that_speaks_something_else_is_an_error_for_those_who_wait() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo"));
    // Who asks later than that waits for the next connection.
    until(|| client.pending() == 1);
    let (mut socket, _) = listener.accept().unwrap();
    socket
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .unwrap();
    match answer.join().unwrap() {
        Err(RemoteError::Protocol(what)) => assert!(what.contains("version 72"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_accepts_and_never_answers_the_greeting_is_given_up() {
    let _watch = watch();
    let runtime = runtime();
    let hasty = RemoteSettings {
        connect_timeout: Duration::from_millis(50),
        ..patient()
    };
    let (listener, client) = client_by_hand(&runtime, hasty);
    let first = listener.accept().unwrap().0;
    // The next attempt comes by itself.
    let second = listener.accept().unwrap().0;
    assert!(!client.is_connected());
    let limited = RemoteRequest::new("echo").timeout(Duration::from_millis(10));
    let error = ask(&runtime, &client, limited).unwrap_err();
    assert!(matches!(error, RemoteError::NotConnected(_)), "{error:?}");
    drop((first, second));
}

#[test]
fn a_server_that_falls_silent_is_lost_after_its_heartbeats() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo"));
    let mut socket = accepted(&listener, Duration::from_millis(30));
    read_frame(&mut socket).unwrap();
    match answer.join().unwrap() {
        Err(RemoteError::ConnectionLost(why)) => assert!(why.contains("silent"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_sends_signs_of_life_while_it_waits() {
    let _watch = watch();
    let runtime = runtime();
    let beating = RemoteSettings {
        heartbeat: Duration::from_millis(5),
        ..patient()
    };
    let (listener, _client) = client_by_hand(&runtime, beating);
    let mut socket = accepted(&listener, LONG);
    for _ in 0..3 {
        let mut ping = [0; 6];
        socket.read_exact(&mut ping).unwrap();
        assert_eq!(ping, [1, 7, 0, 0, 0, 0]);
    }
}

#[test]
fn a_server_that_takes_nothing_is_lost_and_those_without_room_wait_for_the_next() {
    let _watch = watch();
    let runtime = runtime();
    let narrow = RemoteSettings {
        outgoing: 1 << 20,
        ..strict()
    };
    let (listener, client) = client_by_hand(&runtime, narrow);
    let socket = accepted(&listener, LONG);
    let large = || RemoteRequest::new("echo").payload(vec![0; 1 << 20]);
    // The system's buffers take some of them; the outbox one more; the others wait for room.
    let asked: Vec<_> = (0..32)
        .map(|_| ask_later(&runtime, &client, large()))
        .collect();
    until(|| asked.iter().any(|answer| answer.is_finished()));
    client.close();
    let (mut lost, mut cancelled) = (0, 0);
    for answer in asked {
        match answer.join().unwrap() {
            Err(RemoteError::ConnectionLost(_)) => lost += 1,
            Err(RemoteError::Cancelled) => cancelled += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(
        lost > 0 && cancelled > 0,
        "{lost} lost, {cancelled} cancelled"
    );
    drop(socket);
}

#[test]
fn a_cancel_is_on_the_wire_and_names_the_call() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let answer = ask_later(&runtime, &client, RemoteRequest::new("echo").id(77));
    let mut socket = accepted(&listener, LONG);
    let asked = read_frame(&mut socket).unwrap().1;
    answer.cancel("enough");
    let call = call_of(&asked).to_le_bytes().to_vec();
    assert_eq!(read_frame(&mut socket), Some((6, call)));
}

#[test]
fn an_answer_that_comes_after_a_timeout_is_not_taken_for_that_of_the_next_try() {
    let _watch = watch();
    let runtime = runtime();
    let (listener, client) = client_by_hand(&runtime, patient());
    let first = ask_later(&runtime, &client, RemoteRequest::new("echo").id(5));
    let mut socket = accepted(&listener, LONG);
    let first_call = call_of(&read_frame(&mut socket).unwrap().1);
    first.cancel("too late");
    assert_eq!(read_frame(&mut socket).unwrap().0, 6, "a cancel");
    until(|| client.pending() == 0);
    // The same id again, while the first answer is still to come.
    let second = ask_later(&runtime, &client, RemoteRequest::new("echo").id(5));
    let second_call = call_of(&read_frame(&mut socket).unwrap().1);
    assert_ne!(first_call, second_call);
    let late = response(first_call, 5, "client", b"of the first");
    socket.write_all(&late).unwrap();
    let right = response(second_call, 5, "client", b"of the second");
    socket.write_all(&right).unwrap();
    let answer = second.join().unwrap().unwrap();
    assert_eq!(answer.into_payload().unwrap(), b"of the second");
    assert_eq!(client.ignored(), 1);
}

#[test]
fn random_bytes_never_harm_a_server() {
    let _watch = watch();
    let runtime = runtime();
    let Echo { service, .. } = echo();
    let server = serve(&runtime, &service, patient());
    let mut seed = 1_u64;
    for round in 0..100 {
        let mut socket = match round % 2 {
            0 => TcpStream::connect(server.tcp_address().unwrap()).unwrap(),
            _ => greeted(&server),
        };
        let mut bytes = request(round, "echo", b"some payload");
        for _ in 0..1 + round % 5 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] = (seed >> 56) as u8;
        }
        // It may be cut off amid that.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    until(|| server.connections() == 0);
    assert_eq!(service.running(), 0);
    let client = client_of(&runtime, &server, patient());
    assert_echoes(&runtime, &client, b"as if nothing had been");
    drop((client, server));
    end(&runtime);
}
