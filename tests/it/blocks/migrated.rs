//! Overrides with a `max` of 0, of a ledger from before blocks. An older instance beside this one.

use serde_json::{Value, json};

use crate::http::{all_items, problem};
use crate::support::app::{App, Ground, Stack};
use crate::support::desk::{another_ledger, on_every_store};
use crate::support::direct::Direct;

on_every_store!(
    an_override_of_zero_becomes_a_block,
    an_older_instance_cannot_read_the_last_version_of_a_blocked_subject,
);

/// The overrides of the older ledger: the subject, the limits, and the reason.
const OLD: [(&str, &str, &str); 4] = [
    ("none", r#"[{"max":0,"per":"day"}]"#, "fraud"),
    (
        "some",
        r#"[{"max":0,"per":"day"},{"max":5,"per":"month"}]"#,
        "theft",
    ),
    ("vip", r#"[{"max":9,"per":"day"}]"#, "vip"),
    ("gone", r#"[{"max":0,"per":"month"}]"#, "again"),
];

async fn an_override_of_zero_becomes_a_block(stack: Stack) {
    let ground = Ground::new(stack);
    seed(&ground, stack).await;
    let app = App::start(&ground).await;
    for subject in ["none", "some", "gone"] {
        problem(&app.claim(subject, None).await, 403, "subject-blocked");
    }
    assert_eq!(app.claim("vip", None).await.at("/limits/0/max"), 9);
    let blocks = all_items(&app, "/v1/policies/benefit/blocks").await;
    let mut told: Vec<[String; 3]> = blocks
        .iter()
        .map(|block| {
            ["subject", "reason", "changed_by"]
                .map(|name| block[name].as_str().unwrap_or("").to_owned())
        })
        .collect();
    told.sort();
    let row = |subject: &str, reason: &str| [subject, reason, "an admin"].map(str::to_owned);
    assert_eq!(
        told,
        [
            row("gone", "again"),
            row("none", "fraud"),
            row("some", "theft")
        ]
    );
    // The other limits of an override stay.
    let overrides = all_items(&app, "/v1/policies/benefit/overrides").await;
    let mut maxima: Vec<Value> = overrides
        .iter()
        .map(|found| json!([found["subject"], found["limits"], found["reason"]]))
        .collect();
    maxima.sort_by_key(Value::to_string);
    let expected = [
        json!(["some", [{ "max": 5, "per": "month" }], "theft"]),
        json!(["vip", [{ "max": 9, "per": "day" }], "vip"]),
    ];
    assert_eq!(maxima, expected);
    // The history shows the override of before.
    let changes = all_items(&app, "/v1/changes?kind=override&subject=none").await;
    assert_eq!(changes[0]["before"]["limits"][0]["max"], 0);
    assert_eq!(changes[0]["after"], Value::Null);
    assert_eq!(changes[1]["after"]["limits"][0]["max"], 0);
    // Before the migration the override denied, as it did.
    let usage = "/v1/policies/benefit/subjects/none";
    let before = app
        .get(&format!("{usage}?at=2026-11-02T00:00:00Z"))
        .await
        .json();
    assert_eq!(
        [&before["outcome"], &before["reason"]],
        ["denied", "no_room"]
    );
    // The reason and the end can be changed, and the block can be removed.
    app.block("none").await.is(200);
    app.remove_block("none").await.is(200);
    assert_eq!(app.claim("none", None).await.status, 201);
}

/// Adds a policy and overrides, as an older perdiem wrote them, and runs the migration. The ids of the
/// accounts are hashes under the ledger's secret, so the ledger is opened first.
async fn seed(ground: &Ground, stack: Stack) {
    let ledger = another_ledger(ground).await;
    let at = |micros: i64| match stack {
        Stack::Postgres => format!("to_timestamp({})", micros / 1_000_000),
        _ => micros.to_string(),
    };
    let name = perdiem::domain::policy::PolicyName::new("benefit").expect("a name");
    let mut statements = vec![
        "INSERT INTO policies (name) VALUES ('benefit')".to_owned(),
        "UPDATE ledger SET revision = 9".to_owned(),
        // An instance that serves the ledger until the migration.
        format!(
            "INSERT INTO instances (id, zone_rules, seen_at) VALUES ({}, 'any', {})",
            if stack == Stack::Postgres {
                "gen_random_uuid()"
            } else {
                "randomblob(16)"
            },
            at(1_795_000_000_000_000)
        ),
        format!(
            "INSERT INTO policy_versions (policy, version, revision, rule, archived, effective_at,
                 changed_at, changed_by, xact)
             VALUES (1, 1, 1, '{{\"description\":\"\",\"time_zone\":\"UTC\",\"limits\":[{{\"max\":3,
                 \"per\":\"day\"}},{{\"max\":30,\"per\":\"month\"}}],\"day_starts_at\":\"00:00\",
                 \"week_starts_on\":\"monday\",\"active_from\":null,\"active_until\":null,
                 \"paused\":false}}', false, {now}, {now}, 'an admin', 0)",
            now = at(1_793_000_000_000_000)
        ),
    ];
    for (revision, (subject, limits, reason)) in (2..).zip(OLD) {
        let subject_id = perdiem::domain::claim::Subject::new(subject).expect("a subject");
        let account = ledger.identity().account(&name, &subject_id).0;
        let (id, blind) = match stack {
            Stack::Postgres => (format!("'{account}'"), format!("'{account}'")),
            _ => (
                format!("x'{}'", account.simple()),
                format!("x'{}'", account.simple()),
            ),
        };
        statements.push(format!(
            "INSERT INTO overrides (account, policy, subject, blind) VALUES ({id}, 1, '{subject}', {blind})"
        ));
        statements.push(format!(
            "INSERT INTO override_versions (account, version, revision, limits, changed_at,
                 changed_by, reason, xact)
             VALUES ({id}, 1, {revision}, '{limits}', {}, 'an admin', '{reason}', 0)",
            at(1_793_500_000_000_000)
        ));
    }
    ground.sql(&statements.join(";\n")).await;
    let store = if stack == Stack::Postgres {
        "postgres"
    } else {
        "sqlite"
    };
    let path = format!(
        "{}/migrations/{store}/0018_blocks.sql",
        env!("CARGO_MANIFEST_DIR")
    );
    let migration = std::fs::read_to_string(path).expect("a migration");
    ground.sql(&migration).await;
}

/// An older perdiem reads `limits` of the account's last version as NULL or as a list. While a subject is
/// blocked it is neither, so an older instance stops the claims of the policy.
async fn an_older_instance_cannot_read_the_last_version_of_a_blocked_subject(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start(&ground).await;
    app.benefit(3, "GMT+8").await;
    app.block("a").await.is(201);
    let mut direct = Direct::to(&ground).await;
    let readable = "SELECT CAST(count(*) AS text) FROM override_versions AS v
        WHERE v.version = (SELECT MAX(version) FROM override_versions WHERE account = v.account)
        AND (v.limits IS NULL OR v.limits LIKE '[%')";
    let mut counts = async || direct.texts(readable).await;
    assert_eq!(counts().await, ["0"]);
    app.override_day("a", 9).await;
    assert_eq!(counts().await, ["0"]);
    app.delete_override("a").await.is(200);
    assert_eq!(counts().await, ["0"]);
    app.remove_block("a").await.is(200);
    app.override_day("a", 9).await;
    assert_eq!(counts().await, ["1"]);
}
