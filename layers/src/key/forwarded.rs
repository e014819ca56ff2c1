//! The header `Forwarded` (RFC 7239).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::is_port;

/// The elements of one line, each as the address that its `for` tells, or `None` if it tells none: an obfuscated or unknown
/// node, or no `for` at all. `None` for a line that does not follow the grammar.
pub(super) fn elements(line: &[u8]) -> Option<Vec<Option<IpAddr>>> {
    let mut rest = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
    let mut elements = Vec::new();
    while !rest.is_empty() {
        // Empty elements of a list do not count (RFC 9110, 5.6.1).
        if let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_start_matches([' ', '\t']);
            continue;
        }
        let (element, after) = element(rest)?;
        elements.push(element);
        rest = after;
    }
    Some(elements)
}

/// One element, and what follows it.
fn element(text: &str) -> Option<(Option<IpAddr>, &str)> {
    let (mut rest, mut node, mut has_for) = (text, None, false);
    loop {
        // An empty pair is allowed.
        if !rest.starts_with([';', ',']) && !rest.is_empty() {
            let (name, after) = token(rest)?;
            let (value, after) = value(after.strip_prefix('=')?)?;
            if name.eq_ignore_ascii_case("for") {
                if std::mem::replace(&mut has_for, true) {
                    return None;
                }
                node = address(&value);
            }
            rest = after;
        }
        rest = rest.trim_start_matches([' ', '\t']);
        match rest.chars().next() {
            None => return Some((node, "")),
            Some(',') => return Some((node, rest)),
            Some(';') => rest = rest[1..].trim_start_matches([' ', '\t']),
            Some(_) => return None,
        }
    }
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    let end = text.find(|letter| !is_token(letter)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// A token, or a string in quotes.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return token(text).map(|(token, rest)| (token.to_owned(), rest));
    };
    let (mut value, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

/// The address of a node: `192.0.2.1`, `[2001:db8::1]`, each with a port or an obfuscated one. Other nodes have none.
fn address(node: &str) -> Option<IpAddr> {
    let is_node_port = |port: &str| {
        is_port(port)
            || port.strip_prefix('_').is_some_and(|name| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            })
    };
    let (address, port) = if let Some(rest) = node.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
    } else {
        let end = node.find(':').unwrap_or(node.len());
        (IpAddr::V4(node[..end].parse::<Ipv4Addr>().ok()?), &node[end..])
    };
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_node_port)).then_some(address)
}
