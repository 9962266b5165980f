//! Jobs that feed a channel: the one ends with the other, in both directions.

mod support;

use std::sync::Mutex;

use jobtree_runtime::{BoxError, JobError, JobState, nursery, supervisor};
use support::{until, watch};

#[test]
fn a_producers_channel_closes_however_the_producer_ends() {
    let _watch = watch();
    type Body = fn() -> Result<(), BoxError>;
    let bodies: [Body; 3] = [|| Ok(()), || Err("broken".into()), || panic!("expected")];
    for body in bodies {
        let kept = Mutex::new(None);
        supervisor(|n| {
            let (numbers, producer) = n.produce(4, |out| {
                // Not even a clone of the sender keeps it open.
                *kept.lock().unwrap() = Some(out.sender().clone());
                out.send(1)?;
                out.send(2)?;
                body()
            });
            assert_eq!(numbers.iter().collect::<Vec<_>>(), [1, 2]);
            let _ = producer.join();
            assert!(numbers.is_closed());
            Ok(())
        })
        .unwrap();
        assert!(kept.into_inner().unwrap().unwrap().is_closed());
    }
    // Cancelled in the middle, and before it began.
    supervisor(|n| {
        let (numbers, producer) = n.produce(0, |out| {
            loop {
                out.send(1)?;
            }
        });
        assert_eq!(numbers.recv()?, 1);
        producer.cancel("enough");
        until(|| numbers.is_closed());
        let job = producer.job().clone();
        assert!(producer.join().is_err());
        assert_eq!(job.state(), JobState::Cancelled);
        n.cancel("enough");
        let (numbers, producer) = n.produce(1, |out| Ok(out.send(1)?));
        assert!(producer.is_finished() && numbers.is_closed());
        Ok(())
    })
    .unwrap_err();
}

#[test]
fn a_producer_whose_values_nobody_wants_ends_without_a_failure() {
    let _watch = watch();
    let words = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
    for capacity in [0, 1, 100] {
        let first = nursery(|n| {
            let (lent, producer) = n.produce(capacity, |out| {
                for word in words.iter().cycle() {
                    // Also from below the producer's own job.
                    nursery(|inner| {
                        inner.launch(|| Ok(out.send(word.as_str())?));
                        Ok(())
                    })?;
                }
                Ok(())
            });
            let first = lent.recv()?;
            drop(lent);
            let job = producer.job().clone();
            assert!(matches!(producer.join(), Err(JobError::Cancelled(_))));
            assert_eq!(job.state(), JobState::Cancelled);
            Ok(first)
        });
        assert_eq!(first.unwrap(), "one");
    }
}
