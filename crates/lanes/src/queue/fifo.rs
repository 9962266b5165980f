//! A first-in, first-out queue that never moves more than a block of entries.
//!
//! A growing ring copies all it holds, under its lane's lock: with a million jobs queued, that is a frame missed. So the
//! entries lie in blocks. The first block grows like any ring, since most queues are short; then block follows block, and
//! a block that runs empty goes, except for one that is kept for the next. So a burst gives its memory back, and a
//! queue whose length goes up and down about a block's end does not ask for memory each time.

use std::collections::VecDeque;

use super::steps::step;

/// How many entries a block has; with entries of 16 bytes, two pages.
pub(super) const BLOCK: usize = 512;

pub(super) struct Fifo<T> {
    /// All but the last are full or were; none but an only one is empty.
    blocks: VecDeque<VecDeque<T>>,
    /// An empty block of full capacity.
    spare: Option<VecDeque<T>>,
    length: usize,
}

impl<T> Fifo<T> {
    pub(super) fn new() -> Fifo<T> {
        Fifo {
            blocks: VecDeque::new(),
            spare: None,
            length: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        step();
        self.length += 1;
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK => block.push_back(entry),
            _ => self.push_block(entry),
        }
    }

    #[cold]
    fn push_block(&mut self, entry: T) {
        let mut block = match self.spare.take() {
            Some(spare) => spare,
            None if self.blocks.is_empty() => VecDeque::new(),
            None => VecDeque::with_capacity(BLOCK),
        };
        block.push_back(entry);
        self.blocks.push_back(block);
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        step();
        self.blocks.front()?.front()
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        step();
        let block = self.blocks.front_mut()?;
        let entry = block.pop_front()?;
        self.length -= 1;
        if block.is_empty() && self.blocks.len() > 1 {
            self.pop_block();
        }
        Some(entry)
    }

    #[cold]
    fn pop_block(&mut self) {
        self.spare = self.blocks.pop_front();
        if self.blocks.len() * 4 < self.blocks.capacity() {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
    }

    /// How many entries there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let blocks = self.blocks.iter().chain(&self.spare);
        blocks.map(VecDeque::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_in_is_first_out_over_many_blocks() {
        let mut fifo = Fifo::new();
        let (mut pushed, mut popped) = (0, 0);
        for round in 0..200_usize {
            for _ in 0..round * 7 % 1500 {
                fifo.push(pushed);
                pushed += 1;
            }
            for _ in 0..round * 5 % 1300 {
                let expected = (popped < pushed).then_some(popped);
                assert_eq!(fifo.front().copied(), expected);
                assert_eq!(fifo.pop(), expected);
                popped += usize::from(expected.is_some());
            }
            assert_eq!(fifo.len(), pushed - popped);
        }
        assert!(pushed > 10 * BLOCK);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let mut fifo = Fifo::new();
        for entry in 0..1_000_000 {
            fifo.push(entry);
        }
        assert!(fifo.capacity() >= 1_000_000);
        while fifo.pop().is_some() {}
        assert!(fifo.capacity() <= 2 * BLOCK, "{}", fifo.capacity());
        assert!(fifo.blocks.capacity() <= 16, "{}", fifo.blocks.capacity());
    }

    #[test]
    fn churn_needs_no_more_memory_than_the_most_it_held() {
        let mut fifo = Fifo::new();
        for entry in 0..BLOCK {
            fifo.push(entry);
        }
        for entry in 0..100 * BLOCK {
            fifo.push(entry);
            fifo.pop();
            assert!(fifo.capacity() <= 3 * BLOCK);
        }
    }
}
