//! The Merkle tree of the log (RFC 6962, section 2.1): its hashes and roots, and the proofs that it
//! has a leaf or continues a smaller tree.

use std::ops::Range;

use sha2::{Digest, Sha256};

use super::leaf::Hash;
use super::tile::{TILE_WIDTH, TileRow};

/// Tiles store the hashes of every eighth height of the tree.
const TILE_HEIGHT: u32 = 8;

/// The hash of a leaf.
pub fn leaf_hash(leaf: &[u8]) -> Hash {
    let hasher = Sha256::new_with_prefix([0]);
    hasher.chain_update(leaf).finalize().into()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let hasher = Sha256::new_with_prefix([1]);
    hasher
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// A perfect subtree: the tree of the 2^height leaves from index · 2^height on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subtree {
    height: u32,
    index: u64,
}

impl Subtree {
    /// The stored hashes of the subtree: the level of tiles, and the indexes in the level. All of
    /// them are in one tile.
    pub fn hashes(self) -> (u8, Range<u64>) {
        let level = self.height / TILE_HEIGHT;
        let shift = self.height % TILE_HEIGHT;
        let first = self.index << shift;
        (level as u8, first..first + (1 << shift))
    }

    /// The root of a subtree with the hashes of [`Subtree::hashes`].
    pub fn root(hashes: &[Hash]) -> Hash {
        match hashes {
            [one] => *one,
            _ => {
                let (left, right) = hashes.split_at(hashes.len() / 2);
                node_hash(&Self::root(left), &Self::root(right))
            }
        }
    }
}

/// The perfect subtrees of a range of leaves, the largest first. The range must start at a multiple
/// of the largest subtree.
fn subtrees(leaves: Range<u64>) -> Vec<Subtree> {
    let mut found = Vec::new();
    let mut first = leaves.start;
    while first < leaves.end {
        let height = (leaves.end - first).ilog2();
        found.push(Subtree {
            height,
            index: first >> height,
        });
        first += 1 << height;
    }
    found
}

/// The subtrees of a tree with a size.
pub fn subtrees_of(size: u64) -> Vec<Subtree> {
    subtrees(0..size)
}

/// The root of subtrees that follow each other, the largest first.
pub fn joined(roots: &[Hash]) -> Hash {
    match roots.split_last() {
        None => Sha256::digest([]).into(),
        Some((last, others)) => {
            let join = |right, left: &Hash| node_hash(left, &right);
            others.iter().rev().fold(*last, join)
        }
    }
}

/// The largest power of two below a size of at least 2.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// The path that proves that a tree of a size has the leaf with an index. Each hash of the path is
/// given as the subtrees that it joins.
pub fn inclusion(index: u64, size: u64) -> Vec<Vec<Subtree>> {
    let mut path = Vec::new();
    let mut leaves = 0..size;
    while leaves.end - leaves.start > 1 {
        let middle = leaves.start + split(leaves.end - leaves.start);
        if index < middle {
            path.push(subtrees(middle..leaves.end));
            leaves.end = middle;
        } else {
            path.push(subtrees(leaves.start..middle));
            leaves.start = middle;
        }
    }
    path.reverse();
    path
}

/// The path that proves that a tree of size `to` continues the tree of size `from`, which is not 0.
/// The form is the same.
pub fn consistency(from: u64, to: u64) -> Vec<Vec<Subtree>> {
    let mut path = Vec::new();
    let mut leaves = 0..to;
    let mut is_known = true;
    while from < leaves.end {
        let middle = leaves.start + split(leaves.end - leaves.start);
        if from <= middle {
            path.push(subtrees(middle..leaves.end));
            leaves.end = middle;
        } else {
            path.push(subtrees(leaves.start..middle));
            leaves.start = middle;
            is_known = false;
        }
    }
    if !is_known {
        path.push(subtrees(leaves));
    }
    path.reverse();
    path
}

/// The root that follows from a leaf and its path (RFC 9162, section 2.1.3.2); `None` if the path
/// has the wrong length.
pub fn root_of_inclusion(index: u64, size: u64, leaf: Hash, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let mut at = index;
    let mut last = size - 1;
    let mut root = leaf;
    for hash in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            root = node_hash(hash, &root);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            root = node_hash(&root, hash);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    (last == 0).then_some(root)
}

/// Whether a path proves that the tree of size `to`, with the root `second`, continues the tree of
/// size `from`, which is not 0, with the root `first` (RFC 9162, section 2.1.4.2).
pub fn is_consistent(from: u64, to: u64, first: Hash, second: Hash, path: &[Hash]) -> bool {
    if from == to {
        return path.is_empty() && first == second;
    }
    let mut path = path.iter();
    let start = if from.is_power_of_two() {
        first
    } else {
        match path.next() {
            Some(start) => *start,
            None => return false,
        }
    };
    let mut fnode = from - 1;
    let mut snode = to - 1;
    while fnode & 1 == 1 {
        (fnode, snode) = (fnode >> 1, snode >> 1);
    }
    let mut fr = start;
    let mut sr = start;
    for hash in path {
        if snode == 0 {
            return false;
        }
        if fnode & 1 == 1 || fnode == snode {
            fr = node_hash(hash, &fr);
            sr = node_hash(hash, &sr);
            while fnode & 1 == 0 && fnode != 0 {
                (fnode, snode) = (fnode >> 1, snode >> 1);
            }
        } else {
            sr = node_hash(&sr, hash);
        }
        (fnode, snode) = (fnode >> 1, snode >> 1);
    }
    fr == first && sr == second && snode == 0
}

/// A tree that grows. It stores the roots of its perfect subtrees, the largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrowingTree {
    size: u64,
    roots: Vec<Hash>,
    /// The new hashes since the last [`Self::take_rows`].
    rows: Vec<TileRow>,
}

impl GrowingTree {
    /// A tree with the roots of [`subtrees_of`] a size.
    pub fn new(size: u64, roots: Vec<Hash>) -> Self {
        Self {
            size,
            roots,
            rows: Vec::new(),
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn root(&self) -> Hash {
        joined(&self.roots)
    }

    pub fn push(&mut self, leaf: Hash) {
        let mut node = Subtree {
            height: 0,
            index: self.size,
        };
        let mut hash = leaf;
        loop {
            if node.height.is_multiple_of(TILE_HEIGHT) {
                self.note((node.height / TILE_HEIGHT) as u8, node.index, hash);
            }
            if node.index & 1 == 0 {
                break;
            }
            let Some(left) = self.roots.pop() else {
                break;
            };
            hash = node_hash(&left, &hash);
            node = Subtree {
                height: node.height + 1,
                index: node.index >> 1,
            };
        }
        self.roots.push(hash);
        self.size += 1;
    }

    /// Adds a hash to the row of its tile.
    fn note(&mut self, level: u8, index: u64, hash: Hash) {
        let row = self.rows.iter_mut().rfind(|row| row.level == level);
        match row {
            Some(row) if !index.is_multiple_of(TILE_WIDTH) => row.hashes.push(hash),
            _ => self.rows.push(TileRow {
                level,
                first: index,
                hashes: vec![hash],
            }),
        }
    }

    /// Takes the new hashes of tiles.
    pub fn take_rows(&mut self) -> Vec<TileRow> {
        std::mem::take(&mut self.rows)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::seal::leaf::hex;

    /// The definitions of RFC 6962, section 2.1, literally.
    fn root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest([]).into(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
                node_hash(&root(left), &root(right))
            }
        }
    }

    fn grown(size: u64) -> (GrowingTree, Vec<Hash>, HashMap<(u8, u64), Hash>) {
        let leaves: Vec<Hash> = (0..size).map(|n| leaf_hash(&n.to_be_bytes())).collect();
        let mut tree = GrowingTree::default();
        let mut stored = HashMap::new();
        for leaf in &leaves {
            tree.push(*leaf);
            // Rows are taken now and then.
            if tree.size() % 77 == 0 || tree.size() == size {
                for row in tree.take_rows() {
                    for (index, hash) in (row.first..).zip(row.hashes) {
                        assert_eq!(stored.insert((row.level, index), hash), None);
                    }
                }
            }
        }
        (tree, leaves, stored)
    }

    /// The path that a reader computes from stored hashes.
    fn read(path: Vec<Vec<Subtree>>, stored: &HashMap<(u8, u64), Hash>) -> Vec<Hash> {
        let subtree = |subtree: &Subtree| {
            let (level, indexes) = subtree.hashes();
            assert_eq!(indexes.start / 256, (indexes.end - 1) / 256, "one tile");
            let hashes: Vec<Hash> = indexes.map(|index| stored[&(level, index)]).collect();
            Subtree::root(&hashes)
        };
        let joined = |part: Vec<Subtree>| joined(&part.iter().map(subtree).collect::<Vec<_>>());
        path.into_iter().map(joined).collect()
    }

    /// The test vectors of the reference implementation of Certificate Transparency.
    #[test]
    fn roots_are_those_of_the_reference() {
        let leaves: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d,
                0x6e, 0x6f,
            ],
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let mut tree = GrowingTree::default();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&tree.root()), empty);
        for (leaf, root) in leaves.into_iter().zip(roots) {
            tree.push(leaf_hash(leaf));
            assert_eq!(hex(&tree.root()), root);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn stored_hashes_prove_every_leaf_and_every_growth(
            size in 1u64..700, one: prop::sample::Index, smaller: prop::sample::Index,
        ) {
            let (tree, leaves, stored) = grown(size);
            prop_assert_eq!(tree.root(), root(&leaves));
            let of = |size: u64| joined(&read(vec![subtrees_of(size)], &stored));
            prop_assert_eq!(of(size), tree.root());
            let index = one.index(leaves.len()) as u64;
            let leaf = leaves[index as usize];
            let path = read(inclusion(index, size), &stored);
            let found = root_of_inclusion(index, size, leaf, &path);
            prop_assert_eq!(found, Some(tree.root()));
            let wrong = root_of_inclusion(index, size, leaf_hash(b"another"), &path);
            prop_assert_ne!(wrong, Some(tree.root()));
            prop_assert_eq!(root_of_inclusion(size, size, leaf, &path), None);
            let from = smaller.index(leaves.len()) as u64 + 1;
            let path = read(consistency(from, size), &stored);
            let before = root(&leaves[..from as usize]);
            prop_assert!(is_consistent(from, size, before, tree.root(), &path));
            let another = leaf_hash(b"another");
            prop_assert!(!is_consistent(from, size, another, tree.root(), &path));
            prop_assert!(!is_consistent(from, size, before, another, &path));
            // A tree continues from its stored hashes.
            let roots = read(subtrees_of(from).into_iter().map(|it| vec![it]).collect(), &stored);
            let mut again = GrowingTree::new(from, roots);
            for leaf in &leaves[from as usize..] {
                again.push(*leaf);
            }
            prop_assert_eq!(again.root(), tree.root());
        }
    }

    #[test]
    fn a_tree_of_three_levels_has_its_tiles() {
        let (_, _, stored) = grown(65_537 + 256);
        let count = |of: u8| stored.keys().filter(|(level, _)| *level == of).count();
        assert_eq!([count(0), count(1), count(2)], [65_793, 257, 1]);
        assert_eq!(stored.len(), 65_793 + 257 + 1);
    }
}
