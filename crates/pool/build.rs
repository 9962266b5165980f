//! Decides in one place whether stacks can be switched: `cfg(jobtree_stacks)`.
//!
//! Not under Miri, which cannot run the switch's assembly, not under loom, which models threads on
//! stacks of its own, not with `--cfg jobtree_no_stacks`, by which the tests try the other way of waiting
//! on a machine that has both, and only on the architectures whose switch `stack/contract_tests.rs` covers.
//!
//! And whether by a switch of our own, `cfg(jobtree_direct_switch)`: see `stack/switch/mod.rs`. With
//! `--cfg jobtree_portable_switch` the tests try the other one.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(jobtree_stacks)");
    println!("cargo::rustc-check-cfg=cfg(jobtree_direct_switch)");
    let has = |name: &str| env::var_os(name).is_some();
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let known = ["x86_64", "aarch64", "riscv64"].contains(&architecture.as_str());
    let forbidden = [
        "CARGO_CFG_MIRI",
        "CARGO_CFG_LOOM",
        "CARGO_CFG_JOBTREE_NO_STACKS",
    ];
    if has("CARGO_CFG_UNIX") && known && !forbidden.into_iter().any(has) {
        println!("cargo::rustc-cfg=jobtree_stacks");
        if architecture == "x86_64" && !has("CARGO_CFG_JOBTREE_PORTABLE_SWITCH") {
            println!("cargo::rustc-cfg=jobtree_direct_switch");
        }
    }
}
