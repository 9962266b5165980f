//! More of a snapshot than fits into memory, handed over in parts while it is read.
//!
//! The snapshot is read by a thread of the backend's own, or for a backend without one by a thread of ours; the parts go
//! to the caller, who may take as long as he likes: the reading waits for him. He may also stop to take any.

use std::sync::mpsc::sync_channel;

use crate::error::StoreError;
use crate::store::Store;
use crate::tables::{Reading, Result};

/// How many parts may wait to be taken.
const WAITING: usize = 2;

/// Gives all parts that are produced of one snapshot to `take`, until it fails. The inner result is that of the reading.
pub(crate) fn stream<P, E>(
    store: &Store,
    produce: impl FnOnce(&mut dyn Reading, &mut dyn FnMut(P) -> Result<()>) -> Result<()>
    + Send
    + 'static,
    mut take: impl FnMut(P) -> std::result::Result<(), E>,
) -> std::result::Result<Result<()>, E>
where
    P: Send + 'static,
{
    let (sender, parts) = sync_channel(WAITING);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let all = store.read(move |tables| {
                // If nobody takes it any more, the caller knows why.
                produce(tables, &mut |part| {
                    sender.send(part).map_err(|_| StoreError::closed())
                })
            });
            all.wait()
        });
        let mut taken = Ok(());
        for part in parts {
            taken = take(part);
            if taken.is_err() {
                break;
            }
        }
        let read = reading.join().unwrap_or_else(|_| Err(StoreError::closed()));
        taken.map(|()| read)
    })
}
