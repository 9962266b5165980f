//! SQLite's side: the tables of functions that it calls, and what each pointer in them means.
//!
//! Protocol. `Registered` owns a leaked `sqlite3_vfs` whose `pAppData` points to an `Arc<Shared>`'s content that is
//! leaked with it: connections hold the vfs's address until they are closed, which nothing here can wait for, so these
//! few hundred bytes stay for the life of the process. Each open file is a `File` in memory that SQLite allocates
//! (`szOsFile` bytes) and never moves; `xOpen` puts a boxed `Open` into it, and `xClose` takes it out. SQLite calls the
//! methods of one file from one thread at a time.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::ffi;

use crate::machine::{Code, Handle, Machine};
use crate::shm::Region;

/// The machine and its lock.
pub(crate) struct Shared(Mutex<Machine>);

impl Shared {
    pub(crate) fn new(machine: Machine) -> Self {
        Self(Mutex::new(machine))
    }

    /// A test that panicked elsewhere leaves the machine as it is: every method keeps it consistent.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A vfs that SQLite knows by its name.
pub(crate) struct Registered {
    vfs: *mut ffi::sqlite3_vfs,
}

// SAFETY: the pointer is only passed to SQLite's register functions, which lock.
unsafe impl Send for Registered {}
// SAFETY: as above; `&Registered` allows nothing at all.
unsafe impl Sync for Registered {}

impl Registered {
    pub(crate) fn new(name: &str, shared: Arc<Shared>) -> Self {
        let name = CString::new(name).expect("a vfs name has no zero byte");
        let vfs = Box::into_raw(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<File>() as c_int,
            mxPathname: 512,
            pNext: ptr::null_mut(),
            zName: name.into_raw(),
            pAppData: Arc::into_raw(shared).cast_mut().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the structure, its name and its data are leaked, so valid for ever; SQLite may change it from now on,
        // and nobody else does. Loading extensions, which needs the missing functions, is off in every connection
        // that does not ask for it.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite registers the vfs");
        Self { vfs }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the pointer is the one that was registered, and still valid as it is never freed.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
    }
}

/// What SQLite allocates for each open file. Its first field is SQLite's own part.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    open: *mut Open,
}

struct Open {
    shared: Arc<Shared>,
    handle: Handle,
    /// Keeps what SQLite has mapped alive, also when the machine has forgotten it in a power cut.
    mapped: Vec<Region>,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn code(result: Result<(), Code>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// # Safety
/// `vfs` is the one of a `Registered`.
unsafe fn shared_of<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Shared {
    // SAFETY: the caller's promise; `pAppData` comes from `Arc::into_raw`, and that count is never given back.
    unsafe { &*(*vfs).pAppData.cast::<Shared>() }
}

/// # Safety
/// `file` was filled by `open` and not yet passed to `close`, and no other reference of it is in use: SQLite calls the
/// methods of a file one after the other.
unsafe fn open_of<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    // SAFETY: the caller's promise: `File` begins with the base, and `open` holds the box that `open` put there.
    unsafe { &mut *(*file.cast::<File>()).open }
}

/// # Safety
/// `name` is a string that ends with zero, valid for `'a`.
unsafe fn name_of<'a>(name: *const c_char) -> &'a str {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().unwrap_or("not UTF-8")
}

// For all functions below: SQLite calls them, with the arguments that its documentation promises for each. That is the
// safety contract of each of them, and the reason named in their blocks.

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: SQLite gives `szOsFile` writable bytes, aligned for anything. Without methods it will not call `close`.
    unsafe { (*file).base.pMethods = ptr::null() };
    // SAFETY: this vfs is ours, as it holds this function; no connection outlives the leaked structure.
    let raw = unsafe { (*vfs).pAppData.cast::<Shared>() };
    // SAFETY: the pointer comes from `Arc::into_raw`, whose count is never given back, so the count may be raised; the
    // new `Arc` owns that raise.
    let shared = unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    };
    // SAFETY: null means a file without a name; else it is a valid string.
    let name = (!name.is_null()).then(|| unsafe { name_of(name) });
    let opened = shared.machine().open(name, flags);
    match opened {
        Err(code) => code,
        Ok(handle) => {
            let open = Box::into_raw(Box::new(Open {
                shared,
                handle,
                mapped: Vec::new(),
            }));
            // SAFETY: as above: the memory is ours to fill.
            unsafe {
                (*file).open = open;
                (*file).base.pMethods = &METHODS;
            }
            if !out_flags.is_null() {
                // SAFETY: it is null or valid.
                unsafe { *out_flags = flags };
            }
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: the box of `open`, which nobody uses after this call.
    let open = unsafe { Box::from_raw((*file).open) };
    open.shared.machine().close(&open.handle);
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    let into = into.cast::<u8>();
    // SAFETY: `into` has room for `amount` bytes, which nobody else uses during the call. They are written first, as a
    // slice of bytes must be initialised, which SQLite does not promise.
    let into = unsafe {
        into.write_bytes(0, amount as usize);
        std::slice::from_raw_parts_mut(into, amount as usize)
    };
    code(open.shared.machine().read(&open.handle, at as usize, into))
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    // SAFETY: `from` has `amount` bytes, which do not change during the call.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), amount as usize) };
    code(
        open.shared
            .machine()
            .write(&open.handle, at as usize, bytes),
    )
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    code(open.shared.machine().resize(&open.handle, size as usize))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    code(open.shared.machine().sync(&mut open.handle))
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    match open.shared.machine().len(&open.handle) {
        Err(code) => code,
        Ok(len) => {
            // SAFETY: a valid place for the answer.
            unsafe { *size = len as ffi::sqlite3_int64 };
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    code(open.shared.machine().lock(&open.handle, level))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    open.shared.machine().unlock(&open.handle, level);
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    match open.shared.machine().reserved(&open.handle) {
        Err(code) => code,
        Ok(reserved) => {
            // SAFETY: a valid place for the answer.
            unsafe { *answer = c_int::from(reserved) };
            ffi::SQLITE_OK
        }
    }
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _operation: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    open.shared.machine().sector() as c_int
}

/// What SQLite's own Unix file system says of an ordinary disk, and no more: above all neither atomic nor sequential.
unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    index: c_int,
    size: c_int,
    extend: c_int,
    answer: *mut *mut c_void,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    let region = open.shared.machine().shm_region(
        &mut open.handle,
        index as usize,
        size as usize,
        extend != 0,
    );
    let (pointer, code) = match region {
        Err(code) => (ptr::null_mut(), code),
        Ok(None) => (ptr::null_mut(), ffi::SQLITE_OK),
        Ok(Some(region)) => {
            let pointer = region.pointer();
            open.mapped.push(region);
            (pointer, ffi::SQLITE_OK)
        }
    };
    // SAFETY: a valid place for the answer.
    unsafe { *answer = pointer };
    code
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    let mut machine = open.shared.machine();
    let (first, count) = (first as usize, count as usize);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        machine.shm_unlock(&open.handle, first, count);
        return ffi::SQLITE_OK;
    }
    let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    code(machine.shm_lock(&open.handle, first, count, exclusive))
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: an open file.
    let open = unsafe { open_of(file) };
    open.shared
        .machine()
        .shm_unmap(&mut open.handle, delete != 0);
    // SQLite uses no pointer of before any more.
    open.mapped.clear();
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    // SAFETY: our vfs, and a valid string.
    let (shared, name) = unsafe { (shared_of(vfs), name_of(name)) };
    code(shared.machine().delete(name, sync_folder != 0))
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: our vfs, and a valid string.
    let (shared, name) = unsafe { (shared_of(vfs), name_of(name)) };
    let exists = shared.machine().exists(name);
    // SAFETY: a valid place for the answer.
    unsafe { *answer = c_int::from(exists) };
    ffi::SQLITE_OK
}

/// There is one folder, so a name is its own full path.
unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    into: *mut c_char,
) -> c_int {
    // SAFETY: a valid string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if bytes.len() > room as usize {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: `into` has `room` bytes, which do not overlap with the name.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), into, bytes.len()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(
    vfs: *mut ffi::sqlite3_vfs,
    amount: c_int,
    into: *mut c_char,
) -> c_int {
    // SAFETY: our vfs.
    let shared = unsafe { shared_of(vfs) };
    let mut machine = shared.machine();
    for index in 0..amount as usize {
        // SAFETY: `into` has `amount` bytes.
        unsafe { into.add(index).write(machine.random() as c_char) };
    }
    amount
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(microseconds.max(0) as u64));
    microseconds
}

fn julian_milliseconds() -> ffi::sqlite3_int64 {
    /// The Unix epoch in SQLite's days since 4714 BC, as milliseconds.
    const UNIX_EPOCH_JULIAN: ffi::sqlite3_int64 = 210_866_760_000_000;
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UNIX_EPOCH_JULIAN + since.as_millis() as ffi::sqlite3_int64
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, answer: *mut f64) -> c_int {
    // SAFETY: a valid place for the answer.
    unsafe { *answer = julian_milliseconds() as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(
    _vfs: *mut ffi::sqlite3_vfs,
    answer: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: a valid place for the answer.
    unsafe { *answer = julian_milliseconds() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(
    _vfs: *mut ffi::sqlite3_vfs,
    _room: c_int,
    _into: *mut c_char,
) -> c_int {
    0
}
