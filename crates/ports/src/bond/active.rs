//! Choice of the active member of an active-backup bond (`bond_find_best_slave`).

use towpath_engine::port::Speed;

use super::links::Mii;
use super::settings::PrimaryReselect;

/// Relevant properties of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its link.
    pub link: Mii,
    /// Ticks until its link is used, in state [`Mii::Back`].
    pub delay: u32,
    /// Its preference.
    pub prio: i32,
    /// Its speed, for comparison.
    pub speed: Speed,
}

/// The index of the best of `members`, given the indexes of the active and the primary member.
/// `updelay` is in ticks.
pub fn choose(
    members: &[Candidate],
    current: Option<usize>,
    primary: Option<usize>,
    reselect: PrimaryReselect,
    updelay: u32,
) -> Option<usize> {
    let is_up = |place: &usize| members.get(*place).is_some_and(|it| it.link == Mii::Up);
    let current = current.filter(is_up);
    // The first of equals, although `max_by_key` returns the last.
    let up = (0..members.len()).filter(is_up).rev();
    let preferred = primary.filter(is_up).or_else(|| up.max_by_key(|&it| members[it].prio));
    match (preferred, current) {
        (None, _) => soonest(members, updelay),
        (Some(preferred), None) => Some(preferred),
        (Some(preferred), Some(current)) => match reselect {
            PrimaryReselect::Always => Some(preferred),
            PrimaryReselect::Better if members[preferred].speed > members[current].speed => {
                Some(preferred)
            }
            PrimaryReselect::Better | PrimaryReselect::Failure => Some(current),
        },
    }
}

/// If no link is up, the member whose link will be up first; its link must have been back for a
/// tick.
fn soonest(members: &[Candidate], updelay: u32) -> Option<usize> {
    let is_back =
        |place: &usize| members[*place].link == Mii::Back && members[*place].delay < updelay;
    (0..members.len()).filter(is_back).min_by_key(|&place| members[place].delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(link: Mii, prio: i32) -> Candidate {
        Candidate { link, delay: 3, prio, speed: Speed::default() }
    }

    #[test]
    fn preference_primary_and_reselection() {
        use PrimaryReselect::{Always, Better, Failure};
        let up = [member(Mii::Up, 0), member(Mii::Up, 0), member(Mii::Up, 5)];
        assert_eq!(choose(&up, None, None, Always, 5), Some(2), "the highest preference");
        assert_eq!(choose(&up[..2], None, None, Always, 5), Some(0), "of equals the first");
        assert_eq!(choose(&up, Some(0), Some(1), Always, 5), Some(1));
        assert_eq!(choose(&up, Some(0), Some(1), Failure, 5), Some(0));
        assert_eq!(choose(&up, Some(0), Some(1), Better, 5), Some(0), "not faster");
        let quick = Speed { mbps: 25_000, is_full_duplex: true };
        let faster = [up[0], Candidate { speed: quick, ..up[1] }];
        assert_eq!(choose(&faster, Some(0), Some(1), Better, 5), Some(1));
        let half = Speed { is_full_duplex: false, ..Speed::default() };
        let slower = [Candidate { speed: half, ..up[0] }, up[1]];
        assert_eq!(choose(&slower, Some(0), Some(1), Better, 5), Some(1), "full duplex");
        let failed = [member(Mii::Down, 0), member(Mii::Up, 0)];
        assert_eq!(choose(&failed, Some(0), Some(0), Failure, 5), Some(1));
    }

    #[test]
    fn without_a_link_the_one_that_comes_first() {
        let soon = Candidate { delay: 1, ..member(Mii::Back, 0) };
        let members = [member(Mii::Down, 9), member(Mii::Back, 0), soon];
        assert_eq!(choose(&members, None, None, PrimaryReselect::Always, 5), Some(2));
        let none = choose(&members, None, None, PrimaryReselect::Always, 1);
        assert_eq!(none, None, "all of the delay is still to come");
        assert_eq!(choose(&members[..1], None, None, PrimaryReselect::Always, 5), None);
    }
}
