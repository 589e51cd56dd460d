//! Pseudo-terminals: the line discipline changes what goes through them, so
//! bytes cannot simply be counted. What each side will see is worked out byte
//! by byte, with the modes of the moment, and found again in what was read.

use super::link;
use super::ready::{self, Origins};
use crate::link::{Kind, Link};
use crate::world::World;
use crate::world::objects::{KEPT, Op, Pty};

const ISTRIP: u32 = 0o40;
const INLCR: u32 = 0o100;
const IGNCR: u32 = 0o200;
const ICRNL: u32 = 0o400;
const IXON: u32 = 0o2000;
const OPOST: u32 = 1;
const ONLCR: u32 = 4;
const ISIG: u32 = 1;
const ICANON: u32 = 2;
const ECHO: u32 = 0o10;
const ECHONL: u32 = 0o100;
const ECHOCTL: u32 = 0o1000;

/// `c_iflag`, `c_oflag`, `c_lflag` of a terminal that nobody has set.
const FRESH: [u32; 3] = [ICRNL | IXON, OPOST | ONLCR, 0o105073];

/// A byte on its way: which send it is of, and what it is, if that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte {
    send: usize,
    value: Option<u8>,
}

fn modes_at(modes: &[(Op, [u32; 3])], send: &Op) -> [u32; 3] {
    let set = modes.iter().rev().find(|(op, _)| op.lo <= send.lo);
    set.map_or(FRESH, |(_, modes)| *modes)
}

/// What a send is: the bytes that were kept, then unknown ones.
fn bytes_of<'d>(send: usize, op: &Op, data: &'d [u8]) -> impl Iterator<Item = Byte> + use<'d> {
    let kept = data.get(..data.len().min(KEPT)).unwrap_or(data);
    let kept = kept.get(..op.amount as usize).unwrap_or(kept);
    let rest = op.amount.saturating_sub(kept.len() as u64);
    kept.iter()
        .map(move |value| Byte {
            send,
            value: Some(*value),
        })
        .chain((0..rest).map(move |_| Byte { send, value: None }))
}

/// What the terminal's reader will see of a send by its master.
fn typed(
    send: usize,
    op: &Op,
    data: &[u8],
    modes: [u32; 3],
    line: &mut Vec<Byte>,
    out: &mut Vec<Byte>,
) {
    let [input, _, local] = modes;
    for mut byte in bytes_of(send, op, data) {
        if let Some(mut c) = byte.value {
            if input & ISTRIP != 0 {
                c &= 0x7f;
            }
            match c {
                b'\r' if input & IGNCR != 0 => continue,
                b'\r' if input & ICRNL != 0 => c = b'\n',
                b'\n' if input & INLCR != 0 => c = b'\r',
                _ => {}
            }
            if input & IXON != 0 && matches!(c, 0x11 | 0x13) {
                continue;
            }
            if local & ISIG != 0 && matches!(c, 3 | 0x1c | 0x1a) {
                line.clear();
                continue;
            }
            if local & ICANON != 0 {
                match c {
                    4 => {
                        out.append(line);
                        continue;
                    }
                    0x7f => {
                        line.pop();
                        continue;
                    }
                    0x15 => {
                        line.clear();
                        continue;
                    }
                    _ => {}
                }
            }
            byte.value = Some(c);
        }
        line.push(byte);
        if local & ICANON == 0 || byte.value == Some(b'\n') {
            out.append(line);
        }
    }
}

/// What the master will see of a send by a program.
fn printed(send: usize, op: &Op, data: &[u8], modes: [u32; 3], out: &mut Vec<Byte>) {
    let [_, output, _] = modes;
    for byte in bytes_of(send, op, data) {
        if byte.value == Some(b'\n') && output & (OPOST | ONLCR) == OPOST | ONLCR {
            out.push(Byte {
                value: Some(b'\r'),
                ..byte
            });
        }
        out.push(byte);
    }
}

/// What the master will see of its own send.
fn echoed(send: usize, op: &Op, data: &[u8], modes: [u32; 3], out: &mut Vec<Byte>) {
    let [input, output, local] = modes;
    let newline = output & (OPOST | ONLCR) == OPOST | ONLCR;
    for byte in bytes_of(send, op, data) {
        let Some(mut c) = byte.value else {
            if local & ECHO != 0 {
                out.push(byte);
            }
            continue;
        };
        if c == b'\r' && input & ICRNL != 0 {
            c = b'\n';
        }
        let mut show = |value: u8| {
            out.push(Byte {
                send,
                value: Some(value),
            });
        };
        let shows = local & ECHO != 0 || c == b'\n' && local & (ECHONL | ICANON) == ECHONL | ICANON;
        if !shows || local & ICANON != 0 && c == 4 {
            continue;
        }
        match c {
            b'\n' if newline => {
                show(b'\r');
                show(b'\n');
            }
            b'\n' | b'\t' => show(c),
            0..=0x1f if local & ECHOCTL != 0 => {
                show(b'^');
                show(c + 0x40);
            }
            0x7f if local & ICANON != 0 => {
                show(8);
                show(b' ');
                show(8);
            }
            _ => show(c),
        }
    }
}

/// Takes `data` off a queue, and tells the sends it came from. Unknown bytes
/// are whatever is read; where a program's output is longer than what was kept
/// its newlines grow.
fn take(
    queues: &mut [std::collections::VecDeque<Byte>],
    data: &[u8],
    grows: bool,
) -> Vec<(usize, usize, u64)> {
    let mut found: Vec<(usize, usize, u64)> = Vec::new();
    let mut inside = None;
    for (at, c) in data.iter().enumerate() {
        let inserted = grows && *c == b'\r' && data.get(at + 1) == Some(&b'\n');
        let fits = |queue: &std::collections::VecDeque<Byte>| {
            queue
                .front()
                .is_some_and(|byte| byte.value.is_none_or(|value| value == *c))
        };
        // A send is printed in one piece.
        let same = |q: usize, queue: &std::collections::VecDeque<Byte>| {
            inside
                .is_some_and(|(iq, send)| iq == q && queue.front().is_some_and(|b| b.send == send))
        };
        let chosen = queues
            .iter()
            .enumerate()
            .position(|(q, queue)| same(q, queue) && fits(queue))
            .or_else(|| queues.iter().position(fits));
        let Some(q) = chosen else { continue };
        let Some(queue) = queues.get_mut(q) else {
            continue;
        };
        let Some(byte) = queue.front().copied() else {
            continue;
        };
        if !(inserted && byte.value.is_none()) {
            queue.pop_front();
        }
        inside = Some((q, byte.send));
        match found
            .iter_mut()
            .find(|(fq, send, _)| (*fq, *send) == (q, byte.send))
        {
            Some(entry) => entry.2 += 1,
            None => found.push((q, byte.send, 1)),
        }
    }
    found
}

/// One direction's operations, with what they carried.
pub(crate) struct Side<'a> {
    pub sends: &'a [Op],
    pub sent: &'a [Vec<u8>],
    pub recvs: &'a [Op],
    pub received: &'a [Vec<u8>],
}

fn by_time(ops: &[Op], key: impl Fn(&Op) -> u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_by_key(|i| ops.get(*i).map(&key));
    order
}

/// Pairs both directions: `emit(down, send, from_down, recv, bytes)` where
/// `down` says which direction was read, and `from_down` by which it was sent
/// (an echo goes back).
pub(crate) fn pair(
    modes: &[(Op, [u32; 3])],
    down: &Side<'_>,
    up: &Side<'_>,
    mut emit: impl FnMut(bool, usize, bool, usize, u64),
) {
    let nothing = Vec::new();
    let (mut line, mut ready) = (Vec::new(), Vec::new());
    let mut echo = std::collections::VecDeque::new();
    for i in by_time(down.sends, |op| op.lo) {
        let (Some(op), data) = (down.sends.get(i), down.sent.get(i).unwrap_or(&nothing)) else {
            continue;
        };
        let modes = modes_at(modes, op);
        typed(i, op, data, modes, &mut line, &mut ready);
        let mut shown = Vec::new();
        echoed(i, op, data, modes, &mut shown);
        echo.extend(shown);
    }
    let mut queues = [ready.into_iter().collect()];
    for i in by_time(down.recvs, |op| op.hi) {
        let data = down.received.get(i).unwrap_or(&nothing);
        for (_, send, bytes) in take(&mut queues, data, false) {
            emit(true, send, true, i, bytes);
        }
    }
    let mut out = Vec::new();
    for i in by_time(up.sends, |op| op.lo) {
        let (Some(op), data) = (up.sends.get(i), up.sent.get(i).unwrap_or(&nothing)) else {
            continue;
        };
        printed(i, op, data, modes_at(modes, op), &mut out);
    }
    let mut queues = [out.into_iter().collect(), echo];
    for i in by_time(up.recvs, |op| op.hi) {
        let data = up.received.get(i).unwrap_or(&nothing);
        for (queue, send, bytes) in take(&mut queues, data, true) {
            emit(false, send, queue == 1, i, bytes);
        }
    }
}

/// Links what went through a terminal, both ways.
pub(super) fn link_all(world: &World<'_>, pty: &Pty, links: &mut Vec<Link>, origins: &mut Origins) {
    let [down_number, up_number] = pty.channels;
    let (Some(down), Some(up)) = (
        world.channels.get(down_number as usize),
        world.channels.get(up_number as usize),
    ) else {
        return;
    };
    let [typed, read, printed, seen] = &pty.data;
    let down_side = Side {
        sends: &down.sends,
        sent: typed,
        recvs: &down.recvs,
        received: read,
    };
    let up_side = Side {
        sends: &up.sends,
        sent: printed,
        recvs: &up.recvs,
        received: seen,
    };
    pair(
        &pty.modes,
        &down_side,
        &up_side,
        |to_down, send, from_down, recv, bytes| {
            let sends = if from_down { &down.sends } else { &up.sends };
            let (recvs, number) = if to_down {
                (&down.recvs, down_number)
            } else {
                (&up.recvs, up_number)
            };
            if let (Some(send), Some(recv)) = (sends.get(send), recvs.get(recv)) {
                links.push(link(Kind::Message, send, recv, Some(number), bytes));
                ready::note(origins, recv, send);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(time: u64, amount: usize) -> Op {
        Op {
            lo: time,
            hi: time,
            amount: amount as u64,
            ..Op::default()
        }
    }

    #[test]
    fn lines_echoes_and_newlines_are_told_apart() {
        let typed = [b"ab\r".to_vec(), b"x\x7fc\n".to_vec()];
        let read = [b"ab\n".to_vec(), b"c\n".to_vec()];
        let printed = [b"ok\n".to_vec()];
        let seen = [b"ab\r\nok\r\nx\x08 \x08c\r\n".to_vec()];
        let ops = |list: &[Vec<u8>], from: u64| -> Vec<Op> {
            let times = from..;
            list.iter()
                .zip(times)
                .map(|(d, t)| op(t, d.len()))
                .collect()
        };
        let (ts, rs, ps, ss) = (
            ops(&typed, 1),
            ops(&read, 10),
            ops(&printed, 2),
            ops(&seen, 20),
        );
        let down = Side {
            sends: &ts,
            sent: &typed,
            recvs: &rs,
            received: &read,
        };
        let up = Side {
            sends: &ps,
            sent: &printed,
            recvs: &ss,
            received: &seen,
        };
        let mut found = Vec::new();
        pair(&[], &down, &up, |d, s, f, r, n| found.push((d, s, f, r, n)));
        assert_eq!(
            found,
            [
                (true, 0, true, 0, 3),
                (true, 1, true, 1, 2),
                (false, 0, true, 0, 4),
                (false, 0, false, 0, 4),
                (false, 1, true, 0, 7),
            ]
        );
    }
}
