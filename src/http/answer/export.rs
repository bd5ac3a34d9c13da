//! Exports: their formats, and how they are streamed.

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, HttpResponseBuilder};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;

use api::format::ExportFormat;
use engine::{Authority, ExportPiece, ExportPieces, LedgerError};
use host::chain::Chain;

fn content_type(format: ExportFormat) -> &'static str {
    match format {
        ExportFormat::Csv => "text/csv; charset=utf-8; header=present",
        ExportFormat::Ndjson => "application/x-ndjson",
    }
}

/// Begins an answer that is a file of this format.
pub fn file_answer(format: ExportFormat, name: &str) -> HttpResponseBuilder {
    let disposition = format!("attachment; filename=\"{name}.{}\"", format.as_str());
    let mut answer = HttpResponse::Ok();
    answer
        .content_type(content_type(format))
        .insert_header((header::CONTENT_DISPOSITION, disposition));
    answer
}

/// Why an export stopped early. The client sees a body without its end.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("the ledger failed")]
    Ledger(#[from] LedgerError),
    #[error("the client read too slowly")]
    Slow,
    #[error("the key of the export was revoked, has ended or was changed")]
    KeyLost,
}

/// The pieces of an export as bytes, after the bytes of `header`. The key is checked at every piece,
/// and while the next one is awaited. Without the key's rights the body ends without its end.
pub fn streamed<T, E>(
    pieces: ExportPieces<T, E>,
    header: Bytes,
    authority: Authority,
    render: impl FnMut(ExportPiece<T, E>) -> Bytes,
) -> impl Stream<Item = Result<Bytes, RenderError>> {
    let rest = stream::unfold(Some((pieces, authority, render)), |reading| async {
        // 1. Wait for the next piece. A channel that closed early means that the client was too
        // slow.
        let (mut pieces, authority, mut render) = reading?;
        let piece = match authority.until_lost(pieces.recv()).await {
            Some(Some(piece)) => piece.map_err(RenderError::from),
            Some(None) => Err(RenderError::Slow),
            None => Err(RenderError::KeyLost),
        };
        // 2. Write the piece as bytes. Rows are followed by more pieces, everything else is the
        // end.
        let goes_on = matches!(piece, Ok(ExportPiece::Rows(_)));
        let bytes = piece
            .map(&mut render)
            .inspect_err(|error| tracing::error!(error = %Chain(error), "an export stopped early"));
        Some((bytes, goes_on.then_some((pieces, authority, render))))
    });
    let bytes = stream::iter([Ok(header)]).chain(rest);
    // Leave out empty pieces: an empty piece would end a chunked body.
    bytes.filter(|bytes| std::future::ready(!bytes.as_ref().is_ok_and(Bytes::is_empty)))
}

/// Rows of CSV (RFC 4180), with every cell quoted.
pub fn csv_lines<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> Bytes {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .quote_style(csv::QuoteStyle::Always)
        .from_writer(Vec::new());
    for row in rows {
        writer.write_record(row).expect("memory takes all rows");
    }
    let lines = writer.into_inner().expect("memory takes all rows");
    lines.into()
}

/// One JSON object on each line.
pub fn json_lines(rows: impl Iterator<Item = impl Serialize>) -> Bytes {
    let mut lines = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut lines, &row).expect("rows are JSON");
        lines.push(b'\n');
    }
    lines.into()
}
