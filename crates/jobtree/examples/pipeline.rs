//! A pipeline of three stages with channels between them: lines are read, parsed by several jobs at once, and summed up. Each channel has
//! room for a few values only, so a fast stage waits for a slow one, and the first error ends all stages.
//!
//! `cargo run -p jobtree --example pipeline`

use std::collections::BTreeMap;

use jobtree::{BoxError, JobError, Outcome, channel, nursery};

const PARSERS: usize = 4;

/// Sums the sales of each town. A line is `town amount`.
fn totals(lines: &[String]) -> Outcome<BTreeMap<&str, u64>> {
    nursery(|n| {
        let (line_sender, line_receiver) = channel::bounded(16);
        let (sale_sender, sale_receiver) = channel::bounded(16);

        n.job_options().label("read").launch(move || {
            for (number, line) in lines.iter().enumerate() {
                // An error says that no job receives any more; why, that job's own error tells.
                if line_sender.send((number, line.as_str())).is_err() {
                    break;
                }
            }
            // The sender is dropped, which ends the stage behind it.
            Ok(())
        });

        for _ in 0..PARSERS {
            let (lines, sales) = (line_receiver.clone(), sale_sender.clone());
            n.job_options().label("parse").launch(move || {
                while let Ok((number, line)) = lines.recv() {
                    let wrong = || format!("line {}: {line:?} is not `town amount`", number + 1);
                    let (town, amount) = line.split_once(' ').ok_or_else(wrong)?;
                    let amount: u64 = amount.parse().map_err(|_| wrong())?;
                    if sales.send((town, amount)).is_err() {
                        break;
                    }
                }
                Ok(())
            });
        }
        // The parsers have clones of their own; the channels end with the last of these.
        drop((line_receiver, sale_sender));

        let mut totals = BTreeMap::new();
        while let Ok((town, amount)) = sale_receiver.recv() {
            *totals.entry(town).or_default() += amount;
        }
        Ok(totals)
    })
}

fn main() -> Result<(), BoxError> {
    let towns = ["Ulm", "Graz", "Bern"];
    let mut lines: Vec<String> = (0..3_000)
        .map(|number| format!("{} {number}", towns[number % towns.len()]))
        .collect();
    let sums = totals(&lines)?;
    println!("{sums:?}");
    assert_eq!(sums.values().sum::<u64>(), (0..3_000).sum::<u64>());
    assert_eq!(sums.len(), towns.len());

    // The body stops because the channels end; what the caller gets is the reason.
    lines[1_500] = "Ulm, many".to_owned();
    match totals(&lines) {
        Err(error @ JobError::Failed(_)) => {
            println!("{error}");
            assert!(error.to_string().contains("line 1501"));
        }
        other => panic!("a line is wrong, and yet: {other:?}"),
    }
    Ok(())
}
