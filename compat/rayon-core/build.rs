//! Exists because a package with a `links` key must have a build script. There is nothing to build.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
