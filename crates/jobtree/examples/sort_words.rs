//! Counts the words of a text and lists the most frequent ones: loops, a fold and a sort.
//!
//! `cargo run -p jobtree --example sort_words`

use std::collections::HashMap;

use jobtree::par;

const TEXT: &str = "\
    The worker looks for work. When the worker finds work, it works; when it finds none, it sleeps. \
    Whoever has more work than one worker can do wakes another worker, and the two share the work.";

/// How often each word occurs.
fn count_words(text: &str) -> HashMap<String, usize> {
    let words: Vec<&str> = text.split_whitespace().collect();
    par::over(&words)
        .map(|word| {
            word.trim_matches(|c: char| !c.is_alphabetic())
                .to_lowercase()
        })
        .fold(
            HashMap::new,
            |mut counts, word| {
                *counts.entry(word).or_insert(0) += 1;
                counts
            },
            |mut counts, others| {
                for (word, count) in others {
                    *counts.entry(word).or_insert(0) += count;
                }
                counts
            },
        )
}

fn main() {
    let mut words: Vec<(String, usize)> = count_words(TEXT).into_iter().collect();
    par::sort_by(&mut words, |(word_1, count_1), (word_2, count_2)| {
        count_2.cmp(count_1).then_with(|| word_1.cmp(word_2))
    });

    for (word, count) in &words[..5] {
        println!("{count:>3} {word}");
    }
    assert_eq!(words[0], (String::from("the"), 4));
    assert_eq!(words[1], (String::from("work"), 4));
    assert!(words.is_sorted_by_key(|(_, count)| std::cmp::Reverse(*count)));
}
