//! Exports: pages of rows that wait for their reader, so that memory does not grow with the export.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use ledger::LedgerError;

/// The number of rows that an export reads at once.
pub const EXPORT_PAGE: u32 = 1000;
/// How many pieces wait for a slow reader …
const PIECES_AHEAD: usize = 2;
/// … and for how long. Then the export ends, because others wait for its place.
const PIECE_TIME: Duration = Duration::from_secs(60);

/// A piece of an export.
#[derive(Debug)]
pub enum ExportPiece<T, E> {
    Rows(Vec<T>),
    /// The last piece of a complete export. An export without it was interrupted.
    End(E),
}

pub type ExportPieces<T, E> = mpsc::Receiver<Result<ExportPiece<T, E>, LedgerError>>;

/// Sends pieces to a reader.
pub struct PieceSender<T, E>(mpsc::Sender<Result<ExportPiece<T, E>, LedgerError>>);

pub fn pieces<T, E>() -> (PieceSender<T, E>, ExportPieces<T, E>) {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    (PieceSender(sender), pieces)
}

impl<T, E> PieceSender<T, E> {
    /// Waits until the reader has room for a piece. Returns false if the export is over: the piece
    /// was the last one, or nobody reads any more, or too slowly.
    pub async fn send(&self, piece: Result<ExportPiece<T, E>, LedgerError>) -> bool {
        let goes_on = matches!(piece, Ok(ExportPiece::Rows(_)));
        let sent = timeout(PIECE_TIME, self.0.send(piece)).await;
        goes_on && sent.is_ok_and(|sent| sent.is_ok())
    }
}
