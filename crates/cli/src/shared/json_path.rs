//! JSON path: names of files in JSON, which has texts only, and without loss all the same.
//!
//! `path` is the name as text, in which the replacement character stands for what is no UTF-8; only then `path_bytes` has the bytes of
//! the name, as numbers.
//!
//! Owns: the two fields, for each name that a path has in JSON.
//! Does not own: names of files in texts for people.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::{Value, json};

/// For `#[serde(flatten, serialize_with = …)]`: `path`.
pub(crate) fn as_path<P: AsRef<Path>, S: Serializer>(path: &P, serializer: S) -> Result<S::Ok, S::Error> {
    write(path.as_ref(), ["path", "path_bytes"], serializer)
}

/// The same as `source`.
pub(crate) fn as_source<P: AsRef<Path>, S: Serializer>(path: &P, serializer: S) -> Result<S::Ok, S::Error> {
    write(path.as_ref(), ["source", "source_bytes"], serializer)
}

/// The same as `destination`.
pub(crate) fn as_destination<P: AsRef<Path>, S: Serializer>(
    path: &P,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    write(path.as_ref(), ["destination", "destination_bytes"], serializer)
}

/// The same as `trace`.
pub(crate) fn as_trace<P: AsRef<Path>, S: Serializer>(path: &P, serializer: S) -> Result<S::Ok, S::Error> {
    write(path.as_ref(), ["trace", "trace_bytes"], serializer)
}

/// The fields for an object that is made by hand.
pub(crate) fn fields(path: &Path) -> impl Iterator<Item = (&'static str, Value)> {
    let bytes = bytes_of(path).map(|bytes| ("path_bytes", json!(bytes)));
    [("path", json!(path.to_string_lossy()))].into_iter().chain(bytes)
}

fn write<S: Serializer>(path: &Path, names: [&'static str; 2], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry(names[0], &path.to_string_lossy())?;
    if let Some(bytes) = bytes_of(path) {
        map.serialize_entry(names[1], bytes)?;
    }
    map.end()
}

/// `None` where the text says all.
fn bytes_of(path: &Path) -> Option<&[u8]> {
    path.to_str().is_none().then(|| path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Entry {
        #[serde(flatten, serialize_with = "as_source")]
        from: PathBuf,
        length: u32,
    }

    /// Goal: a name that is text has one field, any other one has its bytes too.
    #[test]
    fn names_lose_nothing() {
        let entry = |bytes: &[u8]| Entry { from: PathBuf::from(OsStr::from_bytes(bytes)), length: 1 };
        assert_eq!(json!(entry(b"a b")), json!({"source": "a b", "length": 1}));
        let expected = json!({"source": "a\u{fffd}", "source_bytes": [97, 255], "length": 1});
        assert_eq!(json!(entry(b"a\xff")), expected);
        let odd = Path::new(OsStr::from_bytes(b"\xfe"));
        let made: serde_json::Map<String, Value> =
            fields(odd).map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(Value::Object(made), json!({"path": "\u{fffd}", "path_bytes": [254]}));
    }
}
