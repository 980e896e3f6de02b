//! What the walk knows: which frames may pass, what must be kept, and what `status` has to say.

use std::fmt;

use crate::traffic::{BY_MAP, Classes, TO_SOCKET};

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
    /// Frames of the last class keep it busy until it is stopped.
    Stuck,
    /// Half of a file.
    Half,
    Missing,
}

impl Content {
    pub(crate) const ALL: [Content; 8] = [
        Content::First,
        Content::Other,
        Content::Wide,
        Content::Refused,
        Content::Nameless,
        Content::Stuck,
        Content::Half,
        Content::Missing,
    ];

    pub(crate) fn is_readable(self) -> bool {
        !matches!(self, Content::Half | Content::Missing)
    }

    fn has_program(self) -> bool {
        matches!(self, Content::First | Content::Other | Content::Wide | Content::Stuck)
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
    /// Two taps in active backup, of which frames come by the first that is up.
    Bond,
    /// A virtual machine that behaves, and comes back whenever it went.
    Machine,
}

/// What became of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// The far end is down.
    Down,
    /// It was deleted.
    Gone,
    /// It has another name.
    Renamed,
}

impl Link {
    /// Whether the port finds its interface.
    pub(crate) fn is_there(self) -> bool {
        matches!(self, Link::Up | Link::Down)
    }
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
    /// Its device map leads to its other port; nothing where nobody knows.
    pub(crate) leads: Option<bool>,
    /// An application may have frames of one class.
    pub(crate) has_app: bool,
    /// As users set it.
    pub(crate) is_up: bool,
    pub(crate) link: Link,
    /// Which members of a bond are up.
    pub(crate) members: [bool; 2],
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Tap, Kind::Packet, Kind::Afxdp, Kind::Bond, Kind::Machine];

    /// On an interface that others make.
    pub(crate) fn is_on_wire(self) -> bool {
        matches!(self, Kind::Packet | Kind::Afxdp)
    }
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
            leads: Some(false),
            has_app: false,
            is_up: true,
            link: Link::Up,
            members: [true; 2],
        }
    }

    /// Frames can get there.
    fn works(&self) -> bool {
        self.is_up && self.link == Link::Up && self.members != [false; 2]
    }

    fn is_stuck(&self) -> bool {
        self.running.is_some_and(|filter| filter.content == Content::Stuck)
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
        self.has_app = false;
        // Taps are made anew.
        self.members = [true; 2];
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
        let leads_nowhere = if self.leads == Some(false) { 1 << BY_MAP } else { 0 };
        let passes = !self.blocked | self.uncertain;
        self.running.map_or(0, |filter| filter.mask & passes & !leads_nowhere)
    }

    /// What must pass.
    pub(crate) fn must(&self) -> Classes {
        // One that kept its worker is halted, and then drops everything.
        if !self.works() || self.is_stuck() {
            return 0;
        }
        let elsewhere = if self.has_app { 1 << TO_SOCKET } else { 0 };
        let unknown = if self.leads.is_none() { 1 << BY_MAP } else { 0 };
        self.may() & !self.uncertain & !elsewhere & !unknown
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
    /// What was saved was damaged, and the configuration not read since.
    pub(crate) is_damaged: bool,
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

    /// What becomes of a start is known.
    pub(crate) fn can_start(&self) -> bool {
        !self.is_unsaved
    }

    /// The configuration is read again.
    pub(crate) fn reload(&mut self) {
        if self.is_loadable() {
            let before = self.lanes.clone();
            self.is_damaged = false;
            self.lanes.iter_mut().for_each(Lane::reload);
            self.note_changes(&before);
        }
    }

    /// A user has a device map lead somewhere, or nowhere.
    pub(crate) fn lead(&mut self, lane: usize, leads: bool) {
        self.lanes[lane].leads = Some(leads).filter(|_| self.disk == Disk::Good);
    }

    /// The daemon is started again.
    pub(crate) fn start(&mut self) {
        self.lanes.iter_mut().for_each(Lane::start);
        self.is_damaged = false;
        if self.disk == Disk::Limited {
            // That was the process's.
            self.disk = Disk::Good;
        }
        self.is_unsaved = self.disk != Disk::Good;
    }

    /// What was saved is damaged, and the configuration perhaps read again after the start: what
    /// users changed may be lost. Files are right before, and ports as the configuration has them.
    pub(crate) fn start_damaged(&mut self, is_read: bool) {
        self.text = Text::Good;
        for lane in &mut self.lanes {
            let content = lane.running.map_or(Content::First, |running| running.content);
            lane.file.content = content;
            lane.reload();
            lane.uncertain |= lane.blocked;
            lane.leads = lane.leads.filter(|leads| !leads);
        }
        self.start();
        self.is_damaged = !is_read;
    }

    /// Users changed nothing but maps, and what they do is saved.
    pub(crate) fn is_simple(&self) -> bool {
        let is_up = self.lanes.iter().all(|lane| lane.is_up);
        is_up && self.disk == Disk::Good && !self.has_extra
    }

    /// A reload is under way, and a class is blocked, when the daemon is killed and started again.
    pub(crate) fn kill(&mut self, lane: usize, filter: Filter, class: u8) {
        self.lanes[lane].file = filter;
        self.lanes[lane].uncertain |= 1 << class;
        self.start();
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
            if lane.is_stuck() {
                add("program-stopped", "program filter".to_owned(), lane.works());
                // Until it is stopped.
                add("worker-stuck", "worker 0".to_owned(), false);
            }
            if lane.kind == Kind::Machine {
                // It went in the middle of something.
                add("port-broken", format!("port a{number}"), false);
            }
            if !lane.link.is_there() {
                add("port-open", format!("port a{number}"), true);
                // As long as one of its ports was never there.
                add("port-set", format!("port a{number}"), false);
            }
            if lane.link != Link::Up {
                add("port-link", format!("port a{number}"), lane.link == Link::Down && lane.is_up);
                add("port-link", format!("port b{number}"), false);
            }
            for (member, _) in lane.members.iter().enumerate().filter(|(_, is_up)| !**is_up) {
                add("port-link", format!("port m{number}{member}"), true);
            }
        }
        if self.disk != Disk::Good {
            add("state", "saving the state".to_owned(), self.is_unsaved);
        }
        if self.is_damaged {
            // The last byte of it is good for nothing.
            add("saved", String::new(), false);
        }
        // What its front ends did, while they are there.
        add("port-broken", "port vm".to_owned(), false);
        if self.log != Log::Read {
            add("log", "log".to_owned(), self.log == Log::Lost);
        }
        all
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Model { lanes, disk, text, is_unsaved, log, has_extra, is_damaged } = self;
        writeln!(
            f,
            "{disk:?} {text:?} {log:?} unsaved {is_unsaved} extra {has_extra} damaged {is_damaged}"
        )?;
        lanes.iter().enumerate().try_for_each(|(number, lane)| writeln!(f, "{number}: {lane:?}"))
    }
}
