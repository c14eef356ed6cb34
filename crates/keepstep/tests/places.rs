//! Where a store may lie: what is refused before anything is recorded there.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod scratch;

use keepstep::{EpisodeName, Error, Level, Options, Remedy, Step, Store, Value};

use scratch::Scratch;

/// `s3://bucket/x` made a local folder called `s3:`: whoever expected a bucket found out when the machine was gone.
#[test]
fn an_address_is_refused_and_makes_no_folder() {
    let refused = [
        Store::open("s3://bucket/x", Options::default()),
        Store::open("s3:/bucket/x", Options::default()),
        Store::open_existing("gs://bucket/x", Options::default()),
    ];
    for opened in refused {
        let error = opened.expect_err("is no directory");
        assert_eq!(error.remedy(), Remedy::FixInput, "{error}");
        let said = error.to_string();
        assert!(said.contains("buckets and servers are not supported yet: give a local directory"), "{said}");
        // Nobody is invited to make a folder of that name.
        assert!(!said.contains("./s3:"), "{said}");
    }
    assert!(!std::path::Path::new("s3:").exists());
}

fn record(store: &Store, sample: i64, steps: usize) -> keepstep::Id {
    let name = EpisodeName::task("task").sample(sample);
    let episode = store.run("run", Value::Null).unwrap().episode(name).unwrap();
    for _ in 0..steps {
        episode.step(Step::new().observation("a shop")).unwrap();
    }
    episode.id()
}

fn steps_in(store: &Store, episode: &keepstep::Id) -> usize {
    let catalog = store.catalog().unwrap();
    let key = catalog.find(episode, 0).expect("is there");
    catalog.reader(&key).unwrap().read().unwrap().steps.len()
}

/// Deleting `keepstep.json` made the next `open` give the store another id, under which nothing of it could be read.
#[test]
fn a_store_without_its_identity_is_refused_until_it_is_healed() {
    let scratch = Scratch::new("gone");
    let store = scratch.store();
    let (id, episode) = (store.id(), record(&store, 0, 3));
    store.close();
    std::fs::remove_file(scratch.0.join("keepstep.json")).unwrap();
    for opened in
        [Store::open(&scratch.0, Options::default()), Store::open_existing(&scratch.0, Options::default())]
    {
        let error = opened.expect_err("would be another store");
        assert_eq!(error.remedy(), Remedy::RestoreData, "{error}");
        assert!(error.to_string().contains("verify --heal"), "{error}");
    }
    assert!(!scratch.0.join("keepstep.json").exists());
    assert!(Store::heal_identity(&scratch.0).unwrap());
    assert!(!Store::heal_identity(&scratch.0).unwrap(), "nothing is left to do");
    let store = scratch.store();
    assert_eq!((store.id(), steps_in(&store, &episode)), (id, 3));
    assert!(store.warnings().is_empty() && store.verify(&mut |_| {}).unwrap().is_whole());
}

/// A folder of one's own that is called `runs` is no store, and does not keep one from being made beside it.
#[test]
fn a_folder_called_runs_is_no_recording() {
    let scratch = Scratch::new("folder");
    std::fs::create_dir_all(scratch.0.join("runs/2024-05")).unwrap();
    record(&scratch.store(), 0, 1);
}

/// Whatever single character of `keepstep.json` is changed, the store is read, recorded to and found damaged, not refused.
#[test]
fn any_damaged_character_of_the_identity_is_survived() {
    let scratch = Scratch::new("digit");
    let store = scratch.store();
    let (id, episode) = (store.id(), record(&store, 0, 2));
    store.close();
    let path = scratch.0.join("keepstep.json");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() - 1 {
        let mut bytes = whole.clone();
        bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
        std::fs::write(&path, &bytes).unwrap();
        let store = Store::open_existing(&scratch.0, Options::default());
        let store = store.unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!((store.id(), steps_in(&store, &episode)), (id, 2), "byte {at}");
        assert_eq!(store.warnings().len(), 1, "byte {at}");
        let report = store.verify(&mut |_| {}).unwrap();
        assert!(report.damage.iter().any(|it| it.path == "keepstep.json"), "byte {at}: {report:?}");
    }
    record(&scratch.store(), 1, 1);
    assert!(Store::heal_identity(&scratch.0).unwrap());
    let store = scratch.store();
    assert_eq!(store.id(), id);
    assert!(store.warnings().is_empty() && store.verify(&mut |_| {}).unwrap().is_whole());
}

/// Where no log says which store it was, a card vouches for the id; where nothing does, nobody guesses.
#[test]
fn an_identity_is_never_guessed() {
    let scratch = Scratch::new("guess");
    let store = scratch.store();
    let id = store.id();
    store.close();
    let path = scratch.0.join("keepstep.json");
    let whole = std::fs::read_to_string(&path).unwrap();
    let damaged = whole.replace("\"format\":1", "\"format\":2");
    std::fs::write(&path, &damaged).unwrap();
    let error = Store::open(&scratch.0, Options::default()).expect_err("nobody can tell");
    assert!(matches!(&error, Error::NotAStore { path, .. } if path == "keepstep.json"), "{error}");
    std::fs::write(&path, &whole).unwrap();
    scratch.store().run("run", Value::Null).unwrap();
    std::fs::write(&path, &damaged).unwrap();
    assert_eq!(scratch.store().id(), id);

    // Logs of two stores in one directory.
    let other = Scratch::new("guess-other");
    record(&other.store(), 0, 1);
    std::fs::write(&path, &whole).unwrap();
    record(&scratch.store(), 0, 1);
    let theirs = std::fs::read_dir(other.0.join("writers")).unwrap().next().unwrap().unwrap();
    std::fs::rename(theirs.path(), scratch.0.join("writers").join(theirs.file_name())).unwrap();
    std::fs::write(&path, &damaged).unwrap();
    let error = Store::open(&scratch.0, Options::default()).expect_err("which of the two?");
    assert!(error.to_string().contains("2 different stores"), "{error}");
}

/// Something mounted for one test, by root; unmounted afterwards.
struct Mounted(std::path::PathBuf);

impl Mounted {
    /// Nothing where mounting is not permitted.
    fn new(kind: &str, options: &str, source: &str, at: std::path::PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&at).unwrap();
        let mut command = std::process::Command::new("mount");
        command.args(["-t", kind, "-o", options, source]).arg(&at);
        let output = command.stderr(std::process::Stdio::null()).status();
        output.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `power` was promised on an overlay whose syncs do nothing, on one that lies in memory, and on an image in memory.
#[test]
fn power_is_promised_only_where_a_sync_reaches_a_disk() {
    let scratch = Scratch::new("mounts");
    let make = |name: &str| {
        let path = scratch.0.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path.canonicalize().unwrap().display().to_string()
    };
    let Some(memory) = Mounted::new("tmpfs", "size=80m", "none", scratch.0.join("memory")) else {
        return; // Only root mounts.
    };
    let layers = |upper: &str, more: &str| {
        let low = make("low");
        format!(
            "lowerdir={low},upperdir={},workdir={}{more}",
            make(&format!("{upper}/u")),
            make(&format!("{upper}/w"))
        )
    };
    let in_memory = Mounted::new("overlay", &layers("memory", ""), "none", scratch.0.join("in-memory"));
    let volatile = Mounted::new("overlay", &layers("disk", ",volatile"), "none", scratch.0.join("volatile"));
    let honest = Mounted::new("overlay", &layers("disk2", ""), "none", scratch.0.join("honest"));
    let image = scratch.0.join("memory/image");
    std::fs::File::create(&image).unwrap().set_len(48 << 20).unwrap();
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    let looped = made
        .is_ok_and(|status| status.success())
        .then(|| Mounted::new("ext4", "loop", image.to_str().unwrap(), scratch.0.join("looped")));
    let plain = scratch.0.join("disk-image");
    std::fs::File::create(&plain).unwrap().set_len(48 << 20).unwrap();
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(&plain).status();
    let unsafe_disk = made
        .is_ok_and(|status| status.success())
        .then(|| Mounted::new("ext4", "loop,barrier=0", plain.to_str().unwrap(), scratch.0.join("unsafe")));
    let weak = [in_memory, volatile, looped.flatten(), unsafe_disk.flatten()];
    for mounted in weak.iter().flatten() {
        let store = Store::open(mounted.0.join("store"), Options::default()).unwrap();
        assert_eq!((store.level(), store.warnings().len()), (Level::Kill, 1), "{:?}", mounted.0);
        let power = Options::default().level(Level::Power);
        let error = Store::open(mounted.0.join("store"), power).expect_err("cannot be reached");
        assert!(matches!(error, Error::LevelOutOfReach { .. }), "{:?}: {error}", mounted.0);
    }
    let is_disk = Store::open(scratch.0.join("here"), Options::default()).unwrap().level() == Level::Power;
    if let Some(honest) = honest.filter(|_| is_disk) {
        assert_eq!(Store::open(honest.0.join("store"), Options::default()).unwrap().level(), Level::Power);
    }
    // Logs behind a link, or on a mount of their own.
    let linked = Scratch::new("mounts-linked");
    std::fs::create_dir_all(&linked.0).unwrap();
    std::fs::create_dir_all(memory.0.join("logs")).unwrap();
    std::os::unix::fs::symlink(memory.0.join("logs"), linked.0.join("writers")).unwrap();
    assert_eq!(Store::open(&linked.0, Options::default()).unwrap().level(), Level::Kill);
    drop(weak);
    drop(memory);
}

/// Who reaps as root left folders that the user's own recorder could not write to.
#[test]
fn what_root_makes_in_a_store_belongs_to_its_owner() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let scratch = Scratch::new("owner");
    std::fs::create_dir_all(&scratch.0).unwrap();
    if chown(&scratch.0, Some(12345), Some(54321)).is_err() {
        return; // Only root gives away.
    }
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o2770)).unwrap();
    let store = scratch.store();
    record(&store, 0, 2);
    store.close();
    let mut folders = vec![scratch.0.clone()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let found = entry.metadata().unwrap();
            let mode = found.mode() & 0o7777;
            let wanted = if found.is_dir() { 0o2770 } else { 0o660 };
            assert_eq!((found.uid(), found.gid(), mode), (12345, 54321, wanted), "{:?}", entry.path());
            folders.extend(found.is_dir().then(|| entry.path()));
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen}");
}

/// Tells a test that runs as another user where to work.
const AS_SOMEBODY_ELSE: &str = "KEEPSTEP_TEST_AS_SOMEBODY_ELSE";

/// Folders that an earlier `reap` by root left in a user's store made each try to go on cost an attempt.
#[test]
fn who_cannot_write_does_not_cost_an_attempt() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const USER: u32 = 12345;
    if let Ok(dir) = std::env::var(AS_SOMEBODY_ELSE) {
        let store = Store::open(dir, Options::default()).unwrap();
        let name = EpisodeName::task("task");
        let error = store.run("run", Value::Null).unwrap().episode(name).expect_err("cannot");
        assert!(error.to_string().contains("belongs to another user"), "{error}");
        return;
    }
    let scratch = Scratch::new("burnt");
    std::fs::create_dir_all(&scratch.0).unwrap();
    if chown(&scratch.0, Some(USER), Some(USER)).is_err() {
        return; // Only root gives away.
    }
    record(&scratch.store(), 0, 2);
    let owner = std::fs::read_dir(scratch.0.join("writers")).unwrap().flatten().next().unwrap().file_name();
    let letters = format!("mail/{}", owner.display());
    for folder in ["ends", "claims", &letters] {
        let folder = scratch.0.join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let whose = std::fs::metadata(&folder).unwrap().uid();
        chown(&folder, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let claims = scratch.files(".claim").len();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "who_cannot_write_does_not_cost_an_attempt"]).uid(USER).gid(USER);
        let output = child.env(AS_SOMEBODY_ELSE, &scratch.0).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(scratch.files(".claim").len(), claims, "{folder:?}");
        chown(&folder, Some(whose), Some(USER)).unwrap();
    }
}

/// A store on a read-only mount was said to belong to another user.
#[test]
fn a_read_only_mount_is_called_what_it_is() {
    let scratch = Scratch::new("read-only");
    let there = scratch.0.join("there");
    std::fs::create_dir_all(&there).unwrap();
    record(&Store::open(&there, Options::default()).unwrap(), 0, 2);
    let source = there.display().to_string();
    let Some(mounted) = Mounted::new("none", "bind,ro", &source, scratch.0.join("here")) else {
        return; // Only root mounts.
    };
    let run = Store::open(&mounted.0, Options::default()).and_then(|store| store.run("run", Value::Null));
    for task in ["task", "another"] {
        let name = EpisodeName::task(task);
        let error = run.as_ref().expect("reads").episode(name).expect_err("cannot");
        assert!(error.to_string().contains("Read-only file system"), "{error}");
    }
}
