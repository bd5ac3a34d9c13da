//! The example of each body, as tools compose it: that of the schema, or else those of its parts.

use perdiem::api;
use serde_json::{Map, Value, json};

use crate::support::operations::{operations, specification};

/// Reads an example into the type of its schema.
macro_rules! read_into {
    ($name:expr, $example:expr, $($module:ident: $($type:ident),+;)+) => {
        match $name {
            $($(stringify!($type) => {
                api::read::<api::$module::$type>($example).map(drop).map_err(|error| error.to_string())
            })+)+
            other => Err(format!("list the type of {other} in this test")),
        }
    };
}

/// Checks that the program reads the example of an answer as it reads the answer.
fn read(name: &str, example: &Value) -> Result<(), String> {
    read_into! {
        name, example,
        approvals: ApprovalAnswer;
        backtests: BacktestAnswer;
        blocks: BlockAnswer, BlockList;
        changes: ChangeList;
        claims: BatchAnswer, DenialBody, TotalBody, UsageBody;
        entries: EntryBody, EntryList, HistoryList;
        erasures: ErasureAnswer;
        explanation: ClaimExplanation, GrantExplanation;
        exports: Manifest;
        bundles: BundleBody;
        grants: ClaimAnswer, CorrectionAnswer, GrantBody, GrantList;
        health: Readiness;
        keys: CreatedKey, KeyAnswer, KeyList, KeyReplacementAnswer, ListedKey, OwnKeyAnswer;
        overrides: OverrideAnswer, OverrideList;
        policies: PolicyAnswer, PolicyList, WindowList;
        problem: Problem;
        reconciliations: ReconciliationAnswer, ReconciliationList;
        sandbox: SandboxClockAnswer;
        seals: LatestSeal, SealConsistency, SealList;
        statistics: DenialItemList, DenialList, QuarterList, StatisticsList;
        subjects: NearList, SubjectAnswer, SubjectList;
        tiers: SubjectTierAnswer, SubjectTierList;
    }
}

/// The alternatives of a schema, or the schema itself.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let several = ["anyOf", "oneOf"]
        .iter()
        .find_map(|it| schema[it].as_array());
    several.map_or(vec![schema], |several| several.iter().collect())
}

/// Composes the example of a schema. A text without one, and without words or a form, is a fault.
fn compose(document: &Value, schema: &Value, place: &str) -> Value {
    let examples = || schema["examples"].get(0);
    if let Some(example) = schema.get("example").or_else(examples) {
        return example.clone();
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let schema = document.pointer(&reference[1..]).expect("a schema");
        return compose(document, schema, reference);
    }
    if let Some(words) = schema["enum"].as_array() {
        return words[0].clone();
    }
    let first = alternatives(schema)[0];
    if first != schema {
        return compose(document, first, place);
    }
    let mut members = Map::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let part = compose(document, part, place);
        members.extend(part.as_object().expect("an object").clone());
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        members.insert(name.clone(), compose(document, property, &place));
    }
    let kind = schema["type"]
        .as_array()
        .map_or(&schema["type"], |kinds| &kinds[0]);
    let format = schema["format"].as_str().unwrap_or_default();
    match (kind.as_str(), format) {
        (Some("object") | None, _) => members.into(),
        (Some("array"), _) if schema["items"]["type"] == "string" => json!([]),
        (Some("array"), _) => json!([compose(document, &schema["items"], place)]),
        (Some("boolean"), _) => json!(false),
        (Some("integer" | "number"), _) => json!(1),
        (Some("string"), "date") => json!("2026-11-21"),
        (Some("string"), "date-time") => json!("2026-11-21T16:00:00Z"),
        (Some("string"), "uuid") => json!("0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42"),
        // Only lists have cursors.
        (Some("string"), _) if place.ends_with("/NextCursor") => Value::Null,
        kind => panic!("{place} has no example, and is {kind:?}"),
    }
}

#[test]
fn every_answer_has_an_example_that_is_read() {
    let document = specification();
    let mut count = 0;
    for operation in operations() {
        let answers = operation.said["responses"].as_object().expect("responses");
        for (status, answer) in answers {
            for (media_type, content) in answer["content"].as_object().into_iter().flatten() {
                if !media_type.ends_with("/json") && !media_type.ends_with("+json") {
                    continue;
                }
                let schema = content["schema"]["$ref"].as_str().expect("a reference");
                let schema = document.pointer(&schema[1..]).expect("a schema");
                let several = alternatives(schema);
                let is_one = several == [schema];
                for one in several {
                    let reference = if is_one { &content["schema"] } else { one };
                    let example = compose(&document, reference, "");
                    let name = reference["$ref"].as_str().expect("a reference");
                    let name = name.rsplit('/').next().unwrap_or_default();
                    let place = format!("{} {}: {status}", operation.method, operation.path);
                    assert_eq!(read(name, &example), Ok(()), "{place}: {example}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 500, "{count}");
}
