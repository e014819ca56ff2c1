//! Which server a decision goes to.

use std::sync::Arc;

use super::cluster::{self, Cluster, Detour};
use super::fault::Fault;
use super::pool::{Lane, Pool};

/// The one server there is, or the one of a cluster that has the slot.
#[cfg_attr(not(feature = "redis-cluster"), allow(dead_code, reason = "a cluster is a feature"))]
pub(super) enum Route {
    One(Pool),
    Cluster(Arc<Cluster>),
}

impl Route {
    /// A slot of this group: where there are none, one for all.
    pub(super) fn slot_of(&self, group: &str) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => cluster::slot_of(group),
        }
    }

    /// A connection to the server that has the slot.
    pub(super) async fn lane(&self, slot: u16) -> Result<Arc<Lane>, Fault> {
        match self {
            Self::One(pool) => pool.lane().await,
            Self::Cluster(cluster) => cluster.owner(slot).await?.lane().await,
        }
    }

    /// What a fault leaves to try.
    pub(super) async fn detour(&self, slot: u16, fault: &Fault) -> Detour {
        match self {
            Self::One(_) => Detour::None,
            Self::Cluster(cluster) => cluster.detour(slot, fault).await,
        }
    }

    /// What is told of a fault after which nothing is left to try.
    pub(super) fn last_word(&self, fault: Fault) -> Fault {
        match self {
            Self::One(_) => fault.told_of_cluster(),
            Self::Cluster(_) => fault,
        }
    }

    /// Gives up a connection, if it is still in use.
    pub(super) fn give_up(&self, lane: &Arc<Lane>) {
        self.each_pool(|pool| pool.give_up(lane));
    }

    /// Gives up all connections to the server that has the slot.
    pub(super) fn give_up_all(&self, slot: u16) {
        match self {
            Self::One(pool) => pool.give_up_all(),
            Self::Cluster(cluster) => cluster.give_up_owner(slot),
        }
    }

    fn each_pool(&self, mut give_up: impl FnMut(&Pool)) {
        match self {
            Self::One(pool) => give_up(pool),
            Self::Cluster(cluster) => cluster.each_pool(give_up),
        }
    }
}
