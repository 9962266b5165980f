//! A cell's program, in its own process.

use std::process::ExitCode;
use std::thread;

use crate::behaviour::Behaviour;
use crate::canary;
use crate::place::Place;
use crate::places;
use crate::stage::Stage;

/// The beginning of the last line that a cell's program prints. The number of runs follows.
pub const MARKER: &str = "cell done, user code ran: ";

/// The numbers of workers that each cell is tried with.
pub const WORKERS: [usize; 2] = [1, 2];

/// One cell of the matrix.
#[derive(Clone, Copy)]
pub struct Cell {
    pub place: &'static Place,
    pub behaviour: Behaviour,
    pub workers: usize,
}

impl Cell {
    /// Every cell, applicable or not.
    pub fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for place in places::all() {
            for &behaviour in Behaviour::ALL {
                for workers in WORKERS {
                    cells.push(Cell {
                        place,
                        behaviour,
                        workers,
                    });
                }
            }
        }
        cells
    }

    /// The name by which it can be run: `family/place/behaviour/workers`.
    pub fn name(&self) -> String {
        format!(
            "{}/{}/{}",
            self.place.name,
            self.behaviour.name(),
            self.workers
        )
    }
}

/// Runs the cell of this name.
pub fn run(name: &str) -> ExitCode {
    let Some(cell) = Cell::all().into_iter().find(|cell| cell.name() == name) else {
        eprintln!("there is no cell {name}");
        return ExitCode::from(2);
    };
    let stage = Stage::new(cell.behaviour, cell.workers);
    let performer = thread::Builder::new().name("performer".to_owned());
    let performer = performer
        .spawn({
            let stage = stage.clone();
            move || (cell.place.run)(&stage)
        })
        .unwrap();
    if cell.behaviour == Behaviour::Hold {
        // The body of a job of the cell's own runtime, and not of the global one.
        let name = cell.place.name;
        let is_body = name.starts_with("closure/") && !name.starts_with("closure/outside");
        stage.check_held(is_body);
    }
    if let Err(payload) = performer.join() {
        std::mem::forget(payload);
        eprintln!("the program of the cell panicked");
        return ExitCode::from(101);
    }
    stage.end();
    canary::check_everything();
    println!("{MARKER}{}", stage.runs());
    ExitCode::SUCCESS
}
