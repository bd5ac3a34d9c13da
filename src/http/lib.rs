//! The HTTP API: parses requests, checks keys, writes answers. It has no rules of its own.

mod answer;
mod docs;
mod health;
mod operation;
mod request;
mod server;
mod v1;

pub use console::Settings as ConsoleSettings;
pub use docs::rights::rights;
pub use docs::specification::{specification, specification_yaml};
pub use server::{
    Application, FirstKey, GateOptions, ServeError, ServeOptions, TlsFiles, rate_limit_messages,
};

// The parts of a claim's way through HTTP: `benches/hot_paths.rs` counts their instructions.
pub use answer::{Asked, Denial, insert_fields, respond};
pub use request::{KeyHeader, try_parse_json};
pub use v1::claims::check_claim;

use docs::pages;
use docs::specification::{OPENAPI_YAML, openapi_yaml};
use request::{Bounded, Route, Routes};
use v1::{
    approvals, backtests, batches, blocks, bundles, calendars, changes, claims, corrections,
    denials, entries, entry_exports, erasures, explanation, exports, grants, history, keys,
    overrides, pauses, policies, reconciliations, resets, sandbox, seals, statistics, subjects,
    tiers, top_ups, totals, windows,
};

/// Every URL, with its methods and its bounds.
fn routes() -> Routes {
    use Bounded::{Asked, Batch, Claim, Long, Open, Waits};
    let at = Route::at;
    // Paths are tried in this order: the most frequent one first.
    let routes = vec![
        at("/v1/policies/{policy}/claims", Claim).post(claims::post, claims::POST),
        at("/v1/policies", Asked).get(policies::list, policies::LIST),
        at("/v1/policies/{policy}", Asked)
            .get(policies::get, policies::GET)
            .put(policies::put, policies::PUT)
            .patch(policies::patch, policies::PATCH)
            .delete(policies::archive, policies::ARCHIVE),
        at("/v1/policies/{policy}/pause", Asked)
            .put(pauses::put, pauses::PUT)
            .delete(pauses::end, pauses::END),
        at("/v1/approvals", Asked).post(approvals::post, approvals::POST),
        at("/v1/policies/{policy}/versions", Asked).get(policies::versions, policies::VERSIONS),
        at("/v1/policies/{policy}/windows", Asked).get(windows::list, windows::LIST),
        at("/v1/policies/{policy}/overrides", Asked).get(overrides::list, overrides::LIST),
        at("/v1/policies/{policy}/overrides/{subject}", Asked)
            .get(overrides::get, overrides::GET)
            .put(overrides::put, overrides::PUT)
            .delete(overrides::delete, overrides::DELETE),
        at("/v1/policies/{policy}/blocks", Asked).get(blocks::list, blocks::LIST),
        at("/v1/policies/{policy}/blocks/{subject}", Asked)
            .get(blocks::get, blocks::GET)
            .put(blocks::put, blocks::PUT)
            .delete(blocks::remove, blocks::REMOVE),
        at("/v1/policies/{policy}/tiers", Asked).get(tiers::list, tiers::LIST),
        at("/v1/policies/{policy}/tiers/{subject}", Asked)
            .get(tiers::get, tiers::GET)
            .put(tiers::put, tiers::PUT)
            .delete(tiers::end, tiers::END),
        at("/v1/policies/{policy}/total", Asked).get(totals::get, totals::GET),
        at("/v1/policies/{policy}/near", Asked).get(subjects::near, subjects::NEAR),
        at("/v1/policies/{policy}/backtest", Long).post(backtests::post, backtests::POST),
        at("/v1/policies/{policy}/subjects/{subject}", Asked).get(claims::usage, claims::USAGE),
        at("/v1/policies/{policy}/subjects/{subject}/entries", Asked)
            .get(entries::list, entries::LIST),
        at("/v1/policies/{policy}/subjects/{subject}/denials", Asked)
            .get(denials::of_subject, denials::OF_SUBJECT),
        at(
            "/v1/policies/{policy}/subjects/{subject}/adjustments",
            Claim,
        )
        .post(entries::adjust, entries::ADJUST),
        at("/v1/policies/{policy}/subjects/{subject}/resets", Claim)
            .post(resets::post, resets::POST),
        at("/v1/policies/{policy}/subjects/{subject}/calendar", Claim)
            .post(calendars::post, calendars::POST),
        at("/v1/policies/{policy}/subjects/{subject}/top-ups", Claim)
            .post(top_ups::post, top_ups::POST),
        at(
            "/v1/policies/{policy}/subjects/{subject}/top-ups/{id}/reversal",
            Claim,
        )
        .post(top_ups::reverse, top_ups::REVERSE),
        at("/v1/claims", Batch)
            .body_max_bytes(batches::BATCH_MAX_BYTES)
            .post(batches::post, batches::POST),
        at("/v1/entries", Waits).get(history::list, history::LIST),
        at("/v1/stats", Asked).get(statistics::list, statistics::LIST),
        at("/v1/stats/quarters", Asked).get(statistics::quarters, statistics::QUARTERS),
        at("/v1/entries/export", Long).get(entry_exports::export, entry_exports::EXPORT),
        at("/v1/exports/{revision}", Long).get(entry_exports::manifest, entry_exports::MANIFEST),
        at("/v1/grants", Asked).get(grants::list, grants::LIST),
        at("/v1/grants/export", Long).get(exports::export, exports::EXPORT),
        at("/v1/grants/{id}", Asked).get(grants::get, grants::GET),
        at("/v1/grants/{id}/explanation", Asked).get(explanation::of_grant, explanation::OF_GRANT),
        at("/v1/grants/{id}/proof", Asked).get(seals::proof, seals::PROOF),
        at("/v1/grants/{id}/reversal", Claim).post(corrections::reverse, corrections::REVERSE),
        at("/v1/grants/{id}/confirmation", Claim).post(corrections::confirm, corrections::CONFIRM),
        at("/v1/bundles/{id}", Asked).get(bundles::get, bundles::GET),
        at("/v1/bundles/{id}/reversal", Claim).post(bundles::reverse, bundles::REVERSE),
        at("/v1/bundles/{id}/confirmation", Claim).post(bundles::confirm, bundles::CONFIRM),
        at("/v1/denials", Asked).get(denials::list, denials::LIST),
        at("/v1/subjects", Asked).get(subjects::list, subjects::LIST),
        at("/v1/subjects/{subject}", Asked).get(subjects::get, subjects::GET),
        at("/v1/subjects/{subject}/erasure", Asked).post(erasures::post, erasures::POST),
        at("/v1/changes", Asked).get(changes::list, changes::LIST),
        at("/v1/changes/{revision}/proof", Asked).get(seals::change_proof, seals::CHANGE_PROOF),
        at("/v1/reconciliations", Asked)
            .get(reconciliations::list, reconciliations::LIST)
            .post(reconciliations::post, reconciliations::POST),
        at("/v1/reconciliations/{id}", Asked).get(reconciliations::get, reconciliations::GET),
        at("/v1/seals", Asked).get(seals::list, seals::LIST),
        at("/v1/seals/latest", Asked).get(seals::latest, seals::LATEST),
        at("/v1/seals/consistency", Asked).get(seals::consistency, seals::CONSISTENCY),
        at("/v1/log/checkpoint", Asked).get(seals::checkpoint, seals::CHECKPOINT),
        at("/v1/log/tile/{tile}", Asked)
            .with_slashes()
            .get(seals::tile, seals::TILE),
        at("/v1/keys", Asked)
            .get(keys::list, keys::LIST)
            .post(keys::post, keys::POST),
        // `{id}` matches `me` too.
        at("/v1/keys/me", Asked).get(keys::own, keys::OWN),
        at("/v1/keys/{id}", Asked)
            .get(keys::get, keys::GET)
            .patch(keys::patch, keys::PATCH)
            .delete(keys::revoke, keys::REVOKE),
        at("/v1/keys/{id}/replacement", Asked).post(keys::replace, keys::REPLACE),
        at("/v1/sandbox/clock", Asked)
            .get(sandbox::get, sandbox::GET)
            .post(sandbox::post, sandbox::POST),
        // These URLs are open to all. Every other URL requires a key.
        at("/livez", Open).get(health::livez, health::LIVEZ),
        at("/readyz", Open).get(health::readyz, health::READYZ),
        at("/metrics", Open).get(health::metrics, health::METRICS),
        at("/openapi.yaml", Open).get(openapi_yaml, OPENAPI_YAML),
        at("/", Open).files(pages::start),
        at("/docs", Open).get(pages::first_claim, pages::FIRST_CLAIM),
        at("/docs/reference", Open).get(pages::reference, pages::REFERENCE),
        at("/docs/problems", Open).get(pages::problems, pages::PROBLEMS),
        at("/docs/{file}", Open).files(pages::file),
    ];
    Routes::new(routes)
}
