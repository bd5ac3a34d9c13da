//! The pure parts of a claim. Callgrind counts their instructions, and `scripts/check-hot-paths`
//! compares the counts with `benches/hot_paths.json`.
//!
//! Each part is counted once, on prepared values. A part that allocates runs once before the count,
//! because the allocator sorts the free blocks of the preparation in the first run. The time zones
//! are the bundled ones, so that the counts do not depend on the machine.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use chrono::{DateTime, NaiveTime, TimeDelta, Utc, Weekday};
use gungraun::prelude::*;
use redis::{Cmd, Value};
use uuid::Uuid;

use perdiem::api::claims::ClaimBody;
use perdiem::api::grants::ClaimAnswer;
use perdiem::counter::record::{decode_counter, encode_line};
use perdiem::counter::{Ask, Counter, SettledKeys, Settlement, commands};
use perdiem::domain::account::{Unknown, Verdict, decide};
use perdiem::domain::almanac::Almanac;
use perdiem::domain::claim::{Claim, IdempotencyKey, Subject, Units};
use perdiem::domain::forecast::Forecast;
use perdiem::domain::grant::{Entry, EntryKind, Followers, Grant, Line};
use perdiem::domain::identity::{AccountId, EntryId, Identity, KeyId};
use perdiem::domain::key::KeyNumber;
use perdiem::domain::limit::draft::LimitDraft;
use perdiem::domain::limit::text::encode_totals;
use perdiem::domain::limit::total::Total;
use perdiem::domain::line_text::totals_of;
use perdiem::domain::past::Past;
use perdiem::domain::policy::{Policy, PolicyId, PolicyName, RuleDraft};
use perdiem::domain::schedule::Versions;
use perdiem::domain::warning::Levels;
use perdiem::domain::window::Length;
use perdiem::domain::window::{Calendar, Window};
use perdiem::domain::zones::Zones;
use perdiem::http::{
    Asked, Denial, KeyHeader, check_claim, insert_fields, respond, try_parse_json,
};

/// 2026-11-21T03:04:05.678901Z.
const NOW: DateTime<Utc> = DateTime::from_timestamp_micros(1_795_230_245_678_901).unwrap();

/// Keeps a value until the process ends, so that no count contains its drop.
fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Keeps a value, and runs the path once before it is counted.
fn warm<T, R>(value: T, path: impl FnOnce(&'static T) -> R) -> &'static T {
    let value = keep(value);
    black_box(path(value));
    value
}

fn calendar(zone: &str, per: Length) -> (&'static Calendar, Length) {
    let calendar = Calendar {
        zone: Zones::bundled().get(zone).expect("a zone"),
        day_starts_at: NaiveTime::MIN,
        week_starts_on: Weekday::Mon,
        anchor: None,
    };
    (keep(calendar), per)
}

#[library_benchmark(setup = calendar)]
#[bench::day_of_an_offset("+08:00", Length::Day)]
#[bench::day_in_shanghai("Asia/Shanghai", Length::Day)]
#[bench::day_in_new_york("America/New_York", Length::Day)]
#[bench::minute_in_new_york("America/New_York", Length::Minute)]
#[bench::week_in_new_york("America/New_York", Length::Week)]
#[bench::year_in_new_york("America/New_York", Length::Year)]
fn window((calendar, per): (&'static Calendar, Length)) -> Window {
    black_box(calendar).window(per, black_box(NOW))
}

/// A policy with so many limits.
fn policy(limits: usize) -> Policy {
    let limits = [("day", 3), ("week", 10), ("month", 30)][..limits].iter();
    let draft = RuleDraft {
        time_zone: "America/New_York".to_owned(),
        limits: limits
            .map(|(per, max)| LimitDraft {
                max: *max,
                per: (*per).to_owned(),
                ..LimitDraft::default()
            })
            .collect(),
        ..RuleDraft::default()
    };
    let mut rule = draft.check().expect("a rule");
    rule.calendar = Almanac::from(calendar("America/New_York", Length::Day).0.clone());
    Policy {
        id: PolicyId(1),
        name: PolicyName::new("benefit").expect("a name"),
        version: 1,
        rule,
        archived: false,
        effective_at: DateTime::UNIX_EPOCH,
        changed_at: DateTime::UNIX_EPOCH,
        changed_by: "bench".to_owned(),
        reason: None,
        blocked: None,
    }
}

/// The line after so many claims of one unit. `at` is the instant of the last claim.
fn line(policy: &Policy, claims: u32, at: DateTime<Utc>) -> Option<Line> {
    (0..claims).fold(None, |last, _| {
        match decide(policy, Units::ONE, last.as_ref(), &Past::default(), at) {
            Ok(Verdict::Granted(line)) => Some(line),
            other => panic!("not granted: {other:?}"),
        }
    })
}

type Account = (&'static Policy, Option<&'static Line>);

fn account(limits: usize, claims: u32, ago: TimeDelta) -> Account {
    let own = policy(limits);
    let last = line(&own, claims, NOW - ago);
    // What was freed until here is sorted by the next decision, which is not the counted one.
    black_box(line(&policy(limits), claims.max(1), NOW));
    (keep(own), last.map(keep))
}

const JUST_NOW: TimeDelta = TimeDelta::minutes(1);
const YESTERDAY: TimeDelta = TimeDelta::days(1);

#[library_benchmark(setup = account)]
#[bench::first_of_1_limit(1, 0, JUST_NOW)]
#[bench::first_of_3_limits(3, 0, JUST_NOW)]
#[bench::granted_of_1_limit(1, 1, JUST_NOW)]
#[bench::granted_of_3_limits(3, 1, JUST_NOW)]
#[bench::denied_of_1_limit(1, 3, JUST_NOW)]
#[bench::denied_of_3_limits(3, 3, JUST_NOW)]
#[bench::next_day_of_1_limit(1, 3, YESTERDAY)]
#[bench::next_day_of_3_limits(3, 3, YESTERDAY)]
fn decision((policy, last): Account) -> Result<Verdict, Unknown> {
    let policy = black_box(policy);
    let last = black_box(last);
    decide(policy, Units::ONE, last, &Past::default(), black_box(NOW))
}

fn versions() -> &'static Versions {
    let mut versions = Versions::default();
    versions.insert(Ok(Arc::new(policy(1))));
    keep(versions)
}

#[library_benchmark]
#[bench::of_one_version(versions())]
fn in_force(versions: &'static Versions) -> Option<&'static Arc<Policy>> {
    let version = black_box(versions).in_force(black_box(NOW), 1)?;
    version.as_ref().ok()
}

fn last_line(limits: usize) -> &'static Line {
    let line = account(limits, 2, JUST_NOW).1.expect("a line");
    warm((), |()| (encode_line(line), encode_totals(&line.totals)));
    line
}

#[library_benchmark(setup = last_line)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn encode_of_totals(line: &'static Line) -> String {
    encode_totals(black_box(&line.totals))
}

fn totals_text(limits: usize) -> &'static str {
    warm(encode_totals(&last_line(limits).totals), |text| {
        totals_of(text)
    })
}

#[library_benchmark(setup = totals_text)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn decode_of_totals(text: &'static str) -> Vec<Total> {
    totals_of(black_box(text)).expect("totals")
}

/// Redis' answer about a counter.
fn fields(limits: usize) -> Value {
    let line = last_line(limits);
    let text = |text: String| Value::BulkString(text.into_bytes());
    let fields = Value::Array(vec![
        text(line.number.to_string()),
        text(encode_line(line)),
        text(NOW.timestamp_millis().to_string()),
        text("1".to_owned()),
    ]);
    warm((), |()| decode_counter(fields.clone()));
    fields
}

#[library_benchmark(setup = fields)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn decode_of_a_counter(fields: Value) -> Option<Counter> {
    decode_counter(black_box(fields))
}

#[library_benchmark(setup = last_line)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn encode_of_a_line(line: &'static Line) -> String {
    encode_line(black_box(line))
}

const LEDGER: Uuid = Uuid::from_u128(1);
/// A text with the length of a script's hash.
const SETTLE_HASH: &str = "0123456789abcdef0123456789abcdef01234567";
/// The number of waiting claims at a busy moment.
const BATCH: u128 = 32;

fn accounts() -> impl Iterator<Item = AccountId> {
    (0..BATCH).map(|number| AccountId(Uuid::from_u128(number << 120)))
}

fn asks() -> &'static [Ask] {
    let ask = |account| Ask {
        account,
        looks_at_queue: false,
    };
    warm(accounts().map(ask).collect(), |asks: &'static Vec<Ask>| {
        commands::ask(LEDGER, asks)
    })
}

#[library_benchmark]
#[bench::of_32_claims(asks())]
fn encode_of_asks(asks: &'static [Ask]) -> Vec<Cmd> {
    commands::ask(LEDGER, black_box(asks))
}

fn settlements(limits: usize) -> &'static [Settlement] {
    let after = last_line(limits);
    let settlement = |account| Settlement {
        account,
        line: Line {
            number: after.number + 1,
            ..after.clone()
        },
        confirmed_at: NOW,
        only_existing: false,
        seen: Some(after.number),
        keys: SettledKeys::since(Some(after), vec![KeyId(Uuid::from_u128(7))]),
        ttl: Duration::from_secs(48 * 60 * 60),
    };
    let settlements: Vec<Settlement> = accounts().map(settlement).collect();
    warm(settlements, |settlements: &'static Vec<Settlement>| {
        encode_settlements(settlements)
    })
}

fn encode_settlements(settlements: &'static [Settlement]) -> Vec<Cmd> {
    let encode = |settlement| {
        let mut call = commands::script("EVALSHA", SETTLE_HASH);
        commands::settle(LEDGER, settlement, &mut call);
        call
    };
    settlements.iter().map(encode).collect()
}

#[library_benchmark(setup = settlements)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn encode_of_32_settlements(settlements: &'static [Settlement]) -> Vec<Cmd> {
    encode_settlements(black_box(settlements))
}

type Named = (Identity, PolicyName, Subject, IdempotencyKey);

fn named() -> &'static Named {
    keep((
        Identity::new(Uuid::from_u128(1), [7; 32]),
        PolicyName::new("benefit").expect("a name"),
        Subject::new("member-42").expect("a subject"),
        IdempotencyKey::parse("0198c0de-7a11-7c0f-8d3a-5c1f0e7b9a42").expect("a key"),
    ))
}

#[library_benchmark]
#[bench::member(named())]
fn account_id((identity, policy, subject, _): &'static Named) -> AccountId {
    black_box(identity).account(black_box(policy), black_box(subject))
}

#[library_benchmark]
#[bench::uuid(named())]
fn key_id((identity, policy, _, key): &'static Named) -> KeyId {
    black_box(identity).key(black_box(policy), black_box(key))
}

#[library_benchmark]
#[bench::of_now(NOW)]
fn entry_id(at: DateTime<Utc>) -> EntryId {
    EntryId::new(black_box(at), black_box(7), black_box(1 << 40))
}

fn parse(text: &str) -> Option<Claim> {
    let body: ClaimBody = try_parse_json(text.as_bytes()).ok()?;
    let (claim, _) = check_claim(body, KeyHeader(None), KeyNumber(1)).ok()?;
    Some(claim)
}

fn body(text: &'static str) -> &'static str {
    warm(text, |text| parse(text))
}

#[library_benchmark(setup = body)]
#[bench::of_a_subject(r#"{"subject":"member-42"}"#)]
#[bench::with_metadata(
    r#"{"subject":"member-42","units":2,"metadata":{"order":"A-17","lines":[1,2]}}"#
)]
fn claim_body(text: &'static str) -> Option<Claim> {
    parse(black_box(text))
}

fn grant(limits: usize) -> &'static Grant {
    let line = last_line(limits).clone();
    let grant = Grant {
        entry: Entry {
            account: AccountId(Uuid::from_u128(1)),
            id: EntryId::new(line.at, line.number, 7),
            kind: EntryKind::Grant { held_until: None },
            units: Units::ONE,
            key: None,
            metadata: None,
            provisional: None,
            would_deny: false,
            crossed: Levels::default(),
            bundle: None,
            is_erased: false,
            claimed_by: None,
            note: None,
            line,
        },
        policy: PolicyName::new("benefit").expect("a name"),
        subject: Some("member-42".to_owned()),
        followers: Followers::default(),
    };
    warm(grant, render)
}

fn render(grant: &'static Grant) -> HttpResponse {
    let mut response = HttpResponse::Created();
    let forecast = Forecast::default();
    insert_fields(&mut response, &grant.entry.line.totals, &[], &forecast, NOW);
    respond(ClaimAnswer::of(grant, &forecast, NOW), response)
}

#[library_benchmark(setup = grant)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn grant_answer(grant: &'static Grant) -> HttpResponse {
    render(black_box(grant))
}

fn denial(limits: usize) -> &'static Denial {
    let (policy, last) = account(limits, 3, JUST_NOW);
    let denial = Denial {
        own_units: 1,
        asked: Asked {
            policy: Arc::new(policy.clone()),
            subject: "member-42".to_owned(),
            units: Units::ONE,
            now: NOW,
        },
        shared: Box::default(),
        totals: last.expect("a line").totals.to_vec().into(),
        forecast: Forecast::default(),
    };
    warm(denial, Denial::response)
}

#[library_benchmark(setup = denial)]
#[bench::of_1_limit(1)]
#[bench::of_3_limits(3)]
fn denial_answer(denial: &'static Denial) -> HttpResponse {
    black_box(denial).response()
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        window,
        decision,
        in_force,
        encode_of_totals,
        decode_of_totals,
        encode_of_a_line,
        decode_of_a_counter,
        encode_of_asks,
        encode_of_32_settlements,
        account_id,
        key_id,
        entry_id,
        claim_body,
        grant_answer,
        denial_answer,
    ]
);

main!(library_benchmark_groups = hot_paths);
