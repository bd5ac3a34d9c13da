//! The keys in a counter: all keys of the account, or none.

use chrono::TimeDelta;
use perdiem::counter::{KEYS_MAX, SettledKeys, Settlement};

use super::{Bench, after, all, line, settlement};

#[tokio::test]
async fn keys_are_complete_only_where_nothing_is_missing() {
    let mut bench = Bench::new().await;
    // There is no earlier line.
    bench.settle(after(4, 3, [4])).await;
    assert_eq!(bench.keys(4).await, None);
    // An incomplete counter stays incomplete.
    bench.settle(after(5, 4, [5])).await;
    assert_eq!(bench.keys(5).await, None);
    // All keys of the account.
    bench.settle(all(5, [1, 2, 5])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5]));
    // From the line that the counter has.
    bench.settle(after(7, 5, [6])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5, 6]));
    // The same line is confirmed.
    bench.settle(after(7, 7, [])).await;
    assert_eq!(bench.keys(6).await, Some(vec![1, 2, 5, 6]));
    // The settlement before this one was lost.
    bench.settle(after(9, 8, [9])).await;
    assert_eq!(bench.keys(9).await, None);
    assert_eq!(bench.number().await, Some(9));
    // The settlement before this one arrives late and changes nothing.
    bench.settle(after(8, 7, [8])).await;
    assert_eq!(bench.keys(9).await, None);
    assert_eq!(bench.number().await, Some(9));
    // A settlement with all keys replaces the old ones.
    bench.settle(all(9, [9])).await;
    assert_eq!(bench.keys(9).await, Some(vec![9]));
}

/// As after a ledger was restored from a backup: the same numbers have other entries, and the
/// counter's keys do not belong to them.
#[tokio::test]
async fn another_line_of_the_same_number_is_not_gone_on_from() {
    let mut bench = Bench::new().await;
    let other = |mut settlement: Settlement| {
        settlement.line.at += TimeDelta::minutes(1);
        settlement
    };
    bench.settle(other(all(5, [1, 2]))).await;
    bench.settle(after(5, 4, [3])).await;
    assert_eq!(bench.ask().await.expect("a counter").line, line(5));
    assert_eq!(bench.keys(3).await, None);
    bench.settle(other(all(5, [1, 2]))).await;
    bench.settle(after(6, 5, [4])).await;
    assert_eq!(bench.number().await, Some(6));
    assert_eq!(bench.keys(4).await, None);
}

/// Such a settlement may lack a key. Therefore the counter no longer has all keys.
#[tokio::test]
async fn a_settlement_that_tells_no_keys_leaves_a_counter_without() {
    let mut bench = Bench::new().await;
    bench.settle(all(5, [1, 2])).await;
    assert_eq!(bench.keys(2).await, Some(vec![1, 2]));
    bench.settle(settlement(6, SettledKeys::Unknown)).await;
    assert_eq!(bench.keys(2).await, None);
    assert_eq!(bench.number().await, Some(6));
    bench.settle(after(7, 6, [3])).await;
    assert_eq!(bench.keys(3).await, None);
}

#[tokio::test]
async fn a_counter_holds_only_so_many_keys() {
    let mut bench = Bench::new().await;
    let most = u128::from(KEYS_MAX);
    // An account has at least one entry for each key.
    let number = u64::from(KEYS_MAX);
    bench.settle(all(number, 1..=most)).await;
    assert_eq!(bench.keys(most + 1).await, Some((1..=most).collect()));
    // One key more than a counter can have: it has none.
    bench.settle(after(number + 1, number, [most + 1])).await;
    assert_eq!(bench.keys(most + 1).await, None);
    assert_eq!(bench.number().await, Some(number + 1));
    // As many keys as a counter can have.
    bench.settle(all(number + 2, 1..most)).await;
    bench.settle(after(number + 3, number + 2, [most])).await;
    assert_eq!(bench.keys(most + 1).await, Some((1..=most).collect()));
}
