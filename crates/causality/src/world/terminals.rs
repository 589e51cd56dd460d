//! Pseudo-terminals: which two ends belong together, and how each is set.

use recording::Event;

use super::World;
use super::calls::half;
use super::objects::*;
use crate::channel::ChannelKind;

const TIOCGPTN: u32 = 0x8004_5430;
const TIOCGPTPEER: u32 = 0x5441;
const TIOCSCTTY: u32 = 0x540e;
const TIOCNOTTY: u32 = 0x5422;
const FIOCLEX: u32 = 0x5451;
const FIONCLEX: u32 = 0x5450;
const O_NOCTTY: u64 = 0o400;

impl World<'_> {
    fn make_terminal(&mut self) -> u32 {
        let pty = self.terminals.len() as u32;
        let name = || "terminal".to_string();
        let down = self.make_channel(ChannelKind::Terminal, Flow::Terminal(pty, true), name());
        let up = self.make_channel(ChannelKind::Terminal, Flow::Terminal(pty, false), name());
        for (own, other) in [(down, up), (up, down)] {
            if let Some(channel) = self.channel(own) {
                channel.reverse = Some(other);
                channel.forward = own == down;
            }
        }
        self.terminals.push(Pty {
            number: None,
            channels: [down, up],
            modes: Vec::new(),
            data: Default::default(),
        });
        pty
    }

    /// A process begins a session, which has no terminal yet.
    pub(super) fn leaves_terminal(&mut self, op: Op) {
        if let Some(process) = self.proc_mut(op.process) {
            process.terminal = None;
        }
    }

    /// An open file for the side that programs have as their terminal.
    pub(super) fn open_terminal(&mut self, pty: u32) -> u32 {
        self.open_side(pty, false)
    }

    fn open_side(&mut self, pty: u32, master: bool) -> u32 {
        let channels = self.terminals.get(pty as usize).map(|pty| pty.channels);
        if let Some([down, up]) = channels {
            let (input, output) = if master { (up, down) } else { (down, up) };
            if let Some(channel) = self.channel(input) {
                channel.readers += 1;
            }
            if let Some(channel) = self.channel(output) {
                channel.writers += 1;
            }
        }
        self.files.make(What::Terminal { pty, master })
    }

    /// A device was opened: if it is a terminal, its open file.
    pub(super) fn opened_terminal(&mut self, op: Op, path: &[u8], flags: u64) -> Option<u32> {
        if path.ends_with(b"/ptmx") {
            let pty = self.make_terminal();
            return Some(self.open_side(pty, true));
        }
        if path == b"/dev/tty" {
            let own = self.proc(op.process).and_then(|process| process.terminal);
            return Some(match own {
                Some(pty) => self.open_terminal(pty),
                None => self.files.make(What::Outside {
                    input: NONE,
                    output: NONE,
                }),
            });
        }
        let digits = path.strip_prefix(b"/dev/pts/")?;
        let number: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let known = self
            .terminals
            .iter()
            .rposition(|pty| pty.number == Some(number));
        let Some(pty) = known else {
            return Some(self.files.make(What::Outside {
                input: NONE,
                output: NONE,
            }));
        };
        Some(self.take_terminal(op, pty as u32, flags))
    }

    /// A process opens the side that programs have as their terminal, and with
    /// it may get the terminal as its own.
    fn take_terminal(&mut self, op: Op, pty: u32, flags: u64) -> u32 {
        if flags & O_NOCTTY == 0
            && let Some(process) = self.proc_mut(op.process)
        {
            process.terminal.get_or_insert(pty);
        }
        self.open_terminal(pty)
    }

    pub(super) fn ioctl(&mut self, op: Op, event: &Event<'_>, file: u32) {
        let request = event.args[1] as u32;
        match request {
            FIOCLEX => return self.mark(op.process, event.args[0], true),
            FIONCLEX => return self.mark(op.process, event.args[0], false),
            TIOCNOTTY => {
                if let Some(process) = self.proc_mut(op.process) {
                    process.terminal = None;
                }
            }
            _ => {}
        }
        let What::Terminal { pty, .. } = self.files.what(file) else {
            return;
        };
        let bytes = event.argument(2).map(|data| data.bytes).unwrap_or(&[]);
        match request {
            TIOCSCTTY => {
                if let Some(process) = self.proc_mut(op.process) {
                    process.terminal = Some(pty);
                }
            }
            TIOCGPTN => {
                let number = half(bytes, 0);
                if let Some(pty) = self.terminals.get_mut(pty as usize) {
                    pty.number = number;
                    for channel in pty.channels {
                        if let (Some(channel), Some(number)) =
                            (self.channels.get_mut(channel as usize), number)
                        {
                            channel.name = format!("/dev/pts/{number}");
                        }
                    }
                }
            }
            TIOCGPTPEER => {
                const O_CLOEXEC: u64 = 0o2000000;
                let flags = event.args[2];
                if let Some(fd) = event.result.filter(|fd| *fd >= 0) {
                    let file = self.take_terminal(op, pty, flags);
                    self.put(op, fd, file, flags & O_CLOEXEC != 0);
                }
            }
            // TCSETS, TCSETSW, TCSETSF
            0x5402..=0x5404 => {
                if let (Some(input), Some(output), Some(local)) =
                    (half(bytes, 0), half(bytes, 4), half(bytes, 12))
                    && let Some(pty) = self.terminals.get_mut(pty as usize)
                {
                    pty.modes.push((op, [input, output, local]));
                }
            }
            _ => {}
        }
    }
}
