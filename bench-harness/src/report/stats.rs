//! Medians, ranges, and how sure a difference is.

/// Median with the least and the greatest of some values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The one in the middle; the mean of the two in the middle when there is none.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

/// Of at least one value.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    Some(Spread { min, median: median_of_sorted(&sorted), max })
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Draws for [`ratio_interval`].
const DRAWS: usize = 2000;

/// A 95 % interval of the ratio of two medians, `after` over `before`: a percentile bootstrap, the
/// same for the same values. With three values each it spans nearly what their ranges allow, so it
/// is cautious with few rounds. `None` when a list is empty or holds a value that isn't positive.
pub fn ratio_interval(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let is_positive = |values: &[f64]| !values.is_empty() && values.iter().all(|it| 0.0 < *it);
    if !is_positive(before) || !is_positive(after) {
        return None;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut ratios: Vec<f64> = (0..DRAWS)
        .map(|_| drawn_median(after, &mut state) / drawn_median(before, &mut state))
        .collect();
    ratios.sort_by(f64::total_cmp);
    Some((ratios[DRAWS / 40], ratios[DRAWS - 1 - DRAWS / 40]))
}

fn drawn_median(values: &[f64], state: &mut u64) -> f64 {
    let count = u64::try_from(values.len()).expect("usize is 64 bits");
    let mut draw = || {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((*state >> 33) % count).expect("below a length")
    };
    let mut drawn: Vec<f64> = values.iter().map(|_| values[draw()]).collect();
    drawn.sort_by(f64::total_cmp);
    median_of_sorted(&drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_have_their_range() {
        assert_eq!(spread(&[]), None);
        let of = |values: &[f64]| spread(values).map(|it| (it.min, it.median, it.max));
        assert_eq!(of(&[3.0]), Some((3.0, 3.0, 3.0)));
        assert_eq!(of(&[3.0, 1.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some((1.0, 2.0, 9.0)));
    }

    #[test]
    fn an_interval_holds_one_when_nothing_changed_and_leaves_it_when_something_did() {
        let before = [100.0, 103.0, 98.0, 101.0, 99.0];
        let same = [101.0, 99.0, 100.0, 104.0, 97.0];
        let (low, high) = ratio_interval(&before, &same).expect("values");
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
        let slower = [150.0, 149.0, 155.0, 151.0, 148.0];
        let (low, high) = ratio_interval(&before, &slower).expect("values");
        assert!(1.4 < low && high < 1.6, "{low} {high}");
        assert_eq!(ratio_interval(&before, &slower), ratio_interval(&before, &slower));
        assert_eq!(ratio_interval(&before, &[]), None);
        assert_eq!(ratio_interval(&before, &[0.0]), None);
    }

    #[test]
    fn three_rounds_are_judged_by_their_ranges() {
        let interval = ratio_interval(&[1.0, 2.0, 4.0], &[8.0, 8.0, 8.0]);
        assert_eq!(interval, Some((2.0, 8.0)));
    }
}
