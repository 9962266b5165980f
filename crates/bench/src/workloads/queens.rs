//! All ways to put n queens on a board: at each row the candidate columns are split in halves until one is left, so
//! forks are many, small and of very different weight.

use crate::sides::on_every_side;

/// The largest board.
const LARGEST: usize = 16;

/// The queens placed so far: the column of each row's queen.
#[derive(Clone, Copy, Debug)]
pub struct Board {
    columns: [u8; LARGEST],
    rows: usize,
}

impl Board {
    fn empty() -> Self {
        Self {
            columns: [0; LARGEST],
            rows: 0,
        }
    }

    /// The board with a queen more, unless another one would take it.
    fn with(&self, column: usize) -> Option<Self> {
        for (row, &taken) in self.columns[..self.rows].iter().enumerate() {
            let distance = self.rows - row;
            if usize::from(taken).abs_diff(column) == distance || usize::from(taken) == column {
                return None;
            }
        }
        let mut board = *self;
        board.columns[board.rows] = column as u8;
        board.rows += 1;
        Some(board)
    }
}

/// How many calls of `solve` a board of `size` needs, to know the cost of one.
pub fn calls(size: usize) -> u64 {
    fn count(size: usize, board: &Board, from: usize, to: usize) -> u64 {
        let below = match to - from {
            1 => match board.with(from) {
                Some(next) if next.rows < size => count(size, &next, 0, size),
                _ => 0,
            },
            width => {
                let middle = from + width / 2;
                count(size, board, from, middle) + count(size, board, middle, to)
            }
        };
        below + 1
    }
    count(size, &Board::empty(), 0, size)
}

on_every_side! {
    input usize;

    fn run(context, input: &mut usize) -> u64 {
        solve(context, *input, &Board::empty(), 0, *input)
    }

    fn solve(context, size: usize, board: &Board, from: usize, to: usize) -> u64 {
        if to - from == 1 {
            return match board.with(from) {
                Some(next) if next.rows == size => 1,
                Some(next) => solve(context, size, &next, 0, size),
                None => 0,
            };
        }
        let middle = from + (to - from) / 2;
        let (left, right) = join(
            context,
            |context| solve(context, size, board, from, middle),
            |context| solve(context, size, board, middle, to),
        );
        left + right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_known_numbers_of_solutions() {
        for (size, solutions) in [(1, 1), (4, 2), (6, 4), (8, 92)] {
            assert_eq!(
                sequential::run((), &mut { size }),
                solutions,
                "{size} queens"
            );
        }
    }

    #[test]
    fn it_counts_its_calls() {
        // One queen: one call. Two: each of the first row's two columns is one call, and leads to three more.
        assert_eq!(calls(1), 1);
        assert_eq!(calls(2), 1 + 2 * (1 + 3));
    }
}
