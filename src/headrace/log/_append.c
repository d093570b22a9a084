/* The common case of `PartitionLog.append` and `wait`, in one call.

       append(partition, batch, now_ms, waiter) -> base offset, or None

   None means: not here. Nothing has changed then, and the caller goes the way of the pure twin, which knows every case
   and raises the errors. Everything is decided before the first change, so there is no half-done append to undo.

   The common case: a valid batch of a client, not transactional, from no producer or from one that goes on where it left
   off, no larger than the partition's `plain_size_max`, into a chunk and a group that have room. That number is all this
   module knows of a topic's rules: Python makes it when they change, and makes it 0 for every rule that is not looked at
   here. Objects stay Python's own: this reads and writes the slots of `PartitionLog`, `Tail`, `TailIndex`, `Chunk`,
   `WalWriter`, `Group` and `Producer` where they lie.

   `pointer` is a capsule of the same for C modules (`LogCalls`), which need no Python objects for it. */

#include "append_batch.h"
#include "append_place.h"

#include <string.h>

enum { UNFLUSHED_BYTES_MAX = 64 * 1024 * 1024, SMALL_REQUEST = 8 * 1024 * 1024 };

static PyObject *str_schedule, *str_append, *str_expect_one;

/* -- the append ---------------------------------------------------------------------------------------------------- */

typedef unsigned char Vector __attribute__((vector_size(16), aligned(1)));
enum { VECTORS_AT_ONCE = 4 };

/* To both places in one go: the C library's copy, called for each, takes up to twice as long. */
static void
put_twice(unsigned char *first, unsigned char *second, const unsigned char *data, Py_ssize_t size)
{
    Vector taken[VECTORS_AT_ONCE];
    for (; size >= (Py_ssize_t)sizeof taken; size -= sizeof taken) {
        for (int i = 0; i < VECTORS_AT_ONCE; i++) {
            taken[i] = ((const Vector *)data)[i];
        }
        for (int i = 0; i < VECTORS_AT_ONCE; i++) {
            ((Vector *)first)[i] = taken[i];
        }
        for (int i = 0; i < VECTORS_AT_ONCE; i++) {
            ((Vector *)second)[i] = taken[i];
        }
        data += sizeof taken;
        first += sizeof taken;
        second += sizeof taken;
    }
    memcpy(first, data, (size_t)size);
    memcpy(second, data, (size_t)size);
}

static void
put_batch(const unsigned char *data, Py_ssize_t size, const Place *place)
{
    put_twice(place->memory, place->image, data, size);
    unsigned char *const copies[] = {place->memory, place->image};
    for (int i = 0; i < 2; i++) {
        put_int(copies[i], place->base, 8);
        put_int(copies[i] + LEADER_EPOCH_AT, place->epoch, 4);
    }
}

static PyObject *
new_entry(PyObject *partition, const Place *place, Py_ssize_t size)
{
    PyObject *entry = PyBytes_FromStringAndSize(NULL, ENTRY_SIZE);
    if (entry != NULL) {
        unsigned char *row = (unsigned char *)PyBytes_AS_STRING(entry);
        memcpy(row, PyBytes_AS_STRING(slot(&partition_layout, partition, P_ENTRY_HEAD)), ENTRY_HEAD_SIZE);
        put_int(row + ENTRY_HEAD_SIZE, size, 4);
        put_int(row + ENTRY_HEAD_SIZE + 4, place->base, 8);
        put_int(row + ENTRY_HEAD_SIZE + 12, place->epoch, 4);
    }
    return entry;
}

/* A `SentBatch` without the detour through its own `__new__`. */
static PyObject *
new_sent_batch(const Batch *batch, int64_t base)
{
    int64_t last_sequence = ((int64_t)batch->base_sequence + batch->count - 1) & 0x7FFFFFFF;
    PyObject *arguments = Py_BuildValue("((iLLL))", batch->base_sequence, (long long)last_sequence, (long long)base,
                                        (long long)(base + batch->count));
    PyObject *sent = arguments != NULL ? PyTuple_Type.tp_new(sent_batch_layout.type, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    return sent;
}

static int
append_to(PyObject *sequence, PyObject *value)
{
    PyObject *done = PyObject_CallMethodOneArg(sequence, str_append, value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* How an `array.array` lies in memory, which Python does not promise: `learn_arrays` looks whether it is so. */
typedef struct {
    PyObject_VAR_HEAD
    char *items;
    Py_ssize_t allocated;
    const void *kind;
    PyObject *weak_references;
    Py_ssize_t exports;
} Array;

static PyTypeObject *array_type; /* NULL where an array has to be asked */

static int
learn_arrays(void)
{
    Py_buffer view;
    PyObject *type = import_name("array", "array");
    PyObject *array = type != NULL ? PyObject_CallFunction(type, "s(LL)", "q", 1LL, 2LL) : NULL;
    if (array == NULL || PyObject_GetBuffer(array, &view, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(array);
        Py_XDECREF(type);
        return -1;
    }
    const Array *inside = (Array *)array;
    int is_so = Py_TYPE(array)->tp_basicsize == sizeof(Array) && inside->items == view.buf && inside->exports == 1 &&
                Py_SIZE(array) == 2 && inside->allocated >= 2 && inside->allocated < 64;
    PyBuffer_Release(&view);
    if (is_so && inside->exports == 0) {
        array_type = (PyTypeObject *)Py_NewRef(type);
    }
    Py_DECREF(array);
    Py_DECREF(type);
    return 0;
}

/* `array.append` reads its argument by a format string, which takes longer than everything else it does. */
static int
append_number(PyObject *array, int64_t number)
{
    Array *inside = (Array *)array;
    if (Py_TYPE(array) == array_type && !inside->exports && Py_SIZE(array) < inside->allocated) {
        memcpy(inside->items + Py_SIZE(array) * sizeof number, &number, sizeof number);
        Py_SET_SIZE(inside, Py_SIZE(array) + 1);
        return 0;
    }
    PyObject *value = PyLong_FromLongLong(number);
    int failed = value == NULL || append_to(array, value) < 0;
    Py_XDECREF(value);
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
    Py_XDECREF(done);
    return done == NULL ? -1 : PyList_Append(waiters, waiter);
}

static int
schedule(PyObject *wal)
{
    if (slot(&wal_layout, wal, W_IS_SCHEDULED) == Py_True) {
        return 0;
    }
    PyObject *done = PyObject_CallMethodNoArgs(wal, str_schedule);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

enum { N_END, N_NEWEST, N_NOW, N_USED, N_POSITION, N_PAYLOAD_SIZE, N_ROOM, N_UNFLUSHED, N_COUNT };

/* Nothing is decided here any more, and only memory can run out; what is done by then is done. */
static int
change_all(PyObject *partition, const Place *place, const Batch *batch, PyObject *const *numbers, PyObject *entry,
           PyObject *sent, PyObject *waiter)
{
    PyObject *group = place->group, *tail = place->tail, *index = place->index, *producer = place->producer;
    set_slot(&group_layout, group, G_PAYLOAD_SIZE, numbers[N_PAYLOAD_SIZE]);
    set_slot(&group_layout, group, G_ROOM, numbers[N_ROOM]);
    set_slot(&chunk_layout, place->chunk, C_USED, numbers[N_USED]);
    set_slot(&wal_layout, place->wal, W_UNFLUSHED, numbers[N_UNFLUSHED]);
    if (PyList_Append(slot(&group_layout, group, G_TABLE), entry) < 0 ||
        PyDict_SetItem(slot(&group_layout, group, G_ENDS), partition, numbers[N_END]) < 0 ||
        append_number(slot(&index_layout, index, I_OFFSETS), place->base) < 0 ||
        append_number(slot(&index_layout, index, I_ENDS), place->base + batch->count) < 0 ||
        append_number(slot(&index_layout, index, I_POSITIONS), place->position) < 0 ||
        append_number(slot(&index_layout, index, I_LSNS), place->lsn) < 0 ||
        append_number(slot(&index_layout, index, I_MAX_TIMESTAMPS), batch->max_timestamp) < 0) {
        return -1;
    }
    if (batch->max_timestamp > place->timestamp_high) {
        set_slot(&index_layout, index, I_TIMESTAMP_HIGH, numbers[N_NEWEST]);
    }
    set_slot(&tail_layout, tail, T_POSITION, numbers[N_POSITION]);
    set_slot(&partition_layout, partition, P_END_OFFSET, numbers[N_END]);
    if (producer != NULL) {
        set_slot(&producer_layout, producer, R_LAST_TIMESTAMP, numbers[N_NEWEST]);
        set_slot(&producer_layout, producer, R_SEEN, numbers[N_NOW]);
        if (append_to(slot(&producer_layout, producer, R_BATCHES), sent) < 0) {
            return -1;
        }
    }
    return (waiter != Py_None && wait_for(group, waiter) < 0) || schedule(place->wal) < 0 ? -1 : 0;
}

/* 0, or -1 with an exception. */
static int
append_at(PyObject *partition, const Place *place, const unsigned char *data, Py_ssize_t size, const Batch *batch,
          int64_t now_ms, PyObject *waiter)
{
    const int64_t values[N_COUNT] = {
        [N_END] = place->base + batch->count,
        [N_NEWEST] = batch->max_timestamp,
        [N_NOW] = now_ms,
        [N_USED] = place->used + size,
        [N_POSITION] = place->position + size,
        [N_PAYLOAD_SIZE] = place->payload_size + size,
        [N_ROOM] = place->room - ENTRY_SIZE,
        [N_UNFLUSHED] = place->unflushed + size,
    };
    PyObject *numbers[N_COUNT];
    int has_all = 1;
    for (int i = 0; i < N_COUNT; i++) {
        numbers[i] = PyLong_FromLongLong(values[i]);
        has_all = has_all && numbers[i] != NULL;
    }
    PyObject *entry = new_entry(partition, place, size);
    PyObject *sent = entry != NULL && place->producer != NULL ? new_sent_batch(batch, place->base) : NULL;
    int outcome = -1;
    if (has_all && entry != NULL && (place->producer == NULL || sent != NULL)) {
        put_batch(data, size, place);
        outcome = change_all(partition, place, batch, numbers, entry, sent, waiter);
    }
    for (int i = 0; i < N_COUNT; i++) {
        Py_XDECREF(numbers[i]);
    }
    Py_XDECREF(entry);
    Py_XDECREF(sent);
    return outcome;
}

/* 0, or -1 with an exception. */
static int
learn(void)
{
    if (partition_layout.type != NULL) { /* the last to be learned */
        return 0;
    }
    return learn_arrays() < 0 ? -1 : learn_layouts(layouts, sizeof layouts / sizeof *layouts);
}

/* The first two answers of `LogStore.can_take`. */
static int
has_room(PyObject *partition, Py_ssize_t size)
{
    int is_good = learn() == 0 && is_a(&partition_layout, partition);
    PyObject *store = is_good ? slot(&partition_layout, partition, P_STORE) : NULL;
    PyObject *wal = is_a(&store_layout, store) ? slot(&store_layout, store, L_WAL) : NULL;
    PyErr_Clear();
    return is_a(&wal_layout, wal) && slot(&wal_layout, wal, W_FAR_FROM_FULL) == Py_True && size < SMALL_REQUEST &&
           slot_number(&wal_layout, wal, W_UNFLUSHED, &is_good) < UNFLUSHED_BYTES_MAX && is_good;
}

static int64_t
append_batch(PyObject *partition, const unsigned char *data, Py_ssize_t size, int64_t now_ms, PyObject *waiter)
{
    Batch batch;
    Place place;
    int is_good = 1;
    if (learn() < 0) {
        return APPEND_FAILED;
    }
    if (!is_a(&partition_layout, partition)) {
        return APPEND_DECLINED;
    }
    /* All there is to know of the topic's rules and the partition's state; Python decides it when they change. */
    int64_t plain_size_max = slot_number(&partition_layout, partition, P_PLAIN_SIZE_MAX, &is_good);
    PyObject *store = slot(&partition_layout, partition, P_STORE);
    if (!is_good || size > plain_size_max || !is_common_batch(data, size, &batch) || !is_in_time(&batch, now_ms) ||
        !is_a(&store_layout, store)) {
        return APPEND_DECLINED;
    }
    int64_t margin = slot_number(&store_layout, store, L_CEILING_MARGIN, &is_good);
    if (!is_good || !find_in_group(slot(&store_layout, store, L_WAL), size, &place) ||
        !find_in_partition(partition, &batch, margin, &place) || !find_in_tail(partition, size, &place) ||
        !has_valid_crc(data, size) || !has_whole_records(data, size, &batch)) {
        return APPEND_DECLINED;
    }
    return append_at(partition, &place, data, size, &batch, now_ms, waiter) < 0 ? APPEND_FAILED : place.base;
}

static PyObject *
append(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "append(partition, batch, now_ms, waiter)");
        return NULL;
    }
    Py_buffer buffer;
    int is_good = 1;
    int64_t now_ms = number_of(arguments[2], &is_good);
    if (!is_good || PyObject_GetBuffer(arguments[1], &buffer, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    int64_t base = append_batch(arguments[0], buffer.buf, buffer.len, now_ms, arguments[3]);
    PyBuffer_Release(&buffer);
    if (base == APPEND_DECLINED) {
        Py_RETURN_NONE;
    }
    return base == APPEND_FAILED ? NULL : PyLong_FromLongLong(base);
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static const LogCalls calls = {has_room, append_batch};

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL,
     "append(partition, batch, now_ms, waiter) -> base offset, or None where the twin must do it"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_append", "The common append, in one call.", -1, methods,
                                    NULL,                  NULL,      NULL,                              NULL};

static const Name names[] = {
    {&str_schedule, "_schedule"},
    {&str_append, "append"},
    {&str_expect_one, "expect_one"},
};

PyMODINIT_FUNC
PyInit__append(void)
{
    if (intern_names(names, sizeof names / sizeof *names) < 0) {
        return NULL;
    }
    if ((crc32c = import_name("crc32c", "crc32c")) == NULL) {
        return NULL;
    }
    PyObject *self = PyModule_Create(&module);
    /* Facts that Python states too; a test holds the two together. */
    if (self == NULL || PyModule_AddIntMacro(self, HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, LENGTH_OVERHEAD) < 0 ||
        PyModule_AddIntMacro(self, CRC_START) < 0 || PyModule_AddIntMacro(self, RECORD_SIZE_MIN) < 0 ||
        PyModule_AddIntMacro(self, GROUP_HEADER_SIZE) < 0 || PyModule_AddIntMacro(self, ENTRY_SIZE) < 0 ||
        PyModule_AddIntMacro(self, UNFLUSHED_BYTES_MAX) < 0 || PyModule_AddIntMacro(self, SMALL_REQUEST) < 0 ||
        PyModule_AddIntMacro(self, PLAIN_AHEAD_MS) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    PyObject *pointer = PyCapsule_New((void *)&calls, LOG_CAPSULE, NULL);
    if (pointer == NULL || PyModule_AddObject(self, "pointer", pointer) < 0) {
        Py_XDECREF(pointer);
        Py_DECREF(self);
        return NULL;
    }
    return self;
}
