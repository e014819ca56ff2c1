//! What an axis is, whichever kind it is.

use std::sync::Arc;
use std::time::Duration;

use crate::charge_error::ChargeError;
use crate::config_error::ConfigError;
use crate::counts;
use crate::failure::OnStoreFailure;
use crate::ledger::Ledger;
use crate::name::Label;
use crate::question::{Demand, Owner, Question, Terms};
use crate::quota::Quota;
use crate::rate::{LiveRate, Rate};
use crate::store::StoreError;
use crate::store::memory::Known;
use crate::throttle::Throttle;
use crate::verdict::Report;
use crate::watermark::Watermark;

/// What both kinds of handle share.
#[derive(Debug)]
pub(crate) struct AxisCore {
    pub(crate) label: &'static Label,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) rate: LiveRate,
    pub(crate) watermark: Option<Watermark>,
    pub(crate) retry_when_closed: Duration,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(super) refusals: Throttle,
}

impl AxisCore {
    /// The axis's own quota.
    pub(crate) fn quota(&self) -> Quota {
        self.rate.load().quota
    }

    #[inline(always)]
    pub(crate) fn rate(&self) -> Rate {
        self.rate.load()
    }

    /// This axis and its one counter, if everybody shares it.
    #[inline(always)]
    pub(crate) fn known(&self) -> Known<'_> {
        let rate = self.rate();
        Known { label: self.label, rate, counter: rate.digest, watermark: self.watermark.as_ref() }
    }

    /// What a decision demands of this axis.
    pub(crate) fn demand<'a>(&'a self, owner: &'a Owner, plan: Option<Quota>, units: u64) -> Demand<'a> {
        let rate = plan.map_or_else(|| self.rate(), |quota| Rate::of(self.label, quota));
        let terms =
            Terms { label: self.label, quota: rate.quota, units, retry_when_closed: self.retry_when_closed, call: 0 };
        Demand { terms, rate, owner, watermark: self.watermark.as_ref() }
    }

    /// A later quota, for this axis's next decisions.
    pub(super) fn set_quota<T>(&self, quota: T) -> Result<(), ConfigError>
    where
        T: TryInto<Quota, Error: Into<ConfigError>>,
    {
        let owner = self.label.field();
        let quota = quota.try_into().map_err(|error| error.into().within(&owner))?;
        let before = self.rate.swap(Rate::of(self.label, quota)).quota;
        if !before.shares_counter_with(&quota) {
            tracing::warn!(
                target: "tower_quota::config",
                group = self.label.group,
                axis = self.label.axis,
                %before,
                after = %quota,
                "another algorithm or period counts from zero"
            );
        }
        Ok(())
    }

    /// Whether this axis and others, which are counted there, can be decided in one step.
    pub(crate) fn must_be_counted_in(&self, ledger: &Arc<Ledger>) -> Result<(), ConfigError> {
        if Arc::ptr_eq(ledger, &self.ledger) {
            return Ok(());
        }
        let reason = format!(
            "belongs to another group than the axes before it, which are of the group {}: only axes that were built from \
             one Group value can be decided in one step",
            ledger.group
        );
        Err(ConfigError::new(self.label.field(), reason))
    }

    /// A charge is refused: at most one line a second, as for all refusals.
    pub(crate) fn note_refusal(&self, report: &Report) {
        counts::refusal(report);
        self.refusals.at_most_each_second(|held_back| {
            tracing::info!(
                target: "tower_quota::refusal",
                group = self.label.group,
                axis = self.label.axis,
                limit = report.limit(),
                used = report.used(),
                wait_ms = u64::try_from(report.wait().as_millis()).unwrap_or(u64::MAX),
                never_fits = report.never_fits(),
                held_back,
                "refused"
            );
        });
    }

    pub(crate) fn note_without_key(&self, error: &ChargeError) {
        counts::refusal_without_key(self.label);
        self.refusals.at_most_each_second(|held_back| {
            let (group, axis) = (self.label.group, self.label.axis);
            tracing::info!(target: "tower_quota::refusal", group, axis, held_back, "refused: {error}");
        });
    }

    pub(super) async fn reset(&self, owner: &Owner) -> Result<(), StoreError> {
        // The question ends here; the answer may come later.
        let answer = self.ledger.reset(&Question::new([self.demand(owner, None, 0)].into_iter()));
        answer.wait().await
    }
}
