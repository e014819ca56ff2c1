//! News of watermarks: each is told by one instance of all that see it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use redis::Value;

use super::client::Client;
use super::pool::runtime;
use super::script::{self, CLAIM, Found};
use crate::question::Terms;
use crate::watermark::{Crossing, Mark, Watermark};

/// The latest mark that this instance has seen of each counter: as many as there are shared axes.
#[derive(Default)]
pub(super) struct Episodes(Mutex<HashMap<String, u64>>);

/// A mark that this instance sees for the first time.
struct News {
    slot: u16,
    counter: String,
    watermark: Watermark,
    terms: Terms,
    found: Found,
    /// The latest mark that was seen before; 0: none.
    before: u64,
}

impl Episodes {
    /// Looks at a counter as a decision found it. What is new there is claimed, off the decision's way, and told if the
    /// claim is granted.
    pub(super) fn look(
        self: &Arc<Self>,
        client: &Arc<Client>,
        slot: u16,
        counter: &str,
        watermark: &Watermark,
        terms: Terms,
        found: Found,
    ) {
        if found.mark == 0 {
            return;
        }
        let before = {
            let mut seen = self.0.lock();
            match seen.get_mut(counter) {
                Some(latest) if *latest >= found.mark => return,
                Some(latest) => std::mem::replace(latest, found.mark),
                None => seen.insert(counter.to_owned(), found.mark).unwrap_or_default(),
            }
        };
        // A decision is awaited on a runtime.
        let Ok(runtime) = runtime() else { return };
        let news = News { slot, counter: counter.to_owned(), watermark: watermark.clone(), terms, found, before };
        let (client, episodes) = (Arc::clone(client), Arc::clone(self));
        runtime.spawn(async move {
            if news.claim_and_tell(&client).await.is_none() {
                // The next decision that sees it tries again.
                episodes.forget(&news);
            }
        });
    }

    fn forget(&self, news: &News) {
        let mut seen = self.0.lock();
        if let Some(latest) = seen.get_mut(&news.counter).filter(|latest| **latest == news.found.mark) {
            *latest = news.before;
        }
    }
}

impl News {
    /// `None` if the store did not answer.
    async fn claim_and_tell(&self, client: &Arc<Client>) -> Option<()> {
        let (mark, before) = (self.found.mark, self.before);
        // The end of an episode, which is news after its start, is seen as such, or by the start of the next one.
        let is_end = mark % 2 == 1;
        let ended = if is_end { Some(mark) } else { (before > 0 && before % 2 == 0).then_some(before + 1) };
        if let Some(ended) = ended.filter(|_| self.watermark.tells_ends())
            && self.claim(client, ended).await?
        {
            self.tell(Mark { above: true, episode: ended / 2 }, Mark { above: false, episode: ended / 2 });
        }
        if !is_end && self.claim(client, mark).await? {
            self.tell(Mark::default(), Mark { above: true, episode: mark / 2 });
        }
        Some(())
    }

    async fn claim(&self, client: &Arc<Client>, mark: u64) -> Option<bool> {
        let call = Arc::new(script::claim(&self.counter, mark, client.instance));
        let reply = client.call(self.slot, &CLAIM, call).await.ok()?;
        Some(reply == Value::Int(1))
    }

    fn tell(&self, before: Mark, after: Mark) {
        let Terms { label, quota, .. } = self.terms;
        let Found { used, reset, .. } = self.found;
        self.watermark.tell(&Crossing { label, limit: quota.limit(), used, time_left: reset, before, after });
    }
}
