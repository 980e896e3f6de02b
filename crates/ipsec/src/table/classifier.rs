//! Lookup of the policy for a packet.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::selector::{Flow, Key, Mask};
use super::{Policy, TableError};

/// All policies, grouped by the bits that their selectors compare. A lookup computes one hash for
/// each group, and gateways rarely have more than a few groups.
#[derive(Debug, Default)]
pub(super) struct Classifier {
    /// Groups, ordered by their lowest priority number.
    groups: Vec<Group>,
    count: usize,
}

#[derive(Debug)]
struct Group {
    mask: Mask,
    /// The lowest priority number of the group's policies.
    best: u32,
    /// Policies by key; policies with the same key are ordered by priority number.
    policies: HashMap<Key, Vec<Policy>, FxBuildHasher>,
}

impl Classifier {
    /// The number of policies.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a policy.
    pub(super) fn add(&mut self, policy: Policy) -> Result<(), TableError> {
        let mask = Mask::of(&policy.selector);
        let group = match self.groups.iter().position(|group| group.mask == mask) {
            Some(index) => &mut self.groups[index],
            None => {
                let policies = HashMap::default();
                self.groups.push(Group { mask, best: u32::MAX, policies });
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            }
        };
        let same = group.policies.entry(mask.key(&policy.selector)).or_default();
        let place = same.partition_point(|other| other.priority <= policy.priority);
        if place > 0 && same[place - 1].priority == policy.priority {
            return Err(TableError::PolicyExists(policy.priority));
        }
        same.insert(place, policy);
        group.best = group.best.min(policy.priority);
        self.count += 1;
        self.groups.sort_by_key(|group| group.best);
        Ok(())
    }

    /// Removes the policy with this selector and priority.
    pub(super) fn remove(&mut self, policy: &Policy) -> Option<Policy> {
        let mask = Mask::of(&policy.selector);
        let index = self.groups.iter().position(|group| group.mask == mask)?;
        let group = &mut self.groups[index];
        let key = mask.key(&policy.selector);
        let same = group.policies.get_mut(&key)?;
        let place = same.iter().position(|other| other.priority == policy.priority)?;
        let removed = same.remove(place);
        if same.is_empty() {
            group.policies.remove(&key);
        }
        if removed.priority == group.best {
            let all = group.policies.values().flatten();
            match all.map(|policy| policy.priority).min() {
                Some(best) => group.best = best,
                None => drop(self.groups.remove(index)),
            }
            self.groups.sort_by_key(|group| group.best);
        }
        self.count -= 1;
        Some(removed)
    }

    /// The policy for a packet: the matching one with the lowest priority number.
    #[inline]
    pub(super) fn find(&self, flow: &Flow) -> Option<&Policy> {
        let mut found: Option<&Policy> = None;
        for group in &self.groups {
            if found.is_some_and(|policy| policy.priority <= group.best) {
                break;
            }
            if group.mask.is_v6 != flow.is_v6 {
                continue;
            }
            let same = group.policies.get(&group.mask.apply(flow));
            if let Some(policy) = same.and_then(|same| same.first())
                && found.is_none_or(|found| policy.priority < found.priority)
            {
                found = Some(policy);
            }
        }
        found
    }

    /// All policies, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.groups.iter().flat_map(|group| group.policies.values().flatten())
    }
}
