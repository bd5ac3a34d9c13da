//! Seals: what stands in the record, in a Merkle log that others can check. The formats are those of
//! C2SP: signed notes, checkpoints, tiles and proofs.

pub mod leaf;
pub mod note;
pub mod proof;
pub mod tile;
pub mod tree;
