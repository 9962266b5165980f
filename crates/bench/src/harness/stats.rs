//! The few statistics that a comparison needs. All of them are robust: one disturbed round must not move a result.

/// A median and the interval that holds the true one with at least 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The middle of `values`; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which the share `share` of `values` lies, between two neighbours by their distance; NaN for none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}

/// The median with its interval, from order statistics: nothing is assumed about the shape of the noise.
///
/// The number of values below the true median is binomial with p = 1/2. The interval runs from the k-th smallest to
/// the k-th largest value, with the largest k that keeps 95 %. With fewer than six values it is their whole range,
/// which covers less than that.
pub fn estimate(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len();
    if count == 0 {
        return Estimate {
            median: f64::NAN,
            low: f64::NAN,
            high: f64::NAN,
        };
    }
    let outside = ranks_outside(count);
    Estimate {
        median: median(&sorted),
        low: sorted[outside],
        high: sorted[count - 1 - outside],
    }
}

/// How many values may be left out at each end, so that at most 2.5 % of the probability lies beyond either.
fn ranks_outside(count: usize) -> usize {
    let mut probability = 0.5f64.powi(count as i32);
    let mut cumulated = 0.0;
    let mut outside = 0;
    for below in 0..count / 2 {
        cumulated += probability;
        if cumulated > 0.025 {
            break;
        }
        outside = below;
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    outside
}

/// The geometric mean: the one that is right for ratios.
pub fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles_reach_both_ends() {
        let values = [10.0, 20.0, 30.0];
        assert_eq!(quantile(&values, 0.0), 10.0);
        assert_eq!(quantile(&values, 1.0), 30.0);
        assert_eq!(quantile(&values, 0.75), 25.0);
    }

    #[test]
    fn the_interval_leaves_out_as_many_values_as_the_binomial_table_says() {
        // The usual tables: ranks 1..6 of 6, 2..9 of 10, 6..15 of 20, 8..18 of 25.
        for (count, outside) in [(5, 0), (6, 0), (9, 1), (10, 1), (15, 3), (20, 5), (25, 7)] {
            assert_eq!(ranks_outside(count), outside, "{count} values");
        }
    }

    #[test]
    fn one_wild_round_does_not_move_the_interval() {
        let mut values = vec![1.0; 24];
        values.push(50.0);
        assert_eq!(
            estimate(&values),
            Estimate {
                median: 1.0,
                low: 1.0,
                high: 1.0
            }
        );
    }

    #[test]
    fn the_geometric_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean(&[4.0, 0.25]) - 1.0).abs() < 1e-12);
    }
}
