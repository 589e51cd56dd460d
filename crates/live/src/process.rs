//! A process that is alive, as a target.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use inspect::target::{Mapping, Registers as DwarfRegisters};
use inspect::{Process as Looked, ThreadId};
use protocol::id::{EventNo, ImageNo, ProcessId, ProcessNo, ThreadNo};
use target::{
    Alive, Arrival, Calls, Cancel, Halted, Handler, Happening, ImageSpan, MapsVersion, Position,
    Region, Registers, Result, Stops, Stuck, Target, ThreadState, Watch,
};

use protocol::id::Addr;

use crate::Error;
use crate::client::Client;
use crate::mapped::{self, mapping};
use crate::motion::Motion;
use crate::proc;
use crate::program::Wardens;
use crate::talk::{Answer, Armed, Request, Thread, What};

/// Memory is kept in pieces of this size, and asked for in as many at once.
const PAGE: u64 = 4096;
/// On another host in so many: asking takes longer than answering.
const FAR_PAGES: u64 = 8;

/// A process behind a warden.
pub struct Process {
    wardens: Arc<Wardens>,
    member: u16,
    pid: i32,
    /// Who runs along.
    others: Vec<ProcessId>,
    /// What is known of it since it last moved.
    known: RefCell<Known>,
}

/// What was asked since the last halt.
struct Known {
    /// Nothing was looked at yet.
    is_new: bool,
    halt: u64,
    threads: Option<Vec<Thread>>,
    /// Nothing: there is no such page.
    pages: HashMap<u64, Vec<u8>>,
    regions: Option<Arc<Vec<Region>>>,
    version: u64,
    image: Option<u32>,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            is_new: true,
            halt: 0,
            threads: None,
            pages: HashMap::new(),
            regions: None,
            version: 0,
            image: None,
        }
    }
}

impl Known {
    /// Keeps memory that begins with a page.
    fn keep(&mut self, address: u64, bytes: &[u8]) {
        for (place, page) in (0u64..).zip(bytes.chunks(PAGE as usize)) {
            self.pages.insert(address + place * PAGE, page.to_vec());
        }
    }
}

fn sorted(mut threads: Vec<Thread>) -> Vec<Thread> {
    threads.sort_by_key(|thread| thread.number);
    threads
}

impl Process {
    pub(crate) fn new(wardens: Arc<Wardens>, member: u16, pid: i32) -> Process {
        Process {
            wardens,
            member,
            pid,
            others: Vec::new(),
            known: RefCell::default(),
        }
    }

    fn ask(&self, request: &Request) -> std::result::Result<Answer, Error> {
        self.wardens.of(self.member)?.ask(request)
    }

    fn client(&self) -> Option<&Client> {
        self.wardens.of(self.member).ok()
    }

    fn halts(&self) -> u64 {
        self.client().map_or(0, Client::halts)
    }

    fn is_far(&self) -> bool {
        self.client().is_some_and(|client| client.host().is_some())
    }

    fn changed(&self) {
        if let Some(client) = self.client() {
            client.changed();
        }
    }

    /// What is known, if it is of now.
    fn known(&self) -> std::cell::RefMut<'_, Known> {
        let halt = self.halts();
        let mut known = self.known.borrow_mut();
        if known.halt != halt || known.is_new {
            *known = Known {
                halt,
                is_new: false,
                ..Known::default()
            };
            // What was told with the halt need not be asked for.
            if let Some(seen) = self.client().and_then(|client| client.glimpse(self.pid)) {
                known.threads = Some(sorted(seen.threads));
                if let Some((address, bytes)) = seen.memory {
                    known.keep(address, &bytes);
                }
            }
        }
        known
    }

    fn tasks(&self) -> Vec<Thread> {
        let mut known = self.known();
        if known.threads.is_none() {
            let threads = match self.ask(&Request::Threads(self.pid)) {
                Ok(Answer::Threads(threads)) => threads,
                _ => Vec::new(),
            };
            known.threads = Some(sorted(threads));
        }
        known.threads.clone().unwrap_or_default()
    }

    /// The kernel's id of the thread that runs.
    fn current(&self) -> i32 {
        let tasks = self.tasks();
        let chosen = self.client().and_then(|client| client.current(self.pid));
        let is_there = |tid: &i32| tasks.iter().any(|task| task.tid == *tid);
        let first = tasks.first().map_or(self.pid, |task| task.tid);
        chosen.filter(is_there).unwrap_or(first)
    }

    fn tid(&self, number: ThreadNo) -> std::result::Result<i32, Error> {
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.number == number.0);
        found
            .map(|task| task.tid)
            .ok_or(Error::NoThread(number.0 as i32))
    }

    fn mapped(&self) -> Arc<Vec<Region>> {
        if let Some(regions) = &self.known().regions {
            return Arc::clone(regions);
        }
        let (version, regions) = self.mapped_anew();
        let regions = Arc::new(regions);
        let mut known = self.known();
        known.version = version;
        known.regions = Some(Arc::clone(&regions));
        regions
    }

    fn mapped_anew(&self) -> (u64, Vec<Region>) {
        let far = self
            .client()
            .and_then(|client| Some((client, client.files()?)));
        let Some((client, files)) = far else {
            let all = mapped::of(self.pid);
            let here = |one| mapped::region(one, |file| Some(file.place.clone()));
            return (all.version, all.all.iter().map(here).collect());
        };
        let all = client.mapped_there(self.pid);
        let copies = files.fetch(&all.all);
        let there = all
            .all
            .iter()
            .map(|one| mapped::region(one, |file| copies.get(&file.identity).cloned().flatten()));
        (all.version, there.collect())
    }

    /// Which of its programs it executes.
    fn image(&self) -> u32 {
        if let Some(image) = self.known().image {
            return image;
        }
        let all = self.client().map(Client::processes);
        let all = all.and_then(std::result::Result::ok).unwrap_or_default();
        let own = all.iter().find(|process| process.pid == self.pid);
        let image = own.map_or(0, |process| process.image);
        self.known().image = Some(image);
        image
    }

    /// Asks for a page of its memory, and those behind it if its host is another one.
    fn ask_for(&self, page: u64) {
        let pages = if self.is_far() { FAR_PAGES } else { 1 };
        let asked = self.ask(&Request::Read {
            process: self.pid,
            address: page,
            length: pages * PAGE,
        });
        let mut known = self.known();
        // What cannot be read is not asked for again.
        known.pages.insert(page, Vec::new());
        if let Ok(Answer::Bytes(bytes)) = asked {
            known.keep(page, &bytes);
        }
    }

    fn set_armed(&self, stops: &Stops<'_>) -> Result<()> {
        let request = Request::Arm(self.pid, armed(stops));
        Ok(self.wardens.of(self.member)?.post(&request)?)
    }

    /// Everybody who runs, this one first.
    fn movers(&self) -> Vec<ProcessId> {
        let own = self.id();
        std::iter::once(own)
            .chain(self.others.iter().copied().filter(|id| *id != own))
            .collect()
    }

    fn go(&mut self, range: Option<Range<u64>>, cancel: &Cancel) -> Result<Arrival> {
        let motion = Motion {
            lead: self.id(),
            thread: self.current(),
            range,
            movers: &self.movers(),
        };
        let (process, report) = self.wardens.go(&motion, cancel)?;
        let arrival = arrival(report.what);
        if process != self.id() && report.what != What::Nobody {
            return Ok(Arrival::Elsewhere(process, Box::new(arrival)));
        }
        Ok(arrival)
    }
}

fn armed(stops: &Stops<'_>) -> Armed {
    let conditions = stops.conditions.iter();
    let catches = stops.catches.cloned().unwrap_or_default();
    Armed {
        breakpoints: stops.breakpoints.iter().map(|at| at.0).collect(),
        conditions: conditions
            .map(|condition| (condition.address.0, condition.code.to_vec()))
            .collect(),
        watches: stops
            .watches
            .iter()
            .map(|watch| (watch.address.0, watch.length))
            .collect(),
        calls: match catches.calls {
            Calls::None => None,
            Calls::All => Some(Vec::new()),
            Calls::These(numbers) => Some(numbers),
        },
        forks: catches.forks,
        signals: catches.signals,
        ends: catches.ends,
    }
}

fn arrival(what: What) -> Arrival {
    Arrival::Happened(match what {
        What::Breakpoint => return Arrival::Breakpoint,
        What::Watch(index) => return Arrival::Watch(index as usize),
        What::Stepped => return Arrival::Stepped,
        What::Halted => return Arrival::Interrupted,
        What::Nobody => return Arrival::End,
        What::Call(number) => Happening::Call(number),
        What::Forked(pid) => Happening::Forked(pid as u32),
        What::Exec => Happening::Exec,
        What::Signal(number) => Happening::Signal(number),
        What::Exited(status) => Happening::Exited(status),
        What::Killed(signal) => Happening::Killed(signal),
    })
}

fn state(pid: i32, thread: &Thread) -> ThreadState {
    let general = thread.registers.as_ref().map_or([0; 27], |r| r.general);
    let registers = Registers::from_user_regs(general, xmm(thread));
    let (call, waits) = call(&registers, thread.at_call);
    let stuck_in = || match &thread.seen {
        Some(seen) => seen.call,
        None => proc::call_of(pid, thread.tid),
    };
    let is_stuck = thread.registers.is_none();
    ThreadState {
        number: ThreadNo(thread.number),
        tid: thread.tid as u32,
        call: call.or_else(|| is_stuck.then(stuck_in)?),
        waits: waits || is_stuck,
        registers,
        blocked: match &thread.seen {
            Some(seen) => seen.blocked,
            None => proc::Status::of(pid, thread.tid).map_or(0, |status| status.blocked),
        },
        stuck: match (is_stuck, thread.by_job_control) {
            (true, _) => Some(Stuck::Uninterruptible),
            (_, true) => Some(Stuck::Stopped),
            _ => None,
        },
    }
}

/// The system call that a thread is in, and whether it waits there: what was
/// interrupted is begun again when it runs on.
fn call(registers: &Registers, at_call: bool) -> (Option<u64>, bool) {
    const EINTR: i64 = -4;
    const RESTARTED: Range<i64> = -516..-511;
    let number = registers.orig_rax;
    if number as i64 == -1 {
        return (None, false);
    }
    if at_call {
        return (Some(number), false);
    }
    let result = registers.rax as i64;
    let waits = RESTARTED.contains(&result) || result == EINTR;
    (Some(number).filter(|_| waits), waits)
}

fn xmm(thread: &Thread) -> [[u64; 2]; 16] {
    let mut all = [[0; 2]; 16];
    let image = thread.registers.as_ref().map_or(&[][..], |r| &r.fxsave);
    let words = image.get(160..416).unwrap_or_default().chunks_exact(8);
    let words = words.filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
    for (into, word) in all.iter_mut().flatten().zip(words) {
        *into = word;
    }
    all
}

impl Target for Process {
    fn id(&self) -> ProcessId {
        ProcessNo(self.pid as u32).of_member(self.member)
    }

    fn position(&self) -> Position {
        let current = self.current();
        let tasks = self.tasks();
        let thread = tasks.iter().find(|task| task.tid == current);
        let registers = thread.and_then(|thread| thread.registers.as_ref());
        let pc = registers.map_or(Addr::NULL, |r| {
            Registers::from_user_regs(r.general, [[0; 2]; 16]).pc()
        });
        Position::Halted(Halted {
            halt: self.halts(),
            address: pc,
        })
    }

    fn thread(&self) -> ThreadNo {
        let current = self.current();
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.tid == current);
        ThreadNo(found.map_or(0, |task| task.number))
    }

    fn threads(&self) -> Vec<ThreadState> {
        let tasks = self.tasks();
        tasks.iter().map(|task| state(self.pid, task)).collect()
    }

    fn thread_state(&self, number: ThreadNo) -> Option<ThreadState> {
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.number == number.0)?;
        Some(state(self.pid, found))
    }

    fn handlers(&self) -> Vec<Handler> {
        if let Ok(Answer::Actions(actions)) = self.ask(&Request::Actions(self.pid))
            && !actions.is_empty()
        {
            let of = |handler: &u64| match handler {
                0 => Handler::System,
                1 => Handler::Ignored,
                at => Handler::Function(Some(Addr(*at))),
            };
            return actions.iter().map(of).collect();
        }
        let (ignored, caught) = match self.ask(&Request::Masks(self.pid)) {
            Ok(Answer::Masks(ignored, caught)) => (ignored, caught),
            _ => (0, 0),
        };
        let of = |signal: u32| {
            let bit = 1u64 << signal;
            match (ignored & bit != 0, caught & bit != 0) {
                (true, _) => Handler::Ignored,
                // The kernel does not say which.
                (_, true) => Handler::Function(None),
                _ => Handler::System,
            }
        };
        (0..64).map(of).collect()
    }

    fn read(&self, address: Addr, out: &mut [u8]) -> usize {
        let mut got = 0;
        while got < out.len() {
            let at = address.plus(got as u64).0;
            let (page, offset) = (at & !(PAGE - 1), (at & (PAGE - 1)) as usize);
            let is_known = self.known().pages.contains_key(&page);
            if !is_known {
                self.ask_for(page);
            }
            let known = self.known();
            let bytes = known.pages.get(&page).map_or(&[][..], Vec::as_slice);
            let bytes = bytes.get(offset..).unwrap_or_default();
            let into = out.get_mut(got..).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            let mut count = 0;
            for (to, from) in into.iter_mut().zip(bytes) {
                *to = *from;
                count += 1;
            }
            got += count;
        }
        got
    }

    fn maps_version(&self) -> MapsVersion {
        self.mapped();
        let version = self.known().version;
        MapsVersion {
            image: self.image() as usize,
            version,
        }
    }

    fn regions(&self) -> Result<Vec<Region>> {
        Ok(self.mapped().to_vec())
    }

    fn images(&self) -> Vec<ImageSpan> {
        vec![ImageSpan {
            number: ImageNo(0),
            first: EventNo(0),
        }]
    }

    fn look(&self) -> Box<dyn Looked + '_> {
        Box::new(View(self))
    }

    fn run(&mut self, stops: &Stops<'_>, _: Position, cancel: &Cancel) -> Result<Arrival> {
        self.set_armed(stops)?;
        self.go(None, cancel)
    }

    fn step(&mut self, range: Range<Addr>, watches: &[Watch], cancel: &Cancel) -> Result<Arrival> {
        self.set_armed(&Stops {
            watches,
            ..Stops::default()
        })?;
        self.go(Some(range.start.0..range.end.0), cancel)
    }

    fn alive(&mut self) -> Option<&mut dyn Alive> {
        Some(self)
    }

    fn is_file(&self, fd: i32) -> bool {
        proc::is_file(self.pid, fd)
    }

    fn thread_name(&self, number: ThreadNo) -> Option<String> {
        let tasks = self.tasks();
        let task = tasks.iter().find(|task| task.number == number.0)?;
        Some(match &task.seen {
            Some(seen) => seen.name.clone(),
            None => proc::thread_name(self.pid, task.tid),
        })
    }
}

impl Alive for Process {
    fn write_memory(&mut self, address: Addr, bytes: &[u8]) -> Result<usize> {
        let request = Request::Write {
            process: self.pid,
            address: address.0,
            bytes: bytes.to_vec(),
        };
        let answer = self.ask(&request)?;
        self.known().pages.clear();
        match answer {
            Answer::Count(count) => Ok(count as usize),
            _ => Ok(0),
        }
    }

    fn write_registers(&mut self, thread: ThreadNo, registers: &Registers) -> Result<()> {
        let request = Request::SetRegisters {
            thread: self.tid(thread)?,
            general: Box::new(registers.user_regs()),
            xmm: Box::new(registers.xmm),
        };
        self.ask(&request)?;
        self.changed();
        Ok(())
    }

    fn choose(&mut self, thread: ThreadNo) -> Result<()> {
        let tid = self.tid(thread)?;
        self.wardens.of(self.member)?.choose(self.pid, tid);
        Ok(())
    }

    fn arm(&mut self, stops: &Stops<'_>) -> Result<()> {
        self.set_armed(stops)
    }

    fn accompany(&mut self, others: &[ProcessId]) {
        self.others = others.to_vec();
        for (member, client) in (0u16..).zip(self.wardens.all()) {
            let is_one = |id: &ProcessId| id.member == member;
            if self.member == member || others.iter().any(is_one) {
                // If there is no warden any more, the next request says so.
                let _ = client.post(&Request::Known);
            }
        }
    }

    fn pending(&self, thread: ThreadNo) -> Option<u32> {
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.number == thread.0)?;
        Some(found.signal).filter(|signal| *signal != 0)
    }

    fn set_pending(&mut self, thread: ThreadNo, signal: Option<u32>) -> Result<()> {
        let request = Request::SetSignal {
            thread: self.tid(thread)?,
            signal: signal.unwrap_or(0),
        };
        self.ask(&request)?;
        self.known().threads = None;
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        self.ask(&Request::Kill(self.pid))?;
        self.changed();
        Ok(())
    }

    fn refuse_call(&mut self, thread: ThreadNo, errno: i32) -> Result<()> {
        let thread = self.tid(thread)?;
        self.ask(&Request::Refuse { thread, errno })?;
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        self.ask(&Request::Detach(self.pid))?;
        self.changed();
        Ok(())
    }

    fn ending(&self) -> Option<Happening> {
        let all = self.client()?.processes().ok()?;
        let own = all.iter().find(|process| process.pid == self.pid)?;
        match arrival(own.ending?) {
            Arrival::Happened(ending) => Some(ending),
            _ => None,
        }
    }
}

/// The process, to be looked into.
struct View<'p>(&'p Process);

impl Looked for View<'_> {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        self.0.read(address, buffer)
    }

    fn threads(&self) -> Vec<ThreadId> {
        let current = self.0.thread().0;
        let mut all: Vec<u32> = self.0.tasks().iter().map(|task| task.number).collect();
        all.sort_by_key(|number| (*number != current, *number));
        all.into_iter().map(ThreadId).collect()
    }

    fn registers(&self, thread: ThreadId) -> inspect::Result<DwarfRegisters> {
        let tasks = self.0.tasks();
        let task = tasks.iter().find(|task| task.number == thread.0);
        let known = task.and_then(|task| task.registers.as_ref());
        let Some(known) = known else {
            return Err(inspect::Error::NoThread(thread.0));
        };
        let mut registers = Registers::from_user_regs(known.general, [[0; 2]; 16]).dwarf();
        registers.fxsave = known.fxsave.as_slice().try_into().ok().map(Box::new);
        let mut high = Box::new([[0; 16]; 16]);
        for (into, from) in high.iter_mut().zip(known.ymm_high.chunks_exact(16)) {
            into.copy_from_slice(from);
        }
        registers.ymm_high = (!known.ymm_high.is_empty()).then_some(high);
        Ok(registers)
    }

    fn mappings(&self) -> Vec<Mapping> {
        self.0.mapped().iter().map(mapping).collect()
    }
}
