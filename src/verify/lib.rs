//! Checks what perdiem gave to auditors, without its ledger: archives, exports and proofs. Another
//! program can use it: it needs no database and no server, and it trusts only the public key of the log.

pub mod archive;
pub mod export;
pub mod failure;
pub mod files;
pub mod index;
pub mod key;
pub mod program;
pub mod proof;
pub mod rows;
