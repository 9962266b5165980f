//! The plan, and what breaks it. No file or process is touched here, except to read the packages' own sources.

use std::fs;

use serde_json::Value;

/// Which crates of ours each crate may depend on. A crate that is not here yet must be added with its arrows; those
/// that are here and do not exist yet are held to their arrows from their first line on.
const ARROWS: &[(&str, &[&str])] = &[
    // In process.
    ("jobtree-base", &[]),
    ("jobtree-pool", &["jobtree-base"]),
    ("jobtree-par", &["jobtree-pool"]),
    ("jobtree-tree", &["jobtree-base"]),
    (
        "jobtree-runtime",
        &["jobtree-base", "jobtree-pool", "jobtree-tree"],
    ),
    ("jobtree-lanes", &["jobtree-base", "jobtree-runtime"]),
    ("jobtree-macros", &[]),
    ("jobtree-capi", &["jobtree-base", "jobtree-runtime"]),
    (
        "jobtree",
        &[
            "jobtree-pool",
            "jobtree-par",
            "jobtree-tree",
            "jobtree-runtime",
            "jobtree-lanes",
            "jobtree-macros",
            "jobtree-scheduler",
            "jobtree-store",
        ],
    ),
    // Across processes.
    ("jobtree-protocol", &[]),
    ("jobtree-queue", &["jobtree-protocol"]),
    ("jobtree-store", &["jobtree-queue", "jobtree-protocol"]),
    (
        "jobtree-scheduler",
        &[
            "jobtree-store",
            "jobtree-queue",
            "jobtree-protocol",
            "jobtree-runtime",
            "jobtree-worker",
        ],
    ),
    // What runs durable jobs, in the scheduler's process or far from it.
    (
        "jobtree-worker",
        &["jobtree-base", "jobtree-protocol", "jobtree-runtime"],
    ),
    // Programs of any language, for whoever runs them.
    ("jobtree-process", &[]),
    (
        "jobtree-server",
        &[
            "jobtree-scheduler",
            "jobtree-store",
            "jobtree-queue",
            "jobtree-protocol",
        ],
    ),
    (
        "jobtree-client",
        &[
            "jobtree-protocol",
            "jobtree-runtime",
            "jobtree-worker",
            "jobtree-lanes",
        ],
    ),
    ("jobtree-cli", &[ANY]),
    // For development only.
    ("jobtree-bench", &[ANY]),
    ("jobtree-store-faults", &[]),
    // In compat/.
    ("rayon-core", &["jobtree-pool"]),
];

/// What tests and examples may use beyond that: the macros show themselves in programs, and the runtime's tests are
/// such programs.
const ARROWS_FOR_TESTS: &[(&str, &str)] = &[
    ("jobtree-macros", "jobtree"),
    ("jobtree-runtime", "jobtree-macros"),
    // A client is tried with a daemon, and with all its features.
    ("jobtree-client", "jobtree-client"),
    ("jobtree-client", "jobtree-server"),
    ("jobtree-client", "jobtree-queue"),
    ("jobtree-client", "jobtree-par"),
    // Its own tests run in its simulator, which is a feature.
    ("jobtree-scheduler", "jobtree-scheduler"),
    // Handlers in the simulated system fork, and use lanes.
    ("jobtree-scheduler", "jobtree-pool"),
    ("jobtree-scheduler", "jobtree-lanes"),
];

/// Stands for all crates of ours, except those for development only.
const ANY: &str = "*";

/// Nothing that ships may depend on these; a test may on the second.
const FOR_DEVELOPMENT: &[&str] = &["jobtree-bench", "jobtree-store-faults"];

/// The crates that may have unsafe code. In all others the compiler forbids it.
pub const UNSAFE_ALLOWED: &[&str] = &[
    "jobtree-pool",
    "jobtree-tree",
    "jobtree-runtime",
    "jobtree-capi",
    "jobtree-store-faults",
    "rayon-core",
];

/// What we measure ourselves against, and who may know it.
const PEERS: &[&str] = &[
    "rayon",
    "rayon-core",
    "chili",
    "crossbeam-channel",
    "crossbeam-deque",
    "may",
];
const MEASURES_PEERS: &str = "jobtree-bench";
/// The stand-in for one of them, whose tests run the original's other half on it.
const STANDS_IN_FOR_PEER: &str = "rayon-core";

/// A package, as far as the rules are concerned.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
    /// The first file of each library and program.
    pub roots: Vec<Source>,
    /// The manifest.
    pub manifest: Source,
}

/// A dependency of any kind.
#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    pub for_tests_only: bool,
    /// Whether it is one of ours, by its path.
    pub by_path: bool,
}

/// A file and its text.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self {
            path: path.into(),
            text,
        }
    }
}

impl Package {
    /// The packages in the output of `cargo metadata --no-deps`.
    pub fn all_in(metadata: &Value) -> Vec<Self> {
        list(&metadata["packages"])
            .map(Self::from_metadata)
            .collect()
    }

    fn from_metadata(package: &Value) -> Self {
        const KINDS_THAT_SHIP: &[&str] =
            &["lib", "rlib", "cdylib", "staticlib", "proc-macro", "bin"];
        let ships = |target: &&Value| {
            list(&target["kind"]).any(|kind| KINDS_THAT_SHIP.contains(&string(kind)))
        };
        Self {
            name: string(&package["name"]).into(),
            dependencies: list(&package["dependencies"])
                .map(|dependency| Dependency {
                    name: string(&dependency["name"]).into(),
                    for_tests_only: dependency["kind"] == "dev",
                    by_path: !dependency["path"].is_null(),
                })
                .collect(),
            roots: list(&package["targets"])
                .filter(ships)
                .map(|target| Source::read(string(&target["src_path"])))
                .collect(),
            manifest: Source::read(string(&package["manifest_path"])),
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("not a list: {value}"))
        .iter()
}

fn string(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
}

/// What is wrong with these packages; empty if nothing is.
pub fn broken_by(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(broken_by_one).collect()
}

fn broken_by_one(package: &Package) -> Vec<String> {
    let name = package.name.as_str();
    let mut broken = Vec::new();
    let arrows = ARROWS
        .iter()
        .find(|(from, _)| *from == name)
        .map(|(_, to)| *to);
    if arrows.is_none() {
        broken.push(format!(
            "{name} is not in the plan: add it to ARROWS, and to the crate map of ARCHITECTURE.md"
        ));
    }
    for dependency in &package.dependencies {
        let to = dependency.name.as_str();
        if dependency.by_path && !is_allowed(name, arrows.unwrap_or(&[]), dependency) {
            broken.push(format!(
                "{name} may not depend on {to}: there is no such arrow"
            ));
        }
        if PEERS.contains(&to) && !dependency.by_path && !may_know_peers(name, dependency) {
            broken.push(format!(
                "{name} may not depend on {to}: peers belong to {MEASURES_PEERS} alone"
            ));
        }
    }
    if !UNSAFE_ALLOWED.contains(&name) {
        for root in package
            .roots
            .iter()
            .filter(|root| !forbids_unsafe(&root.text))
        {
            broken.push(format!("{} lacks #![forbid(unsafe_code)]", root.path));
        }
    }
    if !inherits_lints(&package.manifest.text) {
        broken.push(format!(
            "{} lacks [lints] with workspace = true",
            package.manifest.path
        ));
    }
    broken
}

fn is_allowed(from: &str, arrows: &[&str], dependency: &Dependency) -> bool {
    let to = dependency.name.as_str();
    if dependency.for_tests_only && ARROWS_FOR_TESTS.contains(&(from, to)) {
        return true;
    }
    if FOR_DEVELOPMENT.contains(&to) {
        return dependency.for_tests_only && to != MEASURES_PEERS;
    }
    arrows.contains(&to) || arrows.contains(&ANY)
}

fn may_know_peers(name: &str, dependency: &Dependency) -> bool {
    name == MEASURES_PEERS || (name == STANDS_IN_FOR_PEER && dependency.for_tests_only)
}

/// Whether the attribute stands there as code, not in a comment.
fn forbids_unsafe(source: &str) -> bool {
    source
        .lines()
        .any(|line| line.trim() == "#![forbid(unsafe_code)]")
}

/// Whether the package is held to the lints of its workspace. A workspace of one package has its own table.
fn inherits_lints(manifest: &str) -> bool {
    let inherited = manifest
        .lines()
        .skip_while(|line| line.trim() != "[lints]")
        .nth(1);
    inherited.is_some_and(|line| line.trim() == "workspace = true")
        || manifest
            .lines()
            .any(|line| line.trim().starts_with("[lints."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "made/up".into(),
            text: text.into(),
        }
    }

    fn package(name: &str, dependencies: &[(&str, bool, bool)]) -> Package {
        Package {
            name: name.into(),
            dependencies: dependencies
                .iter()
                .map(|&(name, for_tests_only, by_path)| Dependency {
                    name: name.into(),
                    for_tests_only,
                    by_path,
                })
                .collect(),
            roots: vec![source("//! Text.\n#![forbid(unsafe_code)]\n")],
            manifest: source("[package]\n\n[lints]\nworkspace = true\n"),
        }
    }

    const SHIPS: bool = false;
    const FOR_TESTS: bool = true;
    const OURS: bool = true;
    const FOREIGN: bool = false;

    #[track_caller]
    fn assert_broken(package: &Package, expected: &str) {
        let broken = broken_by(std::slice::from_ref(package));
        assert!(
            broken.iter().any(|message| message.contains(expected)),
            "'{expected}' is not among {broken:?}"
        );
    }

    #[track_caller]
    fn assert_kept(package: &Package) {
        assert_eq!(broken_by(std::slice::from_ref(package)), [""; 0]);
    }

    #[test]
    fn arrows_that_are_in_the_plan_are_fine() {
        assert_kept(&package(
            "jobtree-par",
            &[
                ("jobtree-pool", SHIPS, OURS),
                ("orx-parallel", SHIPS, FOREIGN),
            ],
        ));
        assert_kept(&package("jobtree-cli", &[("jobtree-server", SHIPS, OURS)]));
        assert_kept(&package("jobtree", &[("jobtree-lanes", SHIPS, OURS)]));
        assert_kept(&package("rayon-core", &[("jobtree-pool", SHIPS, OURS)]));
    }

    #[test]
    fn an_arrow_the_other_way_is_not() {
        let backwards = package("jobtree-pool", &[("jobtree-par", SHIPS, OURS)]);
        assert_broken(&backwards, "jobtree-pool may not depend on jobtree-par");
        let past_the_runtime = package("jobtree-lanes", &[("jobtree-pool", SHIPS, OURS)]);
        assert_broken(
            &past_the_runtime,
            "jobtree-lanes may not depend on jobtree-pool",
        );
    }

    #[test]
    fn tests_are_held_to_the_arrows_too() {
        let backwards = package("jobtree-pool", &[("jobtree-par", FOR_TESTS, OURS)]);
        assert_broken(&backwards, "jobtree-pool may not depend on jobtree-par");
        // A few have arrows of their own, and those are for tests only.
        let macros = |kind| package("jobtree-runtime", &[("jobtree-macros", kind, OURS)]);
        assert_kept(&macros(FOR_TESTS));
        assert_broken(&macros(SHIPS), "may not depend on jobtree-macros");
    }

    #[test]
    fn a_crate_that_nobody_planned_is_reported() {
        assert_broken(
            &package("jobtree-misc", &[]),
            "jobtree-misc is not in the plan",
        );
    }

    #[test]
    fn nothing_that_ships_depends_on_what_is_for_development() {
        assert_broken(
            &package("jobtree-cli", &[("jobtree-bench", SHIPS, OURS)]),
            "no such arrow",
        );
        assert_broken(
            &package("jobtree-store", &[("jobtree-store-faults", SHIPS, OURS)]),
            "no such arrow",
        );
        assert_kept(&package(
            "jobtree-store",
            &[("jobtree-store-faults", FOR_TESTS, OURS)],
        ));
    }

    #[test]
    fn peers_belong_to_the_benchmarks() {
        assert_kept(&package(
            "jobtree-bench",
            &[("rayon", SHIPS, FOREIGN), ("chili", SHIPS, FOREIGN)],
        ));
        assert_kept(&package("rayon-core", &[("rayon", FOR_TESTS, FOREIGN)]));
        let shipped = package("rayon-core", &[("rayon", SHIPS, FOREIGN)]);
        assert_broken(&shipped, "peers belong to jobtree-bench");
        for peer in PEERS {
            assert_broken(
                &package("jobtree-par", &[(peer, FOR_TESTS, FOREIGN)]),
                "peers belong to jobtree-bench",
            );
        }
    }

    #[test]
    fn unsafe_code_must_be_forbidden_where_it_does_not_belong() {
        let mut careless = package("jobtree-par", &[("jobtree-pool", SHIPS, OURS)]);
        careless
            .roots
            .push(source("// #![forbid(unsafe_code)]\nfn main() {}\n"));
        assert_broken(&careless, "lacks #![forbid(unsafe_code)]");
        careless.name = "jobtree-runtime".into();
        assert_kept(&careless);
    }

    #[test]
    fn a_crate_that_escapes_the_lints_is_reported() {
        let mut lax = package("jobtree-pool", &[]);
        lax.manifest = source("[package]\n[dependencies]\n");
        assert_broken(&lax, "lacks [lints]");
        lax.manifest = source("[package]\n[lints.rust]\nmissing_docs = \"warn\"\n");
        assert_kept(&lax);
    }

    #[test]
    fn packages_are_read_from_what_cargo_prints() {
        let here = |file: &str| format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let metadata = serde_json::json!({ "packages": [{
            "name": "jobtree-cli",
            "manifest_path": here("Cargo.toml"),
            "dependencies": [
                { "name": "jobtree-pool", "kind": null, "path": "/somewhere" },
                { "name": "serde_json", "kind": "dev" },
            ],
            "targets": [
                { "kind": ["bin"], "src_path": here("src/main.rs") },
                { "kind": ["test"], "src_path": "/not/read" },
            ],
        }] });
        let packages = Package::all_in(&metadata);
        assert_eq!((packages.len(), packages[0].roots.len()), (1, 1));
        let [ours, foreign] = &packages[0].dependencies[..] else {
            panic!("{packages:?}")
        };
        assert!(ours.by_path && !ours.for_tests_only);
        assert!(!foreign.by_path && foreign.for_tests_only);
    }
}
