//! What a suite found out: rows of comparisons, facts that stand alone, and what follows from them.

use super::contest::Role;
use super::rounds::Rounds;
use super::stats::{Estimate, geometric_mean};

/// What ours is measured against in a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The same work without any fork.
    Sequential,
    /// The peer that was faster in this run.
    BetterPeer,
    /// One side by its name.
    Side(&'static str),
    /// Nobody: the goal is a time in nanoseconds. It says something on the machines it was set for only; a ratio is
    /// better wherever there is somebody to compare with.
    Clock,
}

/// A ratio, or a time, that ours should not exceed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    pub at_most: f64,
    pub reference: Reference,
}

impl Goal {
    pub fn sequential(at_most: f64) -> Option<Self> {
        Some(Self {
            at_most,
            reference: Reference::Sequential,
        })
    }

    pub fn better_peer(at_most: f64) -> Option<Self> {
        Some(Self {
            at_most,
            reference: Reference::BetterPeer,
        })
    }

    pub fn side(name: &'static str, at_most: f64) -> Option<Self> {
        Some(Self {
            at_most,
            reference: Reference::Side(name),
        })
    }

    pub fn nanoseconds(at_most: f64) -> Option<Self> {
        Some(Self {
            at_most,
            reference: Reference::Clock,
        })
    }
}

/// How a goal was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Miss,
    /// There was no goal.
    Shown,
    /// The control was off: the machine was too noisy to tell.
    Void,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Miss => "MISS",
            Self::Shown => "",
            Self::Void => "VOID",
        }
    }
}

/// How far off a control may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// 3 %: for times of work that repeats itself.
    Strict,
    /// Any: for tails of latencies, which differ between two runs of the very same thing by far more.
    ShownOnly,
}

impl Tolerance {
    fn forgives(self, control: &Estimate) -> bool {
        match self {
            Self::Strict => (control.median - 1.0).abs() <= 0.03,
            Self::ShownOnly => true,
        }
    }
}

/// Ours divided by another side.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    pub against: &'static str,
    pub estimate: Estimate,
}

/// One side's typical figure.
#[derive(Clone, Copy, Debug)]
pub struct SideFigure {
    pub name: &'static str,
    pub role: Role,
    pub typical: f64,
}

/// One comparison, done.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub workers: usize,
    pub unit: &'static str,
    pub rounds: usize,
    pub goal: Option<Goal>,
    pub sides: Vec<SideFigure>,
    /// Ours against each side that is neither ours nor the control.
    pub ratios: Vec<Ratio>,
    pub control: Option<Estimate>,
    tolerance: Tolerance,
}

impl Row {
    /// Judges what the rounds brought. `sides` names them in the order of their figures; one of them is ours.
    pub fn new(
        name: String,
        workers: usize,
        unit: &'static str,
        goal: Option<Goal>,
        sides: &[(&'static str, Role)],
        rounds: &Rounds,
        tolerance: Tolerance,
    ) -> Self {
        let position = |wanted| sides.iter().position(|&(_, role)| role == wanted);
        let ours = position(Role::Ours).expect("a comparison has one side that is ours");
        let ratios = (0..sides.len())
            .filter(|&side| !matches!(sides[side].1, Role::Ours | Role::Control))
            .map(|side| Ratio {
                against: sides[side].0,
                estimate: rounds.ratio(ours, side),
            })
            .collect();
        Self {
            name,
            workers,
            unit,
            rounds: rounds.len(),
            goal,
            sides: (sides.iter().enumerate())
                .map(|(side, &(name, role))| SideFigure {
                    name,
                    role,
                    typical: rounds.typical(side),
                })
                .collect(),
            ratios,
            control: position(Role::Control).map(|control| rounds.ratio(control, ours)),
            tolerance,
        }
    }

    /// The same row with one more side that nobody measured: the time of the sequential one, divided by `parts`. Work that is
    /// shared evenly can take no less.
    pub fn with_share_of_sequential(mut self, name: &'static str, parts: usize) -> Self {
        let parts = parts as f64;
        let sequential = self.side_with(Role::Sequential).copied();
        let ratio = sequential.and_then(|side| self.ratio_to(side.name));
        if let (Some(sequential), Some(ratio)) = (sequential, ratio) {
            self.sides.push(SideFigure {
                name,
                role: Role::Limit,
                typical: sequential.typical / parts,
            });
            self.ratios.push(Ratio {
                against: name,
                estimate: Estimate {
                    median: ratio.estimate.median * parts,
                    low: ratio.estimate.low * parts,
                    high: ratio.estimate.high * parts,
                },
            });
        }
        self
    }

    fn side_with(&self, role: Role) -> Option<&SideFigure> {
        self.sides.iter().find(|side| side.role == role)
    }

    /// Ours against the side of this name.
    pub fn ratio_to(&self, name: &str) -> Option<Ratio> {
        self.ratios
            .iter()
            .copied()
            .find(|ratio| ratio.against == name)
    }

    /// Ours against the peer that leaves it in the worst light, which is the faster one.
    pub fn better_peer(&self) -> Option<Ratio> {
        let peers = self.sides.iter().filter(|side| side.role == Role::Peer);
        peers
            .filter_map(|peer| self.ratio_to(peer.name))
            .max_by(|one, other| one.estimate.median.total_cmp(&other.estimate.median))
    }

    /// The ratio that the goal is about; without one the one to the better peer.
    pub fn judged(&self) -> Option<Ratio> {
        match self.goal.map(|goal| goal.reference) {
            Some(Reference::Sequential) => self.ratio_to(self.side_with(Role::Sequential)?.name),
            Some(Reference::Side(name)) => self.ratio_to(name),
            Some(Reference::BetterPeer | Reference::Clock) | None => self.better_peer(),
        }
    }

    /// Whether the control was off.
    pub fn is_void(&self) -> bool {
        self.control
            .is_some_and(|control| !self.tolerance.forgives(&control))
    }

    pub fn verdict(&self) -> Verdict {
        let Some(goal) = self.goal else {
            return if self.is_void() {
                Verdict::Void
            } else {
                Verdict::Shown
            };
        };
        let reached = match goal.reference {
            Reference::Clock => self.side_with(Role::Ours).map(|ours| ours.typical),
            _ => self.judged().map(|ratio| ratio.estimate.median),
        };
        match reached {
            _ if self.is_void() => Verdict::Void,
            Some(reached) if reached <= goal.at_most => Verdict::Pass,
            _ => Verdict::Miss,
        }
    }
}

/// A figure that is judged by itself, such as a count that must be zero.
#[derive(Clone, Debug)]
pub struct Fact {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    /// The largest value that is good enough.
    pub at_most: Option<f64>,
}

impl Fact {
    pub fn verdict(&self) -> Verdict {
        match self.at_most {
            None => Verdict::Shown,
            Some(limit) if self.value <= limit => Verdict::Pass,
            Some(_) => Verdict::Miss,
        }
    }
}

/// The standing of ours over several rows.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What the ratios are to, and over which rows.
    pub title: String,
    pub rows: usize,
    pub geometric_mean: f64,
    pub worst: f64,
    pub worst_row: String,
    /// The geometric mean that is good enough, if there is a goal.
    pub mean_at_most: Option<f64>,
    /// The ratio of the worst row that is good enough, if there is a goal.
    pub worst_at_most: Option<f64>,
}

impl Standing {
    /// Sums up `ratios` with the names of their rows; `None` if there are none.
    pub fn over(title: impl Into<String>, ratios: &[(String, f64)]) -> Option<Self> {
        let (worst_row, worst) = ratios
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))?
            .clone();
        let plain: Vec<f64> = ratios.iter().map(|ratio| ratio.1).collect();
        Some(Self {
            title: title.into(),
            rows: plain.len(),
            geometric_mean: geometric_mean(&plain),
            worst,
            worst_row,
            mean_at_most: None,
            worst_at_most: None,
        })
    }

    /// The same standing with goals for the geometric mean and for the worst row.
    pub fn with_goals(mut self, mean_at_most: Option<f64>, worst_at_most: Option<f64>) -> Self {
        self.mean_at_most = mean_at_most;
        self.worst_at_most = worst_at_most;
        self
    }

    /// How the goals of the mean and of the worst row were met.
    pub fn verdicts(&self) -> [Verdict; 2] {
        let judged = |value: f64, at_most: Option<f64>| match at_most {
            None => Verdict::Shown,
            Some(limit) if value <= limit => Verdict::Pass,
            Some(_) => Verdict::Miss,
        };
        [
            judged(self.geometric_mean, self.mean_at_most),
            judged(self.worst, self.worst_at_most),
        ]
    }
}

/// All that one suite found out.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub suite: &'static str,
    pub seed: u64,
    pub rows: Vec<Row>,
    pub facts: Vec<Fact>,
    pub standings: Vec<Standing>,
    /// What a reader has to know of the rows besides.
    pub notes: Vec<String>,
}

impl Report {
    /// The rows whose control was off. One of them makes the whole run void.
    pub fn void_rows(&self) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.is_void()).collect()
    }

    /// How many rows, facts and goals of standings had this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let rows = self
            .rows
            .iter()
            .filter(|row| row.verdict() == verdict)
            .count();
        let facts = self
            .facts
            .iter()
            .filter(|fact| fact.verdict() == verdict)
            .count();
        let standings = self
            .standings
            .iter()
            .flat_map(Standing::verdicts)
            .filter(|reached| *reached == verdict)
            .count();
        rows + facts + standings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDES: [(&str, Role); 5] = [
        ("sequential", Role::Sequential),
        ("ours", Role::Ours),
        ("control", Role::Control),
        ("slow peer", Role::Peer),
        ("fast peer", Role::Peer),
    ];

    fn row(goal: Option<Goal>, figures: [f64; 5], tolerance: Tolerance) -> Row {
        let rounds = Rounds::from_figures(figures.map(|figure| vec![figure; 9]).to_vec());
        Row::new(
            "made up".into(),
            2,
            "call",
            goal,
            &SIDES,
            &rounds,
            tolerance,
        )
    }

    #[test]
    fn the_better_peer_is_the_faster_one() {
        let row = row(
            Goal::better_peer(0.9),
            [10.0, 6.0, 6.0, 12.0, 8.0],
            Tolerance::Strict,
        );
        let ratio = row.judged().unwrap();
        assert_eq!((ratio.against, ratio.estimate.median), ("fast peer", 0.75));
        assert_eq!(row.verdict(), Verdict::Pass);
    }

    #[test]
    fn a_share_of_the_sequential_time_is_shown_and_not_judged() {
        let figures = [10.0, 6.0, 6.0, 12.0, 8.0];
        let row = row(Goal::better_peer(0.9), figures, Tolerance::Strict)
            .with_share_of_sequential("half", 2);
        let half = row.sides.iter().find(|side| side.name == "half").unwrap();
        assert_eq!(half.typical, 5.0);
        assert_eq!(row.ratio_to("half").unwrap().estimate.median, 1.2);
        assert_eq!(row.judged().unwrap().against, "fast peer");
    }

    #[test]
    fn a_standing_counts_its_goals() {
        let standing = Standing::over("all", &[("a".into(), 0.5), ("b".into(), 0.5)]).unwrap();
        assert_eq!(standing.verdicts(), [Verdict::Shown, Verdict::Shown]);
        let standing = standing.with_goals(Some(0.6), Some(0.4));
        assert_eq!(standing.verdicts(), [Verdict::Pass, Verdict::Miss]);
        let report = Report {
            standings: vec![standing],
            ..Report::default()
        };
        let counts = [Verdict::Pass, Verdict::Miss].map(|verdict| report.count(verdict));
        assert_eq!(counts, [1, 1]);
    }

    #[test]
    fn a_goal_against_sequential_does_not_look_at_peers() {
        let figures = [10.0, 13.0, 13.0, 99.0, 99.0];
        assert_eq!(
            row(Goal::sequential(1.2), figures, Tolerance::Strict).verdict(),
            Verdict::Miss
        );
        assert_eq!(
            row(Goal::sequential(1.3), figures, Tolerance::Strict).verdict(),
            Verdict::Pass
        );
    }

    #[test]
    fn a_goal_in_nanoseconds_looks_at_ours_alone() {
        let figures = [1.0, 10.0, 10.0, 1.0, 1.0];
        let verdict =
            |at_most| row(Goal::nanoseconds(at_most), figures, Tolerance::Strict).verdict();
        assert_eq!(verdict(9.9), Verdict::Miss);
        assert_eq!(verdict(10.0), Verdict::Pass);
        let off = [1.0, 10.0, 11.0, 1.0, 1.0];
        let row = row(Goal::nanoseconds(20.0), off, Tolerance::Strict);
        assert_eq!(row.verdict(), Verdict::Void);
    }

    #[test]
    fn a_control_that_is_off_voids_the_row_whatever_its_ratio() {
        let figures = [10.0, 1.0, 1.04, 9.0, 9.0];
        assert_eq!(
            row(Goal::better_peer(0.9), figures, Tolerance::Strict).verdict(),
            Verdict::Void
        );
        assert_eq!(
            row(None, figures, Tolerance::Strict).verdict(),
            Verdict::Void
        );
        assert_eq!(
            row(Goal::better_peer(0.9), figures, Tolerance::ShownOnly).verdict(),
            Verdict::Pass
        );
    }

    #[test]
    fn a_control_within_three_percent_is_good_enough() {
        assert!(!row(None, [10.0, 1.0, 1.029, 9.0, 9.0], Tolerance::Strict).is_void());
        assert!(!row(None, [10.0, 1.0, 0.971, 9.0, 9.0], Tolerance::Strict).is_void());
        assert!(row(None, [10.0, 1.0, 0.96, 9.0, 9.0], Tolerance::Strict).is_void());
    }

    #[test]
    fn the_standing_names_its_worst_row() {
        let standing = Standing::over("all", &[("a".into(), 0.5), ("b".into(), 2.0)]).unwrap();
        assert_eq!(
            (standing.worst_row.as_str(), standing.worst, standing.rows),
            ("b", 2.0, 2)
        );
        assert!((standing.geometric_mean - 1.0).abs() < 1e-12);
        assert!(Standing::over("none", &[]).is_none());
    }

    #[test]
    fn a_fact_is_judged_by_its_limit() {
        let fact = |value, at_most| Fact {
            name: "switches".into(),
            value,
            unit: "",
            at_most,
        };
        assert_eq!(fact(0.0, Some(0.0)).verdict(), Verdict::Pass);
        assert_eq!(fact(1.0, Some(0.0)).verdict(), Verdict::Miss);
        assert_eq!(fact(1.0, None).verdict(), Verdict::Shown);
    }
}
