//! Real time and a program's, by the halts that there were.

/// A halt: from when on the program stood still, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    pub from: u64,
    pub to: u64,
}

/// What is known of a process that is under a debugger, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub(crate) pid: u32,
    pub(crate) agent: u32,
    pub(crate) debugger: Option<u32>,
    pub(crate) asked: u64,
    /// Since when it is halted.
    pub(crate) halted: Option<u64>,
    /// By how much its clocks are behind, the halt that is on left out.
    pub(crate) shift: u64,
    /// Those that it has not seen, and that are over, in order.
    pub(crate) halts: Vec<Halt>,
}

impl Peer {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process that the debugger has on this host.
    pub fn agent(&self) -> u32 {
        self.agent
    }

    /// The process that holds it halted, if one does.
    pub fn debugger(&self) -> Option<u32> {
        self.debugger
    }

    /// When this was known, in real time.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    pub fn is_halted(&self) -> bool {
        self.halted.is_some()
    }

    /// Since when it has been halted, in real time.
    pub fn halted_since(&self) -> Option<u64> {
        self.halted
    }

    /// How long it has stood, in all, up to a moment of real time.
    fn stood(&self, real: u64) -> u64 {
        let later = self.halts.iter().rev();
        let later = later.take_while(|halt| halt.to > real);
        let later: u64 = later.map(|halt| halt.to - halt.from.max(real)).sum();
        let now = self.halted.map_or(0, |from| real.saturating_sub(from));
        (self.shift + now).saturating_sub(later)
    }

    /// What a clock of its shows at a moment of real time. (One after this was asked is
    /// taken to be without further halts. The last thousand halts are known one by one.)
    pub fn logical(&self, real: u64) -> u64 {
        real.saturating_sub(self.stood(real))
    }

    /// When its clock first showed a time, or will. None: not before it goes on, and
    /// nobody knows when that is.
    pub fn real(&self, logical: u64) -> Option<u64> {
        if let Some(from) = self.halted
            && logical > from.saturating_sub(self.shift)
        {
            return None;
        }
        let mut shift = self.shift;
        for halt in self.halts.iter().rev() {
            let real = logical + shift;
            if real > halt.to {
                return Some(real);
            }
            shift = shift.saturating_sub(halt.to - halt.from);
        }
        Some(logical + shift)
    }
}

/// CLOCK_MONOTONIC, in nanoseconds.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(halts: &[(u64, u64)], halted: Option<u64>) -> Peer {
        let halts: Vec<Halt> = halts
            .iter()
            .map(|(from, to)| Halt {
                from: *from,
                to: *to,
            })
            .collect();
        Peer {
            pid: 1,
            agent: 2,
            debugger: None,
            asked: 1000,
            halted,
            shift: halts.iter().map(|halt| halt.to - halt.from).sum(),
            halts,
        }
    }

    #[test]
    fn clocks_stand_during_halts_and_run_between() {
        let peer = peer(&[(100, 150), (300, 400)], Some(700));
        let clock = |real| peer.logical(real);
        assert_eq!(
            (clock(50), clock(100), clock(120), clock(150)),
            (50, 100, 100, 100)
        );
        assert_eq!(
            (clock(200), clock(300), clock(399), clock(400)),
            (150, 250, 250, 250)
        );
        assert_eq!((clock(600), clock(700), clock(5000)), (450, 550, 550));
    }

    #[test]
    fn there_and_back() {
        let with_halt = peer(&[(100, 150), (300, 400), (400, 410)], Some(700));
        let running = peer(&[(100, 150), (300, 400)], None);
        for peer in [&with_halt, &running] {
            let mut before = 0;
            for real in 0..900 {
                let logical = peer.logical(real);
                assert!(logical >= before, "{real}");
                before = logical;
                // The first moment at which it showed that.
                let first = peer.real(logical).unwrap_or(u64::MAX);
                assert_eq!(peer.logical(first), logical, "{real}");
                assert!(first <= real && (first == 0 || peer.logical(first - 1) < logical));
            }
        }
        assert_eq!(with_halt.real(541), None);
        assert_eq!(with_halt.real(540), Some(700));
        assert_eq!(running.real(10_000), Some(10_150));
    }

    /// What was before the halts that are remembered is counted all the same.
    #[test]
    fn forgotten_halts_count() {
        let mut peer = peer(&[(300, 400)], None);
        peer.shift += 50;
        assert_eq!((peer.logical(250), peer.logical(500)), (200, 350));
        assert_eq!(peer.real(350), Some(500));
    }
}
