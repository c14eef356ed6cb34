//! Numbers as people read them.

pub(crate) use keepstep::{count, counted, date};
use std::fmt::Write as _;

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

/// Now, in microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |time| time.as_micros() as i64)
}

/// A moment as people say it: `90s`, `5min`, `2h`, `3d` or `1w` ago, or a date (UTC) such as 2026-11-15 or 2026-11-15T10:33.
pub(crate) fn moment(text: &str, now_us: i64) -> Option<i64> {
    let unit_from = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let seconds = match &text[unit_from..] {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return date_us(text),
    };
    let ago_us = text[..unit_from].parse::<f64>().ok()? * seconds * 1e6;
    (ago_us < 1e18).then(|| now_us.saturating_sub(ago_us as i64))
}

/// The time of a date, with or without a time of day.
fn date_us(text: &str) -> Option<i64> {
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut parts = day.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day_of_month) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.split(':').filter(|part| !part.is_empty()).map(|part| part.parse::<i64>().ok());
    let mut next = || parts.next().unwrap_or(Some(0));
    let (hour, minute, second) = (next()?, next()?, next()?);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day_of_month) {
        return None;
    }
    // As in `date`: years that begin in March, in eras of 400.
    let (from_march, year) = ((month + 9) % 12, if month <= 2 { year - 1 } else { year });
    let day_of_year = (153 * from_march + 2) / 5 + day_of_month - 1;
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468;
    let time_us = (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000;
    // What the calendar does not have comes out as another day.
    let is_real = date(time_us).starts_with(&format!("{day} {hour:02}:{minute:02}:{second:02}"));
    is_real.then_some(time_us)
}

/// A reward or a return, short: what is cut off is far behind the point.
pub(crate) fn reward(number: f64) -> String {
    if !number.is_finite() || number == 0.0 || (1e-3..1e9).contains(&number.abs()) {
        let text = format!("{number:.4}");
        let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        return short.to_owned();
    }
    format!("{number:.3e}")
}

/// Lower-case hex.
pub(crate) fn hex(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len() * 2);
    for byte in data {
        let _ = write!(out, "{byte:02x}");
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
        assert_eq!(
            (counted(1, "step"), counted(2000, "step")),
            ("1 step".to_owned(), "2,000 steps".to_owned())
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_794_738_782_999_999), "2026-11-15 10:33:02 UTC");
        assert_eq!(date(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn rewards_are_short_and_never_lie_about_their_size() {
        let rewards = [0.0, 1.0, -0.01, 0.123456, 1234.5, 1e-7, 1e12, f64::NAN, f64::NEG_INFINITY];
        assert_eq!(
            rewards.map(reward),
            ["0", "1", "-0.01", "0.1235", "1234.5", "1.000e-7", "1.000e12", "NaN", "-inf"]
        );
    }

    #[test]
    fn a_moment_is_a_date_or_so_long_ago() {
        const NOW: i64 = 1_794_738_782_000_000;
        let ago = |text: &str| moment(text, NOW).map(|moment| (NOW - moment) / 1_000_000);
        assert_eq!(
            ["90s", "5min", "2h", "3d", "1w", "1.5h"].map(ago),
            [90, 300, 7200, 259_200, 604_800, 5400].map(Some)
        );
        let said = |text: &str| moment(text, NOW).map(date);
        let known = |text: &str| Some(text.to_owned());
        assert_eq!(said("2000-02-29"), known("2000-02-29 00:00:00 UTC"));
        assert_eq!(said("2026-11-15 10:33:02"), known("2026-11-15 10:33:02 UTC"));
        assert_eq!(said("2026-11-15T10:33"), known("2026-11-15 10:33:00 UTC"));
        for text in ["", "soon", "5", "-5min", "2026-13-01", "2026-02-30", "2026-11-15T25:00", "1e99d", "2x"]
        {
            assert_eq!(moment(text, NOW), None, "{text}");
        }
    }
}
