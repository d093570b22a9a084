//! What host and module say to each other: records of a batch in Kafka's message format 2. Nothing here needs to be changed.

use std::alloc::Layout;

/// One record. Its place in the batch stays what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    attributes: u8,
    offset_delta: i64,
}

impl Record {
    /// For tests.
    pub fn new(key: Option<Vec<u8>>, value: Option<Vec<u8>>) -> Record {
        Record { key, value, headers: Vec::new(), timestamp_ms: 0, attributes: 0, offset_delta: 0 }
    }
}

/// A line for `headrace wasm logs`.
pub fn log(line: &str) {
    #[cfg(target_arch = "wasm32")]
    unsafe {
        host_log(line.as_ptr(), line.len() as u32)
    }
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{line}");
}

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "headrace")]
extern "C" {
    #[link_name = "log"]
    fn host_log(at: *const u8, size: u32);
}

/// All records of a batch through `transform`; the layout is that of docs/transforms.md, both ways.
pub fn transform_batch(given: &[u8], mut transform: impl FnMut(&mut Record) -> bool) -> Vec<u8> {
    let count = u32::from_le_bytes(given[..4].try_into().unwrap());
    let base_ms = i64::from_le_bytes(given[8..16].try_into().unwrap());
    let mut reader = Reader { bytes: given, at: 16 };
    let mut made = given[..16].to_vec();
    made.reserve(given.len());
    let (mut kept, mut body) = (0u32, Vec::new());
    for _ in 0..count {
        let mut record = reader.record(base_ms);
        if transform(&mut record) {
            body.clear();
            write_record(&record, base_ms, &mut body);
            write_number(body.len() as i64, &mut made);
            made.extend_from_slice(&body);
            kept += 1;
        }
    }
    made[..4].copy_from_slice(&kept.to_le_bytes());
    made
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn record(&mut self, base_ms: i64) -> Record {
        self.number();
        let attributes = self.bytes[self.at];
        self.at += 1;
        let timestamp_ms = base_ms + self.number();
        let offset_delta = self.number();
        let (key, value) = (self.field(), self.field());
        let count = self.number();
        let headers = (0..count).map(|_| (self.field().unwrap_or_default(), self.field())).collect();
        Record { key, value, headers, timestamp_ms, attributes, offset_delta }
    }

    fn field(&mut self) -> Option<Vec<u8>> {
        let size = usize::try_from(self.number()).ok()?;
        self.at += size;
        Some(self.bytes[self.at - size..self.at].to_vec())
    }

    fn number(&mut self) -> i64 {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
            shift += 7;
        }
    }
}

fn write_record(record: &Record, base_ms: i64, body: &mut Vec<u8>) {
    body.push(record.attributes);
    write_number(record.timestamp_ms - base_ms, body);
    write_number(record.offset_delta, body);
    write_field(record.key.as_deref(), body);
    write_field(record.value.as_deref(), body);
    write_number(record.headers.len() as i64, body);
    for (name, value) in &record.headers {
        write_field(Some(name), body);
        write_field(value.as_deref(), body);
    }
}

fn write_field(field: Option<&[u8]>, body: &mut Vec<u8>) {
    write_number(field.map_or(-1, |bytes| bytes.len() as i64), body);
    body.extend_from_slice(field.unwrap_or_default());
}

fn write_number(number: i64, body: &mut Vec<u8>) {
    let mut value = ((number << 1) ^ (number >> 63)) as u64;
    while value > 0x7f {
        body.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}

/// Where the host finds what was made.
#[repr(C)]
pub struct Answer {
    at: *const u8,
    size: u32,
}

static mut ANSWER: Answer = Answer { at: std::ptr::null(), size: 0 };

fn layout(size: u32) -> Layout {
    Layout::from_size_align(size.max(1) as usize, 8).unwrap()
}

#[no_mangle]
pub extern "C" fn alloc(size: u32) -> *mut u8 {
    unsafe { std::alloc::alloc(layout(size)) }
}

/// # Safety
/// For what `alloc` gave, with its size.
#[no_mangle]
pub unsafe extern "C" fn dealloc(at: *mut u8, size: u32) {
    std::alloc::dealloc(at, layout(size))
}

/// # Safety
/// For the host, with what it has written to a buffer of `alloc`.
#[no_mangle]
pub unsafe extern "C" fn process_batch(at: *const u8, size: u32) -> *const Answer {
    let made = transform_batch(std::slice::from_raw_parts(at, size as usize), crate::transform);
    let answer = std::ptr::addr_of_mut!(ANSWER);
    // The instance ends with the batch: what was made is not given back.
    *answer = Answer { at: made.as_ptr(), size: made.len() as u32 };
    std::mem::forget(made);
    answer
}
