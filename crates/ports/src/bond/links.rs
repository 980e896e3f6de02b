//! The link monitor: when a link that came is used, and one that went is given up.
//!
//! `bond_miimon_inspect`, without I/O: [`Monitor::tick`] is told what each link looks like.

use std::time::Duration;

/// A link as the monitor has it (`BOND_LINK_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mii {
    /// It works.
    #[default]
    Up,
    /// It went, and may come back within `downdelay`.
    Fail,
    /// It does not work.
    Down,
    /// It came, and must stay for `updelay`.
    Back,
}

impl Mii {
    /// Its name in `/proc/net/bonding`.
    pub fn name(self) -> &'static str {
        match self {
            Mii::Up => "up",
            Mii::Fail => "going down",
            Mii::Down => "down",
            Mii::Back => "going back",
        }
    }
}

/// One member's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Monitor {
    /// Its assumed state.
    pub state: Mii,
    /// Ticks left in [`Mii::Fail`] or [`Mii::Back`].
    pub delay: u32,
    /// How often it was given up.
    pub failures: u32,
}

impl Monitor {
    /// Of a link that was just seen for the first time: it is believed at once.
    pub fn new(is_up: bool) -> Monitor {
        let state = if is_up { Mii::Up } else { Mii::Down };
        Monitor { state, ..Monitor::default() }
    }

    /// A look at the link. `delays` are `updelay` and `downdelay` in ticks.
    ///
    /// While `hurries`, because nothing else can be used, a link that came need not prove itself.
    /// It ends as soon as a link is up, which is then no longer the only one.
    pub fn tick(&mut self, is_up: bool, (updelay, downdelay): (u32, u32), hurries: &mut bool) {
        match (self.state, is_up) {
            (Mii::Up, false) => (self.state, self.delay) = (Mii::Fail, downdelay),
            (Mii::Fail, true) => self.state = Mii::Up,
            (Mii::Down, true) => (self.state, self.delay) = (Mii::Back, updelay),
            (Mii::Back, false) => self.state = Mii::Down,
            _ => {}
        }
        if self.state == Mii::Back && *hurries {
            self.delay = 0;
        }
        match self.state {
            Mii::Fail if self.delay == 0 => {
                self.state = Mii::Down;
                self.failures += 1;
            }
            Mii::Back if self.delay == 0 => {
                self.state = Mii::Up;
                *hurries = false;
            }
            Mii::Fail | Mii::Back => self.delay -= 1,
            Mii::Up | Mii::Down => {}
        }
    }
}

/// A delay in ticks of a monitor.
pub fn ticks(delay: Duration, period: Duration) -> u32 {
    (delay.as_millis() / period.as_millis().max(1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_counted_in_ticks() {
        let mut link = Monitor::new(true);
        let delays = (2, 1);
        let mut see = |is_up| {
            link.tick(is_up, delays, &mut false);
            link.state
        };
        assert_eq!([see(true), see(false), see(true)], [Mii::Up, Mii::Fail, Mii::Up]);
        assert_eq!([see(false), see(false), see(false)], [Mii::Fail, Mii::Down, Mii::Down]);
        assert_eq!([see(true), see(false)], [Mii::Back, Mii::Down]);
        assert_eq!([see(true), see(true), see(true)], [Mii::Back, Mii::Back, Mii::Up]);
        assert_eq!(link.failures, 1);
        link.tick(false, (0, 0), &mut false);
        assert_eq!((link.state, link.failures), (Mii::Down, 2), "at once without delays");
    }

    /// `ignore_updelay` of `bond_miimon_inspect`.
    #[test]
    fn only_the_first_link_need_not_prove_itself() {
        let mut links = [Monitor::new(false), Monitor::new(false)];
        let mut hurries = true;
        links.iter_mut().for_each(|link| link.tick(true, (5, 0), &mut hurries));
        assert_eq!(links.map(|link| link.state), [Mii::Up, Mii::Back]);
        assert!(!hurries);
        // When the first one goes while the second still waits, that one is taken at once.
        let mut hurries = true;
        links[1].tick(true, (5, 0), &mut hurries);
        assert_eq!(links[1].state, Mii::Up);
    }
}
