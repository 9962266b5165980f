//! An account that breaks on a bad order is started again by its supervisor. Its address stays valid, the orders behind the
//! bad one are not lost, and what it had written down is still there.
//!
//! `cargo run -p jobtree-runtime --example actor_with_restart`

use std::sync::Mutex;
use std::time::Duration;

use jobtree_runtime::actor::{Actor, ActorContext, ActorOptions, AskError, Reply};
use jobtree_runtime::supervision::{Backoff, RestartPolicy, Strategy, Supervisor};
use jobtree_runtime::{BoxError, nursery};

enum Order {
    Deposit(u64),
    Withdraw(u64, Reply<u64>),
    Balance(Reply<u64>),
}

/// Its state is made anew with each life; the ledger is what survives.
struct Account<'a> {
    balance: u64,
    ledger: &'a Mutex<Vec<i64>>,
}

impl<'a> Account<'a> {
    fn open(ledger: &'a Mutex<Vec<i64>>) -> Account<'a> {
        let sum: i64 = ledger.lock().unwrap().iter().sum();
        Account {
            balance: sum.unsigned_abs(),
            ledger,
        }
    }
}

impl Actor for Account<'_> {
    type Message = Order;

    fn started(&mut self, _: &ActorContext<'_, Order>) -> Result<(), BoxError> {
        println!("the account is open with {}", self.balance);
        Ok(())
    }

    fn handle(&mut self, order: Order, _: &ActorContext<'_, Order>) -> Result<(), BoxError> {
        match order {
            Order::Deposit(amount) => {
                self.balance += amount;
                self.ledger.lock().unwrap().push(i64::try_from(amount)?);
            }
            Order::Withdraw(amount, reply) => {
                // A mistake: nobody looks whether there is enough.
                self.balance = self
                    .balance
                    .checked_sub(amount)
                    .expect("enough in the account");
                self.ledger.lock().unwrap().push(-i64::try_from(amount)?);
                reply.send(self.balance);
            }
            Order::Balance(reply) => {
                reply.send(self.balance);
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), BoxError> {
    let ledger = Mutex::default();
    let restarts = Mutex::new(Vec::new());
    nursery(|n| {
        let mut supervisor = Supervisor::new(Strategy::OneForOne)
            .max_restarts(3, Duration::from_secs(60))
            .backoff(Backoff::exponential(
                Duration::from_millis(1),
                Duration::from_millis(100),
            ))
            .on_restart(|restart| {
                let error = restart.error.map(ToString::to_string).unwrap_or_default();
                println!(
                    "`{}` begins again in {:?}: {error}",
                    restart.child, restart.pause
                );
                restarts.lock().unwrap().push(error);
            });
        let account = supervisor.actor(
            ActorOptions::new().label("account"),
            RestartPolicy::OnFailure,
            || Account::open(&ledger),
        );
        let kept = n.supervise(supervisor);

        account.send(Order::Deposit(100))?;
        assert_eq!(account.ask(|reply| Order::Withdraw(30, reply))?, 70);

        // This one breaks it. Whoever waits for the answer is told that there will be none.
        let answer = account.ask(|reply| Order::Withdraw(1000, reply));
        assert!(matches!(answer, Err(AskError::NoReply)));
        // These wait for the next life.
        account.send(Order::Deposit(5))?;
        let balance = account.ask(Order::Balance)?;
        println!(
            "the balance is {balance}, and {} order was lost",
            account.lost()
        );
        assert_eq!((balance, account.lost()), (75, 1));

        // Nobody can send any more: the account completes, and its supervisor with it.
        drop(account);
        kept.join()?;
        Ok(())
    })?;
    let restarts = restarts.into_inner()?;
    assert_eq!(restarts.len(), 1);
    assert!(
        restarts[0].contains("enough in the account"),
        "{}",
        restarts[0]
    );
    assert_eq!(ledger.into_inner()?, [100, -30, 5]);
    Ok(())
}
