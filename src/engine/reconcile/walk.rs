//! The ledger's own check, from its first account to its last.

use super::findings::Findings;
use super::pace::Pace;
use crate::domain::audit::{AccountAudit, Flaw};
use crate::domain::claim::Subject;
use crate::domain::grant::Entry;
use crate::domain::identity::AccountId;
use crate::domain::past::Past;
use crate::domain::reconciliation::{Difference, DifferenceKind};
use crate::ledger::{Audited, Ledger, LedgerError};

/// How many entries, or accounts, are read at a time.
const PAGE: u32 = 500;

/// An account on the way.
struct Account {
    id: AccountId,
    audit: AccountAudit,
    is_foreign: bool,
}

/// Checks every account's entries, page by page. What is appended behind the walk is left to
/// the next one.
///
/// # Errors
/// [`LedgerError::Unavailable`].
pub async fn walk(ledger: &Ledger, findings: &mut Findings) -> Result<(), LedgerError> {
    let walked = match walk_entries(ledger, findings).await {
        Ok(()) => walk_accounts(ledger, findings).await,
        Err(error) => Err(error),
    };
    match walked {
        // There is no way past a row whose place cannot be read.
        Err(LedgerError::Corrupt(_)) => {
            findings.add(Difference {
                kind: DifferenceKind::UnreadableEntry,
                account: None,
                found: None,
                expected: None,
                windows: Vec::new(),
                is_healed: false,
            });
            Ok(())
        }
        walked => walked,
    }
}

async fn walk_entries(ledger: &Ledger, findings: &mut Findings) -> Result<(), LedgerError> {
    let mut after = None;
    let mut account: Option<Account> = None;
    loop {
        let pace = Pace::begin();
        let page = ledger.audited(after, PAGE).await?;
        for row in &page {
            let current = match account.take() {
                Some(account) if account.id == row.account => account,
                _ => {
                    findings.tally.accounts += 1;
                    Account {
                        id: row.account,
                        audit: AccountAudit::default(),
                        is_foreign: false,
                    }
                }
            };
            let current = account.insert(current);
            current.check(row, ledger, findings).await?;
        }
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some((last.account, last.number));
        pace.rest().await;
    }
}

/// An account is opened with its first entry: one without entries has lost them.
async fn walk_accounts(ledger: &Ledger, findings: &mut Findings) -> Result<(), LedgerError> {
    let mut after = None;
    loop {
        let pace = Pace::begin();
        let page = ledger.opened(after, PAGE).await?;
        for (account, has_entry) in &page {
            if !has_entry {
                findings.add(alarm(DifferenceKind::Gap, *account, None, Some(1)));
            }
        }
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after = Some(*last);
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
        findings.tally.entries += 1;
        let number = Some(row.number);
        if !self.is_foreign && !belongs(row, ledger) {
            // Once an account: whatever wrote one of them wrote the others.
            self.is_foreign = true;
            findings.add(alarm(DifferenceKind::ForeignEntry, self.id, number, None));
        }
        if row.is_after_cut {
            self.audit.begin_after_cut(row.number);
        }
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
        for flaw in flaws {
            findings.add(match flaw {
                Flaw::Gap(expected) => alarm(DifferenceKind::Gap, self.id, number, Some(expected)),
                Flaw::TimeBackwards => {
                    alarm(DifferenceKind::TimeBackwards, self.id, number, number)
                }
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
        // What a part of the past tells may ask for another: a limit's tail, and then a grant.
        while let Some((line, wanted)) = self.audit.unknown(entry, &past) {
            let mut was_told = false;
            for part in wanted.parts() {
                match ledger.past(self.id, Some(line), &part).await {
                    Ok(told) => {
                        past.extend(told);
                        was_told = true;
                    }
                    // Dropped entries may count in it: its total is taken as it is.
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

/// Whether an entry's account was opened for its policy and is the one of its subject. The id
/// of an erased subject's account cannot be checked.
fn belongs(row: &Audited, ledger: &Ledger) -> bool {
    let Some(policy) = &row.policy else {
        return false;
    };
    let Some(subject) = &row.subject else {
        return true;
    };
    let subject = Subject::new(subject);
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
        found,
        expected,
        windows: Vec::new(),
        is_healed: false,
    }
}
