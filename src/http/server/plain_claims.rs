//! The short way of plain claims. Nearly every claim arrives whole, with fields that change nothing,
//! and a key that this instance knows. The connection begins such a claim itself and writes the
//! answer: actix never sees it. Every other request goes to actix as it came, and so does a claim that
//! would be refused for its key, its fields or its body.
//!
//! Invariant: both ways give the same answer, because they check, decide and answer with the same
//! functions.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::Method;
use actix_web::http::header::{CONNECTION, HeaderValue};
use actix_web::web::Bytes;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::every::{complete, log_end, logs_details};
use super::exchange::{AtWork, Exchange};
use super::plain_head::PlainHead;
use super::request_id::RequestId;
use super::written::AnswerWriter;
use crate::request::{Claimer, KeyHeader, Wanted, try_parse_json};
use crate::v1::claims::{check_claim, decide};
use domain::claim::Claim;
use domain::policy::PolicyName;
use engine::{Authority, Engine, Principal};
use host::faults::reach;

/// The URL of claims, as the log has it.
const CLAIMS: &str = "/v1/policies/{policy}/claims";

/// Begins plain claims, for the connections of one thread.
pub struct PlainClaims {
    engine: Arc<Engine>,
    /// The plain claims that are not decided. When it is closed, no other one begins.
    in_progress: TaskTracker,
    writer: RefCell<AnswerWriter>,
}

/// A plain claim in progress.
pub struct PlainClaim {
    /// The length of the request in bytes.
    pub length: usize,
    /// Ends with the bytes of the answer. `None` when it has ended.
    pub answering: Option<Pin<Box<dyn Future<Output = Bytes>>>>,
    /// The request is in progress until its answer is written.
    _at_work: AtWork,
}

impl PlainClaims {
    pub fn new(engine: Arc<Engine>, in_progress: TaskTracker) -> Rc<Self> {
        Rc::new(Self {
            engine,
            in_progress,
            writer: RefCell::default(),
        })
    }

    /// Begins the claim that these bytes start with; `None` if the request is another one, or is not
    /// plain.
    pub fn begin(self: &Rc<Self>, bytes: &[u8], exchange: &Rc<Exchange>) -> Option<PlainClaim> {
        let in_progress = self.in_progress.token();
        if self.in_progress.is_closed() || logs_details() {
            return None;
        }
        // 1. Read the request.
        let head = PlainHead::read(bytes)?;
        let end = head.length.checked_add(head.body_length)?;
        let body = bytes.get(head.length..end)?;
        // 2. Check the caller.
        let policy = PolicyName::new(head.policy).ok()?;
        let principal = self.engine.callers.known(head.secret)?;
        if !Claimer::ROLES.contains(&principal.role) || !principal.may_use(&policy) {
            return None;
        }
        // 3. Check the claim.
        let key = head
            .key
            .map_or(Ok(KeyHeader(None)), KeyHeader::parse)
            .ok()?;
        let body = try_parse_json(body).ok()?;
        let (claim, is_dry_run) = check_claim(body, key, principal.number).ok()?;
        if is_dry_run {
            return None;
        }
        // 4. Begin.
        reach("http.plain_claim");
        let authority = Authority::new(&self.engine.callers, principal.clone());
        exchange.note_key(Some(authority));
        let id = RequestId::of(head.request_id, head.traceparent);
        let answering = self
            .clone()
            .answer(principal, policy, claim, id, in_progress);
        Some(PlainClaim {
            length: end,
            answering: Some(Box::pin(answering)),
            _at_work: AtWork::begin_whole(exchange.clone()),
        })
    }

    async fn answer(
        self: Rc<Self>,
        principal: Principal,
        policy: PolicyName,
        claim: Claim,
        id: RequestId,
        _in_progress: TaskTrackerToken,
    ) -> Bytes {
        let decided = decide(&self.engine.claims, &principal.key, policy, claim).await;
        let answer = match decided {
            Ok(granted) => granted.response(),
            Err(error) => HttpResponse::from_error(error),
        };
        log_end(&Method::POST, CLAIMS, &id, &answer);
        let mut answer = complete(answer, &id);
        if self.in_progress.is_closed() {
            let headers = answer.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.writer.borrow_mut().write(answer)
    }
}
