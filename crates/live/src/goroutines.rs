//! What the goroutines of a Go program wait for, read from the memory of a process that runs.
//!
//! A goroutine that waits is no thread: nothing of it is known to the kernel. Go's runtime keeps
//! them all (`runtime.allgs`), and of each that waits where it goes on. Its stack then says what
//! kind of thing it waits for; which one is in what it is queued with (`sudog`): the channel, or
//! the word of a semaphore, which the locks of package `sync` are made of. Who has a lock Go does
//! not keep. Where fields are the debug information says, for each version of Go.

use std::collections::HashMap;

use inspect::Inspector;
use inspect::frames::Frame;
use inspect::inspector::Loaded;
use inspect::target::{RSP, Registers};
use inspect::types::MemberLocation;
use inspect::unwind::FrameRegisters;

use protocol::id::Addr;

use crate::waits::{Kind, On};

/// So many are looked at, and so many frames of each.
const MOST: u64 = 100_000;
const DEEP: usize = 24;
/// In `g.atomicstatus`: it waits. (One more bit is set while its stack is scanned.)
const WAITING: u64 = 4;
const SCANNED: u64 = 0x1000;

/// A goroutine that waits.
pub struct Goroutine {
    pub number: u64,
    pub on: On,
    /// The innermost function with a line that is not of Go's own packages, and that line.
    pub place: Option<String>,
}

/// The goroutines of a process that wait. None: it is no program of Go's, or says too little.
pub fn waiting(inspector: &Inspector<'_>) -> Option<Vec<Goroutine>> {
    let memory = Runtime::of(inspector)?;
    let list = memory.symbol("runtime.allgs")?;
    let (at, count) = (memory.word(list)?, memory.word(list + 8)?.min(MOST));
    let queued = memory.queued();
    let all = (0..count).filter_map(|i| memory.word(at + 8 * i));
    Some(all.filter_map(|g| memory.look(g, &queued)).collect())
}

/// Where the fields of the runtime's structures are.
struct Runtime<'a> {
    inspector: &'a Inspector<'a>,
    module: Loaded,
    goid: u64,
    status: u64,
    sched: u64,
    waiting: u64,
    sp: u64,
    pc: u64,
    channel: u64,
    elem: u64,
    of: u64,
    next: u64,
    prev: u64,
    waitlink: u64,
}

impl<'a> Runtime<'a> {
    fn of(inspector: &'a Inspector<'a>) -> Option<Runtime<'a>> {
        let modules = inspector.modules().iter();
        let module = modules
            .filter(|m| m.module.symbols().named("runtime.allgs").next().is_some())
            .find(|m| m.module.info().is_some())?;
        let field = |name: &str, member: &str| field(inspector, name, member);
        Some(Runtime {
            inspector,
            module: *module,
            goid: field("runtime.g", "goid")?,
            status: field("runtime.g", "atomicstatus")?,
            sched: field("runtime.g", "sched")?,
            waiting: field("runtime.g", "waiting")?,
            sp: field("runtime.gobuf", "sp")?,
            pc: field("runtime.gobuf", "pc")?,
            channel: field("runtime.sudog", "c")?,
            elem: field("runtime.sudog", "elem")?,
            of: field("runtime.sudog", "g")?,
            next: field("runtime.sudog", "next")?,
            prev: field("runtime.sudog", "prev")?,
            waitlink: field("runtime.sudog", "waitlink")?,
        })
    }

    fn symbol(&self, name: &str) -> Option<u64> {
        let symbol = self.module.module.symbols().named(name).next()?;
        Some(self.module.to_process(symbol.address).0)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let got = self.inspector.process.read(Addr(address), &mut bytes);
        (got == bytes.len()).then(|| u64::from_le_bytes(bytes))
    }

    /// The semaphores that goroutines wait for, by the address of each `g`.
    fn queued(&self) -> HashMap<u64, u64> {
        /// Each root has a line of the processor's cache for itself.
        const ROOT: u64 = 64;
        let mut found = HashMap::new();
        let table = self
            .module
            .module
            .symbols()
            .named("runtime.semtable")
            .next();
        let treap = field(self.inspector, "runtime.semaRoot", "treap");
        let (Some(table), Some(treap)) = (table, treap) else {
            return found;
        };
        let base = self.module.to_process(table.address).0;
        let roots = (0..table.size / ROOT).map(|i| base + i * ROOT + treap);
        let mut open: Vec<u64> = roots.filter_map(|root| self.word(root)).collect();
        let mut looked = 0;
        // (It changes meanwhile: what is told is looked at again.)
        while let Some(sudog) = open.pop().filter(|_| looked < MOST) {
            looked += 1;
            let get = |offset: u64| self.word(sudog + offset).filter(|word| *word != 0);
            if let (Some(g), Some(word)) = (get(self.of), get(self.elem))
                && found.insert(g, word).is_none()
            {
                open.extend(
                    [self.next, self.prev, self.waitlink]
                        .into_iter()
                        .filter_map(get),
                );
            }
        }
        found
    }

    /// What of a goroutine tells where it stands, if it waits.
    fn stands(&self, g: u64) -> Option<(u64, u64, u64)> {
        let status = self.word(g + self.status)? & 0xffff_ffff & !SCANNED;
        let sp = self.word(g + self.sched + self.sp)?;
        let pc = self.word(g + self.sched + self.pc)?;
        (status == WAITING).then_some((sp, pc, self.word(g + self.goid)?))
    }

    fn look(&self, g: u64, queued: &HashMap<u64, u64>) -> Option<Goroutine> {
        let stands = self.stands(g)?;
        let (sp, pc, number) = stands;
        let mut registers = Registers {
            rip: pc,
            ..Registers::default()
        };
        *registers.general.get_mut(usize::from(RSP))? = sp;
        let stack = self
            .inspector
            .stack_from(FrameRegisters::new(registers), DEEP);
        let names: Vec<&str> = stack
            .frames
            .iter()
            .filter_map(|f| f.name.as_deref())
            .collect();
        // The runtime's own wait for work.
        let own = stack.frames.iter().find(|frame| is_programs(frame))?;
        let line = own.place.as_ref().map(|place| {
            let name = own.name.as_deref().unwrap_or("??");
            format!("{name} at {}:{}", place.file.name, place.line)
        });
        let channel = self.word(g + self.waiting).filter(|sudog| *sudog != 0);
        let channel = channel.and_then(|sudog| self.word(sudog + self.channel));
        let on = self.on(&names, channel, queued.get(&g).copied());
        // It may have gone on since.
        (self.stands(g) == Some(stands)).then_some(Goroutine {
            number,
            on,
            place: line,
        })
    }

    /// What it waits for, by the innermost function that says so.
    fn on(&self, names: &[&str], channel: Option<u64>, semaphore: Option<u64>) -> On {
        let field = |name: &str, member: &str| field(self.inspector, name, member);
        let lock = |kind: Kind, offset: Option<u64>| {
            let base = semaphore.map_or(0, |word| word.wrapping_sub(offset.unwrap_or(0)));
            self.lock(kind, base)
        };
        let mutex = field("sync.Mutex", "sema").unwrap_or(4);
        for (i, name) in names.iter().enumerate() {
            let is_readers = || names.iter().skip(i).any(|name| name.contains("(*RWMutex)"));
            if name.ends_with("chanrecv") {
                return self.lock(Kind::Receive, channel.unwrap_or(0));
            } else if name.ends_with("chansend") {
                return self.lock(Kind::Send, channel.unwrap_or(0));
            } else if name.ends_with("selectgo") {
                return self.lock(Kind::Select, 0);
            } else if name.contains("(*Mutex)") && is_readers() {
                return lock(Kind::ReadWrite, Some(mutex));
            } else if name.contains("(*Mutex)") {
                return lock(Kind::Mutex, Some(mutex));
            } else if name.contains("(*RWMutex).Lock") {
                return lock(Kind::ReadWrite, field("sync.RWMutex", "writerSem"));
            } else if name.contains("(*RWMutex)") {
                return lock(Kind::ReadWrite, field("sync.RWMutex", "readerSem"));
            } else if name.contains("(*WaitGroup)") {
                let sema = field("sync.WaitGroup", "sema");
                return lock(
                    Kind::WaitGroup,
                    sema.or_else(|| field("sync.WaitGroup", "state2")),
                );
            } else if name.contains("(*Cond).Wait") {
                return self.lock(Kind::Condition, 0);
            } else if name.ends_with("time.Sleep") || name.ends_with("timeSleep") {
                return On::Time;
            }
        }
        On::Other
    }

    fn lock(&self, kind: Kind, address: u64) -> On {
        let name = match address {
            0 => None,
            address => self.inspector.symbolize(Addr(address)),
        };
        On::Lock {
            kind,
            address: Addr(address),
            name: name.map(|name| name.trim_matches(['<', '>']).to_string()),
            holder: None,
        }
    }
}

/// Whether a frame is of code that is not Go's own.
fn is_programs(frame: &Frame) -> bool {
    let own = ["runtime.", "sync.", "internal/", "time.", "syscall."];
    let name = frame.name.as_deref().unwrap_or("");
    frame.place.is_some() && !own.iter().any(|package| name.starts_with(package))
}

/// How far a member is from the beginning of a structure.
fn field(inspector: &Inspector<'_>, name: &str, member: &str) -> Option<u64> {
    let all = inspector.find_type(name, None)?.aggregate()?.members;
    let found = all.iter().find(|one| one.name == Some(member))?;
    match found.place {
        MemberLocation::Offset(offset) => Some(offset),
        MemberLocation::Expression(_) => None,
    }
}
