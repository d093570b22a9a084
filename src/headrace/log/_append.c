/* The common case of `PartitionLog.append` and `wait`, in one call.

       append(partition, batch, now_ms, waiter) -> base offset, or None

   None means: not here. Nothing has changed then, and the caller goes the way of the pure twin, which knows every case
   and raises the errors. Everything is decided before the first change, so there is no half-done append to undo.

   The common case: a valid batch of a client, not transactional, from no producer or from one that goes on where it left
   off, for a topic without special rules, into a chunk and a group that have room. Objects stay Python's own: this reads
   and writes the slots of `PartitionLog`, `Tail`, `TailIndex`, `Chunk`, `Group` and `Producer` where they lie. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

enum { HEADER_SIZE = 61, LENGTH_OVERHEAD = 12, CRC_START = 21, MAGIC = 2, RECORD_SIZE_MIN = 7 };
enum { CODEC_MASK = 7, CODEC_LAST = 4, TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { GROUP_HEADER_SIZE = 44, ENTRY_HEAD_SIZE = 20, ENTRY_SIZE = 36 };

/* -- slots: where a class with __slots__ keeps them ---------------------------------------------------------------- */

typedef struct {
    PyTypeObject *type;
    const char *const *names;
    Py_ssize_t offsets[8];
} Layout;

static const char *const partition_slots[] = {"_store",       "_entry_head", "_tail",        "_commit_waiters",
                                              "end_offset",   "policy",      "leader_epoch", NULL};
enum { P_STORE, P_ENTRY_HEAD, P_TAIL, P_COMMIT_WAITERS, P_END_OFFSET, P_POLICY, P_LEADER_EPOCH };
static const char *const partition_more_slots[] = {"removed", "ceiling", "epoch_starts", "producers", NULL};
enum { P_REMOVED, P_CEILING, P_EPOCH_STARTS, P_PRODUCERS };
static const char *const tail_slots[] = {"_chunks", "_position", "index", NULL};
enum { T_CHUNKS, T_POSITION, T_INDEX };
static const char *const index_slots[] = {"offsets", "ends", "positions", "lsns", "max_timestamps", "timestamp_high", NULL};
enum { I_OFFSETS, I_ENDS, I_POSITIONS, I_LSNS, I_MAX_TIMESTAMPS, I_TIMESTAMP_HIGH };
static const char *const chunk_slots[] = {"memory", "view", "size", "used", NULL};
enum { C_MEMORY, C_VIEW, C_SIZE, C_USED };
static const char *const group_slots[] = {"lsn", "room", "payload_size", "pieces", "table", "ends", "waiters", NULL};
enum { G_LSN, G_ROOM, G_PAYLOAD_SIZE, G_PIECES, G_TABLE, G_ENDS, G_WAITERS };
static const char *const producers_slots[] = {"_by_id", NULL};
enum { S_BY_ID };
static const char *const producer_slots[] = {"epoch", "batches", "last_timestamp_ms", "seen_ms", NULL};
enum { R_EPOCH, R_BATCHES, R_LAST_TIMESTAMP, R_SEEN };

static Layout partition_layout = {NULL, partition_slots, {0}};
static Layout partition_more = {NULL, partition_more_slots, {0}};
static Layout tail_layout = {NULL, tail_slots, {0}};
static Layout index_layout = {NULL, index_slots, {0}};
static Layout chunk_layout = {NULL, chunk_slots, {0}};
static Layout group_layout = {NULL, group_slots, {0}};
static Layout producers_layout = {NULL, producers_slots, {0}};
static Layout producer_layout = {NULL, producer_slots, {0}};

static PyObject *crc32c, *sent_batch_type;
static PyObject *str_wal, *str_ceiling_margin, *str_refusal, *str_open, *str_unflushed, *str_is_scheduled, *str_schedule;
static PyObject *str_append, *str_expect_one, *str_durability, *str_bytes_max, *str_append_time, *str_before, *str_after,
    *str_compacted, *str_wal_value;

static int
learn_layout(Layout *layout, PyTypeObject *type)
{
    for (int i = 0; layout->names[i] != NULL; i++) {
        PyObject *descriptor = PyObject_GetAttrString((PyObject *)type, layout->names[i]);
        if (descriptor == NULL) {
            return -1;
        }
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", type->tp_name, layout->names[i]);
            Py_DECREF(descriptor);
            return -1;
        }
        layout->offsets[i] = ((PyMemberDescrObject *)descriptor)->d_member->offset;
        Py_DECREF(descriptor);
    }
    Py_INCREF(type);
    layout->type = type;
    return 0;
}

static inline int
knows(Layout *layout, PyObject *object)
{
    if (Py_TYPE(object) == layout->type) {
        return 0;
    }
    if (layout->type != NULL) {
        PyErr_Format(PyExc_TypeError, "%s where %s is due", Py_TYPE(object)->tp_name, layout->type->tp_name);
        return -1;
    }
    return learn_layout(layout, Py_TYPE(object));
}

static inline PyObject *
slot(const Layout *layout, PyObject *object, int which)
{
    return *(PyObject **)((char *)object + layout->offsets[which]); /* borrowed */
}

static inline void
set_slot(const Layout *layout, PyObject *object, int which, PyObject *value) /* steals */
{
    PyObject **place = (PyObject **)((char *)object + layout->offsets[which]);
    PyObject *old = *place;
    *place = value;
    Py_XDECREF(old);
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

static inline int64_t
read_int(const unsigned char *at, int size)
{
    uint64_t value = 0;
    for (int i = 0; i < size; i++) {
        value = value << 8 | at[i];
    }
    return size == 8 ? (int64_t)value : size == 4 ? (int32_t)value : (int16_t)value;
}

static inline void
write_int(unsigned char *at, int64_t value, int size)
{
    for (int i = size - 1; i >= 0; i--) {
        at[i] = (unsigned char)value;
        value >>= 8;
    }
}

static inline int64_t
attribute_int(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    int64_t number = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return number;
}

static inline int
attribute_is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    Py_DECREF(value);
    return value == wanted;
}

/* -- the topic's rules --------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *policy; /* the one decoded last; kept alive so that its address stays its own */
    int is_plain;
    int64_t bytes_max, after_ms;
} Rules;

static Rules rules;

static int
learn_rules(PyObject *policy)
{
    PyObject *durability = PyObject_GetAttr(policy, str_durability);
    if (durability == NULL) {
        return -1;
    }
    int is_wal = PyObject_RichCompareBool(durability, str_wal_value, Py_EQ);
    Py_DECREF(durability);
    int is_stamped = attribute_is(policy, str_append_time, Py_True);
    int is_compacted = attribute_is(policy, str_compacted, Py_True);
    int64_t before_ms = attribute_int(policy, str_before);
    int64_t bytes_max = attribute_int(policy, str_bytes_max);
    int64_t after_ms = attribute_int(policy, str_after);
    if (PyErr_Occurred()) {
        return -1;
    }
    Py_INCREF(policy);
    Py_XSETREF(rules.policy, policy);
    rules.is_plain = is_wal && !is_stamped && !is_compacted && before_ms == INT64_MAX;
    rules.bytes_max = bytes_max;
    rules.after_ms = after_ms;
    return 0;
}

/* -- the batch ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int32_t count, base_sequence;
    int16_t epoch;
    int64_t producer_id, max_timestamp;
} Batch;

/* Whether the batch is one that `check_batch` takes, the CRC aside, and the log has nothing special to do for. */
static int
is_common_batch(const unsigned char *data, Py_ssize_t size, Batch *batch)
{
    if (size < HEADER_SIZE || data[16] != MAGIC || read_int(data + 8, 4) + LENGTH_OVERHEAD != size) {
        return 0;
    }
    int attributes = (int)read_int(data + 21, 2) & 0xFFFF;
    int codec = attributes & CODEC_MASK;
    int64_t count = read_int(data + 57, 4);
    if (attributes & (TRANSACTIONAL | CONTROL) || codec > CODEC_LAST) {
        return 0;
    }
    if (count < 1 || read_int(data + 23, 4) != count - 1 || (!codec && count * RECORD_SIZE_MIN > size - HEADER_SIZE)) {
        return 0;
    }
    batch->count = (int32_t)count;
    batch->max_timestamp = read_int(data + 35, 8);
    batch->producer_id = read_int(data + 43, 8);
    batch->epoch = (int16_t)read_int(data + 51, 2);
    batch->base_sequence = (int32_t)read_int(data + 53, 4);
    return batch->producer_id == -1 || (batch->producer_id >= 0 && batch->epoch >= 0 && batch->base_sequence >= 0);
}

/* 1, 0, or -1 with an exception. The CRC has one implementation in the product, and it is not this file's. */
static int
has_valid_crc(PyObject *batch, const unsigned char *data, Py_ssize_t size)
{
    PyObject *covered = PySequence_GetSlice(batch, CRC_START, size);
    if (covered == NULL) {
        return -1;
    }
    PyObject *found = PyObject_CallOneArg(crc32c, covered);
    Py_DECREF(covered);
    if (found == NULL) {
        return -1;
    }
    uint32_t crc = (uint32_t)PyLong_AsUnsignedLong(found);
    Py_DECREF(found);
    return crc == (uint32_t)read_int(data + 17, 4);
}

/* The producer that this batch continues, borrowed; NULL where the twin must look (or with an exception). */
static PyObject *
continued_producer(PyObject *partition, const Batch *batch)
{
    PyObject *producers = slot(&partition_more, partition, P_PRODUCERS);
    if (producers == NULL || producers == Py_None || knows(&producers_layout, producers) < 0) {
        return NULL;
    }
    PyObject *key = PyLong_FromLongLong(batch->producer_id);
    if (key == NULL) {
        return NULL;
    }
    PyObject *producer = PyDict_GetItemWithError(slot(&producers_layout, producers, S_BY_ID), key);
    Py_DECREF(key);
    if (producer == NULL || knows(&producer_layout, producer) < 0) {
        return NULL;
    }
    if (PyLong_AsLongLong(slot(&producer_layout, producer, R_EPOCH)) != batch->epoch) {
        return NULL;
    }
    PyObject *batches = slot(&producer_layout, producer, R_BATCHES);
    Py_ssize_t kept = PyObject_Size(batches);
    if (kept < 1) {
        return NULL;
    }
    PyObject *last = PySequence_GetItem(batches, kept - 1);
    if (last == NULL) {
        return NULL;
    }
    int64_t last_sequence = PyTuple_Check(last) ? PyLong_AsLongLong(PyTuple_GET_ITEM(last, 1)) : -1;
    Py_DECREF(last);
    return ((last_sequence + 1) & 0x7FFFFFFF) == batch->base_sequence ? producer : NULL;
}

static int
note_producer(PyObject *producer, const Batch *batch, int64_t base, int64_t now_ms)
{
    int64_t last_sequence = ((int64_t)batch->base_sequence + batch->count - 1) & 0x7FFFFFFF;
    PyObject *sent = PyObject_CallFunction(sent_batch_type, "iLLL", batch->base_sequence, (long long)last_sequence,
                                           (long long)base, (long long)(base + batch->count));
    PyObject *newest = PyLong_FromLongLong(batch->max_timestamp);
    PyObject *seen = PyLong_FromLongLong(now_ms);
    if (sent == NULL || newest == NULL || seen == NULL) {
        Py_XDECREF(sent);
        Py_XDECREF(newest);
        Py_XDECREF(seen);
        return -1;
    }
    set_slot(&producer_layout, producer, R_LAST_TIMESTAMP, newest);
    set_slot(&producer_layout, producer, R_SEEN, seen);
    PyObject *done = PyObject_CallMethodOneArg(slot(&producer_layout, producer, R_BATCHES), str_append, sent);
    Py_DECREF(sent);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* -- the append ---------------------------------------------------------------------------------------------------- */

static int
append_number(PyObject *array, PyObject *number)
{
    PyObject *done = PyObject_CallMethodOneArg(array, str_append, number);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
add_row(PyObject *index, PyObject *base, PyObject *end, PyObject *position, int64_t lsn, int64_t max_timestamp)
{
    PyObject *address = PyLong_FromLongLong(lsn), *newest = PyLong_FromLongLong(max_timestamp);
    int failed = address == NULL || newest == NULL || append_number(slot(&index_layout, index, I_OFFSETS), base) < 0 ||
                 append_number(slot(&index_layout, index, I_ENDS), end) < 0 ||
                 append_number(slot(&index_layout, index, I_POSITIONS), position) < 0 ||
                 append_number(slot(&index_layout, index, I_LSNS), address) < 0 ||
                 append_number(slot(&index_layout, index, I_MAX_TIMESTAMPS), newest) < 0;
    if (!failed && max_timestamp > PyLong_AsLongLong(slot(&index_layout, index, I_TIMESTAMP_HIGH))) {
        Py_INCREF(newest);
        set_slot(&index_layout, index, I_TIMESTAMP_HIGH, newest);
    }
    Py_XDECREF(address);
    Py_XDECREF(newest);
    return failed ? -1 : 0;
}

/* Adds `waiter` to those of the group, unless it was the last to ask already. */
static int
wait_for(PyObject *group, PyObject *waiter)
{
    PyObject *waiters = slot(&group_layout, group, G_WAITERS);
    Py_ssize_t count = PyList_GET_SIZE(waiters);
    if (count && PyList_GET_ITEM(waiters, count - 1) == waiter) {
        return 0;
    }
    PyObject *done = PyObject_CallMethodNoArgs(waiter, str_expect_one);
    if (done == NULL) {
        return -1;
    }
    Py_DECREF(done);
    return PyList_Append(waiters, waiter);
}

static PyObject *
append_to_group(PyObject *partition, PyObject *wal, PyObject *group, PyObject *tail, PyObject *chunk, PyObject *producer,
                const unsigned char *data, Py_ssize_t size, const Batch *batch, int64_t base, int64_t now_ms,
                PyObject *waiter)
{
    int64_t used = PyLong_AsLongLong(slot(&chunk_layout, chunk, C_USED));
    int64_t position = PyLong_AsLongLong(slot(&tail_layout, tail, T_POSITION));
    int64_t payload_size = PyLong_AsLongLong(slot(&group_layout, group, G_PAYLOAD_SIZE));
    int64_t room = PyLong_AsLongLong(slot(&group_layout, group, G_ROOM));
    int64_t lsn = PyLong_AsLongLong(slot(&group_layout, group, G_LSN)) + GROUP_HEADER_SIZE + payload_size;
    int64_t epoch = PyLong_AsLongLong(slot(&partition_layout, partition, P_LEADER_EPOCH));
    int64_t unflushed = attribute_int(wal, str_unflushed);
    PyObject *result = PyLong_FromLongLong(base), *end = PyLong_FromLongLong(base + batch->count);
    PyObject *used_after = PyLong_FromLongLong(used + size), *position_after = PyLong_FromLongLong(position + size);
    PyObject *payload_after = PyLong_FromLongLong(payload_size + size), *room_after = PyLong_FromLongLong(room - ENTRY_SIZE);
    PyObject *unflushed_after = PyLong_FromLongLong(unflushed + size);
    PyObject *view = PySequence_GetSlice(slot(&chunk_layout, chunk, C_VIEW), used, used + size);
    PyObject *entry = PyBytes_FromStringAndSize(NULL, ENTRY_SIZE);
    if (result == NULL || end == NULL || used_after == NULL || position_after == NULL || payload_after == NULL ||
        room_after == NULL || unflushed_after == NULL || view == NULL || entry == NULL || PyErr_Occurred()) {
        Py_XDECREF(used_after);
        Py_XDECREF(position_after);
        Py_XDECREF(payload_after);
        Py_XDECREF(room_after);
        Py_CLEAR(result);
        goto done;
    }

    unsigned char *copy = (unsigned char *)PyByteArray_AS_STRING(slot(&chunk_layout, chunk, C_MEMORY)) + used;
    memcpy(copy, data, size);
    write_int(copy, base, 8);
    write_int(copy + 12, epoch, 4);

    unsigned char *row = (unsigned char *)PyBytes_AS_STRING(entry);
    memcpy(row, PyBytes_AS_STRING(slot(&partition_layout, partition, P_ENTRY_HEAD)), ENTRY_HEAD_SIZE);
    write_int(row + ENTRY_HEAD_SIZE, size, 4);
    write_int(row + ENTRY_HEAD_SIZE + 4, base, 8);
    write_int(row + ENTRY_HEAD_SIZE + 12, epoch, 4);

    set_slot(&group_layout, group, G_PAYLOAD_SIZE, payload_after);
    set_slot(&group_layout, group, G_ROOM, room_after);
    set_slot(&chunk_layout, chunk, C_USED, used_after);
    /* From here on only memory could run out; what is done by then is done. */
    if (PyList_Append(slot(&group_layout, group, G_PIECES), view) < 0 ||
        PyList_Append(slot(&group_layout, group, G_TABLE), entry) < 0 ||
        PyDict_SetItem(slot(&group_layout, group, G_ENDS), partition, end) < 0 ||
        PyObject_SetAttr(wal, str_unflushed, unflushed_after) < 0 ||
        add_row(slot(&tail_layout, tail, T_INDEX), result, end, slot(&tail_layout, tail, T_POSITION), lsn,
                batch->max_timestamp) < 0) {
        Py_DECREF(position_after);
        Py_CLEAR(result);
        goto done;
    }
    set_slot(&tail_layout, tail, T_POSITION, position_after);
    Py_INCREF(end);
    set_slot(&partition_layout, partition, P_END_OFFSET, end);
    if ((producer != NULL && note_producer(producer, batch, base, now_ms) < 0) ||
        (waiter != Py_None && wait_for(group, waiter) < 0)) {
        Py_CLEAR(result);
        goto done;
    }
    int is_scheduled = attribute_is(wal, str_is_scheduled, Py_True);
    if (is_scheduled <= 0) {
        PyObject *scheduled = is_scheduled < 0 ? NULL : PyObject_CallMethodNoArgs(wal, str_schedule);
        if (scheduled == NULL) {
            Py_CLEAR(result);
        }
        Py_XDECREF(scheduled);
    }
done:
    Py_XDECREF(end);
    Py_XDECREF(unflushed_after);
    Py_XDECREF(view);
    Py_XDECREF(entry);
    return result;
}

/* The group that takes `size` more bytes, a new reference; NULL where there is none (or with an exception). */
static PyObject *
group_with_room(PyObject *wal, Py_ssize_t size)
{
    if (attribute_is(wal, str_refusal, Py_None) != 1) {
        return NULL;
    }
    PyObject *group = PyObject_GetAttr(wal, str_open);
    if (group == NULL) {
        return NULL;
    }
    if (knows(&group_layout, group) == 0 && PyLong_AsLongLong(slot(&group_layout, group, G_PAYLOAD_SIZE)) + size <=
                                                PyLong_AsLongLong(slot(&group_layout, group, G_ROOM))) {
        return group;
    }
    Py_DECREF(group);
    return NULL;
}

static int
is_epoch_noted(PyObject *partition)
{
    PyObject *starts = slot(&partition_more, partition, P_EPOCH_STARTS);
    if (!PyList_Check(starts) || !PyList_GET_SIZE(starts)) {
        return 0;
    }
    PyObject *last = PyList_GET_ITEM(starts, PyList_GET_SIZE(starts) - 1);
    return PyTuple_Check(last) && PyLong_AsLongLong(PyTuple_GET_ITEM(last, 0)) ==
                                      PyLong_AsLongLong(slot(&partition_layout, partition, P_LEADER_EPOCH));
}

static PyObject *
append_common(PyObject *partition, PyObject *batch_object, const unsigned char *data, Py_ssize_t size, int64_t now_ms,
              PyObject *waiter)
{
    Batch batch;
    PyObject *policy = slot(&partition_layout, partition, P_POLICY);
    if (policy != rules.policy && learn_rules(policy) < 0) {
        return NULL;
    }
    if (!rules.is_plain || size > rules.bytes_max || !is_common_batch(data, size, &batch) ||
        batch.max_timestamp - now_ms > rules.after_ms || slot(&partition_more, partition, P_REMOVED) != Py_False ||
        slot(&partition_layout, partition, P_COMMIT_WAITERS) != Py_None || !is_epoch_noted(partition)) {
        return NULL;
    }
    PyObject *tail = slot(&partition_layout, partition, P_TAIL);
    if (knows(&tail_layout, tail) < 0 || knows(&index_layout, slot(&tail_layout, tail, T_INDEX)) < 0) {
        return NULL;
    }
    PyObject *chunks = slot(&tail_layout, tail, T_CHUNKS);
    Py_ssize_t chunk_count = PyList_GET_SIZE(chunks);
    if (!chunk_count) {
        return NULL;
    }
    PyObject *chunk = PyList_GET_ITEM(chunks, chunk_count - 1);
    if (knows(&chunk_layout, chunk) < 0 || PyLong_AsLongLong(slot(&chunk_layout, chunk, C_SIZE)) -
                                                   PyLong_AsLongLong(slot(&chunk_layout, chunk, C_USED)) <
                                               size) {
        return NULL;
    }
    PyObject *producer = NULL;
    if (batch.producer_id != -1 && (producer = continued_producer(partition, &batch)) == NULL) {
        return NULL;
    }
    PyObject *store = slot(&partition_layout, partition, P_STORE);
    int64_t base = PyLong_AsLongLong(slot(&partition_layout, partition, P_END_OFFSET));
    int64_t margin = attribute_int(store, str_ceiling_margin);
    if (base + batch.count + margin > PyLong_AsLongLong(slot(&partition_more, partition, P_CEILING))) {
        return NULL;
    }
    PyObject *wal = PyObject_GetAttr(store, str_wal);
    PyObject *group = wal != NULL ? group_with_room(wal, size) : NULL;
    PyObject *result = NULL;
    if (group != NULL && has_valid_crc(batch_object, data, size) == 1) {
        result = append_to_group(partition, wal, group, tail, chunk, producer, data, size, &batch, base, now_ms, waiter);
    }
    Py_XDECREF(group);
    Py_XDECREF(wal);
    return result;
}

static PyObject *
append(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "append(partition, batch, now_ms, waiter)");
        return NULL;
    }
    PyObject *partition = arguments[0];
    int64_t now_ms = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred() || knows(&partition_layout, partition) < 0 || knows(&partition_more, partition) < 0) {
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[1], &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *base = append_common(partition, arguments[1], buffer.buf, buffer.len, now_ms, arguments[3]);
    PyBuffer_Release(&buffer);
    if (base == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return base;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL,
     "append(partition, batch, now_ms, waiter) -> base offset, or None where the twin must do it"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_append", "The common append, in one call.", -1, methods,
                                    NULL,                  NULL,      NULL,                              NULL};

static PyObject *
import_name(const char *from, const char *name)
{
    PyObject *source = PyImport_ImportModule(from);
    PyObject *found = source != NULL ? PyObject_GetAttrString(source, name) : NULL;
    Py_XDECREF(source);
    return found;
}

static const struct {
    PyObject **place;
    const char *text;
} strings[] = {
    {&str_wal, "wal"},
    {&str_ceiling_margin, "ceiling_margin"},
    {&str_refusal, "_refusal"},
    {&str_open, "_open"},
    {&str_unflushed, "unflushed_bytes"},
    {&str_is_scheduled, "_is_scheduled"},
    {&str_schedule, "_schedule"},
    {&str_append, "append"},
    {&str_expect_one, "expect_one"},
    {&str_durability, "durability"},
    {&str_bytes_max, "message_bytes_max"},
    {&str_append_time, "uses_append_time"},
    {&str_before, "timestamp_before_ms"},
    {&str_after, "timestamp_after_ms"},
    {&str_compacted, "is_compacted"},
    {&str_wal_value, "wal"},
};

PyMODINIT_FUNC
PyInit__append(void)
{
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        if ((*strings[i].place = PyUnicode_InternFromString(strings[i].text)) == NULL) {
            return NULL;
        }
    }
    if ((crc32c = import_name("crc32c", "crc32c")) == NULL ||
        (sent_batch_type = import_name("headrace.log.producers", "SentBatch")) == NULL) {
        return NULL;
    }
    PyObject *self = PyModule_Create(&module);
    /* Facts that Python states too; a test holds the two together. */
    if (self == NULL || PyModule_AddIntMacro(self, HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, LENGTH_OVERHEAD) < 0 ||
        PyModule_AddIntMacro(self, CRC_START) < 0 || PyModule_AddIntMacro(self, RECORD_SIZE_MIN) < 0 ||
        PyModule_AddIntMacro(self, GROUP_HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, ENTRY_SIZE) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    return self;
}
