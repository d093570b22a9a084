/* Produce requests of the common shape, from the frame to the answer, in one call.

       Kernel(produce, can_take, now_ms, append, append_carefully, fail).take(frame, connection) -> bool

   False means: not here. Nothing has changed then, and the request goes through the route table like any other. `append` is
   the capsule of headrace.log, and `now_ms` may be None for the system's clock.

   The common shape: acks 1 or all, no transactional id, no tagged fields, only topics that the connection's `_open_topics`
   has under their name (or, from v13, their id), fewer than SLOTS_MAX answers owed to the client, and room in the log. `_open_topics` is all this module knows of
   rights: whoever may not write to a topic, or has to be asked about it, does not find it there.
   Each batch goes to `append` (headrace.log); where that declines, `append_carefully` does the one partition in Python and
   gives its row of the answer. The answer is encoded at once, with the offsets it will have, and waits in a `Reply` for the
   log to keep what it promises. When that fails, or takes too long, `fail` makes the real answer of it. */

#include "../../kernel.h"

#include <string.h>
#include <time.h>

enum { PRODUCE_KEY = 0, FIRST_VERSION = 7, LAST_VERSION = 13, FLEXIBLE_FROM = 9, TOPIC_ID_FROM = 13 };
enum { TOPIC_ID_SIZE = 16 };
enum { SIZE_FIELD = 4, FRAME_SIZE_MIN = 12 };
enum { SLOTS_MAX = 512 }; /* of a connection, `_SLOTS_MAX` in doors/connection.py */
enum { ROWS_MAX = 1024, PLAIN_ROW_MAX = 40, FRAME_START_MAX = 64 };

enum { C_SLOTS, C_IS_ANSWERING, C_PEERS, C_OPEN_TOPICS };
static Layout connection_layout = {"headrace.doors.connection", "FramedConnection",
                                   {"_slots", "_is_answering", "_peers", "_open_topics"}, NULL, {0}};
enum { S_ANSWERING };
static Layout peers_layout = {"headrace.doors.connection", "ConnectionSet", {"_answering"}, NULL, {0}};
enum { P_BATCHES, P_RECORDS, P_BYTES };
static Layout produce_layout = {"headrace.broker.produce", "Produce", {"batches_total", "records_total", "bytes_total"}, NULL, {0}};

static Layout *const layouts[] = {&connection_layout, &peers_layout, &produce_layout};

static PyObject *str_append, *str_flush_soon, *str_partitions, *str_log_start;

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
    PyObject *topics; /* those that were written to, in the order of the request: names may change hands meanwhile */
    PyObject *error;  /* the first one */
    long long expires_ms;
    int pending, version, correlation_id;
} Reply;

/* No `tp_clear`: every cycle through this type also passes through an object that has one. */
static int
reply_traverse(Reply *self, visitproc visit, void *arg)
{
    Py_VISIT(self->connection);
    Py_VISIT(self->fail);
    Py_VISIT(self->chunks);
    Py_VISIT(self->topics);
    Py_VISIT(self->error);
    return 0;
}

static void
reply_dealloc(Reply *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->connection);
    Py_XDECREF(self->fail);
    Py_XDECREF(self->answer);
    Py_XDECREF(self->chunks);
    Py_XDECREF(self->on_lost);
    Py_XDECREF(self->topics);
    Py_XDECREF(self->error);
    PyObject_GC_Del(self);
}

static int
is_first_of(PyObject *slots, PyObject *reply)
{
    PyObject *first = PyObject_Size(slots) > 0 ? PySequence_GetItem(slots, 0) : NULL;
    Py_XDECREF(first);
    return first == reply;
}

/* `FramedConnection.answered`. */
static int
tell_connection(Reply *self)
{
    PyObject *connection = self->connection;
    PyObject *peers = slot(&connection_layout, connection, C_PEERS);
    if (slot(&connection_layout, connection, C_IS_ANSWERING) != Py_False ||
        !is_first_of(slot(&connection_layout, connection, C_SLOTS), (PyObject *)self)) {
        return PyErr_Occurred() ? -1 : 0;
    }
    set_slot(&connection_layout, connection, C_IS_ANSWERING, Py_True);
    PyObject *answering = is_a(&peers_layout, peers) ? slot(&peers_layout, peers, S_ANSWERING) : NULL;
    if (answering != NULL && PyList_Check(answering) && PyList_GET_SIZE(answering)) {
        return PyList_Append(answering, connection); /* The flush is on its way. */
    }
    PyObject *done = PyObject_CallMethodOneArg(peers, str_flush_soon, connection);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *
reply_fill(Reply *self, PyObject *chunks)
{
    if (self->chunks == Py_None) {
        Py_INCREF(chunks);
        Py_SETREF(self->chunks, chunks);
        if (tell_connection(self) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
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
    {"topics", T_OBJECT, offsetof(Reply, topics), READONLY, "Those of the answer, as they were when it was made."},
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
    .tp_traverse = (traverseproc)reply_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
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
    PyObject *produce, *can_take, *now_ms, *append, *append_carefully, *fail;
    const LogCalls *log; /* of `append` */
} Kernel;

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

/* 1, 0 where the request has to wait, -1 with an exception. */
static int
has_room(Kernel *self, const Request *request, Py_ssize_t size)
{
    if (request->row_count && self->log->has_room(request->rows[0].partition, size)) {
        return 1;
    }
    PyObject *wanted = PyLong_FromSsize_t(size);
    PyObject *answer = wanted != NULL ? PyObject_CallOneArg(self->can_take, wanted) : NULL;
    Py_XDECREF(wanted);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : answer == Py_True;
}

static int
count_up(PyObject *produce, int which, int64_t by)
{
    int is_good = 1;
    PyObject *sum = PyLong_FromLongLong(slot_number(&produce_layout, produce, which, &is_good) + by);
    if (sum != NULL && is_good) {
        set_slot(&produce_layout, produce, which, sum);
    }
    Py_XDECREF(sum);
    return sum == NULL ? -1 : 0;
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

/* A batch that the log's kernel has declined, in Python. */
static int
append_carefully(Kernel *self, PyObject *view, const unsigned char *data, const Request *request, const Row *row,
                 PyObject *reply, int64_t now_ms, Output *output)
{
    Py_ssize_t start = row->records - data;
    PyObject *batch = PySequence_GetSlice(view, start, start + row->size);
    PyObject *encoded = batch != NULL ? PyObject_CallFunction(self->append_carefully, "OOiOLi", reply, row->partition,
                                                              (int)row->index, batch, (long long)now_ms, request->version)
                                      : NULL;
    Py_XDECREF(batch);
    if (encoded != NULL && !PyBytes_Check(encoded)) {
        PyErr_SetString(PyExc_TypeError, "a row of the answer is bytes");
        Py_CLEAR(encoded);
    }
    int failed = encoded == NULL || make_room(output, PyBytes_GET_SIZE(encoded)) < 0;
    if (!failed) {
        memcpy(output->at, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
        output->at += PyBytes_GET_SIZE(encoded);
    }
    Py_XDECREF(encoded);
    return failed ? -1 : 0;
}

static int
append_row(Kernel *self, PyObject *view, const unsigned char *data, const Request *request, const Row *row,
           PyObject *reply, int64_t now_ms, Output *output, int64_t *record_count)
{
    int64_t base = self->log->append(row->partition, row->records, row->size, now_ms, reply);
    if (base == APPEND_DECLINED) {
        return append_carefully(self, view, data, request, row, reply, now_ms, output);
    }
    PyObject *log_start = base != APPEND_FAILED ? PyObject_GetAttr(row->partition, str_log_start) : NULL;
    if (log_start == NULL || make_room(output, PLAIN_ROW_MAX) < 0) {
        Py_XDECREF(log_start);
        return -1;
    }
    output->at = put_plain_row(output->at, request->version, row->index, base, PyLong_AsLongLong(log_start));
    *record_count += read_int(row->records + RECORD_COUNT_AT, 4);
    Py_DECREF(log_start);
    return PyErr_Occurred() ? -1 : 0;
}

static int
put_topic(Output *output, const Request *request, const Row *row)
{
    if (make_room(output, row->name_size + 16) < 0) {
        return -1;
    }
    int is_flexible = request->version >= FLEXIBLE_FROM;
    if (request->version < TOPIC_ID_FROM) {
        output->at = is_flexible ? put_uvarint(output->at, row->name_size + 1) : put_int(output->at, row->name_size, 2);
    }
    memcpy(output->at, row->name, row->name_size);
    output->at += row->name_size;
    output->at =
        is_flexible ? put_uvarint(output->at, row->rows_of_topic + 1) : put_int(output->at, row->rows_of_topic, 4);
    return 0;
}

/* Appends every row and gives the answer's frame, or NULL with an exception. */
static PyObject *
append_rows(Kernel *self, PyObject *view, const unsigned char *data, const Request *request, PyObject *reply,
            int64_t now_ms)
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
        if (append_row(self, view, data, request, row, reply, now_ms, &output, &record_count) < 0) {
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
    if (!batch_count || (count_up(self->produce, P_BATCHES, batch_count) == 0 &&
                         count_up(self->produce, P_RECORDS, record_count) == 0 &&
                         count_up(self->produce, P_BYTES, byte_count) == 0)) {
        answer = PyBytes_FromStringAndSize((char *)output.start, output.at - output.start);
    }
done:
    PyMem_Free(output.start);
    return answer;
}

static PyObject *
topics_of(const Request *request)
{
    PyObject *topics = PyTuple_New(request->topic_count);
    Py_ssize_t count = 0;
    for (int nth = 0; topics != NULL && nth < request->row_count; nth++) {
        if (request->rows[nth].rows_of_topic) {
            PyTuple_SET_ITEM(topics, count++, Py_NewRef(request->rows[nth].topic));
        }
    }
    return topics;
}

static Reply *
new_reply(Kernel *self, PyObject *connection, const Request *request, int64_t now_ms)
{
    PyObject *topics = topics_of(request);
    Reply *reply = topics != NULL ? PyObject_GC_New(Reply, &reply_type) : NULL;
    if (reply == NULL) {
        Py_XDECREF(topics);
        return NULL;
    }
    reply->connection = Py_NewRef(connection);
    reply->fail = Py_NewRef(self->fail);
    reply->chunks = Py_NewRef(Py_None);
    reply->on_lost = Py_NewRef(Py_None);
    reply->topics = topics;
    reply->answer = NULL;
    reply->error = NULL;
    reply->pending = 0;
    reply->version = request->version;
    reply->correlation_id = request->correlation_id;
    reply->expires_ms = now_ms + request->timeout_ms;
    PyObject_GC_Track(reply);
    return reply;
}

/* What nobody foresaw has happened in the middle of it: `reply` keeps its place, but nothing will be said in it. */
static void
leave_unanswered(Reply *reply)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *nothing = PyTuple_New(0);
    if (nothing != NULL) {
        Py_XSETREF(reply->chunks, nothing);
    }
    PyErr_Restore(kind, error, trace);
}

/* Milliseconds since 1970; -1 with an exception. */
static int64_t
time_now(Kernel *self)
{
    if (self->now_ms == Py_None) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    PyObject *given = PyObject_CallNoArgs(self->now_ms);
    int64_t now_ms = given != NULL ? PyLong_AsLongLong(given) : -1;
    Py_XDECREF(given);
    return now_ms;
}

static int
serve(Kernel *self, PyObject *view, const unsigned char *data, const Request *request, PyObject *connection)
{
    int64_t now_ms = time_now(self);
    Reply *reply = !PyErr_Occurred() ? new_reply(self, connection, request, now_ms) : NULL;
    PyObject *slots = slot(&connection_layout, connection, C_SLOTS);
    PyObject *reserved = reply != NULL ? PyObject_CallMethodOneArg(slots, str_append, (PyObject *)reply) : NULL;
    int failed = reserved == NULL;
    if (!failed) {
        reply->answer = append_rows(self, view, data, request, (PyObject *)reply, now_ms);
        failed = reply->answer == NULL;
        if (failed) {
            leave_unanswered(reply);
        }
    }
    if (!failed && !reply->pending) {
        PyObject *done = reply_finish(reply);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(reserved);
    Py_XDECREF(reply);
    return failed ? -1 : 1;
}

/* 1 when the frame is served, 0 when it is not for us, -1 with an exception. `view` holds the bytes that `frame` points into. */
static int
take_frame(Kernel *self, PyObject *view, const unsigned char *data, const unsigned char *frame, Py_ssize_t size,
           PyObject *connection)
{
    static Request request; /* Large, and one loop serves one frame at a time; */
    static int is_busy;     /* another loop's thread may come while a checksum has let go of the interpreter. */
    if (is_busy) {
        return 0;
    }
    if (!is_kind_of(&connection_layout, connection)) {
        PyErr_SetString(PyExc_TypeError, "only a FramedConnection can be answered");
        return -1;
    }
    PyObject *open_topics = slot(&connection_layout, connection, C_OPEN_TOPICS);
    PyObject *owed = slot(&connection_layout, connection, C_SLOTS);
    if (open_topics == NULL || !PyDict_CheckExact(open_topics) || owed == NULL || PyObject_Size(owed) >= SLOTS_MAX) {
        return PyErr_Occurred() ? -1 : 0;
    }
    is_busy = 1;
    int served = read_request(open_topics, frame, size, &request);
    if (served > 0) {
        served = has_room(self, &request, size);
    }
    if (served > 0) {
        served = serve(self, view, data, &request, connection);
    }
    is_busy = 0;
    return served;
}

static PyObject *
kernel_take(Kernel *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer buffer;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "take(frame, connection)");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int served = take_frame(self, arguments[0], buffer.buf, buffer.buf, buffer.len, arguments[1]);
    PyBuffer_Release(&buffer);
    return served < 0 ? NULL : PyBool_FromLong(served);
}

static PyObject *
kernel_take_all(Kernel *self, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer buffer;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "take_all(view, filled, connection)");
        return NULL;
    }
    Py_ssize_t filled = PyLong_AsSsize_t(arguments[1]), start = 0;
    if ((filled == -1 && PyErr_Occurred()) || PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const unsigned char *data = buffer.buf;
    filled = filled < buffer.len ? filled : buffer.len;
    int served = 1;
    while (filled - start >= FRAME_SIZE_MIN) {
        Py_ssize_t size = SIZE_FIELD + (Py_ssize_t)read_int(data + start, 4);
        if (size < FRAME_SIZE_MIN || size > filled - start) {
            break;
        }
        served = take_frame(self, arguments[0], data, data + start, size, arguments[2]);
        if (served <= 0) {
            break;
        }
        start += size;
    }
    PyBuffer_Release(&buffer);
    return served < 0 ? NULL : PyLong_FromSsize_t(start);
}

static PyObject *
kernel_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"produce", "can_take", "now_ms", "append", "append_carefully", "fail", NULL};
    Kernel given;
    if (learn_layouts(layouts, sizeof layouts / sizeof *layouts) < 0 ||
        !PyArg_ParseTupleAndKeywords(arguments, keywords, "O!OOOOO", names, produce_layout.type, &given.produce,
                                     &given.can_take, &given.now_ms, &given.append, &given.append_carefully, &given.fail)) {
        return NULL;
    }
    given.log = PyCapsule_GetPointer(given.append, LOG_CAPSULE);
    if (given.log == NULL) {
        return NULL;
    }
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->produce = Py_NewRef(given.produce);
        self->can_take = Py_NewRef(given.can_take);
        self->now_ms = Py_NewRef(given.now_ms);
        self->append = Py_NewRef(given.append);
        self->log = given.log;
        self->append_carefully = Py_NewRef(given.append_carefully);
        self->fail = Py_NewRef(given.fail);
    }
    return (PyObject *)self;
}

static int
kernel_traverse(Kernel *self, visitproc visit, void *arg)
{
    Py_VISIT(self->produce);
    Py_VISIT(self->can_take);
    Py_VISIT(self->now_ms);
    Py_VISIT(self->append);
    Py_VISIT(self->append_carefully);
    Py_VISIT(self->fail);
    return 0;
}

static void
kernel_dealloc(Kernel *self)
{
    PyObject_GC_UnTrack(self);
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
    {"take_all", (PyCFunction)(void (*)(void))kernel_take_all, METH_FASTCALL,
     "Serve the whole frames at the start of a view, up to the first that is not for here; gives where that begins."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "headrace.doors.kafka._produce.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_traverse = (traverseproc)kernel_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Serves produce requests of the common shape.",
    .tp_methods = kernel_methods,
    .tp_new = kernel_new,
};

/* -- the module ----------------------------------------------------------------------------------------------------- */

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_produce", "Common produce requests, in one call.", -1, NULL,
                                    NULL,                  NULL,       NULL,                                    NULL};

static const Name names[] = {
    {&str_append, "append"},
    {&str_flush_soon, "flush_soon"},
    {&str_partitions, "partitions"},
    {&str_log_start, "log_start"},
};

PyMODINIT_FUNC
PyInit__produce(void)
{
    if (intern_names(names, sizeof names / sizeof *names) < 0) {
        return NULL;
    }
    if (PyType_Ready(&reply_type) < 0 || PyType_Ready(&kernel_type) < 0) {
        return NULL;
    }
    PyObject *self = PyModule_Create(&module);
    if (self == NULL || PyModule_AddIntMacro(self, ROWS_MAX) < 0 || PyModule_AddIntMacro(self, SLOTS_MAX) < 0 || PyModule_AddObjectRef(self, "Kernel", (PyObject *)&kernel_type) < 0 ||
        PyModule_AddObjectRef(self, "Reply", (PyObject *)&reply_type) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
