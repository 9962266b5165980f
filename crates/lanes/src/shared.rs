//! What the handles to a manager, its jobs and its visits share.
//!
//! It does not keep the runtime: jobs keep this, and the runtime keeps jobs.

use std::future::ready;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, RwLock, Weak};
use std::time::Instant;

use jobtree_runtime::binding::{self, OwnedNursery};
use jobtree_runtime::future::Nursery;
use jobtree_runtime::scheduled::{Description, Prepared, Ran, Tickets, prepare};
use jobtree_runtime::{
    BoxError, CancelCallback, CancelToken, Cause, Clock, Job, JobHandle, Runtime,
};

use crate::Priority;
use crate::bodies::{Action, JobBody, Launched, Launcher};
use crate::cells::{LaneCell, LaneRef};
use crate::guests::Guests;
use crate::handle::LaneHandle;
use crate::header::{JobHeader, JobTurn, LaneHeader};
use crate::job::{About, LaneJob};
use crate::lane::{FrameLane, Lane};
use crate::lock::lock;
use crate::moment::Moment;
use crate::notices::{Listener, Notices};
use crate::padded::Padded;
use crate::remote::{RemoteGate, RemoteTransport};
use crate::settings::Settings;
use crate::slots::{NoSlot, SlotKeeper};
use crate::tracker::Tracking;

/// See the module's head.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) beginning: Instant,
    beginning_nanos: u64,
    /// The job above all jobs of this manager.
    pub(crate) scope: OwnedNursery,
    pub(crate) slots: Padded<SlotKeeper>,
    pub(crate) any: LaneCell,
    pub(crate) main: LaneCell,
    pub(crate) remote: LaneCell,
    pub(crate) frames: RwLock<Vec<Arc<LaneCell>>>,
    /// Where remote jobs wait to be sent.
    pub(crate) gate: RemoteGate,
    pub(crate) notices: Notices,
    pub(crate) tracking: Tracking<JobHeader>,
    pub(crate) guests: Guests,
    pub(crate) is_shut_down: AtomicBool,
    /// A visit has to empty the pumped lanes, since nobody will pump them.
    pub(crate) wants_emptying: AtomicBool,
    /// Tells of the runtime's shutdown.
    pub(crate) scope_cancelled: OnceLock<CancelCallback>,
}

/// Whether a job may be scheduled.
pub(crate) enum Admission {
    /// It has a slot.
    Slot,
    /// It ends before it began.
    Cancelled(&'static str),
}

impl Shared {
    pub(crate) fn new(
        runtime: &Runtime,
        settings: Settings,
        scope: OwnedNursery,
        frames: &[FrameLane],
        (transport, max_under_way): (Option<Arc<dyn RemoteTransport>>, usize),
        listener: Option<Listener>,
    ) -> Arc<Shared> {
        let clock = runtime.clock();
        let beginning = clock.now();
        let gate = RemoteGate::new(
            transport,
            max_under_way,
            scope.nursery().clone(),
            clock.clone(),
            beginning,
            settings.aging,
        );
        let shared = Arc::new_cyclic(|weak: &Weak<Shared>| {
            let visits = |which: fn(&Shared) -> &LaneCell| {
                let weak = weak.clone();
                Tickets::new(runtime, move |ticket| {
                    let shared = weak.upgrade();
                    shared.map_or(0, |shared| shared.visit(which(&shared), ticket))
                })
            };
            let any = visits(|shared| &shared.any);
            let remote = visits(|shared| &shared.remote);
            let frames = frames.iter().cloned().map(|frame| {
                let lane = LaneCell::pumped(Lane::Frame(frame), &settings);
                Arc::new(lane)
            });
            Shared {
                beginning,
                beginning_nanos: clock.nanos(),
                clock,
                scope,
                slots: Padded(SlotKeeper::new(settings.queue_limit)),
                any: LaneCell::visited(Lane::Any, &settings, any, settings.workers),
                main: LaneCell::pumped(Lane::Main, &settings),
                remote: LaneCell::visited(Lane::Remote, &settings, remote, 1),
                frames: RwLock::new(frames.collect()),
                gate,
                notices: Notices::new(listener),
                tracking: Tracking::new(),
                guests: Guests::default(),
                is_shut_down: AtomicBool::new(false),
                wants_emptying: AtomicBool::new(false),
                scope_cancelled: OnceLock::new(),
                settings,
            }
        });
        shared.end_with_runtime();
        shared
    }

    /// Now, in the manager's time.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.clock.nanos().saturating_sub(self.beginning_nanos))
    }

    pub(crate) fn cell<'a>(&'a self, lane: &'a LaneRef) -> &'a LaneCell {
        match lane {
            LaneRef::Any => &self.any,
            LaneRef::Main => &self.main,
            LaneRef::Remote => &self.remote,
            LaneRef::Frame(cell) => cell,
        }
    }

    /// The lane; a frame lane of which nobody has heard yet is made.
    pub(crate) fn find(&self, lane: &Lane) -> LaneRef {
        let frame = match lane {
            Lane::Any => return LaneRef::Any,
            Lane::Main => return LaneRef::Main,
            Lane::Remote => return LaneRef::Remote,
            Lane::Frame(frame) => frame,
        };
        let known = |frames: &[Arc<LaneCell>]| {
            let mut all = frames.iter();
            let found = all.find(|cell| matches!(&cell.lane, Lane::Frame(own) if own == frame));
            found.cloned().map(LaneRef::Frame)
        };
        if let Some(found) = known(&self.frames.read().unwrap_or_else(|e| e.into_inner())) {
            return found;
        }
        let mut frames = self.frames.write().unwrap_or_else(|e| e.into_inner());
        known(&frames).unwrap_or_else(|| {
            let cell = Arc::new(LaneCell::pumped(lane.clone(), &self.settings));
            if self.is_shut_down() {
                drop(cell.close());
            }
            frames.push(Arc::clone(&cell));
            LaneRef::Frame(cell)
        })
    }

    /// Takes a slot for a job, and waits for it.
    pub(crate) fn admit(&self) -> Admission {
        if self.slots.try_take().is_ok() {
            return Admission::Slot;
        }
        let notice = |capacity, blocked| self.note_blocked(capacity, blocked);
        admission(self.slots.take(&self.clock, notice))
    }

    pub(crate) async fn admit_async(&self) -> Admission {
        let notice = |capacity, blocked| self.note_blocked(capacity, blocked);
        admission(self.slots.take_async(&self.clock, notice).await)
    }

    /// Makes a job of the tree of what was described, and puts it into its lane.
    pub(crate) fn start<T, B>(
        self: &Arc<Shared>,
        job: LaneJob<T, B>,
        admission: Admission,
    ) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        self.start_below(None, job, admission)
    }

    /// [`start`](Self::start), below a job that is none of the manager's; without one, below the manager's own.
    pub(crate) fn start_below<T, B>(
        self: &Arc<Shared>,
        host: Option<&Nursery>,
        mut job: LaneJob<T, B>,
        admission: Admission,
    ) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        if host.is_some() {
            job.becomes_guest();
        }
        let (body, about) = job.into_parts();
        let About {
            priority,
            lane,
            label,
            tokens,
            after,
            extra,
        } = about;
        let holds_slot = matches!(admission, Admission::Slot);
        let header = LaneHeader::new(
            Arc::clone(self),
            self.find(&lane),
            priority,
            holds_slot,
            body.kind(),
            label.is_some(),
            extra,
        );
        if holds_slot {
            self.cell(&header.lane).endings.scheduled(priority);
        }
        let Launched(Prepared {
            turn,
            header,
            handle,
        }) = body.launch(Launcher {
            nursery: host.unwrap_or_else(|| self.scope.nursery()),
            description: Description {
                label,
                // A host has the handle, and decides itself whether it fails with its guest.
                contained: host.is_some(),
            },
            header,
            after,
        });
        if let Some(turn) = turn {
            if let Admission::Cancelled(reason) = admission {
                header.job().cancel(reason);
            }
            self.link(header.job(), &tokens, &header);
            if host.is_some() {
                self.guests.comes(header.job());
                if self.is_shut_down() {
                    // Whoever shut it down may have looked for guests before.
                    header.job().cancel(Cause::Shutdown);
                }
            }
            if header.job().is_cancelled() {
                // It has not begun, so nothing of it runs.
                let ran = turn.run();
                debug_assert!(matches!(ran, Ran::Ended));
            } else {
                if holds_slot && self.tracking.is_on() {
                    self.track(&header);
                }
                self.enqueue(turn);
            }
        }
        LaneHandle { handle, header }
    }

    /// Has the tokens cancel the job as long as it has not ended.
    fn link(&self, job: &Job, tokens: &[CancelToken], header: &JobHeader) {
        if tokens.is_empty() {
            return;
        }
        let links = tokens.iter().map(|token| {
            let job = job.clone();
            token.on_cancel(move |reason| {
                job.cancel(reason.clone());
            })
        });
        let links: Vec<_> = links.collect();
        if let Some(extra) = header.known_extra() {
            *lock(&extra.tokens) = links;
        }
    }

    /// Puts a turn into the queue of its lane.
    pub(crate) fn enqueue(&self, turn: JobTurn) {
        let now = self.now();
        let frame = match &turn.lane {
            LaneRef::Frame(cell) => Some(Arc::clone(cell)),
            _ => None,
        };
        let cell = match (&frame, &turn.lane) {
            (Some(cell), _) => cell,
            (None, lane) => match lane {
                LaneRef::Main => &self.main,
                LaneRef::Remote => &self.remote,
                _ => &self.any,
            },
        };
        if let Err(turn) = self.enqueue_in(cell, turn, now) {
            // Nobody pumps the lane any more: a worker takes care of it.
            let taken = self.enqueue_in(&self.any, turn, now);
            debug_assert!(taken.is_ok(), "this lane is never closed");
        }
    }

    fn enqueue_in(&self, cell: &LaneCell, turn: JobTurn, now: Moment) -> Result<(), JobTurn> {
        let mut state = cell.lock();
        if state.is_closed() {
            return Err(turn);
        }
        let priority = turn.priority;
        let length = state.put(turn, now, self.settings.queue_warning);
        let to_post = cell.call_worker(&mut state);
        drop(state);
        cell.post(to_post);
        self.note_length(cell, priority, length);
        Ok(())
    }

    /// Runs `call` on a lane, before what waits there, as a job of nobody's; its outcome is lost. If the lane does not run
    /// anything any more, `call` is dropped.
    pub(crate) fn run_aside(self: &Arc<Shared>, lane: &Lane, call: impl FnOnce() + Send + 'static) {
        let body = Action::new(move || {
            call();
            Ok(())
        });
        let header = self.aside(self.find(lane), Priority::Highest);
        let Launched(prepared) = body.launch(Launcher {
            nursery: self.scope.nursery(),
            description: Description {
                label: Some("callback".into()),
                contained: true,
            },
            header,
            after: Vec::new(),
        });
        if let Some(turn) = prepared.turn {
            self.enqueue(turn);
        }
    }

    /// Runs `call` on a lane as a part of `job`, to whose age it belongs; it takes no slot.
    pub(crate) fn run_within<R: Send + 'static>(
        self: &Arc<Shared>,
        job: &JobHeader,
        lane: LaneRef,
        label: &'static str,
        call: impl FnOnce() -> R + Send + 'static,
    ) -> JobHandle<R> {
        let header = self.aside(lane, job.priority);
        if let Some(first) = job.first_enqueued() {
            header.came_first_at(first);
        }
        let body = Action::new(move || Ok(call()));
        let below = binding::nursery_of(job.job());
        let nursery = below.as_ref().unwrap_or_else(|| self.scope.nursery());
        let Launched(prepared) = body.launch(Launcher {
            nursery,
            // Who asked for it is told, and nobody else.
            description: Description {
                label: Some(label.into()),
                contained: true,
            },
            header,
            after: Vec::new(),
        });
        if let Some(turn) = prepared.turn {
            self.enqueue(turn);
        }
        prepared.handle
    }

    fn aside(self: &Arc<Shared>, lane: LaneRef, priority: Priority) -> LaneHeader {
        LaneHeader::new(Arc::clone(self), lane, priority, false, "aside", true, None)
    }

    /// A job that fails with `error`, for handles that have to be something.
    pub(crate) fn failed<T: Send + 'static>(
        self: &Arc<Shared>,
        priority: Priority,
        error: impl Into<BoxError>,
    ) -> LaneHandle<T> {
        let header = self.aside(LaneRef::Any, priority);
        let error = error.into();
        let Prepared {
            turn,
            header,
            handle,
        } = prepare(self.scope.nursery(), Description::default(), header, |_| {
            ready(Err(error))
        });
        if let Some(turn) = turn {
            let ran = turn.run();
            debug_assert!(matches!(ran, Ran::Ended));
        }
        LaneHandle { handle, header }
    }
}

fn admission(slot: Result<(), NoSlot>) -> Admission {
    match slot {
        Ok(()) => Admission::Slot,
        Err(NoSlot::Cancelled) => Admission::Cancelled("the job that scheduled it is cancelled"),
        Err(NoSlot::Closed | NoSlot::Full) => Admission::Cancelled("the job manager was shut down"),
    }
}
