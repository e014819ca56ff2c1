//! What went wrong, and what follows: one table for every reply code, and for replies that do not come.

use std::borrow::Cow;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::contract::{StoreError, StoreErrorKind};

/// Why a decision did not get its answer.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) rule: &'static Rule,
    pub(super) reason: Cow<'static, str>,
    /// The script has not run, not by an earlier sending either.
    pub(super) did_nothing: bool,
}

/// What a reply code, or its absence, means.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The code, as the server writes it, or a name of ours in lower case.
    pub(super) code: &'static str,
    /// Whether the script may have run.
    pub(super) executed: Executed,
    pub(super) then: Then,
    /// What the caller is told if nothing more is tried.
    kind: StoreErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executed {
    No,
    /// A decision without a request id is not sent again.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The script is sent whole, on the same connection.
    SendScript,
    /// The connection is given up, and the decision sent once more if that cannot charge it twice.
    Reconnect,
    /// In a cluster, it is sent to the node that is named; else the failure policy decides.
    Redirect,
    /// In a cluster, it is sent again once that may have changed; else the failure policy decides.
    LookAgain,
    /// The group's failure policy decides.
    Policy,
}

macro_rules! rules {
    ($($code:literal $executed:ident $then:ident $kind:ident)*) => {
        &[$(Rule { code: $code, executed: Executed::$executed, then: Then::$then, kind: StoreErrorKind::$kind }),*]
    };
}

/// Found by the first code that stands in an error's text, so that one inside a script error counts.
static RULES: &[Rule] = rules! {
    "NOSCRIPT"     No      SendScript  Unavailable
    "READONLY"     No      Reconnect   Unavailable
    "OOM"          No      Policy      StoreFull
    "CORRUPT"      No      Policy      Corrupt
    "WRONGTYPE"    No      Policy      Corrupt
    "LOADING"      No      LookAgain   Unavailable
    "BUSY"         No      Policy      Unavailable
    "MASTERDOWN"   No      LookAgain   Unavailable
    "CLUSTERDOWN"  No      LookAgain   Unavailable
    "TRYAGAIN"     No      LookAgain   Unavailable
    "MISCONF"      No      Policy      Unavailable
    "NOREPLICAS"   No      Policy      Unavailable
    "MOVED"        No      Redirect    Misconfigured
    "ASK"          No      Redirect    Misconfigured
    "CROSSSLOT"    No      Policy      Misconfigured
    "NOAUTH"       No      Reconnect   Misconfigured
    "WRONGPASS"    No      Policy      Misconfigured
    "NOPERM"       No      Policy      Misconfigured
};

/// Any other error reply.
static REFUSED: Rule = rule("error", Executed::Unknown, Then::Policy, StoreErrorKind::Misconfigured);
/// No connection could be made.
static UNREACHABLE: Rule = rule("unreachable", Executed::No, Then::LookAgain, StoreErrorKind::Unavailable);
/// Credentials that the server does not take, or a setting that the client does not.
static NOT_LET_IN: Rule = rule("not let in", Executed::No, Then::Policy, StoreErrorKind::Misconfigured);
/// The connection ended before the reply.
static CUT_OFF: Rule = rule("cut off", Executed::Unknown, Then::Reconnect, StoreErrorKind::Unavailable);
/// No reply within the deadline.
static TIMED_OUT: Rule = rule("timed out", Executed::Unknown, Then::Reconnect, StoreErrorKind::Unavailable);
/// A reply to something else: the connection has lost count.
static NOT_OURS: Rule = rule("not ours", Executed::Unknown, Then::Reconnect, StoreErrorKind::Unavailable);

const fn rule(code: &'static str, executed: Executed, then: Then, kind: StoreErrorKind) -> Rule {
    Rule { code, executed, then, kind }
}

impl Fault {
    fn new(rule: &'static Rule, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { rule, reason: reason.into(), did_nothing: rule.executed == Executed::No }
    }

    /// No connection could be made.
    pub(super) fn of_connecting(error: &RedisError) -> Self {
        let is_ours = matches!(error.kind(), ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported);
        let is_auth = error.kind() == ErrorKind::AuthenticationFailed
            || matches!(find_rule(&text_of(error)), Some(Rule { code: "NOAUTH" | "WRONGPASS" | "NOPERM", .. }));
        if is_auth {
            let reason = format!("the server does not take these credentials ({error}): check those in its address");
            return Self::new(&NOT_LET_IN, reason);
        }
        Self::new(if is_ours { &NOT_LET_IN } else { &UNREACHABLE }, format!("cannot connect: {error}"))
    }

    /// No connection was made, for this reason.
    pub(super) fn unreachable(reason: &'static str) -> Self {
        Self::new(&UNREACHABLE, reason)
    }

    /// Connecting panicked.
    pub(super) fn of_panic() -> Self {
        Self::new(&NOT_LET_IN, "connecting panicked: with TLS, install a rustls crypto provider before")
    }

    /// What a server that is part of a cluster says to a client that does not know.
    pub(super) fn told_of_cluster(self) -> Self {
        match self.rule.then {
            Then::Redirect => Self {
                reason: format!("{}: it is part of a cluster: use RedisStore::cluster", self.reason).into(),
                ..self
            },
            _ => self,
        }
    }

    /// The command failed.
    pub(super) fn of_command(error: &RedisError) -> Self {
        let is_reply = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if !is_reply {
            return Self::new(&CUT_OFF, format!("the connection ended before the answer came: {error}"));
        }
        let text = text_of(error);
        Self::new(find_rule(&text).unwrap_or(&REFUSED), text)
    }

    pub(super) fn timed_out() -> Self {
        Self::new(&TIMED_OUT, "no answer within the deadline")
    }

    pub(super) fn not_ours() -> Self {
        Self::new(&NOT_OURS, "the answer was to another question")
    }

    /// The node that a redirection names, as `host:port`.
    pub(super) fn node(&self) -> Option<String> {
        let mut words = self.reason.split_ascii_whitespace().skip_while(|word| *word != self.rule.code);
        let address = words.nth(2)?;
        // Without a host, it is at the same one: not known here, and looked up instead.
        (address.contains(':') && !address.starts_with([':', '?'])).then(|| address.to_owned())
    }

    /// Whether a redirection is for this call alone.
    pub(super) fn is_for_one_call(&self) -> bool {
        self.rule.code == "ASK"
    }

    /// Whether it may be sent again without being charged twice: once, and to another connection.
    pub(super) fn may_repeat(&self, has_request_id: bool) -> bool {
        self.rule.then == Then::Reconnect && (self.rule.executed == Executed::No || has_request_id)
    }

    /// This fault, of a call that was sent before with another outcome.
    pub(super) fn after(self, did_nothing: bool) -> Self {
        Self { did_nothing: self.did_nothing && did_nothing, ..self }
    }

    /// Whether it tells that the server is in trouble, not just one counter.
    pub(super) fn is_the_servers(&self) -> bool {
        !matches!(self.rule.kind, StoreErrorKind::StoreFull | StoreErrorKind::Corrupt)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let error = Self::new(fault.rule.kind).because(fault.reason);
        if fault.did_nothing { error.nothing_done() } else { error }
    }
}

/// Code and details as the server wrote them.
fn text_of(error: &RedisError) -> String {
    let code = match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) => "ERR",
        _ => error.code().unwrap_or_default(),
    };
    format!("{code} {}", error.detail().unwrap_or_default())
}

fn find_rule(text: &str) -> Option<&'static Rule> {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.find_map(|word| RULES.iter().find(|rule| rule.code == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> Option<&'static str> {
        find_rule(text).map(|rule| rule.code)
    }

    #[test]
    fn a_code_is_found_wherever_a_server_puts_it() {
        for (text, code) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Some("NOSCRIPT")),
            ("READONLY You can't write against a read only replica.", Some("READONLY")),
            (
                "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:5: \
                 @user_script: 5: -READONLY You can't write against a read only replica. ",
                Some("READONLY"),
            ),
            ("READONLY You can't write. script: 8f4ee7, on @user_script:49.", Some("READONLY")),
            ("OOM command not allowed when used memory > 'maxmemory'.", Some("OOM")),
            ("ERR Error running script: -OOM command not allowed", Some("OOM")),
            ("LOADING Redis is loading the dataset in memory", Some("LOADING")),
            ("BUSY Redis is busy running a script.", Some("BUSY")),
            ("MOVED 3999 127.0.0.1:6381", Some("MOVED")),
            ("CROSSSLOT Keys in request don't hash to the same slot", Some("CROSSSLOT")),
            ("CORRUPT 2 what stands at the key of this demand is no counter", Some("CORRUPT")),
            ("ERR unknown command 'EVALSHA'", None),
            ("ERR the disk is BUSYISH", None),
            ("", None),
        ] {
            assert_eq!(code_of(text), code, "{text}");
        }
    }

    #[test]
    fn what_may_have_run_is_repeated_only_with_a_request_id() {
        let faults = [Fault::timed_out(), Fault::not_ours(), Fault::new(&CUT_OFF, "")];
        for fault in faults {
            assert!(!fault.may_repeat(false) && fault.may_repeat(true), "{fault:?}");
        }
        assert!(Fault::new(find_rule("READONLY").unwrap(), "").may_repeat(false));
        for rule in RULES.iter().filter(|rule| !matches!(rule.then, Then::Reconnect | Then::SendScript)) {
            assert!(!Fault::new(rule, "").may_repeat(true), "{rule:?}");
        }
    }

    /// The documentation has this table, row by row.
    #[test]
    fn the_documented_table_is_this_one() {
        let documented = include_str!("store.md");
        let others = [&REFUSED, &UNREACHABLE, &NOT_LET_IN, &CUT_OFF, &TIMED_OUT, &NOT_OURS];
        for rule in RULES.iter().chain(others) {
            let executed = match rule.executed {
                Executed::No => "no",
                Executed::Unknown => "unknown",
            };
            let then = match (rule.then, rule.executed) {
                (Then::SendScript, _) => "send the script whole, once",
                (Then::Reconnect, Executed::No) => "reconnect, once more",
                (Then::Reconnect, Executed::Unknown) => "reconnect; once more only with a request id",
                (Then::Redirect, _) => "in a cluster, send it to that node; else policy",
                (Then::LookAgain, _) => "in a cluster, look who has the slot, and once more; else policy",
                (Then::Policy, _) => "policy",
            };
            let row = format!("| {executed} | {then} | `{:?}` |", rule.kind);
            let is_there = documented.lines().any(|line| line.contains(rule.code) && line.ends_with(&row));
            assert!(is_there, "{rule:?}: {row}");
        }
    }
}
