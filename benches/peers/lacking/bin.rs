//! A replacement for limitador's module `bin`, which is missing without RocksDB: see `build_peers`
//! in `benches/lab.py`. Only limits with an id need the module.

/// Never called, because the limit of the benchmark has no id.
pub fn key_for_counter_v2<T>(_counter: &T) -> Vec<u8> {
    unreachable!("a limit without an id has no such key")
}

/// Never called, because the limit of the benchmark has no id.
pub fn partial_counter_from_counter_key_v2<T>(_key: &[u8]) -> T {
    unreachable!("a limit without an id has no such key")
}
