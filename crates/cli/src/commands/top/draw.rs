//! A frame: the load above, what runs, waits and failed below it; or one job.

use jiff::Timestamp;
use jobtree_protocol::{JobView, NodeStatus, QuietState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Cell, Clear, Gauge, Paragraph, Row, Sparkline, Table as Rows, TableState,
};

use super::keys::{Cursor, Mode, Table};
use super::look::{Opened, View};
use crate::names;
use crate::out::{cell, counted};
use crate::summary;
use crate::when::{length, localized, shown, since};

/// The keys, for the bottom line and for the help.
const KEYS: [(&str, &str); 9] = [
    ("Enter", "open"),
    ("c", "cancel"),
    ("r", "retry"),
    ("p", "pause addon"),
    ("/", "filter"),
    ("Tab", "table"),
    ("j k", "move"),
    ("?", "help"),
    ("q", "quit"),
];
/// Below this height the graph of the load makes way for jobs.
const TALL: u16 = 20;

pub fn draw(frame: &mut Frame<'_>, view: &View, cursor: &mut Cursor) {
    cursor.settle(view);
    let area = frame.area();
    let [above, foot] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    match (&cursor.subject.open, &view.opened) {
        (Some(_), Some(opened)) => job(frame, opened, view, cursor, above),
        (Some(_), None) => frame.render_widget(Paragraph::new("reading the job …"), above),
        (None, _) => jobs(frame, view, cursor, above),
    }
    frame.render_widget(Paragraph::new(bottom(view, cursor, area.width)), foot);
    if cursor.mode == Mode::Help {
        help(frame, area);
    }
}

/// The bottom line: what is typed, asked or told; else the keys, as many as fit.
fn bottom<'a>(view: &View, cursor: &Cursor, width: u16) -> Line<'a> {
    match &cursor.mode {
        Mode::Filter(text) => return Line::raw(format!("filter: {text}_")),
        Mode::Confirm(_, question) => return Line::styled(question.clone(), Modifier::BOLD),
        Mode::Choosing | Mode::Help => {}
    }
    if let Some(error) = &view.error {
        let line = error.lines().next().unwrap_or_default();
        return Line::styled(cell(line, width.into()), Style::new().fg(Color::Red));
    }
    if let Some(told) = &cursor.told {
        return Line::styled(cell(told, width.into()), Modifier::BOLD);
    }
    let mut text = String::new();
    for (key, what) in KEYS {
        let word = match (key, cursor.subject.open.is_some()) {
            ("Enter", true) => "Esc back".to_owned(),
            ("/" | "Tab", true) => continue,
            ("j k", true) => "j k scroll".to_owned(),
            _ => format!("{key} {what}"),
        };
        if text.len() + word.len() + 2 <= usize::from(width) {
            text += &word;
            text += "  ";
        }
    }
    Line::styled(text, Modifier::DIM)
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines = KEYS.map(|(key, what)| format!("{key:<6} {what}"));
    let height = (lines.len() as u16 + 2).min(area.height);
    let width = 30.min(area.width);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let text = lines.join("\n");
    let block = Block::bordered().title("Keys");
    frame.render_widget(Paragraph::new(text).block(block), place);
}

/// The first screen.
fn jobs(frame: &mut Frame<'_>, view: &View, cursor: &Cursor, area: Rect) {
    let nodes = u16::try_from(view.status.nodes.len())
        .unwrap_or(u16::MAX)
        .clamp(1, if area.height < TALL { 1 } else { 4 });
    let graph = if area.height < TALL { 0 } else { 4 };
    let room = area.height.saturating_sub(1 + nodes + graph);
    let heights = heights(room, Table::ALL.map(|table| table.jobs(view).len()));
    let [head, bars, load_area, running, waiting, failed] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(nodes),
        Constraint::Length(graph),
        Constraint::Length(heights[0]),
        Constraint::Length(heights[1]),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(headline(view, cursor)), head);
    let rows: Vec<Rect> = rows_of(bars).collect();
    let (told, left_out) = machines(&view.status.nodes, rows.len());
    for (node, area) in told.iter().zip(&rows) {
        capacity(frame, node, view, *area);
    }
    if let (Some(text), Some(area)) = (left_out, rows.last()) {
        frame.render_widget(Paragraph::new(text), *area);
    }
    if graph > 0 {
        load(frame, view, load_area);
    }
    for (which, area) in Table::ALL.into_iter().zip([running, waiting, failed]) {
        table(frame, which, view, cursor, area);
    }
}

/// How many lines each table gets that has so many jobs: title, heading and a job at least; then a line each in turn, as long as
/// a table has jobs for it.
fn heights(room: u16, jobs: [usize; 3]) -> [u16; 3] {
    let wanted = jobs.map(|count| match count {
        0 => 1,
        count => 2 + u16::try_from(count).unwrap_or(u16::MAX - 2),
    });
    let mut heights = wanted.map(|lines| lines.min(3));
    let mut left = room.saturating_sub(heights.iter().sum());
    while left > 0 && heights != wanted {
        for (height, wanted) in heights.iter_mut().zip(wanted) {
            if left > 0 && *height < wanted {
                *height += 1;
                left -= 1;
            }
        }
    }
    heights
}

/// One job: what it is, why it waits, what is below it, what it printed.
fn job(frame: &mut Frame<'_>, opened: &Opened, view: &View, cursor: &mut Cursor, area: Rect) {
    let job = &opened.job;
    let mut lines: Vec<String> = vec![
        format!(
            "{}  {}/{}  cost {}  attempt {} of {}",
            job.state, job.addon_id, job.job_type, job.cost_units, job.attempts, job.max_attempts
        ),
        format!(
            "submitted {}{}{}",
            shown(job.created_at),
            job.started_at
                .map_or(String::new(), |at| format!(", started {}", shown(at))),
            job.ended_at
                .map_or(String::new(), |at| format!(", ended {}", shown(at))),
        ),
    ];
    let about = summary::what(job);
    lines.extend((!about.is_empty()).then_some(about));
    if let Some(explained) = &opened.explained {
        lines.extend(["".into(), "Why".into()]);
        if explained.reasons.is_empty() {
            lines.push("  nothing is in its way".into());
        }
        for reason in &explained.reasons {
            let (message, change) = (localized(&reason.message), localized(&reason.change));
            lines.push(format!("  {}: {message}", reason.code));
            if let Some(since) = reason.since {
                lines.push(format!("    since {}", shown(since)));
            }
            lines.push(format!("    until {change}"));
        }
    }
    if let Some(tree) = &opened.tree {
        lines.extend(["".into(), "Tree".into()]);
        for node in &tree.nodes {
            let indent = "  ".repeat(node.depth as usize + 1);
            lines.push(format!("{indent}{} ({})", node.label, node.state));
        }
    }
    lines.extend(["".into(), "Log".into()]);
    match opened.log.is_empty() {
        true => lines.push("  nothing was printed".into()),
        false => lines.extend(
            opened
                .log
                .lines()
                .map(|line| format!("  {}", cell(line, 1000))),
        ),
    }
    let inner = usize::from(area.width.saturating_sub(2)).max(1);
    let lines: Vec<String> = lines.iter().flat_map(|line| wrapped(line, inner)).collect();
    let count = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    cursor.scrolled = cursor
        .scrolled
        .min(count.saturating_sub(area.height.saturating_sub(2)));
    let title = format!("Job {} at {}", job.job_id, clock(view.at));
    let shown = Paragraph::new(lines.join("\n"))
        .block(Block::bordered().title(title))
        .scroll((cursor.scrolled, 0));
    frame.render_widget(shown, area);
}

/// A line in parts that fit, so that it is known how far there is to scroll.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    match characters.is_empty() {
        true => vec![String::new()],
        false => characters
            .chunks(width)
            .map(|part| part.iter().collect())
            .collect(),
    }
}

/// The time of day of a frame.
fn clock(at: Timestamp) -> String {
    shown(at)
        .split_once(' ')
        .map_or(String::new(), |(_, time)| time.to_owned())
}

fn rows_of(area: Rect) -> impl Iterator<Item = Rect> {
    area.rows()
}

/// How many jobs are where.
fn headline<'a>(view: &View, cursor: &Cursor) -> Line<'a> {
    let mut spans = vec![Span::styled("jobtree  ", Modifier::BOLD)];
    if !cursor.subject.filter.is_empty() {
        let filter = format!("filter {}  ", cursor.subject.filter);
        spans.push(Span::styled(filter, Modifier::REVERSED));
    }
    for (state, count) in &view.status.jobs {
        spans.push(Span::raw(format!("{count} {state}  ")));
    }
    if let Some(oldest) = view.status.oldest_queued_sec {
        let oldest = std::time::Duration::from_secs_f64(oldest.max(0.0));
        spans.push(Span::raw(format!("oldest waits {}", length(oldest))));
    }
    Line::from(spans)
}

fn color(state: QuietState) -> Color {
    match state {
        QuietState::Quiet => Color::Green,
        QuietState::Normal => Color::Cyan,
        QuietState::Busy => Color::Yellow,
        QuietState::Panic => Color::Red,
    }
}

/// The machines that have a line of their own, and what is said of the others if there are more than lines.
fn machines(nodes: &[NodeStatus], lines: usize) -> (&[NodeStatus], Option<String>) {
    if nodes.len() <= lines {
        return (nodes, None);
    }
    let (told, others) = nodes.split_at(lines.saturating_sub(1));
    let silent: Vec<&str> = others
        .iter()
        .filter(|node| node.silent)
        .map(|node| node.node_id.as_str())
        .collect();
    let count = others.len();
    let text = match silent.is_empty() {
        true => format!("and {count} more machines"),
        false => format!("and {count} more machines, SILENT: {}", silent.join(" ")),
    };
    (told, Some(text))
}

/// What is said of a machine; of one among several its version, too.
fn machine(node: &NodeStatus, several: bool, at: Timestamp) -> String {
    let state = format!("{:?}", node.state).to_uppercase();
    let stale = if node.stale { " (no measurements)" } else { "" };
    let labels = match node.labels.is_empty() {
        true => String::new(),
        false => format!(" [{}]", node.labels.join(", ")),
    };
    let version = match several && !node.version.is_empty() {
        true => format!(", version {}", node.version),
        false => String::new(),
    };
    match node.last_seen.filter(|_| node.silent) {
        Some(seen) => format!(
            "{}{labels} SILENT for {}  {} then{version}",
            node.node_id,
            length(since(seen, at)),
            counted(node.active_leases.into(), "lease")
        ),
        None => format!(
            "{}{labels} {state}{stale}  busy {:.1}  {} of {} units, {}{version}",
            node.node_id,
            node.busy,
            node.used,
            node.capacity,
            counted(node.active_leases.into(), "lease")
        ),
    }
}

/// One machine: how busy it is, and how much of its capacity is used.
fn capacity(frame: &mut Frame<'_>, node: &NodeStatus, view: &View, area: Rect) {
    let label = machine(node, view.status.nodes.len() > 1, view.status.at);
    let shown = match node.silent {
        true => Color::DarkGray,
        false => color(node.state),
    };
    let share = f64::from(node.used) / f64::from(node.capacity.max(1));
    let gauge = Gauge::default()
        .ratio(share.clamp(0.0, 1.0))
        .label(label)
        .gauge_style(Style::new().fg(shown).bg(Color::Reset));
    frame.render_widget(gauge, area);
}

/// Busy over time, the newest on the right.
fn load(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let newest = view.load.len().saturating_sub(width);
    let data: Vec<u64> = view.load[newest..]
        .iter()
        .map(|sample| (sample.busy.clamp(0.0, 10.0) * 10.0) as u64)
        .collect();
    let state = view
        .load
        .last()
        .map_or(QuietState::Normal, |sample| sample.state);
    let graph = Sparkline::default()
        .block(Block::bordered().title("Busy, 0 to 10"))
        .data(&data)
        .max(100)
        .style(Style::new().fg(color(state)));
    frame.render_widget(graph, area);
}

fn table(frame: &mut Frame<'_>, which: Table, view: &View, cursor: &Cursor, area: Rect) {
    let jobs = which.jobs(view);
    let title = format!("{} ({})", which.title(), jobs.len());
    if jobs.is_empty() {
        frame.render_widget(Paragraph::new(Line::styled(title, Modifier::DIM)), area);
        return;
    }
    // The last column gets what is left; names make way in a narrow window.
    let (addon, kind) = match area.width {
        0..70 => (7, 8),
        70..100 => (10, 12),
        _ => (14, 16),
    };
    let widths = [
        Constraint::Length(8),
        Constraint::Length(addon),
        Constraint::Length(kind),
        Constraint::Length(4),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    let rows = jobs.iter().map(|job| {
        Row::new([
            Cell::from(names::short(job.job_id)),
            Cell::from(cell(job.addon_id.as_str(), addon.into())),
            Cell::from(cell(job.job_type.as_str(), kind.into())),
            Cell::from(job.cost_units.to_string()),
            Cell::from(time(which, job, view.at)),
            Cell::from(cell(&about(which, job, view), 200)),
        ])
    });
    let since = if which == Table::Failed { "AGO" } else { "FOR" };
    let what = if which == Table::Waiting {
        "WHY"
    } else {
        "WHAT"
    };
    let head = Row::new(["JOB", "ADDON", "TYPE", "COST", since, what]).style(Modifier::DIM);
    let chosen = (cursor.table == which).then_some(cursor.row);
    let mut state = TableState::default().with_selected(chosen);
    let table = Rows::new(rows, widths)
        .header(head)
        .block(Block::default().title(Line::styled(title, Modifier::BOLD)))
        .row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut state);
}

/// The last column: what a job is about, and why it waits if it does.
fn about(which: Table, job: &JobView, view: &View) -> String {
    let why = view.reasons.get(&job.job_id);
    match why.filter(|_| which != Table::Failed) {
        // A command is known by its line.
        Some(why) => {
            summary::command_line(job).map_or(why.clone(), |line| format!("{line}: {why}"))
        }
        None => summary::what(job),
    }
}

/// How long a job runs or waits, or since when it has failed.
fn time(which: Table, job: &JobView, now: Timestamp) -> String {
    let from = match which {
        Table::Running => job.started_at,
        Table::Waiting => None,
        Table::Failed => job.ended_at,
    };
    length(since(from.unwrap_or(job.created_at), now))
}

#[cfg(test)]
mod tests {
    use super::{heights, machine, machines};
    use jobtree_protocol::NodeStatus;

    fn node(name: &str, silent: bool) -> NodeStatus {
        let node = serde_json::json!({
            "node_id": name, "busy": 1.0, "state": "QUIET", "since": "2026-11-15T11:00:40Z", "capacity": 100, "used": 20,
            "active_leases": 3, "version": "2.0.0", "last_seen": "2026-11-15T12:00:00Z", "silent": silent, "labels": ["gpu"],
        });
        serde_json::from_value(node).expect("a machine")
    }

    #[test]
    fn a_machine_is_told_with_its_version_among_several_and_a_silent_one_as_such() {
        let at = "2026-11-15T12:01:00Z".parse().expect("a time");
        let (alone, among, silent) = (
            machine(&node("n1", false), false, at),
            machine(&node("n1", false), true, at),
            machine(&node("n1", true), true, at),
        );
        assert_eq!(alone, "n1 [gpu] QUIET  busy 1.0  20 of 100 units, 3 leases");
        assert_eq!(among, format!("{alone}, version 2.0.0"));
        assert_eq!(
            silent,
            "n1 [gpu] SILENT for 1m00s  3 leases then, version 2.0.0"
        );
    }

    #[test]
    fn machines_without_a_line_are_counted_and_those_that_are_silent_named() {
        let mut nodes: Vec<NodeStatus> = (0..6).map(|n| node(&format!("n{n}"), false)).collect();
        assert_eq!(machines(&nodes, 6).1, None);
        let (told, rest) = machines(&nodes, 4);
        assert_eq!(
            (told.len(), rest),
            (3, Some("and 3 more machines".to_owned()))
        );
        nodes[5].silent = true;
        assert_eq!(
            machines(&nodes, 1),
            (
                &nodes[..0],
                Some("and 6 more machines, SILENT: n5".to_owned())
            )
        );
    }

    #[test]
    fn each_table_has_a_job_before_any_has_many() {
        assert_eq!(heights(9, [1, 200, 5]), [3, 3, 3]);
        assert_eq!(heights(20, [1, 200, 5]), [3, 10, 7]);
        assert_eq!(heights(20, [0, 2, 0]), [1, 4, 1]);
        assert_eq!(heights(2, [4, 4, 4]), [3, 3, 3]);
    }
}
