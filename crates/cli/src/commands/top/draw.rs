//! A frame: the load above, what runs in the middle, what waits below.

use jiff::Timestamp;
use jobtree_protocol::{JobView, NodeStatus, QuietState};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table, TableState};

use super::look::View;
use crate::names;
use crate::out::cell;
use crate::summary;
use crate::when::{length, since};

/// Where the eyes are.
#[derive(Default)]
pub struct Cursor {
    /// In the lower table.
    waiting: bool,
    row: usize,
}

impl Cursor {
    pub fn down(&mut self, view: &View) {
        let rows = match self.waiting {
            true => view.waiting.len(),
            false => view.running.len(),
        };
        self.row = (self.row + 1).min(rows.saturating_sub(1));
    }

    pub fn up(&mut self) {
        self.row = self.row.saturating_sub(1);
    }

    pub fn other(&mut self) {
        (self.waiting, self.row) = (!self.waiting, 0);
    }

    fn state(&self, waiting: bool) -> TableState {
        let row = (self.waiting == waiting).then_some(self.row);
        TableState::default().with_selected(row)
    }
}

pub fn draw(frame: &mut Frame<'_>, view: &View, cursor: &mut Cursor) {
    let nodes = u16::try_from(view.status.nodes.len())
        .unwrap_or(u16::MAX)
        .clamp(1, 4);
    let [head, bars, graph, running, waiting, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(nodes),
        Constraint::Length(5),
        Constraint::Fill(2),
        Constraint::Fill(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(view)), head);
    for (node, area) in view.status.nodes.iter().zip(rows_of(bars)) {
        capacity(frame, node, view.status.at, area);
    }
    load(frame, view, graph);
    table(
        frame,
        "Running",
        &view.running,
        view,
        running,
        cursor.state(false),
    );
    table(
        frame,
        "Waiting",
        &view.waiting,
        view,
        waiting,
        cursor.state(true),
    );
    let told = match &view.error {
        Some(error) => Line::styled(cell(error, 200), Style::new().fg(Color::Red)),
        None => Line::styled("q ends, arrows move, Tab changes the table", Modifier::DIM),
    };
    frame.render_widget(Paragraph::new(told), foot);
}

fn rows_of(area: Rect) -> impl Iterator<Item = Rect> {
    area.rows()
}

/// How many jobs are where.
fn headline(view: &View) -> Line<'_> {
    let mut spans = vec![Span::styled("jobtree  ", Modifier::BOLD)];
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

/// One machine: how busy it is, and how much of its capacity is used.
fn capacity(frame: &mut Frame<'_>, node: &NodeStatus, at: Timestamp, area: Rect) {
    let state = format!("{:?}", node.state).to_uppercase();
    let stale = if node.stale { " (no measurements)" } else { "" };
    let labels = match node.labels.is_empty() {
        true => String::new(),
        false => format!(" [{}]", node.labels.join(", ")),
    };
    let label = match node.last_seen.filter(|_| node.silent) {
        Some(seen) => format!(
            "{}{labels} SILENT for {}  {} leases then",
            node.node_id,
            length(since(seen, at)),
            node.active_leases
        ),
        None => format!(
            "{}{labels} {state}{stale}  busy {:.1}  {} of {} units, {} leases",
            node.node_id, node.busy, node.used, node.capacity, node.active_leases
        ),
    };
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

fn table(
    frame: &mut Frame<'_>,
    title: &str,
    jobs: &[JobView],
    view: &View,
    area: Rect,
    mut state: TableState,
) {
    let widths = [
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Length(14),
        Constraint::Length(5),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    let rows = jobs.iter().map(|job| {
        let begun = job.started_at.filter(|_| job.lease_id.is_some());
        let time = length(since(begun.unwrap_or(job.created_at), view.at));
        Row::new([
            Cell::from(names::short(job.job_id)),
            Cell::from(job.addon_id.to_string()),
            Cell::from(job.job_type.to_string()),
            Cell::from(job.cost_units.to_string()),
            Cell::from(time),
            Cell::from(cell(&summary::what(job), 100)),
        ])
    });
    let head = Row::new(["job", "addon", "type", "cost", "for", ""]).style(Modifier::DIM);
    let table = Table::new(rows, widths)
        .header(head)
        .block(Block::bordered().title(format!("{title} ({})", jobs.len())))
        .row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut state);
}
