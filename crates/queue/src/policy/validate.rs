//! Which values a policy may have. Every violation is reported, not the first alone.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::text::write_duration;
use super::{Policy, PolicyError, SignalRange, Violation};

/// The largest cost that a job may declare; see the protocol.
const LARGEST_COST: u32 = 100;
/// No duration in a policy is longer: beyond, it is a typing error.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

struct Check(Vec<Violation>);

impl Check {
    fn that(&mut self, holds: bool, field: &str, value: impl ToString, allowed: impl ToString) {
        if !holds {
            let (value, allowed) = (value.to_string(), allowed.to_string());
            self.0.push(Violation {
                field: field.to_owned(),
                value,
                allowed,
            });
        }
    }

    fn between(&mut self, field: &str, value: f64, low: f64, high: f64) {
        // Written so that NaN is refused.
        self.that(
            value >= low && value <= high,
            field,
            value,
            format!("it must be {low} to {high}"),
        );
    }

    fn whole(&mut self, field: &str, value: u32, low: u32, high: u32) {
        let allowed = format!("it must be {low} to {high}");
        self.that((low..=high).contains(&value), field, value, allowed);
    }

    fn time(&mut self, field: &str, value: Duration, least: Duration) {
        let allowed = format!(
            "it must be {} to {}",
            write_duration(least),
            write_duration(LONGEST)
        );
        self.that(
            (least..=LONGEST).contains(&value),
            field,
            write_duration(value),
            allowed,
        );
    }

    fn range(&mut self, field: &str, range: &SignalRange, weighted: bool, less_is_worse: bool) {
        let finite = range.low.is_finite() && range.high.is_finite();
        let order = if less_is_worse {
            range.low > range.high
        } else {
            range.low < range.high
        };
        let value = format!("{{ low = {}, high = {} }}", range.low, range.high);
        let allowed = if less_is_worse {
            "low must be above high: less is worse"
        } else {
            "low must be below high"
        };
        self.that(finite && order, field, value, allowed);
        if weighted {
            self.between(&format!("{field}.weight"), range.weight, 0.0, 1.0);
        } else {
            let allowed = "a veto has no weight; leave it out";
            self.that(
                range.weight == 0.0,
                &format!("{field}.weight"),
                range.weight,
                allowed,
            );
        }
    }
}

pub(super) fn validate(policy: &Policy) -> Result<(), PolicyError> {
    let mut check = Check(Vec::new());
    busy(policy, &mut check);
    quiet(policy, &mut check);
    capacity(policy, &mut check);
    order(policy, &mut check);
    addons(policy, &mut check);
    if check.0.is_empty() {
        Ok(())
    } else {
        Err(PolicyError::Values(check.0))
    }
}

fn busy(policy: &Policy, check: &mut Check) {
    let busy = &policy.busy;
    let weighted = [
        ("busy.latency_ms", &busy.latency_ms),
        ("busy.in_flight", &busy.in_flight),
        ("busy.requests_per_sec", &busy.requests_per_sec),
        ("busy.error_rate", &busy.error_rate),
        ("busy.cpu", &busy.cpu),
        ("busy.load_per_core", &busy.load_per_core),
        ("busy.network", &busy.network),
    ];
    for (field, range) in weighted {
        check.range(field, range, true, false);
    }
    let allowed = "it must be above 0: the CPU is the one signal that every sample has";
    check.that(
        busy.cpu.weight > 0.0,
        "busy.cpu.weight",
        busy.cpu.weight,
        allowed,
    );
    for (field, range) in [
        ("busy.psi_cpu", &busy.psi_cpu),
        ("busy.psi_io", &busy.psi_io),
        ("busy.psi_memory", &busy.psi_memory),
        ("busy.disk_busy", &busy.disk_busy),
    ] {
        check.range(field, range, false, false);
    }
    check.range("busy.memory_available", &busy.memory_available, false, true);
    check.range("busy.disk_free", &busy.disk_free, false, true);
    let allowed = "it must be left out while busy.ignore is true";
    let ignored = |field: bool| field && busy.ignore;
    check.that(
        !ignored(busy.pushed_required),
        "busy.pushed_required",
        busy.pushed_required,
        allowed,
    );
    check.that(
        !ignored(!policy.quiet.min_streak.is_zero()),
        "quiet.min_streak",
        write_duration(policy.quiet.min_streak),
        allowed,
    );
    check.between("busy.tighten", busy.tighten, 1.0, 10.0);
    check.between("busy.stale_busy", busy.stale_busy, 0.0, 10.0);
    check.time("busy.stale_after", busy.stale_after, Duration::from_secs(1));
}

fn quiet(policy: &Policy, check: &mut Check) {
    let quiet = &policy.quiet;
    let bounds = [
        ("quiet.quiet_max", quiet.quiet_max, 0.0),
        ("quiet.quiet_leave", quiet.quiet_leave, quiet.quiet_max),
        ("quiet.normal_max", quiet.normal_max, quiet.quiet_leave),
        ("quiet.busy_max", quiet.busy_max, quiet.normal_max),
    ];
    for (field, value, least) in bounds {
        // The order of the bounds is what makes four states of them.
        check.between(field, value, least.clamp(0.0, 10.0), 10.0);
    }
    for (field, value) in [
        ("quiet.enter_after", quiet.enter_after),
        ("quiet.leave_after", quiet.leave_after),
        ("quiet.calm_after", quiet.calm_after),
        ("quiet.spike", quiet.spike),
        ("quiet.min_streak", quiet.min_streak),
        ("quiet.panic_cooldown", quiet.panic_cooldown),
        ("quiet.allow_one_after", quiet.allow_one_after),
    ] {
        check.time(field, value, Duration::ZERO);
    }
    let known = TimeZone::get(&quiet.time_zone).is_ok();
    check.that(
        known,
        "quiet.time_zone",
        &quiet.time_zone,
        "it must be a time zone such as Europe/Berlin",
    );
}

fn capacity(policy: &Policy, check: &mut Check) {
    let capacity = &policy.capacity;
    check.whole("capacity.units", capacity.units, 1, LARGEST_COST);
    check.whole(
        "capacity.reserve",
        capacity.reserve,
        0,
        capacity.units.saturating_sub(1),
    );
    for (busy, &percent) in capacity.curve.iter().enumerate() {
        check.between(&format!("capacity.curve[{busy}]"), percent, 0.0, 100.0);
    }
    for (busy, pair) in capacity.curve.windows(2).enumerate() {
        let allowed = "the busier, the less may run: it must not exceed the one before it";
        check.that(
            pair[1] <= pair[0],
            &format!("capacity.curve[{}]", busy + 1),
            pair[1],
            allowed,
        );
    }
    check.whole("caps.leases", policy.caps.leases, 1, 100_000);
    check.whole("caps.addon_leases", policy.caps.addon_leases, 1, 100_000);
    check.whole("caps.addon_units", policy.caps.addon_units, 1, LARGEST_COST);
    check.whole(
        "ramp.units_per_sample",
        policy.ramp.units_per_sample,
        0,
        LARGEST_COST,
    );
}

fn order(policy: &Policy, check: &mut Check) {
    let (order, deadline, dispatch) = (&policy.order, &policy.deadline, &policy.dispatch);
    check.time("order.age_step", order.age_step, Duration::ZERO);
    check.whole("order.quantum", order.quantum, LARGEST_COST, 100_000);
    check.time("order.hold", order.hold, Duration::ZERO);
    check.time("order.rest", order.rest, Duration::ZERO);
    check.time("deadline.waive_busy", deadline.waive_busy, Duration::ZERO);
    check.time(
        "deadline.waive_quiet",
        deadline.waive_quiet,
        deadline.waive_busy,
    );
    check.time(
        "deadline.waive_window",
        deadline.waive_window,
        deadline.waive_quiet,
    );
    check.time(
        "deadline.waive_streak",
        deadline.waive_streak,
        deadline.waive_window,
    );
    check.time("deadline.at_risk", deadline.at_risk, Duration::ZERO);
    let second = Duration::from_secs(1);
    check.time("dispatch.take_up", dispatch.take_up, second);
    check.time("dispatch.tick", dispatch.tick, Duration::from_millis(100));
    check.time("dispatch.lease_ttl", dispatch.lease_ttl, second);
    check.whole("dispatch.batch", dispatch.batch, 1, 100_000);
}

fn addons(policy: &Policy, check: &mut Check) {
    for (name, addon) in &policy.addons {
        let field = |key: &str| format!("addons.{name}.{key}");
        if let Some(weight) = addon.weight {
            check.whole(&field("weight"), weight, 1, 1_000);
        }
        if let Some(leases) = addon.leases {
            check.whole(&field("leases"), leases, 1, 100_000);
        }
        if let Some(units) = addon.units {
            check.whole(&field("units"), units, 1, LARGEST_COST);
        }
    }
}
