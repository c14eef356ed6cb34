//! Counts as people read them.

/// A number with separators: 1,234,567.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun: "1 step", "2 steps".
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Which of some numbered things there are, by their ascending numbers: "its only attempt is 0", "it has attempts 0, 2
/// to 4".
pub(crate) fn numbered(noun: &str, numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let told: Vec<String> = ranges
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first} to {last}"),
        })
        .collect();
    match numbers {
        [] => format!("it has no {noun}"),
        [only] => format!("its only {noun} is {only}"),
        [first, last] => format!("it has {noun}s {first} and {last}"),
        _ => format!("it has {noun}s {}", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2000].map(|number| counted(number, "step")), ["0 steps", "1 step", "2,000 steps"]);
    }

    /// A run with one generation, number 0, was said to have "0".
    #[test]
    fn numbers_are_not_taken_for_counts() {
        let told = |numbers: &[u64]| numbered("attempt", numbers);
        assert_eq!(told(&[]), "it has no attempt");
        assert_eq!(told(&[0]), "its only attempt is 0");
        assert_eq!(told(&[0, 1]), "it has attempts 0 and 1");
        assert_eq!(told(&[0, 1, 2, 3]), "it has attempts 0 to 3");
        assert_eq!(told(&[0, 2, 3, 5, 6, 7]), "it has attempts 0, 2, 3, 5 to 7");
    }
}
