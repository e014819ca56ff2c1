//! What counters are called in Redis.

use std::fmt::Write;

use blake2::Blake2sMac;
use blake2::digest::consts::{U16, U32};
use blake2::digest::{FixedOutput, Update};

use crate::config_error::ConfigError;
use crate::key::Key;
use crate::name;
use crate::question::{Demand, Owner};
use crate::quota::Algorithm;

/// Names counters: `[prefix:]tq1:{group}:axis:algorithm and period in µs:owner`.
///
/// The group stands in braces, so that all counters of a decision live in one slot of a cluster; a shard number can join
/// it there. Nothing of a caller's does: a caller is a digest of fixed length, or, where it may be read, escaped text.
/// `tq1` is the version of this format.
pub(super) struct Names {
    prefix: String,
    callers: Callers,
    digester: Digester,
}

type Digester = Blake2sMac<U16>;

/// How callers are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Callers {
    #[default]
    Digested,
    Readable,
}

impl Names {
    /// Names behind this prefix (`""`: none); digests under this secret, if there is one.
    pub(super) fn new(prefix: &str, secret: Option<&[u8]>, callers: Callers) -> Result<Self, ConfigError> {
        if !prefix.is_empty() {
            name::check("redis.prefix", prefix)?;
        }
        if secret.is_some_and(<[u8]>::is_empty) {
            let reason = "is empty, so that it hides nothing: use 16 random bytes or more, or none at all";
            return Err(ConfigError::new("redis.secret", reason));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        Ok(Self { prefix, callers, digester: digester(secret) })
    }

    /// The counter of a demand.
    pub(super) fn counter(&self, demand: &Demand<'_>) -> String {
        let terms = &demand.terms;
        let mut name = String::with_capacity(96);
        let algorithm = char::from(letter(terms.quota.algorithm()));
        let period = terms.quota.named_period();
        // Writing to a string does not fail.
        let _ = write!(name, "{}tq1:{{{}}}:{}:{algorithm}{period}:", self.prefix, terms.group(), terms.axis());
        match demand.owner {
            Owner::Everybody | Owner::Nobody => name.push_str("all"),
            Owner::Anonymous => name.push_str("anonymous"),
            Owner::Key(key) => self.write_caller(key, &mut name),
        }
        name
    }

    /// The record of a request: of its id, and of what it asks on these counters.
    pub(super) fn request(&self, id: &Key, demands: &[Demand<'_>], counters: &[String]) -> String {
        let mut digester = self.digester.clone();
        let mut part = |bytes: &[u8]| {
            digester.update(&(bytes.len() as u64).to_be_bytes());
            digester.update(bytes);
        };
        part(id.as_bytes());
        for (demand, counter) in demands.iter().zip(counters) {
            part(counter.as_bytes());
            part(&demand.terms.units.to_be_bytes());
        }
        let group = demands.first().map_or("", |demand| demand.terms.group());
        let mut name = format!("{}tq1:{{{group}}}:request:", self.prefix);
        write_digest(digester, &mut name);
        name
    }

    fn write_caller(&self, key: &Key, name: &mut String) {
        /// A readable caller that is longer is digested.
        const LONGEST_READABLE: usize = 64;
        let bytes = key.as_bytes();
        if self.callers == Callers::Readable && bytes.len() <= LONGEST_READABLE {
            name.push('=');
            for &byte in bytes {
                if byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte) {
                    name.push(char::from(byte));
                } else {
                    let _ = write!(name, "%{byte:02X}");
                }
            }
        } else {
            name.push('#');
            let mut digester = self.digester.clone();
            digester.update(bytes);
            write_digest(digester, name);
        }
    }
}

/// BLAKE2s with 128 bits: keyed by the secret, whatever its length, or plain.
fn digester(secret: Option<&[u8]>) -> Digester {
    let secret = secret.map(|secret| {
        let mut whole = Blake2sMac::<U32>::new_with_salt_and_personal(None, b"", b"tq1").expect("no key is too long");
        whole.update(secret);
        whole.finalize_fixed()
    });
    Digester::new_with_salt_and_personal(secret.as_deref(), b"", b"tq1").expect("a key of 32 bytes is not too long")
}

fn write_digest(digester: Digester, name: &mut String) {
    let digest: [u8; 16] = digester.finalize_fixed().into();
    let _ = write!(name, "{:032x}", u128::from_be_bytes(digest));
}

/// What stands for an algorithm in names and in the script.
pub(super) fn letter(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => b'f',
        Algorithm::AlignedWindow => b'a',
        Algorithm::SlidingWindow => b's',
        Algorithm::TokenBucket => b'b',
        Algorithm::Attempts => b'c',
        Algorithm::Failures => b'l',
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::name::Label;
    use crate::question::Terms;
    use crate::quota::{MINUTE, Quota};
    use crate::rate::Rate;

    fn names(prefix: &str, secret: Option<&[u8]>, callers: Callers) -> Names {
        Names::new(prefix, secret, callers).unwrap()
    }

    fn demand<'o>(quota: &str, owner: &'o Owner, units: u64) -> Demand<'o> {
        let label = Label::of("item", "account", true);
        let quota: Quota = quota.parse().unwrap();
        let terms = Terms { label, quota, units, retry_when_closed: MINUTE, call: 0 };
        Demand { terms, rate: Rate::of(label, quota), owner, watermark: None }
    }

    /// Names that stand in somebody's Redis: a change of any of them is a new version of the format.
    #[test]
    fn names_are_what_they_were() {
        let alice = Owner::Key(Key::from("alice"));
        let plain = names("", None, Callers::Digested);
        let name = |names: &Names, quota: &str, owner: &Owner| names.counter(&demand(quota, owner, 1));
        let golden = [
            (name(&plain, "fixed 30/h", &alice), "tq1:{item}:account:f3600000000:#30fcbb87a65e1aae1efc4c38c4d5b24c"),
            (name(&plain, "aligned 5/m", &Owner::Everybody), "tq1:{item}:account:a60000000:all"),
            (name(&plain, "1/s", &Owner::Anonymous), "tq1:{item}:account:s1000000:anonymous"),
            (
                name(&names("shop", Some(b"secret"), Callers::Digested), "bucket 10 5/s", &alice),
                "shop:tq1:{item}:account:b1000000:#0c72a266e72923b25d533d8bfd304b3c",
            ),
            (
                name(&names("", None, Callers::Readable), "1/s", &Owner::Key(Key::new(b"a{b}:c\xff@d.e"))),
                "tq1:{item}:account:s1000000:=a%7Bb%7D%3Ac%FF@d.e",
            ),
        ];
        for (name, expected) in golden {
            assert_eq!(name, expected);
        }
        let demands = [demand("1/s", &alice, 3)];
        assert_eq!(
            plain.request(&Key::from("r1"), &demands, &[plain.counter(&demands[0])]),
            "tq1:{item}:request:00dc781b644a00427252550f87fb650d"
        );
    }

    #[test]
    fn whatever_a_caller_is_called_nothing_else_changes() {
        for callers in [Callers::Digested, Callers::Readable] {
            let names = names("", None, callers);
            let mut seen = HashSet::new();
            let long = "x".repeat(10_000);
            for caller in ["", "all", "anonymous", "{", "}", "{}", "a:b", "a\n", "ä", "#0", "=a", "%41", "A", &long] {
                let owner = Owner::Key(Key::from(caller));
                let name = names.counter(&demand("1/s", &owner, 1));
                let caller = name.strip_prefix("tq1:{item}:account:s1000000:").unwrap();
                assert!(caller.len() <= 1 + 3 * 64 && !caller.contains(['{', '}', ':', '\n', ' ']), "{caller}");
                assert!(seen.insert(name));
            }
            assert!(seen.iter().all(|name| !name.ends_with(":all") && !name.ends_with(":anonymous")));
        }
    }

    #[test]
    fn a_request_is_named_by_all_that_it_asks() {
        let (alice, bob) = (Owner::Key(Key::from("alice")), Owner::Key(Key::from("bob")));
        let names = names("", None, Callers::Digested);
        let name = |id: &str, demands: &[Demand<'_>]| {
            let counters: Vec<_> = demands.iter().map(|demand| names.counter(demand)).collect();
            names.request(&Key::from(id), demands, &counters)
        };
        let seen = HashSet::from([
            name("1", &[demand("1/s", &alice, 1)]),
            name("2", &[demand("1/s", &alice, 1)]),
            name("1", &[demand("1/s", &bob, 1)]),
            name("1", &[demand("1/s", &alice, 2)]),
            name("1", &[demand("1/m", &alice, 1)]),
            name("1", &[demand("1/s", &alice, 1), demand("1/s", &bob, 1)]),
        ]);
        assert_eq!(seen.len(), 6);
        assert_eq!(name("1", &[demand("1/s", &alice, 1)]), name("1", &[demand("9/s", &alice, 1)]), "a new limit");
    }

    #[test]
    fn names_that_cannot_work_are_told() {
        let field = |prefix: &str, secret: Option<&[u8]>| {
            Names::new(prefix, secret, Callers::Digested).err().map(|error| error.field().to_owned())
        };
        assert_eq!(field("a{b", None).as_deref(), Some("redis.prefix.name"));
        assert_eq!(field("", Some(b"")).as_deref(), Some("redis.secret"));
        assert_eq!(field("shop.v2", Some(&[7; 1_000])), None);
    }
}
