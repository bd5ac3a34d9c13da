//! Parts of requests that are stricter than what serde takes.

use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A JSON object. For a struct serde would also take an array, with the fields in their order.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// A whole number of any size: `3` and `3.0` are whole numbers, `3.5` and `"3"` are not (JSON
/// Schema, section 4.2.3). A number beyond 128 bits becomes the nearest 128-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WholeNumber(pub i128);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;
        impl Visitor<'_> for WholeNumberVisitor {
            type Value = WholeNumber;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a whole number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<WholeNumber, E> {
                Ok(WholeNumber(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<WholeNumber, E> {
                if number.fract() == 0.0 {
                    Ok(WholeNumber(number as i128))
                } else {
                    Err(E::custom(format!("{number} is not a whole number")))
                }
            }
        }
        deserializer
            .deserialize_any(WholeNumberVisitor)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        let parse = |text: &str| serde_json::from_str::<WholeNumber>(text).map(|number| number.0);
        assert_eq!(parse("3").unwrap(), 3);
        assert_eq!(parse("3.0").unwrap(), 3);
        assert_eq!(parse("-1").unwrap(), -1);
        assert_eq!(parse("1e300").unwrap(), i128::MAX);
        assert_eq!(parse("18446744073709551616").unwrap(), 1 << 64);
        for wrong in ["3.5", "\"3\"", "true", "null", "[]"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
