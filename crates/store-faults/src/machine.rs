//! A machine with one disk and one folder on it: its files, who has them open, what is to go wrong and when.
//!
//! All of it is safe code behind one lock; `vfs.rs` translates SQLite's calls into these. A call comes with the boot
//! in which its handle was opened: handles from before a power cut belong to processes that are gone, and every call
//! on them fails, as nothing of such a process can reach the disk.

use std::collections::HashMap;

use rusqlite::ffi;

use crate::inode::{Inode, Survival};
use crate::locks::{FileLocks, HandleId, Level, ShmLocks};
use crate::rng::Rng;
use crate::shm::Region;

/// Names a file whatever its name in the folder; never used twice.
pub(crate) type InodeId = u64;

/// What SQLite gets to see of an error: one of its result codes.
pub(crate) type Code = std::os::raw::c_int;

/// What can go wrong while the power is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// ENOSPC: a write that would make a file longer fails, after a part of it was written.
    NoSpace,
    /// EIO on a write, after a part of it was written.
    WriteError,
    /// EIO on a sync. What was not written back by then is lost, although reads show it until the next power cut, and
    /// later syncs succeed: this is what Linux does.
    SyncError,
    /// EIO on a read.
    ReadError,
}

/// A fault that is to come.
#[derive(Clone, Copy, Debug)]
struct Planned {
    fault: Fault,
    /// So many operations that it could strike go well before.
    after: u64,
    /// Then so many are struck.
    times: u64,
}

/// A change of the folder that no sync of the folder has confirmed.
#[derive(Clone, Debug)]
enum FolderChange {
    Link(String, InodeId),
    Unlink(String),
}

/// What lives in main memory beside a file, and so ends with the power.
#[derive(Default)]
struct Volatile {
    locks: FileLocks,
    shm_locks: ShmLocks,
    regions: Vec<Region>,
    shm_users: usize,
}

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) id: HandleId,
    pub(crate) boot: u64,
    inode: InodeId,
    /// The first sync of a new journal or log makes the folder's changes durable with it, as SQLite's own file system
    /// does: without its name, the contents would be of no use.
    syncs_folder: bool,
    delete_on_close: Option<String>,
    uses_shm: bool,
}

/// The machine.
pub(crate) struct Machine {
    inodes: HashMap<InodeId, Inode>,
    /// How many handles hold each file: one without a name goes with the last of them.
    open: HashMap<InodeId, usize>,
    volatile: HashMap<InodeId, Volatile>,
    folder: HashMap<String, InodeId>,
    durable_folder: HashMap<String, InodeId>,
    folder_changes: Vec<FolderChange>,
    planned: Vec<Planned>,
    struck: HashMap<Fault, u64>,
    power_fails_after: Option<(u64, u64)>,
    operations: u64,
    syncs: u64,
    boot: u64,
    on: bool,
    next_id: u64,
    sector: usize,
    rng: Rng,
}

impl Machine {
    pub(crate) fn new(sector: usize) -> Self {
        Self {
            inodes: HashMap::new(),
            open: HashMap::new(),
            volatile: HashMap::new(),
            folder: HashMap::new(),
            durable_folder: HashMap::new(),
            folder_changes: Vec::new(),
            planned: Vec::new(),
            struck: HashMap::new(),
            power_fails_after: None,
            operations: 0,
            syncs: 0,
            boot: 0,
            on: true,
            next_id: 0,
            sector,
            rng: Rng::new(0),
        }
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    // ---- What the test does to it.

    pub(crate) fn plan(&mut self, fault: Fault, after: u64, times: u64) {
        self.planned.push(Planned {
            fault,
            after,
            times,
        });
    }

    pub(crate) fn heal(&mut self) {
        self.planned.clear();
    }

    pub(crate) fn struck(&self, fault: Fault) -> u64 {
        self.struck.get(&fault).copied().unwrap_or(0)
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.inodes.values().map(Inode::unsynced).sum()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn plan_power_cut(&mut self, after: u64, seed: u64) {
        self.power_fails_after = Some((after, seed));
    }

    pub(crate) fn power_cut(&mut self, seed: u64) {
        let mut rng = Rng::new(seed);
        for change in std::mem::take(&mut self.folder_changes) {
            if rng.coin() {
                change.apply_to(&mut self.durable_folder);
            }
        }
        self.folder.clone_from(&self.durable_folder);
        let named: std::collections::HashSet<_> = self.folder.values().copied().collect();
        self.inodes.retain(|id, _| named.contains(id));
        // In the order of their ids: the order of a hash map differs from run to run, and the seed decides alone.
        let mut ids: Vec<_> = named.into_iter().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(inode) = self.inodes.get_mut(&id) {
                inode.lose_power(Survival::choose(&mut rng), self.sector, &mut rng);
            }
        }
        self.open.clear();
        // Locks and shared memory are gone; a handle that mapped a region keeps the memory itself alive.
        self.volatile.clear();
        self.power_fails_after = None;
        self.boot += 1;
        self.on = false;
    }

    /// All processes end at once; the system and its cache live on.
    pub(crate) fn kill(&mut self) {
        self.open.clear();
        self.volatile.clear();
        self.boot += 1;
        let ids: Vec<_> = self.inodes.keys().copied().collect();
        for id in ids {
            self.drop_if_unreachable(id);
        }
    }

    pub(crate) fn power_on(&mut self) {
        self.on = true;
    }

    pub(crate) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inode = &self.inodes[self.folder.get(name)?];
        let mut bytes = vec![0; inode.len()];
        inode.read(0, &mut bytes);
        Some(bytes)
    }

    // ---- What every operation passes first.

    /// An operation that changes the disk. A planned power cut comes before it, so it never took place.
    fn count_operation(&mut self) -> Result<(), Code> {
        if let Some((left, seed)) = self.power_fails_after {
            if left == 0 {
                self.power_cut(seed);
                return Err(ffi::SQLITE_IOERR);
            }
            self.power_fails_after = Some((left - 1, seed));
        }
        self.operations += 1;
        Ok(())
    }

    fn strikes(&mut self, fault: Fault) -> bool {
        let Some(index) = self
            .planned
            .iter()
            .position(|planned| planned.fault == fault)
        else {
            return false;
        };
        let planned = &mut self.planned[index];
        if planned.after > 0 {
            planned.after -= 1;
            return false;
        }
        planned.times -= 1;
        if planned.times == 0 {
            self.planned.remove(index);
        }
        *self.struck.entry(fault).or_default() += 1;
        true
    }

    fn alive(&self, handle: &Handle, code: Code) -> Result<(), Code> {
        if self.on && handle.boot == self.boot {
            Ok(())
        } else {
            Err(code)
        }
    }

    fn inode(&mut self, handle: &Handle) -> &mut Inode {
        self.inodes
            .get_mut(&handle.inode)
            .expect("an open file has its contents while its boot lasts")
    }

    // ---- The folder.

    pub(crate) fn open(&mut self, name: Option<&str>, flags: Code) -> Result<Handle, Code> {
        if !self.on {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
        let is_log = flags
            & (ffi::SQLITE_OPEN_WAL
                | ffi::SQLITE_OPEN_MAIN_JOURNAL
                | ffi::SQLITE_OPEN_SUPER_JOURNAL)
            != 0;
        let mut created = false;
        let existing = name.and_then(|name| self.folder.get(name).copied());
        let inode = match (existing, name) {
            (Some(_), Some(_)) if create && flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0 => {
                return Err(ffi::SQLITE_CANTOPEN);
            }
            (Some(inode), _) => inode,
            (None, Some(_)) if !create => return Err(ffi::SQLITE_CANTOPEN),
            (None, name) => {
                let inode = self.fresh_id();
                if let Some(name) = name {
                    self.count_operation().map_err(|_| ffi::SQLITE_CANTOPEN)?;
                    self.change_folder(FolderChange::Link(name.to_owned(), inode));
                    created = true;
                }
                self.inodes.insert(inode, Inode::default());
                inode
            }
        };
        *self.open.entry(inode).or_default() += 1;
        let delete_on_close = flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
        Ok(Handle {
            id: self.fresh_id(),
            boot: self.boot,
            inode,
            syncs_folder: created && is_log,
            delete_on_close: name.filter(|_| delete_on_close).map(str::to_owned),
            uses_shm: false,
        })
    }

    pub(crate) fn close(&mut self, handle: &Handle) {
        if handle.boot != self.boot {
            return;
        }
        if let Some(volatile) = self.volatile.get_mut(&handle.inode) {
            volatile.locks.lower(handle.id, ffi::SQLITE_LOCK_NONE);
            volatile.shm_locks.forget(handle.id);
        }
        if let Some(name) = &handle.delete_on_close
            && self.folder.contains_key(name)
        {
            self.change_folder(FolderChange::Unlink(name.clone()));
        }
        if let Some(open) = self.open.get_mut(&handle.inode) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&handle.inode);
                self.volatile.remove(&handle.inode);
                self.drop_if_unreachable(handle.inode);
            }
        }
    }

    pub(crate) fn delete(&mut self, name: &str, sync_folder: bool) -> Result<(), Code> {
        if !self.on {
            return Err(ffi::SQLITE_IOERR_DELETE);
        }
        let Some(inode) = self.folder.get(name).copied() else {
            return Err(ffi::SQLITE_IOERR_DELETE_NOENT);
        };
        self.count_operation()
            .map_err(|_| ffi::SQLITE_IOERR_DELETE)?;
        self.change_folder(FolderChange::Unlink(name.to_owned()));
        if sync_folder {
            self.sync_folder();
        }
        self.drop_if_unreachable(inode);
        Ok(())
    }

    /// As SQLite's own file system: an empty file counts as none.
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.folder
            .get(name)
            .is_some_and(|inode| self.inodes[inode].len() > 0)
    }

    fn change_folder(&mut self, change: FolderChange) {
        change.apply_to(&mut self.folder);
        self.folder_changes.push(change);
    }

    fn sync_folder(&mut self) {
        for change in std::mem::take(&mut self.folder_changes) {
            change.apply_to(&mut self.durable_folder);
        }
        let ids: Vec<_> = self.inodes.keys().copied().collect();
        for id in ids {
            self.drop_if_unreachable(id);
        }
    }

    /// Forgets a file that nobody has open and that no power cut can bring back.
    fn drop_if_unreachable(&mut self, inode: InodeId) {
        let linked =
            |change: &FolderChange| matches!(change, FolderChange::Link(_, id) if *id == inode);
        let reachable = self.open.contains_key(&inode)
            || self.folder.values().any(|id| *id == inode)
            || self.durable_folder.values().any(|id| *id == inode)
            || self.folder_changes.iter().any(linked);
        if !reachable {
            self.inodes.remove(&inode);
        }
    }

    // ---- Files.

    pub(crate) fn read(&mut self, handle: &Handle, at: usize, into: &mut [u8]) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_READ)?;
        if self.strikes(Fault::ReadError) {
            return Err(ffi::SQLITE_IOERR_READ);
        }
        if self.inode(handle).read(at, into) {
            Ok(())
        } else {
            Err(ffi::SQLITE_IOERR_SHORT_READ)
        }
    }

    pub(crate) fn write(&mut self, handle: &Handle, at: usize, bytes: &[u8]) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_WRITE)?;
        self.count_operation()
            .map_err(|_| ffi::SQLITE_IOERR_WRITE)?;
        let grows = at + bytes.len() > self.inode(handle).len();
        let code = if grows && self.strikes(Fault::NoSpace) {
            Some(ffi::SQLITE_FULL)
        } else if self.strikes(Fault::WriteError) {
            Some(ffi::SQLITE_IOERR_WRITE)
        } else {
            None
        };
        match code {
            None => {
                self.inode(handle).write(at, bytes);
                Ok(())
            }
            Some(code) => {
                let part = self.rng.below(bytes.len() as u64) as usize;
                if part > 0 {
                    self.inode(handle).write(at, &bytes[..part]);
                }
                Err(code)
            }
        }
    }

    pub(crate) fn resize(&mut self, handle: &Handle, len: usize) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_TRUNCATE)?;
        self.count_operation()
            .map_err(|_| ffi::SQLITE_IOERR_TRUNCATE)?;
        self.inode(handle).resize(len);
        Ok(())
    }

    pub(crate) fn sync(&mut self, handle: &mut Handle) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_FSYNC)?;
        self.count_operation()
            .map_err(|_| ffi::SQLITE_IOERR_FSYNC)?;
        if self.strikes(Fault::SyncError) {
            let mut rng = Rng::new(self.rng.next());
            let sector = self.sector;
            self.inode(handle).fail_to_sync(sector, &mut rng);
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }

        self.syncs += 1;
        self.inode(handle).sync();
        if std::mem::take(&mut handle.syncs_folder) {
            self.sync_folder();
        }
        Ok(())
    }

    pub(crate) fn len(&mut self, handle: &Handle) -> Result<usize, Code> {
        self.alive(handle, ffi::SQLITE_IOERR_FSTAT)?;
        Ok(self.inode(handle).len())
    }

    pub(crate) fn sector(&self) -> usize {
        self.sector
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.rng.next()
    }

    // ---- Locks and shared memory.

    fn volatile(&mut self, handle: &Handle) -> &mut Volatile {
        self.volatile.entry(handle.inode).or_default()
    }

    pub(crate) fn lock(&mut self, handle: &Handle, level: Level) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_LOCK)?;
        if self.volatile(handle).locks.raise(handle.id, level) {
            Ok(())
        } else {
            Err(ffi::SQLITE_BUSY)
        }
    }

    pub(crate) fn unlock(&mut self, handle: &Handle, level: Level) {
        if handle.boot == self.boot {
            self.volatile(handle).locks.lower(handle.id, level);
        }
    }

    pub(crate) fn reserved(&mut self, handle: &Handle) -> Result<bool, Code> {
        self.alive(handle, ffi::SQLITE_IOERR_LOCK)?;
        Ok(self.volatile(handle).locks.reserved())
    }

    /// A page of the shared memory; `None` if it does not exist and is not to be made.
    pub(crate) fn shm_region(
        &mut self,
        handle: &mut Handle,
        index: usize,
        size: usize,
        extend: bool,
    ) -> Result<Option<Region>, Code> {
        self.alive(handle, ffi::SQLITE_IOERR_SHMMAP)?;
        let first_use = !std::mem::replace(&mut handle.uses_shm, true);
        let volatile = self.volatile(handle);
        volatile.shm_users += usize::from(first_use);
        if extend {
            while volatile.regions.len() <= index {
                volatile.regions.push(Region::zeroed(size));
            }
        }
        Ok(volatile.regions.get(index).cloned())
    }

    pub(crate) fn shm_lock(
        &mut self,
        handle: &Handle,
        first: usize,
        count: usize,
        exclusive: bool,
    ) -> Result<(), Code> {
        self.alive(handle, ffi::SQLITE_IOERR_SHMLOCK)?;
        let locks = &mut self.volatile(handle).shm_locks;
        if locks.lock(handle.id, first, count, exclusive) {
            Ok(())
        } else {
            Err(ffi::SQLITE_BUSY)
        }
    }

    pub(crate) fn shm_unlock(&mut self, handle: &Handle, first: usize, count: usize) {
        if handle.boot == self.boot {
            self.volatile(handle)
                .shm_locks
                .unlock(handle.id, first, count);
        }
    }

    pub(crate) fn shm_unmap(&mut self, handle: &mut Handle, delete: bool) {
        if handle.boot != self.boot || !std::mem::take(&mut handle.uses_shm) {
            return;
        }
        let id = handle.id;
        let volatile = self.volatile(handle);
        volatile.shm_locks.forget(id);
        volatile.shm_users -= 1;
        if delete && volatile.shm_users == 0 {
            volatile.regions.clear();
        }
    }
}

impl FolderChange {
    fn apply_to(&self, folder: &mut HashMap<String, InodeId>) {
        match self {
            Self::Link(name, inode) => folder.insert(name.clone(), *inode),
            Self::Unlink(name) => folder.remove(name),
        };
    }
}
