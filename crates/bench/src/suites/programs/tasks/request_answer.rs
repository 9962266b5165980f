//! Clients that ask a server for prices, each request with a channel for its answer.
//!
//! jobtree had no channel for a single value when this was written: its users take one with room for one.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use jobtree::channel;
use tokio::sync::{mpsc, oneshot};

use crate::suites::programs::program::{Program, Scale};

const CLIENTS: u64 = 4;
const ITEMS: u64 = 100;
const ROOM: usize = 64;

pub struct Input {
    prices: Arc<HashMap<u64, u64>>,
    /// Of each client.
    requests: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let requests = scale.pick(250, 10);
    let prices = (0..ITEMS).map(|item| (item, 1000 - item)).collect();
    let input = Input {
        prices: Arc::new(prices),
        requests,
    };
    Program::new("request", (CLIENTS * requests) as usize, input)
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
        .crossbeam(by_crossbeam)
}

/// A request: the item, and where the answer goes.
struct Request<A> {
    item: u64,
    answer: A,
}

fn item(client: u64, number: u64) -> u64 {
    (client * 31 + number) % ITEMS
}

fn sequential(input: &mut Input) -> u64 {
    let requests =
        (0..CLIENTS).flat_map(|client| (0..input.requests).map(move |number| item(client, number)));
    requests.map(|item| input.prices[&item]).sum()
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let Input { prices, requests } = &*input;
    let sum = runtime.nursery(|n| {
        let (to_server, received) = channel::bounded::<Request<channel::Sender<u64>>>(ROOM);
        n.launch(move || {
            for request in &received {
                request.answer.send(prices[&request.item])?;
            }
            Ok(())
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let to_server = to_server.clone();
                n.spawn(move || {
                    let mut sum = 0;
                    for number in 0..*requests {
                        let (answer, answered) = channel::bounded(1);
                        let item = item(client, number);
                        to_server.send(Request { item, answer })?;
                        sum += answered.recv()?;
                    }
                    Ok(sum)
                })
            })
            .collect();
        drop(to_server);
        let mut sum = 0;
        for client in clients {
            sum += client.join()?;
        }
        Ok(sum)
    });
    sum.expect("no job fails")
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let (prices, requests) = (Arc::clone(&input.prices), input.requests);
    runtime.block_on(async move {
        let (to_server, mut received) = mpsc::channel::<Request<oneshot::Sender<u64>>>(ROOM);
        let server = tokio::spawn(async move {
            while let Some(request) = received.recv().await {
                let price = prices[&request.item];
                request.answer.send(price).expect("it is waited for");
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let to_server = to_server.clone();
                tokio::spawn(async move {
                    let mut sum = 0;
                    for number in 0..requests {
                        let (answer, answered) = oneshot::channel();
                        let item = item(client, number);
                        let sent = to_server.send(Request { item, answer }).await;
                        assert!(sent.is_ok(), "the server receives");
                        sum += answered.await.expect("the server answers");
                    }
                    sum
                })
            })
            .collect();
        drop(to_server);
        let mut sum = 0;
        for client in clients {
            sum += client.await.expect("no task fails");
        }
        server.await.expect("no task fails");
        sum
    })
}

fn by_crossbeam(input: &mut Input) -> u64 {
    let Input { prices, requests } = &*input;
    let (to_server, received) =
        crossbeam_channel::bounded::<Request<crossbeam_channel::Sender<u64>>>(ROOM);
    thread::scope(|scope| {
        scope.spawn(move || {
            for request in received {
                let price = prices[&request.item];
                request.answer.send(price).expect("it is waited for");
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let to_server = to_server.clone();
                scope.spawn(move || {
                    let mut sum = 0;
                    for number in 0..*requests {
                        let (answer, answered) = crossbeam_channel::bounded(1);
                        let item = item(client, number);
                        let sent = to_server.send(Request { item, answer });
                        assert!(sent.is_ok(), "the server receives");
                        sum += answered.recv().expect("the server answers");
                    }
                    sum
                })
            })
            .collect();
        drop(to_server);
        let sums = clients.into_iter().map(|client| client.join());
        sums.map(|sum| sum.expect("no thread panics")).sum()
    })
}
