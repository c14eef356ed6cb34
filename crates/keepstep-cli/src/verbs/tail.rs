//! `keepstep tail`: the last records, and new ones.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keepstep::format::commit::What;
use keepstep::format::frame::Kind;
use keepstep::read::{AttemptKey, Catalog, End, EpisodeEvent, FollowFrom, Item, is_final};
use keepstep::refs::{self, Meant, Ref};
use keepstep::{AttemptFollow, Began, Error, Id, RecordFollow, RecordNews, Store};

use crate::columns::{columns, cut};
use crate::failure::{Exit, Outcome};
use crate::json::Json;
use crate::numbers::date;
use crate::place::{is_store, may_come, open_taken, split};
use crate::reading::{self, Episode};
use crate::render::Rendered;
use crate::screen::{Screen, shown};
use crate::verbs::ls::parse_all;

/// How long a follower of a store waits for a record before it waits again.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How often a follower of an episode checks who records it now.
const ASK_OWNER_EVERY: Duration = Duration::from_millis(500);

/// The message about a dead process.
const RECORDER_GONE: &str = "its process died without an end";
/// The message if an attempt is over and the episode is not.
const WAITING: &str = "waiting for another attempt (Ctrl-C stops)";

/// Arguments of `keepstep tail`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep tail                               the last records of any episode
  keepstep tail -f /mnt/data/runs             also what comes in, until Ctrl-C
  keepstep tail -f shop-agent/shop-17#0.2     one episode, until it is over
  keepstep tail -f shop-agent/shop-17#0.2~0   one attempt at it, until that ends
  keepstep tail -n 100 --json shop-agent/shop-17

A step is shown as soon as it is durable. An episode is followed from attempt to
attempt: if its process dies, `tail -f` waits for the next attempt, and follows
that. It does the same if an attempt ends in any way but finished or truncated,
which are final. A store or an episode that is not there yet is waited for too,
and shown from its first record on, whatever -n says.")]
pub(crate) struct Args {
    /// The store, if you do not name it first
    #[arg(short, long)]
    store: Option<PathBuf>,
    /// A store, then perhaps an episode of it
    #[arg(value_name = "STORE|REF")]
    targets: Vec<String>,
    /// Follow: go on with what comes in, or wait for it
    #[arg(short, long)]
    follow: bool,
    /// How many of the last records to show
    #[arg(short = 'n', long, default_value_t = 10)]
    lines: usize,
    /// Print a line of JSON for each record
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    let (path, refs) = match &args.targets[..] {
        // One episode is followed: of two names the first is the store, also if it is not there yet.
        [first, second] if args.store.is_none() && args.follow && is_plain(first) => {
            (PathBuf::from(first), vec![second.clone()])
        }
        targets => split(args.store.as_deref(), targets),
    };
    let refs = parse_all(&refs)?;
    if let [(first, _), _, ..] = &refs[..] {
        let failure = crate::usage("more than one episode was named", "name one, or none to see them all");
        let hint = format!("{first:?} is no directory; one that is not there yet is ./{first}");
        return Err(if args.store.is_none() { failure.hint(hint) } else { failure });
    }
    let (store, was_awaited) = store_at(args, &path, &refs, screen)?;
    let Some((text, wanted)) = refs.first() else {
        return Tail::new(args, &store, was_awaited, &[]).whole_store(screen);
    };
    let (episode, has_come) = episode_called(args, &store, text, wanted, screen)?;
    let tail = Tail::new(args, &store, was_awaited || has_come, std::slice::from_ref(&episode));
    tail.one_episode(&episode, wanted.attempt.is_some(), screen)
}

/// True if nothing in a text says that it is an episode.
fn is_plain(text: &str) -> bool {
    !text.contains(['/', '#', '~', '@'])
}

/// Opens the store. If it does not exist yet and is to be followed, waits for it, and returns true.
fn store_at(args: &Args, path: &Path, refs: &[(String, Ref)], screen: &Screen) -> Outcome<(Store, bool)> {
    let first = refs.first().map(|(text, _)| &**text);
    let opened = open_taken(args.store.as_deref(), path, first);
    let failure = match opened {
        Err(failure) if may_come(path) => failure,
        opened => return Ok((opened?, false)),
    };
    if !args.follow {
        return Err(failure.hint("`keepstep tail -f` waits until it is there"));
    }
    failure.say_waiting(screen);
    while !is_store(path) {
        std::thread::sleep(ASK_OWNER_EVERY);
    }
    Ok((open_taken(args.store.as_deref(), path, first)?, true))
}

/// The one episode that is meant. If it has not begun yet and is to be followed, waits for it, and returns true.
fn episode_called(
    args: &Args,
    store: &Store,
    text: &str,
    wanted: &Ref,
    screen: &Screen,
) -> Outcome<(Episode, bool)> {
    let mut catalog = store.catalog()?;
    let mut is_told = false;
    loop {
        let episodes = reading::episodes(store, &mut catalog)?;
        let is_there = !matches!(refs::meant(&episodes, wanted), Meant::Nothing);
        if is_there || !args.follow {
            return Ok((reading::one(store, &episodes, text, wanted)?.clone(), is_told));
        }
        if !is_told {
            // A pruned episode never comes back.
            if let Ok(pruned @ Error::Pruned { .. }) = refs::not_there(store, text, wanted) {
                return Err(pruned.into());
            }
            reading::not_there(store, text, wanted, "episode").say_waiting(screen);
            is_told = true;
        }
        std::thread::sleep(ASK_OWNER_EVERY);
    }
}

/// How an attempt ended, or that this is lost.
fn why_of(why: Option<&str>) -> String {
    why.unwrap_or("it is unknown how").to_owned()
}

/// An attempt that is followed; how it ended, if it did and that was told.
struct Following {
    key: AttemptKey,
    follow: AttemptFollow,
    ended: Option<String>,
}

struct Tail<'a> {
    args: &'a Args,
    store: &'a Store,
    /// What episodes are called.
    names: HashMap<(Id, u32), String>,
    /// Up to which sequence each was shown already.
    shown_to: HashMap<AttemptKey, u32>,
    /// True if the beginning was waited for: then everything is shown from there on.
    was_awaited: bool,
    is_whole: bool,
}

impl<'a> Tail<'a> {
    fn new(args: &'a Args, store: &'a Store, was_awaited: bool, episodes: &[Episode]) -> Self {
        let (names, shown_to) = (HashMap::new(), HashMap::new());
        let mut tail = Self { args, store, names, shown_to, was_awaited, is_whole: true };
        tail.learn_names(episodes);
        tail
    }

    fn learn_names(&mut self, episodes: &[Episode]) {
        let named = episodes.iter().map(|it| ((it.key.episode, it.key.attempt), it.reference().to_string()));
        self.names.extend(named);
    }

    fn exit(&self) -> Exit {
        if self.is_whole { Exit::Done } else { Exit::Lost }
    }

    fn one_episode(mut self, episode: &Episode, stays: bool, screen: &mut Screen) -> Outcome {
        if !self.args.follow {
            let catalog = self.store.catalog()?;
            self.tell_last(&catalog, episode, screen)?;
            self.tell_found_end(episode.key, screen)?;
            let wrong = reading::tell_wrong(std::slice::from_ref(episode), screen)?;
            return Ok(self.exit().worse(wrong).worse(reading::tell_troubles(&catalog, screen)?));
        }
        let Following { mut key, mut follow, mut ended } = match self.was_awaited {
            true => self.begin_with_the_first(episode, stays)?,
            false => self.begin_with_the_last(episode, screen)?,
        };
        loop {
            if ended.is_none() {
                ended = self.follow_one(key, &mut follow, stays, screen)?;
            }
            let next = match (self.next_attempt(key)?.filter(|_| !stays), &ended) {
                (Some(next), _) => next,
                (None, None) => continue,
                (None, Some(why)) if stays || is_final(why) => return Ok(self.exit()),
                (None, Some(why)) => self.wait_for_next(key, why, screen)?,
            };
            screen.flush()?;
            let AttemptKey { episode: id, attempt, writer } = next.key;
            let (by, steps) = (self.store.describe(&writer), next.inherited);
            screen.say(&shown(&format!("attempt ~{attempt} resumes at step {steps}, by {by}")));
            self.names.insert((id, attempt), episode.name().to_string());
            follow = self.store.follow_attempt(next.key, FollowFrom::Start)?;
            (key, ended) = (next.key, None);
        }
    }

    /// All of an episode that was waited for: earlier attempts too, if it had several when it was seen.
    fn begin_with_the_first(&mut self, episode: &Episode, stays: bool) -> Outcome<Following> {
        let id = episode.key.episode;
        let first = self.store.began(&id)?.into_iter().find(|it| !it.was_over).filter(|_| !stays);
        let key = first.map_or(episode.key, |first| first.key);
        self.names.insert((id, key.attempt), episode.name().to_string());
        let follow = self.store.follow_attempt(key, FollowFrom::Start)?;
        Ok(Following { key, follow, ended: None })
    }

    /// What was recorded last, and then what comes in.
    fn begin_with_the_last(&mut self, episode: &Episode, screen: &mut Screen) -> Outcome<Following> {
        let key = episode.key;
        // The follower starts before the last records are read, so that none is missed.
        let follow = self.store.follow_attempt(key, FollowFrom::Now)?;
        let catalog = self.store.catalog()?;
        self.tell_last(&catalog, episode, screen)?;
        // Also if its end is not among the records that were shown.
        let ended = self.store.view_of(&catalog, &key)?.ending()?.map(|end| why_of(end.why.as_deref()));
        if ended.is_some() {
            self.tell_found_end(key, screen)?;
        }
        Ok(Following { key, follow, ended })
    }

    fn tell_last(&mut self, catalog: &Catalog, episode: &Episode, screen: &mut Screen) -> Outcome<()> {
        for item in &last_of(self.store, catalog, episode, self.args)? {
            self.tell(episode.key, item, screen)?;
        }
        screen.flush()
    }

    /// Follows one attempt until it has ended, or another has its place. Gives how it ended.
    fn follow_one(
        &mut self,
        key: AttemptKey,
        follow: &mut AttemptFollow,
        stays: bool,
        screen: &mut Screen,
    ) -> Outcome<Option<String>> {
        let mut is_gone = false;
        loop {
            match follow.next(ASK_OWNER_EVERY)? {
                RecordNews::Record(item) => {
                    if let Some(why) = self.tell(key, &item, screen)? {
                        return Ok(Some(why));
                    }
                    screen.flush()?;
                }
                RecordNews::Ended(_) if !stays && self.next_attempt(key)?.is_some() => return Ok(None),
                RecordNews::Ended(end) => return self.tell_end(key, *end, screen).map(Some),
                RecordNews::OwnerGone if stays => {
                    screen.say(RECORDER_GONE);
                    return Ok(Some(why_of(None)));
                }
                RecordNews::OwnerGone if !is_gone => {
                    screen.say(&format!("{RECORDER_GONE}; {WAITING}"));
                    is_gone = true;
                }
                RecordNews::OwnerGone | RecordNews::Nothing => {}
            }
        }
    }

    /// After an end that is not final, waits until another attempt resumes.
    fn wait_for_next(&self, key: AttemptKey, why: &str, screen: &mut Screen) -> Outcome<Began> {
        screen.flush()?;
        screen.say(&shown(&format!("attempt ~{} ended: {why}; {WAITING}", key.attempt)));
        loop {
            if let Some(next) = self.next_attempt(key)? {
                return Ok(next);
            }
            std::thread::sleep(ASK_OWNER_EVERY);
        }
    }

    /// The attempt that took the place of this one.
    fn next_attempt(&self, key: AttemptKey) -> Outcome<Option<Began>> {
        let began = self.store.began(&key.episode)?;
        Ok(began.into_iter().find(|next| next.key.attempt > key.attempt && !next.was_over))
    }

    /// An end that another process found is in no log.
    fn tell_found_end(&self, key: AttemptKey, screen: &mut Screen) -> Outcome<()> {
        if let Some((why, evidence)) = self.store.found_end(&key.episode, key.attempt)? {
            let mut end = End::default();
            (end.why, end.evidence) = (Some(why), Some(evidence));
            self.tell_end(key, end, screen)?;
        }
        Ok(())
    }

    /// Shows an end that is in no log. Gives how the attempt ended.
    fn tell_end(&self, key: AttemptKey, end: End, screen: &mut Screen) -> Outcome<String> {
        let why = why_of(end.why.as_deref());
        self.print(key, &Rendered::of_event(&EpisodeEvent::End(Box::new(end))), screen)?;
        Ok(why)
    }

    fn whole_store(mut self, screen: &mut Screen) -> Outcome {
        if self.was_awaited {
            let mut follow = self.store.follow(FollowFrom::Start)?;
            return self.follow_all(&mut follow, screen);
        }
        let mut follow = if self.args.follow { Some(self.store.follow(FollowFrom::Now)?) } else { None };
        let (catalog, mut episodes) = reading::open(self.store)?;
        self.learn_names(&episodes);
        // The newest records are in the episodes that were heard of last.
        episodes.sort_by_key(|episode| std::cmp::Reverse(episode.summary.last_time));
        let mut last: Vec<(i64, AttemptKey, Item)> = Vec::new();
        for episode in episodes.iter().take(self.args.lines) {
            let mut time = 0;
            for item in last_of(self.store, &catalog, episode, self.args)? {
                time = time_of(&item).unwrap_or(time);
                last.push((time, episode.key, item));
            }
        }
        last.sort_by_key(|(time, key, _)| (*time, *key));
        // What is not shown must not come in later as if it were new.
        for (_, key, item) in &last {
            self.pass_over(*key, item);
        }
        let from = last.len().saturating_sub(self.args.lines);
        for (_, key, item) in &last[from..] {
            self.show(*key, item, screen)?;
        }
        screen.flush()?;
        let wrong = match &follow {
            None => reading::tell_all_wrong(self.store, &catalog, &episodes, screen)?,
            // What an episode lacks may be on its way: it is between a claim and its base.
            Some(_) => reading::tell_troubles(&catalog, screen)?,
        };
        self.is_whole &= wrong == Exit::Done;
        match &mut follow {
            Some(follow) => self.follow_all(follow, screen),
            None => Ok(self.exit()),
        }
    }

    fn follow_all(&mut self, follow: &mut RecordFollow, screen: &mut Screen) -> Outcome {
        loop {
            let Some(followed) = follow.next(ASK_EVERY)? else { continue };
            if followed.bind.what != What::Attempt {
                continue;
            }
            let (episode, attempt) = (followed.bind.id, followed.bind.attempt);
            if !self.names.contains_key(&(episode, attempt)) {
                let (_, episodes) = reading::open(self.store)?;
                self.learn_names(&episodes);
            }
            self.tell(AttemptKey { episode, attempt, writer: followed.writer }, &followed.item, screen)?;
            screen.flush()?;
        }
    }

    /// Shows what was not shown yet. If it is the end of its attempt, gives how that ended.
    fn tell(&mut self, key: AttemptKey, item: &Item, screen: &mut Screen) -> Outcome<Option<String>> {
        if self.pass_over(key, item) { self.show(key, item, screen) } else { Ok(None) }
    }

    /// Remembers that this was shown. False if it was before.
    fn pass_over(&mut self, key: AttemptKey, item: &Item) -> bool {
        let next = match item {
            Item::Record(record) => record.seq + 1,
            Item::Damaged(damaged) => damaged.seq + 1,
            Item::Gap(gap) => gap.to,
        };
        let shown_to = self.shown_to.entry(key).or_insert(0);
        let is_new = next > *shown_to;
        *shown_to = next.max(*shown_to);
        is_new
    }

    /// If it is the end of its attempt, gives how that ended.
    fn show(&mut self, key: AttemptKey, item: &Item, screen: &mut Screen) -> Outcome<Option<String>> {
        let entry = Rendered::of_item(item);
        self.is_whole &= !entry.is_damaged();
        self.print(key, &entry, screen)?;
        let why = entry.get("why").and_then(|why| why.as_str());
        Ok((entry.what == "end").then(|| why_of(why)))
    }

    fn print(&self, key: AttemptKey, entry: &Rendered, screen: &mut Screen) -> Outcome<()> {
        if !self.args.json && entry.is_bookkeeping() {
            return Ok(());
        }
        let name =
            self.names.get(&(key.episode, key.attempt)).cloned().unwrap_or_else(|| key.episode.to_string());
        if self.args.json {
            let names = [
                ("ref", Json::from(name)),
                ("id", key.episode.to_string().into()),
                ("attempt", key.attempt.into()),
            ];
            return screen.json(&entry.json(names));
        }
        let time = entry.get("time_us").and_then(|time| time.as_int()).map(date).unwrap_or_default();
        let time = screen.data.dim(time.get(11..19).unwrap_or("        "));
        let name = shown(&name);
        let name = screen.width.map_or(name.clone(), |width| cut(&name, width / 3).into_owned().into());
        // The time, and a space behind it and behind the name.
        let room = screen.width.map(|width| width.saturating_sub(8 + 2 + columns(&name)));
        screen.line(&format!("{time} {} {}", screen.data.cyan(&name), entry.line(screen.data, room)))
    }
}

/// The last records of an attempt that count and are to be shown.
fn last_of(store: &Store, catalog: &Catalog, episode: &Episode, args: &Args) -> Outcome<VecDeque<Item>> {
    let mut wide = args.lines as u64;
    loop {
        // Sequences are dense but for gaps, so at least so many records come from here on.
        let from = u32::try_from(episode.records.saturating_sub(wide)).unwrap_or(0);
        let mut last = VecDeque::new();
        for item in catalog.reader(&episode.key)?.records_from(from) {
            let item = item?;
            let is_call = matches!(&item, Item::Record(record) if record.kind == Kind::Call as u8);
            if is_call && !args.json && Rendered::of_item(&item).is_bookkeeping() {
                continue;
            }
            // What is open is shown, as a view shows it.
            if store.counts(&episode.key, &item)? == Some(false) {
                continue;
            }
            last.push_back(item);
            if last.len() > args.lines {
                last.pop_front();
            }
        }
        if from == 0 || last.len() >= args.lines {
            return Ok(last);
        }
        // Some of them are not shown: there are others before them.
        wide = wide.saturating_mul(4);
    }
}

fn time_of(item: &Item) -> Option<i64> {
    match item {
        Item::Record(record) => record.get(keepstep_format::fields::TIME).and_then(|time| time.as_int()),
        _ => None,
    }
}
