//! How far apart the copies are that a replay leaves behind.
//!
//! Coming to an event takes the time from the copy before it, so copies are
//! spaced by the time that replay takes and not by events. They are left often
//! at first, so that a short recording is gone through at once, and later as
//! seldom as the time to any event allows. Where that makes too many, every
//! other goes.

use std::time::Duration;

/// How many there may be.
pub const COPIES: usize = 1536;

/// How long a replay runs before it leaves the next one behind, if it took so
/// long to come where it is.
pub fn stride(cost: Duration) -> Duration {
    const LEAST: Duration = Duration::from_millis(200);
    const MOST: Duration = Duration::from_millis(400);
    /// Before they become fewer.
    const DENSE: u32 = 64;
    (cost / DENSE).clamp(LEAST, MOST)
}

/// The place of the copy without which the longest way is shortest, of copies
/// in order: how long it takes to come to each, and whether it must stay. The
/// first and the last stay.
pub fn least_missed(costs: impl Iterator<Item = (Duration, bool)>) -> Option<usize> {
    let costs: Vec<(Duration, bool)> = costs.collect();
    let gaps = costs
        .windows(3)
        .enumerate()
        .filter_map(|(i, three)| match three {
            [(before, _), (_, false), (after, _)] => Some((after.saturating_sub(*before), i + 1)),
            _ => None,
        });
    gaps.min().map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copies of a replay that takes so long, and the longest way from one
    /// to the next.
    fn replayed(length: Duration, most: usize) -> (usize, Duration) {
        let mut costs = vec![(Duration::ZERO, false)];
        let mut cost = Duration::ZERO;
        while cost < length {
            cost += stride(cost);
            costs.push((cost, false));
            while costs.len() > most {
                let at = least_missed(costs.iter().copied()).unwrap();
                costs.remove(at);
            }
        }
        let ways = costs.windows(2).map(|two| two[1].0 - two[0].0);
        (costs.len(), ways.max().unwrap())
    }

    #[test]
    fn any_event_of_ten_minutes_is_near_a_copy() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        // Half of the second that it may take to come to an event: the rest is
        // for a machine that is slower than it was.
        let (count, longest) = replayed(minutes(10), COPIES);
        assert!(count <= COPIES);
        assert!(longest <= Duration::from_millis(500), "{longest:?}");
        let (_, longest) = replayed(minutes(20), COPIES);
        assert!(longest <= Duration::from_secs(1), "{longest:?}");
        // With few copies the ways become longer, all alike.
        let (count, longest) = replayed(minutes(1), 16);
        assert_eq!(count, 16);
        assert!(longest <= minutes(1) / 16 * 3, "{longest:?}");
    }

    #[test]
    fn those_that_must_stay_do() {
        let second = Duration::from_secs;
        let costs = [(second(0), false), (second(1), true), (second(2), false)];
        assert_eq!(least_missed(costs.into_iter()), None);
        let costs = [0, 10, 11, 30].map(|at| (second(at), false));
        assert_eq!(least_missed(costs.into_iter()), Some(1));
    }
}
