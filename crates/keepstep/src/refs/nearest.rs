//! Finds names that are similar to one that does not exist, for typing errors.

/// How many names are compared. More would take longer than it helps.
const NAMES_MAX: usize = 100_000;
/// How many letters of a long name may differ.
const FAR_MAX: usize = 6;
/// How many names are listed.
const TOLD_MAX: usize = 3;

/// The most similar names, the nearest first. Never the name itself: whoever asked for it was told that it is not there.
pub(super) fn nearest(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let letters: Vec<char> = wanted.chars().collect();
    let far = (letters.len() / 4).clamp(2, FAR_MAX);
    let mut near: Vec<(usize, String)> = Vec::new();
    for name in names.into_iter().take(NAMES_MAX) {
        let Some(distance) = distance(&letters, &name, far) else { continue };
        if name == wanted || near.iter().any(|(_, had)| *had == name) {
            continue;
        }
        near.push((distance, name));
        near.sort();
        near.truncate(TOLD_MAX);
    }
    near.into_iter().map(|(_, name)| name).collect()
}

/// How many letters have to be inserted, removed or changed; `None` if more than `far`.
fn distance(wanted: &[char], name: &str, far: usize) -> Option<usize> {
    let name: Vec<char> = name.chars().collect();
    if wanted.len().abs_diff(name.len()) > far {
        return None;
    }
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (at, letter) in wanted.iter().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (index, other) in name.iter().enumerate() {
            let changed = before + usize::from(letter != other);
            before = row[index + 1];
            row[index + 1] = changed.min(before + 1).min(row[index] + 1);
        }
        if row.iter().min().is_none_or(|least| *least > far) {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first_and_the_far_not_at_all() {
        let names = ["x/checkout#0.0", "x/check#0.0", "x/search#0.0", "x/checkout#0.1"].map(str::to_owned);
        assert_eq!(nearest("x/chekout#0.0", names.clone()), ["x/checkout#0.0", "x/checkout#0.1"]);
        assert_eq!(nearest("x/something-quite-different#0.0", names.clone()), [""; 0]);
        assert_eq!(nearest("", [String::new(), "ab".to_owned(), "abc".to_owned()]), ["ab"]);
    }

    /// "no run is called x, perhaps x is meant" helps nobody.
    #[test]
    fn a_name_is_never_proposed_for_itself() {
        let names = ["x/check#0.0", "x/check#0.1"].map(str::to_owned);
        assert_eq!(nearest("x/check#0.0", names), ["x/check#0.1"]);
    }
}
