//! The inserts that a member of the role may make, and those that are refused.

use serde_json::json;

use super::{Cast, Trier};
use crate::record::all_is_recorded;
use crate::support::app::App;

/// An insert gets no place in the record that belongs to another transaction. It hides no change:
/// not in a mark, not in the digests and accounts of erasures, and not in the content of an act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_member_inserts_hides_nothing() {
    let cast = Cast::migrated().await;
    let app = App::start(&cast.service).await;
    app.benefit(3, "UTC").await;
    app.override_day("a", 2).await;
    for subject in ["a", "b"] {
        app.claim(subject, None).await.is(201);
    }
    app.get("/v1/entries/export?format=ndjson&subject=b").await;
    let reason = json!({ "reason": "request 17" });
    app.ask("POST /v1/subjects/a/erasure", reason).await.is(200);
    all_is_recorded(&app, &cast.ground).await;
    drop(app);
    let mut trier = Trier::of(&cast.service).await;

    // A mark follows the last one, and contains only ended transactions.
    let last = "FROM record_marks ORDER BY after DESC LIMIT 1";
    let is = "'00000000-0000-0000-0000-000000000000', 1, now()";
    for (mark, fault) in [
        (
            format!("position, position + 1, xact + 1000000, {is} {last}"),
            "P0001",
        ),
        (
            format!("position, position + 1, xact - 1, {is} {last}"),
            "P0001",
        ),
        (
            format!("position + 1, position + 2, xact, {is} {last}"),
            "23505",
        ),
    ] {
        let found = trier
            .fault(&format!("INSERT INTO record_marks SELECT {mark}"))
            .await;
        assert_eq!(found.as_deref(), Some(fault), "{mark}");
    }

    // Lists contain every change.
    let act = "INSERT INTO acts (revision, kind, about, changed_at, changed_by, blind)
        VALUES (1000, 'archive', '{}', now(), 'a test', gen_random_uuid())";
    assert_eq!(trier.fault(act).await.as_deref(), Some("P0001"));
    // The place of a change is that of its transaction, whatever the insert says.
    trier.may("UPDATE ledger SET revision = 1001").await;
    trier.may(act).await;
    let place = "SELECT max(xact) < pg_current_xact_id()::text::bigint FROM acts";
    assert_eq!(cast.execute(place), "t");

    let of_b = "FROM entries JOIN accounts ON account = accounts.id WHERE subject = 'b'";
    let export = "(SELECT revision FROM acts WHERE kind = 'export')";
    let erasure = "(SELECT revision FROM acts WHERE kind = 'erasure')";
    let begin =
        "INSERT INTO erasing_accounts (replacement, account, policy, revision, step, due_at)
        SELECT gen_random_uuid(), account, accounts.policy,";
    let new_act = "INSERT INTO acts (revision, kind, about, changed_at, changed_by, blind)
        VALUES (1001, 'erasure', '{\"accounts\":1}', now(), 'a test', gen_random_uuid());";
    let act_id = format!("lpad(to_hex({export}), 32, '0')::uuid");
    let digest = format!(
        "SELECT leaf_digest(blind, {act_id}, json_field('about', about), json_field('reason', reason))
         FROM acts WHERE revision = {export}"
    );
    let keep = format!("INSERT INTO erased_leaves VALUES ({act_id}, ({digest}));");
    for refused in [
        // A digest of an entry that is not being erased, and an invented digest.
        format!("INSERT INTO erased_leaves SELECT entries.id, sha256('') {of_b}"),
        format!("INSERT INTO erased_leaves VALUES ({act_id}, sha256(''))"),
        keep.clone(),
        format!("{new_act} INSERT INTO erased_leaves VALUES ({act_id}, sha256(''))"),
        // An account that no act erases, an old account, and an act of another kind.
        format!("{begin} {erasure}, 1, now() {of_b}"),
        format!("{begin} {export}, 1, now() {of_b}"),
        format!("UPDATE erasing_accounts SET revision = {export}"),
        "UPDATE erasing_accounts SET subject = 'b'".to_owned(),
        // A pseudonym of another account.
        format!("INSERT INTO erased_accounts SELECT account, sha256('') {of_b}"),
        // An act with other content.
        format!("{new_act} {keep} SELECT erase_act({export}, '{{}}')"),
        format!(
            "{new_act} {keep} SELECT erase_act(revision,
                 (about::jsonb || '{{\"erased\": [\"subject\"], \"as_of\": 1000}}')::text)
             FROM acts WHERE revision = {export}"
        ),
    ] {
        assert_eq!(
            trier.fault(&refused).await.as_deref(),
            Some("P0001"),
            "{refused}"
        );
    }
    // The steps of an erasure are permitted to every member, and are recorded.
    trier
        .may(&format!(
            "{new_act} {keep} SELECT erase_act(revision, ((about::jsonb #- '{{filters,subject}}')
                 || '{{\"erased\": [\"subject\"]}}')::text)
             FROM acts WHERE revision = {export}"
        ))
        .await;
}
