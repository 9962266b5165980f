//! The subcommand for a peer in a process of its own: it answers each order, and ends with its input or a wrong order.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn servant(workers: &str, orders: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_jobtree-bench"))
        .args(["servant", workers])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = process.stdin.take().expect("it was asked for");
    input
        .write_all(orders.as_bytes())
        .expect("the program reads its orders");
    drop(input);
    process.wait_with_output().expect("the program ends")
}

#[test]
fn every_service_answers_with_a_time_and_its_result() {
    let services = [
        ("spawn", 999 * 1000 / 2),
        ("park", 999 * 1000),
        ("yield-2", 10_000),
        ("yield-1000", 10_000),
        ("ping-pong", 1000),
        ("stream", 1000),
        ("skynet", 9999 * 10_000 / 2),
    ];
    let orders: String = services.map(|(name, _)| format!("{name} 1\n")).concat();
    for workers in ["1", "2"] {
        let output = servant(workers, &orders);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let printed = String::from_utf8_lossy(&output.stdout);
        let answers: Vec<&str> = printed.lines().collect();
        assert_eq!(answers.len(), services.len(), "{printed}");
        for ((name, expected), answer) in services.into_iter().zip(answers) {
            let (nanoseconds, result) = answer.split_once(' ').expect("two numbers");
            assert!(nanoseconds.parse::<u64>().unwrap() > 0, "{name}: {answer}");
            assert_eq!(result.parse(), Ok(expected), "{name}");
        }
    }
}

#[test]
fn a_wrong_order_ends_it() {
    for order in ["nosuchservice 1\n", "spawn many\n", "spawn\n"] {
        let output = servant("1", order);
        assert_eq!(output.status.code(), Some(2), "{order}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}
