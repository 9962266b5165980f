//! Policies: what is refused, and how it is said.

mod worlds;

use jobtree_queue::policy::{Policy, PolicyError};
use worlds::watch;

#[test]
fn an_empty_file_is_the_default_and_the_default_is_valid() {
    let _watchdog = watch();
    assert_eq!(Policy::from_toml("").unwrap(), Policy::default());
    let written = toml::to_string(&Policy::default()).unwrap();
    assert_eq!(
        Policy::from_toml(&written).unwrap(),
        Policy::default(),
        "{written}"
    );
}

#[test]
fn each_violation_names_field_value_and_what_is_allowed() {
    let _watchdog = watch();
    for (text, field, value) in [
        ("[quiet]\nquiet_max = 12", "quiet.quiet_max", "12"),
        ("[quiet]\nquiet_max = nan", "quiet.quiet_max", "NaN"),
        ("[quiet]\nquiet_leave = 1.5", "quiet.quiet_leave", "1.5"),
        ("[quiet]\nbusy_max = 4", "quiet.busy_max", "4"),
        (
            "[quiet]\ntime_zone = \"Mars/Base\"",
            "quiet.time_zone",
            "Mars/Base",
        ),
        (
            "[busy]\nignore = true\npushed_required = true",
            "busy.pushed_required",
            "true",
        ),
        (
            "[busy]\nignore = true\n[quiet]\nmin_streak = \"10m\"",
            "quiet.min_streak",
            "10m",
        ),
        ("[busy]\ntighten = 0.5", "busy.tighten", "0.5"),
        ("[busy]\nstale_after = \"10ms\"", "busy.stale_after", "10ms"),
        (
            "[busy]\ncpu = { low = 0.5, high = 0.1, weight = 0.1 }",
            "busy.cpu",
            "low = 0.5",
        ),
        (
            "[busy]\ncpu = { low = 0.1, high = 0.5 }",
            "busy.cpu.weight",
            "0",
        ),
        (
            "[busy]\npsi_io = { low = 1, high = 5, weight = 1 }",
            "busy.psi_io.weight",
            "1",
        ),
        (
            "[busy]\ndisk_free = { low = 0.1, high = 0.5 }",
            "busy.disk_free",
            "low = 0.1",
        ),
        ("[capacity]\nunits = 0", "capacity.units", "0"),
        ("[capacity]\nreserve = 100", "capacity.reserve", "100"),
        (
            "[capacity]\ncurve = [100, 100, 100, 80, 65, 50, 60, 25, 15, 10, 0]",
            "capacity.curve[6]",
            "60",
        ),
        ("[caps]\nleases = 0", "caps.leases", "0"),
        ("[order]\nquantum = 10", "order.quantum", "10"),
        (
            "[deadline]\nwaive_quiet = \"20h\"",
            "deadline.waive_window",
            "4h",
        ),
        ("[dispatch]\ntick = \"0\"", "dispatch.tick", "0"),
        ("[addons.x]\nweight = 0", "addons.x.weight", "0"),
    ] {
        let error = Policy::from_toml(text).unwrap_err();
        let PolicyError::Values(violations) = &error else {
            panic!("{text}: {error}")
        };
        let violation = violations.iter().find(|violation| violation.field == field);
        let violation = violation.unwrap_or_else(|| panic!("{text}: {error}"));
        assert!(violation.value.contains(value), "{violation}");
        assert!(
            violation.allowed.contains("must") || violation.allowed.contains("leave it out"),
            "{violation}"
        );
    }
    let many = Policy::from_toml("[capacity]\nunits = 0\n[order]\nquantum = 1").unwrap_err();
    assert!(
        matches!(&many, PolicyError::Values(values) if values.len() == 2),
        "{many}"
    );
}

#[test]
fn what_cannot_be_read_shows_the_line() {
    let _watchdog = watch();
    for (text, shown) in [
        ("[quiet]\nquite_max = 2", "quite_max"),
        ("[quite]\nquiet_max = 2", "quite"),
        ("[addons.x]\nwieght = 2", "wieght"),
        ("[quiet]\nmin_streak = \"soon\"", "soon"),
        ("[quiet]\nmin_streak = 10", "min_streak"),
        ("[quiet]\nwindows = [\"22:00-06:00\"]", "22:00-06:00"),
        ("[capacity]\ncurve = [100, 0]", "curve"),
        ("[capacity]\nunits = -1", "units"),
        ("[quiet", "quiet"),
    ] {
        let error = Policy::from_toml(text).unwrap_err();
        assert!(matches!(error, PolicyError::Text(_)), "{text}");
        assert!(error.to_string().contains(shown), "{error}");
    }
}

#[test]
fn addons_differ_in_what_they_say_only() {
    let _watchdog = watch();
    let policy = Policy::from_toml("[caps]\naddon_leases = 7\n[addons.a]\nweight = 3").unwrap();
    let (own, other) = (policy.addon("a"), policy.addon("b"));
    assert_eq!((own.weight, own.leases), (3, 7));
    assert_eq!((other.weight, other.leases), (1, 7));
}

#[test]
fn the_mode_is_still_read_does_nothing_and_warns_once() {
    let _watchdog = watch();
    let text =
        "[dispatch]\nmode = \"claim\"\n[addons.a]\nmode = \"dispatch\"\n[addons.b]\nweight = 2";
    let policy = Policy::from_toml(text).unwrap();
    let warnings = policy.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("dispatch.mode, addons.a.mode: without effect"),
        "{warnings:?}"
    );
    assert_eq!(policy.addon("a"), Policy::default().addon("a"));
    assert_eq!(Policy::from_toml(&policy.to_toml()).unwrap(), policy);
    let written = Policy::default().to_toml();
    assert!(
        !written.lines().any(|line| line.starts_with("mode")),
        "{written}"
    );
    assert!(Policy::from_toml(&written).unwrap().warnings().is_empty());
    assert!(Policy::from_toml("[dispatch]\nmode = \"other\"").is_err());
}
