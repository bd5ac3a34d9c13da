//! What auditors read of the log: seals, proofs and tiles.

use std::sync::Arc;

use uuid::Uuid;

use super::Audit;
use crate::InvalidCursor;
use crate::cursor::{self, cut_page};
use crate::seal::{dropped, leaves_between, path, prove};
use claims::instance::Failure;
use domain::identity::EntryId;
use domain::record::RecordPlace;
use domain::seal::leaf::Hash;
use domain::seal::proof::LogProof;
use domain::seal::tile::{TILE_WIDTH, TileLevel, TileName};
use domain::seal::tree::consistency;
use ledger::{Ledger, LedgerError, Seal};

/// Why there is no seal or proof.
#[derive(Debug, thiserror::Error)]
pub enum SealFailure {
    #[error(
        "this instance seals nothing: make a key with `perdiem seal new-key`, and name its file \
         in PERDIEM_SEAL_KEY_FILE"
    )]
    Off,
    #[error("this is not sealed yet: try again in a few seconds, or look at /readyz if it lasts")]
    NotYet,
    #[error("the log has only {0} positions: ask for a lower one")]
    Beyond(u64),
    #[error("there is nothing with this name or id")]
    Unknown,
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    #[error(transparent)]
    Failure(#[from] Failure),
}

impl From<LedgerError> for SealFailure {
    fn from(error: LedgerError) -> Self {
        Failure::from(error).into()
    }
}

/// A page of seals, newest first.
#[derive(Debug)]
pub struct SealPage {
    pub seals: Vec<Seal>,
    pub next_cursor: Option<String>,
}

/// The proof that a tree has grown out of a smaller one.
#[derive(Debug)]
pub struct ConsistencyProof {
    pub origin: String,
    pub from: u64,
    pub to: u64,
    pub hashes: Vec<Hash>,
}

impl Audit {
    /// Without a key nothing is sealed here. An instance that only reads shows the seals of others.
    fn check_sealing(&self) -> Result<(), SealFailure> {
        if self.seal_key.is_some() || self.instance.is_read_only() {
            Ok(())
        } else {
            Err(SealFailure::Off)
        }
    }

    /// The verifier key for the seals of an origin, if this instance has the key.
    pub fn seal_verifier(&self, origin: &str) -> Option<String> {
        let key = self.seal_key.as_ref()?;
        Some(key.verifier_of(origin).to_string())
    }

    /// A page of at most `limit` seals, newest first.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn seals(
        self: &Arc<Self>,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<SealPage, SealFailure> {
        self.check_sealing()?;
        let identity = self.ledger.identity();
        let below = match cursor {
            Some(cursor) => {
                let both = u128::from_be_bytes(cursor::decode(identity, "seals", cursor)?);
                ((both >> 64) as u64, both as u64)
            }
            None => (u64::MAX, u64::MAX),
        };
        let audit = self.clone();
        let work = async move { audit.ledger.audit().seals(below, limit + 1).await };
        let mut seals = self.instance.detached(work).await??;
        let next_cursor = cut_page(&mut seals, limit).map(|last| {
            let both = u128::from(last.origin.number) << 64 | u128::from(last.size);
            cursor::encode(identity, "seals", &both.to_be_bytes())
        });
        Ok(SealPage { seals, next_cursor })
    }

    /// The newest seal.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn latest_seal(self: &Arc<Self>) -> Result<Seal, SealFailure> {
        self.check_sealing()?;
        let audit = self.clone();
        let work = async move { audit.ledger.audit().last_seal().await };
        let seal = self.instance.detached(work).await??;
        seal.ok_or(SealFailure::NotYet)
    }

    /// Proves that the tree of one size has grown out of the tree of another. Without the second
    /// size: up to the newest seal.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn seal_consistency(
        self: &Arc<Self>,
        from: u64,
        to: Option<u64>,
    ) -> Result<ConsistencyProof, SealFailure> {
        let seal = self.latest_seal().await?;
        let to = to.unwrap_or(seal.size);
        if to > seal.size || from > to {
            return Err(SealFailure::Beyond(seal.size.min(to)));
        }
        let audit = self.clone();
        let work = async move {
            let wanted = consistency(from, to);
            path(&audit.ledger, seal.origin.number, wanted).await
        };
        Ok(ConsistencyProof {
            origin: seal.origin.name,
            from,
            to,
            hashes: self.instance.detached(work).await??,
        })
    }

    /// Proves that the log has a grant.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn grant_proof(self: &Arc<Self>, id: Uuid) -> Result<LogProof, SealFailure> {
        let audit = self.clone();
        self.proof(async move { audit.ledger.record().place_of(EntryId(id)).await })
            .await
    }

    /// Proves that the log has a change.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn change_proof(self: &Arc<Self>, revision: u64) -> Result<LogProof, SealFailure> {
        let audit = self.clone();
        self.proof(async move { audit.ledger.record().place_of_change(revision).await })
            .await
    }

    async fn proof(
        self: &Arc<Self>,
        place: impl Future<Output = Result<Option<RecordPlace>, LedgerError>> + Send + 'static,
    ) -> Result<LogProof, SealFailure> {
        let seal = self.latest_seal().await?;
        let audit = self.clone();
        let work = async move {
            let place = place.await?.ok_or(SealFailure::Unknown)?;
            let proof = prove(&audit.ledger, place, &seal).await?;
            proof.ok_or(SealFailure::NotYet)
        };
        self.instance.detached(work).await?
    }

    /// The bytes of a tile of the present log.
    ///
    /// # Errors
    /// [`SealFailure`].
    pub async fn log_tile(self: &Arc<Self>, tile: TileName) -> Result<Vec<u8>, SealFailure> {
        let seal = self.latest_seal().await?;
        let audit = self.clone();
        let work = async move { read_tile(&audit.ledger, tile, &seal).await };
        self.instance
            .detached(work)
            .await??
            .ok_or(SealFailure::Unknown)
    }
}

/// The bytes of a tile; `None` if not all of the tile is sealed.
async fn read_tile(
    ledger: &Ledger,
    tile: TileName,
    seal: &Seal,
) -> Result<Option<Vec<u8>>, LedgerError> {
    let Some(first) = tile.index.checked_mul(TILE_WIDTH) else {
        return Ok(None);
    };
    let end = first + tile.width;
    let level = match tile.level {
        TileLevel::Hashes(level) => level,
        TileLevel::Entries => 0,
    };
    // Each hash of a level stands for this many leaves.
    let leaves = TILE_WIDTH.checked_pow(level.into());
    let leaves = leaves.and_then(|leaves| end.checked_mul(leaves));
    if leaves.is_none_or(|leaves| leaves > seal.size) {
        return Ok(None);
    }
    if let TileLevel::Hashes(level) = tile.level {
        let hashes = ledger
            .audit()
            .tile_hashes(seal.origin.number, level, first, end)
            .await;
        return Ok(Some(hashes?.into_flattened()));
    }
    let mut bytes = Vec::new();
    for leaf in leaves_between(ledger, first + 1, end + 1).await? {
        let line = leaf.line().ok_or_else(|| dropped(&leaf))?;
        let length = u16::try_from(line.len());
        let length = length.map_err(|_| {
            LedgerError::Corrupt(format!(
                "the leaf of position {} is too long",
                leaf.position
            ))
        })?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(line.as_bytes());
    }
    Ok(Some(bytes))
}
