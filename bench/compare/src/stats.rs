//! Medians, and pairs that are measured in turn.

/// The middle value; of an even number, the mean of the two in the middle.
pub fn median(values: &mut [f64]) -> f64 {
    assert!(!values.is_empty(), "no values to take the median of");
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// Two things measured A, B, A, B, …: a disk that is slow for a while slows both.
pub struct Pairs {
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Pairs {
    pub fn measure(pairs: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> Self {
        let mut measured = Pairs { a: Vec::new(), b: Vec::new() };
        for _ in 0..pairs {
            measured.a.push(a());
            measured.b.push(b());
        }
        measured
    }

    /// The median over the pairs of A / B.
    pub fn ratio(&self) -> f64 {
        median(&mut self.ratios())
    }

    fn ratios(&self) -> Vec<f64> {
        self.a.iter().zip(&self.b).map(|(a, b)| a / b).collect()
    }

    /// Both medians, the ratio, and how far single pairs swing.
    pub fn describe(&self, a: &str, b: &str, unit: &str) -> String {
        let mut ratios = self.ratios();
        let ratio = median(&mut ratios);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        let (a_median, b_median) = (median(&mut self.a.clone()), median(&mut self.b.clone()));
        format!(
            "{a} {a_median:.0} {unit}, {b} {b_median:.0} {unit}: {ratio:.2} (pairs {low:.2} to {high:.2})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One wild pair, or a machine that gets slower for everybody, does not move the ratio.
    #[test]
    fn the_ratio_is_the_middle_of_the_pairs_and_not_of_the_sides() {
        let mut speeds = [(100.0, 50.0), (10.0, 5.0), (9.0, 1.0)].into_iter();
        let mut b_of_this_pair = 0.0;
        let b = std::cell::Cell::new(0.0);
        let pairs = Pairs::measure(
            3,
            || {
                let (a, other) = speeds.next().expect("three pairs");
                b_of_this_pair = other;
                b.set(b_of_this_pair);
                a
            },
            || b.get(),
        );
        assert_eq!(pairs.ratio(), 2.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
