//! Counts the words of all texts below a directory: a job for each directory, the reads on threads that may block, the counting on all
//! cores.
//!
//! `cargo run -p jobtree --example directory_words [DIRECTORY]`

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jobtree::{BoxError, Dispatcher, Nursery, nursery, par};

/// Adds all texts below `directory` to `found`, each directory as a job of its own.
fn walk<'scope>(
    n: &'scope Nursery<'scope, '_>,
    directory: PathBuf,
    found: &'scope Mutex<Vec<PathBuf>>,
) {
    let label = directory.display().to_string();
    n.job_options().label(label).launch(move || {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                walk(n, path, found);
            } else if path
                .extension()
                .is_some_and(|end| end == "txt" || end == "md")
            {
                found.lock().unwrap().push(path);
            }
        }
        Ok(())
    });
}

/// The texts below `directory`, in order.
fn texts_below(directory: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let found = Mutex::new(Vec::new());
    nursery(|n| {
        walk(n, directory.to_owned(), &found);
        Ok(())
    })?;
    let mut paths = found.into_inner().unwrap();
    par::sort(&mut paths);
    Ok(paths)
}

type Counts = HashMap<String, usize>;

fn count_words(text: &str) -> Counts {
    let mut counts = Counts::new();
    for word in text
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
    {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

fn merged(mut left: Counts, right: Counts) -> Counts {
    for (word, count) in right {
        *left.entry(word).or_default() += count;
    }
    left
}

fn words_below(directory: &Path) -> Result<(usize, Counts), BoxError> {
    let paths = texts_below(directory)?;
    // Reading blocks a thread, so it is done on threads for that; the first file that cannot be read ends it all.
    let dispatcher = Dispatcher::io();
    let texts = nursery(|n| {
        let reading: Vec<_> = paths
            .iter()
            .map(|path| {
                n.job_options()
                    .on(&dispatcher)
                    .spawn(move || Ok(fs::read_to_string(path)?))
            })
            .collect();
        let texts: Result<Vec<String>, _> = reading.into_iter().map(|text| text.join()).collect();
        Ok(texts?)
    })?;
    let counts = par::over(&texts)
        .map(|text| count_words(text))
        .reduce(merged);
    Ok((texts.len(), counts.unwrap_or_default()))
}

/// A few texts in directories of their own, in place of those of the caller.
fn write_texts(directory: &Path) -> io::Result<()> {
    for shelf in 0..5 {
        let shelf = directory.join(format!("shelf {shelf}"));
        fs::create_dir_all(shelf.join("box"))?;
        fs::write(shelf.join("tree.txt"), "A job, and a job below the job.")?;
        fs::write(shelf.join("box/leaf.md"), "No job is below this job.")?;
        fs::write(shelf.join("box/picture.png"), [0, 255])?;
    }
    Ok(())
}

fn main() -> Result<(), BoxError> {
    if let Some(directory) = std::env::args_os().nth(1) {
        let (texts, counts) = words_below(directory.as_ref())?;
        let mut counts: Vec<_> = counts.into_iter().collect();
        par::sort_by_key(&mut counts, |(word, count)| {
            (std::cmp::Reverse(*count), word.clone())
        });
        println!("{texts} texts, {} words", counts.len());
        for (word, count) in counts.iter().take(20) {
            println!("{count:>6} {word}");
        }
        return Ok(());
    }

    let directory = std::env::temp_dir().join(format!("jobtree-words-{}", std::process::id()));
    write_texts(&directory)?;
    let counted = words_below(&directory);
    fs::remove_dir_all(&directory)?;
    let (texts, counts) = counted?;
    println!(
        "{texts} texts, `job` {} times, {} words",
        counts["job"],
        counts.len()
    );
    assert_eq!((texts, counts["job"], counts["this"]), (10, 25, 5));
    Ok(())
}
