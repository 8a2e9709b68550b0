//! Reads the archives: tar (ustar) in zstd.

use std::collections::BTreeMap;
use std::io::Read;

const BLOCK_BYTES: usize = 512;
const NAME_BYTES: usize = 100;
const SIZE_AT: usize = 124;
const SIZE_DIGITS: usize = 11;

/// The files of an archive, by name.
pub fn read(name: &str) -> BTreeMap<String, Vec<u8>> {
    let path = crate::archives().join(format!("{name}.tar.zst"));
    let file = std::fs::File::open(&path).expect("the archive is in the repository");
    let mut bytes = Vec::new();
    let mut decoder = zstd::Decoder::new(file).expect("zstd");
    decoder.read_to_end(&mut bytes).expect("the archive is whole");
    let mut files = BTreeMap::new();
    let mut rest = bytes.as_slice();
    while rest.first().is_some_and(|byte| *byte != 0) {
        let (header, behind) = rest.split_at(BLOCK_BYTES);
        let name = text(&header[..NAME_BYTES]);
        let size = text(&header[SIZE_AT..SIZE_AT + SIZE_DIGITS]);
        let size = usize::from_str_radix(size.trim(), 8).expect("an octal size");
        files.insert(name, behind[..size].to_vec());
        rest = &behind[size.next_multiple_of(BLOCK_BYTES)..];
    }
    files
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8(field[..end].to_vec()).expect("ASCII")
}
