//! The link monitor: decides when a link that came up is used, and when one that went down is given
//! up.
//!
//! It implements `bond_miimon_inspect` without I/O: [`Monitor::tick`] is given the carrier of each
//! link.

use std::time::Duration;

/// The monitor's state of a link (`BOND_LINK_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mii {
    /// The link is up.
    #[default]
    Up,
    /// The link went down, and may come back within `downdelay`.
    Fail,
    /// The link is down.
    Down,
    /// The link came up, and must stay up for `updelay`.
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
    /// Number of times the link was given up.
    pub failures: u32,
}

impl Monitor {
    /// A monitor of a new link, whose first state takes effect without a delay.
    pub fn new(is_up: bool) -> Monitor {
        let state = if is_up { Mii::Up } else { Mii::Down };
        Monitor { state, ..Monitor::default() }
    }

    /// Updates the state by the link's carrier. `delays` are `updelay` and `downdelay` in ticks.
    ///
    /// While `hurries`, because no other member is usable, a link that came up is used without
    /// `updelay`. `hurries` is cleared as soon as a link is up.
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
