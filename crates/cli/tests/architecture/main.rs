//! The workspace keeps to its own plan: which crate may depend on which, where unsafe code may be, and that the peers
//! we measure against stay in the benchmarks.
//!
//! `rules` holds the plan and the checks, tried on made-up workspaces; here they look at the real one. `test_policies` checks that
//! tests run with the policy that a new user gets, `documentation` that pages name what exists, `doc_comments` that doc comments begin
//! with a verb or a noun. `user_code` and `user_values` check how code and values of the program's are called and owned.

#![forbid(unsafe_code)]

mod doc_comments;
mod documentation;
mod rules;
mod test_policies;
mod user_code;
mod user_values;

use std::path::{Path, PathBuf};
use std::process::Command;

use rules::Package;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is two folders up")
}

/// The packages of the workspace with this manifest, as cargo sees them.
fn packages(manifest: &Path) -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
            "--manifest-path",
        ])
        .arg(manifest)
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    Package::all_in(&metadata)
}

#[test]
fn the_main_workspace_keeps_to_the_rules() {
    let packages = packages(&root().join("Cargo.toml"));
    assert!(
        packages.iter().any(|package| package.name == "jobtree-cli"),
        "this very crate is missing: {packages:?}"
    );
    let broken = rules::broken_by(&packages);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn the_workspaces_in_compat_keep_to_the_rules() {
    let Ok(folders) = root().join("compat").read_dir() else {
        return;
    };
    for folder in folders {
        let manifest = folder
            .expect("the folder can be listed")
            .path()
            .join("Cargo.toml");
        if manifest.is_file() {
            let broken = rules::broken_by(&packages(&manifest));
            assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
        }
    }
}
