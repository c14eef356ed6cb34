//! The decimal digits of integers of any size, much faster than in quadratic time.
//!
//! An integer is split into halves. The digits of the upper half are multiplied by a power of two, in groups of nine
//! digits, and those of the lower half are added. Long products are split into halves as well (Karatsuba).

use std::fmt::Write as _;

/// Groups of nine digits, the lowest first.
const GROUP: u64 = 1_000_000_000;
/// Up to this many bytes, one by one is as fast.
const BYTES_MIN: usize = 256;
/// Up to this many groups are multiplied one by one.
const GROUPS_MIN: usize = 40;

/// The decimal digits of a big integer: sign and little-endian magnitude.
pub fn big_digits(negative: bool, magnitude: &[u8]) -> String {
    let mut powers = Vec::new();
    let groups = groups_of(magnitude, &mut powers);
    let mut out = String::with_capacity(groups.len() * 9 + 1);
    out.push_str(if negative { "-" } else { "" });
    let mut from_top = groups.iter().rev();
    let _ = write!(out, "{}", from_top.next().unwrap_or(&0));
    for group in from_top {
        let _ = write!(out, "{group:09}");
    }
    out
}

/// `powers[n]` is 256 to the power of `BYTES_MIN` times 2^n.
fn groups_of(magnitude: &[u8], powers: &mut Vec<Vec<u64>>) -> Vec<u64> {
    if magnitude.len() <= BYTES_MIN {
        return groups_of_few(magnitude);
    }
    // The largest power that leaves something above it.
    let level = ((magnitude.len() - 1) / BYTES_MIN).ilog2() as usize;
    while powers.len() <= level {
        let next = match powers.last() {
            Some(power) => product(power, power),
            None => {
                let mut bytes = vec![0; BYTES_MIN];
                bytes.push(1);
                groups_of_few(&bytes)
            }
        };
        powers.push(next);
    }
    let (low, high) = magnitude.split_at(BYTES_MIN << level);
    let high = groups_of(high, powers);
    let low = groups_of(low, powers);
    let mut out = product(&high, &powers[level]);
    add(&mut out, &low, 0);
    trimmed(out)
}

/// Each byte from the top multiplies all by 256.
fn groups_of_few(magnitude: &[u8]) -> Vec<u64> {
    let mut groups: Vec<u64> = vec![0];
    for byte in magnitude.iter().rev() {
        let mut carry = u64::from(*byte);
        for group in &mut groups {
            let next = *group * 256 + carry;
            *group = next % GROUP;
            carry = next / GROUP;
        }
        if carry > 0 {
            groups.push(carry);
        }
    }
    groups
}

fn product(a: &[u64], b: &[u64]) -> Vec<u64> {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    if short.len() <= GROUPS_MIN {
        return product_of_few(short, long);
    }
    if long.len() >= 2 * short.len() {
        // Pieces of the same length are multiplied fastest.
        let mut out = vec![0; a.len() + b.len() + 1];
        for (index, piece) in long.chunks(short.len()).enumerate() {
            add(&mut out, &product(short, piece), index * short.len());
        }
        return trimmed(out);
    }
    let half = long.len().div_ceil(2);
    let (a_low, a_high) = short.split_at(half.min(short.len()));
    let (b_low, b_high) = long.split_at(half);
    let (low, high) = (product(a_low, b_low), product(a_high, b_high));
    let mut middle = product(&sum(a_low, a_high), &sum(b_low, b_high));
    subtract(&mut middle, &low);
    subtract(&mut middle, &high);
    let mut out = vec![0; a.len() + b.len() + 1];
    add(&mut out, &low, 0);
    add(&mut out, &trimmed(middle), half);
    add(&mut out, &high, 2 * half);
    trimmed(out)
}

fn product_of_few(short: &[u64], long: &[u64]) -> Vec<u64> {
    let mut out = vec![0; short.len() + long.len() + 1];
    for (shift, a) in short.iter().enumerate() {
        let mut carry = 0;
        for (group, b) in out[shift..].iter_mut().zip(long.iter().chain(std::iter::repeat(&0))) {
            let next = *group + a * b + carry;
            *group = next % GROUP;
            carry = next / GROUP;
        }
    }
    trimmed(out)
}

/// Adds `what` to the groups from `shift` on. There is room for the carry.
fn add(out: &mut [u64], what: &[u64], shift: usize) {
    let mut carry = 0;
    for (index, group) in out[shift..].iter_mut().enumerate() {
        let given = what.get(index);
        if given.is_none() && carry == 0 {
            return;
        }
        let next = *group + given.unwrap_or(&0) + carry;
        *group = next % GROUP;
        carry = next / GROUP;
    }
}

fn sum(a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut out = vec![0; a.len().max(b.len()) + 1];
    add(&mut out, a, 0);
    add(&mut out, b, 0);
    trimmed(out)
}

/// Subtracts a number that is not larger.
fn subtract(out: &mut [u64], what: &[u64]) {
    let mut borrow = 0;
    for (index, group) in out.iter_mut().enumerate() {
        let take = what.get(index).unwrap_or(&0) + borrow;
        borrow = u64::from(*group < take);
        *group = *group + borrow * GROUP - take;
    }
}

/// Without leading zeros; zero has one group.
fn trimmed(mut groups: Vec<u64>) -> Vec<u64> {
    while groups.len() > 1 && groups.last() == Some(&0) {
        groups.pop();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long, and whatever the lengths of its halves are: the same as byte by byte.
    #[test]
    fn long_integers_have_the_digits_that_short_steps_give() {
        let mut state = 1u64;
        for length in [0, 1, 255, 256, 257, 511, 512, 513, 700, 1024, 1025, 3000, 5000] {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            for bytes in [bytes, vec![0xff; length], vec![0; length]] {
                let known = groups_of_few(&bytes);
                assert_eq!(groups_of(&bytes, &mut Vec::new()), known, "{length} bytes");
            }
        }
        // A power of ten, whose digits are known without any arithmetic.
        let mut ten = vec![1u64];
        for _ in 0..600 {
            ten = product(&ten, &[10]);
        }
        assert_eq!((ten.len(), ten[66]), (67, 1_000_000));
    }
}
