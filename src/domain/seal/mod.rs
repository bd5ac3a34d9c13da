//! Seals: the record in a Merkle log that others can check. The formats are the formats of C2SP:
//! signed notes, checkpoints, tiles and proofs.

pub mod leaf;
pub mod note;
pub mod proof;
pub mod tile;
pub mod tree;
