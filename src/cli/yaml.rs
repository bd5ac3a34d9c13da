//! Files that people write: YAML, which includes JSON.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;

/// Reads a file, or standard input where the name is `-`. Anchors and merge keys (`<<`) are
/// resolved. A repeated key is an error.
///
/// # Errors
/// The file cannot be read, or is not YAML. The error names the line.
pub fn read(path: &Path) -> anyhow::Result<Value> {
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.context("standard input cannot be read")?;
        ("standard input".to_owned(), text)
    } else {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("{name} cannot be read"))?;
        (name, text)
    };
    parse(&text).with_context(|| format!("{name} is not valid"))
}

fn parse(text: &str) -> anyhow::Result<Value> {
    let mut value: yaml_serde::Value = yaml_serde::from_str(text)?;
    value.apply_merge()?;
    // JSON cannot write these values: `.nan` would become null.
    if has_no_json(&value) {
        bail!("leave out .inf, .nan and !tags: JSON has none of them");
    }
    Ok(serde_json::to_value(value)?)
}

fn has_no_json(value: &yaml_serde::Value) -> bool {
    use yaml_serde::Value;
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| !number.is_finite()),
        Value::Tagged(_) => true,
        Value::Sequence(items) => items.iter().any(has_no_json),
        Value::Mapping(entries) => entries
            .iter()
            .any(|(key, value)| has_no_json(key) || has_no_json(value)),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_and_json_are_read() {
        let wanted = json!({ "limits": [{ "max": 3, "per": "day" }], "at": "06:00", "7": null });
        let yaml = "limits:\n  - max: 3\n    per: day\nat: 06:00\n7:\n";
        assert_eq!(parse(yaml).unwrap(), wanted);
        assert_eq!(parse(&wanted.to_string()).unwrap(), wanted);
        let merged = "a: &a { x: 1, y: 2 }\nb:\n  <<: *a\n  y: 3\n";
        assert_eq!(parse(merged).unwrap()["b"], json!({ "x": 1, "y": 3 }));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = |text: &str| format!("{:#}", parse(text).unwrap_err());
        for (text, words) in [
            ("a: 1\nb: [1, 2\n", "line "),
            ("a:\n  x: 1\n  y: 2\n  x: 3\n", "duplicate"),
            ("a: 1\nb: 2\na: 3\n", "\"a\""),
            ("a: .inf\n", ".inf"),
            ("a: !secret x\n", "!tags"),
            ("? [1]\n: 2\n", "key"),
            ("a: 1\n---\nb: 2\n", "document"),
        ] {
            let said = wrong(text);
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
