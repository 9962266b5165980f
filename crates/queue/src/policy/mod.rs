//! The policy: every number that admission, order and dispatch go by, from one TOML file.
//!
//! A policy is data. Each field has a safe default, an unknown key is refused (a typing error must not silently
//! leave a default in force), and [`Policy::from_toml`] says of every value that cannot be which field it is, what
//! it was and what is allowed. A policy is replaced as a whole: a file that is refused leaves the old one in force.

mod cost;
mod error;
mod retention;
mod text;
mod validate;
mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use cost::CostPolicy;
pub use error::{PolicyError, Violation};
pub use retention::RetentionPolicy;
pub use text::parse_duration;
pub(crate) use text::write_duration;
pub use window::QuietWindow;

/// All that may be set. `Policy::default()` is what an empty file means.
///
/// ```
/// use jobtree_queue::policy::Policy;
///
/// let policy = Policy::from_toml(
///     r#"
///     [quiet]
///     windows = ["22:00-06:00 Europe/Berlin"]
///     min_streak = "10m"
///
///     [addons.visuals]
///     weight = 2
///     leases = 4
///     "#,
/// )
/// .unwrap();
/// assert_eq!(policy.quiet.quiet_max, 2.0);
/// assert_eq!(policy.addon("visuals").weight, 2);
///
/// let refused = Policy::from_toml("[quiet]\nquiet_max = 12").unwrap_err();
/// assert!(refused.to_string().contains("quiet.quiet_max is 12"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// How signals become busy, 0..=10.
    pub busy: BusyPolicy,
    /// How busy becomes QUIET, NORMAL, BUSY or PANIC.
    pub quiet: QuietPolicy,
    /// How busy becomes usable capacity.
    pub capacity: CapacityPolicy,
    /// The rules for the cost that a job is charged.
    pub cost: CostPolicy,
    /// How many leases may be live.
    pub caps: CapsPolicy,
    /// How fast load may be added.
    pub ramp: RampPolicy,
    /// Who comes first.
    pub order: OrderPolicy,
    /// What the nearness of a deadline waives.
    pub deadline: DeadlinePolicy,
    /// Times of dispatches and leases.
    pub dispatch: DispatchPolicy,
    /// How long ended things are kept.
    pub retention: RetentionPolicy,
    /// What differs for single addons, by name.
    pub addons: BTreeMap<String, AddonPolicy>,
}

/// A signal's range and weight: `low` and below reads 0, `high` and above reads 1, straight between them. A
/// signal of which less is worse has `low` above `high`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRange {
    /// The value that is no burden at all.
    pub low: f64,
    /// The value that is as bad as it gets.
    pub high: f64,
    /// Its part in the weighted mean; 0 takes the signal out. Vetoes have no weight.
    #[serde(default)]
    pub weight: f64,
}

impl SignalRange {
    const fn new(low: f64, high: f64, weight: f64) -> SignalRange {
        SignalRange { low, high, weight }
    }

    /// Where `value` lies in the range, 0..=1.
    pub fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// `[busy]`: ranges and weights of the signals. The formula stands at the head of [`crate::busy`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusyPolicy {
    /// The load of the machine does not matter: nothing has to be measured, busy is 0 and the machine counts as quiet,
    /// whatever samples say. Capacity, caps, windows and pauses hold; the ramp, which goes by samples, does not. For
    /// programs whose jobs are their purpose, and machines that do nothing else.
    pub ignore: bool,
    /// p95 latency that the host pushes, in milliseconds.
    pub latency_ms: SignalRange,
    /// Requests in flight that the host pushes.
    pub in_flight: SignalRange,
    /// Requests a second that the host pushes.
    pub requests_per_sec: SignalRange,
    /// Failed part of the host's requests, 0..=1.
    pub error_rate: SignalRange,
    /// CPU used by others than our jobs, 0..=1 of the whole machine.
    pub cpu: SignalRange,
    /// Load average a core; leave it out of the samples where PSI is to be had.
    pub load_per_core: SignalRange,
    /// Veto: CPU pressure (`some avg10`, percent), by the foreign share of the CPU in use.
    pub psi_cpu: SignalRange,
    /// Veto: IO pressure (`some avg10`, percent).
    pub psi_io: SignalRange,
    /// Veto: memory pressure (`some avg10`, percent).
    pub psi_memory: SignalRange,
    /// Veto: available part of the memory, 0..=1; less is worse.
    pub memory_available: SignalRange,
    /// Veto: part of the time that the busiest disk was at work, 0..=1.
    pub disk_busy: SignalRange,
    /// Veto: free part of the store's disk, 0..=1; less is worse.
    pub disk_free: SignalRange,
    /// Part of its speed that the busiest network interface is used at, 0..=1. Without a weight it matters for jobs that are
    /// `network_heavy` alone: a line in use disturbs no program that does not use it.
    pub network: SignalRange,
    /// A job that declares itself heavy on a resource sees that resource's pressure times this.
    pub tighten: f64,
    /// Without a sample for this long, busy is `stale_busy`: fail closed.
    #[serde(with = "text::duration")]
    pub stale_after: Duration,
    /// What busy is taken for without a fresh sample.
    pub stale_busy: f64,
    /// Whether the absence of the host's own signals fails closed too. By default they are left out of the mean
    /// when the host has not pushed them for `stale_after`.
    pub pushed_required: bool,
}

impl Default for BusyPolicy {
    fn default() -> Self {
        BusyPolicy {
            ignore: false,
            latency_ms: SignalRange::new(50.0, 800.0, 0.30),
            in_flight: SignalRange::new(1.0, 20.0, 0.25),
            requests_per_sec: SignalRange::new(0.5, 25.0, 0.15),
            error_rate: SignalRange::new(0.01, 0.20, 0.10),
            cpu: SignalRange::new(0.10, 0.90, 0.10),
            load_per_core: SignalRange::new(0.2, 1.2, 0.10),
            psi_cpu: SignalRange::new(10.0, 80.0, 0.0),
            psi_io: SignalRange::new(5.0, 60.0, 0.0),
            psi_memory: SignalRange::new(2.0, 30.0, 0.0),
            memory_available: SignalRange::new(0.20, 0.04, 0.0),
            disk_busy: SignalRange::new(0.60, 1.0, 0.0),
            disk_free: SignalRange::new(0.10, 0.02, 0.0),
            network: SignalRange::new(0.50, 1.0, 0.0),
            tighten: 1.5,
            stale_after: Duration::from_secs(30),
            stale_busy: 8.0,
            pushed_required: false,
        }
    }
}

/// `[quiet]`: bounds of the four states, and what QUIET takes besides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuietPolicy {
    /// QUIET is entered at this busy or below …
    pub quiet_max: f64,
    /// … when it has lasted for this long: low and slow.
    #[serde(with = "text::duration")]
    pub enter_after: Duration,
    /// QUIET is left above this busy (at least `quiet_max`) …
    pub quiet_leave: f64,
    /// … when it has lasted for this long: high and fast.
    #[serde(with = "text::duration")]
    pub leave_after: Duration,
    /// NORMAL up to this busy.
    pub normal_max: f64,
    /// BUSY up to this busy; PANIC above.
    pub busy_max: f64,
    /// How long busy has to stay below a bound before PANIC becomes BUSY, or BUSY becomes NORMAL.
    #[serde(with = "text::duration")]
    pub calm_after: Duration,
    /// A rise of busy that is over within this time is undone: the state before it comes back, and PANIC that was no longer has
    /// no cool-down. Once in `enter_after` at most. 0: every rise counts.
    #[serde(with = "text::duration")]
    pub spike: Duration,
    /// How long QUIET must have lasted before jobs that need it start.
    #[serde(with = "text::duration")]
    pub min_streak: Duration,
    /// How long after a PANIC nothing starts.
    #[serde(with = "text::duration")]
    pub panic_cooldown: Duration,
    /// Hours outside of which the machine does not count as quiet: `"22:00-06:00 Europe/Berlin"`,
    /// `"Sat,Sun 00:00-24:00 UTC"`. None: at any hour.
    pub windows: Vec<QuietWindow>,
    /// When QUIET has not come for this long (counted inside of the windows), one job starts without it. 0: never.
    #[serde(with = "text::duration")]
    pub allow_one_after: Duration,
    /// The time zone of the weekly profile of quiet hours.
    pub time_zone: String,
}

impl Default for QuietPolicy {
    fn default() -> Self {
        QuietPolicy {
            quiet_max: 2.0,
            enter_after: Duration::from_secs(60),
            quiet_leave: 3.0,
            leave_after: Duration::ZERO,
            normal_max: 5.0,
            busy_max: 7.0,
            calm_after: Duration::from_secs(10),
            spike: Duration::from_secs(15),
            min_streak: Duration::ZERO,
            panic_cooldown: Duration::from_secs(60),
            windows: Vec::new(),
            allow_one_after: Duration::from_secs(6 * 3600),
            time_zone: "UTC".to_owned(),
        }
    }
}

/// `[capacity]`: what may run at once, in cost units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CapacityPolicy {
    /// Units of an idle machine.
    pub units: u32,
    /// Usable percent at busy 0, 1, … 10; straight between them, rounded down to whole units.
    pub curve: [f64; 11],
    /// Units that nobody gets. What this makes impossible for ever is refused at submit.
    pub reserve: u32,
}

impl Default for CapacityPolicy {
    fn default() -> Self {
        CapacityPolicy {
            units: 100,
            curve: [
                100.0, 100.0, 100.0, 80.0, 65.0, 50.0, 35.0, 25.0, 15.0, 10.0, 0.0,
            ],
            reserve: 0,
        }
    }
}

/// `[caps]`: live leases and reservations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CapsPolicy {
    /// Of the whole node.
    pub leases: u32,
    /// Of one addon, unless `[addons.NAME]` says otherwise.
    pub addon_leases: u32,
    /// Cost units of one addon, unless `[addons.NAME]` says otherwise.
    pub addon_units: u32,
}

impl Default for CapsPolicy {
    fn default() -> Self {
        CapsPolicy {
            leases: 100,
            addon_leases: 100,
            addon_units: 100,
        }
    }
}

/// `[ramp]`: what is started shows in the signals only at the next sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RampPolicy {
    /// Units by which the granted may grow between two samples; a single job of any cost always may. 0: no ramp.
    pub units_per_sample: u32,
}

impl Default for RampPolicy {
    fn default() -> Self {
        RampPolicy {
            units_per_sample: 25,
        }
    }
}

/// `[order]`: aging, shares and reservations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderPolicy {
    /// A job rises by one priority class for each of these that it has waited. 0: never.
    #[serde(with = "text::duration")]
    pub age_step: Duration,
    /// Cost units that an addon of weight 1 gets a turn; at least the largest cost, 100.
    pub quantum: u32,
    /// How long capacity is kept for a job that does not fit yet.
    #[serde(with = "text::duration")]
    pub hold: Duration,
    /// How long a job whose hold ran out waits before capacity is kept for it again.
    #[serde(with = "text::duration")]
    pub rest: Duration,
}

impl Default for OrderPolicy {
    fn default() -> Self {
        OrderPolicy {
            age_step: Duration::from_secs(30 * 60),
            quantum: 100,
            hold: Duration::from_secs(15 * 60),
            rest: Duration::from_secs(15 * 60),
        }
    }
}

/// `[deadline]`: the slack (time to the deadline less the expected duration) at which each condition falls.
/// The curve stands at the head of [`crate::deadline`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadlinePolicy {
    /// No minimum streak any more.
    #[serde(with = "text::duration")]
    pub waive_streak: Duration,
    /// Outside of the windows too.
    #[serde(with = "text::duration")]
    pub waive_window: Duration,
    /// In NORMAL too.
    #[serde(with = "text::duration")]
    pub waive_quiet: Duration,
    /// In BUSY too.
    #[serde(with = "text::duration")]
    pub waive_busy: Duration,
    /// A job that has not started with this much slack left is at risk.
    #[serde(with = "text::duration")]
    pub at_risk: Duration,
}

impl Default for DeadlinePolicy {
    fn default() -> Self {
        DeadlinePolicy {
            waive_streak: Duration::from_secs(8 * 3600),
            waive_window: Duration::from_secs(4 * 3600),
            waive_quiet: Duration::from_secs(3600),
            waive_busy: Duration::from_secs(15 * 60),
            at_risk: Duration::from_secs(30 * 60),
        }
    }
}

/// `[dispatch]`: times of dispatches and leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchPolicy {
    /// A reservation that is not accepted for this long goes back to the queue.
    #[serde(with = "text::duration")]
    pub take_up: Duration,
    /// The fallback when an event was missed.
    #[serde(with = "text::duration")]
    pub tick: Duration,
    /// A lease lives for this long after its last heartbeat.
    #[serde(with = "text::duration")]
    pub lease_ttl: Duration,
    /// Without effect; see [`Policy::warnings`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Jobs in one batch lease, at most.
    pub batch: u32,
}

impl Default for DispatchPolicy {
    fn default() -> Self {
        DispatchPolicy {
            take_up: Duration::from_secs(30),
            tick: Duration::from_secs(5),
            lease_ttl: Duration::from_secs(30),
            mode: None,
            batch: 1000,
        }
    }
}

/// A way from the queue to a worker, of which there were two. It is still read, and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The scheduler reserves; the addon accepts.
    Dispatch,
    /// Workers claim.
    Claim,
}

/// `[addons.NAME]`: what differs for one addon. What is left out is as for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddonPolicy {
    /// Its share beside other addons of the same class; 1 by default.
    pub weight: Option<u32>,
    /// Live leases and reservations.
    pub leases: Option<u32>,
    /// Cost units at once.
    pub units: Option<u32>,
    /// Starts nothing.
    pub paused: bool,
    /// Without effect; see [`Policy::warnings`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

/// What holds for one addon, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddonTerms {
    /// Its share beside other addons of the same class.
    pub weight: u32,
    /// Live leases and reservations.
    pub leases: u32,
    /// Cost units at once.
    pub units: u32,
    /// Whether it starts nothing.
    pub paused: bool,
}

impl AddonTerms {
    /// Whether an addon that uses `usage` may add a job of this cost, as far as its own caps go. A cap that is no
    /// narrower than the node's own is none: who uses the whole machine is not at its cap, the machine is full.
    pub fn admit(&self, policy: &Policy, addon_units: u32, addon_leases: u32, cost: u32) -> bool {
        let units = self.units >= policy.capacity.units || addon_units + cost <= self.units;
        let leases = self.leases >= policy.caps.leases || addon_leases < self.leases;
        units && leases
    }
}

impl Policy {
    /// Reads a policy. Looks up the time zones that it names, and does nothing else outside of the text.
    pub fn from_toml(text: &str) -> Result<Policy, PolicyError> {
        let policy: Policy =
            toml::from_str(text).map_err(|error| PolicyError::text(error.to_string()))?;
        policy.validate()?;
        Ok(policy)
    }

    /// The policy as a file, with every value in it: [`Policy::from_toml`] reads the same policy from it.
    ///
    /// ```
    /// use jobtree_queue::policy::Policy;
    ///
    /// let policy = Policy::from_toml("[caps]\nleases = 3").unwrap();
    /// assert_eq!(Policy::from_toml(&policy.to_toml()).unwrap(), policy);
    /// ```
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a policy is tables of plain values")
    }

    /// Says of every value that cannot be what is allowed; for a policy that was not read from a file.
    pub fn validate(&self) -> Result<(), PolicyError> {
        validate::validate(self)
    }

    /// What the policy says without effect, each with what to do: print it once when a policy is loaded.
    ///
    /// ```
    /// use jobtree_queue::policy::Policy;
    ///
    /// let policy = Policy::from_toml("[dispatch]\nmode = \"claim\"").unwrap();
    /// assert!(policy.warnings()[0].contains("dispatch.mode"));
    /// assert!(Policy::default().warnings().is_empty());
    /// ```
    pub fn warnings(&self) -> Vec<String> {
        let general = self.dispatch.mode.map(|_| "dispatch.mode".to_owned());
        let own = self.addons.iter().filter(|(_, addon)| addon.mode.is_some());
        let own = own.map(|(name, _)| format!("addons.{name}.mode"));
        let fields: Vec<String> = general.into_iter().chain(own).collect();
        if fields.is_empty() {
            return Vec::new();
        }
        let fields = fields.join(", ");
        vec![format!(
            "{fields}: without effect since claims and reservations share one path; remove it from the policy"
        )]
    }

    /// What holds for an addon.
    pub fn addon(&self, addon: &str) -> AddonTerms {
        let own = self.addons.get(addon).cloned().unwrap_or_default();
        AddonTerms {
            weight: own.weight.unwrap_or(1),
            leases: own.leases.unwrap_or(self.caps.addon_leases),
            units: own.units.unwrap_or(self.caps.addon_units),
            paused: own.paused,
        }
    }

    /// The largest cost of this addon that can ever start: on an idle machine with nothing else running. A submit
    /// above it is to be refused.
    pub fn largest_cost(&self, addon: &str) -> u32 {
        let most = self.capacity.curve.iter().copied().fold(0.0, f64::max);
        let idle = (f64::from(self.capacity.units) * most / 100.0).floor() as u32;
        idle.saturating_sub(self.capacity.reserve)
            .min(self.addon(addon).units)
    }
}
