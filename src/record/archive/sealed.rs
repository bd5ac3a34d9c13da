//! The hashes of an archive's leaves, as the log has them.

use domain::seal::leaf::Hash;
use domain::seal::tile::TILE_WIDTH;
use ledger::{Ledger, LedgerError};

/// The hashes of leaves, as the log has them.
pub struct SealedHashes<'a> {
    ledger: &'a Ledger,
    origin: u64,
    /// The hashes of one tile, and the index of its first hash.
    tile: (u64, Vec<Hash>),
}

impl<'a> SealedHashes<'a> {
    pub fn new(ledger: &'a Ledger, origin: u64) -> Self {
        Self {
            ledger,
            origin,
            tile: (0, Vec::new()),
        }
    }

    /// The hash of a sealed position.
    pub async fn at(&mut self, position: u64) -> Result<Hash, LedgerError> {
        let index = position - 1;
        let first = index - index % TILE_WIDTH;
        if self.tile.0 != first || self.tile.1.is_empty() {
            let end = first + TILE_WIDTH;
            let hashes = self
                .ledger
                .audit()
                .tile_hashes(self.origin, 0, first, end)
                .await;
            self.tile = (first, hashes?);
        }
        let hash = self.tile.1.get((index - first) as usize).copied();
        hash.ok_or_else(|| {
            LedgerError::Corrupt(format!("the hash of position {position}: it is gone"))
        })
    }
}
