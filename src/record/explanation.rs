//! Explanations: how a claim was or would be decided at an instant, from what was known at another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::cut::{NeededEntries, check_cut};
use crate::history::AsOf;
use crate::listed::Misfit;
use crate::{ListFailure, Record};
use claims::once_foreknown;
use claims::protocol::once_known;
use domain::account::{UnitsAsked, Verdict, instant_after, own_units};
use domain::account_facts::AccountFacts;
use domain::claim::{Subject, Units};
use domain::correction::Hold;
use domain::explanation::{Explanation, TermsThen};
use domain::forecast::{ClaimAhead, Forecast, Foreknown, foresee};
use domain::grant::{Followers, Grant, Line};
use domain::identity::AccountId;
use domain::limit::total::Total;
use domain::local_days::LocalDays;
use domain::policy::{Policy, PolicyName};
use domain::record::{Mark, RecordPlace};
use domain::refusal::{DeniedClaim, Refusal};
use domain::shared::{SharedTotal, SharedUse};
use domain::zone::Zone;
use ledger::{LedgerError, ListedEntry, SummedUpTo, check_window};

/// The most entries that are listed for a total.
const ENTRIES_MOST: u32 = 1000;

/// A claim to explain.
#[derive(Debug, Clone)]
pub struct ClaimQuery {
    pub policy: PolicyName,
    pub subject: Subject,
    /// The instant of the claim; `None` means now.
    pub at: Option<DateTime<Utc>>,
    /// What was known; `None` means everything that is committed.
    pub known_at: Option<AsOf>,
    pub units: Units,
}

/// An entry, with its position if it has one.
#[derive(Debug)]
pub struct PlacedEntry {
    pub position: Option<u64>,
    /// The policy's time zone at the instant in whose windows the units count.
    pub zone: Option<Zone>,
    pub listed: ListedEntry,
}

/// A limit, with the entries behind its total.
#[derive(Debug)]
pub struct LimitThen {
    pub total: Total,
    /// How many entries and lapsed holds count in the window. At most 1,000 of them are listed.
    pub count: u64,
    /// Holds that had lapsed before any entry said so.
    pub lapsed: Vec<Hold>,
    /// Entries, newest first.
    pub newest: Vec<PlacedEntry>,
}

/// The terms and the limits in force.
#[derive(Debug)]
pub struct LimitsThen {
    pub terms: TermsThen,
    pub limits: Vec<LimitThen>,
    /// The limits that all subjects share. Empty for a grant: it tells nothing of them.
    pub shared: Vec<SharedTotal>,
}

/// The explanation of a claim.
#[derive(Debug)]
pub struct ExplainedClaim {
    pub at: DateTime<Utc>,
    /// The last position that was used; `None` if all were.
    pub known_at: Option<u64>,
    /// `None` if no version of the policy was in force.
    pub met: Option<(LimitsThen, Verdict)>,
    /// What was foretold at that instant.
    pub forecast: Forecast,
}

/// The explanation of a grant: its decision, and later entries about it.
#[derive(Debug)]
pub struct ExplainedGrant {
    /// The grant, with its state at `known_until`.
    pub grant: Grant,
    /// The instant up to which entries were known.
    pub known_until: DateTime<Utc>,
    pub known_at: Option<u64>,
    pub entry: PlacedEntry,
    /// The entries that name the grant, oldest first.
    pub since: Vec<PlacedEntry>,
    /// The limits before the grant.
    pub met: LimitsThen,
}

/// The part of the record that an explanation uses.
struct Knowledge {
    up_to: RecordPlace,
    position: Option<u64>,
    until: DateTime<Utc>,
}

impl Record {
    /// Explains how a claim would be decided.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn explain_claim(
        self: &Arc<Self>,
        query: ClaimQuery,
    ) -> Result<ExplainedClaim, ListFailure> {
        let record = self.clone();
        let work = async move { record.read_claim(&query).await };
        self.instance.detached(work).await?
    }

    /// Explains a grant. `None` if the grant was not known yet.
    ///
    /// # Errors
    /// [`ListFailure`].
    pub async fn explain_grant(
        self: &Arc<Self>,
        grant: Grant,
        known_at: Option<AsOf>,
    ) -> Result<Option<ExplainedGrant>, ListFailure> {
        let record = self.clone();
        let work = async move { record.read_grant(grant, known_at).await };
        self.instance.detached(work).await?
    }

    async fn read_claim(&self, query: &ClaimQuery) -> Result<ExplainedClaim, ListFailure> {
        let policy = self.listed_policy(&query.policy).await?;
        let now = self.instance.clock.now();
        if query.at.is_some_and(|at| at > now) {
            return Err(ListFailure::Misfit("at", Misfit::InstantToCome));
        }
        let knowledge = self.knowledge(query.known_at).await?;
        let account = self
            .instance
            .account_in_view(&policy.name, &query.subject)
            .await?;
        let up_to = knowledge.up_to;
        let last = self
            .ledger
            .record()
            .line_then(account, query.at, up_to)
            .await?;
        let cut_at = self.ledger.record().cut_at(account).await?;
        if last.is_none() && cut_at.is_some() {
            return Err(lines_are_gone(cut_at).into());
        }
        let last = last.as_ref();
        let at = query.at.unwrap_or_else(|| instant_after(last, now));
        let versions = self
            .ledger
            .record()
            .known_versions(&policy.name, up_to)
            .await?;
        let exceptions = self
            .ledger
            .record()
            .known_exceptions(account, up_to)
            .await?;
        let course = TermsThen::course(&versions, &exceptions, last, at);
        let mut known = Arc::default();
        let ledger = &self.claims.ledger;
        let mut claim = ClaimAhead::from(UnitsAsked::from(query.units));
        let foretell = async |claim: &ClaimAhead, known: &mut Arc<Foreknown>| {
            let foresee = |known: &Foreknown| foresee(&course, last, known, Some(claim), at);
            once_foreknown(ledger, account, last, known, foresee).await
        };
        let mut forecast = foretell(&claim, &mut known).await?;
        let met = match TermsThen::of_claim(&versions, &exceptions, last, at) {
            None => None,
            Some(terms) => {
                let up_to = SummedUpTo { at, place: up_to };
                let shared = self.shared_then(&terms, &versions, up_to).await?;
                let explanation = once_known(&self.claims.ledger, account, last, at, |known| {
                    let known = AccountFacts {
                        shared: shared.clone(),
                        ..known.clone()
                    };
                    terms.explain(account, last, &known, at, query.units)
                });
                let explanation = explanation.await?;
                let Explanation {
                    totals,
                    shared,
                    lapsed,
                    verdict,
                } = explanation;
                if let Verdict::Refused(Refusal::Denied(denied)) = &verdict
                    && denied.has_own_room()
                {
                    claim.shared = denied.shared.clone();
                    forecast = foretell(&claim, &mut known).await?;
                }
                let verdict = match verdict {
                    // The units fit one day: the claim is denied like every other.
                    Verdict::Refused(Refusal::NeverFits { .. }) if forecast.fits_at.is_some() => {
                        Verdict::Refused(Refusal::Denied(DeniedClaim {
                            own_units: own_units(query.units, last, at),
                            totals: totals.clone().into(),
                            last: last.cloned(),
                            shared: Box::default(),
                        }))
                    }
                    verdict => verdict,
                };
                let behind = (account, last, &LocalDays::of(&versions));
                let limits = self.limits_then(behind, totals, &lapsed, at).await?;
                let met = LimitsThen {
                    terms,
                    limits,
                    shared,
                };
                Some((met, verdict))
            }
        };
        Ok(ExplainedClaim {
            at,
            known_at: knowledge.position,
            met,
            forecast,
        })
    }

    /// The usage of the limits that all subjects share, up to an instant and a place of the record.
    async fn shared_then(
        &self,
        terms: &TermsThen,
        versions: &[Policy],
        up_to: SummedUpTo,
    ) -> Result<Arc<SharedUse>, ListFailure> {
        let record = self.ledger.record();
        let totals = terms.shared_windows(up_to.at);
        let mut then = SharedUse::new();
        for total in &totals {
            let sum = record.shared_sum(&total.key, total.ends_at, up_to).await?;
            then.insert(total.key, sum);
        }
        let begun = totals.iter().map(|total| total.begun_at(versions));
        if let (Some(begun), Some(policy)) = (begun.min(), versions.first()) {
            let needed = NeededEntries::OfPolicy(policy.id);
            check_cut(&self.ledger, RecordPlace::FIRST, Some(begun), needed).await?;
        }
        Ok(then.into())
    }

    async fn read_grant(
        &self,
        mut grant: Grant,
        known_at: Option<AsOf>,
    ) -> Result<Option<ExplainedGrant>, ListFailure> {
        let knowledge = self.knowledge(known_at).await?;
        let mut life = self.ledger.record().life_of(&grant.entry).await?;
        // The grant may have been dropped since it was found.
        let is_first = life
            .first()
            .is_some_and(|first| first.entry.id == grant.entry.id);
        if !is_first && self.claims.ledger.is_dropped(grant.entry.id).await? {
            return Err(LedgerError::Archived(LINES_ARE_DROPPED.to_owned()).into());
        }
        life.retain(|listed| listed.place <= knowledge.up_to);
        let Some(first) = life.first() else {
            return Ok(None);
        };
        let entry = &grant.entry;
        let last = self.ledger.record().line_before(entry).await?;
        if last.is_none() && entry.line.number > 1 {
            return Err(lines_are_gone(self.ledger.record().cut_at(entry.account).await?).into());
        }
        let last = last.as_ref();
        let versions = self
            .ledger
            .record()
            .known_versions(&grant.policy, RecordPlace::LAST)
            .await?;
        let up_to = first.place;
        let exceptions = self
            .ledger
            .record()
            .known_exceptions(entry.account, up_to)
            .await?;
        let terms = TermsThen::of_grant(&versions, &exceptions, &entry.line);
        let terms = terms.ok_or_else(|| {
            LedgerError::Corrupt("a grant has a version that its policy does not have".to_owned())
        })?;
        let account = entry.account;
        let at = entry.counted_at();
        let totals = once_known(&self.claims.ledger, account, last, at, |known| {
            terms.before(entry, last, &known.past)
        });
        let days = LocalDays::of(&versions);
        let behind = (account, last, &days);
        let limits = self.limits_then(behind, totals.await?, &[], at).await?;
        grant.followers = Followers::among(entry.id, life.iter().map(|listed| &listed.entry));
        let positions = self.positions_of(life.iter()).await?;
        let mut since = place(life, &positions, &days);
        Ok(Some(ExplainedGrant {
            entry: since.remove(0),
            since,
            grant,
            known_until: knowledge.until,
            known_at: knowledge.position,
            met: LimitsThen {
                terms,
                limits,
                shared: Vec::new(),
            },
        }))
    }

    async fn knowledge(&self, known_at: Option<AsOf>) -> Result<Knowledge, ListFailure> {
        let Some(as_of) = known_at else {
            return Ok(Knowledge {
                up_to: RecordPlace::LAST,
                position: None,
                until: self.instance.clock.now(),
            });
        };
        let Mark {
            position,
            place,
            recorded_at,
            ..
        } = self.mark_as_of("known_at", as_of).await?;
        Ok(Knowledge {
            up_to: place,
            position: Some(position),
            until: match as_of {
                AsOf::Instant(instant) => instant,
                AsOf::Position(_) => recorded_at,
            },
        })
    }

    /// Adds to each total the entries behind it: those of an account up to a line, with the local days
    /// of its policy.
    async fn limits_then(
        &self,
        (account, last, days): (AccountId, Option<&Line>, &LocalDays<'_>),
        totals: Vec<Total>,
        lapsed: &[Hold],
        at: DateTime<Utc>,
    ) -> Result<Vec<LimitThen>, LedgerError> {
        let mut read = Vec::with_capacity(totals.len());
        for total in totals {
            let span = total.span(at);
            let counted = match last {
                Some(line) => {
                    let counted = self
                        .ledger
                        .record()
                        .counted_in(account, line, span, ENTRIES_MOST)
                        .await;
                    counted?
                }
                None => (0, Vec::new()),
            };
            read.push((total, span, counted));
        }
        // After the entries: some may be dropped while they are read.
        let cut_at = self.ledger.record().cut_at(account).await?;
        for (_, span, _) in &read {
            check_window(cut_at, *span)?;
        }
        let all = read.iter().flat_map(|(_, _, (_, newest))| newest);
        let positions = self.positions_of(all).await?;
        let most = ENTRIES_MOST as usize;
        let limits = read.into_iter().map(|(total, span, (count, mut newest))| {
            let counts = |hold: &&Hold| span.contains(hold.grant.at());
            let mut lapsed: Vec<Hold> = lapsed.iter().filter(counts).cloned().collect();
            let count = count + lapsed.len() as u64;
            lapsed.truncate(most);
            newest.truncate(most - lapsed.len());
            LimitThen {
                total,
                count,
                lapsed,
                newest: place(newest, &positions, days),
            }
        });
        Ok(limits.collect())
    }

    /// The positions of entries. An entry that was just committed has none yet.
    async fn positions_of(
        &self,
        listed: impl Iterator<Item = &ListedEntry>,
    ) -> Result<BTreeMap<RecordPlace, u64>, LedgerError> {
        let covered = self.ledger.record().last_mark().await?.place;
        let places = listed.map(|listed| listed.place);
        let places: BTreeSet<RecordPlace> = places.filter(|place| *place <= covered).collect();
        let found = self
            .ledger
            .record()
            .positions(places.iter().copied())
            .await?;
        let found = found.into_iter().map(|(position, _)| position);
        Ok(places.into_iter().zip(found).collect())
    }
}

const LINES_ARE_DROPPED: &str =
    "the entries that explain this were archived and dropped: look for them in the archive";

/// The error that the line was dropped, or is missing without a cut.
fn lines_are_gone(cut_at: Option<DateTime<Utc>>) -> LedgerError {
    match cut_at {
        Some(_) => LedgerError::Archived(LINES_ARE_DROPPED.to_owned()),
        None => LedgerError::Corrupt("the line before an entry is gone".to_owned()),
    }
}

fn place(
    listed: Vec<ListedEntry>,
    positions: &BTreeMap<RecordPlace, u64>,
    days: &LocalDays<'_>,
) -> Vec<PlacedEntry> {
    let entries = listed.into_iter().map(|listed| PlacedEntry {
        position: positions.get(&listed.place).copied(),
        zone: days.zone(listed.entry.counted_at()).cloned(),
        listed,
    });
    entries.collect()
}
