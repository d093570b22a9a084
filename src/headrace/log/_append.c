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

#include "../kernel.h"

#include <string.h>

enum { MAGIC = 2, RECORD_SIZE_MIN = 7 };
enum { GROUP_HEADER_SIZE = 44, ENTRY_HEAD_SIZE = 20, ENTRY_SIZE = 36 };
enum { PLAIN_AHEAD_MS = 3600000 };
enum { UNFLUSHED_BYTES_MAX = 64 * 1024 * 1024, SMALL_REQUEST = 8 * 1024 * 1024 };

/* -- what is read and written ---------------------------------------------------------------------------------------- */

enum { P_STORE, P_ENTRY_HEAD, P_TAIL, P_PLAIN_SIZE_MAX, P_END_OFFSET, P_LEADER_EPOCH, P_CEILING, P_EPOCH_STARTS, P_PRODUCERS };
static Layout partition_layout = {
    "headrace.log.partition", "PartitionLog",
    {"_store", "_entry_head", "_tail", "plain_size_max", "end_offset", "leader_epoch", "ceiling", "epoch_starts", "producers"},
    NULL, {0}};
enum { T_CHUNKS, T_POSITION, T_INDEX };
static Layout tail_layout = {"headrace.log.tail", "Tail", {"_chunks", "_position", "index"}, NULL, {0}};
enum { I_OFFSETS, I_ENDS, I_POSITIONS, I_LSNS, I_MAX_TIMESTAMPS, I_TIMESTAMP_HIGH };
static Layout index_layout = {"headrace.log.index", "TailIndex",
                              {"offsets", "ends", "positions", "lsns", "max_timestamps", "timestamp_high"}, NULL, {0}};
enum { C_VIEW, C_USED };
static Layout chunk_layout = {"headrace.log.arena", "Chunk", {"view", "used"}, NULL, {0}};
enum { G_LSN, G_ROOM, G_PAYLOAD_SIZE, G_IMAGE, G_TABLE, G_ENDS, G_WAITERS };
static Layout group_layout = {"headrace.log.wal.writer", "Group",
                              {"lsn", "room", "payload_size", "image", "table", "ends", "waiters"}, NULL, {0}};
enum { W_OPEN, W_REFUSAL, W_UNFLUSHED, W_IS_SCHEDULED, W_FAR_FROM_FULL };
static Layout wal_layout = {"headrace.log.wal.writer", "WalWriter",
                            {"_open", "_refusal", "unflushed_bytes", "_is_scheduled", "is_far_from_full"}, NULL, {0}};
enum { L_WAL, L_CEILING_MARGIN };
static Layout store_layout = {"headrace.log.store", "LogStore", {"wal", "ceiling_margin"}, NULL, {0}};
enum { S_BY_ID };
static Layout producers_layout = {"headrace.log.producers", "Producers", {"_by_id"}, NULL, {0}};
enum { R_EPOCH, R_BATCHES, R_LAST_TIMESTAMP, R_SEEN };
static Layout producer_layout = {"headrace.log.producers", "Producer",
                                 {"epoch", "batches", "last_timestamp_ms", "seen_ms"}, NULL, {0}};
static Layout sent_batch_layout = {"headrace.log.producers", "SentBatch", {NULL}, NULL, {0}}; /* a tuple */

static Layout *const layouts[] = {&tail_layout,  &index_layout,     &chunk_layout,    &group_layout,      &wal_layout,
                                  &store_layout, &producers_layout, &producer_layout, &sent_batch_layout, &partition_layout};

static PyObject *crc32c;
static PyObject *str_schedule, *str_append, *str_expect_one;

/* -- the batch ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int32_t count, base_sequence;
    int is_compressed;
    int16_t epoch;
    int64_t producer_id, max_timestamp;
} Batch;

/* Whether the batch is one that `check_batch` takes, the CRC aside, and the log has nothing special to do for. */
static int
is_common_batch(const unsigned char *data, Py_ssize_t size, Batch *batch)
{
    if (size < HEADER_SIZE || data[MAGIC_AT] != MAGIC || read_int(data + BATCH_LENGTH_AT, 4) + LENGTH_OVERHEAD != size) {
        return 0;
    }
    int attributes = (int)read_int(data + ATTRIBUTES_AT, 2) & 0xFFFF;
    int codec = attributes & CODEC_MASK;
    int64_t count = read_int(data + RECORD_COUNT_AT, 4);
    if (attributes & (TRANSACTIONAL | CONTROL) || codec > CODEC_LAST) {
        return 0;
    }
    if (count < 1 || read_int(data + LAST_OFFSET_DELTA_AT, 4) != count - 1 ||
        (codec ? 1 : count * RECORD_SIZE_MIN) > size - HEADER_SIZE) {
        return 0;
    }
    batch->count = (int32_t)count;
    batch->is_compressed = codec != 0;
    batch->max_timestamp = read_int(data + MAX_TIMESTAMP_AT, 8);
    batch->producer_id = read_int(data + PRODUCER_ID_AT, 8);
    batch->epoch = (int16_t)read_int(data + PRODUCER_EPOCH_AT, 2);
    batch->base_sequence = (int32_t)read_int(data + BASE_SEQUENCE_AT, 4);
    return batch->producer_id == -1 || (batch->producer_id >= 0 && batch->epoch >= 0 && batch->base_sequence >= 0);
}

/* The CRC has one implementation in the product, and it is not this file's. */
static int
has_valid_crc(const unsigned char *data, Py_ssize_t size)
{
    int is_good = 1;
    PyObject *covered = PyMemoryView_FromMemory((char *)data + CRC_START, size - CRC_START, PyBUF_READ);
    PyObject *found = covered != NULL ? PyObject_CallOneArg(crc32c, covered) : NULL;
    Py_XDECREF(covered);
    int64_t crc = number_of(found, &is_good);
    Py_XDECREF(found);
    PyErr_Clear();
    return is_good && crc == (int64_t)(uint32_t)read_int(data + 17, 4);
}

/* `check_records`, where that needs no decompressing; what is compressed is taken as it comes, as the twin takes it. */
static int
has_whole_records(const unsigned char *data, Py_ssize_t size, const Batch *batch)
{
    const unsigned char *at = data + HEADER_SIZE, *end = data + size;
    for (int64_t nth = 0; !batch->is_compressed && nth < batch->count; nth++) {
        Walked walked;
        if (!walk_record(&at, end, &walked) || walked.offset_delta != nth) {
            return 0;
        }
    }
    return batch->is_compressed || at == end;
}

/* Whether the client's clock is no further ahead than every plain topic allows; what cannot be subtracted is not common. */
static int
is_in_time(const Batch *batch, int64_t now_ms)
{
    int64_t ahead_ms;
    return !__builtin_sub_overflow(batch->max_timestamp, now_ms, &ahead_ms) && ahead_ms <= PLAIN_AHEAD_MS;
}

/* -- the place ----------------------------------------------------------------------------------------------------- */

/* Where a batch goes, all of it read and checked before the first change, and borrowed from the partition: the log belongs
   to the loop's thread, and nothing that is called until the end is the log's. */
typedef struct {
    PyObject *wal, *group, *tail, *index, *chunk, *producer;
    unsigned char *memory, *image;
    int64_t base, epoch, used, position, timestamp_high, lsn, payload_size, room, unflushed;
} Place;

/* The producer that this batch continues, borrowed; NULL where the twin must look. */
static PyObject *
continued_producer(PyObject *partition, const Batch *batch)
{
    int is_good = 1;
    PyObject *producers = slot(&partition_layout, partition, P_PRODUCERS);
    PyObject *by_id = is_a(&producers_layout, producers) ? slot(&producers_layout, producers, S_BY_ID) : NULL;
    PyObject *key = by_id != NULL && PyDict_Check(by_id) ? PyLong_FromLongLong(batch->producer_id) : NULL;
    PyObject *producer = key != NULL ? PyDict_GetItemWithError(by_id, key) : NULL;
    Py_XDECREF(key);
    PyErr_Clear();
    if (!is_a(&producer_layout, producer) || slot_number(&producer_layout, producer, R_EPOCH, &is_good) != batch->epoch) {
        return NULL;
    }
    PyObject *batches = slot(&producer_layout, producer, R_BATCHES);
    Py_ssize_t kept = batches != NULL ? PyObject_Size(batches) : 0;
    int64_t last_sequence = -1;
    for (Py_ssize_t nth = 0; is_good && nth < kept; nth++) {
        PyObject *sent = PySequence_GetItem(batches, nth);
        if (is_a(&sent_batch_layout, sent) && PyTuple_GET_SIZE(sent) > 1) {
            /* Sequences come round again: one that continues the last batch may still repeat an earlier one. */
            last_sequence = number_of(PyTuple_GET_ITEM(sent, 1), &is_good);
            if (number_of(PyTuple_GET_ITEM(sent, 0), &is_good) == batch->base_sequence) {
                is_good = 0;
            }
        } else {
            is_good = 0;
        }
        Py_XDECREF(sent);
    }
    PyErr_Clear();
    return is_good && kept > 0 && ((last_sequence + 1) & 0x7FFFFFFF) == batch->base_sequence ? producer : NULL;
}

static int
is_epoch_noted(PyObject *partition, int64_t epoch)
{
    int is_good = 1;
    PyObject *starts = slot(&partition_layout, partition, P_EPOCH_STARTS);
    if (starts == NULL || !PyList_Check(starts) || !PyList_GET_SIZE(starts)) {
        return 0;
    }
    PyObject *last = PyList_GET_ITEM(starts, PyList_GET_SIZE(starts) - 1);
    return PyTuple_Check(last) && PyTuple_GET_SIZE(last) && number_of(PyTuple_GET_ITEM(last, 0), &is_good) == epoch &&
           is_good;
}

static int
find_in_partition(PyObject *partition, const Batch *batch, int64_t margin, Place *place)
{
    int is_good = 1;
    place->base = slot_number(&partition_layout, partition, P_END_OFFSET, &is_good);
    place->epoch = slot_number(&partition_layout, partition, P_LEADER_EPOCH, &is_good);
    int64_t ceiling = slot_number(&partition_layout, partition, P_CEILING, &is_good);
    PyObject *head = slot(&partition_layout, partition, P_ENTRY_HEAD);
    /* Beyond the margin the twin asks for a higher ceiling; negative numbers are nobody's and would overflow. */
    if (!is_good || place->base < 0 || margin < 0 || ceiling < 0 || place->base > ceiling - margin - batch->count ||
        place->epoch != (int32_t)place->epoch || !is_epoch_noted(partition, place->epoch) ||
        head == NULL || !PyBytes_Check(head) || PyBytes_GET_SIZE(head) != ENTRY_HEAD_SIZE) {
        return 0;
    }
    place->producer = batch->producer_id != -1 ? continued_producer(partition, batch) : NULL;
    return batch->producer_id == -1 || place->producer != NULL;
}

/* Where `size` bytes go in `view`; NULL where it has no room for them. */
static unsigned char *
memory_at(PyObject *view, int64_t start, Py_ssize_t size)
{
    if (view == NULL || !PyMemoryView_Check(view)) {
        return NULL;
    }
    const Py_buffer *memory = PyMemoryView_GET_BUFFER(view);
    int has_room = !memory->readonly && start >= 0 && start <= memory->len && memory->len - start >= size;
    return has_room ? (unsigned char *)memory->buf + start : NULL;
}

static int
find_in_tail(PyObject *partition, Py_ssize_t size, Place *place)
{
    int is_good = 1;
    PyObject *tail = place->tail = slot(&partition_layout, partition, P_TAIL);
    if (!is_a(&tail_layout, tail)) {
        return 0;
    }
    place->index = slot(&tail_layout, tail, T_INDEX);
    PyObject *chunks = slot(&tail_layout, tail, T_CHUNKS);
    if (!is_a(&index_layout, place->index) || chunks == NULL || !PyList_Check(chunks) || !PyList_GET_SIZE(chunks)) {
        return 0;
    }
    PyObject *chunk = place->chunk = PyList_GET_ITEM(chunks, PyList_GET_SIZE(chunks) - 1);
    if (!is_a(&chunk_layout, chunk)) {
        return 0;
    }
    place->used = slot_number(&chunk_layout, chunk, C_USED, &is_good);
    place->position = slot_number(&tail_layout, tail, T_POSITION, &is_good);
    place->timestamp_high = slot_number(&index_layout, place->index, I_TIMESTAMP_HIGH, &is_good);
    place->memory = memory_at(slot(&chunk_layout, chunk, C_VIEW), place->used, size);
    return is_good && place->memory != NULL;
}

static int
find_in_group(PyObject *wal, Py_ssize_t size, Place *place)
{
    int is_good = 1;
    PyObject *group = is_a(&wal_layout, wal) ? slot(&wal_layout, wal, W_OPEN) : NULL;
    if (!is_a(&group_layout, group) || slot(&wal_layout, wal, W_REFUSAL) != Py_None) {
        return 0;
    }
    place->wal = wal;
    place->group = group;
    place->payload_size = slot_number(&group_layout, group, G_PAYLOAD_SIZE, &is_good);
    place->room = slot_number(&group_layout, group, G_ROOM, &is_good);
    place->lsn = slot_number(&group_layout, group, G_LSN, &is_good) + GROUP_HEADER_SIZE + place->payload_size;
    place->unflushed = slot_number(&wal_layout, wal, W_UNFLUSHED, &is_good);
    place->image = memory_at(slot(&group_layout, group, G_IMAGE), GROUP_HEADER_SIZE + place->payload_size, size);
    return is_good && size <= place->room - place->payload_size && place->image != NULL;
}

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
