//! The places, by family.

mod actors;
mod budgets;
mod cancelling;
mod closures;
mod futures;
mod lanes;
mod loops;
mod payloads;
mod pools;
mod simulated;
mod threads;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tracing")]
mod tracing;
mod values;
mod wakers;

use crate::place::Place;

const FAMILIES: &[&[Place]] = &[
    closures::PLACES,
    pools::PLACES,
    loops::PLACES,
    futures::PLACES,
    wakers::PLACES,
    cancelling::PLACES,
    values::PLACES,
    payloads::PLACES,
    lanes::PLACES,
    actors::PLACES,
    budgets::PLACES,
    simulated::PLACES,
    threads::PLACES,
    #[cfg(feature = "tokio")]
    tokio::PLACES,
    #[cfg(feature = "tracing")]
    tracing::PLACES,
];

/// Every place.
pub fn all() -> impl Iterator<Item = &'static Place> {
    FAMILIES.iter().copied().flatten()
}
