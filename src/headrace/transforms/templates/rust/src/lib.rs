//! A transform for headrace: it makes lower-case letters of each value upper-case. Change `transform`.

pub mod headrace;

use headrace::Record;

/// Called for each record; `false` drops it.
pub fn transform(record: &mut Record) -> bool {
    if let Some(value) = &mut record.value {
        value.make_ascii_uppercase();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_become_upper_case() {
        let mut record = Record::new(None, Some(b"hello".to_vec()));
        assert!(transform(&mut record));
        assert_eq!(record.value.as_deref(), Some(&b"HELLO"[..]));
    }
}
