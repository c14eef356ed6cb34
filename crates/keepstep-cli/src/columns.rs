//! How wide a text is on a terminal, and how it is made to fit: cut if it is one of many, broken if all of it is
//! wanted.
//!
//! Colours take no room. Chinese, Japanese, Korean and most emoji take two columns; marks that go onto a letter take none.

use std::borrow::Cow;

/// Ranges of characters that take two columns, in order.
const WIDE: [(u32, u32); 53] = [
    (0x1100, 0x115f),
    (0x231a, 0x231b),
    (0x2329, 0x232a),
    (0x23e9, 0x23ec),
    (0x23f0, 0x23f0),
    (0x23f3, 0x23f3),
    (0x25fd, 0x25fe),
    (0x2614, 0x2615),
    (0x2648, 0x2653),
    (0x267f, 0x267f),
    (0x2693, 0x2693),
    (0x26a1, 0x26a1),
    (0x26aa, 0x26ab),
    (0x26bd, 0x26be),
    (0x26c4, 0x26c5),
    (0x26ce, 0x26ce),
    (0x26d4, 0x26d4),
    (0x26ea, 0x26ea),
    (0x26f2, 0x26f3),
    (0x26f5, 0x26f5),
    (0x26fa, 0x26fa),
    (0x26fd, 0x26fd),
    (0x2705, 0x2705),
    (0x270a, 0x270b),
    (0x2728, 0x2728),
    (0x274c, 0x274c),
    (0x274e, 0x274e),
    (0x2753, 0x2755),
    (0x2757, 0x2757),
    (0x2795, 0x2797),
    (0x27b0, 0x27b0),
    (0x27bf, 0x27bf),
    (0x2b1b, 0x2b1c),
    (0x2b50, 0x2b50),
    (0x2b55, 0x2b55),
    (0x2e80, 0x303e),
    (0x3041, 0x33ff),
    (0x3400, 0x4dbf),
    (0x4e00, 0x9fff),
    (0xa000, 0xa4cf),
    (0xa960, 0xa97f),
    (0xac00, 0xd7a3),
    (0xf900, 0xfaff),
    (0xfe10, 0xfe19),
    (0xfe30, 0xfe6f),
    (0xff00, 0xff60),
    (0xffe0, 0xffe6),
    (0x16fe0, 0x18aff),
    (0x1b000, 0x1b2ff),
    (0x1f004, 0x1f004),
    (0x1f0cf, 0x1f0cf),
    (0x1f18e, 0x1faff),
    (0x20000, 0x3fffd),
];
/// Ranges of characters that take none.
const NONE: [(u32, u32); 7] = [
    (0x0300, 0x036f),
    (0x0483, 0x0489),
    (0x1ab0, 0x1aff),
    (0x1dc0, 0x1dff),
    (0x200b, 0x200f),
    (0x20d0, 0x20ff),
    (0xfe00, 0xfe0f),
];

/// How many columns a character takes.
fn columns_of(c: char) -> usize {
    let code = u32::from(c);
    if code < 0x300 {
        return 1;
    }
    let is_in = |ranges: &[(u32, u32)]| ranges.iter().any(|(from, to)| (*from..=*to).contains(&code));
    match (is_in(&NONE), is_in(&WIDE)) {
        (true, _) => 0,
        (_, true) => 2,
        _ => 1,
    }
}

/// The characters of a text with the columns that each takes, those of colours none.
fn measured(text: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let mut in_colour = false;
    text.char_indices().map(move |(at, c)| {
        let was_in = in_colour;
        in_colour = c == '\u{1b}' || (in_colour && c != 'm');
        (at, c, if in_colour || was_in { 0 } else { columns_of(c) })
    })
}

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> usize {
    measured(text).map(|(_, _, columns)| columns).sum()
}

/// At most so many columns of a text without colours; what is left out shows as an ellipsis.
pub(crate) fn cut(text: &str, columns_max: usize) -> Cow<'_, str> {
    let (mut used, mut end) = (0, 0);
    for (at, c, columns) in measured(text) {
        used += columns;
        if used > columns_max {
            return Cow::Owned(format!("{}…", &text[..end]));
        }
        // There must be room for the ellipsis behind it.
        if used < columns_max {
            end = at + c.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

/// A text with as many spaces behind it as it lacks.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// A line in pieces that fit: broken at a space where there is one, the others indented behind the first.
pub(crate) fn broken(line: &str, width: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    let mut room = width.max(1);
    while columns(rest) > room {
        let Some((end, next)) = break_of(rest, room) else { break };
        pieces.push(rest[..end].trim_end());
        rest = &rest[next..];
        room = width.saturating_sub(hang_of(line, width)).max(1);
    }
    pieces.push(rest);
    pieces
}

/// How far the pieces of a line behind the first are indented.
pub(crate) fn hang_of(line: &str, width: usize) -> usize {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    (indent + 2).min(width / 2)
}

/// Where the first piece ends, and the next one begins.
fn break_of(text: &str, room: usize) -> Option<(usize, usize)> {
    let indent = text.len() - text.trim_start_matches(' ').len();
    let (mut used, mut full, mut space) = (0, None, None);
    for (at, c, columns) in measured(text) {
        used += columns;
        if used > room {
            full = Some(at);
            break;
        }
        if c == ' ' && at > indent {
            space = Some(at);
        }
    }
    let full = full?;
    if text[full..].starts_with(' ') {
        space = Some(full);
    }
    match space {
        // Not so early that nearly nothing stands in the line.
        Some(space) if columns(&text[..space]) * 3 > room => {
            Some((space, text.len() - text[space..].trim_start_matches(' ').len()))
        }
        _ if full > 0 => Some((full, full)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_colours_none() {
        assert_eq!(columns("Käse"), 4);
        assert_eq!(columns("日本 🧀"), 7);
        assert_eq!(columns("\u{1b}[1;31mred\u{1b}[0m"), 3);
        assert_eq!(columns("e\u{301}"), 1);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("Käse", 4), "Käse");
        assert_eq!(cut("Käsebrot", 4), "Käs…");
        assert_eq!(cut("日本", 1), "…");
        assert_eq!(cut("日本", 3), "日…");
        assert_eq!(cut("日本", 4), "日本");
    }

    #[test]
    fn a_long_line_is_broken_so_that_every_piece_fits() {
        let line = "  name  a text that goes on 日本日本日本日本日本日本日本日本日本日本日本日本 to its end";
        for width in 10..90 {
            let pieces = broken(line, width);
            let hang = hang_of(line, width);
            for (at, piece) in pieces.iter().enumerate() {
                let room = if at == 0 { width } else { width - hang };
                assert!(columns(piece) <= room, "{width}: {piece:?}");
            }
            let all: String = pieces.concat().split_whitespace().collect();
            assert_eq!(all, line.split_whitespace().collect::<String>(), "nothing is lost");
        }
        assert_eq!(broken("short", 80), ["short"]);
    }
}
