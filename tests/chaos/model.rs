//! What the walk knows: which frames may pass, what must be kept, and what `status` has to say.

use std::fmt;

use crate::traffic::Classes;

/// What lies where an object file is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    First,
    /// Other code, the same maps.
    Other,
    /// A map of another shape.
    Wide,
    /// The verifier refuses it.
    Refused,
    /// Its program has another name.
    Nameless,
    /// Half of a file.
    Half,
    Missing,
}

impl Content {
    pub(crate) const ALL: [Content; 7] = [
        Content::First,
        Content::Other,
        Content::Wide,
        Content::Refused,
        Content::Nameless,
        Content::Half,
        Content::Missing,
    ];

    pub(crate) fn is_readable(self) -> bool {
        !matches!(self, Content::Half | Content::Missing)
    }

    fn has_program(self) -> bool {
        matches!(self, Content::First | Content::Other | Content::Wide)
    }
}

/// A filter: code, and what it lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) content: Content,
    pub(crate) mask: Classes,
}

impl Filter {
    /// Whether it can take the place of another one.
    fn loads(self, before: Option<Filter>) -> bool {
        let is_wide = |filter: Filter| filter.content == Content::Wide;
        let fits = before.is_none_or(|before| is_wide(before) == is_wide(self));
        self.content.has_program() && fits
    }
}

/// Ports of one kind, the first of which is filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tap,
    Packet,
    Afxdp,
}

/// What became of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// The far end is down.
    Down,
    /// It was deleted, or has another name.
    Gone,
}

/// Frames go in at port `a`, and those that its program passes come out at port `b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) kind: Kind,
    /// What the files say by now.
    pub(crate) file: Filter,
    /// What they said when somebody read them last.
    pub(crate) wanted: Filter,
    /// The object couldn't be read when the daemon started.
    pub(crate) is_unread: bool,
    pub(crate) running: Option<Filter>,
    /// What users put into its map.
    pub(crate) blocked: Classes,
    /// Of these nobody knows: a change was answered with an error.
    pub(crate) uncertain: Classes,
    /// As users set it.
    pub(crate) is_up: bool,
    pub(crate) link: Link,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Tap, Kind::Packet, Kind::Afxdp];
}

impl Lane {
    pub(crate) fn new(kind: Kind, mask: Classes) -> Lane {
        let file = Filter { content: Content::First, mask };
        Lane {
            kind,
            file,
            wanted: file,
            is_unread: false,
            running: None,
            blocked: 0,
            uncertain: 0,
            is_up: true,
            link: Link::Up,
        }
    }

    /// What is wanted takes the place of what runs, if it can.
    fn follow(&mut self) {
        if !self.is_unread && self.wanted.loads(self.running) {
            self.running = Some(self.wanted);
        }
    }

    fn reload(&mut self) {
        (self.wanted, self.is_unread) = (self.file, false);
        self.follow();
    }

    /// Saved is what was wanted, and what ran.
    fn start(&mut self) {
        let before = self.wanted.content;
        let is_readable = self.file.content.is_readable();
        let content = if is_readable { self.file.content } else { before };
        self.wanted = Filter { content, mask: self.file.mask };
        self.is_unread = !is_readable;
        if self.wanted.loads(self.running) {
            self.running = Some(self.wanted);
        }
    }

    /// The object file is another one: one that couldn't be read is read by itself.
    pub(crate) fn set_content(&mut self, content: Content) {
        self.file.content = content;
        if self.is_unread && content.is_readable() {
            self.is_unread = false;
            self.wanted.content = content;
            self.follow();
        }
    }

    /// What may pass.
    pub(crate) fn may(&self) -> Classes {
        self.running.map_or(0, |filter| filter.mask & (!self.blocked | self.uncertain))
    }

    /// What must pass.
    pub(crate) fn must(&self) -> Classes {
        let works = self.is_up && self.link == Link::Up;
        if works { self.may() & !self.uncertain } else { 0 }
    }
}

/// What is wrong with the disk of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Good,
    Full,
    ReadOnly,
    /// `RLIMIT_FSIZE`.
    Limited,
}

/// What the configuration file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    Good,
    /// The same in another order.
    Reordered,
    /// It has a mistake.
    Mistaken,
    /// It ends in the middle of a line.
    Cut,
    Empty,
    Missing,
}

impl Text {
    pub(crate) fn is_right(self) -> bool {
        matches!(self, Text::Good | Text::Reordered)
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) disk: Disk,
    pub(crate) text: Text,
    /// Something changed that could not be saved.
    pub(crate) is_unsaved: bool,
    pub(crate) log: Log,
    /// A port that users made.
    pub(crate) has_extra: bool,
}

/// What is known of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    Read,
    /// Nobody reads it: sooner or later that is told.
    Unread,
    /// It can't be written, and had lines.
    Lost,
    /// It can't be written; who knows whether it had lines.
    Gone,
}

/// A failure that `status` has to show, or may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) code: &'static str,
    /// A part of its subject.
    pub(crate) subject: String,
    pub(crate) is_required: bool,
}

impl Model {
    /// Whether a reload is taken.
    pub(crate) fn is_loadable(&self) -> bool {
        self.text.is_right() && self.lanes.iter().all(|lane| lane.file.content.is_readable())
    }

    /// Nothing lies where an object is wanted that nobody read yet and that will be refused.
    pub(crate) fn starts_as_it_reloads(&self) -> bool {
        self.lanes.iter().all(|lane| {
            let file = lane.file;
            !file.content.is_readable() || file == lane.wanted || file.loads(lane.running)
        })
    }

    /// The configuration is read again.
    pub(crate) fn reload(&mut self) {
        if self.is_loadable() {
            let before = self.lanes.clone();
            self.lanes.iter_mut().for_each(Lane::reload);
            self.note_changes(&before);
        }
    }

    /// The daemon is started again.
    pub(crate) fn start(&mut self) {
        self.lanes.iter_mut().for_each(Lane::start);
        self.is_unsaved = false;
    }

    pub(crate) fn note_changes(&mut self, before: &[Lane]) {
        let saved = |lane: &Lane| (lane.wanted, lane.running);
        let is_same = self.lanes.iter().map(saved).eq(before.iter().map(saved));
        self.is_unsaved |= self.disk != Disk::Good && !is_same;
    }

    pub(crate) fn may(&self) -> impl Iterator<Item = Classes> {
        self.lanes.iter().map(Lane::may)
    }

    pub(crate) fn must(&self) -> Vec<Classes> {
        self.lanes.iter().map(Lane::must).collect()
    }

    /// What `status` shows.
    pub(crate) fn failures(&self) -> Vec<Expected> {
        let mut all = Vec::new();
        let mut add = |code, subject: String, is_required| {
            all.push(Expected { code, subject, is_required });
        };
        for (number, lane) in self.lanes.iter().enumerate() {
            if lane.running != Some(lane.wanted) {
                add("program", format!("lane{number}.o:filter"), true);
            }
            if lane.running.is_none() {
                add("port-shut", format!("port a{number}"), true);
            }
            if lane.is_unread {
                add("object", format!("lane{number}.o"), true);
            }
            if lane.link == Link::Gone {
                add("port-open", format!("port a{number}"), true);
                // As long as one of its ports was never there.
                add("port-set", format!("port a{number}"), false);
            }
        }
        if self.disk != Disk::Good {
            add("state", "saving the state".to_owned(), self.is_unsaved);
        }
        if self.log != Log::Read {
            add("log", "log".to_owned(), self.log == Log::Lost);
        }
        all
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Model { lanes, disk, text, is_unsaved, log, has_extra } = self;
        writeln!(f, "{disk:?} {text:?} {log:?} unsaved {is_unsaved} extra {has_extra}")?;
        lanes.iter().enumerate().try_for_each(|(number, lane)| writeln!(f, "{number}: {lane:?}"))
    }
}
