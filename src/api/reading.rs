//! Reads an answer into its type, and names the field that does not fit.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The answer is not of the type that was expected.
#[derive(Debug, thiserror::Error)]
#[error("the answer does not fit its type: {fault}")]
pub struct ForeignAnswer {
    /// The field that is missing or wrong, with its place.
    fault: String,
}

/// Reads an answer. Fields that the type does not have are ignored, because a newer server may say more.
///
/// # Errors
/// A field is missing, also one that can be null; or its value is of another type.
pub fn read<T: DeserializeOwned + Serialize>(answer: &Value) -> Result<T, ForeignAnswer> {
    let foreign = |fault| ForeignAnswer { fault };
    // 1. Read it. serde takes an absent field for null.
    let read: T = flattened(answer).map_err(|error| foreign(error.to_string()))?;
    // 2. Write it again: it has every field that is never absent.
    let written = serde_json::to_value(&read).map_err(|error| foreign(error.to_string()))?;
    match absent(answer, &written) {
        Some(place) => {
            let place = place.trim_start_matches('.');
            Err(foreign(format!("{place}: the field is missing")))
        }
        None => Ok(read),
    }
}

/// Reads a part that is flattened into another type, and names the field of a fault, which serde then does
/// not.
///
/// # Errors
/// As those of `T`.
pub fn flattened<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let place = error.path().to_string();
        let fault = error.into_inner();
        match place.as_str() {
            "." => fault,
            place => D::Error::custom(format!("{place}: {fault}")),
        }
    })
}

/// The place of the first field that was written, and is not in the answer, such as `.items[0].units`.
fn absent(answer: &Value, written: &Value) -> Option<String> {
    match (answer, written) {
        (Value::Object(answer), Value::Object(written)) => {
            let mut fields = written.iter();
            fields.find_map(|(name, written)| {
                let below = answer
                    .get(name)
                    .map_or(Some(String::new()), |answer| absent(answer, written));
                below.map(|below| format!(".{name}{below}"))
            })
        }
        (Value::Array(answer), Value::Array(written)) => {
            let mut items = answer.iter().zip(written).enumerate();
            items.find_map(|(index, (answer, written))| {
                absent(answer, written).map(|below| format!("[{index}]{below}"))
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Whole {
        name: String,
        #[serde(flatten, deserialize_with = "flattened")]
        part: Part,
        items: Vec<Part>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Part {
        units: u64,
        until: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }

    #[test]
    fn the_field_that_does_not_fit_is_named() {
        let item = json!({ "units": 1, "until": null, "newer": 1 });
        let whole = json!({ "name": "a", "units": 1, "until": "b", "items": [item, item] });
        assert!(read::<Whole>(&whole).is_ok());
        let changed = |pointer: &str, value: Option<Value>| {
            let mut whole = whole.clone();
            let (place, name) = pointer.rsplit_once('/').unwrap();
            let object = whole.pointer_mut(place).unwrap().as_object_mut().unwrap();
            match value {
                Some(value) => object.insert(name.to_owned(), value),
                None => object.remove(name),
            };
            read::<Whole>(&whole).unwrap_err().fault
        };
        #[rustfmt::skip]
        let rows = [
            ("/name", None, "missing field `name`"),
            ("/units", None, "missing field `units`"),
            ("/until", None, "until: the field is missing"),
            ("/items/1/units", None, "items[1]: missing field `units`"),
            ("/items/1/until", None, "items[1].until: the field is missing"),
            ("/items/0/units", Some(json!("x")), "items[0].units: invalid type: string"),
            ("/units", Some(json!("x")), "units: invalid type: string"),
            ("/until", Some(json!(1)), "until: invalid type: integer"),
            ("/reason", Some(json!(1)), "reason: invalid type: integer"),
        ];
        for (pointer, value, expected) in rows {
            let fault = changed(pointer, value);
            assert!(fault.starts_with(expected), "{pointer}: {fault}");
        }
    }
}
