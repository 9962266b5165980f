//! A job that exists exactly if a change in the program's own database does: both are written in one transaction.
//!
//! `cargo run -p jobtree --features durable --example outbox`

use std::time::Duration;

use jobtree::durable::outbox::{prepare, rusqlite::Connection};
use jobtree::durable::{JobId, NewJob, Queue};

/// Takes an order, and sees to it that it is sent. Either both happen or none.
fn order(
    shop: &mut Connection,
    queue: &Queue,
    item: &str,
) -> Result<JobId, Box<dyn std::error::Error>> {
    let transaction = shop.transaction()?;
    transaction.execute("INSERT INTO orders (item) VALUES (?1)", [item])?;
    let job = queue.enqueue_in(&transaction, NewJob::new("send", item).attempts(5))?;
    if item == "a unicorn" {
        return Err("we have none".into()); // The transaction is rolled back, and the job with it.
    }
    transaction.commit()?;
    Ok(job)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("outbox-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut shop = Connection::open(folder.join("shop.db"))?;
    shop.execute_batch("CREATE TABLE orders (item TEXT)")?;
    prepare(&shop)?;

    let queue = Queue::open(folder.join("jobs.db"))?;
    let worker = queue.worker().handle("send", |item: String, _| {
        Ok(format!("{item} is on its way"))
    });
    let worker = worker.start()?;
    // Moves jobs from the shop's database into the queue, under the same ids. Killed in between, it begins again.
    let relay = queue.relay(
        Connection::open(folder.join("shop.db"))?,
        Duration::from_millis(20),
    )?;

    let job = order(&mut shop, &queue, "a book")?;
    assert!(order(&mut shop, &queue, "a unicorn").is_err());
    relay.nudge();
    while queue.job(job).wait().is_err() {
        std::thread::sleep(Duration::from_millis(5)); // Not moved yet.
    }
    let sent: String = queue.result_of(job).wait()?;
    println!("{sent}");
    assert_eq!(sent, "a book is on its way");
    let orders: i64 = shop.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
    assert_eq!(orders, 1);

    worker.drain(Duration::from_secs(10))?;
    drop((relay, shop));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
