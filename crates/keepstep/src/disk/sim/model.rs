//! All that a simulated disk holds, and the operations that change it.
//!
//! The live disk and the replay of its trace change it by the same function, so they cannot differ.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;

use super::dir::{Change, DirNode, Name};
use super::file::FileNode;

/// A file or directory: its place in the model. Never used twice.
pub(super) type Ino = usize;

pub(super) const ROOT: Ino = 0;

#[derive(Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

/// One change of the disk, or an event of the application.
#[derive(Clone)]
pub(super) enum Op {
    CreateDir { dir: Ino, name: Name },
    Create { dir: Ino, name: Name },
    Link { dir: Ino, name: Name, ino: Ino },
    Rename { from_dir: Ino, from: Name, to_dir: Ino, to: Name },
    Remove { dir: Ino, name: Name },
    Write { ino: Ino, offset: u64, data: Arc<[u8]> },
    Sync { ino: Ino },
    SyncFailed { ino: Ino },
    SyncDir { dir: Ino },
    Event(u64),
}

#[derive(Clone)]
pub(super) struct Model {
    /// Deleted ones too: their blocks are where stale bytes come from.
    pub(super) nodes: Vec<Arc<Node>>,
    /// How many names each has.
    pub(super) links: Vec<u32>,
}

impl Model {
    pub(super) fn empty() -> Self {
        Self { nodes: vec![Arc::new(Node::Dir(DirNode::default()))], links: vec![1] }
    }

    pub(super) fn file(&self, ino: Ino) -> Option<&FileNode> {
        match &**self.nodes.get(ino)? {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        }
    }

    pub(super) fn dir(&self, ino: Ino) -> Option<&DirNode> {
        match &**self.nodes.get(ino)? {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (Ino, &FileNode)> {
        self.nodes.iter().enumerate().filter_map(|(ino, node)| match &**node {
            Node::File(file) => Some((ino, file)),
            Node::Dir(_) => None,
        })
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = (Ino, &DirNode)> {
        self.nodes.iter().enumerate().filter_map(|(ino, node)| match &**node {
            Node::Dir(dir) => Some((ino, dir)),
            Node::File(_) => None,
        })
    }

    fn file_mut(&mut self, ino: Ino) -> &mut FileNode {
        match Arc::make_mut(&mut self.nodes[ino]) {
            Node::File(file) => file,
            Node::Dir(_) => {
                unreachable!("operations on a directory's bytes are refused before they get here")
            }
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> &mut DirNode {
        match Arc::make_mut(&mut self.nodes[ino]) {
            Node::Dir(dir) => dir,
            Node::File(_) => unreachable!("operations on a file's names are refused before they get here"),
        }
    }

    /// What the path leads to. `""` is the root.
    pub(super) fn look_up(&self, path: &str) -> Result<Ino, Errno> {
        let mut at = ROOT;
        if path.is_empty() {
            return Ok(at);
        }
        for part in path.split('/') {
            check_name(part)?;
            let dir = self.dir(at).ok_or(Errno::NOTDIR)?;
            at = *dir.names.get(part).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The directory and the last part of a path, whether or not that name exists.
    pub(super) fn place(&self, path: &str) -> Result<(Ino, Name), Errno> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        check_name(name)?;
        let dir = self.look_up(crate::disk::parent(path))?;
        self.dir(dir).ok_or(Errno::NOTDIR)?;
        Ok((dir, Name::from(name)))
    }

    /// As [`Self::place`], for a name that must be new.
    pub(super) fn new_place(&self, path: &str) -> Result<(Ino, Name), Errno> {
        let (dir, name) = self.place(path)?;
        if self.child(dir, &name).is_some() {
            return Err(Errno::EXIST);
        }
        Ok((dir, name))
    }

    pub(super) fn child(&self, dir: Ino, name: &str) -> Option<Ino> {
        self.dir(dir)?.names.get(name).copied()
    }

    /// Every path that leads to a file or directory, sorted.
    pub(super) fn paths(&self) -> Vec<(String, Ino)> {
        let mut paths = Vec::new();
        let mut left = vec![(String::new(), ROOT)];
        while let Some((path, ino)) = left.pop() {
            let Some(dir) = self.dir(ino) else { continue };
            for (name, &child) in &dir.names {
                let path = crate::disk::join(&path, name);
                paths.push((path.clone(), child));
                left.push((path, child));
            }
        }
        paths.sort();
        paths
    }

    /// Everything that has a path.
    pub(super) fn reached(&self) -> BTreeSet<Ino> {
        let mut reached = BTreeSet::new();
        let mut left = vec![ROOT];
        while let Some(ino) = left.pop() {
            if reached.insert(ino) {
                left.extend(self.dir(ino).into_iter().flat_map(|dir| dir.names.values()));
            }
        }
        reached
    }

    /// The bytes of the files that have a name.
    pub(super) fn used_bytes(&self) -> u64 {
        self.reached().into_iter().filter_map(|ino| self.file(ino)).map(|file| file.content.bytes()).sum()
    }

    /// Applies an operation that was checked before.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::CreateDir { dir, name } => self.add_node(*dir, name, Node::Dir(DirNode::default())),
            Op::Create { dir, name } => self.add_node(*dir, name, Node::File(FileNode::default())),
            Op::Link { dir, name, ino } => self.set_name(*dir, name, Some(*ino)),
            Op::Remove { dir, name } => self.set_name(*dir, name, None),
            Op::Rename { from_dir, from, to_dir, to } => self.rename(*from_dir, from, *to_dir, to),
            Op::Write { ino, offset, data } => self.file_mut(*ino).write(data, *offset),
            Op::Sync { ino } => self.file_mut(*ino).synced(),
            Op::SyncFailed { ino } => self.file_mut(*ino).sync_failed(),
            Op::SyncDir { dir } => self.dir_mut(*dir).synced(),
            Op::Event(_) => {}
        }
    }

    fn add_node(&mut self, dir: Ino, name: &Name, node: Node) {
        let ino = self.nodes.len();
        self.nodes.push(Arc::new(node));
        self.links.push(0);
        self.set_name(dir, name, Some(ino));
    }

    fn set_name(&mut self, dir: Ino, name: &Name, now: Option<Ino>) {
        self.count_links(self.child(dir, name), now);
        self.dir_mut(dir).change(Change::Name { name: Arc::clone(name), now });
    }

    fn rename(&mut self, from_dir: Ino, from: &Name, to_dir: Ino, to: &Name) {
        let Some(ino) = self.child(from_dir, from) else { return };
        if from_dir != to_dir {
            // Two directories, two syncs: either half may be lost without the other.
            self.set_name(to_dir, to, Some(ino));
            self.set_name(from_dir, from, None);
            return;
        }
        self.count_links(self.child(to_dir, to), None);
        let is_dir = self.dir(ino).is_some();
        let (from, to) = (Arc::clone(from), Arc::clone(to));
        self.dir_mut(from_dir).change(Change::Rename { from, to, ino, is_dir });
    }

    fn count_links(&mut self, before: Option<Ino>, now: Option<Ino>) {
        if let Some(ino) = now {
            self.links[ino] += 1;
        }
        if let Some(ino) = before {
            self.links[ino] -= 1;
        }
    }

    /// Makes one name of a directory stand for what a power cut left under it.
    pub(super) fn settle_name(&mut self, dir: Ino, name: &Name, left: Option<Ino>) {
        let now = self.child(dir, name);
        if now != left {
            self.count_links(now, left);
            self.dir_mut(dir).put(Arc::clone(name), left);
        }
    }

    pub(super) fn settle_dir(&mut self, dir: Ino) {
        self.dir_mut(dir).synced();
    }

    pub(super) fn settle_file(&mut self, ino: Ino, file: FileNode) {
        self.nodes[ino] = Arc::new(Node::File(file));
    }
}

/// A real path would give these a meaning that nothing in the store may rest on.
fn check_name(name: &str) -> Result<(), Errno> {
    match name {
        "" | "." | ".." => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateDir { dir, name } => write!(f, "create directory {name} in #{dir}"),
            Self::Create { dir, name } => write!(f, "create file {name} in #{dir}"),
            Self::Link { dir, name, ino } => write!(f, "link #{ino} as {name} in #{dir}"),
            Self::Rename { from_dir, from, to_dir, to } => {
                write!(f, "rename {from} in #{from_dir} to {to} in #{to_dir}")
            }
            Self::Remove { dir, name } => write!(f, "remove {name} in #{dir}"),
            Self::Write { ino, offset, data } => {
                write!(f, "write {} bytes at {offset} of #{ino}", data.len())
            }
            Self::Sync { ino } => write!(f, "sync #{ino}"),
            Self::SyncFailed { ino } => write!(f, "fail to sync #{ino}"),
            Self::SyncDir { dir } => write!(f, "sync directory #{dir}"),
            Self::Event(payload) => write!(f, "event {payload}"),
        }
    }
}
