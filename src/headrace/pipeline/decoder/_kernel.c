/* Record batch payloads to Arrow buffers: the compiled half of headrace.pipeline.decoder.
 *
 * One function, `decode`, walks the records of many sections (a section is the uncompressed payload of one
 * record batch) and fills buffers that its caller allocated. The rules it keeps:
 *
 * - Every read is checked against the end of the record or section it belongs to, every write against the
 *   length of the buffer it goes to. Counts found in the data are compared, never allocated from.
 * - The GIL is released while records are walked: no Python object is touched there.
 * - It knows nothing of CRCs, codecs, transactions or topics; `vector.py` is its twin and must agree with it
 *   on every input, malformed ones included.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Columns of the section table, in step with `sections.py`. */
enum { BUFFER, START, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, APPEND_TIMESTAMP, IS_APPEND_TIME, TABLE_WIDTH };

#define MICROSECONDS_PER_MS 1000
#define TIMESTAMP_MS_LIMIT (INT64_MAX / MICROSECONDS_PER_MS)

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* Variable-length column: int32 offsets, a validity bitmap, the bytes. Absent when `offsets` is NULL. */
typedef struct {
    int32_t *offsets;
    uint8_t *validity;
    uint8_t *data;
    int64_t rows_max;
    int64_t bytes_max;
    int64_t rows;
    int64_t fill;
    int64_t nulls;
} Column;

typedef struct {
    int64_t *offset;
    int64_t *timestamp;
    int32_t *timestamp_type;
    int64_t rows_max;
    int64_t rows;
    Column key;
    Column value;
    int32_t *header_ends; /* list offsets: rows + 1 entries */
    Column header_key;
    Column header_value;
} Output;

/* A fault is a sentence for the exception, so that both twins can say what was wrong. */
typedef const char *Fault;

/* Not the data's fault: the caller may come back with more room. */
static const char NO_ROOM[] = "more than the caller made room for";

static Fault read_varlong(Cursor *cursor, int64_t *value) {
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (cursor->at >= cursor->end) return "a variable-length number runs past its record";
        uint8_t byte = *cursor->at++;
        raw |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return NULL;
        }
    }
    return "a variable-length number is longer than ten bytes";
}

static Fault read_varint(Cursor *cursor, int64_t *value) {
    uint32_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (cursor->at >= cursor->end) return "a variable-length number runs past its record";
        uint8_t byte = *cursor->at++;
        raw |= (uint32_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = (int32_t)((raw >> 1) ^ -(raw & 1));
            return NULL;
        }
    }
    return "a variable-length number is longer than five bytes";
}

static Fault append(Column *column, const uint8_t *bytes, int64_t length) {
    if (column->offsets == NULL) return NULL;
    if (column->rows >= column->rows_max) return NO_ROOM;
    if (length < 0) {
        column->nulls++;
    } else {
        if (length > column->bytes_max - column->fill) return NO_ROOM;
        memcpy(column->data + column->fill, bytes, (size_t)length);
        column->fill += length;
        column->validity[column->rows >> 3] |= (uint8_t)(1u << (column->rows & 7));
    }
    column->offsets[++column->rows] = (int32_t)column->fill;
    return NULL;
}

/* Length -1 means null; anything else must fit in what is left of the record. */
static Fault read_bytes(Cursor *cursor, const uint8_t **bytes, int64_t *length) {
    Fault fault = read_varint(cursor, length);
    if (fault) return fault;
    if (*length < -1) return "a length below -1";
    if (*length > cursor->end - cursor->at) return "a field runs past its record";
    *bytes = cursor->at;
    if (*length > 0) cursor->at += *length;
    return NULL;
}

static Fault read_headers(Cursor *record, Output *out, int is_kept) {
    int64_t count;
    Fault fault = read_varint(record, &count);
    if (fault) return fault;
    if (count < 0 || count > (record->end - record->at) / 2) return "a header count that cannot be true";
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *key, *value;
        int64_t key_length, value_length;
        if ((fault = read_bytes(record, &key, &key_length))) return fault;
        if (key_length < 0) return "a header without a key";
        if ((fault = read_bytes(record, &value, &value_length))) return fault;
        if (!is_kept) continue;
        if ((fault = append(&out->header_key, key, key_length))) return fault;
        if ((fault = append(&out->header_value, value, value_length))) return fault;
    }
    if (record->at != record->end) return "bytes left over at the end of a record";
    return NULL;
}

static int64_t to_microseconds(int64_t timestamp_ms) {
    if (timestamp_ms > TIMESTAMP_MS_LIMIT) timestamp_ms = TIMESTAMP_MS_LIMIT;
    if (timestamp_ms < -TIMESTAMP_MS_LIMIT) timestamp_ms = -TIMESTAMP_MS_LIMIT;
    return timestamp_ms * MICROSECONDS_PER_MS;
}

static Fault decode_record(Cursor *section, const int64_t *table, int64_t *delta_seen, int64_t first, int64_t end,
                           Output *out) {
    int64_t size, timestamp_delta, offset_delta, key_length, value_length;
    const uint8_t *key, *value;
    Fault fault = read_varint(section, &size);
    if (fault) return fault;
    if (size < 0 || size > section->end - section->at) return "a record runs past its batch";
    Cursor record = {section->at, section->at + size};
    section->at = record.end;

    if (record.at >= record.end) return "a record without attributes";
    record.at++;
    if ((fault = read_varlong(&record, &timestamp_delta))) return fault;
    if ((fault = read_varint(&record, &offset_delta))) return fault;
    if (offset_delta <= *delta_seen || offset_delta > table[LAST_DELTA]) return "offsets out of order in a batch";
    *delta_seen = offset_delta;
    if ((fault = read_bytes(&record, &key, &key_length))) return fault;
    if ((fault = read_bytes(&record, &value, &value_length))) return fault;

    int64_t offset = (int64_t)((uint64_t)table[BASE_OFFSET] + (uint64_t)offset_delta);
    int is_kept = offset >= first && offset < end;
    if (out->header_ends && (fault = read_headers(&record, out, is_kept))) return fault;
    if (!is_kept) return NULL;
    if (out->rows >= out->rows_max) return NO_ROOM;
    if ((fault = append(&out->key, key, key_length))) return fault;
    if ((fault = append(&out->value, value, value_length))) return fault;
    if (out->offset) out->offset[out->rows] = offset;
    if (out->timestamp) {
        int64_t timestamp = table[IS_APPEND_TIME]
                                ? table[APPEND_TIMESTAMP]
                                : (int64_t)((uint64_t)table[BASE_TIMESTAMP] + (uint64_t)timestamp_delta);
        out->timestamp[out->rows] = to_microseconds(timestamp);
    }
    if (out->timestamp_type) out->timestamp_type[out->rows] = (int32_t)table[IS_APPEND_TIME];
    out->rows++;
    if (out->header_ends) out->header_ends[out->rows] = (int32_t)out->header_key.rows;
    return NULL;
}

static Fault decode_section(Cursor section, const int64_t *table, int64_t first, int64_t end, Output *out) {
    int64_t delta_seen = -1;
    for (int64_t i = 0; i < table[COUNT]; i++) {
        Fault fault = decode_record(&section, table, &delta_seen, first, end, out);
        if (fault) return fault;
    }
    return section.at == section.end ? NULL : "bytes left over at the end of a batch";
}

/* ---- the Python side: acquire every buffer, check every bound, walk without the GIL ---- */

#define OUTPUT_BUFFERS 16

typedef struct {
    Py_buffer views[OUTPUT_BUFFERS];
    int count;
} Views;

/* None gives an empty view: that column is not wanted. */
static int acquire(Views *views, PyObject *object, Py_buffer **view) {
    *view = &views->views[views->count];
    if (object == Py_None) {
        memset(*view, 0, sizeof(Py_buffer));
    } else if (PyObject_GetBuffer(object, *view, PyBUF_WRITABLE) < 0) {
        return -1;
    }
    views->count++;
    return 0;
}

static void release(Views *views) {
    for (int i = 0; i < views->count; i++)
        if (views->views[i].obj) PyBuffer_Release(&views->views[i]);
}

static int64_t smaller(int64_t left, int64_t right) { return left < right ? left : right; }

static int acquire_column(Views *views, PyObject *tuple, Column *column) {
    memset(column, 0, sizeof *column);
    if (tuple == Py_None) return 0;
    Py_buffer *offsets, *validity, *data;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 3) {
        PyErr_SetString(PyExc_TypeError, "a column is (offsets, validity, data)");
        return -1;
    }
    if (acquire(views, PyTuple_GET_ITEM(tuple, 0), &offsets) < 0 ||
        acquire(views, PyTuple_GET_ITEM(tuple, 1), &validity) < 0 ||
        acquire(views, PyTuple_GET_ITEM(tuple, 2), &data) < 0)
        return -1;
    if (offsets->len < 4) {
        PyErr_SetString(PyExc_ValueError, "offsets need room for their first entry");
        return -1;
    }
    column->offsets = offsets->buf;
    column->validity = validity->buf;
    column->data = data->buf;
    column->rows_max = smaller(offsets->len / 4 - 1, validity->len * 8);
    column->bytes_max = smaller(data->len, INT32_MAX);
    column->offsets[0] = 0;
    return 0;
}

static int acquire_output(Views *views, PyObject *const *args, Output *out) {
    Py_buffer *offset, *timestamp, *timestamp_type, *header_ends;
    memset(out, 0, sizeof *out);
    if (acquire(views, args[0], &offset) < 0 || acquire(views, args[1], &timestamp) < 0 ||
        acquire(views, args[2], &timestamp_type) < 0 || acquire_column(views, args[3], &out->key) < 0 ||
        acquire_column(views, args[4], &out->value) < 0 || acquire(views, args[5], &header_ends) < 0 ||
        acquire_column(views, args[6], &out->header_key) < 0 ||
        acquire_column(views, args[7], &out->header_value) < 0)
        return -1;
    out->offset = offset->buf;
    out->timestamp = timestamp->buf;
    out->timestamp_type = timestamp_type->buf;
    out->header_ends = header_ends->buf;
    out->rows_max = INT32_MAX;
    if (out->offset) out->rows_max = smaller(out->rows_max, offset->len / 8);
    if (out->timestamp) out->rows_max = smaller(out->rows_max, timestamp->len / 8);
    if (out->timestamp_type) out->rows_max = smaller(out->rows_max, timestamp_type->len / 4);
    if (out->header_ends) {
        out->rows_max = smaller(out->rows_max, header_ends->len / 4 - 1);
        if (header_ends->len >= 4) out->header_ends[0] = 0;
    }
    return 0;
}

static int check_table(const int64_t *table, int64_t sections, const Py_buffer *inputs, Py_ssize_t input_count) {
    for (int64_t i = 0; i < sections; i++, table += TABLE_WIDTH) {
        if (table[BUFFER] < 0 || table[BUFFER] >= input_count || table[START] < 0 || table[START] > table[END] ||
            table[END] > inputs[table[BUFFER]].len) {
            PyErr_SetString(PyExc_ValueError, "a section lies outside its buffer");
            return -1;
        }
    }
    return 0;
}

/* decode(buffers, table, first, end, offset, timestamp, timestamp_type, key, value, header_ends, header_key,
 *        header_value) -> (rows, key bytes, key nulls, value bytes, value nulls, headers, header key bytes,
 *        header value bytes, header value nulls)
 */
static PyObject *decode(PyObject *module, PyObject *const *args, Py_ssize_t arg_count) {
    (void)module;
    if (arg_count != 12) {
        PyErr_SetString(PyExc_TypeError, "decode takes 12 arguments");
        return NULL;
    }
    PyObject *buffers = args[0], *result = NULL;
    if (!PyList_Check(buffers)) {
        PyErr_SetString(PyExc_TypeError, "buffers must be a list");
        return NULL;
    }
    long long first = PyLong_AsLongLong(args[2]), end = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) return NULL;

    Views views = {.count = 0};
    Output out;
    Py_buffer table_view = {0};
    Py_ssize_t input_count = PyList_GET_SIZE(buffers), acquired = 0;
    Py_buffer *inputs = calloc((size_t)input_count + 1, sizeof(Py_buffer));
    if (inputs == NULL) return PyErr_NoMemory();
    for (; acquired < input_count; acquired++)
        if (PyObject_GetBuffer(PyList_GET_ITEM(buffers, acquired), &inputs[acquired], PyBUF_SIMPLE) < 0) goto done;
    if (PyObject_GetBuffer(args[1], &table_view, PyBUF_SIMPLE) < 0) goto done;
    if (acquire_output(&views, args + 4, &out) < 0) goto done;

    const int64_t *table = table_view.buf;
    int64_t sections = table_view.len / (int64_t)(TABLE_WIDTH * sizeof(int64_t));
    if (check_table(table, sections, inputs, input_count) < 0) goto done;

    Fault fault = NULL;
    int64_t at_offset = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < sections && !fault; i++, table += TABLE_WIDTH) {
        const uint8_t *bytes = inputs[table[BUFFER]].buf;
        Cursor section = {bytes + table[START], bytes + table[END]};
        at_offset = table[BASE_OFFSET];
        fault = decode_section(section, table, first, end, &out);
    }
    Py_END_ALLOW_THREADS
    if (fault) {
        PyErr_Format(fault == NO_ROOM ? PyExc_BufferError : PyExc_ValueError, "%s (batch at offset %lld)", fault, (long long)at_offset);
        goto done;
    }
    result = Py_BuildValue("(LLLLLLLLL)", (long long)out.rows, (long long)out.key.fill, (long long)out.key.nulls,
                           (long long)out.value.fill, (long long)out.value.nulls, (long long)out.header_key.rows,
                           (long long)out.header_key.fill, (long long)out.header_value.fill,
                           (long long)out.header_value.nulls);
done:
    release(&views);
    if (table_view.obj) PyBuffer_Release(&table_view);
    while (acquired > 0) PyBuffer_Release(&inputs[--acquired]);
    free(inputs);
    return result;
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, "Records of many sections into Arrow buffers."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModule_Create(&definition); }
