//! Checks the ledger itself: the accounts of a part of it, from the first to the last, or the entries that are
//! new.

use super::findings::Findings;
use claims::instance::Pace;
use domain::audit::{AccountAudit, Flaw};
use domain::claim::Subject;
use domain::grant::Entry;
use domain::identity::AccountId;
use domain::past::Past;
use domain::reconciliation::{Difference, DifferenceKind, LedgerPart};
use ledger::{Audited, Ledger, LedgerError};

/// The number of entries, or accounts, in one read.
const PAGE: u32 = 500;

/// The account that is being checked.
struct Account {
    id: AccountId,
    audit: AccountAudit,
    is_foreign: bool,
}

/// Checks the entries of the accounts of a part, page by page, and that each account has entries. Entries
/// that are appended behind the walk are checked by the next reconciliation.
///
/// # Errors
/// [`LedgerError::Unavailable`].
pub async fn walk(
    ledger: &Ledger,
    part: LedgerPart,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let walked = match walk_entries(ledger, part, findings).await {
        Ok(()) => walk_accounts(ledger, part, findings).await,
        Err(error) => Err(error),
    };
    or_unreadable(walked, findings)
}

/// Checks the entries above a position of the record, in the order of the record. Those up to it were checked,
/// and are believed.
///
/// # Errors
/// [`LedgerError::Unavailable`].
pub async fn walk_recent(
    ledger: &Ledger,
    after: u64,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let walked = walk_record(ledger, after, findings).await;
    or_unreadable(walked, findings)
}

/// A walk cannot continue after a row whose position cannot be read.
fn or_unreadable(
    walked: Result<(), LedgerError>,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let Err(LedgerError::Corrupt(_)) = walked else {
        return walked;
    };
    findings.add(Difference {
        kind: DifferenceKind::UnreadableEntry,
        account: None,
        figure: None,
        found: None,
        expected: None,
        windows: Vec::new(),
        is_healed: false,
    });
    Ok(())
}

async fn walk_entries(
    ledger: &Ledger,
    part: LedgerPart,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let mut after = (part.first, 0);
    let mut account = None;
    loop {
        let pace = Pace::begin();
        let page = ledger.audit().audited(after, part.last, PAGE).await?;
        for row in &page {
            check(row, &mut account, ledger, findings).await?;
        }
        let Some(last) = page.last().filter(|_| is_full(&page)) else {
            return Ok(());
        };
        after = (last.account, last.number);
        pace.rest().await;
    }
}

async fn walk_record(
    ledger: &Ledger,
    after: u64,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let mut before = ledger.record().mark_to(after).await?;
    loop {
        let pace = Pace::begin();
        let next = before.position + 1;
        let marks = ledger
            .record()
            .marks_to_follow(next..next + u64::from(PAGE))
            .await?;
        let Some(last) = marks.last() else {
            return Ok(());
        };
        let audit = ledger.audit();
        let recent = audit.audited_recent(before.place, last.place).await?;
        let mut account = None;
        for row in &recent {
            check(row, &mut account, ledger, findings).await?;
        }
        before = *last;
        pace.rest().await;
    }
}

/// Whether another page may follow.
fn is_full<T>(page: &[T]) -> bool {
    page.len() == PAGE as usize
}

/// Checks an entry: the next one of the account, or the first one of another account.
async fn check(
    row: &Audited,
    account: &mut Option<Account>,
    ledger: &Ledger,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    let current = match account.take() {
        Some(account) if account.id == row.account => account,
        _ => {
            findings.tally.accounts += 1;
            let mut audit = AccountAudit::default();
            // The entry before the first one to check is missing, and was not dropped.
            if row.since > 1 && row.number >= row.since && !row.is_after_cut {
                audit.begin_after(row.since - 2, None);
            }
            Account {
                id: row.account,
                audit,
                is_foreign: false,
            }
        }
    };
    let current = account.insert(current);
    if row.number < row.since {
        let line = row.entry.as_ref().ok().map(|entry| entry.line.clone());
        current.audit.begin_after(row.number, line);
        return Ok(());
    }
    current.check(row, ledger, findings).await
}

/// Checks that every account has entries. An account is opened with its first entry, so an account
/// without entries lost them.
async fn walk_accounts(
    ledger: &Ledger,
    mut part: LedgerPart,
    findings: &mut Findings,
) -> Result<(), LedgerError> {
    loop {
        let pace = Pace::begin();
        let page = ledger.audit().opened(part, PAGE).await?;
        for (account, has_entry) in &page {
            if !has_entry {
                findings.add(alarm(DifferenceKind::Gap, *account, None, Some(1)));
            }
        }
        let last = page.last().filter(|_| is_full(&page));
        let Some(next) = last.and_then(|(last, _)| last.next()) else {
            return Ok(());
        };
        part.first = next;
        pace.rest().await;
    }
}

impl Account {
    async fn check(
        &mut self,
        row: &Audited,
        ledger: &Ledger,
        findings: &mut Findings,
    ) -> Result<(), LedgerError> {
        // 1. The account must be the one of the policy and subject of the entry.
        findings.tally.entries += 1;
        let number = Some(row.number);
        if !self.is_foreign && !belongs(row, ledger) {
            // One alarm for each account: the other entries have the same writer.
            self.is_foreign = true;
            findings.add(alarm(DifferenceKind::ForeignEntry, self.id, number, None));
        }
        // 2. If older entries were dropped, the check starts after them.
        if row.is_after_cut {
            self.audit.begin_after_cut(row.number);
        }
        // 3. The totals, the number and the instant must follow from the entry before.
        let flaws = match &row.entry {
            Ok(entry) => self.check_entry(entry, ledger).await?,
            Err(_) => {
                findings.add(alarm(
                    DifferenceKind::UnreadableEntry,
                    self.id,
                    number,
                    None,
                ));
                self.audit.pass_over(row.number)
            }
        };
        // 4. Each flaw is an alarm.
        for flaw in flaws {
            findings.add(match flaw {
                Flaw::Gap(expected) => alarm(DifferenceKind::Gap, self.id, number, Some(expected)),
                Flaw::TimeBackwards => {
                    alarm(DifferenceKind::TimeBackwards, self.id, number, number)
                }
                Flaw::WrongCalendar => {
                    alarm(DifferenceKind::WrongCalendar, self.id, number, number)
                }
                Flaw::WrongTopUps => alarm(DifferenceKind::WrongTopUps, self.id, number, number),
                Flaw::WrongTotals(windows) => Difference {
                    windows,
                    ..alarm(DifferenceKind::WrongTotal, self.id, number, number)
                },
            });
        }
        Ok(())
    }

    async fn check_entry(
        &mut self,
        entry: &Entry,
        ledger: &Ledger,
    ) -> Result<Vec<Flaw>, LedgerError> {
        let mut past = Past::default();
        // One part of the past may lead to a question for another part: first the tail of a limit,
        // then a grant.
        while let Some((line, wanted)) = self.audit.unknown(entry, &past) {
            let mut was_told = false;
            for part in wanted.parts() {
                match ledger.claims().past(self.id, Some(line), &part).await {
                    Ok(told) => {
                        past.extend(told);
                        was_told = true;
                    }
                    // Dropped entries may count in this part: the total is taken as it is.
                    Err(LedgerError::Archived(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if !was_told {
                break;
            }
        }
        Ok(self.audit.check(entry, &past))
    }
}

/// Whether the account of an entry was opened for its policy, and belongs to its subject. The
/// account of an erased subject cannot be checked.
fn belongs(row: &Audited, ledger: &Ledger) -> bool {
    let Some(policy) = &row.policy else {
        return false;
    };
    let Some(subject) = &row.subject else {
        return true;
    };
    let subject = Subject::existing(subject);
    subject.is_ok_and(|subject| ledger.identity().account(policy, &subject) == row.account)
}

fn alarm(
    kind: DifferenceKind,
    account: AccountId,
    found: Option<u64>,
    expected: Option<u64>,
) -> Difference {
    Difference {
        kind,
        account: Some(account),
        figure: None,
        found,
        expected,
        windows: Vec::new(),
        is_healed: false,
    }
}
