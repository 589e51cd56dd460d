//! One row of the result: what was measured, and what follows from it.

use crate::setup::Setup;
use crate::stats::{Range, median, paired_range};
use crate::unit::{Target, Unit};

/// What one setup yielded for one row: a value per round, or why there are none.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub values: Vec<f64>,
    pub failure: Option<String>,
}

impl Series {
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub title: String,
    pub unit: Unit,
    pub target: Target,
    pub native: Series,
    pub recorded: Series,
    pub strace: Series,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Reached,
    NotReached,
    /// There is a target, and nothing to hold against it.
    Unknown,
    NoTarget,
}

impl Row {
    pub fn new(title: impl Into<String>, unit: Unit, target: Target) -> Row {
        Row {
            title: title.into(),
            unit,
            target,
            native: Series::default(),
            recorded: Series::default(),
            strace: Series::default(),
        }
    }

    pub fn series(&mut self, setup: Setup) -> &mut Series {
        match setup {
            Setup::Native => &mut self.native,
            Setup::Recorded => &mut self.recorded,
            Setup::Strace => &mut self.strace,
        }
    }

    pub fn speed(&self) -> Option<f64> {
        self.speed_of(&self.recorded)
    }

    pub fn strace_speed(&self) -> Option<f64> {
        self.speed_of(&self.strace)
    }

    fn speed_of(&self, other: &Series) -> Option<f64> {
        self.unit.speed(self.native.median()?, other.median()?)
    }

    pub fn speed_range(&self) -> Option<Range> {
        self.speed()?;
        paired_range(
            &self.native.values,
            &self.recorded.values,
            |native, recorded| self.unit.speed(native, recorded).unwrap_or(f64::NAN),
        )
    }

    /// What recording adds, where less is better; a throughput has no such thing.
    pub fn added(&self) -> Option<f64> {
        match self.unit {
            Unit::PerSecond(_) => None,
            _ => Some(self.recorded.median()? - self.native.median()?),
        }
    }

    pub fn verdict(&self) -> Verdict {
        let reached = match self.target {
            Target::None => return Verdict::NoTarget,
            _ if self.recorded.failure.is_some() => Some(false),
            Target::Speed(least) => self.speed().map(|speed| speed >= least),
            Target::Added(most) => self.added().map(|added| added <= most),
            Target::AtMost(most) => self.recorded.median().map(|value| value <= most),
        };
        match reached {
            Some(true) => Verdict::Reached,
            Some(false) => Verdict::NotReached,
            None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: Unit, target: Target, native: &[f64], recorded: &[f64]) -> Row {
        let mut row = Row::new("a row", unit, target);
        row.native.values = native.to_vec();
        row.recorded.values = recorded.to_vec();
        row
    }

    #[test]
    fn a_speed_target() {
        let unit = Unit::PerSecond("requests");
        let fast = row(unit, Target::Speed(0.85), &[100.0; 3], &[80.0, 86.0, 90.0]);
        assert_eq!(fast.verdict(), Verdict::Reached);
        assert_eq!(fast.speed_range(), Some(Range { min: 0.8, max: 0.9 }));
        assert_eq!(fast.added(), None);
        let slow = row(unit, Target::Speed(0.85), &[100.0; 3], &[80.0; 3]);
        assert_eq!(slow.verdict(), Verdict::NotReached);
    }

    #[test]
    fn a_target_on_what_is_added() {
        let within = row(Unit::Nanoseconds, Target::Added(250.0), &[100.0], &[350.0]);
        assert_eq!(within.verdict(), Verdict::Reached);
        let beyond = row(Unit::Nanoseconds, Target::Added(250.0), &[100.0], &[351.0]);
        assert_eq!(beyond.verdict(), Verdict::NotReached);
    }

    #[test]
    fn a_figure_that_only_recording_has() {
        let small = row(Unit::BytesPerEvent, Target::AtMost(24.0), &[], &[20.0]);
        assert_eq!(small.verdict(), Verdict::Reached);
        assert_eq!(small.speed(), None);
        let unknown = row(Unit::BytesPerEvent, Target::AtMost(24.0), &[], &[]);
        assert_eq!(unknown.verdict(), Verdict::Unknown);
    }

    #[test]
    fn a_failed_recording_reaches_nothing() {
        let mut failed = row(Unit::Milliseconds, Target::Added(5.0), &[1.0], &[1.0]);
        failed.recorded.failure = Some("killed".into());
        assert_eq!(failed.verdict(), Verdict::NotReached);
    }
}
