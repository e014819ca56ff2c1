//! How a subject is found on an axis.

use std::fmt;
use std::sync::Arc;

use crate::axis::{AxisCore, PerKeyAxis, SharedAxis};
use crate::charge_error::ChargeError;
use crate::key::{Key, KeyRead};
use crate::question::Owner;
use crate::quota::Quota;
use crate::seen::Seen;

/// Lends the bytes of the key, if there is one: on every request's way, and too large to be moved around.
type ReadKey<Q> = Arc<dyn Fn(&Q, &mut dyn FnMut(&[u8])) -> Sight + Send + Sync>;
type ReadPlan<Q> = Arc<dyn Fn(&Q) -> Option<Quota> + Send + Sync>;

/// One axis, and how a subject `Q` (a job, a mailbox, the parts of a request) is found on it.
///
/// [`PerKeyAxis::by`](crate::PerKeyAxis::by) makes one; a [`&SharedAxis`](crate::SharedAxis) is one for every subject.
pub struct Measure<Q: ?Sized> {
    pub(crate) axis: Arc<AxisCore>,
    /// `None`: everybody shares the axis.
    pub(crate) key: Option<ReadKey<Q>>,
    pub(crate) plan: Option<ReadPlan<Q>>,
    missing: MissingKey,
}

/// What happens to a subject that does not say who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is turned away, as a request that is not complete.
    #[default]
    Refuse,
    /// All such subjects share one counter, which has a quota of its own.
    Anonymous(Quota),
    /// The axis does not count it; the other axes of the decision do.
    Uncounted,
}

/// What came of looking for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Found,
    Missing,
    Malformed,
}

impl<Q: ?Sized> Measure<Q> {
    pub(crate) fn new(axis: Arc<AxisCore>, key: Option<ReadKey<Q>>) -> Self {
        Self { axis, key, plan: None, missing: MissingKey::default() }
    }

    /// Judges a subject by the quota that `plan` chooses for it, such as that of a paid plan; `None` is the axis's own.
    ///
    /// Quotas of one algorithm and period share the subject's counter, so a change of plan keeps what is used.
    pub fn quota_by(mut self, plan: impl Fn(&Q) -> Option<Quota> + Send + Sync + 'static) -> Self {
        self.plan = Some(Arc::new(plan));
        self
    }

    /// What happens to a subject without a key: it is refused by default.
    pub fn missing_key(mut self, policy: MissingKey) -> Self {
        self.missing = policy;
        self
    }

    /// Finds out whose counter of this axis the subject is charged on.
    pub(crate) fn see(&self, subject: &Q, seen: &mut Seen) -> Result<(), ChargeError> {
        let owner = seen.next();
        match &self.key {
            None => *owner = Owner::Everybody,
            Some(read) => match read(subject, &mut |key| *owner = Owner::Key(Key::new(key))) {
                Sight::Found => {}
                sight => return self.see_no_key(sight, seen),
            },
        }
        if let Some(plan) = self.plan.as_ref().and_then(|plan| plan(subject)) {
            seen.judge_by(plan);
        }
        Ok(())
    }

    fn see_no_key(&self, sight: Sight, seen: &mut Seen) -> Result<(), ChargeError> {
        let axis = self.axis.label.axis;
        let error = match (sight, self.missing) {
            (Sight::Malformed, _) => ChargeError::MalformedKey { axis },
            (_, MissingKey::Refuse) => ChargeError::MissingKey { axis },
            (_, MissingKey::Anonymous(quota)) => {
                seen.judge_by(quota);
                seen.set_owner(Owner::Anonymous);
                return Ok(());
            }
            (_, MissingKey::Uncounted) => return Ok(()),
        };
        self.axis.note_without_key(&error);
        Err(error)
    }
}

impl<K: AsRef<[u8]>> KeyRead<K> {
    #[inline]
    fn lend(&self, to: &mut dyn FnMut(&[u8])) -> Sight {
        match self {
            Self::Found(key) => {
                to(key.as_ref());
                Sight::Found
            }
            Self::Missing => Sight::Missing,
            Self::Malformed => Sight::Malformed,
        }
    }
}

impl PerKeyAxis {
    /// This axis, counted under what `key` reads from a subject: a [`Key`], an `Option<Key>`, or a [`KeyRead`] where
    /// nonsense must be told from nothing. A key whose bytes the subject holds need not be made of them:
    /// [`by_bytes`](Self::by_bytes).
    ///
    /// The key is a function of the subject alone: it may be read more than once. A panic of `key` is the caller's;
    /// nothing has been charged by then.
    pub fn by<Q, R>(&self, key: impl Fn(&Q) -> R + Send + Sync + 'static) -> Measure<Q>
    where
        Q: ?Sized,
        R: Into<KeyRead>,
    {
        self.lent(move |subject: &Q, lend| key(subject).into().lend(lend))
    }

    /// This axis, counted under bytes that a subject holds: as [`by`](Self::by) of the same bytes, without copying them.
    ///
    /// ```
    /// use tower_quota_core::{Group, HOUR, KeyRead, MemoryStore, Meter, Quota};
    ///
    /// let mail = Group::new("mail", MemoryStore::new())?;
    /// let mailbox = mail.per_key("mailbox", Quota::fixed_window(100, HOUR)).build()?;
    /// let meter: Meter<str> = Meter::new(mailbox.by_bytes(|name: &str| KeyRead::Found(name.as_bytes())));
    /// # let _ = meter;
    /// # Ok::<(), tower_quota_core::ConfigError>(())
    /// ```
    pub fn by_bytes<Q>(&self, key: impl Fn(&Q) -> KeyRead<&[u8]> + Send + Sync + 'static) -> Measure<Q>
    where
        Q: ?Sized,
    {
        self.lent(move |subject: &Q, lend| key(subject).lend(lend))
    }

    fn lent<Q: ?Sized>(&self, read: impl Fn(&Q, &mut dyn FnMut(&[u8])) -> Sight + Send + Sync + 'static) -> Measure<Q> {
        Measure::new(Arc::clone(self.core()), Some(Arc::new(read)))
    }
}

impl<Q: ?Sized> From<&SharedAxis> for Measure<Q> {
    fn from(axis: &SharedAxis) -> Self {
        Self::new(Arc::clone(axis.core()), None)
    }
}

// By hand: a subject need not be `Clone`.
impl<Q: ?Sized> Clone for Measure<Q> {
    fn clone(&self) -> Self {
        Self { axis: Arc::clone(&self.axis), key: self.key.clone(), plan: self.plan.clone(), missing: self.missing }
    }
}

impl<Q: ?Sized> fmt::Debug for Measure<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, key: _, plan, missing } = self;
        f.debug_struct("Measure")
            .field("axis", axis)
            .field("has_plans", &plan.is_some())
            .field("missing", missing)
            .finish_non_exhaustive()
    }
}
