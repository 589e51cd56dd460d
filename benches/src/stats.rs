//! The few statistics a noisy machine needs.

/// The middle value, or the mean of the two in the middle. None of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The least and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub min: f64,
    pub max: f64,
}

/// The range of `relation` over the rounds in which both were measured.
///
/// Values of one round were taken within seconds of each other, so what the machine did to both
/// cancels out. For a ratio or a difference, the same relation of the two medians always lies inside.
pub fn paired_range(
    native: &[f64],
    other: &[f64],
    relation: impl Fn(f64, f64) -> f64,
) -> Option<Range> {
    let mut pairs = native.iter().zip(other).map(|(&n, &o)| relation(n, o));
    let first = pairs.next()?;
    let start = Range {
        min: first,
        max: first,
    };
    Some(pairs.fold(start, |range, value| Range {
        min: range.min.min(value),
        max: range.max.max(value),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_one_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn an_outlier_does_not_move_the_median() {
        assert_eq!(median(&[10.0, 10.0, 11.0, 12.0, 9000.0]), Some(11.0));
    }

    #[test]
    fn the_range_is_of_pairs_not_of_extremes() {
        // The machine was twice as fast in the second round; the ratio did not change.
        let range = paired_range(&[100.0, 200.0], &[90.0, 180.0], |n, r| r / n);
        assert_eq!(range, Some(Range { min: 0.9, max: 0.9 }));
    }

    #[test]
    fn a_round_without_its_other_half_is_left_out() {
        let range = paired_range(&[100.0, 100.0, 1.0], &[50.0, 80.0], |n, r| r / n);
        assert_eq!(range, Some(Range { min: 0.5, max: 0.8 }));
        assert_eq!(paired_range(&[1.0], &[], |n, r| r / n), None);
    }

    #[test]
    fn the_ratio_of_medians_lies_inside_the_paired_range() {
        let native = [100.0, 140.0, 90.0, 200.0, 120.0];
        let other = [80.0, 133.0, 60.0, 190.0, 70.0];
        let range = paired_range(&native, &other, |n, r| r / n);
        let ratio = median(&other).zip(median(&native)).map(|(r, n)| r / n);
        let inside = range
            .zip(ratio)
            .map(|(range, r)| range.min <= r && r <= range.max);
        assert_eq!(inside, Some(true));
    }
}
