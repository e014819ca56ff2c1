//! Who is counted.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The longest identity that is kept without an allocation.
const INLINE: usize = 46;

/// A caller's identity: some bytes, compared byte by byte.
///
/// Up to 46 bytes are kept inline, without an allocation. No log or error of this crate shows them, `Debug` included.
///
/// ```
/// use tower_quota_core::Key;
///
/// assert_eq!(Key::from("alice"), Key::new(b"alice"));
/// assert_eq!(format!("{:?}", Key::from("alice")), "Key(5 bytes)");
/// ```
#[derive(Clone)]
pub struct Key(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE] },
    Shared(Arc<[u8]>),
}

impl Key {
    /// The identity that these bytes are.
    #[inline]
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        let given = bytes.as_ref();
        match u8::try_from(given.len()) {
            Ok(length) if given.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..given.len()].copy_from_slice(given);
                Self(Repr::Inline { length, bytes })
            }
            _ => Self(Repr::Shared(given.into())),
        }
    }

    /// The bytes of this identity, for a store that counts under them.
    ///
    /// They may be personal data: a store that can be read by others digests them first.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.as_bytes().len())
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::new(number.to_be_bytes())
    }
}

impl From<u128> for Key {
    fn from(number: u128) -> Self {
        Self::new(number.to_be_bytes())
    }
}

impl AsRef<[u8]> for Key {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// What looking for a caller's identity came to: a [`Key`], or its bytes where they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyRead<K = Key> {
    /// The caller is known.
    Found(K),
    /// The caller did not say who it is: the axis's [`MissingKey`](crate::MissingKey) policy applies.
    Missing,
    /// The caller said something that is no identity, such as a header sent twice. Always refused, whatever the policy
    /// for a missing key is: otherwise nonsense would be a way around the limit.
    Malformed,
}

impl<K> KeyRead<K> {
    /// The same, with another form of the key.
    pub fn map<T>(self, form: impl FnOnce(K) -> T) -> KeyRead<T> {
        match self {
            Self::Found(key) => KeyRead::Found(form(key)),
            Self::Missing => KeyRead::Missing,
            Self::Malformed => KeyRead::Malformed,
        }
    }
}

impl From<Key> for KeyRead {
    fn from(key: Key) -> Self {
        Self::Found(key)
    }
}

impl From<Option<Key>> for KeyRead {
    fn from(key: Option<Key>) -> Self {
        key.map_or(Self::Missing, Self::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_of_any_length_keeps_its_bytes() {
        for length in [0, 1, INLINE, INLINE + 1, 255, 256, 1 << 20] {
            let bytes = vec![7; length];
            assert_eq!(Key::new(&bytes).as_bytes(), bytes, "{length} bytes");
        }
    }

    #[test]
    fn an_identity_is_six_words() {
        assert_eq!(size_of::<Key>(), 48);
    }

    #[test]
    fn debug_shows_no_identity() {
        assert!(!format!("{:?}", KeyRead::Found(Key::from("alice"))).contains("alice"));
    }
}
