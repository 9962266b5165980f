//! Two tasks and a channel between them: there and back with every value, or a stream of them in one direction.
//!
//! One of the two is the task that measures. Where the runtime has two workers, whether the two tasks end up on both
//! or on one is the runtime's own decision. tokio has no channel without room, so our rendezvous is compared with its
//! channel that holds one value; may's channels have no bound, which makes no difference to a value that is waited for,
//! and it takes part in the stream without a bound only.

use std::time::{Duration, Instant};

use jobtree_runtime::channel::{self, Receiver, Sender};
use jobtree_runtime::{future, nursery};
use tokio::sync::mpsc;

use super::may::{May, in_may};
use super::{Options, TOKIO};
use crate::harness::{Contender, Report, Role};
use crate::servant::Service;
use crate::suites::shared::{
    Spec, end, in_our_future, in_our_task, in_tokio, our_runtime, tokio_runtime,
};

/// How many values one iteration sends in each direction that there is.
const VALUES: u64 = 1000;

pub const MAY: &[Service] = &[
    Service {
        name: "ping-pong",
        run: |iterations| in_may(move || may_ping_pong(iterations * VALUES)),
    },
    Service {
        name: "stream",
        run: |iterations| in_may(move || may_stream(iterations * VALUES)),
    },
];

/// How much room a channel of ours has; tokio's has room for one where ours has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Rendezvous,
    Bounded(usize),
    Unbounded,
}

impl Room {
    fn name(self) -> String {
        match self {
            Self::Rendezvous => "rendezvous".into(),
            Self::Bounded(room) => format!("bounded({room})"),
            Self::Unbounded => "unbounded".into(),
        }
    }

    fn ours<T>(self) -> (Sender<T>, Receiver<T>) {
        match self {
            Self::Rendezvous => channel::rendezvous(),
            Self::Bounded(room) => channel::bounded(room),
            Self::Unbounded => channel::unbounded(),
        }
    }
}

/// Adds a row for each kind of channel and number of workers.
pub fn run(options: &Options, report: &mut Report) {
    for workers in options.worker_counts() {
        for room in [Room::Rendezvous, Room::Bounded(1)] {
            ping_pong(options, report, room, workers);
        }
        for room in [Room::Bounded(64), Room::Unbounded] {
            stream(options, report, room, workers);
        }
    }
}

fn ping_pong(options: &Options, report: &mut Report, room: Room, workers: usize) {
    let name = format!("ping-pong over two channels, {}", room.name());
    if !options.wants(&name) {
        return;
    }
    let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
    let may = May::start(workers);
    let our_side = |(): &mut (), iterations| {
        in_our_task(&ours, move || our_ping_pong(room, iterations * VALUES))
    };
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, our_side),
        Contender::new("ours again", Role::Control, our_side),
        Contender::new("futures", Role::Variant, |(), iterations| {
            in_our_future(&ours, our_ping_pong_async(room, iterations * VALUES))
        }),
        Contender::new(TOKIO, Role::Peer, |(), iterations| {
            in_tokio(&tokio, tokio_ping_pong(iterations * VALUES))
        }),
    ];
    contenders.extend(may.contender(MAY[0].name));
    let spec = Spec {
        name,
        workers,
        unit: "round trip",
        units: VALUES,
        goal: None,
    };
    spec.run(&options.plan, contenders, report);
    end(&ours);
}

fn stream(options: &Options, report: &mut Report, room: Room, workers: usize) {
    let name = format!("stream through a channel, {}", room.name());
    if !options.wants(&name) {
        return;
    }
    let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
    let may = (room == Room::Unbounded).then(|| May::start(workers));
    let our_side =
        |(): &mut (), iterations| in_our_task(&ours, move || our_stream(room, iterations * VALUES));
    let mut contenders = vec![
        Contender::new("ours", Role::Ours, our_side),
        Contender::new("ours again", Role::Control, our_side),
        Contender::new("futures", Role::Variant, |(), iterations| {
            in_our_future(&ours, our_stream_async(room, iterations * VALUES))
        }),
        Contender::new(TOKIO, Role::Peer, |(), iterations| match room {
            Room::Bounded(room) => in_tokio(&tokio, tokio_stream(room, iterations * VALUES)),
            _ => in_tokio(&tokio, tokio_unbounded_stream(iterations * VALUES)),
        }),
    ];
    contenders.extend(may.as_ref().and_then(|may| may.contender(MAY[1].name)));
    let spec = Spec {
        name,
        workers,
        unit: "value",
        units: VALUES,
        goal: None,
    };
    spec.run(&options.plan, contenders, report);
    end(&ours);
}

/// The time, if the values came to what they must.
fn checked(start: Instant, count: u64, sum: u64) -> (Duration, u64) {
    let time = start.elapsed();
    assert_eq!(sum, count * (count - 1) / 2, "a value was lost or doubled");
    (time, count)
}

fn our_ping_pong(room: Room, count: u64) -> (Duration, u64) {
    let (to_echo, pings) = room.ours();
    let (echo, pongs) = room.ours();
    let measured = nursery(|scope| {
        scope.launch(move || {
            while let Ok(value) = pings.recv() {
                echo.send(value)?;
            }
            Ok(())
        });
        let start = Instant::now();
        let mut sum = 0;
        for value in 0..count {
            to_echo.send(value)?;
            sum += pongs.recv()?;
        }
        drop(to_echo);
        Ok(checked(start, count, sum))
    });
    measured.expect("no job fails")
}

async fn our_ping_pong_async(room: Room, count: u64) -> (Duration, u64) {
    let (to_echo, pings) = room.ours();
    let (echo, pongs) = room.ours();
    let measured = future::nursery(async move |scope| {
        drop(scope.spawn_future(async move {
            while let Ok(value) = pings.recv_async().await {
                echo.send_async(value).await?;
            }
            Ok(())
        }));
        let start = Instant::now();
        let mut sum = 0;
        for value in 0..count {
            to_echo.send_async(value).await?;
            sum += pongs.recv_async().await?;
        }
        drop(to_echo);
        Ok(checked(start, count, sum))
    });
    measured.await.expect("no job fails")
}

async fn tokio_ping_pong(count: u64) -> (Duration, u64) {
    let (to_echo, mut pings) = mpsc::channel(1);
    let (echo, mut pongs) = mpsc::channel(1);
    let echoing = tokio::spawn(async move {
        while let Some(value) = pings.recv().await {
            echo.send(value).await.expect("the other one listens");
        }
    });
    let start = Instant::now();
    let mut sum = 0;
    for value in 0..count {
        to_echo.send(value).await.expect("the other one listens");
        sum += pongs.recv().await.expect("the other one answers");
    }
    drop(to_echo);
    let measured = checked(start, count, sum);
    echoing.await.expect("no task fails");
    measured
}

fn may_ping_pong(count: u64) -> (Duration, u64) {
    let (to_echo, pings) = may::sync::mpsc::channel();
    let (echo, pongs) = may::sync::mpsc::channel();
    let echoing = may::go!(move || {
        while let Ok(value) = pings.recv() {
            echo.send(value).expect("the other one listens");
        }
    });
    let start = Instant::now();
    let mut sum = 0;
    for value in 0..count {
        to_echo.send(value).expect("the other one listens");
        sum += pongs.recv().expect("the other one answers");
    }
    drop(to_echo);
    let measured = checked(start, count, sum);
    echoing.join().expect("no task fails");
    measured
}

fn our_stream(room: Room, count: u64) -> (Duration, u64) {
    let (sender, receiver) = room.ours();
    let measured = nursery(|scope| {
        let start = Instant::now();
        scope.launch(move || {
            for value in 0..count {
                sender.send(value)?;
            }
            Ok(())
        });
        let mut sum = 0;
        while let Ok(value) = receiver.recv() {
            sum += value;
        }
        Ok(checked(start, count, sum))
    });
    measured.expect("no job fails")
}

async fn our_stream_async(room: Room, count: u64) -> (Duration, u64) {
    let (sender, receiver) = room.ours();
    let measured = future::nursery(async move |scope| {
        let start = Instant::now();
        drop(scope.spawn_future(async move {
            for value in 0..count {
                sender.send_async(value).await?;
            }
            Ok(())
        }));
        let mut sum = 0;
        while let Ok(value) = receiver.recv_async().await {
            sum += value;
        }
        Ok(checked(start, count, sum))
    });
    measured.await.expect("no job fails")
}

async fn tokio_stream(room: usize, count: u64) -> (Duration, u64) {
    let (sender, mut receiver) = mpsc::channel(room);
    let start = Instant::now();
    let producer = tokio::spawn(async move {
        for value in 0..count {
            sender.send(value).await.expect("the other one listens");
        }
    });
    let mut sum = 0;
    while let Some(value) = receiver.recv().await {
        sum += value;
    }
    let measured = checked(start, count, sum);
    producer.await.expect("no task fails");
    measured
}

async fn tokio_unbounded_stream(count: u64) -> (Duration, u64) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let start = Instant::now();
    let producer = tokio::spawn(async move {
        for value in 0..count {
            sender.send(value).expect("the other one listens");
        }
    });
    let mut sum = 0;
    while let Some(value) = receiver.recv().await {
        sum += value;
    }
    let measured = checked(start, count, sum);
    producer.await.expect("no task fails");
    measured
}

fn may_stream(count: u64) -> (Duration, u64) {
    let (sender, receiver) = may::sync::mpsc::channel();
    let start = Instant::now();
    let producer = may::go!(move || {
        for value in 0..count {
            sender.send(value).expect("the other one listens");
        }
    });
    let mut sum = 0;
    while let Ok(value) = receiver.recv() {
        sum += value;
    }
    let measured = checked(start, count, sum);
    producer.join().expect("no task fails");
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_side_moves_every_value() {
        for workers in [1, 2] {
            let (ours, tokio) = (our_runtime(workers), tokio_runtime(workers));
            for room in [Room::Rendezvous, Room::Bounded(1), Room::Unbounded] {
                assert_eq!(in_our_task(&ours, move || our_ping_pong(room, 50)).1, 50);
                assert_eq!(in_our_future(&ours, our_ping_pong_async(room, 50)).1, 50);
                assert_eq!(in_our_task(&ours, move || our_stream(room, 50)).1, 50);
                assert_eq!(in_our_future(&ours, our_stream_async(room, 50)).1, 50);
            }
            assert_eq!(in_tokio(&tokio, tokio_ping_pong(50)).1, 50);
            assert_eq!(in_tokio(&tokio, tokio_stream(64, 50)).1, 50);
            assert_eq!(in_tokio(&tokio, tokio_unbounded_stream(50)).1, 50);
            end(&ours);
        }
        assert_eq!(in_may(|| may_ping_pong(50)).1, 50);
        assert_eq!(in_may(|| may_stream(50)).1, 50);
    }

    #[test]
    #[should_panic(expected = "a value was lost or doubled")]
    fn a_lost_value_is_found() {
        checked(Instant::now(), 3, 2);
    }
}
