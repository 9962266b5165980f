//! Lists the files of the dashboard, which `scripts/web` builds into `assets`, so that they become a part of the program.
//! Their names change with their content, so no list of them is kept in the sources.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).expect("cargo sets it");
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("assets");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let mut list = String::from("&[\n");
    for file in files.iter().filter(|file| !is_compressed(file)) {
        let name = file.strip_prefix(&folder).expect("a file below it");
        // A path of a URL, on every system.
        let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
        let compressed = PathBuf::from(format!("{}.br", file.display()));
        let brotli = match files.contains(&compressed) {
            true => format!("Some(include_bytes!({compressed:?}))"),
            false => "None".to_owned(),
        };
        let name = name.join("/");
        writeln!(
            list,
            "    File {{ name: {name:?}, plain: include_bytes!({file:?}), brotli: {brotli} }},"
        )
        .expect("a string takes everything");
    }
    list.push(']');
    fs::write(
        PathBuf::from(variable("OUT_DIR")).join("dashboard.rs"),
        list,
    )
}

fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "br")
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
