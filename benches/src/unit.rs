//! What is measured, and in which direction it is good.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many of these in a second: more is better.
    PerSecond(&'static str),
    Nanoseconds,
    Milliseconds,
    BytesPerEvent,
    Mebibytes,
}

impl Unit {
    pub fn name(self) -> String {
        match self {
            Unit::PerSecond(what) => format!("{what}/s"),
            Unit::Nanoseconds => "ns".into(),
            Unit::Milliseconds => "ms".into(),
            Unit::BytesPerEvent => "bytes/event".into(),
            Unit::Mebibytes => "MiB".into(),
        }
    }

    /// What `operations` in `elapsed` make in this unit; None for units that are not of time.
    pub fn of(self, operations: u64, elapsed: Duration) -> Option<f64> {
        let (operations, seconds) = (operations as f64, elapsed.as_secs_f64());
        match self {
            Unit::PerSecond(_) => Some(operations / seconds),
            Unit::Nanoseconds => Some(seconds * 1e9 / operations),
            Unit::Milliseconds => Some(seconds * 1e3 / operations),
            Unit::BytesPerEvent | Unit::Mebibytes => None,
        }
    }

    /// The speed of `other` relative to `native`, 1 being the same, for units of time.
    pub fn speed(self, native: f64, other: f64) -> Option<f64> {
        match self {
            Unit::PerSecond(_) => Some(other / native),
            Unit::Nanoseconds | Unit::Milliseconds => Some(native / other),
            Unit::BytesPerEvent | Unit::Mebibytes => None,
        }
    }
}

/// What the issue demands of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    None,
    /// Speed relative to native, at least.
    Speed(f64),
    /// More than native, in the row's unit, at most.
    Added(f64),
    /// The recorded value itself, at most.
    AtMost(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_becomes_the_unit() {
        let second = Duration::from_secs(1);
        assert_eq!(Unit::PerSecond("calls").of(500, second), Some(500.0));
        assert_eq!(Unit::Nanoseconds.of(1_000_000, second), Some(1000.0));
        assert_eq!(Unit::Milliseconds.of(100, second), Some(10.0));
        assert_eq!(Unit::Mebibytes.of(1, second), None);
    }

    #[test]
    fn speed_is_below_one_when_slower_whatever_the_unit() {
        assert_eq!(Unit::PerSecond("calls").speed(100.0, 50.0), Some(0.5));
        assert_eq!(Unit::Nanoseconds.speed(100.0, 200.0), Some(0.5));
        assert_eq!(Unit::BytesPerEvent.speed(1.0, 2.0), None);
    }
}
