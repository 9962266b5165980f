//! Admission in virtual time: each rule fires, and only when it should.

mod worlds;

use std::sync::Arc;

use jobtree_protocol::{Advice, Constraints, Priority, QuietState};
use jobtree_queue::Now;
use jobtree_queue::admission::{Admission, Ask, Usage, Verdict};
use jobtree_queue::advice::advice;
use jobtree_queue::block::Block;
use jobtree_queue::deadline::Waiver;
use jobtree_queue::signals::{HostSignals, Sample};
use worlds::{busy, feed, noon, policy, secs, watch};

fn ask(cost: u32) -> Ask {
    Ask {
        cost,
        constraints: Constraints::default(),
        waiver: Waiver::None,
    }
}

fn high(cost: u32) -> Ask {
    Ask {
        waiver: Waiver::Normal,
        ..ask(cost)
    }
}

fn decide(admission: &Admission, ask: Ask, used: u32, now: Now) -> Verdict {
    admission.decide(
        "visuals",
        &ask,
        &Usage {
            units: used,
            ..Usage::default()
        },
        now,
    )
}

/// A machine that has been as busy as this for five minutes.
fn machine(text: &str, level: f64) -> (Admission, Now) {
    let mut admission = Admission::new(policy(text), noon());
    let now = feed(&mut admission, level, 0, noon(), secs(300));
    (admission, now)
}

#[test]
fn an_ignored_load_neither_has_to_be_measured_nor_counts() {
    let _watchdog = watch();
    // Nothing was measured: closed, unless load does not matter.
    let measured = Admission::new(policy(""), noon());
    assert!(!decide(&measured, high(1), 0, noon()).approved());
    let ignoring = Admission::new(policy("[busy]\nignore = true"), noon());
    let verdict = decide(&ignoring, ask(60), 40, noon());
    assert!(verdict.approved(), "{}", verdict.reason());
    assert!(verdict.load_ignored);
    assert!(
        verdict.reason().contains("busy.ignore"),
        "{}",
        verdict.reason()
    );
    let change = ignoring.next_change(noon());
    assert!(
        change.is_none_or(|wait| wait > secs(3600)),
        "nothing grows stale"
    );
    // Capacity holds, and so do windows.
    assert!(!decide(&ignoring, ask(61), 40, noon()).approved());
    let windows = "[busy]\nignore = true\n[quiet]\nwindows = [\"22:00-06:00 UTC\"]";
    let nightly = Admission::new(policy(windows), noon());
    let denied = decide(&nightly, ask(1), 0, noon()).denied;
    assert!(matches!(denied, Some(Block::OutsideWindow { .. })));

    // A machine in PANIC, with a ramp: neither counts. When load counts again, all of it does.
    let (mut admission, now) = machine("[busy]\nignore = true", 10.0);
    let constraints = Constraints {
        cpu_heavy: true,
        ..Constraints::default()
    };
    let heavy = Ask {
        constraints,
        ..ask(100)
    };
    assert!(decide(&admission, heavy, 0, now).approved());
    let told = advice(
        &admission,
        &admission.view(now),
        Priority::Normal,
        constraints,
        false,
        now,
    );
    assert_eq!(told, Advice::Continue);
    admission.set_policy(policy(""), now);
    let denied = decide(&admission, high(1), 0, now).denied;
    assert!(matches!(denied, Some(Block::Panic { .. })), "{denied:?}");
}

#[test]
fn capacity_follows_the_curve_and_is_never_exceeded() {
    let _watchdog = watch();
    for (level, capacity) in [100, 100, 100, 80, 65, 50, 35, 25].into_iter().enumerate() {
        let (admission, now) = machine("[ramp]\nunits_per_sample = 0", level as f64);
        for used in 0..=capacity {
            assert!(
                decide(&admission, high(capacity - used), used, now).approved(),
                "{level}: {used}"
            );
            let denied = decide(&admission, high(capacity - used + 1), used, now);
            let requested = capacity - used + 1;
            assert_eq!(
                denied.denied,
                Some(Block::Capacity {
                    used,
                    requested,
                    capacity
                })
            );
            let text = format!(
                "Capacity exceeded: used={used}, requested={requested}, capacity={capacity}"
            );
            assert_eq!(denied.reason(), text);
            assert_eq!(
                (denied.numbers.used, denied.numbers.capacity),
                (used, capacity)
            );
        }
    }
}

#[test]
fn a_full_cpu_bounds_capacity_where_idle_signals_would_hide_it() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy(""), noon());
    let host = HostSignals {
        latency_ms: Some(1.0),
        in_flight: Some(0.0),
        requests_per_sec: Some(0.0),
        error_rate: Some(0.0),
    };
    admission.push(host, noon());
    let full = Sample {
        cpu_idle: 0.0,
        ..Sample::idle()
    };
    admission.sample(full, 0, noon());
    let view = admission.view(noon());
    assert!(view.busy < 2.0, "{}", view.busy);
    // As much as in BUSY: no pressure says that more is lacking than headroom.
    assert_eq!(admission.capacity(&view, Constraints::default()), 25);
}

#[test]
fn who_starts_in_which_state() {
    let _watchdog = watch();
    let waivers = [
        Waiver::None,
        Waiver::Streak,
        Waiver::Window,
        Waiver::Quiet,
        Waiver::Normal,
    ];
    for (level, state, starts) in [
        (1.0, QuietState::Quiet, 5),
        (4.0, QuietState::Normal, 2),
        (6.0, QuietState::Busy, 1),
        (8.0, QuietState::Panic, 0),
    ] {
        let (admission, now) = machine("", level);
        assert_eq!(admission.view(now).state, state);
        for (index, waiver) in waivers.into_iter().rev().enumerate() {
            let verdict = decide(&admission, Ask { waiver, ..ask(1) }, 0, now);
            assert_eq!(
                verdict.approved(),
                index < starts,
                "{state:?}, {waiver:?}: {}",
                verdict.reason()
            );
        }
    }
    let (admission, now) = machine("", 6.0);
    let denied = decide(&admission, ask(1), 0, now);
    assert_eq!(
        denied.reason(),
        "The machine is BUSY, the job waits for QUIET: CPU used by other programs 58 % (bound 26 %); must be calm for 1m"
    );
    assert!(denied.retry_after.is_some());
}

#[test]
fn quiet_is_entered_low_and_slow_and_left_high_and_fast() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy(""), noon());
    let mut now = feed(&mut admission, 1.9, 0, noon(), secs(60));
    assert_eq!(
        admission.view(now).state,
        QuietState::Normal,
        "58 s since the first sample"
    );
    // One sample in between that is not low begins the wait anew.
    now = now.after(secs(2));
    admission.sample(busy(2.1), 0, now);
    now = feed(&mut admission, 1.9, 0, now, secs(60));
    assert_eq!(admission.view(now).state, QuietState::Normal);
    now = feed(&mut admission, 1.9, 0, now, secs(2));
    assert_eq!(admission.view(now).state, QuietState::Quiet);
    // Between the two bounds nothing changes, however long.
    now = feed(&mut admission, 2.9, 0, now, secs(3600));
    assert_eq!(admission.view(now).state, QuietState::Quiet);
    now = now.after(secs(2));
    assert_eq!(
        admission.sample(busy(3.1), 0, now),
        Some(QuietState::Quiet),
        "one sample is enough"
    );
    now = feed(&mut admission, 2.9, 0, now, secs(3600));
    assert_eq!(
        admission.view(now).state,
        QuietState::Normal,
        "and the way back is by the lower bound"
    );
}

#[test]
fn a_machine_at_the_bound_does_not_flap() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy(""), noon());
    let mut now = feed(&mut admission, 0.0, 0, noon(), secs(120));
    let mut changes = 0;
    for index in 0..1000 {
        now = now.after(secs(2));
        changes += usize::from(
            admission
                .sample(busy(2.0 + 0.9 * f64::from(index % 2)), 0, now)
                .is_some(),
        );
    }
    assert_eq!(changes, 0);
    // And from BUSY to NORMAL only after `calm_after` below the bound.
    admission.sample(busy(5.1), 0, now.after(secs(2)));
    now = feed(&mut admission, 4.9, 0, now.after(secs(2)), secs(10));
    assert_eq!(admission.view(now).state, QuietState::Busy);
    now = feed(&mut admission, 4.9, 0, now, secs(2));
    assert_eq!(admission.view(now).state, QuietState::Normal);
}

#[test]
fn without_samples_it_fails_closed_and_comes_back_without_a_cool_down() {
    let _watchdog = watch();
    let (mut admission, now) = machine("", 0.0);
    assert!(decide(&admission, ask(1), 0, now.after(secs(29))).approved());
    let stale = now.after(secs(30));
    let denied = decide(&admission, high(1), 0, stale);
    assert_eq!(denied.numbers.busy, 8.0);
    assert_eq!(
        denied.reason(),
        "No metrics for 30 s (limit 30 s); failing closed"
    );
    assert_eq!(denied.state, QuietState::Panic);
    let back = stale.after(secs(2));
    admission.sample(busy(0.0), 0, back);
    assert!(decide(&admission, high(1), 0, back).approved());
    assert!(
        !decide(&admission, ask(1), 0, back).approved(),
        "QUIET has to be entered again"
    );
    // Before the first sample nothing is known either.
    let fresh = Admission::new(policy(""), noon());
    assert!(matches!(
        decide(&fresh, high(1), 0, noon()).denied,
        Some(Block::Stale { .. })
    ));
    // And a sampler that is broken does not look like an idle machine.
    let mut broken = Admission::new(policy(""), noon());
    broken.sample(
        Sample {
            cpu_idle: f64::NAN,
            ..Sample::idle()
        },
        0,
        noon(),
    );
    assert!(matches!(
        decide(&broken, high(1), 0, noon()).denied,
        Some(Block::Stale { .. })
    ));
}

#[test]
fn cpu_use_alone_is_busy_and_pressure_makes_it_panic() {
    let _watchdog = watch();
    let state = |sample: Sample| {
        let mut admission = Admission::new(policy(""), noon());
        let mut now = noon();
        for _ in 0..20 {
            now = now.after(secs(2));
            admission.sample(sample, 0, now);
        }
        let view = admission.view(now);
        (
            view.state,
            admission.capacity(&view, Constraints::default()),
        )
    };
    let full = Sample {
        cpu_idle: 0.03,
        ..Sample::idle()
    };
    let with_pressure = |psi_cpu| Sample {
        psi_cpu: Some(psi_cpu),
        ..full
    };
    assert_eq!(state(full), (QuietState::Busy, 25));
    assert_eq!(state(with_pressure(20.0)), (QuietState::Busy, 25));
    assert_eq!(state(with_pressure(75.0)).0, QuietState::Panic);
    // Without pressure, the load average tells that programs wait.
    let with_load = |load| Sample {
        load_per_core: Some(load),
        ..full
    };
    assert_eq!(state(with_load(0.8)).0, QuietState::Busy);
    assert_eq!(state(with_load(3.0)).0, QuietState::Panic);
    let both = Sample {
        psi_cpu: Some(5.0),
        ..with_load(3.0)
    };
    assert_eq!(
        state(both).0,
        QuietState::Busy,
        "pressure is known, and says no"
    );
}

#[test]
fn a_spike_costs_no_minute_and_the_second_one_does() {
    let _watchdog = watch();
    let (mut admission, now) = machine("", 1.0);
    let since = admission.view(now).since;
    let now = feed(&mut admission, 9.0, 0, now, secs(2));
    assert_eq!(
        admission.view(now).state,
        QuietState::Panic,
        "it is felt at once"
    );
    let now = feed(&mut admission, 1.0, 0, now, secs(2));
    let view = admission.view(now);
    assert_eq!(
        (view.state, view.since, view.cooling),
        (QuietState::Quiet, since, None)
    );
    assert!(decide(&admission, ask(1), 0, now).approved());
    // A machine with one spike after the other is not quiet.
    let now = feed(&mut admission, 9.0, 0, now, secs(2));
    let now = feed(&mut admission, 1.0, 0, now, secs(20));
    let view = admission.view(now);
    assert_eq!(view.state, QuietState::Normal);
    assert!(view.cooling.is_some());
    // And what lasts is no spike.
    let (mut admission, now) = machine("", 1.0);
    let now = feed(&mut admission, 9.0, 0, now, secs(16));
    let now = feed(&mut admission, 1.0, 0, now, secs(2));
    assert_eq!(admission.view(now).state, QuietState::Panic);
    let (mut admission, now) = machine("[quiet]\nspike = \"0\"", 1.0);
    let now = feed(&mut admission, 9.0, 0, now, secs(2));
    let now = feed(&mut admission, 1.0, 0, now, secs(2));
    assert_eq!(admission.view(now).state, QuietState::Panic, "switched off");
}

#[test]
fn now_waives_the_cool_down_and_ignore_load_waives_panic_too() {
    let _watchdog = watch();
    let (mut admission, now) = machine("[quiet]\nmin_streak = \"10m\"", 1.0);
    let with = |waiver, cost| Ask {
        waiver,
        ..ask(cost)
    };
    let hot = feed(&mut admission, 10.0, 0, now, secs(20));
    let refused = decide(&admission, with(Waiver::Cooldown, 1), 0, hot);
    assert!(matches!(refused.denied, Some(Block::Panic { .. })));
    assert!(
        !refused.reason().contains("cools down"),
        "{}",
        refused.reason()
    );
    assert!(decide(&admission, with(Waiver::Load, 20), 0, hot).approved());
    let full = decide(&admission, with(Waiver::Load, 20), 90, hot).denied;
    assert!(
        matches!(full, Some(Block::Capacity { capacity: 100, .. })),
        "{full:?}"
    );
    let cooling = feed(&mut admission, 1.0, 0, hot, secs(14));
    assert!(!decide(&admission, with(Waiver::Normal, 1), 0, cooling).approved());
    assert!(decide(&admission, with(Waiver::Cooldown, 1), 0, cooling).approved());
    let busy = feed(&mut admission, 6.0, 0, cooling, secs(20));
    let full = decide(&admission, with(Waiver::Cooldown, 20), 30, busy).denied;
    assert!(
        matches!(full, Some(Block::Capacity { capacity: 35, .. })),
        "{full:?}"
    );
    // Nothing is measured any more.
    let stale = busy.after(secs(60));
    assert!(!decide(&admission, with(Waiver::Cooldown, 1), 0, stale).approved());
    assert!(decide(&admission, with(Waiver::Load, 1), 0, stale).approved());
}

#[test]
fn panic_denies_all_and_cools_down() {
    let _watchdog = watch();
    let (mut admission, now) = machine("", 1.0);
    let hot = feed(&mut admission, 7.5, 0, now, secs(20));
    let denied = decide(&admission, high(1), 0, hot);
    assert!(matches!(denied.denied, Some(Block::Panic { .. })));
    assert_eq!(
        denied.reason(),
        "The machine is overloaded (PANIC): CPU used by other programs 70 % (bound 66 %), CPU pressure 62 % (bound 59 %); \
         must be calm for 10s, then it cools down for 1m"
    );
    let calm = feed(&mut admission, 1.0, 0, hot, secs(14));
    assert_eq!(admission.view(calm).state, QuietState::Normal);
    let denied = decide(&admission, high(1), 0, calm);
    assert_eq!(
        denied.reason(),
        "The machine was overloaded (PANIC) and cools down for 1m: 56 s are left"
    );
    // The last sample in PANIC was two seconds before it calmed down.
    let left = denied.retry_after.unwrap();
    let over = feed(&mut admission, 1.0, 0, calm, left);
    assert!(!decide(&admission, high(1), 0, calm.after(left - secs(1))).approved());
    assert!(decide(&admission, high(1), 0, over.after(secs(1))).approved());
}

#[test]
fn a_minimum_streak_is_waited_for_and_broken_by_more_than_a_spike() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy("[quiet]\nmin_streak = \"10m\""), noon());
    let now = feed(&mut admission, 0.5, 0, noon(), secs(62 + 598));
    let denied = decide(&admission, ask(1), 0, now);
    assert!(
        matches!(denied.denied, Some(Block::StreakTooShort { streak, .. }) if streak == secs(598))
    );
    assert_eq!(denied.retry_after, Some(secs(2)));
    let now = feed(&mut admission, 0.5, 0, now, secs(2));
    assert!(decide(&admission, ask(1), 0, now).approved());
    assert!(
        decide(
            &admission,
            Ask {
                waiver: Waiver::Streak,
                ..ask(1)
            },
            0,
            now
        )
        .approved()
    );
    let now = feed(&mut admission, 3.5, 0, now, secs(20));
    let now = feed(&mut admission, 0.5, 0, now, secs(70));
    assert!(matches!(
        decide(&admission, ask(1), 0, now).denied,
        Some(Block::StreakTooShort { .. })
    ));
    assert!(
        decide(
            &admission,
            Ask {
                waiver: Waiver::Streak,
                ..ask(1)
            },
            0,
            now
        )
        .approved()
    );
}

#[test]
fn streaks_are_maximal_runs_of_quiet_minutes_over_a_day() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy(""), noon());
    let now = feed(&mut admission, 1.0, 0, noon(), secs(62));
    let now = feed(&mut admission, 1.0, 0, now, secs(598));
    let now = feed(&mut admission, 4.0, 0, now, secs(120));
    let now = feed(&mut admission, 0.5, 0, now, secs(60));
    let now = feed(&mut admission, 0.5, 0, now, secs(300));
    let streaks = admission.quiet().streaks(now);
    assert_eq!(streaks.len(), 2, "{streaks:?}");
    // From 12:02 (the minute of 12:01 began as NORMAL) until 12:11, where the load came.
    assert_eq!(streaks[0].start, "2026-11-15T12:02:00Z".parse().unwrap());
    assert_eq!(
        (streaks[0].minutes, streaks[0].end),
        (9, "2026-11-15T12:11:00Z".parse().unwrap())
    );
    assert!((streaks[0].average - 1.0).abs() < 1e-6 && (streaks[0].minimum - 1.0).abs() < 1e-6);
    assert!((streaks[1].average - 0.5).abs() < 1e-6, "{streaks:?}");
    assert_eq!(streaks[1].end, now.wall);
    // A day later they are forgotten.
    let later = now.after(secs(86_400));
    assert_eq!(admission.quiet().streaks(later), []);
}

#[test]
fn outside_of_the_windows_the_machine_does_not_count_as_quiet() {
    let _watchdog = watch();
    // Noon UTC is 13:00 in Berlin.
    let (admission, now) = machine("[quiet]\nwindows = [\"22:00-06:00 Europe/Berlin\"]", 0.0);
    let denied = decide(&admission, ask(1), 0, now);
    let opens = Some("2026-11-15T21:00:00Z".parse().unwrap());
    assert_eq!(denied.denied, Some(Block::OutsideWindow { opens }));
    assert!(
        decide(
            &admission,
            Ask {
                waiver: Waiver::Window,
                ..ask(1)
            },
            0,
            now
        )
        .approved()
    );
    let mut admission = admission;
    let night = now.after(denied.retry_after.unwrap());
    let night = feed(&mut admission, 0.0, 0, night, secs(70));
    assert!(decide(&admission, ask(1), 0, night).approved());
}

#[test]
fn one_is_allowed_when_quiet_never_comes() {
    let _watchdog = watch();
    let text = "[quiet]\nallow_one_after = \"1h\"";
    let mut admission = Admission::new(policy(text), noon());
    let now = feed(&mut admission, 4.0, 0, noon(), secs(3598));
    assert!(!decide(&admission, ask(10), 0, now).approved());
    let now = feed(&mut admission, 4.0, 0, now, secs(2));
    assert!(decide(&admission, ask(10), 0, now).approved());
    assert!(
        !decide(&admission, ask(66), 0, now).approved(),
        "capacity is not waived"
    );
    let starved = admission.allowed_one();
    assert!(!decide(&admission, ask(10), 0, now).approved(), "one");
    admission.take_back_one(starved);
    assert!(
        decide(&admission, ask(10), 0, now).approved(),
        "the one did not start"
    );
    admission.allowed_one();
    let now = feed(&mut admission, 4.0, 0, now, secs(3600));
    assert!(
        decide(&admission, ask(10), 0, now).approved(),
        "and again after as long"
    );
    // Quiet in between begins the time anew; outside of the windows it stands still.
    let now = feed(&mut admission, 0.0, 0, now, secs(120));
    let now = feed(&mut admission, 4.0, 0, now, secs(3000));
    assert!(!decide(&admission, ask(10), 0, now).approved());
    let shut = "[quiet]\nallow_one_after = \"1h\"\nwindows = [\"22:00-06:00 UTC\"]";
    let mut admission = Admission::new(policy(shut), noon());
    let now = feed(&mut admission, 4.0, 0, noon(), secs(2 * 3600));
    assert!(!admission.view(now).allow_one);
    // In PANIC not even one.
    let mut admission = Admission::new(policy(text), noon());
    let now = feed(&mut admission, 9.0, 0, noon(), secs(2 * 3600));
    assert!(admission.view(now).allow_one && !decide(&admission, ask(10), 0, now).approved());
}

#[test]
fn constraints_look_harder_at_their_own_resource() {
    let _watchdog = watch();
    let mut admission = Admission::new(policy(""), noon());
    let mut now = noon();
    // 17 % IO pressure reads 2.2 of 10, less than `quiet_leave`; tightened it is 3.3, more.
    for _ in 0..60 {
        now = now.after(secs(2));
        admission.sample(
            Sample {
                psi_io: Some(15.0),
                ..Sample::idle()
            },
            0,
            now,
        );
    }
    for _ in 0..10 {
        now = now.after(secs(2));
        admission.sample(
            Sample {
                psi_io: Some(17.0),
                ..Sample::idle()
            },
            0,
            now,
        );
    }
    let disk = Constraints {
        disk_write_heavy: true,
        ..Constraints::default()
    };
    let cpu = Constraints {
        cpu_heavy: true,
        memory_heavy: true,
        network_heavy: true,
        ..Constraints::default()
    };
    let denied = decide(
        &admission,
        Ask {
            constraints: disk,
            ..ask(1)
        },
        0,
        now,
    );
    assert!(
        matches!(denied.denied, Some(Block::Pressure { level, .. }) if level > 3.0 && level < 3.5)
    );
    assert!(
        decide(
            &admission,
            Ask {
                constraints: cpu,
                ..ask(1)
            },
            0,
            now
        )
        .approved()
    );
    assert!(decide(&admission, ask(1), 0, now).approved());
    let view = admission.view(now);
    assert!(admission.capacity(&view, disk) < admission.capacity(&view, cpu));
    // What starts in BUSY is bounded by that state's bound, and by the smaller capacity.
    assert!(
        decide(
            &admission,
            Ask {
                constraints: disk,
                ..high(1)
            },
            0,
            now
        )
        .approved()
    );
}

#[test]
fn a_job_that_leans_on_the_network_waits_while_an_interface_is_busy() {
    let _watchdog = watch();
    let network = Constraints {
        network_heavy: true,
        ..Constraints::default()
    };
    let heavy = Ask {
        constraints: network,
        ..ask(1)
    };
    let (mut admission, mut now) = machine("", 0.0);
    let mut measure = |admission: &mut Admission, network| {
        for _ in 0..60 {
            now = now.after(secs(2));
            let sample = Sample {
                network,
                ..Sample::idle()
            };
            admission.sample(sample, 0, now);
        }
        now
    };
    let now = measure(&mut admission, Some(0.1));
    assert!(decide(&admission, heavy, 0, now).approved());
    // The machine is as quiet as before for all others.
    let now = measure(&mut admission, Some(0.95));
    let denied = decide(&admission, heavy, 0, now).denied;
    assert!(matches!(denied, Some(Block::Pressure { .. })), "{denied:?}");
    let told = denied.expect("it is denied").to_string();
    assert!(told.contains("network"), "{told}");
    let disk = Constraints {
        disk_write_heavy: true,
        ..Constraints::default()
    };
    for constraints in [Constraints::default(), disk] {
        let other = Ask {
            constraints,
            ..ask(1)
        };
        assert!(
            decide(&admission, other, 0, now).approved(),
            "{constraints:?}"
        );
    }
    // Where no interface has a speed, nothing of it holds the job back.
    let now = measure(&mut admission, None);
    assert!(decide(&admission, heavy, 0, now).approved());
}

#[test]
fn caps_global_and_per_addon() {
    let _watchdog = watch();
    let text = "[caps]\nleases = 10\naddon_leases = 5\n[addons.small]\nleases = 2\nunits = 20\n[addons.off]\npaused = true";
    let (admission, now) = machine(text, 0.0);
    let decide = |addon, cost, usage| admission.decide(addon, &ask(cost), &usage, now);
    let usage = Usage {
        leases: 10,
        ..Usage::default()
    };
    assert_eq!(
        decide("visuals", 1, usage).denied,
        Some(Block::Leases {
            active: 10,
            limit: 10
        })
    );
    let usage = Usage {
        leases: 5,
        addon_leases: 5,
        ..Usage::default()
    };
    let denied = decide("visuals", 1, usage);
    assert_eq!(
        denied.denied,
        Some(Block::AddonLeases {
            active: 5,
            limit: 5
        })
    );
    assert_eq!(denied.limits.max_active_leases_per_addon, Some(5));
    let usage = Usage {
        addon_leases: 2,
        ..Usage::default()
    };
    assert_eq!(
        decide("small", 1, usage).denied,
        Some(Block::AddonLeases {
            active: 2,
            limit: 2
        })
    );
    assert!(decide("visuals", 1, usage).approved());
    let usage = Usage {
        units: 15,
        addon_units: 15,
        ..Usage::default()
    };
    let denied = Block::AddonUnits {
        used: 15,
        requested: 6,
        limit: 20,
    };
    assert_eq!(decide("small", 6, usage).denied, Some(denied));
    assert!(decide("small", 5, Usage { units: 0, ..usage }).approved());
    assert_eq!(
        decide("off", 1, Usage::default()).denied,
        Some(Block::AddonPaused)
    );
    assert_eq!(admission.policy().largest_cost("small"), 20);
    assert_eq!(admission.policy().largest_cost("visuals"), 100);
}

#[test]
fn the_ramp_waits_for_a_sample_before_it_grants_more() {
    let _watchdog = watch();
    let (mut admission, now) = machine("[ramp]\nunits_per_sample = 25", 0.0);
    assert!(
        decide(&admission, ask(100), 0, now).approved(),
        "the first of any cost"
    );
    assert!(decide(&admission, ask(15), 10, now).approved());
    let denied = decide(&admission, ask(16), 10, now);
    assert_eq!(
        denied.denied,
        Some(Block::Ramp {
            added: 10,
            requested: 16,
            limit: 25
        })
    );
    let now = now.after(secs(2));
    admission.sample(busy(0.0), 10, now);
    assert!(decide(&admission, ask(16), 10, now).approved());
}

#[test]
fn a_new_policy_counts_at_once() {
    let _watchdog = watch();
    let (mut admission, now) = machine("", 1.0);
    assert!(decide(&admission, ask(60), 0, now).approved());
    admission.set_policy(policy("[capacity]\nunits = 50"), now);
    assert!(!decide(&admission, ask(60), 0, now).approved());
    admission.set_policy(Arc::new(Default::default()), now);
    assert!(decide(&admission, ask(60), 0, now).approved());
}

#[test]
fn a_change_that_needs_no_event_is_announced() {
    let _watchdog = watch();
    let (admission, now) = machine("[quiet]\nmin_streak = \"5m\"", 1.0);
    // In order: the sample grows stale in 30 s; the streak (begun after 62 s) is full in 62 s.
    assert_eq!(admission.next_change(now), Some(secs(30)));
    let (mut admission, now) = machine(
        "[busy]\nstale_after = \"10m\"\n[quiet]\nmin_streak = \"5m\"",
        1.0,
    );
    assert_eq!(admission.next_change(now), Some(secs(62)));
    admission.sample(busy(9.0), 0, now);
    admission.sample(busy(4.0), 0, now);
    assert_eq!(admission.next_change(now), Some(secs(60)), "the cool-down");
}

#[test]
fn running_jobs_are_asked_by_the_load_of_their_node() {
    let _watchdog = watch();
    let heavy = Constraints {
        cpu_heavy: true,
        ..Constraints::default()
    };
    let ask = |admission: &Admission, priority, constraints, now| {
        advice(
            admission,
            &admission.view(now),
            priority,
            constraints,
            false,
            now,
        )
    };
    for (level, light, burdened) in [
        (1.0, Advice::Continue, Advice::Continue),
        (4.0, Advice::Continue, Advice::Continue),
        (5.0, Advice::Continue, Advice::Slow),
        (6.0, Advice::Slow, Advice::Checkpoint),
        (8.0, Advice::Yield, Advice::Yield),
    ] {
        let (admission, now) = machine("", level);
        assert_eq!(
            ask(&admission, Priority::Normal, Constraints::default(), now),
            light,
            "{level}"
        );
        assert_eq!(
            ask(&admission, Priority::Normal, heavy, now),
            burdened,
            "{level}"
        );
    }
    let (mut admission, now) = machine("", 1.0);
    admission.sample(busy(9.0), 0, now);
    let plain = Constraints::default();
    assert_eq!(
        ask(&admission, Priority::Normal, plain, now),
        Advice::Checkpoint,
        "at first"
    );
    let late = feed(&mut admission, 9.0, 0, now, secs(100));
    assert_eq!(
        ask(&admission, Priority::Normal, plain, late),
        Advice::Yield
    );
    assert_eq!(
        ask(&admission, Priority::High, plain, late),
        Advice::Checkpoint
    );
    let stale = late.after(secs(60));
    assert_eq!(
        ask(&admission, Priority::Normal, plain, stale),
        Advice::Continue,
        "nobody knows"
    );
    let view = admission.view(late);
    assert_eq!(
        advice(&admission, &view, Priority::High, plain, true, late),
        Advice::Drain
    );
}
