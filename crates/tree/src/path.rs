//! The path of a job in its tree, for people: the labels from the root down.

use std::borrow::Cow;
use std::sync::Arc;

use crate::node::Node;

/// Labels shown at most; of a deeper path the middle is left out.
const MOST_LABELS: usize = 24;

/// The path of a job whose parent does not know of its end.
pub(crate) fn path_of(node: &Node) -> Arc<str> {
    let mut labels = Vec::new();
    let mut next = Some(node);
    while let Some(node) = next {
        labels.push(label_of(node));
        // SAFETY: a job is alive until all its children have told it of their ends, and so on upwards.
        next = node.parent.map(|parent| unsafe { parent.as_ref() });
    }
    labels.reverse();
    join(&labels).into()
}

/// Returns the name of a job: its label, or its id.
pub(crate) fn label_of(node: &Node) -> String {
    given_label(node).unwrap_or_else(|| format!("#{}", node.id))
}

/// Returns the job's label, if it was given one.
pub(crate) fn given_label(node: &Node) -> Option<String> {
    let locked = node.lock();
    let label = locked.side.as_ref().and_then(|side| side.label.as_deref());
    label.map(str::to_owned)
}

/// A label as people are shown it: control characters, with which it could change what a terminal or a log says of other jobs,
/// are escaped.
pub fn printable(label: &str) -> Cow<'_, str> {
    if !label.contains(char::is_control) {
        return Cow::Borrowed(label);
    }
    let mut shown = String::with_capacity(label.len() + 8);
    for character in label.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A path of labels, the root's first, for people.
pub(crate) fn join(labels: &[String]) -> String {
    let path = join_as_they_are(labels);
    match printable(&path) {
        Cow::Borrowed(_) => path,
        Cow::Owned(shown) => shown,
    }
}

fn join_as_they_are(labels: &[String]) -> String {
    if labels.len() <= MOST_LABELS {
        return labels.join("/");
    }
    let half = MOST_LABELS / 2;
    let left_out = labels.len() - 2 * half;
    format!(
        "{}/({left_out} jobs)/{}",
        labels[..half].join("/"),
        labels[labels.len() - half..].join("/")
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let labels = ["root", "two\nlines", "\u{1b}[2Jbell\u{7}", "grün/\u{85}"].map(str::to_owned);
        let path = join(&labels);
        assert_eq!(path, r"root/two\nlines/\u{1b}[2Jbell\u{7}/grün/\u{85}");
        assert_eq!(printable(r"as \n it is"), r"as \n it is");
    }

    #[test]
    fn a_deep_path_keeps_its_ends() {
        let labels: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let path = join(&labels);
        assert!(path.starts_with("0/1/") && path.ends_with("/998/999"));
        assert!(path.contains("(976 jobs)"), "{path}");
        assert_eq!(join(&labels[..2]), "0/1");
    }
}
