//! What people see: stdout for data, stderr for messages, colour only on a terminal.
//!
//! Recorded text is hostile: everything that could move a cursor or reorder a line is escaped, on a terminal or not.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

pub(crate) use keepstep::export::json::shown;

use crate::columns::{broken, columns, hang_of};
use crate::failure::Outcome;
use crate::json::Json;

/// Stdout and stderr of this process.
pub(crate) struct Screen {
    out: BufWriter<Stdout>,
    /// Colours for stdout.
    pub(crate) data: Paint,
    /// Colours for stderr.
    pub(crate) talk: Paint,
    /// How wide the terminal is that stdout goes to; none if it goes elsewhere, where a line may be as long as it is.
    pub(crate) width: Option<usize>,
    talk_width: Option<usize>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let data = Paint::on(stdout.is_terminal());
        let width = width_of(&stdout);
        Self {
            width,
            talk_width: width_of(&io::stderr()),
            out: BufWriter::with_capacity(64 << 10, stdout),
            data,
            talk: Paint::on(io::stderr().is_terminal()),
        }
    }

    /// Data: one line on stdout.
    pub(crate) fn line(&mut self, line: &str) -> Outcome<()> {
        Ok(write_line(&mut self.out, line, self.width)?)
    }

    /// Data: one line of JSON on stdout.
    pub(crate) fn json(&mut self, json: &Json) -> Outcome<()> {
        Ok(writeln!(self.out, "{json}")?)
    }

    /// Data for those who write it bit by bit.
    pub(crate) fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    pub(crate) fn flush(&mut self) -> Outcome<()> {
        Ok(self.out.flush()?)
    }

    /// A message: one line on stderr. If it cannot be written, that is no reason to fail.
    pub(crate) fn say(&self, line: &str) {
        let mut lines = Vec::new();
        let _ = write_line(&mut lines, line, self.talk_width);
        let _ = io::stderr().write_all(&lines);
    }
}

/// The columns of a terminal.
fn width_of(stream: &(impl IsTerminal + rustix::fd::AsFd)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    // A terminal that does not know says 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= COLUMNS_MIN)
}

/// In less nothing can be read, broken or not.
const COLUMNS_MIN: usize = 20;

/// One line, in pieces where the terminal is narrower.
fn write_line(out: &mut impl Write, line: &str, width: Option<usize>) -> io::Result<()> {
    let Some(width) = width.filter(|width| columns(line) > *width) else {
        out.write_all(line.as_bytes())?;
        return out.write_all(b"\n");
    };
    let hang = " ".repeat(hang_of(line, width));
    for (at, piece) in broken(line, width).into_iter().enumerate() {
        let before = if at == 0 { "" } else { &*hang };
        writeln!(out, "{before}{piece}")?;
    }
    Ok(())
}

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    fn on(is_terminal: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: is_terminal && !set("NO_COLOR") && !is_dumb }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// Which side of its column a cell leans to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows in columns, each as wide as it must be.
pub(crate) struct Table {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Side)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| shown(&cell).into_owned()).collect());
    }

    /// How many columns of a terminal it takes.
    pub(crate) fn width(&self) -> usize {
        self.lines(Paint { on: false }).iter().map(|line| columns(line)).max().unwrap_or(0)
    }

    /// The lines, the heading first.
    pub(crate) fn lines(&self, paint: Paint) -> Vec<String> {
        let heading: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).chain(heading.get(column));
            cells.map(|cell| columns(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for ((cell, width), (_, side)) in cells.iter().zip(&widths).zip(&self.columns) {
                let pad = " ".repeat(width.saturating_sub(columns(cell)));
                let (before, after) = if *side == Side::Right { (&*pad, "") } else { ("", &*pad) };
                let _ = write!(line, "{before}{cell}{after}  ");
            }
            line.trim_end().to_owned()
        };
        let mut lines = vec![paint.bold(&line(&heading))];
        lines.extend(self.rows.iter().map(|row| line(row)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent can be talked into printing anything, also what would rewrite the reader's screen.
    #[test]
    fn what_could_move_a_cursor_is_escaped() {
        let hostile = "\u{1b}[2Jgone\r\n\u{7}\u{9b}31m\u{202e}txt.exe\u{feff}";
        let seen = shown(hostile);
        assert!(!seen.contains(keepstep::export::json::is_hostile), "{seen:?}");
        assert_eq!(seen, "\\u{1b}[2Jgone\\r\\n\\u{7}\\u{9b}31m\\u{202e}txt.exe\\u{feff}");
        assert_eq!(shown("Käse 🧀 日本"), "Käse 🧀 日本");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("episode", Side::Left), ("steps", Side::Right)]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["shop/long\x1b".to_owned(), "100000".to_owned()]);
        let plain = Paint { on: false };
        assert_eq!(
            table.lines(plain),
            ["episode           steps", "a                     1", "shop/long\\u{1b}  100000"]
        );
        assert_eq!(table.width(), 23);
    }
}
