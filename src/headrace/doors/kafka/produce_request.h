/* Reading a produce request of the common shape: which partitions it names, and where its batches lie in the frame. */

#ifndef HEADRACE_PRODUCE_REQUEST_H
#define HEADRACE_PRODUCE_REQUEST_H

#include "../../kernel.h"

enum { PRODUCE_KEY = 0, FIRST_VERSION = 7, LAST_VERSION = 13, FLEXIBLE_FROM = 9, TOPIC_ID_FROM = 13 };
enum { TOPIC_ID_SIZE = 16 };
enum { ROWS_MAX = 1024 };

static PyObject *str_partitions; /* set when the module is imported */

typedef struct {
    const unsigned char *at, *end;
    int is_good, is_flexible;
} Reader;

static const unsigned char *
take_bytes(Reader *reader, int64_t size)
{
    if (!reader->is_good || size < 0 || reader->end - reader->at < size) {
        reader->is_good = 0;
        return NULL;
    }
    const unsigned char *found = reader->at;
    reader->at += size;
    return found;
}

static int64_t
take_int(Reader *reader, int size)
{
    const unsigned char *found = take_bytes(reader, size);
    return found != NULL ? read_int(found, size) : -1;
}

static int64_t
take_uvarint(Reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const unsigned char *byte = take_bytes(reader, 1);
        if (byte == NULL) {
            return -1;
        }
        value |= (uint64_t)(*byte & 0x7F) << shift;
        if (*byte < 0x80) {
            return (int64_t)value;
        }
    }
    reader->is_good = 0;
    return -1;
}

/* A length or a count, by the rules of the version; nulls are not common. */
static int64_t
take_size(Reader *reader, int legacy_bytes)
{
    int64_t size = reader->is_flexible ? take_uvarint(reader) - 1 : take_int(reader, legacy_bytes);
    if (size < 0) {
        reader->is_good = 0;
    }
    return size;
}

static void
take_no_tags(Reader *reader)
{
    if (reader->is_flexible && take_int(reader, 1) != 0) {
        reader->is_good = 0;
    }
}

typedef struct {
    PyObject *topic, *partition; /* borrowed: nobody deletes a topic before the reply holds it */
    const unsigned char *records, *name;
    int64_t size;
    int32_t index, name_size;
    int rows_of_topic; /* at a topic's first row; 0 at the others */
} Row;

typedef struct {
    int version, correlation_id, row_count, topic_count;
    int64_t timeout_ms;
    Row rows[ROWS_MAX];
} Request;

/* One of `open_topics` and its list of partitions, both borrowed. 1, 0 where this is not for us, -1 with an
   exception. */
static int
find_topic(PyObject *open_topics, int version, const unsigned char *name, int64_t name_size, PyObject **topic,
           PyObject **partitions)
{
    PyObject *key = version >= TOPIC_ID_FROM ? PyBytes_FromStringAndSize((const char *)name, name_size)
                                             : PyUnicode_DecodeUTF8((const char *)name, name_size, NULL);
    if (key == NULL) {
        PyErr_Clear();
        return 0;
    }
    *topic = PyDict_GetItemWithError(open_topics, key);
    Py_DECREF(key);
    if (*topic == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    *partitions = PyObject_GetAttr(*topic, str_partitions);
    int found = *partitions == NULL ? -1 : PyList_Check(*partitions);
    Py_XDECREF(*partitions); /* The topic holds it. */
    return found;
}

static int
is_ascii(const unsigned char *text, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        if (text[i] >= 0x80) {
            return 0;
        }
    }
    return 1;
}

static int
read_request(PyObject *open_topics, const unsigned char *frame, Py_ssize_t size, Request *request)
{
    if (size < 4) {
        return 0;
    }
    Reader reader = {frame + 4, frame + size, 1, 0};
    int64_t key = take_int(&reader, 2);
    request->version = (int)take_int(&reader, 2);
    if (key != PRODUCE_KEY || request->version < FIRST_VERSION || request->version > LAST_VERSION) {
        return 0;
    }
    request->correlation_id = (int)take_int(&reader, 4);
    int64_t client_id_size = take_int(&reader, 2);
    const unsigned char *client_id = take_bytes(&reader, client_id_size > 0 ? client_id_size : 0);
    if (client_id == NULL || client_id_size < -1 || !is_ascii(client_id, client_id_size)) {
        return 0; /* Whether it is valid UTF-8 is the twin's question. */
    }
    reader.is_flexible = request->version >= FLEXIBLE_FROM;
    take_no_tags(&reader);
    int64_t transactional_id = reader.is_flexible ? take_uvarint(&reader) - 1 : take_int(&reader, 2);
    int64_t acks = take_int(&reader, 2);
    request->timeout_ms = take_int(&reader, 4);
    int64_t topic_count = take_size(&reader, 4);
    if (!reader.is_good || transactional_id != -1 || (acks != 1 && acks != -1) || topic_count > ROWS_MAX) {
        return 0;
    }
    request->topic_count = (int)topic_count;
    request->row_count = 0;
    for (int64_t nth = 0; nth < topic_count; nth++) {
        int64_t name_size = request->version >= TOPIC_ID_FROM ? TOPIC_ID_SIZE : take_size(&reader, 2);
        const unsigned char *name = take_bytes(&reader, name_size);
        int64_t count = take_size(&reader, 4);
        PyObject *topic, *partitions;
        if (!reader.is_good || count < 1 || request->row_count + count > ROWS_MAX) {
            return 0;
        }
        int found = find_topic(open_topics, request->version, name, name_size, &topic, &partitions);
        if (found != 1) {
            return found;
        }
        for (int64_t row_of = 0; row_of < count; row_of++) {
            Row *row = &request->rows[request->row_count++];
            row->index = (int32_t)take_int(&reader, 4);
            row->size = take_size(&reader, 4);
            row->records = take_bytes(&reader, row->size);
            take_no_tags(&reader);
            if (!reader.is_good || row->index < 0 || row->index >= PyList_GET_SIZE(partitions)) {
                return 0;
            }
            row->topic = topic;
            row->partition = PyList_GET_ITEM(partitions, row->index);
            row->name = name;
            row->name_size = (int32_t)name_size;
            row->rows_of_topic = row_of == 0 ? (int)count : 0;
        }
        take_no_tags(&reader);
    }
    take_no_tags(&reader);
    return reader.is_good;
}

#endif
