//! The log as the libraries of others read it: `signed_note` and `tlog_tiles`, of Cloudflare.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use signed_note::{Note, StandardVerifier, VerifierList, key_id};
use tlog_tiles::{
    Checkpoint, Hash, RecordProof, Tile, TileHashReader, TileReader, TreeProof, check_record,
    check_tree, prove_record, record_hash, tree_hash,
};

use super::{all_is_sealed, sealing, verifier};
use crate::support::app::{App, Ground, Stack};
use crate::support::desk::on_every_store;

on_every_store!(the_libraries_of_others_accept_the_log);

/// The checkpoint of a note, if its signature is right.
fn opened(note: &[u8]) -> Checkpoint {
    let note = Note::from_bytes(note).expect("a signed note");
    let text = String::from_utf8(note.text().to_vec()).expect("a text");
    let origin = text.lines().next().expect("an origin");
    let key = verifier().to_string();
    let (_, key) = key.rsplit_once('+').expect("a key");
    let bytes = BASE64_STANDARD.decode(key).expect("the bytes of a key");
    let key = format!("{origin}+{:08x}+{key}", key_id(origin, &bytes));
    let known = StandardVerifier::new(&key).expect("a key of the log");
    let known = VerifierList::new(vec![Box::new(known)]);
    note.verify(&known).expect("it is signed");
    Checkpoint::from_bytes(note.text()).expect("a checkpoint")
}

fn hashes<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Hash> {
    let hash = |line| Hash::parse_hash(line).expect("a hash");
    lines.map(hash).collect()
}

/// The tiles of a log, as its URLs return them.
struct Tiles(Vec<(Tile, Vec<u8>)>);

impl Tiles {
    /// Reads all tiles of a log with this number of leaves.
    async fn of(app: &App, size: u64) -> Self {
        let mut tiles = Vec::new();
        for tile in Tile::new_tiles(8, 0, size) {
            let path = tile.path();
            let path = path.strip_prefix("tile/8/").unwrap_or(&path);
            let request = app.request(Method::GET, &format!("/v1/log/tile/{path}"));
            let answer = request.send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{path}");
            let bytes = answer.bytes().await.expect("a tile");
            tiles.push((tile, bytes.to_vec()));
        }
        Self(tiles)
    }
}

impl TileReader for Tiles {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, wanted: &[Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        let read = |wanted: &Tile| {
            let mut tiles = self.0.iter();
            let (_, bytes) = tiles.find(|(tile, _)| tile == wanted).expect("a tile");
            bytes.clone()
        };
        Ok(wanted.iter().map(read).collect())
    }

    fn save_tiles(&self, _tiles: &[Tile], _data: &[Vec<u8>]) {}
}

async fn the_libraries_of_others_accept_the_log(stack: Stack) {
    let ground = Ground::new(stack);
    let app = App::start_with(&ground, sealing).await;
    app.benefit(500, "UTC").await;
    let grant = app.claim("member-42", None).await.grant_id();
    // More leaves than one tile has.
    let claim = |index: usize| json!({ "policy": "benefit", "subject": format!("m-{index}") });
    let body = json!({ "claims": (0..300).map(claim).collect::<Vec<_>>() });
    let request = app.request(Method::POST, "/v1/claims").json(&body);
    assert_eq!(request.send().await.expect("an answer").status(), 200);
    all_is_sealed(&app, &ground).await;
    // 1. The checkpoint is signed by the key.
    let checkpoint = opened(app.get("/v1/log/checkpoint").await.text.as_bytes());
    let size = checkpoint.size();
    let root = *checkpoint.hash();
    // 2. The tiles make its tree.
    let tiles = Tiles::of(&app, size).await;
    let tree = TileHashReader::new(size, root, &tiles);
    assert_eq!(tree_hash(size, &tree).expect("a tree"), root);
    // 3. The proof of a grant is that of the tree.
    let proof = app.get(&format!("/v1/grants/{grant}/proof")).await.text;
    let (proof, note) = proof.split_once("\n\n").expect("a proof and a checkpoint");
    assert_eq!(*opened(note.as_bytes()).hash(), root);
    let mut lines = proof.lines().skip(1);
    let mut field = |name: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(name));
        line.expect("a field").to_owned()
    };
    let extra = BASE64_STANDARD
        .decode(field("extra "))
        .expect("the extra data");
    let extra: Value = serde_json::from_slice(&extra).expect("an object");
    let leaf = record_hash(extra["leaf"].as_str().expect("a leaf").as_bytes());
    let index: u64 = field("index ").parse().expect("an index");
    let path: RecordProof = hashes(lines);
    assert_eq!(prove_record(size, index, &tree).expect("a proof"), path);
    assert!(check_record(&path, size, root, index, leaf).is_ok());
    assert!(check_record(&path, size, root, index + 1, leaf).is_err());
    // 4. The log only grew.
    let growth = app.get("/v1/seals/consistency?from=3").await.json();
    let growth = growth["hashes"].as_array().expect("hashes").iter();
    let growth: TreeProof = hashes(growth.filter_map(Value::as_str));
    let third = tree_hash(3, &tree).expect("a tree");
    assert!(check_tree(&growth, size, root, 3, third).is_ok());
    assert!(check_tree(&growth, size, root, 4, third).is_err());
}
