//! A connection as the side sees it that has made it: greetings, then answers, until it ends. All this is on one blocking
//! thread; a second one writes.

use std::sync::Arc;

use jobtree_runtime::{BoxError, Job, JobError, Nursery, supervisor};

use super::RemoteError;
use super::client::Client;
use super::codec::encode;
use super::dial::Dial;
use super::frame::{FrameReader, NoMessage, write_frame};
use super::message::{Greeting, Message};
use super::outbox::Outbox;
use super::stream::Stream;
use super::threads::on_thread;

/// No greeting is larger.
pub(super) const MAX_GREETING: u32 = 4096;

/// Makes a connection, and returns why it ended.
pub(super) fn converse(client: &Arc<Client>, dial: &Dial) -> RemoteError {
    match begin(client, dial) {
        Err(error) => error,
        Ok((stream, mut reader, peer)) => {
            let ended = supervisor(|n| go_on(n, client, &stream, &mut reader, peer));
            stream.end();
            match ended {
                Ok(error) => error,
                Err(JobError::Cancelled(_)) => RemoteError::Cancelled,
                Err(error) => RemoteError::ConnectionLost(error.to_string()),
            }
        }
    }
}

type Begun = (Arc<Stream>, FrameReader<SharedStream>, Greeting);

/// A stream to read from, beside the one who writes.
pub(super) struct SharedStream(pub(super) Arc<Stream>);

impl std::io::Read for SharedStream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        (&*self.0).read(into)
    }
}

/// Ends `stream` when the current job is cancelled, so that no thread is blocked in it any longer.
pub(super) fn end_when_cancelled(stream: &Arc<Stream>) -> Option<jobtree_runtime::CancelCallback> {
    let stream = Arc::clone(stream);
    // A socket's end is a call that does not block, so it may be made here.
    Job::current().map(|job| job.on_cancel(move |_| stream.end()))
}

fn begin(client: &Client, dial: &Dial) -> Result<Begun, RemoteError> {
    let settings = &client.settings;
    let limit = settings.connect_timeout;
    let stream = Arc::new(dial.connect(limit).map_err(|error| {
        // Not an error of the protocol: the peer may come yet.
        RemoteError::Io(error.to_string())
    })?);
    let _ended = end_when_cancelled(&stream);
    stream.set_limits(limit, limit)?;
    let hello = Message::Hello(Greeting {
        id: client.id.clone(),
        heartbeat: settings.heartbeat(),
        max_frame: settings.max_frame,
    });
    write_frame(&*stream, &encode(&hello, MAX_GREETING)?, limit)?;
    let mut reader = FrameReader::new(SharedStream(Arc::clone(&stream)));
    let peer = match reader.next(MAX_GREETING, limit) {
        Ok(Message::Welcome(peer)) => peer,
        Ok(Message::Refused(error)) => return Err(error),
        Ok(_) => return Err(RemoteError::Protocol("no welcome".to_owned())),
        Err(NoMessage::Silent) => {
            let why = "the peer does not answer the greeting";
            return Err(RemoteError::ConnectionLost(why.to_owned()));
        }
        Err(NoMessage::Broken(error)) => return Err(error),
        Err(ended) => return Err(ended.into_error()),
    };
    stream.set_limits(settings.silence(peer.heartbeat), settings.message_timeout)?;
    Ok((stream, reader, peer))
}

fn go_on<'scope>(
    n: &'scope Nursery<'scope, '_>,
    client: &Arc<Client>,
    stream: &Arc<Stream>,
    reader: &mut FrameReader<SharedStream>,
    peer: Greeting,
) -> Result<RemoteError, BoxError> {
    let _ended = end_when_cancelled(stream);
    let settings = &client.settings;
    let (outbox, outgoings) = Outbox::new(settings.outgoing);
    let (heartbeat, limit) = (settings.heartbeat(), settings.message_timeout);
    let written = {
        let (stream, outbox) = (Arc::clone(stream), outbox.clone());
        on_thread(n, "remote writer", settings.connect_timeout, move || {
            let why = outgoings.write(&stream, heartbeat, limit);
            // The one who reads learns of it by this.
            outbox.close();
            stream.end();
            Ok(why.err())
        })
    };
    let writer = match written {
        Ok(writer) => writer,
        Err(error) => return Ok(error),
    };
    let number = client.link_up(outbox.clone(), peer);
    let ended = read(client, reader);
    outbox.close();
    stream.end();
    // The first of the two knows why.
    let why = match (ended, writer.join()) {
        (NoMessage::Ended, Ok(Some(error))) => error,
        (ended, _) => ended.into_error(),
    };
    let lost = match why {
        RemoteError::ConnectionLost(_) => why,
        other => RemoteError::ConnectionLost(other.to_string()),
    };
    client.pending.fail_sent_on(number, &lost);
    Ok(lost)
}

/// Hands out answers until there are no more.
fn read(client: &Client, reader: &mut FrameReader<SharedStream>) -> NoMessage {
    let settings = &client.settings;
    loop {
        match reader.next(settings.max_frame, settings.message_timeout) {
            Ok(Message::Response(call, response)) => client.pending.answer(call, response),
            Ok(Message::Ping) => {}
            Ok(Message::Goodbye) => return NoMessage::Ended,
            Ok(Message::Refused(error)) => return NoMessage::Broken(error),
            Ok(_) => {
                let what = "a message that only a client sends".to_owned();
                return NoMessage::Broken(RemoteError::Protocol(what));
            }
            Err(none) => return none,
        }
    }
}
