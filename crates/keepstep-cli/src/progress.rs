//! Progress bars, on stderr, and only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that counts up to a known end. Without a terminal it shows nothing.
pub(crate) fn bar(end: u64, what: &str) -> ProgressBar {
    styled(ProgressBar::new(end), "{msg} [{bar:32}] {pos}/{len}", what)
}

/// A bar that is not shown.
pub(crate) fn none() -> ProgressBar {
    ProgressBar::hidden()
}

/// A bar for bytes.
pub(crate) fn bytes(end: u64, what: &str) -> ProgressBar {
    styled(ProgressBar::new(end), "{msg} [{bar:32}] {binary_bytes}/{binary_total_bytes} {eta}", what)
}

fn styled(bar: ProgressBar, template: &str, what: &str) -> ProgressBar {
    // A template that does not parse is a mistake in this file; the plain bar does as well.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style.progress_chars("=> ")).with_message(what.to_owned())
}
