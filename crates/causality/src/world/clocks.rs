//! Clocks of hosts, fitted to the order of what happened.
//!
//! What was received was sent before: each message from one member to another
//! bounds how far the other's clock can be ahead of the first one's from one
//! side, and each message back from the other. A clock that runs at another
//! speed shows as bounds that move; a constant cannot keep them all then, but
//! a line can. Of all values that keep the bounds the middle is taken: it keeps
//! them for every two members, not only against the first.

use protocol::id::Ticks;
use recording::Clock;

/// How a member's clock stood to that of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberClock {
    /// So far ahead of the first one's it is taken to have been when the
    /// recording began, in nanoseconds.
    pub ahead_ns: i64,
    /// So much faster it is taken to have gone, in nanoseconds a second.
    pub drift_ppb: i64,
    /// It was ahead by no less than this, if any message tells.
    pub least_ns: Option<i64>,
    /// It was ahead by no more than this, if any message tells.
    pub most_ns: Option<i64>,
}

/// Nanoseconds since a recording's beginning, or before it.
pub(super) fn elapsed_ns(clock: &Clock, ticks: Ticks) -> i64 {
    // It is asked of millions of events, and dividing 128 bits takes its time.
    let elapsed = ticks.0.checked_sub(clock.ticks.0);
    if let Some(ns) = elapsed.and_then(|own| short_ns(own, clock.ticks_per_second.max(1))) {
        return ns;
    }
    let elapsed = i128::from(ticks.0) - i128::from(clock.ticks.0);
    let rate = i128::from(clock.ticks_per_second.max(1));
    i64::try_from(elapsed * 1_000_000_000 / rate).unwrap_or(i64::MAX)
}

/// Nanoseconds of so many ticks, if all that it takes has 64 bits: whole seconds, and what is
/// left of one.
fn short_ns(ticks: u64, rate: u64) -> Option<i64> {
    let seconds = (ticks / rate).checked_mul(1_000_000_000)?;
    let rest = (ticks % rate).checked_mul(1_000_000_000)? / rate;
    i64::try_from(seconds.checked_add(rest)?).ok()
}

/// How much later than the first one's a recording began, by both clocks.
pub(super) fn later_ns(first: &Clock, own: &Clock) -> i64 {
    let later = i128::from(own.realtime_ns) - i128::from(first.realtime_ns);
    i64::try_from(later).unwrap_or(0)
}

/// Nanoseconds from the first one's beginning, by its clock, to when this was
/// in another member.
pub(crate) fn since_first(first: &Clock, own: &Clock, fit: MemberClock, ticks: Ticks) -> i64 {
    Shift::new(*first, *own, fit).ns(ticks)
}

/// Times of one member as those of the first one's clock.
pub(super) struct Shift {
    first: Clock,
    own: Clock,
    fit: MemberClock,
}

/// In front of what the first member's clock said, so that nothing is before
/// zero.
const BASE: i128 = 1 << 61;

impl Shift {
    pub fn new(first: Clock, own: Clock, fit: MemberClock) -> Shift {
        Shift { first, own, fit }
    }

    /// Nanoseconds from the first one's beginning, by its clock.
    pub fn ns(&self, ticks: Ticks) -> i64 {
        let elapsed = elapsed_ns(&self.own, ticks);
        let later = later_ns(&self.first, &self.own);
        slowed(elapsed, self.fit.drift_ppb)
            .saturating_add(later)
            .saturating_sub(self.fit.ahead_ns)
    }

    /// In ticks of the first, behind [`BASE`].
    pub fn time(&self, ticks: u64) -> u64 {
        // Times that stand for never, and for the beginning of all.
        if ticks == u64::MAX || ticks == 0 {
            return ticks;
        }
        let rate = i128::from(self.first.ticks_per_second.max(1));
        let time = BASE + i128::from(self.ns(Ticks(ticks))) * rate / 1_000_000_000;
        u64::try_from(time).unwrap_or(0)
    }
}

/// How long it was by a clock that does not go that much too fast.
fn slowed(elapsed: i64, drift: i64) -> i64 {
    if drift == 0 {
        return elapsed;
    }
    let gained = i128::from(elapsed) * i128::from(drift) / 1_000_000_000;
    elapsed.saturating_sub(i64::try_from(gained).unwrap_or(0))
}

/// When something was sent and when it was received, each by its host's clock
/// and from its recording's beginning.
type Sight = (i64, i64);

/// What the messages between members say about their clocks.
pub(super) struct Sights {
    count: usize,
    /// By sender and receiver: one for each piece of time, the one that took
    /// least.
    seen: Vec<Vec<Sight>>,
}

/// Of all messages in this long a time the one that tells most is kept.
const PIECE_NS: i64 = 100_000_000;

impl Sights {
    pub fn new(count: usize) -> Sights {
        Sights {
            count,
            seen: vec![Vec::new(); count * count],
        }
    }

    /// Something left a member at one time and reached another at the other.
    pub fn see(&mut self, (from, sent): (u16, i64), (to, received): (u16, i64)) {
        let at = usize::from(from) * self.count + usize::from(to);
        let Some(list) = self.seen.get_mut(at).filter(|_| from != to) else {
            return;
        };
        let took = |(sent, received): Sight| received.saturating_sub(sent);
        let sight = (sent, received);
        match list.last_mut() {
            Some(last) if last.1 / PIECE_NS == received / PIECE_NS => {
                if took(sight) < took(*last) {
                    *last = sight;
                }
            }
            _ => list.push(sight),
        }
    }

    fn between(&self, from: usize, to: usize) -> &[Sight] {
        self.seen
            .get(from * self.count + to)
            .map_or(&[], Vec::as_slice)
    }
}

/// Fits all clocks. `later`: see [`later_ns`].
pub(super) fn fit(sights: &Sights, later: &[i64]) -> Vec<MemberClock> {
    let count = sights.count;
    let mut drifts = vec![0i64; count];
    // From the first outwards: who has spoken with one whose speed is known.
    let mut known = vec![false; count];
    if let Some(first) = known.first_mut() {
        *first = true;
    }
    loop {
        let unknown = (0..count).filter(|m| known.get(*m) == Some(&false));
        let next = unknown.into_iter().find_map(|member| {
            let anchor = (0..count).find(|other| {
                known.get(*other) == Some(&true)
                    && !sights.between(*other, member).is_empty()
                    && !sights.between(member, *other).is_empty()
            })?;
            Some((member, anchor))
        });
        let Some((member, anchor)) = next else { break };
        let base = drifts.get(anchor).copied().unwrap_or(0);
        let drift = drift(sights, (anchor, base), member);
        if let (Some(own), Some(known)) = (drifts.get_mut(member), known.get_mut(member)) {
            *own = drift;
            *known = true;
        }
    }
    let mut clocks = offsets(sights, &drifts, later);
    for (clock, drift) in clocks.iter_mut().zip(drifts) {
        clock.drift_ppb = drift;
    }
    clocks
}

/// By how much no more the receiver's clock was ahead of the sender's, both at
/// their beginnings, if they went that much too fast.
fn bound((sent, received): Sight, sender: i64, receiver: i64) -> i64 {
    slowed(received, receiver).saturating_sub(slowed(sent, sender))
}

/// How much too fast a member's clock went: as much as one whose speed is
/// known, unless it takes more to keep the bounds.
fn drift(sights: &Sights, (anchor, base): (usize, i64), member: usize) -> i64 {
    // How much room the bounds leave.
    let room = |drift: i64| {
        let there = sights.between(anchor, member).iter();
        let above = there.map(|sight| bound(*sight, base, drift)).min();
        let back = sights.between(member, anchor).iter();
        let below = back.map(|sight| bound(*sight, drift, base)).min();
        match (above, below) {
            (Some(above), Some(below)) => above.saturating_add(below),
            _ => i64::MAX,
        }
    };
    if room(base) >= 0 {
        return base;
    }
    // The room is concave in the drift.
    const MOST: i64 = 1_000_000;
    let (mut low, mut high) = (base - MOST, base + MOST);
    while high - low > 2 {
        let (a, b) = (low + (high - low) / 3, high - (high - low) / 3);
        if room(a) < room(b) {
            low = a;
        } else {
            high = b;
        }
    }
    (low..=high)
        .max_by_key(|drift| room(*drift))
        .unwrap_or(base)
}

/// Far enough to be no bound at all.
const NEVER: i64 = i64::MAX / 4;

fn offsets(sights: &Sights, drifts: &[i64], later: &[i64]) -> Vec<MemberClock> {
    let count = sights.count;
    // `reach[a][b]`: b's time since its beginning is ahead of a's by no more.
    let mut reach = vec![vec![NEVER; count]; count];
    for (a, row) in reach.iter_mut().enumerate() {
        for (b, least) in row.iter_mut().enumerate() {
            if a == b {
                *least = 0;
                continue;
            }
            let drift = |m: usize| drifts.get(m).copied().unwrap_or(0);
            let seen = sights.between(a, b).iter();
            let seen = seen.map(|sight| bound(*sight, drift(a), drift(b)));
            *least = seen.min().unwrap_or(NEVER).min(NEVER);
        }
    }
    close(&mut reach);
    let get = |reach: &[Vec<i64>], a: usize, b: usize| {
        let found = reach.get(a).and_then(|row| row.get(b));
        found.copied().unwrap_or(NEVER)
    };
    let bounds: Vec<(Option<i64>, Option<i64>)> = (0..count)
        .map(|m| {
            let most = Some(get(&reach, 0, m)).filter(|most| *most < NEVER);
            let least = Some(get(&reach, m, 0)).filter(|least| *least < NEVER);
            (least.map(|least| -least), most)
        })
        .collect();
    // Fixed one after the other, so that each two keep their bounds also where
    // a choice was free. The wall clocks are believed as far as they can be.
    let mut clocks = Vec::new();
    for (member, (least, most)) in bounds.into_iter().enumerate() {
        let later = later.get(member).copied().unwrap_or(0);
        let (upper, lower) = (get(&reach, 0, member), get(&reach, member, 0));
        let ahead = match (lower < NEVER, upper < NEVER) {
            (true, true) => (upper - lower) / 2,
            (true, false) => (-lower).max(-later),
            (false, true) => upper.min(-later),
            (false, false) => -later,
        };
        if let Some(bound) = reach.get_mut(0).and_then(|row| row.get_mut(member)) {
            *bound = ahead;
        }
        if let Some(bound) = reach.get_mut(member).and_then(|row| row.get_mut(0)) {
            *bound = -ahead;
        }
        close(&mut reach);
        let by_walls = |ahead: i64| ahead.saturating_add(later);
        clocks.push(MemberClock {
            ahead_ns: by_walls(ahead),
            drift_ppb: 0,
            least_ns: least.map(by_walls),
            most_ns: most.map(by_walls),
        });
    }
    clocks
}

/// What follows from two bounds is a bound.
fn close(reach: &mut [Vec<i64>]) {
    let count = reach.len();
    for via in 0..count {
        let Some(through) = reach.get(via).cloned() else {
            continue;
        };
        for row in reach.iter_mut() {
            let Some(to) = row.get(via).copied().filter(|to| *to < NEVER) else {
                continue;
            };
            for (bound, rest) in row.iter_mut().zip(&through) {
                if *rest < NEVER {
                    *bound = (*bound).min(to.saturating_add(*rest));
                }
            }
        }
        // Bounds that contradict each other (a clock was set meanwhile) must
        // not run away.
        if let Some(own) = reach.get_mut(via).and_then(|row| row.get_mut(via)) {
            *own = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Short numbers or long ones, before the beginning or after it.
    #[test]
    fn elapsed_time_is_that_of_long_division() {
        let mut number = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |bits: u64| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            number >> (64 - 1 - number % bits)
        };
        for _ in 0..100_000 {
            let clock = Clock {
                ticks: Ticks(next(62)),
                realtime_ns: 0,
                ticks_per_second: next(62),
            };
            let ticks = Ticks(
                clock
                    .ticks
                    .0
                    .wrapping_add(next(63))
                    .saturating_sub(next(40)),
            );
            let long = i128::from(ticks.0) - i128::from(clock.ticks.0);
            let long = long * i128::from(SECOND) / i128::from(clock.ticks_per_second.max(1));
            let long = i64::try_from(long).unwrap_or(i64::MAX);
            assert_eq!(elapsed_ns(&clock, ticks), long, "{clock:?} {ticks:?}");
        }
    }

    /// Three hosts whose clocks are hours apart and one of which is too fast:
    /// by the clocks that are found, everything is sent before it arrives.
    #[test]
    fn clocks_keep_the_order_of_messages() {
        let ahead = [0, 7_200 * SECOND, -3 * SECOND];
        let drift = [0, 40_000, 0];
        // When each recording began, in true time.
        let begun = [1_000 * SECOND, 1_002 * SECOND, 1_030 * SECOND];
        let local = |member: usize, time: i64| {
            let since = i128::from(time - begun[member]);
            let gained = since * i128::from(drift[member]) / 1_000_000_000;
            time - begun[member] + gained as i64
        };
        let clock = |member: usize| Clock {
            ticks: Ticks(1_000_000_000_000),
            realtime_ns: (begun[member] + ahead[member] + 8_000 * SECOND) as u64,
            ticks_per_second: SECOND as u64,
        };
        let mut sights = Sights::new(3);
        let mut seen = Vec::new();
        let mut state = 7u64;
        let mut random = |below: i64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((state >> 33) as i64) % below
        };
        for i in 0..4000 {
            let time = 1_040 * SECOND + i * SECOND / 10;
            let ways = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2)];
            let (from, to) = ways[random(5) as usize];
            let arrival = time + 20_000 + random(200_000);
            let message = (
                (from as u16, local(from, time)),
                (to as u16, local(to, arrival)),
            );
            sights.see(message.0, message.1);
            seen.push(message);
        }
        let later: Vec<i64> = (0..3).map(|m| later_ns(&clock(0), &clock(m))).collect();
        let clocks = fit(&sights, &later);
        for member in 0..3 {
            let wrong = (clocks[member].ahead_ns - ahead[member]).abs();
            assert!(wrong < 1_000_000, "{clocks:?}");
        }
        assert!((clocks[1].drift_ppb - 40_000).abs() < 1_000, "{clocks:?}");
        assert_eq!(clocks[0].drift_ppb, 0);
        assert!(clocks[2].drift_ppb.abs() < 1_000, "{clocks:?}");
        let shift = |member: u16| {
            let member = usize::from(member);
            Shift::new(clock(0), clock(member), clocks[member])
        };
        let ticks = |ns: i64| (1_000_000_000_000 + ns) as u64;
        for ((from, sent), (to, received)) in seen {
            let (sent, received) = (
                shift(from).time(ticks(sent)),
                shift(to).time(ticks(received)),
            );
            // Nanoseconds are rounded.
            assert!(sent <= received + 2, "{sent} {received} {clocks:?}");
        }
    }

    #[test]
    fn where_nothing_tells_the_clocks_are_believed() {
        let mut sights = Sights::new(3);
        sights.see((0, 1_000), (1, 500));
        let clocks = fit(&sights, &[0, 0, 77]);
        assert_eq!(clocks[1].ahead_ns, -500);
        assert_eq!(clocks[1].most_ns, Some(-500));
        assert_eq!(clocks[1].least_ns, None);
        assert_eq!(clocks[2].ahead_ns, 0);
    }
}
