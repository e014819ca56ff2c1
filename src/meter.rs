//! Axes of one group, asked about a subject.

use std::fmt;
use std::sync::Arc;

use crate::charge::{Asked, Charge};
use crate::charge_error::ChargeError;
use crate::config_error::ConfigError;
use crate::cost::Cost;
use crate::measure::Measure;
use crate::panel::Panel;
use crate::quota::Quota;
use crate::reservation::Reserve;
use crate::seen::Seen;
use crate::store::memory::Known;
use crate::verdict::Verdict;

/// Axes of one group, in the order in which they are judged, asked about a subject `Q`: a job, a mailbox, the parts of a
/// request.
///
/// All axes are decided and charged in one atomic step: a refusal charges none of them. The first axis that refuses, in
/// the order written, gives the answer; the wait is the longest of all that refuse.
///
/// A meter is what a layer asks, and what code without a layer asks directly:
///
/// ```
/// use tower_quota_core::{ChargeError, Group, Key, MINUTE, MemoryStore, Meter, Quota};
///
/// let gmail = Group::new("gmail", MemoryStore::new())?;
/// let user = gmail.per_key("user", Quota::token_bucket(12_000, 12_000, MINUTE)).build()?;
/// let project = gmail.shared("project", Quota::token_bucket(1_200_000, 1_200_000, MINUTE)).build()?;
/// let meter = Meter::new(user.by(|mailbox: &str| Key::from(mailbox))).and(&project)?;
///
/// # futures_lite(async {
/// match meter.charge("alice@example.org", 40).await {
///     Ok(_) => { /* fetch the message */ }
///     Err(ChargeError::Refused(verdict)) => println!("come back in {:?}", verdict.wait()),
///     Err(error) => println!("{error}"),
/// }
/// # });
/// # fn futures_lite(future: impl Future) {
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     assert!(std::pin::pin!(future).poll(&mut context).is_ready());
/// # }
/// # Ok::<(), tower_quota_core::ConfigError>(())
/// ```
pub struct Meter<Q: ?Sized> {
    measures: Arc<[Measure<Q>]>,
    panel: Arc<Panel>,
}

impl<Q: ?Sized> Meter<Q> {
    /// A meter of one axis.
    pub fn new(first: impl Into<Measure<Q>>) -> Self {
        Self::of_measures([first.into()].into())
    }

    /// This meter, and one more axis, judged after those before it.
    ///
    /// # Errors
    ///
    /// `group.axis` of the axis if the meter has it already, or if it belongs to another group: only axes of one group
    /// can be decided in one step.
    pub fn and(self, next: impl Into<Measure<Q>>) -> Result<Self, ConfigError> {
        let next = next.into();
        let axis = &next.axis;
        axis.must_be_counted_in(self.panel.ledger())?;
        if self.panel.has(axis.label) {
            return Err(ConfigError::new(axis.label.field(), "stands twice in one decision: leave one out"));
        }
        Ok(Self::of_measures(self.measures.iter().cloned().chain([next]).collect()))
    }

    fn of_measures(measures: Arc<[Measure<Q>]>) -> Self {
        let panel = Panel::new(measures.iter().map(|measure| Arc::clone(&measure.axis)).collect());
        Self { measures, panel: Arc::new(panel) }
    }

    /// Charges a subject on every axis, or on none, once this is awaited.
    pub fn charge(&self, subject: &Q, cost: impl Into<Cost>) -> Charge<'_> {
        Charge::new(&self.panel, self.see(subject), cost.into())
    }

    /// Charges a subject on every axis, or on none, so that the charge can be corrected later. It goes by the quotas as they
    /// are now, even if it [waits](Reserve::wait_up_to).
    ///
    /// An id of the request is not offered with it: a request that comes again would settle its one charge twice.
    pub fn reserve(&self, subject: &Q, cost: impl Into<Cost>) -> Reserve<'_> {
        Reserve::new(Charge::new(
            &self.panel,
            self.see(subject).map(|seen| seen.judged_by(self.panel.quotas())),
            cost.into(),
        ))
    }

    /// Charges a subject on every axis, or on none, now: for code that is not async, or that goes on by itself while the
    /// store is asked. With a store that needs no I/O, the outcome is there at once.
    #[inline]
    pub fn ask(&self, subject: &Q, cost: impl Into<Cost>) -> Asked {
        let cost = cost.into();
        match self.charge_known(subject, &cost) {
            Some(verdict) => Asked::Answered(Ok(verdict)),
            None => self.ask_store(subject, cost),
        }
    }

    /// `ask`, by way of a question. Apart, so that the quick way stays small.
    #[inline(never)]
    fn ask_store(&self, subject: &Q, cost: Cost) -> Asked {
        self.charge(subject, cost).ask()
    }

    /// What `ask` comes to where most services are most of the time: one axis per key and a shared one, counted in
    /// memory, and nothing special about the subject. `None`, without a change, if anything is special.
    #[inline(always)]
    fn charge_known(&self, subject: &Q, cost: &Cost) -> Option<Verdict> {
        let [account, capacity] = &*self.measures else { return None };
        let memory = self.panel.ledger().memory()?;
        let units = cost.everywhere()?;
        let (Some(read), None, None, None) = (&account.key, &account.plan, &capacity.key, &capacity.plan) else {
            return None;
        };
        let rate = account.axis.rate();
        let mut counter = None;
        read(subject, &mut |key| counter = Some(rate.counter_of(key)));
        let account = Known { label: account.axis.label, rate, counter: counter?, watermark: None };
        memory.charge_known(&account, || capacity.axis.known(), units)
    }

    /// The axes in the order in which they are judged: their names, and their own quotas as of now.
    pub fn quotas(&self) -> impl Iterator<Item = (&'static str, Quota)> {
        self.measures.iter().map(|measure| (measure.axis.label.axis, measure.axis.quota()))
    }

    /// This meter with a subject read into it, for charges that are made when the subject is gone.
    ///
    /// # Errors
    ///
    /// [`ChargeError::MissingKey`] and [`ChargeError::MalformedKey`], as for a charge.
    pub fn of(&self, subject: &Q) -> Result<BoundMeter, ChargeError> {
        Ok(BoundMeter { panel: Arc::clone(&self.panel), seen: self.see(subject)? })
    }

    /// A bound meter that counts nothing, for subjects that are exempt: every charge is admitted, and has no reports.
    pub fn of_nobody(&self) -> BoundMeter {
        BoundMeter { panel: Arc::clone(&self.panel), seen: Seen::new() }
    }

    /// The axes, whatever the subject is.
    #[cfg(feature = "waiting")]
    pub(crate) fn panel(&self) -> &Arc<Panel> {
        &self.panel
    }

    pub(crate) fn see(&self, subject: &Q) -> Result<Seen, ChargeError> {
        let mut seen = Seen::new();
        for measure in &*self.measures {
            measure.see(subject, &mut seen)?;
        }
        Ok(seen)
    }
}

/// A [`Meter`] with a subject read into it: `'static` and cheap to clone, for a charge whose cost is known later.
#[derive(Clone, Debug)]
pub struct BoundMeter {
    panel: Arc<Panel>,
    seen: Seen,
}

impl BoundMeter {
    /// Charges the subject on every axis, or on none. As [`Meter::charge`].
    pub fn charge(&self, cost: impl Into<Cost>) -> Charge<'_> {
        Charge::new(&self.panel, Ok(self.seen.clone()), cost.into())
    }

    /// Charges the subject on every axis, or on none, so that the charge can be corrected later. As [`Meter::reserve`].
    pub fn reserve(&self, cost: impl Into<Cost>) -> Reserve<'_> {
        let seen = self.seen.clone().judged_by(self.panel.quotas());
        Reserve::new(Charge::new(&self.panel, Ok(seen), cost.into()))
    }

    /// Where the subject stands on every axis, without charging anything.
    ///
    /// # Errors
    ///
    /// The store's, whatever the failure policy is.
    pub async fn peek(&self) -> Result<Verdict, ChargeError> {
        let answer = self.charge(0_u64).answer()?;
        answer.wait().await.map_err(ChargeError::Store)
    }
}

// By hand: a subject need not be `Clone`.
impl<Q: ?Sized> Clone for Meter<Q> {
    fn clone(&self) -> Self {
        Self { measures: Arc::clone(&self.measures), panel: Arc::clone(&self.panel) }
    }
}

impl<Q: ?Sized> fmt::Debug for Meter<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measures, panel: _ } = self;
        f.debug_struct("Meter").field("measures", measures).finish_non_exhaustive()
    }
}
