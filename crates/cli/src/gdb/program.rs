//! A recording as gdb sees it: the whole program as one target, each process
//! an inferior that is always there.
//!
//! What moves and what stops is the library's affair (`session`); here gdb's ids,
//! packets and files are turned into its questions. Processes are opened when gdb
//! looks at them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::gdb_remote::{
    Direction, File, Interrupt, Motion, Refused, Registers, Stop, StopKind, StopPoint, StopReason,
    Target, ThreadId, ThreadInfo,
};
use ::session::{Follow, Group, How, Move, Reason, Stopped, What, Who, Whom};
use ::target::{Cancel, Position, Region, ThreadState};
use inspect::Inspector;
use protocol::id::{EventNo, ProcessId, ThreadNo};
use recording::{ImageStart, Recording};

use crate::failure::Failure;

pub struct Program {
    pub group: Group,
    pub served: Vec<Served>,
    /// The process at hand: the one that stopped last.
    pub lead: usize,
    /// The one that was at hand first.
    eldest: usize,
    /// What gdb is still to be told before anything moves.
    pub queue: VecDeque<Told>,
    /// How the others follow the one that leads.
    pub follow: Follow,
    /// What gdb has processes stop at: by process, kind, address and length.
    stops: HashMap<(ProcessId, StopKind, u64, u64), u32>,
}

/// A process that gdb knows.
pub struct Served {
    pub id: ProcessId,
    pub name: String,
    pub pid: u32,
    pub first: EventNo,
    pub last: EventNo,
    /// Which of its images gdb knows, once it was told of one.
    pub told: Option<usize>,
    /// gdb let go of it.
    pub is_gone: bool,
    /// gdb knows where its program and libraries are. It finds that out by
    /// itself for the process that it sees first; of the others it has to be
    /// told that they execute a program, and forgets all threads but one then.
    pub is_introduced: bool,
    /// What was read at a position.
    threads: Option<(Position, Vec<ThreadState>)>,
    regions: Option<(Position, Vec<Region>)>,
}

/// What gdb is told without anything moving.
pub enum Told {
    /// Which program a process executes: the process's index.
    Program(usize),
    Stop(Stop),
}

/// Where to begin.
pub struct Beginning {
    pub process: Option<u32>,
    /// A process and its event.
    pub at: Option<(u32, u64)>,
    /// Other processes are not served.
    pub alone: bool,
}

/// So many processes are served at once: each is replayed by several, and gdb
/// reads the symbols of each.
const MOST: usize = 200;

/// Whether a recording can be served so.
pub fn check(recording: &Recording, beginning: &Beginning) -> Result<(), Failure> {
    let count = recording.processes().len();
    if count > MOST && !beginning.alone {
        return Err(Failure::new(format!(
            "the recording has {count} processes, too many to serve them all to gdb"
        ))
        .hint("choose one with `--process NAME --alone`"));
    }
    Ok(())
}

fn words(error: ::session::Error) -> String {
    Failure::from(error).words()
}

impl Program {
    pub fn open(
        program: &Arc<::session::Program>,
        beginning: &Beginning,
    ) -> Result<Program, Failure> {
        let mut group = Group::new(program)?;
        group.stop_at_execs(true);
        let wanted = beginning
            .process
            .or(beginning.at.map(|(process, _)| process));
        let mut served: Vec<Served> = Vec::new();
        let mut pids = HashSet::new();
        for member in group.members() {
            let is_left_out = beginning.alone && wanted.is_some_and(|w| w != member.id.number);
            // Some did nothing that was recorded.
            if is_left_out || member.is_empty {
                group.let_go(member.id, true)?;
                continue;
            }
            // Ids come again in long runs, and on other hosts.
            let process = group.recording().process(member.id.number);
            let mut pid = process.map_or(0, |process| process.pid);
            while pid == 0 || !pids.insert(pid) {
                pid = pid.wrapping_add(1 << 22);
            }
            served.push(Served {
                id: member.id,
                name: member.name,
                pid,
                first: member.first,
                last: member.last,
                told: None,
                is_gone: false,
                is_introduced: false,
                threads: None,
                regions: None,
            });
        }
        if served.is_empty() {
            return Err(::session::Error::NoProcesses.into());
        }
        let mut program = Program {
            group,
            served,
            lead: 0,
            eldest: 0,
            queue: VecDeque::new(),
            follow: Follow::Causal,
            stops: HashMap::new(),
        };
        program.begin(beginning)?;
        program.eldest = program.lead;
        let lead = program.lead;
        let image = program.image_now(lead);
        if let Some(served) = program.served.get_mut(lead) {
            served.is_introduced = true;
            served.told = image;
        }
        program.introduce();
        Ok(program)
    }

    /// Goes to where it is to begin.
    fn begin(&mut self, beginning: &Beginning) -> Result<(), Failure> {
        if let Some((process, event)) = beginning.at {
            self.go(ProcessId::of_first(process), EventNo(event))?;
        }
        let Some(process) = beginning.process.map(ProcessId::of_first) else {
            return Ok(());
        };
        let Some(lead) = self.index_of(process) else {
            return Err(Failure::new(
                "the process has no events that could be replayed",
            ));
        };
        if beginning.at.is_none() {
            // Where the program that it is named after begins.
            let images = self.group.images(process)?;
            if let Some(image) = images.last() {
                self.go(process, image.first)?;
            }
        }
        self.lead = lead;
        Ok(())
    }

    /// Has gdb told of the programs of those that it only knows by number.
    pub fn introduce(&mut self) {
        let new = (0..).zip(&self.served).filter(|(_, s)| !s.is_introduced);
        self.queue.extend(new.map(|(i, _)| Told::Program(i)));
    }

    /// The next stop that gdb is to be told of without anything moving.
    fn next_told(&mut self) -> Option<Stop> {
        match self.queue.pop_front()? {
            Told::Stop(stop) => Some(stop),
            Told::Program(i) => {
                let path = self.path_of(i).unwrap_or_default();
                let number = self.states(i).first().map_or(ThreadNo(0), |s| s.number);
                let thread = self.thread_id(i, number);
                let image = self.image_now(i);
                if let Some(served) = self.served.get_mut(i) {
                    served.is_introduced = true;
                    served.told = image;
                }
                // It takes them to be gone with the old program.
                self.forget_stops(i);
                Some(stop(thread, StopReason::Executed(path)))
            }
        }
    }

    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.served.iter().position(|served| served.id == process)
    }

    pub fn index(&self, pid: u32) -> Option<usize> {
        let found = self.served.iter().position(|served| served.pid == pid);
        found.filter(|i| self.served.get(*i).is_some_and(|served| !served.is_gone))
    }

    /// Where a process is.
    pub fn position(&self, i: usize) -> Position {
        let served = self.served.get(i);
        let at = served.and_then(|served| self.group.position(served.id).ok());
        at.unwrap_or(Position::START)
    }

    /// Says that everybody is where they belong if a process is about to do an
    /// event.
    pub fn go(&mut self, process: ProcessId, event: EventNo) -> Result<(), Failure> {
        self.group.place(process, Position::Event(event))?;
        self.group.regroup(process, self.follow)?;
        if let Some(lead) = self.index_of(process) {
            self.lead = lead;
        }
        Ok(())
    }

    /// Which of its images a process is in.
    pub fn image_now(&mut self, i: usize) -> Option<usize> {
        let id = self.served.get(i)?.id;
        let event = self.position(i).event();
        let images = self.group.images(id).ok()?;
        let after = images.partition_point(|image| image.first <= event);
        Some(after.saturating_sub(1))
    }

    /// The threads of a process, in order.
    pub fn states(&mut self, i: usize) -> Vec<ThreadState> {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return Vec::new();
        };
        let at = self.position(i);
        let known = self
            .served
            .get(i)
            .and_then(|served| served.threads.as_ref());
        if let Some((_, threads)) = known.filter(|(then, _)| *then == at) {
            return threads.clone();
        }
        let threads = match self.group.at(id) {
            Ok(view) => view.target().threads(),
            Err(_) => return Vec::new(),
        };
        let at = self.position(i);
        if let Some(served) = self.served.get_mut(i) {
            served.threads = Some((at, threads.clone()));
        }
        threads
    }

    /// The thread of a process that runs.
    fn running(&mut self, i: usize) -> Option<ThreadNo> {
        let id = self.served.get(i)?.id;
        Some(self.group.at(id).ok()?.target().thread())
    }

    /// gdb's name for a thread of a process.
    pub fn thread_id(&mut self, i: usize, number: ThreadNo) -> ThreadId {
        let pid = self.served.get(i).map_or(0, |served| served.pid);
        let states = self.states(i);
        let state = states.iter().find(|state| state.number == number);
        let state = state.or(states.first());
        ThreadId::new(pid, state.map_or(pid, |state| tid(pid, state)))
    }

    /// gdb's name for the thread of a process that runs.
    fn running_id(&mut self, i: usize) -> ThreadId {
        let number = self.running(i).unwrap_or(ThreadNo(0));
        self.thread_id(i, number)
    }

    /// The number of a thread in its process.
    fn thread_number(&mut self, thread: ThreadId) -> Option<(usize, ThreadNo)> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some((i, state.number))
    }

    fn regions(&mut self, i: usize) -> Vec<Region> {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return Vec::new();
        };
        let at = self.position(i);
        let known = self
            .served
            .get(i)
            .and_then(|served| served.regions.as_ref());
        if let Some((_, regions)) = known.filter(|(then, _)| *then == at) {
            return regions.clone();
        }
        let regions = match self.group.at(id) {
            Ok(view) => view.target().regions().unwrap_or_default(),
            Err(_) => return Vec::new(),
        };
        let at = self.position(i);
        if let Some(served) = self.served.get_mut(i) {
            served.regions = Some((at, regions.clone()));
        }
        regions
    }

    /// What the present image of a process started from.
    fn image(&mut self, i: usize) -> Option<ImageStart> {
        let id = self.served.get(i)?.id;
        let index = self.image_now(i)?;
        let span = *self.group.images(id).ok()?.get(index)?;
        let recording = self.group.recording();
        let (process, image) = whose(recording, id.number, span.number.0);
        let image = recording
            .images()
            .iter()
            .rfind(|known| known.process == process && known.image == image)?;
        recording.image_start(image).ok()
    }

    /// The path of what a process runs.
    pub fn path_of(&mut self, i: usize) -> Option<Vec<u8>> {
        self.image(i).map(|image| image.exe)
    }

    /// Looks into a process.
    fn look<T>(
        &mut self,
        i: usize,
        question: impl FnOnce(&Inspector<'_>) -> Option<T>,
    ) -> Option<T> {
        let id = self.served.get(i)?.id;
        let view = self.group.at(id).ok()?;
        question(&view.inspector())
    }

    /// gdb takes what it had a process stop at to be gone.
    fn forget_stops(&mut self, i: usize) {
        let Some(id) = self.served.get(i).map(|served| served.id) else {
            return;
        };
        self.stops.retain(|(process, ..), _| *process != id);
        self.group
            .stops()
            .retain(|point| point.whom != Whom::Process(id));
    }

    /// What gdb is told of where a motion led.
    fn told(&mut self, stopped: Stopped) -> Result<Stop, String> {
        let Some(i) = self.index_of(stopped.process) else {
            return Err("there is no such process".to_string());
        };
        let image = self.image_now(i);
        let reason = match stopped.reason {
            Reason::Breakpoint { number } => {
                let kind = self.kind_of(number).map(|(kind, _)| kind);
                StopReason::Breakpoint(kind.unwrap_or(StopKind::Software))
            }
            Reason::Watch { number, .. } => match self.kind_of(number) {
                Some((kind, address)) => StopReason::Watch(kind, address),
                None => StopReason::Arrived,
            },
            Reason::Exec => StopReason::Executed(self.path_of(i).unwrap_or_default()),
            Reason::Start => StopReason::Beginning,
            Reason::End => StopReason::End,
            Reason::Interrupted => StopReason::Interrupted,
            Reason::Diverged(difference) => {
                let name = self.served.get(i).map_or("", |s| s.name.as_str());
                return Err(format!(
                    "the replay of {name} came to something else than the recording: expected \
                     {}, found {}",
                    difference.expected, difference.found
                ));
            }
            Reason::Step | Reason::Arrived | Reason::Caught { .. } | Reason::OutOfScope { .. } => {
                StopReason::Arrived
            }
        };
        let known = self.served.get(i).and_then(|served| served.told);
        if known.is_some() && known != image {
            // Breakpoints are gone with the memory they were in.
            self.forget_stops(i);
        }
        if let Some(served) = self.served.get_mut(i) {
            served.told = image;
        }
        self.lead = i;
        Ok(stop(self.thread_id(i, stopped.thread), reason))
    }

    /// What gdb calls a point.
    fn kind_of(&self, number: u32) -> Option<(StopKind, u64)> {
        let mut stops = self.stops.iter();
        let (key, _) = stops.find(|(_, known)| **known == number)?;
        let (_, kind, address, _) = *key;
        Some((kind, address))
    }

    /// A captured file, by a path that a process may use for it.
    fn captured(&mut self, i: usize, path: &[u8]) -> Option<PathBuf> {
        let wanted = Path::new(std::ffi::OsStr::from_bytes(path));
        // What it has mapped itself: its path, or what the dynamic linker
        // calls it.
        let mapped: HashMap<PathBuf, PathBuf> = self
            .regions(i)
            .iter()
            .filter_map(|region| region.file.clone())
            .map(|(captured, original)| (original, captured))
            .collect();
        if let Some(found) = mapped.get(wanted) {
            return Some(found.clone());
        }
        let known: Vec<(PathBuf, u64)> = self
            .group
            .recording()
            .files()
            .iter()
            .map(|file| {
                let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
                (path.to_path_buf(), file.id)
            })
            .collect();
        let in_recording = |wanted: &Path| {
            let (_, id) = known.iter().rfind(|(path, _)| path == wanted)?;
            Some(self.group.recording().captured_path(*id))
        };
        if let Some(found) = in_recording(wanted) {
            return Some(found);
        }
        let named = self.look(i, |inspector| {
            let module = inspector
                .modules()
                .iter()
                .find(|module| inspector.module_name(module).as_bytes() == path)?;
            Some(module.start)
        });
        if let Some(start) = named {
            let regions = self.regions(i);
            let region = regions.iter().find(|r| r.range.contains(&start));
            if let Some((captured, _)) = region.and_then(|r| r.file.clone()) {
                return Some(captured);
            }
        }
        // A link to it: of the same name, or as it is on this machine.
        let same_name = mapped
            .iter()
            .find(|(original, _)| original.file_name() == wanted.file_name());
        if let Some((_, captured)) = same_name {
            return Some(captured.clone());
        }
        let real = std::fs::canonicalize(wanted).ok()?;
        let (_, id) = known.iter().rfind(|(path, _)| *path == real)?;
        Some(self.group.recording().captured_path(*id))
    }

    /// A file under `/proc/PID` that gdb reads.
    fn process_file(&mut self, name: &str) -> Option<Vec<u8>> {
        let (pid, what) = name.split_once('/')?;
        let i = self.index(pid.parse().ok()?)?;
        let what = match what.strip_prefix("task/") {
            Some(rest) => rest.split_once('/')?.1,
            None => what,
        };
        match what {
            "maps" | "smaps" => {
                let text: String = self.regions(i).iter().map(map_line).collect();
                Some(text.into_bytes())
            }
            "cmdline" => {
                let image = self.image(i)?;
                let words = image.argv.iter();
                Some(
                    words
                        .flat_map(|word| [word.as_slice(), &[0]].concat())
                        .collect(),
                )
            }
            "auxv" => {
                let image = self.image(i)?;
                auxv_of(&image, &self.regions(i))
            }
            _ => None,
        }
    }
}

/// A line of `/proc/PID/maps`.
fn map_line(region: &Region) -> String {
    let path = match &region.file {
        Some((_, original)) => format!("  {}", original.display()),
        None if region.is_vdso => "  [vdso]".to_string(),
        None => String::new(),
    };
    format!(
        "{:x}-{:x} r{}{}p {:08x} 00:00 {}{path}\n",
        region.range.start,
        region.range.end,
        if region.writable { 'w' } else { '-' },
        if region.executable { 'x' } else { '-' },
        region.offset,
        u8::from(region.file.is_some()),
    )
}

fn auxv_of(image: &ImageStart, regions: &[Region]) -> Option<Vec<u8>> {
    // The kernel's vdso is not there: the program has one of the monitor's.
    const AT_SYSINFO_EHDR: u64 = 33;
    let vdso = regions.iter().find(|region| region.is_vdso);
    let words = image.auxv.iter().filter_map(|(kind, value)| match *kind {
        AT_SYSINFO_EHDR => Some([*kind, vdso?.range.start]),
        _ => Some([*kind, *value]),
    });
    let words = words.flatten();
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    if image.auxv.last().is_none_or(|(kind, _)| *kind != 0) {
        bytes.extend([0; 16]);
    }
    Some(bytes)
}

impl Target for Program {
    fn current(&mut self) -> ThreadId {
        self.running_id(self.lead)
    }

    fn processes(&mut self) -> Vec<u32> {
        // gdb numbers them in this order.
        let first = self.served.get(self.eldest).into_iter();
        let rest = (0..).zip(&self.served).filter(|(i, _)| *i != self.eldest);
        first
            .chain(rest.map(|(_, served)| served))
            .filter(|served| !served.is_gone)
            .map(|served| served.pid)
            .collect()
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadInfo> {
        let Some(i) = self.index(pid) else {
            return Vec::new();
        };
        let states = self.states(i);
        let running = self.running(i);
        let event = self.position(i).event();
        let Some(served) = self.served.get(i) else {
            return Vec::new();
        };
        let shown = match served.is_introduced {
            true => states.len(),
            false => 1,
        };
        let names = self.group.program().names();
        let infos = states.iter().take(shown).map(|state| ThreadInfo {
            id: ThreadId::new(pid, tid(pid, state)),
            name: format!(
                "{}/{}",
                served.name,
                names.thread(served.id.number, state.number.0)
            ),
            about: match (Some(state.number) == running, state.waits) {
                (true, _) => format!("before {}:{event}", served.name),
                (false, true) => "in a call".to_string(),
                (false, false) => "waits for its turn".to_string(),
            },
        });
        infos.collect()
    }

    fn registers(&mut self, thread: ThreadId) -> Option<Registers> {
        let i = self.index(thread.pid)?;
        let states = self.states(i);
        let state = states
            .iter()
            .find(|state| tid(thread.pid, state) == thread.tid)?;
        Some(registers_of(state))
    }

    fn read(&mut self, pid: u32, address: u64, out: &mut [u8]) -> usize {
        let Some(id) = self
            .index(pid)
            .and_then(|i| self.served.get(i))
            .map(|s| s.id)
        else {
            return 0;
        };
        match self.group.at(id) {
            Ok(view) => view.inspector().process.read(address, out),
            Err(_) => 0,
        }
    }

    fn auxv(&mut self, pid: u32) -> Option<Vec<u8>> {
        let i = self.index(pid)?;
        let image = self.image(i)?;
        auxv_of(&image, &self.regions(i))
    }

    fn executable(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.path_of(self.index(pid)?)
    }

    fn file(&mut self, pid: Option<u32>, path: &[u8]) -> Option<File> {
        let text = std::str::from_utf8(path).unwrap_or("");
        if let Some(name) = text.strip_prefix("/proc/") {
            return self.process_file(name).map(File::Bytes);
        }
        let i = match pid {
            Some(pid) => self.index(pid)?,
            None => self.lead,
        };
        self.captured(i, path).map(File::At)
    }

    fn region(&mut self, pid: u32, address: u64) -> (Range<u64>, String) {
        let Some(i) = self.index(pid) else {
            return (0..u64::MAX, String::new());
        };
        let mut hole = 0..u64::MAX;
        for region in self.regions(i) {
            if region.range.contains(&address) {
                let write = if region.writable { "w" } else { "" };
                let execute = if region.executable { "x" } else { "" };
                return (region.range.clone(), format!("r{write}{execute}"));
            }
            if region.range.end <= address {
                hole.start = hole.start.max(region.range.end);
            } else {
                hole.end = hole.end.min(region.range.start);
            }
        }
        (hole, String::new())
    }

    fn thread_local(&mut self, thread: ThreadId, offset: u64, module: u64) -> Option<u64> {
        let i = self.index(thread.pid)?;
        let fs_base = self.registers(thread)?.fs_base;
        self.look(i, |inspector| {
            let bias = inspect::target::read_u64(inspector.process, module).ok()?;
            let loaded = inspector.modules().iter().find(|m| m.bias == bias)?;
            inspector.thread_local(loaded, fs_base, offset).ok()
        })
    }

    fn add_stop(&mut self, pid: u32, stop: StopPoint) -> Result<(), Refused> {
        const ENOSPC: u8 = 28;
        const ESRCH: u8 = 3;
        let i = self.index(pid).ok_or(Refused::Errno(ESRCH))?;
        let id = self.served.get(i).map(|served| served.id);
        let id = id.ok_or(Refused::Errno(ESRCH))?;
        let what = match stop.kind {
            // Only changes can be seen, not who looks.
            StopKind::Read | StopKind::Access => return Err(Refused::Unsupported),
            StopKind::Write => What::Memory {
                address: stop.address,
                length: stop.length,
            },
            StopKind::Software | StopKind::Hardware => What::Code {
                address: stop.address,
                conditions: stop
                    .conditions
                    .iter()
                    .map(|c| c.as_slice().into())
                    .collect(),
            },
        };
        let key = (id, stop.kind, stop.address, stop.length);
        let known = self.stops.get(&key).copied();
        let stops = self.group.stops();
        if let Some(point) = known.and_then(|number| stops.get_mut(number).ok()) {
            point.enabled = false;
        }
        if !stops.has_room(id, &what) {
            return Err(Refused::Errno(ENOSPC));
        }
        // gdb takes them out and puts them in again: they stay the same ones.
        match known.and_then(|number| stops.get_mut(number).ok()) {
            Some(point) => {
                point.what = what;
                point.enabled = true;
            }
            None => {
                let number = stops.add(what, |point| point.whom = Whom::Process(id));
                self.stops.insert(key, number);
            }
        }
        Ok(())
    }

    fn remove_stop(
        &mut self,
        pid: u32,
        kind: StopKind,
        address: u64,
        length: u64,
    ) -> Result<(), Refused> {
        let served = self.index(pid).and_then(|i| self.served.get(i));
        let number = served.and_then(|s| self.stops.get(&(s.id, kind, address, length)));
        if let Some(number) = number
            && let Ok(point) = self.group.stops().get_mut(*number)
        {
            point.enabled = false;
        }
        Ok(())
    }

    fn resume(&mut self, motion: &Motion, interrupt: &Interrupt) -> Result<Stop, String> {
        if let Some(stop) = self.next_told() {
            return Ok(stop);
        }
        let Some((lead, thread)) = self.thread_number(motion.thread) else {
            return Err("there is no such thread".to_string());
        };
        let Some(process) = self.served.get(lead).map(|served| served.id) else {
            return Err("there is no such process".to_string());
        };
        self.lead = lead;
        let motion = Move {
            who: match motion.process {
                Some(_) => Who::One,
                None => Who::All,
            },
            process,
            thread: Some(thread),
            how: motion.step.clone().map_or(How::Continue, How::Instructions),
            direction: match motion.direction {
                Direction::Forwards => ::session::Direction::Forwards,
                Direction::Backwards => ::session::Direction::Backwards,
            },
            follow: self.follow,
        };
        let cancel = Cancel::by(interrupt.request());
        let stopped = self.group.go(&motion, &cancel).map_err(words)?;
        self.told(stopped)
    }

    fn let_go(&mut self, pid: u32) -> bool {
        let Some(i) = self.index(pid) else {
            return false;
        };
        self.forget_stops(i);
        self.set_gone(i, true);
        true
    }

    fn take_up(&mut self, pid: u32) -> Option<ThreadId> {
        let i = self.served.iter().position(|served| served.pid == pid)?;
        self.set_gone(i, false);
        let image = self.image_now(i);
        self.served.get_mut(i)?.told = image;
        Some(self.running_id(i))
    }

    fn restart(&mut self) -> Result<ThreadId, String> {
        for i in 0..self.served.len() {
            self.forget_stops(i);
            self.set_gone(i, false);
            if let Some(served) = self.served.get_mut(i) {
                let at = Position::Event(served.first);
                self.group.place(served.id, at).map_err(words)?;
                // The first of its images.
                served.told = Some(0);
            }
        }
        Ok(self.running_id(self.lead))
    }

    fn command(&mut self, line: &str) -> String {
        super::monitor::execute(self, line)
    }
}

impl Program {
    fn set_gone(&mut self, i: usize, is_gone: bool) {
        if let Some(served) = self.served.get_mut(i) {
            served.is_gone = is_gone;
            // It is one of the group's: nothing can be wrong with it.
            let _ = self.group.let_go(served.id, is_gone);
        }
    }
}

/// A stop of a process at hand.
pub fn stop(thread: ThreadId, reason: StopReason) -> Stop {
    Stop { thread, reason }
}

/// gdb's number for a thread. The first one has its process's, before it has
/// asked for its own, too; of another one that has none in the recording, one
/// that no other has.
fn tid(pid: u32, state: &ThreadState) -> u32 {
    match (state.number.0, state.tid) {
        (0, _) => pid,
        (number, 0) => (1 << 23) + number,
        (_, tid) => tid,
    }
}

fn registers_of(state: &ThreadState) -> Registers {
    let r = &state.registers;
    let mut general = [0; 16];
    for (to, from) in general.iter_mut().zip(r.gdb()) {
        *to = from;
    }
    Registers {
        general,
        rip: r.rip,
        eflags: r.eflags,
        cs: r.cs as u16,
        ss: r.ss as u16,
        orig_rax: r.orig_rax,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        xmm: r.xmm,
    }
}

/// An image of a process, or of the process that it was forked from.
fn whose(recording: &Recording, process: u32, image: u32) -> (u32, u32) {
    let (mut process, mut image) = (process, image);
    for _ in 0..protocol::replay::PATH_STREAMS {
        let mut all = recording.images().iter();
        if all.any(|i| i.process == process && i.image == image) {
            break;
        }
        let Some(info) = recording.process(process) else {
            break;
        };
        let Some(parent) = info.parent else {
            break;
        };
        // What the parent ran when it forked.
        let ran = recording
            .images()
            .iter()
            .rfind(|i| i.process == parent && i.time <= info.birth);
        process = parent;
        image = ran.map_or(0, |i| i.image);
    }
    (process, image)
}
