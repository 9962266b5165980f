//! The findings as text for people and as JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::Findings;
use super::bars::bar;

pub use super::bars::Glyphs;

/// How long a bar is that stands for the best possible.
const BAR: usize = 32;

/// Tables with bars.
pub fn text(findings: &Findings, glyphs: Glyphs) -> String {
    let mut text = String::new();
    let machine = &findings.machine;
    let _ = writeln!(
        text,
        "jobtree {} on {} CPU(s), up to {} worker(s)\n",
        env!("CARGO_PKG_VERSION"),
        machine.cpus,
        machine.workers
    );

    text.push_str("What a fork costs\n");
    text.push_str("  on one worker, where nobody can take any of them: the same code without forks and with\n");
    let _ = writeln!(
        text,
        "  {:<34} {:>9} {:>9} {:>7}  a fork",
        "", "without", "with", "ratio"
    );
    for cost in &findings.costs {
        let _ = writeln!(
            text,
            "  {:<34} {:>9} {:>9} {:>6.2}x  {:.1} ns",
            cost.name,
            duration(cost.plain),
            duration(cost.forking),
            cost.ratio(),
            cost.nanoseconds_a_fork().max(0.0),
        );
    }
    let _ = writeln!(
        text,
        "  a sleeping worker starts on what another thread spawns within {} (median), {} (nine in ten)\n",
        duration(findings.wake.median),
        duration(findings.wake.slowest_tenth)
    );

    text.push_str("How it scales\n");
    text.push_str("  speed-up over the same code without forks; a full bar is as many times as there are CPUs\n");
    for curve in &findings.curves {
        let _ = writeln!(
            text,
            "  {} ({} without forks)",
            curve.name,
            duration(curve.plain)
        );
        for point in &curve.points {
            let speed_up = curve.speed_up(point);
            // More workers than CPUs cannot be faster than the CPUs; fewer are shown beside what all could do.
            let best = machine.cpus.max(1) as f64;
            let _ = writeln!(
                text,
                "  {:>6} {} {:>9}  {} {speed_up:.2}x",
                point.workers,
                if point.workers == 1 {
                    "worker "
                } else {
                    "workers"
                },
                duration(point.time),
                bar(speed_up / best, BAR, glyphs),
            );
        }
    }
    let _ = writeln!(
        text,
        "\ntook {:.1} s; other programs that run make every figure worse",
        findings.took.as_secs_f64()
    );
    text
}

/// One document with everything, times in nanoseconds.
pub fn json(findings: &Findings) -> Value {
    let nanoseconds = |time: Duration| time.as_nanos() as u64;
    json!({
        "release": env!("CARGO_PKG_VERSION"),
        "cpus": findings.machine.cpus,
        "workers": findings.machine.workers,
        "fork_costs": findings.costs.iter().map(|cost| json!({
            "name": cost.name,
            "forks": cost.forks,
            "plain_ns": nanoseconds(cost.plain),
            "forking_ns": nanoseconds(cost.forking),
            "ratio": cost.ratio(),
            "ns_a_fork": cost.nanoseconds_a_fork(),
        })).collect::<Vec<_>>(),
        "wake": {
            "samples": findings.wake.samples,
            "median_ns": nanoseconds(findings.wake.median),
            "slowest_tenth_ns": nanoseconds(findings.wake.slowest_tenth),
        },
        "scaling": findings.curves.iter().map(|curve| json!({
            "name": curve.name,
            "plain_ns": nanoseconds(curve.plain),
            "points": curve.points.iter().map(|point| json!({
                "workers": point.workers,
                "ns": nanoseconds(point.time),
                "speed_up": curve.speed_up(point),
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "took_s": findings.took.as_secs_f64(),
    })
}

/// A time with three digits and its unit.
fn duration(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    match nanoseconds {
        few if few < 1e3 => format!("{few:.0} ns"),
        few if few < 1e6 => format!("{:.1} us", few / 1e3),
        few if few < 1e9 => format!("{:.1} ms", few / 1e6),
        many => format!("{:.2} s", many / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fork_cost::{Cost, Wake};
    use super::super::machine::Machine;
    use super::super::scaling::{Curve, Point};
    use super::*;

    fn findings() -> Findings {
        let millis = Duration::from_millis;
        Findings {
            machine: Machine {
                cpus: 4,
                workers: 4,
            },
            costs: vec![Cost {
                name: "calls",
                forks: 1_000_000,
                plain: millis(4),
                forking: millis(6),
            }],
            wake: Wake {
                samples: 9,
                median: Duration::from_micros(20),
                slowest_tenth: Duration::from_micros(90),
            },
            curves: vec![Curve {
                name: "a loop",
                plain: millis(8),
                points: vec![
                    Point {
                        workers: 1,
                        time: millis(8),
                    },
                    Point {
                        workers: 4,
                        time: millis(2),
                    },
                ],
            }],
            took: Duration::from_secs(7),
        }
    }

    #[test]
    fn the_text_tells_the_cost_of_a_fork_and_the_speed_up() {
        let text = text(&findings(), Glyphs::Ascii);
        assert!(text.contains("1.50x  2.0 ns"), "{text}");
        assert!(text.contains("20.0 us (median)"), "{text}");
        assert!(
            text.contains(&format!("{} 4.00x", "#".repeat(BAR))),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "{}{} 1.00x",
                "#".repeat(BAR / 4),
                ".".repeat(BAR * 3 / 4)
            )),
            "{text}"
        );
    }

    #[test]
    fn ascii_means_ascii() {
        assert!(text(&findings(), Glyphs::Ascii).is_ascii());
        assert!(!text(&findings(), Glyphs::Blocks).is_ascii());
    }

    #[test]
    fn the_json_has_the_same_figures() {
        let json = json(&findings());
        assert_eq!(json["fork_costs"][0]["ns_a_fork"], 2.0);
        assert_eq!(json["scaling"][0]["points"][1]["speed_up"], 4.0);
    }
}
