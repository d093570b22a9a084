/* Produce requests of the common shape, from the frame to the answer, in one call.

       Kernel(produce, can_take, now_ms, append, append_carefully, fail).take(frame, connection) -> bool

   False means: not here. Nothing has changed then, and the request goes through the route table like any other. `append` is
   the capsule of headrace.log, and `now_ms` may be None for the system's clock.

   The common shape: acks 1 or all, no transactional id, no tagged fields, only topics that the connection's `_open_topics`
   has under their name (or, from v13, their id), fewer than SLOTS_MAX answers owed to the client, and room in the log.
   `_open_topics` is all this module knows of rights: whoever may not write to a topic, or has to be asked about it, does not find it there.
   Each batch goes to `append` (headrace.log); where that declines, `append_carefully` does the one partition in Python and
   gives its row of the answer. The answer is encoded at once, with the offsets it will have, and waits in a `Reply` for the
   log to keep what it promises. When that fails, or takes too long, `fail` makes the real answer of it. */

#include "produce_answer.h"
#include "produce_reply.h"
#include "produce_request.h"

#include <string.h>
#include <time.h>

enum { SIZE_FIELD = 4, FRAME_SIZE_MIN = 12 };
enum { SLOTS_MAX = 512 }; /* of a connection, as in doors/slots.py */
enum { PLAIN_ROW_MAX = 40, FRAME_START_MAX = 64 };

enum { P_BATCHES, P_RECORDS, P_BYTES };
static Layout produce_layout = {"headrace.broker.produce", "Produce", {"batches_total", "records_total", "bytes_total"}, NULL, {0}};

static Layout *const layouts[] = {&connection_layout, &peers_layout, &produce_layout};

static PyObject *str_append, *str_log_start;

/* -- Kernel --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *produce, *can_take, *now_ms, *append, *append_carefully, *fail;
    const LogCalls *log; /* of `append` */
} Kernel;

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
