//! The codec: everything comes back as it was, and nothing that is none is taken for a message.

use std::collections::BTreeMap;
use std::time::Duration;

use super::codec::{HEADER, Header, VERSION, decode, encode};
use super::frame::{FrameReader, NoMessage};
use super::message::{Greeting, Message};
use super::{RemoteError, RemoteRequest, RemoteResponse, TransferMode};
use crate::Priority;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 6] = ['a', 'Z', 'ß', '→', '𝄞', '\0'];
        let length = self.below(8);
        (0..length)
            .map(|_| LETTERS[self.below(6) as usize])
            .collect()
    }

    fn perhaps<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn map(&mut self) -> BTreeMap<String, String> {
        (0..self.below(4))
            .map(|_| (self.text(), self.text()))
            .collect()
    }

    fn error(&mut self) -> RemoteError {
        match self.below(14) {
            0 => RemoteError::NoTransport,
            1 => RemoteError::NotConnected(self.text()),
            2 => RemoteError::DuplicateId(self.next()),
            3 => RemoteError::TimedOut,
            4 => RemoteError::Cancelled,
            5 => RemoteError::UnknownOperation(self.text()),
            6 => RemoteError::WrongTarget(self.text()),
            7 => RemoteError::TooLarge {
                size: self.next(),
                limit: self.next(),
            },
            8 => RemoteError::ConnectionLost(self.text()),
            9 => RemoteError::Protocol(self.text()),
            10 => RemoteError::Busy,
            11 => RemoteError::NoThread,
            12 => RemoteError::Io(self.text()),
            _ => RemoteError::Remote(self.text()),
        }
    }

    fn greeting(&mut self) -> Greeting {
        Greeting {
            id: self.text(),
            heartbeat: Duration::from_millis(self.below(1 << 32)),
            max_frame: self.next() as u32,
        }
    }

    fn request(&mut self) -> RemoteRequest {
        RemoteRequest {
            mode: match self.below(2) {
                0 => TransferMode::RequestFromRemote,
                _ => TransferMode::PushDataToRemote,
            },
            payload: self.bytes(300),
            metadata: self.map(),
            sender: self.perhaps(Dice::text),
            target: self.perhaps(Dice::text),
            priority: Priority::ALL[self.below(5) as usize],
            timeout: self.perhaps(|dice| Duration::from_millis(dice.next())),
            ..RemoteRequest::new(self.text()).id(self.next())
        }
    }

    fn response(&mut self) -> RemoteResponse {
        RemoteResponse {
            id: self.next(),
            payload: self.bytes(300),
            error: self.perhaps(Dice::error),
            sender: self.text(),
            target: self.text(),
            metadata: self.map(),
        }
    }

    fn message(&mut self) -> Message {
        match self.below(8) {
            0 => Message::Hello(self.greeting()),
            1 => Message::Welcome(self.greeting()),
            2 => Message::Refused(self.error()),
            3 => Message::Request(self.next(), self.request()),
            4 => Message::Response(self.next(), self.response()),
            5 => Message::Cancel(self.next()),
            6 => Message::Ping,
            _ => Message::Goodbye,
        }
    }
}

fn next(bytes: &[u8], max_frame: u32) -> Result<Message, NoMessage> {
    FrameReader::new(bytes).next(max_frame, Duration::MAX)
}

#[test]
fn every_message_comes_back_as_it_was() {
    let mut dice = Dice(1);
    for _ in 0..5_000 {
        let message = dice.message();
        let frame = encode(&message, u32::MAX).unwrap();
        assert_eq!(next(&frame, u32::MAX), Ok(message));
    }
}

#[test]
fn messages_come_one_after_the_other_whatever_the_pieces() {
    /// Gives a few bytes at a time.
    struct Pieces<'a>(&'a [u8], Dice);

    impl std::io::Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = into.len().min(self.0.len());
            let count = most.min(1 + self.1.below(7) as usize);
            into[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    let mut dice = Dice(2);
    let messages: Vec<Message> = (0..200).map(|_| dice.message()).collect();
    let frames = messages
        .iter()
        .map(|message| encode(message, u32::MAX).unwrap());
    let bytes: Vec<u8> = frames.flatten().collect();
    let mut reader = FrameReader::new(Pieces(&bytes, dice));
    for message in messages {
        assert_eq!(reader.next(u32::MAX, Duration::MAX), Ok(message));
    }
    assert_eq!(reader.next(u32::MAX, Duration::MAX), Err(NoMessage::Ended));
}

#[test]
fn a_frame_cut_anywhere_is_no_message() {
    let mut dice = Dice(3);
    for _ in 0..200 {
        let message = dice.message();
        let frame = encode(&message, u32::MAX).unwrap();
        for length in 0..frame.len() {
            match next(&frame[..length], u32::MAX) {
                Err(NoMessage::Ended) => assert_eq!(length, 0),
                Err(NoMessage::Broken(RemoteError::ConnectionLost(_))) => assert!(length > 0),
                other => panic!("{length} of {} bytes: {other:?}", frame.len()),
            }
            // The body alone, cut, is refused by the codec itself.
            if length > HEADER {
                let body = &frame[HEADER..length];
                assert!(matches!(
                    decode(frame[1], body),
                    Err(RemoteError::Protocol(_))
                ));
            }
        }
    }
}

#[test]
fn a_body_with_more_behind_the_message_is_refused() {
    let mut dice = Dice(4);
    for _ in 0..500 {
        let frame = encode(&dice.message(), u32::MAX).unwrap();
        let mut body = frame[HEADER..].to_vec();
        body.push(0);
        assert!(matches!(
            decode(frame[1], &body),
            Err(RemoteError::Protocol(_))
        ));
    }
}

#[test]
fn random_bytes_are_refused_or_a_message_that_has_those_very_bytes() {
    let mut dice = Dice(5);
    let mut taken = 0;
    for _ in 0..100_000 {
        let mut body = dice.bytes(64);
        // Small numbers are lengths that fit.
        for byte in &mut body {
            if dice.below(2) == 0 {
                *byte = dice.below(3) as u8;
            }
        }
        let kind = dice.below(10) as u8;
        match decode(kind, &body) {
            Ok(message) => {
                taken += 1;
                let again = encode(&message, u32::MAX).unwrap();
                let same = decode(kind, &again[HEADER..]);
                assert_eq!(same, Ok(message));
            }
            Err(RemoteError::Protocol(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(taken > 100, "only {taken} were messages");
}

#[test]
fn a_message_with_a_byte_changed_is_refused_or_another_message() {
    let mut dice = Dice(6);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut frame = encode(&dice.message(), u32::MAX).unwrap();
        let at = dice.below(frame.len() as u64) as usize;
        frame[at] ^= 1 << dice.below(8);
        // Whatever it is: no panic, and no memory for what is only promised.
        refused += usize::from(next(&frame, 1 << 20).is_err());
    }
    assert!(refused > 1_000, "only {refused} were refused");
}

#[test]
fn a_frame_that_is_too_large_is_refused_by_its_header_alone() {
    let [a, b, c, d] = u32::MAX.to_le_bytes();
    let header = [VERSION, 7, a, b, c, d];
    let too_large = |size| RemoteError::TooLarge { size, limit: 1000 };
    assert_eq!(
        Header::parse(header, 1000),
        Err(too_large(u64::from(u32::MAX) + HEADER as u64))
    );
    // Not a byte of the body is there.
    assert!(matches!(
        next(&header, 1000),
        Err(NoMessage::Broken(RemoteError::TooLarge { .. }))
    ));
    let message = Message::Request(1, RemoteRequest::new("op").payload(vec![0; 2000]));
    assert!(matches!(
        encode(&message, 1000),
        Err(RemoteError::TooLarge { size, limit: 1000 }) if size > 2000
    ));
    // The largest that is allowed is allowed on both sides.
    let frame = encode(&message, u32::MAX).unwrap();
    let exactly = frame.len() as u32;
    assert_eq!(encode(&message, exactly).unwrap(), frame);
    assert_eq!(next(&frame, exactly), Ok(message.clone()));
    assert!(encode(&message, exactly - 1).is_err());
    assert!(next(&frame, exactly - 1).is_err());
}

#[test]
fn another_version_and_unknown_kinds_are_refused() {
    let ping = encode(&Message::Ping, u32::MAX).unwrap();
    for (at, value) in [
        (0, 0),
        (0, VERSION + 1),
        (0, b'G'),
        (1, 0),
        (1, 9),
        (1, 255),
    ] {
        let mut frame = ping.clone();
        frame[at] = value;
        assert!(
            matches!(
                next(&frame, u32::MAX),
                Err(NoMessage::Broken(RemoteError::Protocol(_)))
            ),
            "{value} at {at}"
        );
    }
}
