//! What keys mean: where the cursor is, what is open, what is being typed or asked. No terminal, so that tests can press keys.

use jobtree_protocol::{JobId, JobView};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::look::{Action, Subject, View};
use crate::names;

/// A table of the first screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Table {
    #[default]
    Running,
    Waiting,
    Failed,
}

impl Table {
    pub const ALL: [Self; 3] = [Self::Running, Self::Waiting, Self::Failed];

    pub fn title(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Failed => "Failed",
        }
    }

    pub fn jobs(self, view: &View) -> &[JobView] {
        match self {
            Self::Running => &view.running,
            Self::Waiting => &view.waiting,
            Self::Failed => &view.failed,
        }
    }
}

/// What the keys go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mode {
    #[default]
    Choosing,
    /// A filter is typed.
    Filter(String),
    /// An action waits for `y`.
    Confirm(Action, String),
    /// The keys are listed.
    Help,
}

/// Where the eyes are.
#[derive(Default)]
pub struct Cursor {
    pub table: Table,
    pub row: usize,
    pub subject: Subject,
    /// How far the open job is scrolled.
    pub scrolled: u16,
    pub mode: Mode,
    /// What came of the last action.
    pub told: Option<String>,
}

/// What a key asks of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    Nothing,
    End,
    /// Look again now: the subject is another one.
    Look,
    Do(Action),
}

impl Cursor {
    /// Lets the cursor stand on a row that is there, in a table that has one if any has.
    pub fn settle(&mut self, view: &View) {
        if self.table.jobs(view).is_empty()
            && let Some(table) = Table::ALL.into_iter().find(|it| !it.jobs(view).is_empty())
        {
            (self.table, self.row) = (table, 0);
        }
        let last = self.table.jobs(view).len().saturating_sub(1);
        self.row = self.row.min(last);
    }

    /// The job that keys are about.
    fn job<'a>(&self, view: &'a View) -> Option<&'a JobView> {
        match (&self.subject.open, &view.opened) {
            (Some(_), Some(opened)) => Some(&opened.job),
            (Some(_), None) => None,
            (None, _) => self.table.jobs(view).get(self.row),
        }
    }

    pub fn press(&mut self, key: KeyEvent, view: &View) -> Wish {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Wish::End;
        }
        self.told = None;
        match std::mem::take(&mut self.mode) {
            Mode::Filter(text) => self.type_filter(key.code, text),
            Mode::Confirm(action, _) => match key.code {
                KeyCode::Char('y' | 'Y') => Wish::Do(action),
                _ => {
                    self.told = Some("nothing was done".into());
                    Wish::Nothing
                }
            },
            Mode::Help => Wish::Nothing,
            Mode::Choosing if self.subject.open.is_some() => self.press_in_job(key.code, view),
            Mode::Choosing => self.press_in_list(key.code, view),
        }
    }

    fn press_in_list(&mut self, code: KeyCode, view: &View) -> Wish {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Down | KeyCode::Char('j') => self.row += 1,
            KeyCode::Up | KeyCode::Char('k') => self.row = self.row.saturating_sub(1),
            KeyCode::Tab | KeyCode::Right => self.turn(1, view),
            KeyCode::BackTab | KeyCode::Left => self.turn(Table::ALL.len() - 1, view),
            KeyCode::Enter => {
                if let Some(job) = self.job(view) {
                    return self.open(Some(job.job_id));
                }
            }
            KeyCode::Char('/') => self.mode = Mode::Filter(self.subject.filter.clone()),
            other => return self.press_anywhere(other, view),
        }
        self.settle(view);
        Wish::Nothing
    }

    fn press_in_job(&mut self, code: KeyCode, view: &View) -> Wish {
        match code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace | KeyCode::Enter => {
                return self.open(None);
            }
            KeyCode::Down | KeyCode::Char('j') => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(10),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            other => return self.press_anywhere(other, view),
        }
        Wish::Nothing
    }

    fn press_anywhere(&mut self, code: KeyCode, view: &View) -> Wish {
        let job = self.job(view);
        match (code, job) {
            (KeyCode::Char('?' | 'h'), _) => self.mode = Mode::Help,
            (KeyCode::Char('c' | 'r' | 'p'), None) => self.told = Some("no job is chosen".into()),
            (KeyCode::Char('c'), Some(job)) => {
                let question = format!("cancel {}? y or n", names::short(job.job_id));
                self.mode = Mode::Confirm(Action::Cancel(job.job_id), question);
            }
            (KeyCode::Char('r'), Some(job)) => return Wish::Do(Action::Retry(job.job_id)),
            (KeyCode::Char('p'), Some(job)) => {
                return Wish::Do(Action::Pause(job.addon_id.clone()));
            }
            _ => {}
        }
        Wish::Nothing
    }

    fn type_filter(&mut self, code: KeyCode, mut text: String) -> Wish {
        match code {
            KeyCode::Esc => return Wish::Nothing,
            KeyCode::Enter => {
                self.subject.filter = text.trim().to_owned();
                return Wish::Look;
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(character) => text.push(character),
            _ => {}
        }
        self.mode = Mode::Filter(text);
        Wish::Nothing
    }

    /// Goes on to another table that has rows.
    fn turn(&mut self, by: usize, view: &View) {
        let count = Table::ALL.len();
        let here = Table::ALL.iter().position(|table| *table == self.table);
        let places = (1..=count).map(|step| (here.unwrap_or(0) + step * by) % count);
        let next = places
            .map(|place| Table::ALL[place])
            .find(|table| !table.jobs(view).is_empty());
        (self.table, self.row) = (next.unwrap_or(self.table), 0);
    }

    fn open(&mut self, job: Option<JobId>) -> Wish {
        self.subject.open = job;
        self.scrolled = 0;
        Wish::Look
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::example;
    use super::*;

    fn press(cursor: &mut Cursor, codes: &[KeyCode]) -> Wish {
        let view = example();
        let mut wish = Wish::Nothing;
        for code in codes {
            wish = cursor.press(KeyEvent::new(*code, KeyModifiers::NONE), &view);
        }
        wish
    }

    #[test]
    fn keys_move_within_what_is_there() {
        use KeyCode::{BackTab, Char, Down, Tab, Up};
        let mut cursor = Cursor::default();
        press(&mut cursor, &[Down, Down, Char('j')]);
        assert_eq!((cursor.table, cursor.row), (Table::Running, 0));
        press(&mut cursor, &[Tab, Down, Down]);
        assert_eq!((cursor.table, cursor.row), (Table::Waiting, 1));
        press(&mut cursor, &[Up, Char('k'), Tab, Tab]);
        assert_eq!((cursor.table, cursor.row), (Table::Running, 0));
        press(&mut cursor, &[BackTab]);
        assert_eq!(cursor.table, Table::Failed);
    }

    #[test]
    fn a_cancellation_is_asked_for_first() {
        let mut cursor = Cursor::default();
        assert_eq!(press(&mut cursor, &[KeyCode::Char('c')]), Wish::Nothing);
        assert!(matches!(cursor.mode, Mode::Confirm(..)));
        assert_eq!(press(&mut cursor, &[KeyCode::Char('n')]), Wish::Nothing);
        let id = example().running[0].job_id;
        let wish = press(&mut cursor, &[KeyCode::Char('c'), KeyCode::Char('y')]);
        assert_eq!(wish, Wish::Do(Action::Cancel(id)));
    }

    #[test]
    fn a_filter_is_typed_and_given_up() {
        use KeyCode::{Backspace, Char, Enter, Esc};
        let mut cursor = Cursor::default();
        let typed = [Char('/'), Char('q'), Char('x'), Backspace, Enter];
        assert_eq!(press(&mut cursor, &typed), Wish::Look);
        assert_eq!(cursor.subject.filter, "q");
        press(&mut cursor, &[Char('/'), Char('z'), Esc]);
        assert_eq!(
            (cursor.subject.filter.as_str(), &cursor.mode),
            ("q", &Mode::Choosing)
        );
    }

    #[test]
    fn enter_opens_a_job_and_escape_closes_it_before_it_ends() {
        use KeyCode::{Enter, Esc};
        let mut cursor = Cursor::default();
        assert_eq!(press(&mut cursor, &[Enter]), Wish::Look);
        assert_eq!(cursor.subject.open, Some(example().running[0].job_id));
        assert_eq!(press(&mut cursor, &[Esc]), Wish::Look);
        assert_eq!(press(&mut cursor, &[Esc]), Wish::End);
    }
}
