//! A connection as the side sees it that was connected to: greetings, then requests, until it ends. All this is on one
//! blocking thread; a second one writes, and the operations are jobs on the workers.
//!
//! A peer that does not take its answers fills its outbox. Then operations wait with what they have, and the reading thread
//! waits before it answers anything itself, so that nothing more is taken from that peer, until the message that is being
//! written takes too long, which ends the connection.

use std::sync::Arc;

use jobtree_runtime::{BoxError, Nursery, supervisor};

use super::codec::encode;
use super::conversation::{MAX_GREETING, SharedStream, end_when_cancelled};
use super::frame::{FrameReader, NoMessage, write_frame};
use super::message::{Greeting, Message};
use super::outbox::Outbox;
use super::server::Server;
use super::service::{Replies, Session};
use super::stream::Stream;
use super::threads::on_thread;
use super::{RemoteError, RemoteResponse};

/// Talks with a peer until the connection ends.
pub(super) fn converse(server: &Arc<Server>, number: u64, stream: Arc<Stream>) {
    let _ended = end_when_cancelled(&stream);
    let mut reader = FrameReader::new(SharedStream(Arc::clone(&stream)));
    match greet(server, &stream, &mut reader) {
        Ok(peer) => {
            // How it ended is the peer's to know; here it is one connection less.
            let _ = supervisor(|n| go_on(n, server, number, &stream, &mut reader, peer));
        }
        Err(Some(error)) => say_why(server, &stream, error),
        Err(None) => {}
    }
    stream.end();
}

fn say_why(server: &Server, stream: &Stream, error: RemoteError) {
    if let Ok(frame) = encode(&Message::Refused(error), u32::MAX) {
        let _ = write_frame(stream, &frame, server.settings.connect_timeout);
    }
}

/// The peer's greeting; or what to tell it, if anything.
fn greet(
    server: &Server,
    stream: &Stream,
    reader: &mut FrameReader<SharedStream>,
) -> Result<Greeting, Option<RemoteError>> {
    let settings = &server.settings;
    let limit = settings.connect_timeout;
    stream.set_limits(limit, limit).map_err(|_| None)?;
    let peer = match reader.next(MAX_GREETING, limit) {
        Ok(Message::Hello(peer)) => peer,
        Ok(_) => return Err(Some(RemoteError::Protocol("no hello".to_owned()))),
        Err(NoMessage::Broken(error)) => return Err(Some(error)),
        Err(_) => return Err(None),
    };
    let welcome = Message::Welcome(Greeting {
        id: server.service.id().to_owned(),
        heartbeat: settings.heartbeat(),
        max_frame: settings.max_frame,
    });
    let frame = encode(&welcome, MAX_GREETING).map_err(Some)?;
    write_frame(stream, &frame, limit).map_err(|_| None)?;
    let silence = settings.silence(peer.heartbeat);
    let limits = stream.set_limits(silence, settings.message_timeout);
    limits.map_err(|_| None)?;
    Ok(peer)
}

fn go_on<'scope>(
    n: &'scope Nursery<'scope, '_>,
    server: &Arc<Server>,
    number: u64,
    stream: &Arc<Stream>,
    reader: &mut FrameReader<SharedStream>,
    peer: Greeting,
) -> Result<(), BoxError> {
    let _ended = end_when_cancelled(stream);
    let settings = &server.settings;
    let (outbox, outgoings) = Outbox::new(settings.outgoing);
    let (heartbeat, limit) = (settings.heartbeat(), settings.message_timeout);
    let written = {
        let (stream, outbox) = (Arc::clone(stream), outbox.clone());
        on_thread(n, "remote writer", settings.connect_timeout, move || {
            let why = outgoings.write(&stream, heartbeat, limit);
            outbox.close();
            match why {
                // All is said: the peer reads it, and goes.
                Ok(()) => stream.end_writing(),
                Err(_) => stream.end(),
            }
            Ok(())
        })
    };
    let writer = match written {
        Ok(writer) => writer,
        Err(error) => {
            say_why(server, stream, error);
            return Ok(());
        }
    };
    server.opened(number, &outbox);
    let replies = Arc::new(ByOutbox {
        outbox: outbox.clone(),
        max_frame: peer.max_frame.min(settings.max_frame),
    });
    let session = Session::new(&server.service, &server.load, replies);
    let ended = read(n, server, &session, reader, &peer.id);
    if let NoMessage::Broken(error) = ended {
        outbox.put_now(&Message::Refused(error));
        outbox.close();
        // What is left is written, each message within its time.
        let _ = writer.join();
    }
    outbox.close();
    stream.end();
    n.cancel("the connection has ended");
    Ok(())
}

/// Takes requests until there are no more.
fn read<'scope>(
    n: &'scope Nursery<'scope, '_>,
    server: &Server,
    session: &Arc<Session>,
    reader: &mut FrameReader<SharedStream>,
    peer: &str,
) -> NoMessage {
    let settings = &server.settings;
    loop {
        match reader.next(settings.max_frame, settings.message_timeout) {
            Ok(Message::Request(call, mut request)) => {
                request.sender.get_or_insert_with(|| peer.to_owned());
                session.request(n, call, request);
            }
            Ok(Message::Cancel(call)) => session.cancel(call),
            Ok(Message::Ping) => {}
            Ok(Message::Goodbye) => return NoMessage::Ended,
            Ok(_) => {
                let what = "a message that only a server sends".to_owned();
                return NoMessage::Broken(RemoteError::Protocol(what));
            }
            Err(none) => return none,
        }
    }
}

/// Answers through a connection. If it has ended, there is nobody to answer.
struct ByOutbox {
    outbox: Outbox,
    /// What both sides take.
    max_frame: u32,
}

impl ByOutbox {
    /// The answer, or why it cannot go.
    fn frame(&self, call: u64, response: RemoteResponse) -> Option<Vec<u8>> {
        let mut message = Message::Response(call, response);
        let error = match encode(&message, self.max_frame) {
            Ok(frame) => return Some(frame),
            Err(error) => error,
        };
        if let Message::Response(_, response) = &mut message {
            response.error = Some(error);
            response.payload = Vec::new();
            response.metadata.clear();
        }
        encode(&message, u32::MAX).ok()
    }
}

impl Replies for ByOutbox {
    fn reply(&self, call: u64, response: RemoteResponse, has_room: &mut dyn FnMut()) {
        if let Some(frame) = self.frame(call, response)
            && let Ok(room) = self.outbox.wait_for_room(frame.len())
        {
            has_room();
            let _ = room.put(frame);
        }
    }

    fn reply_now(&self, call: u64, response: RemoteResponse) {
        self.outbox.put_now(&Message::Response(call, response));
    }
}
