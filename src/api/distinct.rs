//! A JSON object whose names differ. serde_json keeps the last of two members with one name, and
//! other readers keep the first. So what a caller meant is unknown, and the object is refused.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use super::exact::inexact_number;
use domain::claim::{ClaimError, Metadata};

/// The longest part of a repeated name or of a number in an error, in characters.
const NAME_SHOWN: usize = 64;

/// An object as it was written, the first name that was repeated in it, at any depth, and the first number that is not
/// kept exactly. Both are wrong values and no wrong JSON, so the parsing goes on and the check tells them
/// with the other faults.
#[derive(Debug)]
pub struct DistinctObject {
    text: Box<RawValue>,
    object: Map<String, Value>,
    repeated: Option<String>,
    inexact: Option<String>,
}

impl DistinctObject {
    /// # Errors
    /// The `Metadata…` variants of [`ClaimError`].
    pub fn metadata(self) -> Result<Metadata, ClaimError> {
        match (self.repeated, self.inexact) {
            (Some(name), _) => Err(ClaimError::MetadataRepeated(name)),
            (None, Some(number)) => Err(ClaimError::MetadataNumber(number)),
            (None, None) => Metadata::new(self.object),
        }
    }
}

/// Numbers and names stay as they were written.
impl Serialize for DistinctObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DistinctObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let inexact = inexact_number(text.get());
        let inexact = inexact.map(|number| number.chars().take(NAME_SHOWN).collect());
        let mut repeated = None;
        let mut reader = serde_json::Deserializer::from_str(text.get());
        // A number beyond binary64 is a wrong value too.
        let object = match reader.deserialize_map(Members(&mut repeated)) {
            Err(_) if inexact.is_some() => Map::new(),
            object => object.map_err(D::Error::custom)?,
        };
        Ok(Self {
            text,
            object,
            repeated,
            inexact,
        })
    }
}

/// Reads an object.
struct Members<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) && self.0.is_none() {
                *self.0 = Some(name.chars().take(NAME_SHOWN).collect());
            }
            let value = members.next_value_seed(AnyValue(&mut *self.0))?;
            object.insert(name, value);
        }
        Ok(object)
    }
}

/// Reads any value, as `Value` does.
struct AnyValue<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for AnyValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(AnyValue(&mut *self.0))? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        Members(self.0).visit_map(members).map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_serde_json_reads() {
        for text in [
            r#"{}"#,
            r#"{"a":[1,-2,3.5,1e300,null,true,{"b":"ü\n"}],"c":{"a":1,"d":{"a":2}}}"#,
            r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":1.0}"#,
        ] {
            let read: DistinctObject = serde_json::from_str(text).unwrap();
            assert_eq!(read.repeated, None);
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Value::Object(read.object), value);
        }
        for wrong in ["[]", "1", r#"{"a":}"#, r#"{"a":"\ud800"}"#] {
            assert!(
                serde_json::from_str::<DistinctObject>(wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_number_that_is_not_kept_is_a_wrong_value() {
        for number in ["1e400", "123456789012345678901234567890"] {
            let text = format!(r#"{{"a":[{number}]}}"#);
            let read: DistinctObject = serde_json::from_str(&text).unwrap();
            let error = ClaimError::MetadataNumber(number.to_owned());
            assert_eq!(read.metadata(), Err(error));
        }
    }

    #[test]
    fn a_repeated_name_is_found_at_any_depth() {
        for text in [
            r#"{"a":1,"b":2,"a":1}"#,
            r#"{"x":[{"y":{"a":1,"a":2}}]}"#,
            r#"{"\u0061":1,"a":2,"b":1,"b":2}"#,
        ] {
            let read: DistinctObject = serde_json::from_str(text).unwrap();
            let error = ClaimError::MetadataRepeated("a".to_owned());
            assert_eq!(read.metadata(), Err(error), "{text}");
        }
    }
}
