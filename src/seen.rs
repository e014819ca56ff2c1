//! A subject as the axes of a meter see it.

use smallvec::SmallVec;

use crate::question::Owner;
use crate::quota::Quota;

/// Whose counters a subject is charged on, axis by axis.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    owners: SmallVec<[Owner; 4]>,
    /// Quotas that are not the axis's own, by the number of the axis.
    plans: SmallVec<[(usize, Quota); 1]>,
}

impl Seen {
    /// A subject that no axis has seen yet, and so none counts.
    pub(crate) fn new() -> Self {
        Self { owners: SmallVec::new(), plans: SmallVec::new() }
    }

    /// One for each axis that has seen the subject.
    pub(crate) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// The quota on this axis, unless it is the axis's own.
    pub(crate) fn plan(&self, index: usize) -> Option<Quota> {
        self.plans.iter().find(|(of, _)| *of == index).map(|(_, quota)| *quota)
    }

    /// This subject, judged by these quotas, axis by axis, where it has none of its own, whatever becomes of theirs.
    pub(crate) fn judged_by(mut self, quotas: impl Iterator<Item = Quota>) -> Self {
        for (index, quota) in quotas.enumerate() {
            if self.plan(index).is_none() {
                self.plans.push((index, quota));
            }
        }
        self
    }

    /// The owner on the next axis, to be filled in. (In place: an owner is large, and this is on every request's way.)
    pub(crate) fn next(&mut self) -> &mut Owner {
        let index = self.owners.len();
        self.owners.push(Owner::Nobody);
        &mut self.owners[index]
    }

    /// The owner on the axis that was seen last.
    pub(crate) fn set_owner(&mut self, owner: Owner) {
        if let Some(last) = self.owners.last_mut() {
            *last = owner;
        }
    }

    /// The quota on the axis that was seen last.
    pub(crate) fn judge_by(&mut self, plan: Quota) {
        self.plans.push((self.owners.len() - 1, plan));
    }
}
