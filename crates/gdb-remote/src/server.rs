//! Answers a client, packet by packet.
//!
//! Bytes are read by a thread of their own, so that an interruption is seen
//! while something runs; everything else is done by the thread that calls
//! [`serve`].

use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::command::{self, Action, Command, Id, Which};
use crate::files::Files;
use crate::hex;
use crate::packet::{self, Decoder, Input, LONGEST};
use crate::registers;
use crate::stop::{self, Stop, StopReason, Understands};
use crate::target::{Direction, Motion, Refused, StopPoint, Target, ThreadId, ThreadInfo};

/// How often it is looked whether the server is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What of a packet is for data; the rest is for what is around it.
const ROOM: usize = LONGEST - 64;

/// Whether the client wants what it asked for to stop.
///
/// A client may send the interruption right behind the packet that sets
/// something moving, or just when that has stopped by itself. So it is told
/// by how many packets came before it, and counts for the last of them only.
#[derive(Debug, Default)]
pub struct Interrupt {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Packets that had come when it did; 0: none.
    after: u64,
    /// Number of the packet that is answered.
    now: u64,
    /// Of what is being done.
    flag: Arc<AtomicBool>,
}

impl State {
    fn came(&self) -> bool {
        self.after != 0 && self.after >= self.now
    }
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one came for what is being done.
    pub fn came(&self) -> bool {
        self.state().came()
    }

    /// A flag for what is done from now on: true when the client wants that to
    /// stop. It is this request's: the next one has another.
    pub fn request(&self) -> Arc<AtomicBool> {
        let mut state = self.state();
        state.flag = Arc::new(AtomicBool::new(state.came()));
        Arc::clone(&state.flag)
    }

    /// So many packets had come when it did.
    fn comes(&self, after: u64) {
        let mut state = self.state();
        state.after = after;
        if state.came() {
            state.flag.store(true, SeqCst);
        }
    }

    fn answers(&self, packet: u64) {
        self.state().now = packet;
    }
}

/// Reads until there is nothing more.
fn listen(mut from: impl Read, to: &Sender<(Input, u64)>, interrupt: &Interrupt) {
    let mut decoder = Decoder::new();
    let mut buffer = [0; 4096];
    let mut packets = 0;
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for byte in buffer.get(..got).unwrap_or(&[]) {
            let Some(input) = decoder.take(*byte) else {
                continue;
            };
            match input {
                Input::Packet(_) => packets += 1,
                Input::Interrupt => interrupt.comes(packets),
                _ => {}
            }
            if to.send((input, packets)).is_err() {
                return;
            }
        }
    }
    // Nobody is there to wait for what runs.
    interrupt.comes(u64::MAX);
}

/// Serves a client until it goes away, or `is_over` says so. The thread that
/// reads ends when `from` does.
pub fn serve(
    from: impl Read + Send + 'static,
    to: impl Write,
    target: &mut dyn Target,
    interrupt: &Arc<Interrupt>,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let (sender, receiver) = channel();
    let flag = Arc::clone(interrupt);
    std::thread::Builder::new().spawn(move || listen(from, &sender, &flag))?;
    let current = target.current();
    let mut server = Server {
        to,
        target,
        interrupt,
        understands: Understands::default(),
        acknowledges: true,
        general: current,
        moves: Which::ANY,
        listed: Vec::new(),
        object: None,
        files: Files::default(),
        last: Stop {
            thread: current,
            reason: StopReason::Arrived,
        },
    };
    server.run(&receiver, is_over)
}

struct Server<'t, W> {
    to: W,
    target: &'t mut dyn Target,
    interrupt: &'t Interrupt,
    understands: Understands,
    /// Packets are acknowledged until the client says that it trusts the
    /// connection.
    acknowledges: bool,
    general: ThreadId,
    moves: Which,
    /// Threads that are still to be told of in a list.
    listed: Vec<ThreadInfo>,
    /// What is being transferred: its name, and all of it.
    object: Option<(String, Vec<u8>)>,
    files: Files,
    last: Stop,
}

/// What is sent back.
enum Reply {
    Text(String),
    Bytes(Vec<u8>),
    /// Nothing: it ends.
    End,
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        Reply::Text(text.to_string())
    }
}

const OK: &str = "OK";
const UNKNOWN: &str = "";
/// Error numbers are the kernel's, where there is one that fits.
const BAD_ADDRESS: &str = "E0e";
const NO_SUCH: &str = "E03";
const MALFORMED: &str = "E16";
const READ_ONLY: &str = "E1e";

impl<W: Write> Server<'_, W> {
    fn run(
        &mut self,
        receiver: &Receiver<(Input, u64)>,
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut sent = Vec::new();
        loop {
            let (input, number) = match receiver.recv_timeout(LOOK) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) if is_over() => return Ok(()),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            match input {
                Input::Packet(data) => {
                    self.interrupt.answers(number);
                    tracing::debug!(target: "gdb", packet = %data.escape_ascii(), "asked");
                    if self.acknowledges {
                        self.to.write_all(b"+")?;
                        self.to.flush()?;
                    }
                    sent = match self.answer(&data)? {
                        Reply::Text(text) => packet::frame(text.as_bytes()),
                        Reply::Bytes(bytes) => packet::frame(&bytes),
                        Reply::End => return Ok(()),
                    };
                    tracing::trace!(target: "gdb", packet = %sent.escape_ascii(), "answered");
                    self.to.write_all(&sent)?;
                    self.to.flush()?;
                }
                Input::Corrupt if self.acknowledges => {
                    self.to.write_all(b"-")?;
                    self.to.flush()?;
                }
                Input::Nack if self.acknowledges => {
                    self.to.write_all(&sent)?;
                    self.to.flush()?;
                }
                // What came while something ran has been seen there.
                Input::Interrupt | Input::Ack | Input::Nack | Input::Corrupt => {}
            }
        }
    }

    fn answer(&mut self, data: &[u8]) -> io::Result<Reply> {
        Ok(match command::parse(data) {
            Command::Supported(features) => self.supported(&features),
            Command::NoAck => {
                // The acknowledgement of this packet was the last.
                self.acknowledges = false;
                OK.into()
            }
            Command::Extended => OK.into(),
            Command::Why => self.last_stop(),
            Command::SetGeneral(which) => match self.find(which) {
                Some(thread) => {
                    self.general = thread;
                    OK.into()
                }
                None => NO_SUCH.into(),
            },
            Command::SetContinue(which) => {
                self.moves = which;
                OK.into()
            }
            Command::IsAlive(which) => match self.find(which) {
                Some(_) => OK.into(),
                None => NO_SUCH.into(),
            },
            Command::CurrentThread => Reply::Text(format!(
                "QC{}",
                stop::thread(self.general, self.understands)
            )),
            Command::FirstThreads => {
                self.listed = self.threads();
                self.next_threads()
            }
            Command::NextThreads => self.next_threads(),
            Command::ThreadAbout(which) => {
                let thread = self.find(which);
                let all = self.threads();
                match all.iter().find(|info| Some(info.id) == thread) {
                    Some(info) => Reply::Text(hex::encode(
                        format!("{}, {}", info.name, info.about).as_bytes(),
                    )),
                    None => NO_SUCH.into(),
                }
            }
            // It was there before: quitting lets go of it.
            Command::Attached => "1".into(),
            Command::ReadRegisters => match self.target.registers(self.general) {
                Some(registers) => Reply::Text(registers.all()),
                None => NO_SUCH.into(),
            },
            Command::ReadRegister(number) => {
                let registers = self.target.registers(self.general);
                match registers.and_then(|registers| registers.text(number)) {
                    Some(text) => Reply::Text(text),
                    None => NO_SUCH.into(),
                }
            }
            Command::Write => READ_ONLY.into(),
            Command::ReadMemory { address, length } => self.read(address, length),
            Command::MemoryRegion(address) => {
                let (range, rights) = self.target.region(self.general.pid, address);
                let rights = match rights.as_str() {
                    "" => String::new(),
                    rights => format!("permissions:{rights};"),
                };
                let size = range.end.wrapping_sub(range.start);
                Reply::Text(format!("start:{:x};size:{size:x};{rights}", range.start))
            }
            Command::ThreadLocal {
                thread,
                offset,
                module,
            } => {
                let thread = self.find(thread);
                let found =
                    thread.and_then(|thread| self.target.thread_local(thread, offset, module));
                match found {
                    Some(address) => Reply::Text(format!("{address:x}")),
                    None => NO_SUCH.into(),
                }
            }
            Command::AddStop {
                kind,
                address,
                length,
                conditions,
            } => {
                let stop = StopPoint {
                    kind,
                    address,
                    length,
                    conditions,
                };
                refusal(self.target.add_stop(self.general.pid, stop))
            }
            Command::RemoveStop {
                kind,
                address,
                length,
            } => refusal(
                self.target
                    .remove_stop(self.general.pid, kind, address, length),
            ),
            Command::AskContinue => "vCont;c;C;s;S;r".into(),
            Command::Continue(actions) => {
                let motion = self.motion(&actions);
                self.resume(&motion)?
            }
            Command::Forwards { step } => {
                let motion = self.motion_of(Direction::Forwards, step);
                self.resume(&motion)?
            }
            Command::Backwards { step } => {
                let motion = self.motion_of(Direction::Backwards, step);
                self.resume(&motion)?
            }
            Command::Transfer {
                object,
                annex,
                offset,
                length,
            } => self.transfer(&object, &annex, offset, length),
            Command::File(request) => Reply::Bytes(self.files.answer(request, self.target, ROOM)),
            Command::Monitor(line) => {
                let mut text = self.target.command(&line);
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                for part in text.as_bytes().chunks(ROOM / 2) {
                    self.tell(part)?;
                }
                OK.into()
            }
            Command::Detach(None) => {
                self.to.write_all(&packet::frame(OK.as_bytes()))?;
                self.to.flush()?;
                Reply::End
            }
            Command::Kill(None) => Reply::End,
            Command::Detach(Some(pid)) | Command::Kill(Some(pid)) => {
                match self.target.let_go(pid) {
                    true => OK.into(),
                    false => NO_SUCH.into(),
                }
            }
            Command::Attach(pid) => match self.target.take_up(pid) {
                Some(thread) => self.stands(thread),
                None => NO_SUCH.into(),
            },
            Command::Run => match self.target.restart() {
                Ok(thread) => self.stands(thread),
                Err(words) => {
                    self.tell(format!("{words}\n").as_bytes())?;
                    "E01".into()
                }
            },
            Command::HostInfo => Reply::Text(format!(
                "triple:{};ptrsize:8;endian:little;",
                hex::encode(b"x86_64-unknown-linux-gnu")
            )),
            Command::ProcessInfo => Reply::Text(format!(
                "pid:{:x};triple:{};ostype:linux;endian:little;ptrsize:8;",
                self.general.pid,
                hex::encode(b"x86_64-unknown-linux-gnu")
            )),
            Command::Symbols => OK.into(),
            Command::Malformed => MALFORMED.into(),
            Command::Unknown => UNKNOWN.into(),
        })
    }

    fn supported(&mut self, features: &[String]) -> Reply {
        let has = |name: &str| features.iter().any(|feature| feature == name);
        self.understands = Understands {
            multiprocess: has("multiprocess+"),
            swbreak: has("swbreak+"),
            hwbreak: has("hwbreak+"),
            exec: has("exec-events+"),
        };
        let mut answer = format!(
            "PacketSize={LONGEST:x};QStartNoAckMode+;vContSupported+;ReverseContinue+;\
             ReverseStep+;ConditionalBreakpoints+;qXfer:features:read+;qXfer:auxv:read+;\
             qXfer:exec-file:read+;qXfer:threads:read+"
        );
        for name in ["multiprocess+", "swbreak+", "hwbreak+", "exec-events+"] {
            if has(name) {
                answer.push(';');
                answer.push_str(name);
            }
        }
        Reply::Text(answer)
    }

    /// The threads that the client is told of: one that knows one process
    /// only sees the one at hand.
    fn threads(&mut self) -> Vec<ThreadInfo> {
        let processes = match self.understands.multiprocess {
            true => self.target.processes(),
            false => vec![self.general.pid],
        };
        let mut all = Vec::new();
        for pid in processes {
            all.extend(self.target.threads(pid));
        }
        all
    }

    fn next_threads(&mut self) -> Reply {
        const AT_ONCE: usize = 1000;
        if self.listed.is_empty() {
            return "l".into();
        }
        let rest = self.listed.split_off(self.listed.len().min(AT_ONCE));
        let part = std::mem::replace(&mut self.listed, rest);
        let names: Vec<String> = part
            .iter()
            .map(|info| stop::thread(info.id, self.understands))
            .collect();
        Reply::Text(format!("m{}", names.join(",")))
    }

    /// The thread that is meant.
    fn find(&mut self, which: Which) -> Option<ThreadId> {
        let pid = match which.pid {
            Id::One(pid) => pid,
            Id::Any | Id::All => self.general.pid,
        };
        let general = self.general;
        let threads = self.target.threads(pid);
        let own = |id: ThreadId| threads.iter().any(|info| info.id == id).then_some(id);
        match which.tid {
            Id::One(tid) => own(ThreadId::new(pid, tid)),
            Id::Any | Id::All => own(general).or_else(|| threads.first().map(|info| info.id)),
        }
    }

    fn read(&mut self, address: u64, length: usize) -> Reply {
        let mut buffer = vec![0; length.min(ROOM / 2)];
        let got = self.target.read(self.general.pid, address, &mut buffer);
        match buffer.get(..got).filter(|some| !some.is_empty()) {
            Some(some) => Reply::Text(hex::encode(some)),
            None if length == 0 => UNKNOWN.into(),
            None => BAD_ADDRESS.into(),
        }
    }

    /// From what `vCont` says: the first that is to step leads; all processes
    /// that are named, or all, may move.
    fn motion(&mut self, actions: &[(Action, Which)]) -> Motion {
        let step = actions.iter().find_map(|(action, which)| match action {
            Action::Step(range) => Some((range.clone(), *which)),
            Action::Continue => None,
        });
        let everybody = actions
            .iter()
            .any(|(_, which)| matches!(which.pid, Id::All));
        let named = actions.iter().find_map(|(_, which)| match which.pid {
            Id::One(pid) => Some(pid),
            _ => None,
        });
        let leader = step.as_ref().map(|(_, which)| *which);
        let leader = leader.or_else(|| actions.first().map(|(_, which)| *which));
        let thread = leader.and_then(|which| self.find(which));
        let thread = thread.unwrap_or(self.general);
        Motion {
            direction: Direction::Forwards,
            process: (!everybody || !self.understands.multiprocess)
                .then_some(named.unwrap_or(thread.pid)),
            thread,
            step: step.map(|(range, _)| range),
        }
    }

    /// From what `Hc` said.
    fn motion_of(&mut self, direction: Direction, step: bool) -> Motion {
        let which = self.moves;
        let thread = self.find(which).unwrap_or(self.general);
        let process = match which.pid {
            Id::One(pid) => Some(pid),
            _ if !self.understands.multiprocess => Some(thread.pid),
            _ => None,
        };
        Motion {
            direction,
            process,
            thread,
            step: step.then_some(0..0),
        }
    }

    fn resume(&mut self, motion: &Motion) -> io::Result<Reply> {
        let mut result = self.target.resume(motion, self.interrupt);
        // A client that knows one process is not told what others execute.
        while !self.understands.multiprocess
            && let Ok(stop) = &result
            && stop.thread.pid != motion.thread.pid
        {
            result = self.target.resume(motion, self.interrupt);
        }
        let stop = match result {
            Ok(stop) => stop,
            Err(words) => {
                self.tell(format!("{words}\n").as_bytes())?;
                Stop {
                    thread: motion.thread,
                    reason: StopReason::Signal(0),
                }
            }
        };
        self.general = stop.thread;
        self.object = None;
        self.last = stop;
        Ok(self.last_stop())
    }

    fn last_stop(&mut self) -> Reply {
        let registers = self.target.registers(self.last.thread);
        Reply::Text(stop::reply(
            &self.last,
            registers.as_ref(),
            self.understands,
        ))
    }

    fn stands(&mut self, thread: ThreadId) -> Reply {
        self.general = thread;
        self.object = None;
        self.last = Stop {
            thread,
            reason: StopReason::Arrived,
        };
        self.last_stop()
    }

    /// Shows something to the user, while the client waits.
    fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        let text = format!("O{}", hex::encode(words));
        self.to.write_all(&packet::frame(text.as_bytes()))
    }

    fn transfer(&mut self, object: &str, annex: &str, offset: usize, length: usize) -> Reply {
        let name = format!("{object}:{annex}:{}", self.general.pid);
        let known = matches!(&self.object, Some((kept, _)) if *kept == name);
        if !known || offset == 0 {
            let Some(bytes) = self.make(object, annex) else {
                return match object {
                    "features" | "auxv" | "exec-file" | "threads" => "E00".into(),
                    _ => UNKNOWN.into(),
                };
            };
            self.object = Some((name, bytes));
        }
        let bytes: &[u8] = self.object.as_ref().map_or(&[], |(_, bytes)| bytes);
        let rest = bytes.get(offset..).unwrap_or(&[]);
        let part = rest.get(..length).unwrap_or(rest);
        let (data, used) = packet::escape_within(part, ROOM);
        let mut answer = vec![if used < rest.len() { b'm' } else { b'l' }];
        answer.extend(data);
        Reply::Bytes(answer)
    }

    fn make(&mut self, object: &str, annex: &str) -> Option<Vec<u8>> {
        match object {
            "features" if annex == "target.xml" => Some(registers::description().into_bytes()),
            "auxv" => self.target.auxv(self.general.pid),
            "exec-file" => {
                let pid = match annex {
                    "" => self.general.pid,
                    annex => u32::try_from(hex::number(annex.as_bytes())?).ok()?,
                };
                self.target.executable(pid)
            }
            "threads" => Some(self.thread_list().into_bytes()),
            _ => None,
        }
    }

    fn thread_list(&mut self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
        for info in self.threads() {
            xml.push_str(&format!(
                "<thread id=\"{}\" name=\"{}\">{}</thread>\n",
                stop::thread(info.id, self.understands),
                quoted(&info.name),
                quoted(&info.about),
            ));
        }
        xml.push_str("</threads>\n");
        xml
    }
}

fn refusal(result: Result<(), Refused>) -> Reply {
    match result {
        Ok(()) => OK.into(),
        Err(Refused::Unsupported) => UNKNOWN.into(),
        Err(Refused::Errno(number)) => Reply::Text(format!("E{number:02x}")),
        Err(Refused::Words(words)) => Reply::Text(format!("E.{}", harmless(&words))),
    }
}

/// Words that can stand in a packet as they are. Clients do not undo escapes in
/// words, so what frames a packet, or would be an escape or a repetition, is
/// replaced.
fn harmless(words: &str) -> String {
    words.replace(['$', '#', '}', '*'], "_")
}

/// Text for XML.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
