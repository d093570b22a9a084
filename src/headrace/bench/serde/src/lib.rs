//! A transform with serde_json inside: each value is parsed into a tree, loses a field, gets another, and is written anew.

// The template's, copied here by the benchmark.
#[allow(dead_code)]
pub mod headrace;

use headrace::Record;
use serde_json::{Map, Value};

/// What is no JSON object is dropped.
pub fn transform(record: &mut Record) -> bool {
    let made = record.value.as_deref().and_then(scrubbed);
    record.value = made;
    record.value.is_some()
}

fn scrubbed(value: &[u8]) -> Option<Vec<u8>> {
    let mut fields: Map<String, Value> = serde_json::from_slice(value).ok()?;
    fields.remove("email")?;
    fields.insert("scrubbed".into(), Value::Bool(true));
    serde_json::to_vec(&fields).ok()
}
