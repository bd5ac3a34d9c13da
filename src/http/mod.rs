//! The HTTP API: parses requests, checks keys, writes answers. It has no rules of its own.

mod answer;
mod docs;
mod health;
mod request;
mod server;
mod v1;

pub use docs::specification::{specification, specification_yaml};
pub use server::{Application, FirstKey, ServeError, ServeOptions};

// The parts of a claim's way through HTTP: `benches/hot_paths.rs` counts their instructions.
pub use answer::{Asked, Denial, insert_fields, respond};
pub use request::{KeyHeader, parse_json};
pub use v1::claims::ClaimBody;

use docs::pages;
use docs::specification::{known_parameters, openapi_yaml};
use request::{Bounded, Route, Routes};
use v1::{
    backtests, batches, blocks, changes, claims, corrections, entries, entry_exports, erasures,
    explanation, exports, grants, history, keys, overrides, pauses, policies, reconciliations,
    seals, statistics, windows,
};

/// Every URL, with its methods and its bounds.
fn routes() -> Routes {
    use Bounded::{Asked, Batch, Claim, Long, Open, Waits};
    let at = Route::at;
    // Paths are tried in this order: the most frequent one first.
    let routes = vec![
        at("/v1/policies/{policy}/claims", Claim).post(claims::post),
        at("/v1/policies", Asked).get(policies::list),
        at("/v1/policies/{policy}", Asked)
            .get(policies::get)
            .put(policies::put)
            .delete(policies::archive),
        at("/v1/policies/{policy}/pause", Asked)
            .put(pauses::put)
            .delete(pauses::end),
        at("/v1/policies/{policy}/versions", Asked).get(policies::versions),
        at("/v1/policies/{policy}/windows", Asked).get(windows::list),
        at("/v1/policies/{policy}/overrides", Asked).get(overrides::list),
        at("/v1/policies/{policy}/overrides/{subject}", Asked)
            .get(overrides::get)
            .put(overrides::put)
            .delete(overrides::delete),
        at("/v1/policies/{policy}/blocks", Asked).get(blocks::list),
        at("/v1/policies/{policy}/blocks/{subject}", Asked)
            .get(blocks::get)
            .put(blocks::put)
            .delete(blocks::remove),
        at("/v1/policies/{policy}/backtest", Long).post(backtests::post),
        at("/v1/policies/{policy}/subjects/{subject}", Asked).get(claims::usage),
        at("/v1/policies/{policy}/subjects/{subject}/entries", Asked).get(entries::list),
        at("/v1/policies/{policy}/subjects/{subject}/denials", Asked).get(statistics::denials),
        at(
            "/v1/policies/{policy}/subjects/{subject}/adjustments",
            Claim,
        )
        .post(entries::adjust),
        at("/v1/claims", Batch)
            .body_max_bytes(batches::BATCH_MAX_BYTES)
            .post(batches::post),
        at("/v1/entries", Waits).get(history::list),
        at("/v1/stats", Asked).get(statistics::list),
        at("/v1/entries/export", Long).get(entry_exports::export),
        at("/v1/exports/{revision}", Long).get(entry_exports::manifest),
        at("/v1/grants", Asked).get(grants::list),
        at("/v1/grants/export", Long).get(exports::export),
        at("/v1/grants/{id}", Asked).get(grants::get),
        at("/v1/grants/{id}/explanation", Asked).get(explanation::of_grant),
        at("/v1/grants/{id}/proof", Asked).get(seals::proof),
        at("/v1/grants/{id}/reversal", Claim).post(corrections::reverse),
        at("/v1/grants/{id}/confirmation", Claim).post(corrections::confirm),
        at("/v1/subjects/{subject}/erasure", Asked).post(erasures::post),
        at("/v1/changes", Asked).get(changes::list),
        at("/v1/changes/{revision}/proof", Asked).get(seals::change_proof),
        at("/v1/reconciliations", Asked)
            .get(reconciliations::list)
            .post(reconciliations::post),
        at("/v1/reconciliations/{id}", Asked).get(reconciliations::get),
        at("/v1/seals", Asked).get(seals::list),
        at("/v1/seals/latest", Asked).get(seals::latest),
        at("/v1/seals/consistency", Asked).get(seals::consistency),
        at("/v1/log/checkpoint", Asked).get(seals::checkpoint),
        at("/v1/log/tile/{tile}", Asked)
            .with_slashes()
            .get(seals::tile),
        at("/v1/keys", Asked).get(keys::list).post(keys::post),
        at("/v1/keys/{id}", Asked)
            .get(keys::get)
            .patch(keys::patch)
            .delete(keys::revoke),
        // These URLs are open to all. Every other URL requires a key.
        at("/livez", Open).get(health::livez),
        at("/readyz", Open).get(health::readyz),
        at("/metrics", Open).get(health::metrics),
        at("/openapi.yaml", Open).get(openapi_yaml),
        at("/docs", Open).get(pages::first_claim),
        at("/docs/reference", Open).get(pages::reference),
        at("/docs/problems", Open).get(pages::problems),
        at("/docs/{file}", Open).get(pages::file),
    ];
    Routes::new(routes)
}
