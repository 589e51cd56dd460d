//! Answers a client, packet by packet.
//!
//! Bytes are read by a thread of their own, so that an interruption is seen
//! while something runs; everything else is done by the thread that calls
//! [`serve`].

mod connection;
mod interrupt;
mod memory;
mod motion;
mod points;
mod threads;
mod transfer;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::command::{self, Command, Which};
use crate::files::Files;
use crate::packet::{self, Decoder, Input, LONGEST};
use crate::stop::{Stop, StopReason, Understands};
use crate::target::{Direction, StopPoint, Target, ThreadId, ThreadInfo};
pub use interrupt::Interrupt;

/// How often it is looked whether the server is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What of a packet is for data; the rest is for what is around it.
const ROOM: usize = LONGEST - 64;

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
            Command::NoAck => self.trusts(),
            Command::Extended | Command::Symbols => OK.into(),
            Command::HostInfo => connection::host(),
            Command::ProcessInfo => self.process(),
            Command::Attached(pid) => self.is_attached(pid),
            Command::PassSignals(numbers) => self.pass_signals(&numbers),
            Command::Attach(pid) => self.attach(pid),
            Command::Run => self.restart()?,
            Command::Detach(None) => self.detach()?,
            Command::Kill(None) => self.kill_all(),
            Command::Detach(Some(pid)) => self.let_go(pid),
            Command::Kill(Some(pid)) => self.kill(pid),
            Command::Monitor(line) => self.monitor(&line)?,

            Command::SetGeneral(which) => self.set_general(which),
            Command::SetContinue(which) => {
                self.moves = which;
                OK.into()
            }
            Command::IsAlive(which) => self.is_alive(which),
            Command::CurrentThread => self.current_thread(),
            Command::FirstThreads => self.first_threads(),
            Command::NextThreads => self.next_threads(),
            Command::ThreadAbout(which) => self.thread_about(which),

            Command::ReadRegisters => self.registers(),
            Command::ReadRegister(number) => self.register(number),
            Command::WriteRegisters(digits) => self.set_registers(&digits),
            Command::WriteRegister(number, value) => self.set_register(number, &value),
            Command::WriteMemory { address, bytes } => self.write(address, &bytes),
            Command::ReadMemory { address, length } => self.read(address, length),
            Command::MemoryRegion(address) => self.region(address),
            Command::ThreadLocal {
                thread,
                offset,
                module,
            } => self.thread_local(thread, offset, module),

            Command::AddStop {
                kind,
                address,
                length,
                conditions,
            } => self.add_stop(StopPoint {
                kind,
                address,
                length,
                conditions,
            }),
            Command::RemoveStop {
                kind,
                address,
                length,
            } => self.remove_stop(kind, address, length),

            Command::Why => self.last_stop(),
            Command::AskContinue => "vCont;c;C;s;S;r".into(),
            Command::Continue(actions) => {
                let motion = self.motion(&actions);
                self.resume(&motion)?
            }
            Command::Forwards { step, signal } => {
                let motion = self.motion_of(Direction::Forwards, step, signal);
                self.resume(&motion)?
            }
            Command::Backwards { step } => {
                let motion = self.motion_of(Direction::Backwards, step, None);
                self.resume(&motion)?
            }

            Command::Transfer {
                object,
                annex,
                offset,
                length,
            } => self.transfer(&object, &annex, offset, length),
            Command::File(request) => Reply::Bytes(self.files.answer(request, self.target, ROOM)),

            Command::Malformed => MALFORMED.into(),
            Command::Unknown => UNKNOWN.into(),
        })
    }
}
