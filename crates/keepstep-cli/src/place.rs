//! Which store is meant: an argument beats KEEPSTEP_STORE, which beats `./runs`.

use std::path::{Path, PathBuf};

use keepstep::{Error, Options, Store};

use crate::failure::{Failure, Outcome};

/// The store that is meant.
pub(crate) fn store_path(given: Option<&Path>) -> PathBuf {
    let from_environment =
        || std::env::var_os("KEEPSTEP_STORE").filter(|value| !value.is_empty()).map(PathBuf::from);
    given.map(Path::to_path_buf).or_else(from_environment).unwrap_or_else(|| PathBuf::from("./runs"))
}

/// Opens a store to look at it; nothing is created.
pub(crate) fn open_to_read(path: &Path) -> Outcome<Store> {
    open_with(path, Options::default())
}

/// As [`open_to_read`], with options.
pub(crate) fn open_with(path: &Path, options: Options) -> Outcome<Store> {
    // Reading needs no level: a store in memory may be read too.
    let options = options.level(keepstep::Level::Kill);
    Store::open_existing(path, options).map_err(|error| match error {
        Error::NotAStore { .. } if !path.exists() => {
            Failure::new(format!("there is no store at {}", path.display()))
                .hint("name another, or set KEEPSTEP_STORE; `keepstep demo` makes one to look at")
        }
        other @ Error::NotAStore { .. } => match stores_below(path).first() {
            Some(below) => {
                let others = stores_below(path).iter().map(|it| quoted(it)).collect::<Vec<_>>().join(", ");
                let failure = Failure::new(other.to_string());
                failure.hint(format!("there are stores below it: {others}")).hint(format!(
                    "`keepstep ls {}`, or KEEPSTEP_STORE={}",
                    quoted(below),
                    quoted(below)
                ))
            }
            None => Failure::from(other),
        },
        other => Failure::from(other),
    })
}

/// Stores in a folder, if the folder was named instead of a store, such as the one that `keepstep demo` makes.
fn stores_below(path: &Path) -> Vec<PathBuf> {
    const SHOWN_MAX: usize = 3;
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let stores = entries.map(|entry| entry.path()).filter(|it| is_store(it));
    let mut stores: Vec<PathBuf> = stores.take(SHOWN_MAX).collect();
    stores.sort();
    stores
}

/// Opens what [`split`] took for the store. If the first reference was meant as a directory, a hint says how to write
/// that.
pub(crate) fn open_taken(store: Option<&Path>, path: &Path, first: Option<&str>) -> Outcome<Store> {
    open_to_read(path).map_err(|failure| match first {
        Some(first) if store.is_none() && path.as_os_str() == "./runs" => {
            let named = quoted(Path::new(first));
            failure.hint(format!(
                "{first:?} was taken for a run or an episode; for the store of that name, write `-s {named}`"
            ))
        }
        _ => failure,
    })
}

/// True if a store may still be made here: there is nothing yet, or an empty directory.
pub(crate) fn may_come(path: &Path) -> bool {
    let is_address = path.to_str().is_some_and(|text| keepstep::refuse_address(text).is_err());
    match std::fs::read_dir(path) {
        _ if is_address => false,
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// True if a store is here. Its own file is made before all others, and is whole from the first moment.
pub(crate) fn is_store(path: &Path) -> bool {
    // Whatever stands under its name: if that is no file, the store is damaged, and the others are still there.
    path.join("keepstep.json").exists()
}

/// Tells a store from references where both may stand: `ls STORE`, `ls RUN`, `ls STORE RUN`.
///
/// The first is a store if it is a directory or looks like a path; with `-s` none is.
pub(crate) fn split(store: Option<&Path>, targets: &[String]) -> (PathBuf, Vec<String>) {
    match targets {
        [first, refs @ ..] if store.is_none() && is_path(first) => (PathBuf::from(first), refs.to_vec()),
        _ => (store_path(store), targets.to_vec()),
    }
}

/// An address counts as one: it is refused as a store, not looked for as a run.
fn is_path(text: &str) -> bool {
    text.starts_with(['.', '/']) || keepstep::refuse_address(text).is_err() || Path::new(text).is_dir()
}

/// As [`split`], where references are needed, at least so many: `show STORE REF`, `diff STORE A B`.
///
/// A directory may be called like a run here, so one counts only if it is a store and enough references follow.
pub(crate) fn split_before(
    store: Option<&Path>,
    targets: &[String],
    needed: usize,
) -> (PathBuf, Vec<String>) {
    match targets {
        [first, refs @ ..] if store.is_none() && is_store_before(first, refs.len() >= needed) => {
            (PathBuf::from(first), refs.to_vec())
        }
        _ => (store_path(store), targets.to_vec()),
    }
}

/// The error if only a store is named, and nothing of it.
pub(crate) fn only_a_store(path: &Path, what: &str) -> Failure {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let hint = format!("name {article} {what} after it; `keepstep ls {}` shows what is there", quoted(path));
    let is = if is_store(path) { "is" } else { "is taken for" };
    let failure = crate::usage(format!("{} {is} a store, and no {what} of it is named", quoted(path)), hint);
    failure.hint(format!("`-s {}` names the store, also where other options say what is meant", quoted(path)))
}

fn is_store_before(text: &str, is_followed: bool) -> bool {
    let looks_so = ["/", "./", "../"].iter().any(|start| text.starts_with(start))
        || [".", ".."].contains(&text)
        || keepstep::refuse_address(text).is_err();
    looks_so || (is_followed && is_store(Path::new(text)))
}

/// A path as an argument of a shell, for lines that people copy.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
