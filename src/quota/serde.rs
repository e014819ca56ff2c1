//! A quota in a configuration file: its text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Quota;

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Quota;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quota such as \"30/h\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quota, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::Quota;

    #[test]
    fn a_quota_in_json_is_its_text() {
        let quota = Quota::per_hour(30).unwrap();
        assert_eq!(serde_json::to_string(&quota).unwrap(), "\"30/h\"");
        assert_eq!(serde_json::from_str::<Quota>("\"30/h\"").unwrap(), quota);
    }

    #[test]
    fn a_bad_quota_in_json_names_its_field() {
        let error = serde_json::from_str::<Quota>("\"30/0s\"").unwrap_err();
        assert!(error.to_string().contains("quota.period"));
    }
}
