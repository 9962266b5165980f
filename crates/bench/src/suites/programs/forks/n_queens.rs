//! In how many ways so many queens can stand on a board: a loop over the columns of each of the first rows.

use jobtree::par;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::suites::programs::program::{Program, Scale};

pub struct Input {
    queens: u32,
}

/// In so many rows the columns are tried at the same time.
const PARALLEL_ROWS: u32 = 3;

pub fn program(scale: Scale) -> Program<Input> {
    let queens = scale.pick(10, 6);
    Program::new("board", 1, Input { queens })
        .sequential(|input| sequential(Board::new(input.queens)))
        .ours(|input| ours(Board::new(input.queens)))
        .rayon(|input| by_rayon(Board::new(input.queens)))
}

/// The columns that are taken in the next row, a bit each.
#[derive(Clone, Copy)]
struct Board {
    size: u32,
    row: u32,
    columns: u32,
    left: u32,
    right: u32,
}

impl Board {
    fn new(size: u32) -> Self {
        Self {
            size,
            row: 0,
            columns: 0,
            left: 0,
            right: 0,
        }
    }

    fn is_free(&self, column: u32) -> bool {
        (self.columns | self.left | self.right) & (1 << column) == 0
    }

    fn with(&self, column: u32) -> Self {
        let queen = 1 << column;
        Self {
            size: self.size,
            row: self.row + 1,
            columns: self.columns | queen,
            left: (self.left | queen) << 1,
            right: (self.right | queen) >> 1,
        }
    }
}

fn sequential(board: Board) -> u64 {
    if board.row == board.size {
        return 1;
    }
    let free = (0..board.size).filter(|column| board.is_free(*column));
    free.map(|column| sequential(board.with(column))).sum()
}

fn ours(board: Board) -> u64 {
    if board.row == PARALLEL_ROWS {
        return sequential(board);
    }
    let free = par::over(0..board.size).filter(|column| board.is_free(*column));
    free.map(|column| ours(board.with(column))).sum()
}

fn by_rayon(board: Board) -> u64 {
    if board.row == PARALLEL_ROWS {
        return sequential(board);
    }
    let free = (0..board.size)
        .into_par_iter()
        .filter(|column| board.is_free(*column));
    free.map(|column| by_rayon(board.with(column))).sum()
}
