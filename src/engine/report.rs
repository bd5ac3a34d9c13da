//! What an instance says of itself: its health, and its metrics.

use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::Engine;
use claims::instance::{Health, Stage, Trouble};
use domain::zones;

impl Engine {
    /// Whether Redis decides the claims of some policy while the ledger does not answer.
    fn counts_without_ledger(&self) -> bool {
        let Some(counting) = &self.claims.counting else {
            return false;
        };
        let policies = self
            .instance
            .policies
            .terms
            .readable(self.instance.clock.now());
        policies.iter().any(|policy| counting.decides(policy))
    }

    pub fn health(&self) -> Health {
        // 1. Problems of the ledger and of the clock stop decisions, unless Redis decides during an
        //    outage.
        let mut troubles = Vec::new();
        troubles.extend((**self.instance.watch.ledger_trouble.load()).clone());
        troubles.extend(self.instance.watch.writes.trouble().map(Trouble::Writes));
        troubles.extend(self.instance.watch.clocks.off().map(Trouble::Clock));
        let lacks_ledger =
            |trouble: &Trouble| matches!(trouble, Trouble::Ledger | Trouble::Writes(_));
        let may_count = troubles.iter().all(lacks_ledger);
        let is_ready = troubles.is_empty() || may_count && self.counts_without_ledger();
        // 2. Other problems are reported, but the instance stays ready. The wall clock decides
        //    nothing, and Redis may be unavailable.
        let warnings = self
            .instance
            .watch
            .clocks
            .warnings(self.instance.clock.now());
        troubles.extend(warnings.map(Trouble::Clock));
        let standbys = &self.instance.watch.standbys;
        troubles.extend(standbys.trouble().map(Trouble::NoStandby));
        let standby = self.instance.standby.as_ref();
        let of_standby = standby.and_then(|standby| standby.trouble(Instant::now()));
        troubles.extend(of_standby.map(Trouble::Standby));
        if self
            .counters
            .as_ref()
            .is_some_and(|counters| !counters.is_available())
        {
            troubles.push(Trouble::Counters);
        }
        // 3. The rules of time zones may be old, or differ between instances.
        let own_rules = zones::rules().to_string();
        troubles.extend(Trouble::of_zone_rules(self.instance.clock.now()));
        let others = self.instance.watch.others_rules.load();
        let mut rules: Vec<&str> = others
            .iter()
            .map(String::as_str)
            .chain([own_rules.as_str()])
            .collect();
        rules.sort_unstable();
        rules.dedup();
        if rules.len() > 1 {
            troubles.push(Trouble::ZoneRules(rules.join(", ")));
        }
        // 4. The ledger may contradict itself, or not be sealed.
        if let Some((reconciliation, count @ 1..)) = self.instance.watch.alarms() {
            troubles.push(Trouble::Alarms {
                reconciliation,
                count,
            });
        }
        troubles.extend(self.seals.troubles());
        Health {
            is_ready,
            troubles,
            ledger: self.ledger.store_name(),
            is_sealing: self.audit.seal_key.is_some() && !self.instance.is_read_only(),
            is_read_only: self.instance.is_read_only(),
            lag: self.instance.lag(),
            has_counters: self.instance.has_counters,
            zone_rules: own_rules,
        }
    }

    /// The metrics of this instance, in the text format of OpenMetrics 1.0.
    pub async fn metrics(&self) -> String {
        let busiest = match &self.busiest {
            Some(busiest) => busiest.now().await,
            None => None,
        };
        // A metric of a policy is missing as long as it is unknown: 0 would be a lie.
        let days = busiest.as_ref().map_or(&[][..], |days| days.as_slice());
        let metrics = &self.instance.metrics;
        let under_way = self.claims.under_way.in_use();
        metrics.claims_under_way.set(under_way.cast_signed() as i64);
        let waiting = self.callers.waits.in_use();
        metrics.requests_waiting.set(waiting.cast_signed() as i64);
        let dispatch = &self.claims.dispatch;
        metrics.waiting(Stage::Ask, queued(&dispatch.ask));
        let counting = self.claims.counting.as_ref();
        let to_count_again = counting.map_or(0, |counting| queued(&counting.again));
        metrics.waiting(Stage::Count, queued(&dispatch.leave) + to_count_again);
        metrics.waiting(Stage::Append, dispatch.claims_waiting());
        metrics.waiting(Stage::Settle, dispatch.settle.waiting());
        let counters = self.counters.as_ref();
        let available = counters.is_some_and(|counters| counters.is_available());
        metrics.counters_available.set(available.into());
        let answers = !self.instance.watch.ledger_is_silent();
        metrics.ledger_answers.set(answers.into());
        let standbys = &self.instance.watch.standbys;
        metrics
            .ledger_waits_for_standby
            .set(standbys.waits().into());
        let synchronous = standbys.synchronous();
        metrics
            .synchronous_standbys
            .set(synchronous.map_or(f64::NAN, |count| count as f64));
        let age = zones::rules().age(self.instance.now()).unwrap_or_default();
        metrics.zone_rules_age.set(age.num_seconds());
        let unreadable = self.instance.policies.terms.unreadable(self.instance.now());
        metrics
            .unreadable_policies
            .set(unreadable.cast_signed() as i64);
        let alarms = self.instance.watch.alarms().map_or(0, |(_, count)| count);
        metrics.ledger_alarms.set(alarms.cast_signed());
        let lag = self.record.progress.lag_at(Instant::now());
        metrics.record_lag.set(lag.as_secs_f64());
        let lag = self.record.progress.figures_lag_at(Instant::now());
        metrics.figures_lag.set(lag.as_secs_f64());
        let lag = self.seals.lag(self.instance.now());
        metrics.seal_lag.set(lag.as_seconds_f64());
        let failures = self.seals.push_failures();
        metrics.seal_push_failures.set(failures.cast_signed());
        if self.instance.is_read_only() {
            let lag = self
                .instance
                .lag()
                .map_or(f64::NAN, |lag| lag.as_secs_f64());
            metrics.standby_lag.set(lag);
            metrics.leave_lags_to_others();
        }
        metrics.text(days)
    }
}

/// How many items wait in a queue.
fn queued<T>(queue: &Sender<T>) -> usize {
    queue.max_capacity() - queue.capacity()
}
