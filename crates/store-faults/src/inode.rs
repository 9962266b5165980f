//! One file: what a running system sees of it, and what a power cut would leave.
//!
//! Between two syncs the kernel may have written back any part of the dirty pages, in any order. So a file is what was
//! there at its last sync, and a list of changes since then; a power cut applies any subset of these, in their order,
//! cut at sector boundaries. This allows all that a real disk does whose sectors are written whole, and it never
//! touches a byte outside of a write (SQLite's "powersafe overwrite", which its own Unix file system assumes, too).

use crate::rng::Rng;

/// A change that no sync has confirmed.
#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Resize(usize),
}

/// How the kernel happened to write back before the lights went out. Pure coin flips for each sector would almost
/// never leave a long run whole, or nothing at all, and these are the likeliest in reality.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Survival {
    Nothing,
    Everything,
    SomeWrites,
    SomeSectors,
    /// All up to a change, some sectors of the later ones.
    MostOf,
}

impl Survival {
    pub(crate) fn choose(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 | 3 => Self::SomeWrites,
            4 | 5 => Self::SomeSectors,
            _ => Self::MostOf,
        }
    }
}

/// The contents of a file, live and durable.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

impl Inode {
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// How many changes a power cut may lose.
    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// Fills `into` as far as the file goes, the rest with zeros. Says whether all of it was there.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> bool {
        let from = at.min(self.live.len());
        let there = (self.live.len() - from).min(into.len());
        into[..there].copy_from_slice(&self.live[from..from + there]);
        into[there..].fill(0);
        there == into.len()
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        overlay(&mut self.live, at, bytes);
        self.unsynced.push(Change::Write {
            at,
            bytes: bytes.to_vec(),
        });
    }

    pub(crate) fn resize(&mut self, len: usize) {
        self.live.resize(len, 0);
        self.unsynced.push(Change::Resize(len));
    }

    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            change.apply_to(&mut self.durable);
        }
    }

    /// A sync that failed: the kernel tried, wrote some of it, and then called all pages clean. What is not on the
    /// disk now will never be, although every read still shows it; a second sync will succeed and mean nothing.
    pub(crate) fn fail_to_sync(&mut self, sector: usize, rng: &mut Rng) {
        self.write_back_some(Survival::SomeSectors, sector, rng);
    }

    /// The power fails: some of the changes are on the disk, and it is all that there is.
    pub(crate) fn lose_power(&mut self, survival: Survival, sector: usize, rng: &mut Rng) {
        self.write_back_some(survival, sector, rng);
        self.live.clone_from(&self.durable);
    }

    fn write_back_some(&mut self, survival: Survival, sector: usize, rng: &mut Rng) {
        let changes = std::mem::take(&mut self.unsynced);
        let surely = rng.below(changes.len() as u64 + 1) as usize;
        for (index, change) in changes.into_iter().enumerate() {
            let (whole, torn) = match survival {
                Survival::Nothing => (false, false),
                Survival::Everything => (true, false),
                Survival::SomeWrites => (rng.coin(), false),
                Survival::SomeSectors => (false, true),
                Survival::MostOf => (index < surely, true),
            };
            if whole {
                change.apply_to(&mut self.durable);
            } else if torn {
                change.apply_some_sectors_to(&mut self.durable, sector, rng);
            }
        }
    }
}

impl Change {
    fn apply_to(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => overlay(file, *at, bytes),
            Self::Resize(len) => file.resize(*len, 0),
        }
    }

    fn apply_some_sectors_to(&self, file: &mut Vec<u8>, sector: usize, rng: &mut Rng) {
        match self {
            Self::Resize(_) => {
                if rng.coin() {
                    self.apply_to(file);
                }
            }
            Self::Write { at, bytes } => {
                let mut begin = 0;
                while begin < bytes.len() {
                    let to_boundary = sector - (at + begin) % sector;
                    let end = (begin + to_boundary).min(bytes.len());
                    if rng.coin() {
                        overlay(file, at + begin, &bytes[begin..end]);
                    }
                    begin = end;
                }
            }
        }
    }
}

/// Writes into the file, which grows with zeros up to there if it must.
fn overlay(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_every_cut() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut file = Inode::default();
            file.write(0, &[7; 4096]);
            file.sync();
            file.write(4096, &[8; 4096]);
            file.lose_power(Survival::choose(&mut rng), 512, &mut rng);
            let mut read = [0; 4096];
            assert!(file.read(0, &mut read));
            assert_eq!(read, [7; 4096], "seed {seed}");
        }
    }

    #[test]
    fn unsynced_writes_are_lost_kept_torn_and_reordered() {
        let (mut lost, mut kept, mut torn, mut reordered) = (0, 0, 0, 0);
        for seed in 0..400 {
            let mut rng = Rng::new(seed);
            let mut file = Inode::default();
            file.write(0, &[1; 1024]);
            file.write(1024, &[2; 1024]);
            file.lose_power(Survival::choose(&mut rng), 512, &mut rng);
            let mut read = [0; 2048];
            file.read(0, &mut read);
            let sectors: Vec<u8> = read.chunks(512).map(|sector| sector[0]).collect();
            for sector in read.chunks(512) {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "a sector is written whole"
                );
            }
            match sectors[..] {
                [0, 0, 0, 0] => lost += 1,
                [1, 1, 2, 2] => kept += 1,
                [0, 0, 2, 2] => reordered += 1,
                _ => torn += 1,
            }
        }
        assert!(
            lost > 0 && kept > 0 && torn > 0 && reordered > 0,
            "{lost} {kept} {torn} {reordered}"
        );
    }

    #[test]
    fn after_a_failed_sync_a_second_one_confirms_what_is_not_there() {
        let lied = (0..50).any(|seed| {
            let mut rng = Rng::new(seed);
            let mut file = Inode::default();
            file.write(0, &[1; 2048]);
            file.fail_to_sync(512, &mut rng);
            file.sync();
            let mut before = [0; 2048];
            assert!(
                file.read(0, &mut before),
                "the running system sees its writes"
            );
            file.lose_power(Survival::Everything, 512, &mut rng);
            let mut after = [0; 2048];
            file.read(0, &mut after);
            before != after
        });
        assert!(lied);
    }
}
