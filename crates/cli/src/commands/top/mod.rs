//! `jobtree top`: load, capacity, what runs and what waits, live in a terminal.

mod draw;
mod look;

use std::io::IsTerminal;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{ArgMatches, Command};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::draw::{Cursor, draw};
use self::look::{View, look};
use crate::args::{self, flag, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// How often it asks if nothing is said.
const EVERY: Duration = Duration::from_secs(1);
/// How soon a key is heard.
const KEYS: Duration = Duration::from_millis(100);

pub fn define(command: Command) -> Command {
    command
        .about("Watch load, capacity, running and waiting jobs, live")
        .after_help("Keys: arrows or j and k move, Tab changes the table, q ends.")
        .arg(flag("once", "Print one frame, and end"))
        .arg(value("every", "DURATION", "How often it looks [1s]"))
        .arg(value("width", "N", "The width of the one frame [100]").requires("once"))
        .arg(value("height", "N", "The height of the one frame [30]").requires("once"))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let first = look(&client)?;
    if context.out.json {
        context.out.document(&first.status)?;
        return Ok(Exit::OK);
    }
    if arguments.get_flag("once") {
        let width = args::read(arguments, "width")?.unwrap_or(100);
        let height = args::read(arguments, "height")?.unwrap_or(30);
        context.out.raw(&frame(&first, width, height)?)?;
        return Ok(Exit::OK);
    }
    if !std::io::stdout().is_terminal() {
        return Err(CliError::usage("top needs a terminal").hint("use --once, or --json"));
    }
    let every = args::duration(arguments, "every")?.unwrap_or(EVERY);
    let (tell, views) = mpsc::channel();
    // It ends with the process; a daemon that is gone for a while is told of in the frame.
    thread::spawn(move || {
        loop {
            thread::sleep(every);
            let seen = look(&client).map_err(|error| error.to_string());
            if tell.send(seen).is_err() {
                return;
            }
        }
    });
    let mut terminal = ratatui::try_init()
        .map_err(|error| CliError::failed(format!("the terminal cannot be used: {error}")))?;
    let ended = show(&mut terminal, first, &views);
    ratatui::restore();
    ended.map(|()| Exit::OK)
}

/// Until somebody has seen enough.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut view: View,
    views: &mpsc::Receiver<Result<View, String>>,
) -> Result<(), CliError> {
    let mut cursor = Cursor::default();
    loop {
        terminal.draw(|frame| draw(frame, &view, &mut cursor))?;
        if event::poll(KEYS)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(());
                }
                KeyCode::Down | KeyCode::Char('j') => cursor.down(&view),
                KeyCode::Up | KeyCode::Char('k') => cursor.up(),
                KeyCode::Tab | KeyCode::Left | KeyCode::Right => cursor.other(),
                _ => {}
            }
        }
        // The newest counts.
        while let Ok(seen) = views.try_recv() {
            match seen {
                Ok(seen) => view = seen,
                Err(error) => view.error = Some(error),
            }
        }
    }
}

/// One frame as text.
fn frame(view: &View, width: u16, height: u16) -> Result<String, CliError> {
    let mut terminal = match Terminal::new(TestBackend::new(width, height)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| draw(frame, view, &mut Cursor::default())) {
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

    #[test]
    fn a_frame_shows_what_runs_and_what_waits() {
        let text = frame(&look::example(), 100, 24).unwrap();
        for part in [
            "local", "NORMAL", "busy 3.5", "80 units", "Running", "Waiting", "photos", "index",
            "42 %", "2 QUEUED",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        // Whatever the size, nothing panics.
        for (width, height) in [(1, 1), (10, 3), (40, 10), (300, 80)] {
            frame(&look::example(), width, height).unwrap();
        }
    }

    #[test]
    fn a_daemon_that_is_gone_is_told_of() {
        let mut view = look::example();
        view.error = Some("error: no daemon answers".into());
        assert!(frame(&view, 100, 24).unwrap().contains("no daemon answers"));
    }
}
