//! The other hosts of a program: who is told at once when it halts here, and whose word of
//! a halt is taken.
//!
//! A way around the debugger, which may be far away. It is never the only one: what
//! comes by it comes by way of the debugger too, and whichever is first begins the halt. So
//! a host that cannot be written to, and a datagram that is lost, cost nothing but the
//! time that was to be saved.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::word::{self, ADDRESSES, Key, Secret, Word};

/// How many datagrams are looked at in so long, besides those that may be due: whoever sends
/// more shall not keep the warden from its work.
const MOST: usize = 64;
const WINDOW: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Default)]
pub struct Neighbours {
    sockets: Vec<UdpSocket>,
    key: Option<Key>,
    own: u16,
    /// Where to write to, of each member.
    addresses: Vec<Vec<SocketAddr>>,
    /// The last motion that each member has said is over.
    over: Vec<u64>,
    /// The motion that is under way here, or was last.
    motion: u64,
    is_under_way: bool,
    /// Others run in it as well, and have not been told of its end.
    is_to_tell: bool,
    looked: Looked,
}

/// What was looked at lately.
#[derive(Default)]
struct Looked {
    since: Option<Instant>,
    count: usize,
}

impl Neighbours {
    /// Where this host can be told, from now on.
    pub fn listen(&mut self) -> Vec<SocketAddr> {
        if self.sockets.is_empty() {
            let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            // A host may have one of the two only.
            let sockets = any.iter().filter_map(|any| {
                let socket = UdpSocket::bind((*any, 0)).ok()?;
                socket.set_nonblocking(true).ok()?;
                Some(socket)
            });
            self.sockets = sockets.collect();
        }
        let mut all = agent::addresses();
        // The one that somebody has come by leads here.
        let reached = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let reached = reached.split(' ').nth(2).and_then(|text| text.parse().ok());
        all.sort_by_key(|ip| (Some(*ip) != reached, ip.is_ipv6()));
        let of = |ip: IpAddr| {
            let sockets = self.sockets.iter().filter_map(|own| own.local_addr().ok());
            let mut own = sockets.filter(|at| at.is_ipv4() == ip.is_ipv4());
            own.next().map(|at| SocketAddr::new(ip, at.port()))
        };
        let all = all.into_iter().filter_map(of);
        all.filter(word::is_reachable).take(ADDRESSES).collect()
    }

    /// Who the others are.
    pub fn meet(&mut self, secret: &Secret, own: u16, mut addresses: Vec<Vec<SocketAddr>>) {
        let ours = agent::addresses();
        for (member, all) in (0..).zip(&mut addresses) {
            // What both hosts call by one name leads to this one.
            all.retain(|at| member != own && word::is_reachable(at) && !ours.contains(&at.ip()));
            all.truncate(ADDRESSES);
        }
        self.over = vec![0; addresses.len()];
        self.key = Some(secret.key());
        self.own = own;
        self.addresses = addresses;
    }

    /// A motion begins. True: another host says already that it is over.
    pub fn begin(&mut self, motion: u64, with_others: bool) -> bool {
        self.motion = motion;
        self.is_under_way = true;
        self.is_to_tell = with_others;
        self.hear();
        let is_over = self.over.contains(&motion);
        self.is_to_tell &= !is_over;
        is_over
    }

    /// The others have begun to run, too.
    pub fn join_in(&mut self) {
        self.is_to_tell = true;
    }

    /// All stand here, or are about to. The others are told if it is news to them.
    pub fn end(&mut self, is_news: bool) {
        self.is_under_way = false;
        if std::mem::take(&mut self.is_to_tell) && is_news {
            self.tell();
        }
    }

    fn tell(&self) {
        let Some(key) = &self.key else { return };
        let word = Word {
            from: self.own,
            motion: self.motion,
        };
        let sealed = word.seal(key);
        for address in self.addresses.iter().flatten() {
            let mut sockets = self.sockets.iter();
            let same = |own: &&UdpSocket| {
                let own = own.local_addr();
                own.is_ok_and(|own| own.is_ipv4() == address.is_ipv4())
            };
            if let Some(socket) = sockets.find(same) {
                // It hears of it by way of the debugger as well.
                let _ = socket.send_to(&sealed, address);
            }
        }
    }

    /// What is readable when somebody may have said something that matters: while a motion is
    /// under way, and unless too much was said lately.
    pub fn lines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let is_open =
            self.is_under_way && self.key.is_some() && !self.looked.is_too_much(self.most());
        self.sockets
            .iter()
            .filter(move |_| is_open)
            .map(AsFd::as_fd)
    }

    /// When that changes by itself.
    pub fn opens_at(&self) -> Option<Instant> {
        let is_shut = self.is_under_way && self.looked.is_too_much(self.most());
        self.looked
            .since
            .filter(|_| is_shut)
            .map(|since| since + WINDOW)
    }

    /// Those that may be due, and some.
    fn most(&self) -> usize {
        MOST + ADDRESSES * self.addresses.len()
    }

    /// Takes what has come. True: the motion that is under way is over.
    pub fn hear(&mut self) -> bool {
        let most = self.most();
        let before = self.over.contains(&self.motion);
        // One byte more, by which what is longer is known.
        let mut bytes = [0; word::LENGTH + 1];
        for socket in &self.sockets {
            while !self.looked.is_too_much(most) {
                let got = match socket.recv(&mut bytes) {
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                self.looked.note();
                let Some(key) = &self.key else { continue };
                let Some(word) = Word::open(bytes.get(..got).unwrap_or_default(), key) else {
                    continue;
                };
                // What is over here is over, and who says it may have been slow.
                if word.motion < self.motion || word.from == self.own {
                    continue;
                }
                if let Some(over) = self.over.get_mut(usize::from(word.from)) {
                    *over = word.motion.max(*over);
                }
            }
        }
        !before && self.over.contains(&self.motion)
    }
}

impl Looked {
    fn is_too_much(&self, most: usize) -> bool {
        self.count >= most && self.since.is_some_and(|since| since.elapsed() < WINDOW)
    }

    fn note(&mut self) {
        match self.since {
            Some(since) if since.elapsed() < WINDOW => self.count += 1,
            _ => {
                self.since = Some(Instant::now());
                self.count = 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails panics")]
mod tests {
    use super::*;

    /// Two hosts of a session, which can reach each other here.
    fn pair() -> [Neighbours; 2] {
        let secret = Secret::new().unwrap();
        let mut both = [Neighbours::default(), Neighbours::default()];
        let mut addresses = Vec::new();
        for own in &mut both {
            own.listen();
            let socket = own
                .sockets
                .iter()
                .find(|own| own.local_addr().unwrap().is_ipv4());
            let port = socket.unwrap().local_addr().unwrap().port();
            addresses.push(vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)]);
        }
        for (own, member) in both.iter_mut().zip(0..) {
            own.meet(&secret, member, addresses.clone());
            // Which are not for other hosts, otherwise.
            own.addresses = addresses.clone();
            own.addresses.get_mut(usize::from(member)).unwrap().clear();
        }
        both
    }

    /// Waits until something has come.
    fn wait(own: &Neighbours) {
        use rustix::event::{PollFd, PollFlags, poll};
        let all = own.sockets.iter();
        let mut fds: Vec<PollFd<'_>> = all.map(|own| PollFd::new(own, PollFlags::IN)).collect();
        poll(&mut fds, None).unwrap();
    }

    fn send(to: &Neighbours, bytes: &[u8]) {
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = to.sockets.first().unwrap().local_addr().unwrap().port();
        from.send_to(bytes, (Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn what_one_comes_to_the_other_hears_once() {
        let [mut a, mut b] = pair();
        assert!(!a.begin(1, true) && !b.begin(1, true));
        a.end(true);
        wait(&b);
        assert!(b.hear());
        // Once: and it does not say so itself.
        assert!(!b.hear());
        b.end(false);
        assert!(!a.begin(2, true) && !b.begin(2, true));
        // Who was told to stop tells nobody.
        b.end(false);
        a.end(true);
        wait(&b);
        assert!(!b.begin(3, true), "a word of what is over");
        assert_eq!(b.over, [1, 0]);
    }

    #[test]
    fn a_word_that_comes_before_the_motion_is_for_that_motion_alone() {
        let [mut a, mut b] = pair();
        a.begin(7, true);
        a.end(true);
        wait(&b);
        assert!(!b.begin(6, true));
        assert!(b.begin(7, true));
        assert!(!b.begin(8, true));
    }

    #[test]
    fn a_step_that_takes_nobody_is_not_told() {
        let [mut a, mut b] = pair();
        a.begin(1, false);
        a.end(true);
        a.begin(2, false);
        a.join_in();
        a.end(true);
        wait(&b);
        assert!(b.begin(2, true));
        assert_eq!(b.over, [2, 0]);
        assert_eq!(b.looked.count, 1);
    }

    #[test]
    fn what_is_said_again_or_by_others_halts_nobody() {
        let [a, mut b] = pair();
        let key = a.key.as_ref().unwrap();
        let say = |from, motion| Word { from, motion }.seal(key);
        let stranger = Secret::new().unwrap().key();
        b.begin(5, true);
        let (sealed, mut turned) = (say(0, 5), say(0, 5));
        *turned.last_mut().unwrap() ^= 1;
        for bytes in [
            &Word { from: 0, motion: 5 }.seal(&stranger)[..],
            &turned,
            // Its own word, one of nobody, and one of what was.
            &say(1, 5),
            &say(9, 5),
            &say(0, 4),
            // What nobody has begun.
            &say(0, u64::MAX),
            b"",
            &[0; 2000],
            sealed.get(..sealed.len() - 1).unwrap(),
        ] {
            send(&b, bytes);
            wait(&b);
            assert!(!b.hear(), "{bytes:?}");
        }
        b.end(false);
        // Even who speaks of what nobody has begun keeps nobody from running.
        assert!(!b.begin(6, true));
    }

    #[test]
    fn a_flood_is_not_looked_at() {
        let [_, mut b] = pair();
        b.begin(1, true);
        for _ in 0..4 * b.most() {
            send(&b, &[7; word::LENGTH]);
        }
        let begun = Instant::now();
        assert!(!b.hear());
        if begun.elapsed() < WINDOW {
            assert_eq!(b.looked.count, b.most());
            let at = b.opens_at();
            assert!(b.lines().count() == 0 || begun.elapsed() >= WINDOW);
            assert!(at.is_some() || begun.elapsed() >= WINDOW);
        }
        std::thread::sleep(WINDOW);
        assert!(b.opens_at().is_none() && b.lines().count() > 0);
        // Nobody listens while nobody runs.
        b.end(false);
        assert_eq!(b.lines().count(), 0);
    }
}
