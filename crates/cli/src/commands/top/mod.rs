//! `jobtree top`: load, capacity, what runs, waits and failed, live in a terminal.

mod draw;
mod keys;
mod look;

use std::io::IsTerminal;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::{ArgMatches, Command};
use jobtree_client::Client;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::draw::draw;
use self::keys::{Cursor, Wish};
use self::look::{Action, Subject, View, act, look};
use crate::args::{self, flag, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// How often it asks if nothing is said.
const EVERY: Duration = Duration::from_secs(1);
/// How soon a key is heard.
const KEYS: Duration = Duration::from_millis(50);

pub fn define(command: Command) -> Command {
    command
        .about("Watch load, capacity, running, waiting and failed jobs, live")
        .after_help(
            "Keys:\n  \
             arrows, j, k   move; scroll in a job\n  \
             Tab            the next table\n  \
             Enter          open a job: why it waits, its tree, its log; Esc goes back\n  \
             c              cancel the job, after a question\n  \
             r              retry it now\n  \
             p              pause its addon, or resume it\n  \
             /              filter, in the language of `ls`; empty shows all\n  \
             ?              list the keys\n  \
             q, Ctrl-C      quit",
        )
        .arg(flag("once", "Print one frame, and end"))
        .arg(value("every", "DURATION", "How often it looks [1s]"))
        .arg(value(
            "filter",
            "FILTER",
            "Only these jobs, in the language of `ls`",
        ))
        .arg(value("width", "N", "The width of the one frame [100]").requires("once"))
        .arg(value("height", "N", "The height of the one frame [30]").requires("once"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let mut cursor = Cursor::default();
    cursor.subject.filter = args::get(arguments, "filter").unwrap_or_default().into();
    let first = look(&client, &cursor.subject)?;
    if context.out.json {
        context.out.document(&first.status)?;
        return Ok(Exit::OK);
    }
    if arguments.get_flag("once") {
        let width = args::read(arguments, "width")?.unwrap_or(100);
        let height = args::read(arguments, "height")?.unwrap_or(30);
        context
            .out
            .raw(&frame(&first, &mut cursor, width, height)?)?;
        return Ok(Exit::OK);
    }
    if !std::io::stdout().is_terminal() {
        return Err(CliError::usage("top needs a terminal").hint("use --once, or --json"));
    }
    let every = args::duration(arguments, "every")?.unwrap_or(EVERY);
    let subject = cursor.subject.clone();
    let (wishes, wished) = mpsc::channel();
    let (tell, seen) = mpsc::channel();
    // It ends with the process; a daemon that is gone for a while is told of in the frame.
    thread::spawn(move || ask(&client, every, subject, &wished, &tell));
    let mut terminal = ratatui::try_init()
        .map_err(|error| CliError::failed(format!("the terminal cannot be used: {error}")))?;
    let ended = show(&mut terminal, first, cursor, &wishes, &seen);
    ratatui::restore();
    ended.map(|()| Exit::OK)
}

/// What the terminal asks the thread that talks to the daemon.
enum Asked {
    Look(Subject),
    Do(Action),
}

/// What that thread tells.
enum Seen {
    View(Subject, Result<Box<View>, String>),
    Done(Result<String, String>),
}

/// Talks to the daemon, so that keys never wait for it.
fn ask(
    client: &Client,
    every: Duration,
    mut subject: Subject,
    wished: &Receiver<Asked>,
    tell: &Sender<Seen>,
) {
    loop {
        match wished.recv_timeout(every) {
            Ok(Asked::Look(another)) => subject = another,
            Ok(Asked::Do(action)) => {
                let done = act(client, &action).map_err(|error| error.to_string());
                let _ = tell.send(Seen::Done(done));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let seen = look(client, &subject).map(Box::new);
        let seen = seen.map_err(|error| error.to_string());
        if tell.send(Seen::View(subject.clone(), seen)).is_err() {
            return;
        }
    }
}

/// Until somebody has seen enough.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut view: View,
    mut cursor: Cursor,
    wishes: &Sender<Asked>,
    seen: &Receiver<Seen>,
) -> Result<(), CliError> {
    loop {
        terminal.draw(|frame| draw(frame, &view, &mut cursor))?;
        if event::poll(KEYS)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let asked = match cursor.press(key, &view) {
                Wish::Nothing => None,
                Wish::End => return Ok(()),
                Wish::Look => {
                    view.opened = None;
                    Some(Asked::Look(cursor.subject.clone()))
                }
                Wish::Do(action) => Some(Asked::Do(action)),
            };
            // The thread ends after this one.
            asked.map(|asked| wishes.send(asked));
        }
        // The newest counts, if it is of what is looked at now.
        while let Ok(told) = seen.try_recv() {
            match told {
                Seen::View(subject, Ok(newer)) if subject == cursor.subject => view = *newer,
                Seen::View(subject, Err(error)) if subject == cursor.subject => {
                    view.error = Some(error);
                }
                Seen::View(..) => {}
                Seen::Done(Ok(told)) => cursor.told = Some(told),
                Seen::Done(Err(error)) => {
                    cursor.told = error.lines().next().map(str::to_owned);
                }
            }
        }
    }
}

/// One frame as text.
fn frame(view: &View, cursor: &mut Cursor, width: u16, height: u16) -> Result<String, CliError> {
    let mut terminal = match Terminal::new(TestBackend::new(width, height)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| draw(frame, view, cursor)) {
        Ok(_) => {}
        Err(never) => match never {},
    }
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(width).max(1)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(view: &View, width: u16, height: u16) -> String {
        frame(view, &mut Cursor::default(), width, height).unwrap()
    }

    #[test]
    fn a_frame_shows_what_runs_waits_and_failed() {
        for (width, height) in [(120, 40), (80, 24), (60, 12)] {
            let text = drawn(&look::example(), width, height);
            for part in [
                "local",
                "NORMAL",
                "Running (1)",
                "Waiting (2)",
                "Failed (1)",
                "photos",
                "index",
                "42 %",
                "2 QUEUED",
                "JOB",
                "ADDON",
                "TYPE",
                "COST",
                "FOR",
                "AGO",
                "WHAT",
                "exit code 3",
                "Enter open",
            ] {
                assert!(text.contains(part), "{part:?} is not in\n{text}");
            }
            assert!(
                text.lines()
                    .all(|line| line.chars().count() <= usize::from(width))
            );
        }
        // Whatever the size, nothing panics.
        for (width, height) in [(1, 1), (10, 3), (40, 10), (300, 80)] {
            drawn(&look::example(), width, height);
        }
    }

    #[test]
    fn a_daemon_that_is_gone_is_told_of() {
        let mut view = look::example();
        view.error = Some("error: no daemon answers".into());
        assert!(drawn(&view, 100, 24).contains("no daemon answers"));
    }
}
