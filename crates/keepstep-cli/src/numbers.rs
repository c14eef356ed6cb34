//! Numbers as people read them.

use std::fmt::Write as _;

/// 1,234,567.
pub(crate) fn count(number: u64) -> String {
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
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// 1.4 MiB.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = number as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// A span of time: 130 µs, 1.2 ms, 3 s, 5 min, 2 h, 3 days.
pub(crate) fn span_us(us: i64) -> String {
    const SECOND: i64 = 1_000_000;
    match us {
        ..1_000 => format!("{us} µs"),
        1_000..SECOND => format!("{:.1} ms", us as f64 / 1e3),
        _ => match us / SECOND {
            seconds @ ..=119 => format!("{seconds} s"),
            seconds @ ..=7199 => format!("{} min", seconds / 60),
            seconds @ ..=172_799 => format!("{} h", seconds / 3600),
            seconds => format!("{} days", seconds / 86_400),
        },
    }
}

/// Lower-case hex.
pub(crate) fn hex(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len() * 2);
    for byte in data {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// The decimal digits of a big integer: sign and little-endian magnitude.
pub(crate) fn big_digits(negative: bool, magnitude: &[u8]) -> String {
    const GROUP: u64 = 1_000_000_000;
    // Groups of nine digits, the lowest first; each byte from the top multiplies all by 256.
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
    let mut out = String::from(if negative { "-" } else { "" });
    let mut from_top = groups.iter().rev();
    let _ = write!(out, "{}", from_top.next().unwrap_or(&0));
    for group in from_top {
        let _ = write!(out, "{group:09}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!([0, 999, 1000, 1234567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1024, 1536 << 10].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB"]);
        assert_eq!(
            [999, 1_200, 3_000_000, 300_000_000, 8_000_000_000, 260_000_000_000].map(span_us),
            ["999 µs", "1.2 ms", "3 s", "5 min", "2 h", "3 days"]
        );
        assert_eq!((counted(1, "step"), counted(2000, "step")), ("1 step".to_owned(), "2,000 steps".to_owned()));
    }

    #[test]
    fn big_integers_keep_every_digit() {
        assert_eq!(big_digits(false, &(u128::MAX).to_le_bytes()), u128::MAX.to_string());
        assert_eq!(big_digits(true, &1_000_000_000u64.to_le_bytes()), "-1000000000");
        assert_eq!(big_digits(false, &[]), "0");
    }
}
