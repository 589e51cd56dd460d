//! A process that is alive, as a target.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inspect::target::{Content, Mapping, Registers as DwarfRegisters};
use inspect::{Process as Looked, ThreadId};
use protocol::id::{EventNo, ImageNo, ProcessId, ThreadNo};
use target::{
    Alive, Arrival, Calls, Cancel, Halted, Handler, Happening, ImageSpan, MapsVersion, Position,
    Region, Registers, Result, Stops, Target, ThreadState, Watch,
};

use protocol::id::Addr;

use crate::Error;
use crate::client::Client;
use crate::proc;
use crate::talk::{Answer, Armed, Request, Thread, What};

/// Memory is asked for in pieces of this size.
const PAGE: u64 = 4096;

/// A process behind a warden.
pub struct Process {
    client: Arc<Client>,
    pid: i32,
    /// Who runs along.
    others: Vec<i32>,
    /// What is known of it since it last moved.
    known: RefCell<Known>,
}

/// What was asked since the last halt.
#[derive(Default)]
struct Known {
    halt: u64,
    threads: Option<Vec<Thread>>,
    /// Nothing: there is no such page.
    pages: HashMap<u64, Vec<u8>>,
    regions: Option<Arc<Vec<Region>>>,
    version: u64,
    image: Option<u32>,
}

impl Process {
    pub(crate) fn new(client: Arc<Client>, pid: i32) -> Process {
        Process {
            client,
            pid,
            others: Vec::new(),
            known: RefCell::default(),
        }
    }

    /// What is known, if it is of now.
    fn known(&self) -> std::cell::RefMut<'_, Known> {
        let halt = self.client.halts();
        let mut known = self.known.borrow_mut();
        if known.halt != halt {
            *known = Known {
                halt,
                ..Known::default()
            };
        }
        known
    }

    fn tasks(&self) -> Vec<Thread> {
        let mut known = self.known();
        if known.threads.is_none() {
            let asked = self.client.ask(&Request::Threads(self.pid));
            let mut threads = match asked {
                Ok(Answer::Threads(threads)) => threads,
                _ => Vec::new(),
            };
            threads.sort_by_key(|thread| thread.number);
            known.threads = Some(threads);
        }
        known.threads.clone().unwrap_or_default()
    }

    /// The kernel's id of the thread that runs.
    fn current(&self) -> i32 {
        let tasks = self.tasks();
        let chosen = self.client.current(self.pid);
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
        let text = std::fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut hash = DefaultHasher::new();
        for line in text.lines().filter(|line| line.contains("x")) {
            line.hash(&mut hash);
        }
        let regions = text.lines().filter_map(|line| region(self.pid, line));
        let regions = Arc::new(regions.collect());
        let mut known = self.known();
        known.version = hash.finish();
        known.regions = Some(Arc::clone(&regions));
        regions
    }

    /// Which of its programs it executes.
    fn image(&self) -> u32 {
        if let Some(image) = self.known().image {
            return image;
        }
        let all = self.client.processes().unwrap_or_default();
        let own = all.iter().find(|process| process.pid == self.pid);
        let image = own.map_or(0, |process| process.image);
        self.known().image = Some(image);
        image
    }

    fn set_armed(&self, stops: &Stops<'_>) -> Result<()> {
        let armed = armed(stops);
        self.client.ask(&Request::Arm(self.pid, armed))?;
        Ok(())
    }

    /// Everybody who runs, this one first.
    fn movers(&self) -> Vec<i32> {
        std::iter::once(self.pid)
            .chain(self.others.iter().copied().filter(|pid| *pid != self.pid))
            .collect()
    }

    fn go(&mut self, request: &Request, cancel: &Cancel) -> Result<Arrival> {
        let report = self.client.go(request, cancel)?;
        let arrival = arrival(report.what);
        if report.process != self.pid && report.what != What::Nobody {
            let other = ProcessId::of_first(report.process as u32);
            return Ok(Arrival::Elsewhere(other, Box::new(arrival)));
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

/// A line of `/proc/PID/maps`.
fn region(pid: i32, line: &str) -> Option<Region> {
    let mut rest = line;
    let mut word = || {
        let (word, more) = rest.trim_start().split_once(' ')?;
        rest = more;
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let rights = word()?;
    let offset = u64::from_str_radix(word()?, 16).ok()?;
    let (_, inode) = (word()?, word().unwrap_or("0"));
    let name = rest.trim();
    let start = Addr(u64::from_str_radix(start, 16).ok()?);
    let end = Addr(u64::from_str_radix(end, 16).ok()?);
    Some(Region {
        range: start..end,
        writable: rights.contains('w'),
        executable: rights.contains('x'),
        offset,
        file: file(pid, name, inode.parse().unwrap_or(0)),
        is_vdso: name == "[vdso]",
    })
}

/// Where a mapped file can be read: in the process's own view of the files, unless
/// what is there is another one by now.
fn file(pid: i32, name: &str, inode: u64) -> Option<(PathBuf, PathBuf)> {
    use std::os::unix::fs::MetadataExt;
    let plain = name.strip_suffix(" (deleted)").unwrap_or(name);
    let relative = plain.strip_prefix('/')?;
    let seen = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(relative);
    let is_it = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.ino() == inode);
    let executable = PathBuf::from(format!("/proc/{pid}/exe"));
    let place = [seen, PathBuf::from(plain), executable]
        .into_iter()
        .find(|path| is_it(path))?;
    Some((place, PathBuf::from(plain)))
}

fn state(pid: i32, thread: &Thread) -> ThreadState {
    let general = thread.registers.as_ref().map_or([0; 27], |r| r.general);
    let registers = Registers::from_user_regs(general, xmm(thread));
    let (call, waits) = call(&registers, thread.at_call);
    ThreadState {
        number: ThreadNo(thread.number),
        tid: thread.tid as u32,
        call: call.or_else(|| {
            thread
                .registers
                .is_none()
                .then(|| stuck_in(pid, thread.tid))?
        }),
        waits: waits || thread.registers.is_none(),
        registers,
        blocked: proc::Status::of(pid, thread.tid).map_or(0, |status| status.blocked),
    }
}

/// The call of a thread that does not stop.
fn stuck_in(pid: i32, tid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    text.split(' ').next()?.parse().ok()
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
        ProcessId::of_first(self.pid as u32)
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
            halt: self.client.halts(),
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
        if let Ok(Answer::Actions(actions)) = self.client.ask(&Request::Actions(self.pid))
            && !actions.is_empty()
        {
            let of = |handler: &u64| match handler {
                0 => Handler::System,
                1 => Handler::Ignored,
                at => Handler::Function(Some(Addr(*at))),
            };
            return actions.iter().map(of).collect();
        }
        let status = proc::Status::of(self.pid, self.pid).unwrap_or_default();
        let of = |signal: u32| {
            let bit = 1u64 << signal;
            match (status.ignored & bit != 0, status.caught & bit != 0) {
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
            let mut known = self.known();
            let bytes = known.pages.entry(page).or_insert_with(|| {
                let asked = self.client.ask(&Request::Read {
                    process: self.pid,
                    address: page,
                    length: PAGE,
                });
                match asked {
                    Ok(Answer::Bytes(bytes)) => bytes,
                    _ => Vec::new(),
                }
            });
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
        let request = Request::Run {
            thread: self.current(),
            processes: self.movers(),
        };
        self.go(&request, cancel)
    }

    fn step(&mut self, range: Range<Addr>, watches: &[Watch], cancel: &Cancel) -> Result<Arrival> {
        self.set_armed(&Stops {
            watches,
            ..Stops::default()
        })?;
        let request = Request::Step {
            thread: self.current(),
            processes: self.movers(),
            range: (range.start.0, range.end.0),
        };
        self.go(&request, cancel)
    }

    fn alive(&mut self) -> Option<&mut dyn Alive> {
        Some(self)
    }

    fn thread_name(&self, number: ThreadNo) -> Option<String> {
        Some(proc::thread_name(self.pid, self.tid(number).ok()?))
    }
}

impl Alive for Process {
    fn write_memory(&mut self, address: Addr, bytes: &[u8]) -> Result<usize> {
        let request = Request::Write {
            process: self.pid,
            address: address.0,
            bytes: bytes.to_vec(),
        };
        let answer = self.client.ask(&request)?;
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
        self.client.ask(&request)?;
        self.client.changed();
        Ok(())
    }

    fn choose(&mut self, thread: ThreadNo) -> Result<()> {
        let tid = self.tid(thread)?;
        self.client.choose(self.pid, tid);
        Ok(())
    }

    fn arm(&mut self, stops: &Stops<'_>) -> Result<()> {
        self.set_armed(stops)
    }

    fn accompany(&mut self, others: &[ProcessId]) {
        self.others = others.iter().map(|id| id.number.0 as i32).collect();
        // If there is no warden any more, the next request says so.
        let _ = self.client.ask(&Request::Known);
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
        self.client.ask(&request)?;
        self.known().threads = None;
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        self.client.ask(&Request::Kill(self.pid))?;
        self.client.changed();
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        self.client.ask(&Request::Detach(self.pid))?;
        self.client.changed();
        Ok(())
    }

    fn ending(&self) -> Option<Happening> {
        let all = self.client.processes().ok()?;
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

fn mapping(region: &Region) -> Mapping {
    Mapping {
        start: region.range.start,
        end: region.range.end,
        offset: region.offset,
        name: match &region.file {
            Some((_, path)) => path.display().to_string(),
            None if region.is_vdso => "[vdso]".to_string(),
            None => String::new(),
        },
        executable: region.executable,
        writable: region.writable,
        content: match &region.file {
            Some((place, _)) => Content::File(place.clone()),
            None => Content::Memory,
        },
    }
}

/// What a process has mapped, without stopping it.
pub(crate) fn mappings(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let regions = text.lines().filter_map(|line| region(pid, line));
    regions.map(|region| mapping(&region)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f00-7f10 rw-p 00001000 00:00 0 ";
        let read = region(1, line).unwrap();
        assert_eq!(read.range, Addr(0x7f00)..Addr(0x7f10));
        assert_eq!(read.offset, 0x1000);
        assert!(read.writable && !read.executable && read.file.is_none());
        assert!(
            region(1, "7f00-7f10 r-xp 0 00:00 0   [vdso]")
                .unwrap()
                .is_vdso
        );
        let own = std::process::id() as i32;
        let text = std::fs::read_to_string(format!("/proc/{own}/maps")).unwrap();
        let code = text.lines().filter_map(|line| region(own, line));
        let code = code.filter(|r| r.executable && r.file.is_some()).count();
        assert!(code >= 2);
    }
}
