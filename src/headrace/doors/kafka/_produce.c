/* Produce requests of the common shape, from the frame to the answer, in one call.

       Kernel(topics, produce, can_take, now_ms, append, append_carefully, fail).take(frame, connection) -> bool

   False means: not here. Nothing has changed then, and the request goes through the route table like any other.

   The common shape: acks 1 or all, no transactional id, no tagged fields, every partition known to us, and room in the log.
   Each batch goes to `append` (headrace.log); where that declines, `append_carefully` does the one partition in Python and
   gives its row of the answer. The answer is encoded at once, with the offsets it will have, and waits in a `Reply` for the
   log to keep what it promises. When that fails, or takes too long, `fail` makes the real answer of it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

enum { PRODUCE_KEY = 0, FIRST_VERSION = 7, LAST_VERSION = 11, FLEXIBLE_FROM = 9 };
enum { ROWS_MAX = 1024, PLAIN_ROW_MAX = 40, FRAME_START_MAX = 64 };

static PyObject *str_slots, *str_append, *str_answered, *str_is_internal, *str_partitions, *str_log_start,
    *str_batches, *str_records, *str_bytes;

static inline int64_t
read_int(const unsigned char *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value = value << 8 | at[i];
    }
    return size == 8 ? (int64_t)value : size == 4 ? (int32_t)value : (int16_t)value;
}

static inline unsigned char *
put_int(unsigned char *at, int64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        at[i] = (unsigned char)value;
        value >>= 8;
    }
    return at + size;
}

static unsigned char *
put_uvarint(unsigned char *at, uint32_t value)
{
    while (value >= 0x80) {
        *at++ = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (unsigned char)value;
    return at;
}

/* -- Reply: the place of one answer, and who waits for its records -------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *connection, *fail, *answer, *chunks, *on_lost;
    PyObject *error; /* the first one */
    long long expires_ms;
    int pending, version, correlation_id;
} Reply;

static void
reply_dealloc(Reply *self)
{
    Py_XDECREF(self->connection);
    Py_XDECREF(self->fail);
    Py_XDECREF(self->answer);
    Py_XDECREF(self->chunks);
    Py_XDECREF(self->on_lost);
    Py_XDECREF(self->error);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
reply_fill(Reply *self, PyObject *chunks)
{
    if (self->chunks != Py_None) {
        Py_RETURN_NONE;
    }
    Py_INCREF(chunks);
    Py_SETREF(self->chunks, chunks);
    return PyObject_CallMethodOneArg(self->connection, str_answered, (PyObject *)self);
}

static PyObject *
reply_finish(Reply *self)
{
    if (self->error != NULL && self->error != Py_None) {
        return PyObject_CallFunctionObjArgs(self->fail, (PyObject *)self, self->error, NULL);
    }
    PyObject *chunks = PyTuple_Pack(1, self->answer);
    if (chunks == NULL) {
        return NULL;
    }
    PyObject *done = reply_fill(self, chunks);
    Py_DECREF(chunks);
    return done;
}

static PyObject *
reply_expect_one(Reply *self, PyObject *unused)
{
    self->pending++;
    Py_RETURN_NONE;
}

static PyObject *
reply_settle(Reply *self, PyObject *error)
{
    self->pending--;
    if (error != Py_None && self->error == NULL) {
        Py_INCREF(error);
        self->error = error;
    }
    if (self->pending || self->answer == NULL) {
        Py_RETURN_NONE;
    }
    return reply_finish(self);
}

static PyObject *
reply_on_expiry(Reply *self, PyObject *unused)
{
    return PyObject_CallFunctionObjArgs(self->fail, (PyObject *)self, Py_None, NULL);
}

static PyMethodDef reply_methods[] = {
    {"fill", (PyCFunction)reply_fill, METH_O, "This is the answer. The first one counts."},
    {"expect_one", (PyCFunction)reply_expect_one, METH_NOARGS, "Something has promised to settle this once more."},
    {"settle", (PyCFunction)reply_settle, METH_O, "One of those it waits for is kept (None), or has failed."},
    {"on_expiry", (PyCFunction)reply_on_expiry, METH_NOARGS, "The client's patience is at its end."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef reply_members[] = {
    {"chunks", T_OBJECT, offsetof(Reply, chunks), 0, "The answer, once there is one."},
    {"answer", T_OBJECT, offsetof(Reply, answer), READONLY, "What is answered if all is kept."},
    {"on_lost", T_OBJECT, offsetof(Reply, on_lost), READONLY, "Nobody needs to know."},
    {"expires_ms", T_LONGLONG, offsetof(Reply, expires_ms), READONLY, NULL},
    {"version", T_INT, offsetof(Reply, version), READONLY, NULL},
    {"correlation_id", T_INT, offsetof(Reply, correlation_id), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject reply_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headrace.doors.kafka._produce.Reply",
    .tp_basicsize = sizeof(Reply),
    .tp_dealloc = (destructor)reply_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The slot of one produce request; waits for the log.",
    .tp_methods = reply_methods,
    .tp_members = reply_members,
};

/* -- reading the request -------------------------------------------------------------------------------------------- */

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

/* -- Kernel --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *topics, *produce, *can_take, *now_ms, *append, *append_carefully, *fail;
} Kernel;

typedef struct {
    PyObject *partition; /* borrowed: the topic holds it while we are here */
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

/* 1, 0 where this is not for us, -1 with an exception. */
static int
find_partitions(PyObject *topics, const unsigned char *name, int64_t name_size, PyObject **partitions)
{
    PyObject *key = PyUnicode_DecodeUTF8((const char *)name, name_size, NULL);
    if (key == NULL) {
        PyErr_Clear();
        return 0;
    }
    PyObject *topic = PyDict_GetItemWithError(topics, key);
    Py_DECREF(key);
    if (topic == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *is_internal = PyObject_GetAttr(topic, str_is_internal);
    Py_XDECREF(is_internal);
    *partitions = is_internal == Py_False ? PyObject_GetAttr(topic, str_partitions) : NULL;
    if (*partitions == NULL) {
        return is_internal == NULL || PyErr_Occurred() ? -1 : 0;
    }
    Py_DECREF(*partitions); /* The topic holds it. */
    return PyList_Check(*partitions);
}

static int
read_request(Kernel *self, const unsigned char *frame, Py_ssize_t size, Request *request)
{
    Reader reader = {frame + 4, frame + size, 1, 0};
    int64_t key = take_int(&reader, 2);
    request->version = (int)take_int(&reader, 2);
    if (key != PRODUCE_KEY || request->version < FIRST_VERSION || request->version > LAST_VERSION) {
        return 0;
    }
    request->correlation_id = (int)take_int(&reader, 4);
    int64_t client_id_size = take_int(&reader, 2);
    if (client_id_size < -1) {
        return 0;
    }
    take_bytes(&reader, client_id_size > 0 ? client_id_size : 0);
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
        int64_t name_size = take_size(&reader, 2);
        const unsigned char *name = take_bytes(&reader, name_size);
        int64_t count = take_size(&reader, 4);
        PyObject *partitions = NULL;
        if (!reader.is_good || count < 1 || request->row_count + count > ROWS_MAX) {
            return 0;
        }
        int found = find_partitions(self->topics, name, name_size, &partitions);
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

/* 1, 0 where the request has to wait, -1 with an exception. */
static int
has_room(Kernel *self, Py_ssize_t size)
{
    PyObject *wanted = PyLong_FromSsize_t(size);
    PyObject *answer = wanted != NULL ? PyObject_CallOneArg(self->can_take, wanted) : NULL;
    Py_XDECREF(wanted);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : answer == Py_True;
}

static int
count_up(PyObject *produce, PyObject *name, int64_t by)
{
    PyObject *value = PyObject_GetAttr(produce, name);
    if (value == NULL) {
        return -1;
    }
    PyObject *sum = PyLong_FromLongLong(PyLong_AsLongLong(value) + by);
    Py_DECREF(value);
    int failed = sum == NULL || PyObject_SetAttr(produce, name, sum) < 0;
    Py_XDECREF(sum);
    return failed ? -1 : 0;
}

static unsigned char *
put_plain_row(unsigned char *at, int version, int32_t index, int64_t base, int64_t log_start)
{
    at = put_int(at, index, 4);
    at = put_int(at, 0, 2); /* error code */
    at = put_int(at, base, 8);
    at = put_int(at, -1, 8); /* append time */
    at = put_int(at, log_start, 8);
    if (version >= FLEXIBLE_FROM) {
        *at++ = 1; /* no record errors */
        *at++ = 0; /* no message */
        *at++ = 0; /* no tags */
    } else if (version >= 8) {
        at = put_int(at, 0, 4);
        at = put_int(at, -1, 2);
    }
    return at;
}

typedef struct {
    unsigned char *start, *at;
    Py_ssize_t capacity;
} Output;

static int
make_room(Output *output, Py_ssize_t size)
{
    Py_ssize_t used = output->at - output->start;
    if (used + size <= output->capacity) {
        return 0;
    }
    Py_ssize_t capacity = (used + size) * 2;
    unsigned char *grown = PyMem_Realloc(output->start, capacity);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *output = (Output){grown, grown + used, capacity};
    return 0;
}

static int
append_row(Kernel *self, PyObject *frame, const unsigned char *data, const Request *request, const Row *row,
           PyObject *reply, PyObject *now_ms, Output *output, int64_t *record_count)
{
    Py_ssize_t start = row->records - data;
    PyObject *batch = PySequence_GetSlice(frame, start, start + row->size);
    if (batch == NULL) {
        return -1;
    }
    PyObject *arguments[] = {row->partition, batch, now_ms, reply};
    PyObject *base = PyObject_Vectorcall(self->append, arguments, 4, NULL);
    PyObject *log_start = NULL;
    int failed = base == NULL;
    if (!failed && base != Py_None) {
        log_start = PyObject_GetAttr(row->partition, str_log_start);
        if (log_start != NULL && make_room(output, PLAIN_ROW_MAX) == 0) {
            output->at = put_plain_row(output->at, request->version, row->index, PyLong_AsLongLong(base),
                                       PyLong_AsLongLong(log_start));
            *record_count += read_int(row->records + 57, 4);
        } else {
            failed = 1;
        }
    } else if (!failed) {
        PyObject *encoded = PyObject_CallFunction(self->append_carefully, "OOiOOi", reply, row->partition, (int)row->index,
                                                  batch, now_ms, request->version);
        failed = encoded == NULL || !PyBytes_Check(encoded) || make_room(output, PyBytes_GET_SIZE(encoded)) < 0;
        if (!failed) {
            memcpy(output->at, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
            output->at += PyBytes_GET_SIZE(encoded);
        }
        Py_XDECREF(encoded);
    }
    Py_XDECREF(log_start);
    Py_XDECREF(base);
    Py_DECREF(batch);
    return failed ? -1 : 0;
}

static int
put_topic(Output *output, const Request *request, const Row *row)
{
    if (make_room(output, row->name_size + 16) < 0) {
        return -1;
    }
    int is_flexible = request->version >= FLEXIBLE_FROM;
    output->at = is_flexible ? put_uvarint(output->at, row->name_size + 1) : put_int(output->at, row->name_size, 2);
    memcpy(output->at, row->name, row->name_size);
    output->at += row->name_size;
    output->at =
        is_flexible ? put_uvarint(output->at, row->rows_of_topic + 1) : put_int(output->at, row->rows_of_topic, 4);
    return 0;
}

/* Appends every row and gives the answer's frame, or NULL with an exception. */
static PyObject *
append_rows(Kernel *self, PyObject *frame, const unsigned char *data, const Request *request, PyObject *reply,
            PyObject *now_ms)
{
    int is_flexible = request->version >= FLEXIBLE_FROM;
    Output output = {PyMem_Malloc(FRAME_START_MAX), NULL, FRAME_START_MAX};
    if (output.start == NULL) {
        return PyErr_NoMemory();
    }
    output.at = put_int(output.start + 4, request->correlation_id, 4);
    if (is_flexible) {
        *output.at++ = 0;
    }
    output.at = is_flexible ? put_uvarint(output.at, request->topic_count + 1) : put_int(output.at, request->topic_count, 4);
    PyObject *answer = NULL;
    int64_t record_count = 0, batch_count = 0, byte_count = 0;
    int left = 0;
    for (int nth = 0; nth < request->row_count; nth++) {
        const Row *row = &request->rows[nth];
        if (row->rows_of_topic) {
            left = row->rows_of_topic;
            if (put_topic(&output, request, row) < 0) {
                goto done;
            }
        }
        int64_t before = record_count;
        if (append_row(self, frame, data, request, row, reply, now_ms, &output, &record_count) < 0) {
            goto done;
        }
        if (record_count != before) {
            batch_count++;
            byte_count += row->size;
        }
        if (--left == 0 && is_flexible) {
            if (make_room(&output, 1) < 0) {
                goto done;
            }
            *output.at++ = 0;
        }
    }
    if (make_room(&output, 8) < 0) {
        goto done;
    }
    output.at = put_int(output.at, 0, 4); /* throttle time */
    if (is_flexible) {
        *output.at++ = 0;
    }
    put_int(output.start, output.at - output.start - 4, 4);
    if (!batch_count || (count_up(self->produce, str_batches, batch_count) == 0 &&
                         count_up(self->produce, str_records, record_count) == 0 &&
                         count_up(self->produce, str_bytes, byte_count) == 0)) {
        answer = PyBytes_FromStringAndSize((char *)output.start, output.at - output.start);
    }
done:
    PyMem_Free(output.start);
    return answer;
}

static Reply *
new_reply(Kernel *self, PyObject *connection, const Request *request, int64_t now_ms)
{
    Reply *reply = PyObject_New(Reply, &reply_type);
    if (reply == NULL) {
        return NULL;
    }
    Py_INCREF(connection);
    Py_INCREF(self->fail);
    Py_INCREF(Py_None);
    Py_INCREF(Py_None);
    reply->connection = connection;
    reply->fail = self->fail;
    reply->chunks = Py_None;
    reply->on_lost = Py_None;
    reply->answer = NULL;
    reply->error = NULL;
    reply->pending = 0;
    reply->version = request->version;
    reply->correlation_id = request->correlation_id;
    reply->expires_ms = now_ms + request->timeout_ms;
    return reply;
}

static int
serve(Kernel *self, PyObject *frame, const unsigned char *data, const Request *request, PyObject *connection)
{
    PyObject *now_ms = PyObject_CallNoArgs(self->now_ms);
    PyObject *slots = now_ms != NULL ? PyObject_GetAttr(connection, str_slots) : NULL;
    Reply *reply = slots != NULL ? new_reply(self, connection, request, PyLong_AsLongLong(now_ms)) : NULL;
    PyObject *reserved = reply != NULL ? PyObject_CallMethodOneArg(slots, str_append, (PyObject *)reply) : NULL;
    int failed = reserved == NULL;
    if (!failed) {
        reply->answer = append_rows(self, frame, data, request, (PyObject *)reply, now_ms);
        failed = reply->answer == NULL;
    }
    if (!failed && !reply->pending) {
        PyObject *done = reply_finish(reply);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(reserved);
    Py_XDECREF(reply);
    Py_XDECREF(slots);
    Py_XDECREF(now_ms);
    return failed ? -1 : 1;
}

static PyObject *
kernel_take(Kernel *self, PyObject *const *arguments, Py_ssize_t count)
{
    static Request request; /* Large, and one loop serves one frame at a time. */
    Py_buffer buffer;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "take(frame, connection)");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int served = read_request(self, buffer.buf, buffer.len, &request);
    if (served > 0) {
        served = has_room(self, buffer.len);
    }
    if (served > 0) {
        served = serve(self, arguments[0], buffer.buf, &request, arguments[1]);
    }
    PyBuffer_Release(&buffer);
    return served < 0 ? NULL : PyBool_FromLong(served);
}

static int
kernel_init(Kernel *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"topics", "produce", "can_take", "now_ms", "append", "append_carefully", "fail", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OOOOOO", names, &PyDict_Type, &self->topics, &self->produce,
                                     &self->can_take, &self->now_ms, &self->append, &self->append_carefully, &self->fail)) {
        self->topics = self->produce = self->can_take = self->now_ms = self->append = self->append_carefully = self->fail = NULL;
        return -1;
    }
    Py_INCREF(self->topics);
    Py_INCREF(self->produce);
    Py_INCREF(self->can_take);
    Py_INCREF(self->now_ms);
    Py_INCREF(self->append);
    Py_INCREF(self->append_carefully);
    Py_INCREF(self->fail);
    return 0;
}

static void
kernel_dealloc(Kernel *self)
{
    Py_XDECREF(self->topics);
    Py_XDECREF(self->produce);
    Py_XDECREF(self->can_take);
    Py_XDECREF(self->now_ms);
    Py_XDECREF(self->append);
    Py_XDECREF(self->append_carefully);
    Py_XDECREF(self->fail);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef kernel_methods[] = {
    {"take", (PyCFunction)(void (*)(void))kernel_take, METH_FASTCALL, "Serve one frame, or say that it is not for here."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headrace.doors.kafka._produce.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Serves produce requests of the common shape.",
    .tp_methods = kernel_methods,
    .tp_init = (initproc)kernel_init,
    .tp_new = PyType_GenericNew,
};

/* -- the module ----------------------------------------------------------------------------------------------------- */

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_produce", "Common produce requests, in one call.", -1, NULL,
                                    NULL,                  NULL,       NULL,                                    NULL};

static const struct {
    PyObject **place;
    const char *text;
} strings[] = {
    {&str_slots, "_slots"},
    {&str_append, "append"},
    {&str_answered, "answered"},
    {&str_is_internal, "is_internal"},
    {&str_partitions, "partitions"},
    {&str_log_start, "log_start"},
    {&str_batches, "batches_total"},
    {&str_records, "records_total"},
    {&str_bytes, "bytes_total"},
};

PyMODINIT_FUNC
PyInit__produce(void)
{
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if ((*strings[i].place = PyUnicode_InternFromString(strings[i].text)) == NULL) {
            return NULL;
        }
    }
    if (PyType_Ready(&reply_type) < 0 || PyType_Ready(&kernel_type) < 0) {
        return NULL;
    }
    PyObject *self = PyModule_Create(&module);
    if (self == NULL || PyModule_AddObjectRef(self, "Kernel", (PyObject *)&kernel_type) < 0 ||
        PyModule_AddObjectRef(self, "Reply", (PyObject *)&reply_type) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
