//! The header that is checked in is the one that the sources give.
//!
//! After a change of the interface: `JOBTREE_WRITE_HEADER=1 cargo test -p jobtree-capi --test header`.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(crate_folder.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new()
        .with_crate(crate_folder)
        .with_config(config)
        .generate()
        .unwrap();
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    // The heading is Rust's; a reader of C wants to know what it means.
    let generated = generated.replace("// # Safety\n// ", "// Requires: ");
    let file = crate_folder.join("include/jobtree.h");
    if std::env::var_os("JOBTREE_WRITE_HEADER").is_some() {
        std::fs::write(&file, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = kept
        .lines()
        .zip(generated.lines())
        .position(|(kept, generated)| kept != generated);
    assert!(
        kept == generated,
        "include/jobtree.h is not what the sources give (from line {} on); write it again with\n  \
         JOBTREE_WRITE_HEADER=1 cargo test -p jobtree-capi --test header",
        differs.map_or(
            kept.lines().count().min(generated.lines().count()),
            |line| line
        ) + 1,
    );
}
