//! The answers to nearly every claim: a plain grant, without optional fields, and a denial. serde writes
//! the same bytes with three times as many instructions.

use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use chrono::{DateTime, Utc};

use api::claims::DenialBody;
use api::grants::{ClaimAnswer, GrantBody};
use api::instant;
use api::limits::LimitUsage;

const JSON: (HeaderName, HeaderValue) =
    (CONTENT_TYPE, HeaderValue::from_static("application/json"));

/// The bytes of such an answer with one or two limits.
const LENGTH: usize = 512;

/// Ends the answer to a granted claim.
pub fn respond(answer: ClaimAnswer, mut response: HttpResponseBuilder) -> HttpResponse {
    match write_plain(&answer) {
        Some(json) => response.insert_header(JSON).body(json),
        None => response.json(answer),
    }
}

/// The answer as JSON; `None` where it has optional fields, which serde writes.
///
/// Invariant: the bytes are those that serde writes. The patterns name every field of the
/// answer, so a new field does not compile until it is written here too.
fn write_plain(answer: &ClaimAnswer) -> Option<Vec<u8>> {
    // 1. Leave every answer with an optional field to serde.
    let ClaimAnswer {
        outcome,
        provisional: false,
        would_deny: false,
        grant: Some(grant),
        fits_at: None,
        limits,
        total,
    } = answer
    else {
        return None;
    };
    if !total.is_empty() {
        return None;
    }
    // 2. Write the outcome and the grant. A grant with optional fields ends this too.
    let mut out = Vec::with_capacity(LENGTH);
    out.extend_from_slice(br#"{"outcome":""#);
    out.extend_from_slice(outcome.as_bytes());
    out.extend_from_slice(br#"","grant":"#);
    write_grant(&mut out, grant)?;
    // 3. Write the limits, in the policy's order.
    write_limits(&mut out, "limits", limits);
    out.push(b'}');
    Some(out)
}

/// A denial as JSON.
///
/// Invariant: as that of [`write_plain`].
pub fn write_denial(denial: &DenialBody) -> Vec<u8> {
    let DenialBody {
        kind,
        code,
        title,
        status,
        detail,
        page,
        request_id,
        trace_id,
        outcome,
        policy,
        subject,
        fits_at,
        violated_policies,
        limits,
        total,
    } = denial;
    let mut out = Vec::with_capacity(2 * LENGTH);
    out.extend_from_slice(br#"{"type":"#);
    write_text(&mut out, kind);
    out.extend_from_slice(br#","code":"#);
    write_text(&mut out, code);
    out.extend_from_slice(br#","title":"#);
    write_text(&mut out, title);
    out.extend_from_slice(br#","status":"#);
    write_number(&mut out, (*status).into());
    out.extend_from_slice(br#","detail":"#);
    write_text(&mut out, detail);
    out.extend_from_slice(br#","page":"#);
    write_text(&mut out, page);
    if let Some(request_id) = request_id {
        out.extend_from_slice(br#","request_id":"#);
        write_text(&mut out, request_id);
    }
    if let Some(trace_id) = trace_id {
        out.extend_from_slice(br#","trace_id":"#);
        write_text(&mut out, trace_id);
    }
    out.extend_from_slice(br#","outcome":"#);
    write_text(&mut out, outcome);
    out.extend_from_slice(br#","policy":"#);
    write_text(&mut out, policy);
    out.extend_from_slice(br#","subject":"#);
    write_text(&mut out, subject);
    out.extend_from_slice(br#","fits_at":"#);
    write_instant(&mut out, *fits_at);
    out.extend_from_slice(br#","violated-policies":["#);
    for (index, limit) in violated_policies.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(&mut out, limit);
    }
    out.push(b']');
    write_limits(&mut out, "limits", limits);
    if !total.is_empty() {
        write_limits(&mut out, "total", total);
    }
    out.push(b'}');
    out
}

fn write_limits(out: &mut Vec<u8>, field: &str, limits: &[LimitUsage]) {
    out.extend_from_slice(br#",""#);
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(br#"":["#);
    for (index, limit) in limits.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_limit(out, limit);
    }
    out.push(b']');
}

fn write_grant(out: &mut Vec<u8>, grant: &GrantBody) -> Option<()> {
    let GrantBody {
        id,
        policy,
        policy_version,
        subject: Some(subject),
        units,
        returned_units: 0,
        topped_up_units: 0,
        state,
        granted_at,
        provisional: false,
        over: false,
        would_deny: false,
        crossed,
        bundle: None,
        held_until: None,
        confirmation: None,
        reversal: None,
        metadata: None,
    } = grant
    else {
        return None;
    };
    if !crossed.is_empty() {
        return None;
    }
    // The fields, in the order in which serde writes them.
    let mut id_text = uuid::Uuid::encode_buffer();
    let id_text = id.hyphenated().encode_lower(&mut id_text);
    out.extend_from_slice(br#"{"id":""#);
    out.extend_from_slice(id_text.as_bytes());
    out.extend_from_slice(br#"","policy":"#);
    write_text(out, policy);
    out.extend_from_slice(br#","policy_version":"#);
    write_number(out, (*policy_version).into());
    out.extend_from_slice(br#","subject":"#);
    write_text(out, subject);
    out.extend_from_slice(br#","units":"#);
    write_number(out, *units);
    out.extend_from_slice(br#","state":""#);
    out.extend_from_slice(state.as_bytes());
    out.extend_from_slice(br#"","granted_at":""#);
    instant::write(out, *granted_at);
    out.extend_from_slice(br#"","metadata":null}"#);
    Some(())
}

fn write_limit(out: &mut Vec<u8>, limit: &LimitUsage) {
    let LimitUsage {
        per,
        kind,
        max,
        used,
        remaining,
        window_start,
        more_at,
        resets_at,
    } = limit;
    out.extend_from_slice(br#"{"per":""#);
    out.extend_from_slice(per.as_text().as_bytes());
    out.extend_from_slice(br#"","kind":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","max":"#);
    write_number(out, *max);
    out.extend_from_slice(br#","used":"#);
    write_number(out, *used);
    out.extend_from_slice(br#","remaining":"#);
    write_number(out, *remaining);
    out.extend_from_slice(br#","window_start":"#);
    write_instant(out, *window_start);
    out.extend_from_slice(br#","more_at":"#);
    let written_from = out.len();
    write_instant(out, *more_at);
    let written = written_from..out.len();
    out.extend_from_slice(br#","resets_at":"#);
    // In a window of the calendar both instants are the same: the text is copied.
    if more_at == resets_at {
        out.extend_from_within(written)
    } else {
        write_instant(out, *resets_at)
    }
    out.push(b'}');
}

fn write_instant(out: &mut Vec<u8>, instant: Option<DateTime<Utc>>) {
    let Some(instant) = instant else {
        out.extend_from_slice(b"null");
        return;
    };
    out.push(b'"');
    instant::write(out, instant);
    out.push(b'"');
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text is written as JSON");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use api::claims::QUOTA_EXCEEDED_TYPE;

    fn instants() -> impl Strategy<Value = DateTime<Utc>> {
        let micros = -62_167_219_200_000_000_i64..=253_402_300_799_999_999;
        micros.prop_map(|micros| DateTime::from_timestamp_micros(micros).unwrap())
    }

    prop_compose! {
        fn limits()(
            per in prop_oneof![Just("day"), Just("month"), Just("ever"), Just("90s")],
            kind in prop_oneof![Just("calendar".into()), Just("sliding".into())],
            max: u64,
            used: u64,
            window_start in proptest::option::of(instants()),
            more_at in proptest::option::of(instants()),
            resets_at in proptest::option::of(instants()),
        ) -> LimitUsage {
            let remaining = max.saturating_sub(used);
            let per = per.parse().unwrap();
            LimitUsage { per, kind, max, used, remaining, window_start, more_at, resets_at }
        }
    }

    prop_compose! {
        fn answers()(
            id: u128,
            policy in "[a-z0-9][a-z0-9-]{0,62}",
            policy_version: u32,
            subject in proptest::option::weighted(0.9, any::<String>()),
            units: u64,
            granted_at in instants(),
            rare in proptest::array::uniform6(proptest::bool::weighted(0.1)),
            held_until in proptest::option::weighted(0.1, instants()),
            limits in proptest::collection::vec(limits(), 0..4),
        ) -> ClaimAnswer {
            let grant = GrantBody {
                returned_units: 0,
        topped_up_units: 0,
                id: Uuid::from_u128(id),
                policy,
                policy_version,
                subject,
                units,
                state: "granted".into(),
                granted_at,
                provisional: rare[0],
                over: rare[1],
                would_deny: rare[2],
                crossed: if rare[4] { vec![80, 100] } else { Vec::new() },
                bundle: rare[5].then_some(Uuid::nil()),
                held_until,
                confirmation: None,
                reversal: None,
                metadata: None,
            };
            ClaimAnswer {
                outcome: "granted".into(),
                provisional: rare[0],
                would_deny: rare[2],
                grant: (!rare[3]).then_some(grant),
                fits_at: None,
                limits,
                total: Vec::new(),
            }
        }
    }

    prop_compose! {
        fn denials()(
            detail: String,
            request_id in proptest::option::of("[a-z]{1,9}"),
            trace_id in proptest::option::of("[0-9a-f]{32}"),
            policy in "[a-z0-9][a-z0-9-]{0,62}",
            subject: String,
            fits_at in proptest::option::of(instants()),
            limits in proptest::collection::vec(limits(), 0..4),
            total in proptest::collection::vec(limits(), 0..2),
        ) -> DenialBody {
            DenialBody {
                kind: QUOTA_EXCEEDED_TYPE.into(),
                code: "quota-exceeded".into(),
                title: "Quota exceeded".into(),
                status: 429,
                detail,
                page: "/docs/problems#quota-exceeded".into(),
                request_id,
                trace_id,
                outcome: "denied".into(),
                policy,
                subject,
                fits_at,
                violated_policies: limits.iter().map(|limit| limit.per.to_string()).collect(),
                limits,
                total,
            }
        }
    }

    proptest! {
        #[test]
        fn denials_are_what_serde_writes(denial in denials()) {
            let written = String::from_utf8(write_denial(&denial)).unwrap();
            prop_assert_eq!(written, serde_json::to_string(&denial).unwrap());
        }

        #[test]
        fn plain_answers_are_what_serde_writes(answer in answers()) {
            let is_plain = || {
                let grant = answer.grant.as_ref()?;
                let is_marked = grant.provisional
                    || grant.over
                    || grant.would_deny
                    || !grant.crossed.is_empty();
                let says_more = is_marked || grant.bundle.is_some() || grant.held_until.is_some();
                (!says_more && grant.subject.is_some()).then_some(())
            };
            let written = write_plain(&answer).map(|json| String::from_utf8(json).unwrap());
            let expected = is_plain().map(|()| serde_json::to_string(&answer).unwrap());
            prop_assert_eq!(&written, &expected);
            // What is read from these bytes is written with the same bytes.
            let json = serde_json::to_string(&answer).unwrap();
            let read: ClaimAnswer = api::read(&serde_json::from_str(&json).unwrap()).unwrap();
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
    }
}
